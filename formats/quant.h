#ifndef HS_FORMATS_QUANT_H
#define HS_FORMATS_QUANT_H

/* Private to dtype.c and quant*.c: the scalar conversions behind the type table.  They define
 * what a type means; kernels are tested against them.
 *
 * n is a multiple of the type's block.  Encoders accept any float: what cannot be represented
 * becomes a block whose decoded values are not finite, or zero, never undefined behaviour. */

#include <stddef.h>
#include <stdint.h>

void hs_f32_decode(float *dst, const void *src, size_t n);
void hs_f32_encode(void *dst, const float *src, size_t n);
void hs_f16_decode(float *dst, const void *src, size_t n);
void hs_f16_encode(void *dst, const float *src, size_t n);
void hs_bf16_decode(float *dst, const void *src, size_t n);
void hs_bf16_encode(void *dst, const float *src, size_t n);
void hs_q8_0_decode(float *dst, const void *src, size_t n);
void hs_q8_0_encode(void *dst, const float *src, size_t n);
void hs_q4_0_decode(float *dst, const void *src, size_t n);
void hs_q4_0_encode(void *dst, const float *src, size_t n);
void hs_q4_1_decode(float *dst, const void *src, size_t n);
void hs_q4_1_encode(void *dst, const float *src, size_t n);
void hs_q5_0_decode(float *dst, const void *src, size_t n);
void hs_q5_0_encode(void *dst, const float *src, size_t n);
void hs_q5_1_decode(float *dst, const void *src, size_t n);
void hs_q5_1_encode(void *dst, const float *src, size_t n);
void hs_q2_k_decode(float *dst, const void *src, size_t n);
void hs_q2_k_encode(void *dst, const float *src, size_t n);
void hs_q3_k_decode(float *dst, const void *src, size_t n);
void hs_q3_k_encode(void *dst, const float *src, size_t n);
void hs_q4_k_decode(float *dst, const void *src, size_t n);
void hs_q4_k_encode(void *dst, const float *src, size_t n);
void hs_q5_k_decode(float *dst, const void *src, size_t n);
void hs_q5_k_encode(void *dst, const float *src, size_t n);
void hs_q6_k_decode(float *dst, const void *src, size_t n);
void hs_q6_k_encode(void *dst, const float *src, size_t n);
void hs_iq4_nl_decode(float *dst, const void *src, size_t n);
void hs_iq4_nl_encode(void *dst, const float *src, size_t n);
void hs_iq4_xs_decode(float *dst, const void *src, size_t n);
void hs_iq4_xs_encode(void *dst, const float *src, size_t n);
void hs_q4_0_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q4_1_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q5_0_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q5_1_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q2_k_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q3_k_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q4_k_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q5_k_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q6_k_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_iq4_nl_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_iq4_xs_encode_weighted(void *dst, const float *src, const float *weight, size_t n);
void hs_q4_0_encode_powerinfer(void *dst, const float *src, size_t n);
void hs_q5_0_encode_powerinfer(void *dst, const float *src, size_t n);
void hs_q6_k_encode_powerinfer(void *dst, const float *src, size_t n);

#endif
