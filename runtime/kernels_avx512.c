/* AVX-512 kernels of float rows, bit for bit those of kernels_scalar.c: the 32 lanes of a sum are
 * two registers.  As in kernels_avx2.c nothing is fused.  kernels_q_avx512.c has the quantized
 * rows; what is in neither runs the AVX2 kernels.
 *
 * One microkernel per family takes R rows and T tokens: 4 x 1 (rows of one token: the token's
 * loads and corrections are shared), 2 x 4 (prompts: the rows' decoding is shared too) and what
 * is left over. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_block.h"
#include "runtime/mathx.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { width = 16, float_lanes = 32, max_rows = 4, max_tokens = 4 };

/* ---- lanes ----------------------------------------------------------------------------- */

/* lane[j] += lane[j + h] for h = 8, 4, 2, 1. */
INLINE float halve16(__m512 v)
{
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* halve16 of four vectors: 256-bit halves, then 128-bit ones, then within those. */
INLINE __m128 halve16x4(__m512 a, __m512 b, __m512 c, __m512 d)
{
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const __m512 cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    const __m512 four =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    /* 128 bits for each of a, b, c, d; the last two steps are within them. */
    const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
    const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
    const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, one));
}

/* The results of R rows and T tokens go where they belong. */
INLINE void store_sums(const hs_tile *t, size_t r, size_t k, size_t n_rows, size_t n_tokens,
                       const __m512 (*sum)[max_tokens])
{
    float *y = t->y + k * t->ldy + r;
    float f[4];
    if (n_rows == 4 && n_tokens == 1) {
        _mm_storeu_ps(y, halve16x4(sum[0][0], sum[1][0], sum[2][0], sum[3][0]));
        return;
    }
    for (size_t i = 0; i < n_rows; i++) {
        if (n_tokens == 4) {
            _mm_storeu_ps(f, halve16x4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
            for (size_t j = 0; j < 4; j++)
                y[j * t->ldy + i] = f[j];
        } else {
            for (size_t j = 0; j < n_tokens; j++)
                y[j * t->ldy + i] = halve16(sum[i][j]);
        }
    }
}

INLINE __mmask16 first_lanes(size_t n) { return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff); }

/* The rows of a microkernel call, and those of the call after it: with one token, what it will
 * read is fetched now.  The hardware neither follows rows of a list nor crosses pages. */
typedef struct row_set {
    const uint8_t *now[max_rows], *next[max_rows];
} row_set;

INLINE void set_rows(row_set *s, const hs_tile *t, size_t r, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        const size_t after = r + n_rows + i;
        s->now[i] = hs_tile_row(t, r + i);
        s->next[i] = hs_tile_row(t, after < t->n_rows ? after : r + i);
    }
}

INLINE void fetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

/* ---- float rows ------------------------------------------------------------------------ */

/* Sixteen elements from element i, those in the mask, widened; zeros beside them. */
typedef __m512 load16_fn(const uint8_t *row, size_t i, __mmask16 m);

INLINE __m512 load16_f32(const uint8_t *row, size_t i, __mmask16 m)
{
    return _mm512_maskz_loadu_ps(m, row + 4 * i);
}

INLINE __m512 load16_f16(const uint8_t *row, size_t i, __mmask16 m)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, row + 2 * i));
}

INLINE __m512 load16_bf16(const uint8_t *row, size_t i, __mmask16 m)
{
    const __m256i h = _mm256_maskz_loadu_epi16(m, row + 2 * i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* 32 elements of every row and token from element i on.  A lane is never -0, so the zeros that
 * masks leave change nothing. */
INLINE void float_step(load16_fn *load16, size_t n_rows, size_t n_tokens, const row_set *s,
                       const float *x, size_t ldx, size_t i, __mmask16 m0, __mmask16 m1,
                       __m512 (*lane)[max_tokens][2])
{
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; v++) {
        const size_t at = i + width * v;
        const __mmask16 m = v ? m1 : m0;
        __m512 w[max_rows];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
            w[r] = load16(s->now[r], at, m);
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++) {
            const __m512 a = _mm512_maskz_loadu_ps(m, x + k * ldx + at);
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++)
                lane[r][k][v] = _mm512_add_ps(lane[r][k][v], _mm512_mul_ps(w[r], a));
        }
    }
}

INLINE void float_tile(load16_fn *load16, size_t bytes, size_t n_rows, size_t n_tokens,
                       const hs_tile *t, size_t row, size_t token)
{
    const float *x = t->x + token * t->ldx;
    __m512 lane[max_rows][max_tokens][2], sum[max_rows][max_tokens];
    row_set s;
    set_rows(&s, t, row, n_rows);
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++)
            lane[r][k][0] = lane[r][k][1] = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + float_lanes <= t->cols; i += float_lanes) {
        if (n_tokens == 1)
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 2
                for (size_t b = 0; b < bytes * float_lanes; b += 64)
                    fetch(s.next[r] + bytes * i + b);
        float_step(load16, n_rows, n_tokens, &s, x, t->ldx, i, 0xffff, 0xffff, lane);
    }
    if (i < t->cols) {
        const size_t rest = t->cols - i;
        float_step(load16, n_rows, n_tokens, &s, x, t->ldx, i, first_lanes(rest),
                   first_lanes(rest > width ? rest - width : 0), lane);
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++)
            sum[r][k] = _mm512_add_ps(lane[r][k][0], lane[r][k][1]);
    store_sums(t, row, token, n_rows, n_tokens, (const __m512(*)[max_tokens])sum);
}

/* Every row and token, through a microkernel that does a given number of both. */
#define TILE(micro, ...)                            \
    do {                                            \
        size_t k = 0, r;                            \
        for (; k + 4 <= t->n; k += 4) {             \
            for (r = 0; r + 2 <= t->n_rows; r += 2) \
                micro(__VA_ARGS__, 2, 4, t, r, k);  \
            for (; r < t->n_rows; r++)              \
                micro(__VA_ARGS__, 1, 4, t, r, k);  \
        }                                           \
        for (; k < t->n; k++) {                     \
            for (r = 0; r + 4 <= t->n_rows; r += 4) \
                micro(__VA_ARGS__, 4, 1, t, r, k);  \
            for (; r < t->n_rows; r++)              \
                micro(__VA_ARGS__, 1, 1, t, r, k);  \
        }                                           \
    } while (0)

INLINE void axpy_float(load16_fn *load16, float *y, float a, const uint8_t *row, size_t begin,
                       size_t end)
{
    const __m512 va = _mm512_set1_ps(a);
    for (size_t i = begin; i < end; i += width) {
        const __mmask16 m = first_lanes(end - i);
        const __m512 v =
            _mm512_add_ps(_mm512_maskz_loadu_ps(m, y + i), _mm512_mul_ps(va, load16(row, i, m)));
        _mm512_mask_storeu_ps(y + i, m, v);
    }
}

/* The sums of some columns stay in registers over all rows. */
INLINE void axpy_columns(load16_fn *load16, size_t n_vectors, const hs_axpy_rows *p, size_t i)
{
    __m512 sum[4];
#pragma GCC unroll 4
    for (size_t v = 0; v < n_vectors; v++)
        sum[v] = _mm512_loadu_ps(p->y + i + width * v);
    for (size_t r = 0; r < p->n; r++) {
        const uint8_t *row = hs_axpy_row(p, r);
        const __m512 va = _mm512_set1_ps(p->a[r]);
#pragma GCC unroll 4
        for (size_t v = 0; v < n_vectors; v++)
            sum[v] = _mm512_add_ps(sum[v], _mm512_mul_ps(va, load16(row, i + width * v, 0xffff)));
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < n_vectors; v++)
        _mm512_storeu_ps(p->y + i + width * v, sum[v]);
}

/* Wide rows one after the other (they stream); narrow ones, attention's, by columns. */
INLINE void axpy_rows_float(load16_fn *load16, size_t bytes, const hs_axpy_rows *p)
{
    size_t i = p->begin;
    if (p->end - i <= hs_narrow_row) {
        for (; i + 64 <= p->end; i += 64)
            axpy_columns(load16, 4, p, i);
        for (; i + 32 <= p->end; i += 32)
            axpy_columns(load16, 2, p, i);
    }
    if (i == p->end)
        return;
    for (size_t r = 0; r < p->n; r++) {
        const uint8_t *next = hs_axpy_row(p, r + 1 < p->n ? r + 1 : r);
        for (size_t b = bytes * i; b < bytes * p->end; b += 64)
            fetch(next + b);
        axpy_float(load16, p->y, p->a[r], hs_axpy_row(p, r), i, p->end);
    }
}

#define FLOAT_ROWS(type, bytes)                                                           \
    static void tile_##type(const hs_tile *t) { TILE(float_tile, load16_##type, bytes); } \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)           \
    {                                                                                     \
        (void)q;                                                                          \
        float y;                                                                          \
        const hs_tile t = {.row = row, .n_rows = 1, .x = x, .n = 1, .cols = n, .y = &y};  \
        float_tile(load16_##type, bytes, 1, 1, &t, 0, 0);                                 \
        return y;                                                                         \
    }                                                                                     \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        axpy_float(load16_##type, y, a, row, begin, end);                                 \
    }                                                                                     \
    static void axpy_rows_##type(const hs_axpy_rows *p)                                   \
    {                                                                                     \
        axpy_rows_float(load16_##type, bytes, p);                                         \
    }

FLOAT_ROWS(f32, 4)
FLOAT_ROWS(f16, 2)
FLOAT_ROWS(bf16, 2)

#define ENTRY(act, type) \
    (hs_kernel_type) { act, dot_##type, axpy_##type, tile_##type, axpy_rows_##type }

static void accumulate(double *y, float a, const float *w, size_t n)
{
    const __m512d va = _mm512_set1_pd((double)a), grid = _mm512_set1_pd(HS_GRID);
    for (size_t i = 0; i < n; i += 8) {
        const __mmask8 m = n - i >= 8 ? 0xff : (__mmask8)((1u << (n - i)) - 1);
        const __m256 f = _mm256_maskz_loadu_ps(m, w + i);
        const __m512d p = _mm512_mul_pd(va, _mm512_cvtps_pd(f));
        const __m512d r = _mm512_sub_pd(_mm512_add_pd(p, grid), grid);
        _mm512_mask_storeu_pd(y + i, m, _mm512_add_pd(_mm512_maskz_loadu_pd(m, y + i), r));
    }
}

void hs_kernels_avx512(hs_kernels *k)
{
    k->level = HS_CPU_AVX512;
    k->accumulate = accumulate;
    k->type[HS_F32] = ENTRY(HS_ACT_F32, f32);
    k->type[HS_F16] = ENTRY(HS_ACT_F32, f16);
    k->type[HS_BF16] = ENTRY(HS_ACT_F32, bf16);
    hs_kernels_q_avx512(k);
    hs_kernels_sum_avx512(k);
}
#endif
