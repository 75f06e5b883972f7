#ifndef HS_FORMATS_IMATRIX_H
#define HS_FORMATS_IMATRIX_H

/* Importance matrices in the GGUF form of today's tools: general.type is "imatrix", and for a
 * matrix NAME there are NAME.in_sum2, f32 {n, 1}, the sum of each input channel's squared
 * activations, and NAME.counts, f32 {1, 1}, over how many tokens. */

#include "formats/gguf.h"
#include "formats/gguf_write.h"

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

/* --- writing ------------------------------------------------------------ */

typedef struct hs_imatrix_entry {
    char name[HS_GGUF_MAX_NAME - 8 + 1]; /* of the matrix: room for the longest ending */
    const double *sum2;                  /* [n], squares summed over `count` tokens; borrowed */
    uint32_t n;
    uint64_t count;
} hs_imatrix_entry;

typedef struct hs_imatrix_source {
    const hs_str *datasets; /* names of the texts; borrowed */
    size_t n_datasets;
    uint32_t n_chunks, chunk_size; /* chunks of how many tokens */
} hs_imatrix_source;

/* Sums that are no finite f32 are an error that names the matrix. */
HS_NODISCARD hs_status hs_imatrix_write(const char *path, bool replace,
                                        const hs_imatrix_source *source,
                                        const hs_imatrix_entry *entry, size_t n, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
