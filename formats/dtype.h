#ifndef HS_FORMATS_DTYPE_H
#define HS_FORMATS_DTYPE_H

/* The one table of tensor types, and the 16-bit float conversions.
 *
 * Numbers are those of current ggml files.  PWRI files mean I32 by 18; the GGUF
 * reader and writer translate, so nobody else sees that. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hs_dtype {
    HS_F32 = 0,
    HS_F16 = 1,
    HS_Q4_0 = 2,
    HS_Q4_1 = 3,
    HS_Q5_0 = 6,
    HS_Q5_1 = 7,
    HS_Q8_0 = 8,
    HS_Q2_K = 10,
    HS_Q3_K = 11,
    HS_Q4_K = 12,
    HS_Q5_K = 13,
    HS_Q6_K = 14,
    HS_IQ4_NL = 20,
    HS_IQ4_XS = 23,
    HS_I8 = 24,
    HS_I16 = 25,
    HS_I32 = 26,
    HS_I64 = 27,
    HS_F64 = 28,
    HS_BF16 = 30,
    HS_DTYPE_LIMIT = 40, /* every id is below; tables indexed by hs_dtype have this length */
} hs_dtype;

typedef struct hs_dtype_info {
    hs_dtype id;
    const char *name;     /* as the field writes it: "F16", "Q4_0", "Q6_K" */
    uint32_t block_elems; /* elements per block; 1 for plain types */
    uint32_t block_bytes; /* bytes per block */
    int file_type;        /* value of general.file_type for a file mainly of this type; -1 */
    /* n elements, a multiple of block_elems.  NULL: we know the size of this type and cannot
     * compute with it, so nothing that computes accepts it. */
    void (*decode)(float *dst, const void *src, size_t n);
    void (*encode)(void *dst, const float *src, size_t n);
    /* Least error where every squared error counts by its element's weight, a finite number >= 0
     * (a block of zeros: all alike).  NULL: weights make no difference to this type. */
    void (*encode_weighted)(void *dst, const float *src, const float *weight, size_t n);
    /* The bytes of PowerInfer's quantizer.  NULL: we do not know them. */
    void (*encode_powerinfer)(void *dst, const float *src, size_t n);
} hs_dtype_info;

/* NULL for ids we do not know. */
const hs_dtype_info *hs_dtype_get(uint32_t id);
/* Case-insensitive; NULL when there is no such type. */
const hs_dtype_info *hs_dtype_by_name(const char *name);
/* "?" for unknown ids. */
const char *hs_dtype_name(uint32_t id);
/* Bytes of a row of n elements; false when n is no multiple of the block or the product wraps. */
bool hs_dtype_row_bytes(uint32_t id, uint64_t n, uint64_t *bytes);

/* IEEE binary16, round to nearest even, overflow to infinity, NaN kept. */
uint16_t hs_f32_to_f16(float f);
float hs_f16_to_f32(uint16_t h);
/* bfloat16, round to nearest even, NaN kept quiet. */
uint16_t hs_f32_to_bf16(float f);
static inline float hs_bf16_to_f32(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

#ifdef __cplusplus
}
#endif

#endif
