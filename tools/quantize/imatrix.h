#ifndef HS_TOOLS_QUANTIZE_IMATRIX_H
#define HS_TOOLS_QUANTIZE_IMATRIX_H

/* Importance matrices in the GGUF form of today's tools: general.type is "imatrix", and for a
 * matrix NAME there are NAME.in_sum2, f32 {n, 1}, the sum of each input channel's squared
 * activations, and NAME.counts, f32 {1, 1}, over how many tokens. */

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_imatrix hs_imatrix;

/* Every number is checked: finite and not negative. */
HS_NODISCARD hs_status hs_imatrix_open(hs_imatrix **out, const char *path, hs_err *err);
void hs_imatrix_free(hs_imatrix *m);
size_t hs_imatrix_entries(const hs_imatrix *m);

typedef enum hs_importance_kind {
    HS_IMPORTANCE_NONE,     /* not in the file, or counted over no token */
    HS_IMPORTANCE_CHANNELS, /* one number per element of a row */
    HS_IMPORTANCE_ROWS,     /* one per row (ffn_down_t): nothing to weigh within a row */
} hs_importance_kind;

/* What there is about a tensor.  *weight (borrowed): ne[0] f32 for CHANNELS, unaligned; *covered:
 * how many of them are not 0.  Lengths that fit neither are an error: another model's matrix. */
HS_NODISCARD hs_status hs_imatrix_find(const hs_imatrix *m, const hs_gguf_tensor *t,
                                       hs_importance_kind *kind, const uint8_t **weight,
                                       uint64_t *covered, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
