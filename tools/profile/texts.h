#ifndef HS_PROFILE_TEXTS_H
#define HS_PROFILE_TEXTS_H

/* The calibration texts, and how they are cut into chunks: like the perplexity protocol, the
 * whole text is tokenized at once without BOS, chunk k is BOS and the next n_ctx - 1 tokens,
 * and the last chunk of a text may be short. */

#include "formats/fingerprint.h"
#include "runtime/cli.h"
#include "runtime/hotset.h"

typedef struct hs_text {
    const char *path;                    /* borrowed */
    char hash[HS_FINGERPRINT_CHARS + 1]; /* of its bytes */
    char *bytes;                         /* owned, until tokenized */
    size_t n_bytes;
    int32_t *ids; /* owned */
    size_t n_ids;
} hs_text;

typedef struct hs_texts {
    size_t n;
    hs_text *text;
    uint32_t n_ctx;    /* positions of a chunk, BOS included; at least 2 */
    int32_t bos;       /* -1: chunks have none */
    uint64_t n_chunks; /* over all texts, at most the limit given to hs_texts_tokenize */
    bool whole;        /* and no chunk was left out */
} hs_texts;

/* Read and hash all texts; an empty one is refused. */
HS_NODISCARD hs_status hs_texts_read(hs_texts *t, const char *const *path, size_t n, hs_err *err);
/* Tokenize as many as `max_chunks` chunks need (0: all of them). */
HS_NODISCARD hs_status hs_texts_tokenize(hs_texts *t, const hs_model *m, uint64_t max_chunks,
                                         bool special, const hs_cli *cli, hs_err *err);
void hs_texts_free(hs_texts *t);

/* Chunks that n_ids tokens make. */
uint64_t hs_text_chunks(size_t n_ids, uint32_t n_ctx, bool bos);
/* Chunk k over all texts into out[n_ctx] and the number of its text into *text; returns its
 * length, 0 when there is no such chunk. */
size_t hs_texts_chunk(const hs_texts *t, uint64_t k, int32_t *out, size_t *text);
/* Positions of the chunks [0, k) together. */
uint64_t hs_texts_positions(const hs_texts *t, uint64_t k);

#endif
