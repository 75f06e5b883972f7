#ifndef HS_FORMATS_SPM_H
#define HS_FORMATS_SPM_H

/* SentencePiece tokenizer.model: a protobuf whose repeated field 1 is a piece
 * { 1: string, 2: float score, 3: enum type }.  Of fields 2 and 3 (trainer and normalizer) a few
 * flags are read; everything else is skipped but bounds-checked. */

#include "formats/err.h"
#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Also GGUF's token types. */
typedef enum hs_token_type {
    HS_TOKEN_NORMAL = 1,
    HS_TOKEN_UNKNOWN = 2,
    HS_TOKEN_CONTROL = 3,
    HS_TOKEN_USER_DEFINED = 4,
    HS_TOKEN_UNUSED = 5,
    HS_TOKEN_BYTE = 6,
} hs_token_type;

typedef struct hs_spm {
    size_t n;
    hs_str *piece; /* [n], borrowed from the map */
    float *score;  /* [n], finite */
    int32_t *type; /* [n], an hs_token_type */
    hs_map map;
    /* What the file says of its own use; a file that is silent gets what Llama's does. */
    bool unigram;          /* pieces are chosen by likelihood, not merged by rank */
    bool add_dummy_prefix; /* a space is put before the text */
    bool rewrites;         /* text is normalized (a character map, white space removed) first */
} hs_spm;

HS_NODISCARD hs_status hs_spm_open(hs_spm **out, const char *path, hs_err *err);
HS_NODISCARD hs_status hs_spm_parse(hs_spm **out, const void *data, size_t size, hs_err *err);
void hs_spm_free(hs_spm *s);

#ifdef __cplusplus
}
#endif

#endif
