#ifndef HS_RUNTIME_ENCODE_H
#define HS_RUNTIME_ENCODE_H

/* Encoders of formats/dtype.h made faster by wide registers: the same bytes. */

#include "formats/dtype.h"
#include "runtime/cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void hs_encode_fn(void *dst, const float *src, size_t n);

/* The fastest encoder of a type that this machine runs, not above `level`. */
hs_encode_fn *hs_encoder(const hs_dtype_info *type, hs_cpu_level level);

/* NULL where this file has none. */
hs_encode_fn *hs_encoder_avx2(hs_dtype type);

#ifdef __cplusplus
}
#endif

#endif
