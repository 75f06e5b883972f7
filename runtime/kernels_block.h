#ifndef HS_RUNTIME_KERNELS_BLOCK_H
#define HS_RUNTIME_KERNELS_BLOCK_H

/* The bytes of a block, as the kernels read them.  Little endian; rows have no alignment, so
 * every field is read through memcpy.  Block b of a row holds elements 32b … 32b+31 (Q6_K: 256
 * elements, eight times 32; so have Q2_K, Q3_K, Q4_K, Q5_K and IQ4_XS).
 *
 *   Q8_0, 34 bytes   | d f16 | q0 q1 … q31 |                     value d * q, q int8
 *
 *   Q4_0, 18 bytes   | d f16 | 16 bytes |                        value d * (q - 8)
 *                      byte j = q[j+16] << 4 | q[j]
 *
 *   Q5_0, 22 bytes   | d f16 | h u32 | 16 bytes |                value d * (q - 16)
 *                      byte j as in Q4_0; bit j of h is bit 4 of q[j]
 *
 *   Q6_K, 210 bytes  | ql 128 bytes | qh 64 bytes | scale 16 int8 | d f16 |
 *                      value d * scale[e / 16] * (q[e] - 32)
 *     twice (elements 0…127 and 128…255: the next 64 bytes of ql, 32 of qh), for l = 0…31:
 *                        bits 0…3                bits 4, 5
 *       q[l]             ql[l]    low nibble     qh[l] bits 0, 1
 *       q[l + 32]        ql[l+32] low nibble     qh[l] bits 2, 3
 *       q[l + 64]        ql[l]    high nibble    qh[l] bits 4, 5
 *       q[l + 96]        ql[l+32] high nibble    qh[l] bits 6, 7
 *
 *   Q4_1, 20 bytes   | d f16 | m f16 | 16 bytes as Q4_0 |        value d * q + m
 *   Q5_1, 24 bytes   | d f16 | m f16 | h u32 | 16 bytes |        value d * q + m, q as in Q5_0
 *
 *   Q2_K, 84 bytes   | 16 bytes: scale | min << 4 | ql 64 | d f16 | dmin f16 |
 *                      value d * scale[e / 16] * q - dmin * min[e / 16]
 *     q of element e: bits 2k, 2k + 1 of ql[e / 128 * 32 + e % 32], k = e % 128 / 32
 *
 *   Q3_K, 110 bytes  | h 32 | ql 64 | 12 bytes of scales | d f16 |
 *                      value d * (scale[e / 16] - 32) * (q - 4)
 *     low bits of q as in Q2_K, bit 2 is bit e / 32 of h[e % 32]
 *
 *   Q4_K, 144 bytes  | d f16 | dmin f16 | 12 bytes of scales and minima | ql 128 |
 *   Q5_K, 176 bytes  | d f16 | dmin f16 | 12 bytes | h 32 | ql 128 |
 *                      value d * scale[e / 32] * q - dmin * min[e / 32]
 *     32-block k: the low (k even) or high nibbles of ql[32 (k / 2)] …; Q5_K: bit k of h[e % 32]
 *
 *   IQ4_NL, 18 bytes | d f16 | 16 bytes as Q4_0 |               value d * hs_iq4_values[q]
 *   IQ4_XS, 136 bytes| d f16 | high u16 | low 4 | ql 128 |
 *                      value d * (scale[e / 32] - 32) * hs_iq4_values[q]
 *     32-block k: ql[16k] … as Q4_0; scale: nibble k of low, bits 2k, 2k + 1 of high
 *
 * The groups of a dot product (kernels.h): of Q6_K, Q3_K and Q2_K, scale[i] is that of elements
 * 16i … 16i+15; of the others, a block of 32 is one group.
 *
 * The products of two neighbours fit int16 together: the most is 2 * 128 * 127, of Q8_0.
 * Activations must lie in -127…127, which hs_kernels.quantize_q8 keeps. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    hs_narrow_row =
        256, /* elements: shorter rows are attention's, longer ones stream from memory */
    hs_block_elems = 32,
    hs_q8_0_bytes = 34,
    hs_q4_0_bytes = 18,
    hs_q5_0_bytes = 22,
    hs_q6_k_elems = 256,
    hs_q6_k_bytes = 210,
    hs_q6_k_qh = 128,
    hs_q6_k_scale = 192,
    hs_q6_k_d = 208,
    hs_q4_1_bytes = 20,
    hs_q5_1_bytes = 24,
    hs_q2_k_bytes = 84,
    hs_q2_k_q = 16,
    hs_q2_k_d = 80,
    hs_q3_k_bytes = 110,
    hs_q3_k_q = 32,
    hs_q3_k_scale = 96,
    hs_q3_k_d = 108,
    hs_q4_k_bytes = 144,
    hs_q4_k_q = 16,
    hs_q5_k_bytes = 176,
    hs_q5_k_high = 16,
    hs_q5_k_q = 48,
    hs_iq4_nl_bytes = 18,
    hs_iq4_xs_bytes = 136,
    hs_iq4_xs_q = 8,
};

static inline uint16_t hs_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t hs_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* IQ4's levels. */
static const int8_t hs_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

/* The eight six-bit scales and minima of Q4_K and Q5_K. */
static inline void hs_unpack_k4(const uint8_t *p, uint8_t *scale, uint8_t *min)
{
    const uint32_t a = hs_load_u32(p), b = hs_load_u32(p + 4), c = hs_load_u32(p + 8);
    const uint32_t v[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), b & 0x3f3f3f3f,
                           (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
    memcpy(scale, v, 8);
    memcpy(min, v + 2, 8);
}

/* The sixteen scales of Q3_K, less 32. */
static inline void hs_unpack_k3(const uint8_t *p, int8_t *scale)
{
    const uint32_t a = hs_load_u32(p), b = hs_load_u32(p + 4), c = hs_load_u32(p + 8);
    const uint32_t v[4] = {
        (a & 0x0f0f0f0f) | (c << 4 & 0x30303030), (b & 0x0f0f0f0f) | (c << 2 & 0x30303030),
        (a >> 4 & 0x0f0f0f0f) | (c & 0x30303030), (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030)};
    memcpy(scale, v, 16);
    for (int i = 0; i < 16; i++)
        scale[i] = (int8_t)(scale[i] - 32);
}

/* IQ4_XS: the k-th scale, less 32. */
static inline int hs_iq4_xs_scale(const uint8_t *p, size_t k)
{
    const int low = p[4 + k / 2] >> (k % 2 * 4) & 15, high = hs_load_u16(p + 2) >> (2 * k) & 3;
    return (low | high << 4) - 32;
}

#endif
