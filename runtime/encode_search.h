#ifndef HS_RUNTIME_ENCODE_SEARCH_H
#define HS_RUNTIME_ENCODE_SEARCH_H

/* The encoders of formats/quant_*.h for the instruction set of the including file. */

#include "formats/quant_block.h"
#include "formats/quant_iq.h"
#include "formats/quant_k.h"
#include "runtime/encode.h"

#if defined(__AVX2__)
HS_ENCODE_ROWS(static inline, encode_q2_k, hs_super, hs_q2_k_bytes, hs_q2_k_block)
HS_ENCODE_ROWS(static inline, encode_q3_k, hs_super, hs_q3_k_bytes, hs_q3_k_block)
HS_ENCODE_ROWS(static inline, encode_q4_k, hs_super, hs_q4_k_bytes, hs_q4_k_block)
HS_ENCODE_ROWS(static inline, encode_q5_k, hs_super, hs_q5_k_bytes, hs_q5_k_block)
HS_ENCODE_ROWS(static inline, encode_q6_k, hs_super, hs_q6_k_bytes, hs_q6_k_block)
HS_ENCODE_ROWS(static inline, encode_iq4_nl, 32, hs_iq4_nl_bytes, hs_iq4_nl_block)
HS_ENCODE_ROWS(static inline, encode_iq4_xs, hs_super, hs_iq4_xs_bytes, hs_iq4_xs_block)
HS_ENCODE_WEIGHTED(static inline, encode_q4_0_weighted, 32, hs_q4_0_size, hs_q4_0_block)
HS_ENCODE_WEIGHTED(static inline, encode_q4_1_weighted, 32, hs_q4_1_size, hs_q4_1_block)
HS_ENCODE_WEIGHTED(static inline, encode_q5_0_weighted, 32, hs_q5_0_size, hs_q5_0_block)
HS_ENCODE_WEIGHTED(static inline, encode_q5_1_weighted, 32, hs_q5_1_size, hs_q5_1_block)

static inline hs_encode_set encode_search(hs_dtype type)
{
    switch (type) {
    case HS_Q2_K: return (hs_encode_set){encode_q2_k, encode_q2_k_weighted, NULL};
    case HS_Q3_K: return (hs_encode_set){encode_q3_k, encode_q3_k_weighted, NULL};
    case HS_Q4_K: return (hs_encode_set){encode_q4_k, encode_q4_k_weighted, NULL};
    case HS_Q5_K: return (hs_encode_set){encode_q5_k, encode_q5_k_weighted, NULL};
    case HS_Q6_K: return (hs_encode_set){encode_q6_k, encode_q6_k_weighted, NULL};
    case HS_IQ4_NL: return (hs_encode_set){encode_iq4_nl, encode_iq4_nl_weighted, NULL};
    case HS_IQ4_XS: return (hs_encode_set){encode_iq4_xs, encode_iq4_xs_weighted, NULL};
    case HS_Q4_0: return (hs_encode_set){NULL, encode_q4_0_weighted, NULL};
    case HS_Q4_1: return (hs_encode_set){NULL, encode_q4_1_weighted, NULL};
    case HS_Q5_0: return (hs_encode_set){NULL, encode_q5_0_weighted, NULL};
    case HS_Q5_1: return (hs_encode_set){NULL, encode_q5_1_weighted, NULL};
    default: return (hs_encode_set){NULL, NULL, NULL};
    }
}
#endif

/* The rest, fewer than 16 elements, is added one by one. */
static inline hs_loss loss_in_lanes(const float *before, const float *after, size_t n)
{
    hs_vec lost = hs_vsplat(0), sum = lost;
    size_t i = 0;
    for (; i + hs_lanes <= n; i += hs_lanes) {
        const hs_vec x = hs_vload(before + i), e = hs_vsub(x, hs_vload(after + i));
        lost = hs_vadd(lost, hs_vmul(e, e));
        sum = hs_vadd(sum, hs_vmul(x, x));
    }
    hs_loss r = {(double)hs_vsum(lost), (double)hs_vsum(sum)};
    for (; i < n; i++) {
        const double x = (double)before[i], e = x - (double)after[i];
        r.lost2 += e * e;
        r.sum2 += x * x;
    }
    return r;
}

#endif
