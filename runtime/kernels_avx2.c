/* AVX2 kernels, bit for bit those of kernels_scalar.c.  The level has FMA, but no
 * fused operation is used: it rounds once where the order says twice. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_avx2.h"
#include "runtime/mathx.h"

#include <float.h>

enum { float_lanes = 32 };

/* ---- lanes ----------------------------------------------------------------------------- */

INLINE float halve32(const __m256 *lane)
{
    return halve8(_mm256_add_ps(_mm256_add_ps(lane[0], lane[2]), _mm256_add_ps(lane[1], lane[3])));
}

/* halve8 of four vectors. */
INLINE __m128 halve8x4(const __m256 *v)
{
    const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20),
                                    _mm256_permute2f128_ps(v[0], v[1], 0x31));
    const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20),
                                    _mm256_permute2f128_ps(v[2], v[3], 0x31));
    /* Two lanes left of a and c below, of b and d above. */
    const __m256 two =
        _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    const __m256 one =
        _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));
    return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}

INLINE void scatter4(float *y, size_t ldy, __m128 v)
{
    float f[4];
    _mm_storeu_ps(f, v);
    for (size_t t = 0; t < 4; t++)
        y[t * ldy] = f[t];
}

/* All ones in the lanes j < n of the eight. */
INLINE __m256i first_lanes(size_t n)
{
    static const int32_t window[2 * width] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(window + width - (n < width ? n : width)));
}

/* ---- float rows ------------------------------------------------------------------------ */

/* Eight elements from element i, widened. */
typedef __m256 load8_fn(const uint8_t *row, size_t i);

INLINE __m256 load8_f32(const uint8_t *row, size_t i)
{
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(row + 4 * i)));
}

INLINE __m256 load8_f16(const uint8_t *row, size_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 2 * i)));
}

INLINE __m256 load8_bf16(const uint8_t *row, size_t i)
{
    const __m128i h = _mm_loadu_si128((const __m128i *)(row + 2 * i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The rest of a row goes through a buffer of zeros.  A lane is never -0 (it starts at +0, and
 * only -0 + -0 gives -0), so adding the product +0 * +0 to a lane without element changes
 * nothing. */
INLINE float dot_float(load8_fn *load8, size_t bytes, const uint8_t *row, const float *x, size_t n)
{
    __m256 lane[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                      _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + float_lanes <= n; i += float_lanes) {
        fetch_ahead(row + bytes * i, bytes * float_lanes);
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            lane[v] = _mm256_add_ps(lane[v], _mm256_mul_ps(load8(row, i + width * v),
                                                           _mm256_loadu_ps(x + i + width * v)));
    }
    if (i < n) {
        uint8_t w_rest[float_lanes * 4] = {0};
        float x_rest[float_lanes] = {0};
        memcpy(w_rest, row + bytes * i, bytes * (n - i));
        memcpy(x_rest, x + i, sizeof *x * (n - i));
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            lane[v] = _mm256_add_ps(lane[v], _mm256_mul_ps(load8(w_rest, width * v),
                                                           _mm256_loadu_ps(x_rest + width * v)));
    }
    return halve32(lane);
}

INLINE void axpy_float(load8_fn *load8, size_t bytes, float *y, float a, const uint8_t *row,
                       size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    size_t i = begin;
    for (; i + float_lanes <= end; i += float_lanes) {
        fetch_ahead(row + bytes * i, bytes * float_lanes);
        for (size_t j = i; j < i + float_lanes; j += width)
            axpy8(y + j, va, load8(row, j));
    }
    for (; i + width <= end; i += width)
        axpy8(y + i, va, load8(row, i));
    if (i < end) {
        uint8_t w_rest[width * 4] = {0};
        memcpy(w_rest, row + bytes * i, bytes * (end - i));
        const __m256i mask = first_lanes(end - i);
        const __m256 v =
            _mm256_add_ps(_mm256_maskload_ps(y + i, mask), _mm256_mul_ps(va, load8(w_rest, 0)));
        _mm256_maskstore_ps(y + i, mask, v);
    }
}

/* One row and four tokens.  Sixteen of the 32 lanes at a time: eight sums fit the registers,
 * and the row, read twice, comes from the first cache. */
INLINE void tile_float4(load8_fn *load8, const hs_tile *t, size_t r, size_t first)
{
    const uint8_t *row = hs_tile_row(t, r);
    const float *x = t->x + first * t->ldx;
    __m256 kept[4][2] = {0}, sum[4];
    for (size_t half = 0; half < 2; half++) {
        __m256 lane[4][2] = {0};
        for (size_t i = 16 * half; i < t->cols; i += float_lanes) {
#pragma GCC unroll 2
            for (size_t v = 0; v < 2; v++) {
                const __m256 w = load8(row, i + width * v);
#pragma GCC unroll 4
                for (size_t k = 0; k < 4; k++)
                    lane[k][v] = _mm256_add_ps(
                        lane[k][v],
                        _mm256_mul_ps(w, _mm256_loadu_ps(x + k * t->ldx + i + width * v)));
            }
        }
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            kept[k][0] = _mm256_add_ps(kept[k][0], lane[k][0]);
            kept[k][1] = _mm256_add_ps(kept[k][1], lane[k][1]);
        }
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++)
        sum[k] = _mm256_add_ps(kept[k][0], kept[k][1]);
    scatter4(t->y + first * t->ldy + r, t->ldy, halve8x4(sum));
}

/* Four rows and one token: what is saved is the halving, most of the work for short rows. */
INLINE void rows_float4(load8_fn *load8, const hs_tile *t, size_t r, const float *x, float *y)
{
    __m256 sum[4];
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *row = hs_tile_row(t, r + k);
        __m256 lane[4] = {0};
        for (size_t i = 0; i < t->cols; i += float_lanes)
#pragma GCC unroll 4
            for (size_t v = 0; v < 4; v++)
                lane[v] = _mm256_add_ps(lane[v], _mm256_mul_ps(load8(row, i + width * v),
                                                               _mm256_loadu_ps(x + i + width * v)));
        sum[k] = _mm256_add_ps(_mm256_add_ps(lane[0], lane[2]), _mm256_add_ps(lane[1], lane[3]));
    }
    _mm_storeu_ps(y, halve8x4(sum));
}

INLINE void rows_float(load8_fn *load8, size_t bytes, const hs_tile *t, const float *x, float *y)
{
    size_t r = 0;
    if (t->cols % float_lanes == 0 && t->cols <= hs_narrow_row)
        for (; r + 4 <= t->n_rows; r += 4)
            rows_float4(load8, t, r, x, y + r);
    for (; r < t->n_rows; r++)
        y[r] = dot_float(load8, bytes, hs_tile_row(t, r), x, t->cols);
}

INLINE void tile_float(load8_fn *load8, size_t bytes, const hs_tile *t)
{
    const size_t fours = t->cols % float_lanes ? 0 : t->n / 4 * 4;
    for (size_t k = 0; k < fours; k += 4)
        for (size_t r = 0; r < t->n_rows; r++)
            tile_float4(load8, t, r, k);
    for (size_t k = fours; k < t->n; k++)
        rows_float(load8, bytes, t, t->x + k * t->ldx, t->y + k * t->ldy);
}

/* The sums of some columns stay in registers over all rows. */
INLINE void axpy_columns(load8_fn *load8, size_t n_vectors, const hs_axpy_rows *p, size_t i)
{
    __m256 sum[8];
    for (size_t v = 0; v < n_vectors; v++)
        sum[v] = _mm256_loadu_ps(p->y + i + width * v);
    for (size_t r = 0; r < p->n; r++) {
        const uint8_t *row = hs_axpy_row(p, r);
        const __m256 va = _mm256_broadcast_ss(p->a + r);
#pragma GCC unroll 8
        for (size_t v = 0; v < n_vectors; v++)
            sum[v] = _mm256_add_ps(sum[v], _mm256_mul_ps(va, load8(row, i + width * v)));
    }
    for (size_t v = 0; v < n_vectors; v++)
        _mm256_storeu_ps(p->y + i + width * v, sum[v]);
}

/* Wide rows one after the other (they stream); narrow ones, attention's, by columns. */
INLINE void axpy_rows_float(load8_fn *load8, size_t bytes, const hs_axpy_rows *p)
{
    size_t i = p->begin;
    if (p->end - i <= hs_narrow_row) {
        for (; i + 64 <= p->end; i += 64)
            axpy_columns(load8, 8, p, i);
        for (; i + 32 <= p->end; i += 32)
            axpy_columns(load8, 4, p, i);
    }
    for (size_t r = 0; i < p->end && r < p->n; r++)
        axpy_float(load8, bytes, p->y, p->a[r], hs_axpy_row(p, r), i, p->end);
}

#define FLOAT_ROWS(type, bytes)                                                           \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)           \
    {                                                                                     \
        (void)q;                                                                          \
        return dot_float(load8_##type, bytes, row, x, n);                                 \
    }                                                                                     \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        axpy_float(load8_##type, bytes, y, a, row, begin, end);                           \
    }                                                                                     \
    static void tile_##type(const hs_tile *t) { tile_float(load8_##type, bytes, t); }     \
    static void axpy_rows_##type(const hs_axpy_rows *p) { axpy_rows_float(load8_##type, bytes, p); }

FLOAT_ROWS(f32, 4)
FLOAT_ROWS(f16, 2)
FLOAT_ROWS(bf16, 2)

/* ---- quantized rows -------------------------------------------------------------------- */

INLINE __m256i quants_q5_0(const uint8_t *p)
{
    return _mm256_or_si256(nibbles(p + 6), fifth_bits(hs_load_u32(p + 2)));
}

/* The k-th 32 of a Q6_K block's 256, in 0…63. */
INLINE __m256i quants_q6_k(const uint8_t *p, size_t k)
{
    const int quarter = (int)(k % 4);
    const uint8_t *ql = p + k / 4 * 64 + k % 2 * 32;
    const uint8_t *qh = p + hs_q6_k_qh + k / 4 * 32;
    const __m256i l = _mm256_loadu_si256((const __m256i *)ql);
    const __m256i h = _mm256_loadu_si256((const __m256i *)qh);
    const __m256i low = quarter < 2 ? l : _mm256_srli_epi16(l, 4);
    const __m256i high =
        quarter < 2 ? _mm256_slli_epi16(h, 4 - 2 * quarter) : _mm256_srli_epi16(h, 2 * quarter - 4);
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
                           _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}

/* d * scale[i], i = 8 * half … 8 * half + 7. */
INLINE __m256 scales_q6_k(const uint8_t *p, size_t half)
{
    const __m128i s = _mm_loadl_epi64((const __m128i *)(p + hs_q6_k_scale + 8 * half));
    return _mm256_mul_ps(_mm256_set1_ps(load_d(p + hs_q6_k_d)),
                         _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s)));
}

/* A block's integers, centred. */
typedef __m256i centred_fn(const uint8_t *p);

INLINE __m256i centred_q8_0(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(p + 2));
}

INLINE __m256i centred_q4_0(const uint8_t *p)
{
    return _mm256_sub_epi8(nibbles(p + 2), _mm256_set1_epi8(8));
}

INLINE __m256i centred_q5_0(const uint8_t *p)
{
    return _mm256_sub_epi8(quants_q5_0(p), _mm256_set1_epi8(16));
}

INLINE void axpy_block32(centred_fn *centred, size_t bytes, float *y, float a, const uint8_t *row,
                         size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    for (size_t b = begin / hs_block_elems; b < end / hs_block_elems; b++) {
        const uint8_t *p = row + b * bytes;
        fetch_ahead(p, 1);
        const __m256 d = _mm256_set1_ps(load_d(p));
        axpy32(y + b * hs_block_elems, va, d, d, centred(p));
    }
}

static void axpy_q6_k(float *y, float a, const void *row, size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    for (size_t b = begin / hs_q6_k_elems; b < end / hs_q6_k_elems; b++) {
        const uint8_t *p = (const uint8_t *)row + b * hs_q6_k_bytes;
        float d[16];
        fetch_ahead(p, hs_q6_k_bytes);
        _mm256_storeu_ps(d, scales_q6_k(p, 0));
        _mm256_storeu_ps(d + 8, scales_q6_k(p, 1));
#pragma GCC unroll 8
        for (size_t k = 0; k < 8; k++)
            axpy32(y + b * hs_q6_k_elems + k * hs_block_elems, va, _mm256_set1_ps(d[2 * k]),
                   _mm256_set1_ps(d[2 * k + 1]),
                   _mm256_sub_epi8(quants_q6_k(p, k), _mm256_set1_epi8(32)));
    }
}

#define BLOCK32_ROWS(type)                                                                \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        axpy_block32(centred_##type, hs_##type##_bytes, y, a, row, begin, end);           \
    }

BLOCK32_ROWS(q8_0)
BLOCK32_ROWS(q4_0)
BLOCK32_ROWS(q5_0)

INLINE __m256i magnitude(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

INLINE uint32_t max_u31(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static void quantize_q8(hs_q8 out, const float *x, size_t n)
{
    for (size_t b = 0; b < n / hs_block_elems; b++, x += hs_block_elems) {
        __m256 v[4];
        __m256i m = _mm256_setzero_si256(), q[4];
        for (size_t i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + width * i);
            m = _mm256_max_epi32(m, magnitude(v[i]));
        }
        const hs_f32_bits amax = {.u = max_u31(m)};
        const float d = amax.f / 127.0f, inverse = 1.0f / d;
        __m256i bytes = _mm256_setzero_si256();
        const int usable = inverse > 0 && inverse <= FLT_MAX; /* as in kernels_scalar.c */
        out.d[b] = usable || !(d <= 1) ? d : 0;
        if (usable) {
            for (size_t i = 0; i < 4; i++)
                q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
            /* Packing works within 128-bit halves; the permutation puts the fours back. */
            bytes =
                _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
            bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        }
        _mm256_storeu_si256((__m256i *)(out.q + b * hs_block_elems), bytes);
    }
}

/* ---- vectors --------------------------------------------------------------------------- */

static void scale_mul(float *y, const float *x, float scale, const float *w, size_t n)
{
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + width <= n; i += width)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s), _mm256_loadu_ps(w + i)));
    for (; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

/* hs_expf, step by step; lanes out of range compute something and are replaced. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256 t = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), magic);
    const __m256 k = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_add_ps(x, _mm256_mul_ps(k, _mm256_set1_ps(-0.693359375f)));
    r = _mm256_add_ps(r, _mm256_mul_ps(k, _mm256_set1_ps(2.12194440e-4f)));
    __m256 p = _mm256_set1_ps(1.0f / 5040.0f);
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f / 720.0f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f / 120.0f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f / 24.0f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f / 6.0f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0.5f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.0f));
    const __m256i e = _mm256_cvttps_epi32(k), bias = _mm256_set1_epi32(127);
    /* Adding the sign bit before the shift rounds towards zero, as C's division does. */
    const __m256i half = _mm256_srai_epi32(_mm256_add_epi32(e, _mm256_srli_epi32(e, 31)), 1);
    const __m256i rest = _mm256_sub_epi32(e, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
    const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_GT_OQ);
    const __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(88.7f), _CMP_GT_OQ);
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    p = _mm256_and_ps(p, above);
    p = _mm256_blendv_ps(p, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000)), over);
    return _mm256_blendv_ps(p, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan);
}

static float exp_sum(float *e, const float *x, float max, size_t n)
{
    const __m256 m = _mm256_set1_ps(max);
    __m256 lane[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                      _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + float_lanes <= n; i += float_lanes)
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            const __m256 r = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i + width * v), m));
            _mm256_storeu_ps(e + i + width * v, r);
            lane[v] = _mm256_add_ps(lane[v], r);
        }
    for (size_t v = 0; i < n; v++, i += width) {
        const __m256i mask = first_lanes(n - i);
        __m256 r = exp8(_mm256_sub_ps(_mm256_maskload_ps(x + i, mask), m));
        r = _mm256_and_ps(r, _mm256_castsi256_ps(mask));
        _mm256_maskstore_ps(e + i, mask, r);
        lane[v] = _mm256_add_ps(lane[v], r);
    }
    return halve32(lane);
}

static float vector_max(const float *x, size_t n)
{
    float m = x[0];
    size_t i = 0;
    if (n >= width) {
        __m256 v = _mm256_loadu_ps(x);
        for (i = width; i + width <= n; i += width)
            v = _mm256_max_ps(v, _mm256_loadu_ps(x + i));
        __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        h = _mm_max_ps(h, _mm_movehl_ps(h, h));
        m = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
    }
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m + 0.0f;
}

static void accumulate(double *y, float a, const float *w, size_t n)
{
    const __m256d va = _mm256_set1_pd((double)a), grid = _mm256_set1_pd(HS_GRID);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m256d p = _mm256_mul_pd(va, _mm256_cvtps_pd(_mm_loadu_ps(w + i)));
        const __m256d r = _mm256_sub_pd(_mm256_add_pd(p, grid), grid);
        _mm256_storeu_pd(y + i, _mm256_add_pd(_mm256_loadu_pd(y + i), r));
    }
    for (; i < n; i++)
        y[i] += hs_grid_product(a, w[i]);
}

void hs_kernels_avx2(hs_kernels *k)
{
    k->level = HS_CPU_AVX2;
    k->type[HS_F32] = (hs_kernel_type){HS_ACT_F32, dot_f32, axpy_f32, tile_f32, axpy_rows_f32};
    k->type[HS_F16] = (hs_kernel_type){HS_ACT_F32, dot_f16, axpy_f16, tile_f16, axpy_rows_f16};
    k->type[HS_BF16] = (hs_kernel_type){HS_ACT_F32, dot_bf16, axpy_bf16, tile_bf16, axpy_rows_bf16};
    k->type[HS_Q8_0].axpy = axpy_q8_0;
    k->type[HS_Q5_0].axpy = axpy_q5_0;
    k->type[HS_Q4_0].axpy = axpy_q4_0;
    k->type[HS_Q6_K].axpy = axpy_q6_k;
    hs_kernels_k_avx2(k);
    hs_kernels_q_avx2(k);
    k->accumulate = accumulate;
    k->quantize_q8 = quantize_q8;
    k->scale_mul = scale_mul;
    k->exp_sum = exp_sum;
    k->max = vector_max;
}
#endif
