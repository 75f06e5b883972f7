/* The definition: kernels.h's order written down, element by element.  Every other level is
 * tested to give these bits. */
#include "runtime/kernels.h"
#include "runtime/kernels_block.h"
#include "runtime/mathx.h"

#include <float.h>

enum { float_lanes = 32, q_lanes = 16 };

/* As the F16C instructions do it: denormals exact, NaN made quiet. */
static inline float f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    hs_f32_bits v;
    if (mag >= 0x7c00) {
        v.u = sign | 0x7f800000 | (mag & 0x3ff) << 13 | (mag > 0x7c00 ? 0x400000 : 0);
        return v.f;
    }
    if (mag < 0x400) { /* mag * 2^-24, exact */
        v.f = (float)mag * 0x1p-24f;
        v.u |= sign;
        return v.f;
    }
    v.u = sign | ((mag << 13) + ((127 - 15) << 23));
    return v.f;
}

static inline float load_f32(const void *row, size_t i)
{
    hs_f32_bits v;
    v.u = hs_load_u32((const uint8_t *)row + 4 * i);
    return v.f;
}

static inline float load_f16(const void *row, size_t i)
{
    return f16(hs_load_u16((const uint8_t *)row + 2 * i));
}

static inline float load_bf16(const void *row, size_t i)
{
    hs_f32_bits v;
    v.u = (uint32_t)hs_load_u16((const uint8_t *)row + 2 * i) << 16;
    return v.f;
}

static inline float halve(float *lane, int n)
{
    for (int h = n / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return lane[0];
}

/* ---- float rows ------------------------------------------------------------------------ */

/* Macros in this file only because the loader has to be inlined into the loops.  The inner loop
 * over all lanes is one that compilers turn into whatever vectors the baseline has. */
#define FLOAT_ROWS(type)                                                                  \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)           \
    {                                                                                     \
        (void)q;                                                                          \
        float lane[float_lanes] = {0};                                                    \
        size_t i = 0;                                                                     \
        for (; i + float_lanes <= n; i += float_lanes)                                    \
            for (size_t j = 0; j < float_lanes; j++)                                      \
                lane[j] += load_##type(row, i + j) * x[i + j];                            \
        for (size_t j = 0; i + j < n; j++)                                                \
            lane[j] += load_##type(row, i + j) * x[i + j];                                \
        return halve(lane, float_lanes);                                                  \
    }                                                                                     \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        for (size_t i = begin; i < end; i++)                                              \
            y[i] += a * load_##type(row, i);                                              \
    }

FLOAT_ROWS(f32)
FLOAT_ROWS(f16)
FLOAT_ROWS(bf16)

/* ---- quantized rows -------------------------------------------------------------------- */

/* One block of 32: its integers, centred, and scale and minimum of each half. */
typedef struct block32 {
    int8_t q[hs_block_elems];
    float d[2], m[2]; /* m: only of types that have minima */
} block32;

static inline void load_q8_0(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q8_0_bytes;
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    memcpy(out->q, p + 2, hs_block_elems);
}

static inline void load_q4_0(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q4_0_bytes;
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)((p[2 + j] & 15) - 8);
        out->q[j + 16] = (int8_t)((p[2 + j] >> 4) - 8);
    }
}

static inline void load_q5_0(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q5_0_bytes;
    const uint32_t high = hs_load_u32(p + 2);
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)(((p[6 + j] & 15) | (high >> j & 1) << 4) - 16);
        out->q[j + 16] = (int8_t)(((p[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16);
    }
}

static inline void load_q6_k(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q6_k_bytes;
    const size_t k = b % 8, quarter = k % 4;
    const uint8_t *ql = p + k / 4 * 64 + k % 2 * 32, *qh = p + hs_q6_k_qh + k / 4 * 32;
    for (int l = 0; l < hs_block_elems; l++) {
        const int low = quarter < 2 ? ql[l] & 15 : ql[l] >> 4;
        out->q[l] = (int8_t)((low | ((qh[l] >> 2 * quarter) & 3) << 4) - 32);
    }
    const float d = f16(hs_load_u16(p + hs_q6_k_d));
    for (size_t half = 0; half < 2; half++)
        out->d[half] = d * (float)(int8_t)p[hs_q6_k_scale + 2 * k + half];
}

static inline void load_q4_1(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q4_1_bytes;
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    out->m[0] = out->m[1] = f16(hs_load_u16(p + 2));
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)(p[4 + j] & 15);
        out->q[j + 16] = (int8_t)(p[4 + j] >> 4);
    }
}

static inline void load_q5_1(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q5_1_bytes;
    const uint32_t high = hs_load_u32(p + 4);
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    out->m[0] = out->m[1] = f16(hs_load_u16(p + 2));
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)((p[8 + j] & 15) | (high >> j & 1) << 4);
        out->q[j + 16] = (int8_t)((p[8 + j] >> 4) | (high >> (j + 16) & 1) << 4);
    }
}

static inline void load_q2_k(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q2_k_bytes;
    const size_t k = b % 8;
    const float d = f16(hs_load_u16(p + hs_q2_k_d)), dmin = f16(hs_load_u16(p + hs_q2_k_d + 2));
    for (size_t l = 0; l < hs_block_elems; l++)
        out->q[l] = (int8_t)(p[hs_q2_k_q + k / 4 * 32 + l] >> (k % 4 * 2) & 3);
    for (size_t half = 0; half < 2; half++) {
        out->d[half] = d * (float)(p[2 * k + half] & 15);
        out->m[half] = -(dmin * (float)(p[2 * k + half] >> 4));
    }
}

static inline void load_q3_k(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q3_k_bytes;
    const size_t k = b % 8;
    for (size_t l = 0; l < hs_block_elems; l++) {
        const int low = p[hs_q3_k_q + k / 4 * 32 + l] >> (k % 4 * 2) & 3;
        out->q[l] = (int8_t)((low | (p[l] >> k & 1) << 2) - 4);
    }
    int8_t scale[16];
    hs_unpack_k3(p + hs_q3_k_scale, scale);
    const float d = f16(hs_load_u16(p + hs_q3_k_d));
    for (size_t half = 0; half < 2; half++)
        out->d[half] = d * (float)scale[2 * k + half];
}

static inline void load_k4(block32 *out, const uint8_t *p, const uint8_t *ql, size_t k)
{
    uint8_t scale[8], min[8];
    hs_unpack_k4(p + 4, scale, min);
    out->d[0] = out->d[1] = f16(hs_load_u16(p)) * (float)scale[k];
    out->m[0] = out->m[1] = -(f16(hs_load_u16(p + 2)) * (float)min[k]);
    for (size_t l = 0; l < hs_block_elems; l++)
        out->q[l] = (int8_t)(ql[k / 2 * 32 + l] >> (k % 2 * 4) & 15);
}

static inline void load_q4_k(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q4_k_bytes;
    load_k4(out, p, p + hs_q4_k_q, b % 8);
}

static inline void load_q5_k(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q5_k_bytes;
    load_k4(out, p, p + hs_q5_k_q, b % 8);
    for (size_t l = 0; l < hs_block_elems; l++)
        out->q[l] = (int8_t)(out->q[l] | (p[hs_q5_k_high + l] >> b % 8 & 1) << 4);
}

static inline void load_iq4_nibbles(block32 *out, const uint8_t *p)
{
    for (int j = 0; j < 16; j++) {
        out->q[j] = hs_iq4_values[p[j] & 15];
        out->q[j + 16] = hs_iq4_values[p[j] >> 4];
    }
}

static inline void load_iq4_nl(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_iq4_nl_bytes;
    out->d[0] = out->d[1] = f16(hs_load_u16(p));
    load_iq4_nibbles(out, p + 2);
}

static inline void load_iq4_xs(block32 *out, const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_iq4_xs_bytes;
    out->d[0] = out->d[1] = f16(hs_load_u16(p)) * (float)hs_iq4_xs_scale(p, b % 8);
    load_iq4_nibbles(out, p + hs_iq4_xs_q + 16 * (b % 8));
}

/* Groups of `elems` from group g on, those of one block of 32. */
static inline void add_block(float *lane, const block32 *w, const int8_t *a, float da, size_t g,
                             int elems)
{
    for (int i = 0; i < hs_block_elems / elems; i++) {
        int32_t sum = 0;
        for (int e = i * elems; e < (i + 1) * elems; e++)
            sum += w->q[e] * a[e];
        lane[(g + (size_t)i) % q_lanes] += (float)sum * (w->d[i] * da);
    }
}

static inline void axpy_block(float *y, float a, const block32 *w)
{
    for (int e = 0; e < hs_block_elems; e++) {
        const float v = w->d[e / 16] * (float)w->q[e];
        y[e] += a * v;
    }
}

/* And of types with a minimum. */
static inline void add_block_min(float *lane, const block32 *w, const int8_t *a, float da, size_t g,
                                 int elems)
{
    for (int i = 0; i < hs_block_elems / elems; i++) {
        float *to = lane + (g + (size_t)i) % q_lanes;
        int32_t sum = 0, asum = 0;
        for (int e = i * elems; e < (i + 1) * elems; e++) {
            sum += w->q[e] * a[e];
            asum += a[e];
        }
        *to += (float)sum * (w->d[i] * da);
        *to += (float)asum * (w->m[i] * da);
    }
}

static inline void axpy_block_min(float *y, float a, const block32 *w)
{
    for (int e = 0; e < hs_block_elems; e++) {
        const float v = w->d[e / 16] * (float)w->q[e] + w->m[e / 16];
        y[e] += a * v;
    }
}

/* elems: of a group; min: empty or _min */
#define QUANTIZED(type, elems, min)                                                       \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)           \
    {                                                                                     \
        (void)x;                                                                          \
        float lane[q_lanes] = {0};                                                        \
        block32 w;                                                                        \
        for (size_t b = 0; b < n / hs_block_elems; b++) {                                 \
            load_##type(&w, row, b);                                                      \
            add_block##min(lane, &w, q.q + b * hs_block_elems, q.d[b],                    \
                           b * (hs_block_elems / (elems)), elems);                        \
        }                                                                                 \
        return halve(lane, q_lanes);                                                      \
    }                                                                                     \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        block32 w;                                                                        \
        for (size_t b = begin / hs_block_elems; b < end / hs_block_elems; b++) {          \
            load_##type(&w, row, b);                                                      \
            axpy_block##min(y + b * hs_block_elems, a, &w);                               \
        }                                                                                 \
    }

QUANTIZED(q8_0, 32, )
QUANTIZED(q4_0, 32, )
QUANTIZED(q5_0, 32, )
QUANTIZED(q6_k, 16, )
QUANTIZED(q3_k, 16, )
QUANTIZED(iq4_nl, 32, )
QUANTIZED(iq4_xs, 32, )
QUANTIZED(q4_1, 32, _min)
QUANTIZED(q5_1, 32, _min)
QUANTIZED(q2_k, 16, _min)
QUANTIZED(q4_k, 32, _min)
QUANTIZED(q5_k, 32, _min)

/* To the nearest integer, half to even, for |v| < 2^22: past 1.5 * 2^23 floats are integers. */
static inline int8_t round_i8(float v) { return (int8_t)(v + 12582912.0f - 12582912.0f); }

/* The largest magnitude is taken as an integer: bits of non-negative floats order like their
 * values, and NaN comes out above infinity, so it is never lost. */
static void quantize_q8(hs_q8 out, const float *x, size_t n)
{
    for (size_t b = 0; b < n / hs_block_elems; b++, x += hs_block_elems) {
        hs_f32_bits amax = {.u = 0}, v;
        for (int i = 0; i < hs_block_elems; i++) {
            v.f = x[i];
            v.u &= 0x7fffffff;
            amax.u = v.u > amax.u ? v.u : amax.u;
        }
        const float d = amax.f / 127.0f, inverse = 1.0f / d;
        int8_t *q = out.q + b * hs_block_elems;
        /* inverse is infinite when d is 0 or too small; 0 or NaN when d is not finite. */
        const int usable = inverse > 0 && inverse <= FLT_MAX;
        out.d[b] = usable || !(d <= 1) ? d : 0;
        for (int i = 0; i < hs_block_elems; i++)
            q[i] = round_i8(usable ? x[i] * inverse : 0.0f);
    }
}

/* ---- vectors --------------------------------------------------------------------------- */

static void scale_mul(float *y, const float *x, float scale, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static float exp_sum(float *e, const float *x, float max, size_t n)
{
    float lane[float_lanes] = {0};
    for (size_t i = 0; i < n; i++) {
        e[i] = hs_expf(x[i] - max);
        lane[i % float_lanes] += e[i];
    }
    return halve(lane, float_lanes);
}

static float vector_max(const float *x, size_t n)
{
    float m = x[0];
    for (size_t i = 1; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m + 0.0f; /* of -0 and +0 always +0, whichever came first */
}

static void accumulate(double *y, float a, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += hs_grid_product(a, w[i]);
}

void hs_kernels_scalar(hs_kernels *k)
{
    k->level = HS_CPU_SCALAR;
    k->type[HS_F32] = (hs_kernel_type){HS_ACT_F32, dot_f32, axpy_f32};
    k->type[HS_F16] = (hs_kernel_type){HS_ACT_F32, dot_f16, axpy_f16};
    k->type[HS_BF16] = (hs_kernel_type){HS_ACT_F32, dot_bf16, axpy_bf16};
    k->type[HS_Q8_0] = (hs_kernel_type){HS_ACT_Q8, dot_q8_0, axpy_q8_0};
    k->type[HS_Q5_0] = (hs_kernel_type){HS_ACT_Q8, dot_q5_0, axpy_q5_0};
    k->type[HS_Q4_0] = (hs_kernel_type){HS_ACT_Q8, dot_q4_0, axpy_q4_0};
    k->type[HS_Q6_K] = (hs_kernel_type){HS_ACT_Q8, dot_q6_k, axpy_q6_k};
    k->type[HS_Q4_1] = (hs_kernel_type){HS_ACT_Q8, dot_q4_1, axpy_q4_1};
    k->type[HS_Q5_1] = (hs_kernel_type){HS_ACT_Q8, dot_q5_1, axpy_q5_1};
    k->type[HS_Q2_K] = (hs_kernel_type){HS_ACT_Q8, dot_q2_k, axpy_q2_k};
    k->type[HS_Q3_K] = (hs_kernel_type){HS_ACT_Q8, dot_q3_k, axpy_q3_k};
    k->type[HS_Q4_K] = (hs_kernel_type){HS_ACT_Q8, dot_q4_k, axpy_q4_k};
    k->type[HS_Q5_K] = (hs_kernel_type){HS_ACT_Q8, dot_q5_k, axpy_q5_k};
    k->type[HS_IQ4_NL] = (hs_kernel_type){HS_ACT_Q8, dot_iq4_nl, axpy_iq4_nl};
    k->type[HS_IQ4_XS] = (hs_kernel_type){HS_ACT_Q8, dot_iq4_xs, axpy_iq4_xs};
    k->accumulate = accumulate;
    k->quantize_q8 = quantize_q8;
    k->scale_mul = scale_mul;
    k->exp_sum = exp_sum;
    k->max = vector_max;
}
