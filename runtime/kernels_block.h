#ifndef HS_RUNTIME_KERNELS_BLOCK_H
#define HS_RUNTIME_KERNELS_BLOCK_H

/* The bytes of a block, as the kernels read them.  Little endian; rows have no alignment, so
 * every field is read through memcpy.  Block b of a row holds elements 32b … 32b+31 (Q6_K: 256
 * elements, eight times 32).
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
 * A dot product's partial sums (kernels.h) of one block of 32, and the scale each is given:
 *
 *   element   0…3  4…7  8…11 12…15 | 16…19 20…23 24…27 28…31
 *   partial    0    1    2    3    |  4     5     6     7
 *   Q6_K       scale[2b]           |  scale[2b + 1]              b: 32-block of the 256
 *   others                        d
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

#endif
