#ifndef HS_RUNTIME_KERNELS_H
#define HS_RUNTIME_KERNELS_H

/* The arithmetic, one table per ISA level.
 *
 * CANONICAL ORDER.  Every level, and the device, computes every sum in one defined order with
 * separate multiply and add (no fused operation), so all of them give the same bits and a
 * threshold never decides differently on another machine:
 *
 *   float weights (F32, F16, BF16; weight widened to f32, activation f32):
 *     32 lanes; lane j adds a[i]*b[i] for i = j, j+32, j+64, … in that order, starting at +0.
 *   quantized weights: activations are quantized first (hs_q8 below), integers are exact:
 *     a group is what shares one scale: 32 elements, or 16 of Q6_K, Q3_K and Q2_K.  16 lanes;
 *     lane g & 15 adds (float)sum * (dw * da) over its groups g in rising order, starting at +0:
 *     sum is the group's int32 sum of products, dw the weight's scale (for Q6_K: d * scale,
 *     rounded to f32 once, likewise for the other types with scales of sub-blocks), da that of
 *     the activation's block.
 *     Q4_0 and Q5_0, Q6_K, Q3_K use the centred integer (q-8, q-16, q-32, q-4); IQ4_NL and
 *     IQ4_XS the integer out of their table.
 *     types with a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K; q not centred, value = dw * q + mw):
 *     the same lane then adds (float)asum * (mw * da), asum the int32 sum of the group's
 *     activations.  mw is m of Q4_1 and Q5_1; of the K types -(dmin * min), rounded to f32
 *     once.
 *     One conversion and one scale for a group, and sixteen groups side by side: that is what a
 *     vector unit does cheapest, be its registers filled along one row or across sixteen.
 *   then lanes are halved: for h = L/2 … 1: lane[j] += lane[j+h], j < h.  Lane 0 is the result.
 *
 * Attention sums V rows over blocks of HS_ATT_BLOCK positions, in each from +0 on and rising, and
 * then the blocks' sums, rising.
 *
 * The same bits on every level; a NaN is a NaN, but its sign and payload are not defined.  The
 * kernels expect the default floating-point environment (nearest even, denormals kept).
 *
 * Pointers need no alignment beyond the element's own for floats, none for quantized rows. */

#include "formats/dtype.h"
#include "runtime/cpu.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HS_ATT_BLOCK = 256 };

/* Activations of a product with quantized weights: n int8 and one scale per 32.
 * da = amax / 127, q = round-half-even(x * (1 / da)), which lies in -127…127.  Where 1 / da is
 * infinite (da 0 or below 2^-128) da and q are 0; where x has an infinity or a NaN, da is one and q
 * is 0, so the product is not finite either.  n is a multiple of 32. */
typedef struct hs_q8 {
    int8_t *q; /* [n] */
    float *d;  /* [n / 32] */
} hs_q8;

/* What a dot product of one weight type reads as its activation. */
typedef enum hs_act_kind { HS_ACT_NONE, HS_ACT_F32, HS_ACT_Q8 } hs_act_kind;

/* Rows of one matrix times the activations of several tokens:
 * y[t * ldy + r] = row r . activation t, each of them the bits that `dot` gives. */
typedef struct hs_tile {
    const uint8_t *row;
    size_t row_bytes, n_rows;
    const int32_t *id; /* [n_rows] which rows, counted from `row`; NULL: 0, 1, 2, … */
    const float *x;    /* activation t: x + t * ldx, or q.q + t * ldq and q.d + t * ldq / 32 */
    hs_q8 q;
    size_t ldx, ldq, n; /* ldq is a multiple of 32; n tokens */
    size_t cols;
    float *y;
    size_t ldy;
} hs_tile;

static inline const uint8_t *hs_tile_row(const hs_tile *t, size_t r)
{
    return t->row + (t->id ? (size_t)t->id[r] : r) * t->row_bytes;
}

/* axpy of n rows in turn, row r times a[r]. */
typedef struct hs_axpy_rows {
    float *y;
    const float *a; /* [n] */
    const uint8_t *row;
    size_t row_bytes;
    const int32_t *id; /* [n] as in hs_tile */
    size_t n, begin, end;
} hs_axpy_rows;

static inline const uint8_t *hs_axpy_row(const hs_axpy_rows *p, size_t r)
{
    return p->row + (p->id ? (size_t)p->id[r] : r) * p->row_bytes;
}

/* y += a[r] * row r, order-free sums in double (mathx.h), columns begin to end of n rows. */
typedef struct hs_sum_rows {
    double *y;
    const float *a; /* [n] */
    const uint8_t *row;
    size_t row_bytes;
    const int32_t *id; /* [n] as in hs_tile */
    size_t n, begin, end;
} hs_sum_rows;

static inline const uint8_t *hs_sum_row(const hs_sum_rows *p, size_t r)
{
    return p->row + (p->id ? (size_t)p->id[r] : r) * p->row_bytes;
}

typedef struct hs_kernel_type {
    hs_act_kind act; /* HS_ACT_NONE: this type has no kernels and no model may use it */
    /* One row of n weights times the activation: `x` when act is F32, `q` when it is Q8. */
    float (*dot)(const void *row, const float *x, hs_q8 q, size_t n);
    /* y[i] += a * w[i] for i in [begin, end), each y rounded after the product and after the
     * sum; quantized rows are decoded to f32 first (one rounding: scale times integer; a second
     * one where a minimum is added).
     * begin and end are multiples of the type's block, or end is the row's length. */
    void (*axpy)(float *y, float a, const void *row, size_t begin, size_t end);
    /* Either may be NULL: hs_kernel_tile and hs_kernel_axpy_rows loop then. */
    void (*tile)(const hs_tile *t);
    void (*axpy_rows)(const hs_axpy_rows *p);
    /* end - begin is a multiple of 32 here; NULL: hs_kernel_sum_rows decodes. */
    void (*sum_rows)(const hs_sum_rows *p);
} hs_kernel_type;

typedef struct hs_kernels {
    hs_cpu_level level; /* of the kernels really in use */
    hs_kernel_type type[HS_DTYPE_LIMIT];
    /* y[i] += hs_grid_product(a, w[i]): order-free sums in double (mathx.h). */
    void (*accumulate)(double *y, float a, const float *w, size_t n);
    void (*quantize_q8)(hs_q8 out, const float *x, size_t n);
    /* y[i] = x[i] * scale * w[i], products from left to right (the second half of RMSNorm);
     * y may be x. */
    void (*scale_mul)(float *y, const float *x, float scale, const float *w, size_t n);
    /* e[i] = hs_expf(x[i] - max); returns the canonical 32-lane sum of e.  e may be x. */
    float (*exp_sum)(float *e, const float *x, float max, size_t n);
    float (*max)(const float *x, size_t n); /* n >= 1; never -0; NaN: unspecified */
} hs_kernels;

/* Fill `k` with the best kernels not above `level` that this machine runs. */
void hs_kernels_init(hs_kernels *k, hs_cpu_level level);

/* Through the table's entry, or row by row where it has none. */
void hs_kernel_tile(const hs_kernel_type *k, const hs_tile *t);
void hs_kernel_axpy_rows(const hs_kernel_type *k, const hs_axpy_rows *p);
/* Rows of any type; bounds as for axpy.  y has the row's length. */
void hs_kernel_sum_rows(const hs_kernels *k, hs_dtype type, const hs_sum_rows *p);

/* One per ISA file; each overwrites only the entries it improves. */
void hs_kernels_scalar(hs_kernels *k);
void hs_kernels_avx2(hs_kernels *k);
void hs_kernels_avx512(hs_kernels *k);
void hs_kernels_k_avx2(hs_kernels *k);     /* part of hs_kernels_avx2 */
void hs_kernels_q_avx2(hs_kernels *k);     /* likewise */
void hs_kernels_q_avx512(hs_kernels *k);   /* part of hs_kernels_avx512 */
void hs_kernels_sum_avx512(hs_kernels *k); /* likewise */

#ifdef __cplusplus
}
#endif

#endif
