#ifndef HS_RUNTIME_TOKEN_H
#define HS_RUNTIME_TOKEN_H

/* The vocabulary and the SentencePiece BPE tokenizer with byte fallback. */

#include "formats/gguf.h"
#include "formats/spm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_vocab hs_vocab;

/* From tokenizer.ggml.*; strings are borrowed from g, which must outlive the vocabulary.
 * Checks element types, equal lengths, special ids in range, the model name ("llama"). */
HS_NODISCARD hs_status hs_vocab_new(hs_vocab **out, const hs_gguf *g, hs_err *err);
void hs_vocab_free(hs_vocab *v);

uint32_t hs_vocab_size(const hs_vocab *v);
int32_t hs_vocab_bos(const hs_vocab *v); /* -1: none */
int32_t hs_vocab_eos(const hs_vocab *v);
bool hs_vocab_add_bos(const hs_vocab *v); /* as the file says; SentencePiece default: yes */
bool hs_vocab_is_eog(const hs_vocab *v, int32_t id);
hs_token_type hs_vocab_type(const hs_vocab *v, int32_t id);
hs_str hs_vocab_piece(const hs_vocab *v, int32_t id); /* as stored */

/* See hs_tokenize and hs_token_bytes in hotset.h. */
HS_NODISCARD hs_status hs_vocab_encode(const hs_vocab *v, const char *text, size_t n, bool special,
                                       int32_t **ids, size_t *n_ids, hs_err *err);
size_t hs_vocab_bytes(const hs_vocab *v, int32_t id, char *out, size_t cap);
/* A whole sequence as text (malloc'd, NUL-terminated, *len without the NUL), with the one
 * leading space that encoding added removed, as SentencePiece decodes. */
HS_NODISCARD hs_status hs_vocab_decode(const hs_vocab *v, const int32_t *ids, size_t n, char **text,
                                       size_t *len, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
