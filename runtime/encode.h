#ifndef HS_RUNTIME_ENCODE_H
#define HS_RUNTIME_ENCODE_H

/* Conversions of formats/dtype.h made faster by wide registers: the same bytes and bits. */

#include "formats/dtype.h"
#include "runtime/cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void hs_encode_fn(void *dst, const float *src, size_t n);
typedef void hs_encode_weighted_fn(void *dst, const float *src, const float *weight, size_t n);
typedef void hs_decode_fn(float *dst, const void *src, size_t n);

/* The fastest of a type that this machine runs, not above `level`; NULL where the type has none. */
hs_encode_fn *hs_encoder(const hs_dtype_info *type, hs_cpu_level level);
hs_encode_weighted_fn *hs_weighted_encoder(const hs_dtype_info *type, hs_cpu_level level);
hs_decode_fn *hs_decoder(const hs_dtype_info *type, hs_cpu_level level);

/* Squares of what was lost, and of what there was, of n elements, summed in f32 in 16 lanes. */
typedef struct hs_loss {
    double lost2, sum2;
} hs_loss;
typedef hs_loss hs_loss_fn(const float *before, const float *after, size_t n);
hs_loss_fn *hs_loss_of(hs_cpu_level level);

/* What one file for an instruction set has; NULL where it has none. */
typedef struct hs_encode_set {
    hs_encode_fn *plain;
    hs_encode_weighted_fn *weighted;
    hs_decode_fn *decode;
} hs_encode_set;
hs_encode_set hs_encode_avx2(hs_dtype type);        /* blocks of 32 and plain types */
hs_encode_set hs_encode_search_avx2(hs_dtype type); /* what searches for scales */
hs_encode_set hs_encode_search_avx512(hs_dtype type);
hs_loss_fn hs_loss_avx2, hs_loss_avx512;

#ifdef __cplusplus
}
#endif

#endif
