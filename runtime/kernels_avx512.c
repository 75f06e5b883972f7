/* AVX-512 kernels, bit for bit those of kernels_scalar.c: the 32 lanes of a float sum are two
 * registers, the 16 of a quantized one are one, and its byte products are exact in VNNI.  As in
 * kernels_avx2.c nothing is fused.  What is not here runs the AVX2 kernels.
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

/* ---- quantized rows -------------------------------------------------------------------- */

/* Two blocks of 32 as 64 bytes: Q8_0's integers, or the others' without their bias. */
typedef __m512i pair_fn(const uint8_t *p);

INLINE __m512i pair_q8_0(const uint8_t *p)
{
    const __m256i low = _mm256_loadu_si256((const __m256i *)(p + 2));
    const __m256i high = _mm256_loadu_si256((const __m256i *)(p + hs_q8_0_bytes + 2));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* 16 bytes each: the low nibbles, then the high ones, of both. */
INLINE __m512i pair_nibbles(const uint8_t *first, const uint8_t *second)
{
    const __m512i v =
        _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)first)),
                                    0xff00, _mm_loadu_si128((const __m128i *)second));
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    return _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
}

INLINE __m512i pair_q4_0(const uint8_t *p) { return pair_nibbles(p + 2, p + hs_q4_0_bytes + 2); }

INLINE __m512i pair_q5_0(const uint8_t *p)
{
    const __m512i low = pair_nibbles(p + 6, p + hs_q5_0_bytes + 6);
    const __mmask64 fifth = hs_load_u32(p + 2) | (uint64_t)hs_load_u32(p + hs_q5_0_bytes + 2) << 32;
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

/* With a bias the weights are unsigned and the token's sums give the correction; without, the
 * activations are made unsigned (+128) and the row's sums do. */
typedef struct pair_kind {
    pair_fn *pair;
    size_t bytes; /* of one block */
    char bias;
} pair_kind;

INLINE __m512i minus_products(__m512i u, __m512i s)
{
    const __m512i zero = _mm512_setzero_si512();
    return _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, u, s));
}

/* Adds two blocks of R rows to T tokens' sums; scale[r][k]: of the two blocks. */
INLINE void pair_step(pair_kind kind, size_t n_rows, size_t n_tokens, const uint8_t *const *p,
                      const int8_t *const *a, const float *const (*scale)[max_tokens],
                      __m512 (*lane)[max_tokens])
{
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i va[max_tokens], start[max_tokens];
#pragma GCC unroll 4
    for (size_t k = 0; k < n_tokens; k++) {
        va[k] = _mm512_loadu_si512(a[k]);
        if (kind.bias)
            start[k] = minus_products(_mm512_set1_epi8(kind.bias), va[k]);
        else
            va[k] = _mm512_xor_si512(va[k], flip);
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++) {
        const __m512i w = kind.pair(p[r]);
        const __m512i row_start = kind.bias ? w : minus_products(flip, w);
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++) {
            const __m512i sum = kind.bias ? _mm512_dpbusd_epi32(start[k], w, va[k])
                                          : _mm512_dpbusd_epi32(row_start, va[k], w);
            double both; /* two floats */
            memcpy(&both, scale[r][k], sizeof both);
            const __m512 d = _mm512_permutexvar_ps(halves, _mm512_castpd_ps(_mm512_set1_pd(both)));
            lane[r][k] = _mm512_add_ps(lane[r][k], _mm512_mul_ps(_mm512_cvtepi32_ps(sum), d));
        }
    }
}

/* Blocks whose scales are worked out ahead, in one go: a multiple of 16. */
enum { segment = 64 };

/* weight scale * activation scale of n blocks (n <= segment) from block b on.  The 16-bit scales
 * lie among the quants; scalar copies gather them, off the ports that the vectors need. */
INLINE void segment_scales(size_t bytes, size_t n_rows, size_t n_tokens, const row_set *s,
                           const float *da, size_t ldd, size_t b, size_t n,
                           float (*scale)[max_tokens][segment])
{
    uint16_t d[max_rows][segment];
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n; i++)
            d[r][i] = hs_load_u16(s->now[r] + (b + i) * bytes);
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n; i += width) {
            const __mmask16 m = first_lanes(n - i);
            const __m512 dw = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, d[r] + i));
#pragma GCC unroll 4
            for (size_t k = 0; k < n_tokens; k++)
                _mm512_store_ps(scale[r][k] + i,
                                _mm512_mul_ps(dw, _mm512_maskz_loadu_ps(m, da + k * ldd + b + i)));
        }
}

/* A last block without a partner: it gets one of zeros. */
INLINE void odd_block(pair_kind kind, size_t n_rows, size_t n_tokens, const row_set *s,
                      const int8_t *a, size_t lda, size_t b,
                      const float (*scale)[max_tokens][segment], size_t at,
                      __m512 (*lane)[max_tokens])
{
    uint8_t w[max_rows][2 * hs_q8_0_bytes] = {{0}};
    int8_t v[max_tokens][2 * hs_block_elems] = {{0}};
    float d[max_rows][max_tokens][2] = {{{0}}};
    const uint8_t *p[max_rows];
    const int8_t *q[max_tokens];
    const float *e[max_rows][max_tokens];
    for (size_t k = 0; k < n_tokens; k++) {
        memcpy(v[k], a + k * lda + b * hs_block_elems, hs_block_elems);
        q[k] = v[k];
    }
    for (size_t r = 0; r < n_rows; r++) {
        memcpy(w[r], s->now[r] + b * kind.bytes, kind.bytes);
        p[r] = w[r];
        for (size_t k = 0; k < n_tokens; k++) {
            d[r][k][0] = scale[r][k][at];
            e[r][k] = d[r][k];
        }
    }
    pair_step(kind, n_rows, n_tokens, p, q, (const float *const(*)[max_tokens])e, lane);
}

INLINE void quant_tile(pair_kind kind, size_t n_rows, size_t n_tokens, const hs_tile *t, size_t row,
                       size_t token)
{
    _Alignas(64) float scale[max_rows][max_tokens][segment];
    __m512 lane[max_rows][max_tokens];
    const int8_t *a = t->q.q + token * t->ldq;
    const size_t n_blocks = t->cols / hs_block_elems, ldd = t->ldq / hs_block_elems;
    row_set s;
    set_rows(&s, t, row, n_rows);
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++)
            lane[r][k] = _mm512_setzero_ps();
    for (size_t b = 0; b < n_blocks; b += segment) {
        const size_t n = n_blocks - b < segment ? n_blocks - b : segment;
        segment_scales(kind.bytes, n_rows, n_tokens, &s, t->q.d + token * ldd, ldd, b, n, scale);
        size_t i = 0;
        for (; i + 2 <= n; i += 2) {
            const uint8_t *p[max_rows];
            const int8_t *q[max_tokens];
            const float *d[max_rows][max_tokens];
#pragma GCC unroll 4
            for (size_t k = 0; k < n_tokens; k++)
                q[k] = a + k * t->ldq + (b + i) * hs_block_elems;
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                p[r] = s.now[r] + (b + i) * kind.bytes;
                if (n_tokens == 1)
                    fetch(s.next[r] + (b + i) * kind.bytes);
#pragma GCC unroll 4
                for (size_t k = 0; k < n_tokens; k++)
                    d[r][k] = scale[r][k] + i;
            }
            pair_step(kind, n_rows, n_tokens, p, q, (const float *const(*)[max_tokens])d, lane);
        }
        if (i < n)
            odd_block(kind, n_rows, n_tokens, &s, a, t->ldq, b + i,
                      (const float(*)[max_tokens][segment])scale, i, lane);
    }
    store_sums(t, row, token, n_rows, n_tokens, (const __m512(*)[max_tokens])lane);
}

/* ---- Q6_K ---- */

/* 64 of a block's 256 integers without their bias: pair 0…3 (kernels_block.h has the bits). */
INLINE __m512i pair_q6_k(const uint8_t *p, size_t pair)
{
    const __m512i l = _mm512_loadu_si512(p + pair / 2 * 64);
    const __m512i h = _mm512_broadcast_i64x4(
        _mm256_loadu_si256((const __m256i *)(p + hs_q6_k_qh + pair / 2 * 32)));
    __m512i low, high;
    if (pair % 2 == 0) {
        low = l;
        high = _mm512_sllv_epi64(h, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
    } else {
        low = _mm512_srli_epi64(l, 4);
        high = _mm512_srlv_epi64(h, _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
    }
    return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)),
                           _mm512_and_si512(high, _mm512_set1_epi8(0x30)));
}

/* d * scale[i] of the block's sixteen. */
INLINE __m512 scales_q6_k(const uint8_t *p)
{
    const __m128i s = _mm_loadu_si128((const __m128i *)(p + hs_q6_k_scale));
    const float d = _cvtsh_ss(hs_load_u16(p + hs_q6_k_d));
    return _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
}

INLINE void q6_k_tile(int unused, size_t n_rows, size_t n_tokens, const hs_tile *t, size_t row,
                      size_t token)
{
    (void)unused;
    /* Of sixteen scales, four to a pair of blocks and four lanes to a scale. */
    const __m512i quads = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m512 lane[max_rows][max_tokens];
    const int8_t *a = t->q.q + token * t->ldq;
    const size_t ldd = t->ldq / hs_block_elems;
    const float *da = t->q.d + token * ldd;
    row_set s;
    set_rows(&s, t, row, n_rows);
#pragma GCC unroll 4
    for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < n_tokens; k++)
            lane[r][k] = _mm512_setzero_ps();
    for (size_t b = 0; b < t->cols / hs_q6_k_elems; b++) {
        __m512 dw[max_rows];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
            dw[r] = scales_q6_k(s.now[r] + b * hs_q6_k_bytes);
#pragma GCC unroll 4
        for (size_t pair = 0; pair < 4; pair++) {
            const __m512i pick = _mm512_add_epi32(quads, _mm512_set1_epi32((int)(4 * pair)));
            __m512i w[max_rows];
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                w[r] = pair_q6_k(s.now[r] + b * hs_q6_k_bytes, pair);
                if (n_tokens == 1)
                    fetch(s.next[r] + b * hs_q6_k_bytes + pair * 64);
            }
#pragma GCC unroll 4
            for (size_t k = 0; k < n_tokens; k++) {
                const __m512i va =
                    _mm512_loadu_si512(a + k * t->ldq + b * hs_q6_k_elems + pair * 64);
                const __m512i start = minus_products(_mm512_set1_epi8(32), va);
                const __m512 dk = _mm512_permutexvar_ps(
                    twice, _mm512_castps256_ps512(_mm256_loadu_ps(da + k * ldd + 8 * b)));
#pragma GCC unroll 4
                for (size_t r = 0; r < n_rows; r++) {
                    const __m512 d = _mm512_permutexvar_ps(pick, _mm512_mul_ps(dw[r], dk));
                    const __m512i sum = _mm512_dpbusd_epi32(start, w[r], va);
                    lane[r][k] =
                        _mm512_add_ps(lane[r][k], _mm512_mul_ps(_mm512_cvtepi32_ps(sum), d));
                }
            }
        }
    }
    store_sums(t, row, token, n_rows, n_tokens, (const __m512(*)[max_tokens])lane);
}

/* ---- axpy ---- */

INLINE void add16(float *y, __m512 v) { _mm512_storeu_ps(y, _mm512_add_ps(_mm512_loadu_ps(y), v)); }

/* y[0…15] += a * (d * q) */
INLINE void axpy16(float *y, __m512 a, __m512 d, __m128i q)
{
    const __m512 v = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
    add16(y, _mm512_mul_ps(a, v));
}

/* a * (d * q) for q = from … from + 15. */
INLINE __m512 products(__m512 a, __m512 d, int from)
{
    const __m512i q =
        _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(from));
    return _mm512_mul_ps(a, _mm512_mul_ps(d, _mm512_cvtepi32_ps(q)));
}

INLINE __m512 block_d(const uint8_t *p) { return _mm512_set1_ps(_cvtsh_ss(hs_load_u16(p))); }

typedef void axpy_block_fn(float *y, __m512 a, const uint8_t *p);

INLINE void axpy_block_q8_0(float *y, __m512 a, const uint8_t *p)
{
    const __m512 d = block_d(p);
    axpy16(y, a, d, _mm_loadu_si128((const __m128i *)(p + 2)));
    axpy16(y + 16, a, d, _mm_loadu_si128((const __m128i *)(p + 18)));
}

/* Few integers are possible: their products are a table that the quants look up. */
INLINE void axpy_block_q4_0(float *y, __m512 a, const uint8_t *p)
{
    const __m512 table = products(a, block_d(p), -8);
    const __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p + 2)));
    add16(y, _mm512_permutexvar_ps(q, table));
    add16(y + 16, _mm512_permutexvar_ps(_mm512_srli_epi32(q, 4), table));
}

INLINE void axpy_block_q5_0(float *y, __m512 a, const uint8_t *p)
{
    const __m512 d = block_d(p), low = products(a, d, -16), high = products(a, d, 0);
    const uint32_t fifth = hs_load_u32(p + 2);
    const __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p + 6)));
    const __m512 first[2] = {_mm512_permutexvar_ps(q, low), _mm512_permutexvar_ps(q, high)};
    const __m512i q4 = _mm512_srli_epi32(q, 4);
    const __m512 second[2] = {_mm512_permutexvar_ps(q4, low), _mm512_permutexvar_ps(q4, high)};
    add16(y, _mm512_mask_blend_ps((__mmask16)fifth, first[0], first[1]));
    add16(y + 16, _mm512_mask_blend_ps((__mmask16)(fifth >> 16), second[0], second[1]));
}

INLINE void axpy_block_q6_k(float *y, __m512 a, const uint8_t *p)
{
    const __m512 scales = scales_q6_k(p);
    const __m512i bias = _mm512_set1_epi8(32);
#pragma GCC unroll 4
    for (size_t pair = 0; pair < 4; pair++) {
        const __m512i q = _mm512_sub_epi8(pair_q6_k(p, pair), bias);
        const __m128i part[4] = {_mm512_extracti32x4_epi32(q, 0), _mm512_extracti32x4_epi32(q, 1),
                                 _mm512_extracti32x4_epi32(q, 2), _mm512_extracti32x4_epi32(q, 3)};
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            axpy16(y + 64 * pair + 16 * i, a,
                   _mm512_permutexvar_ps(_mm512_set1_epi32((int)(4 * pair + i)), scales), part[i]);
    }
}

INLINE void axpy_blocks(axpy_block_fn *block, size_t elems, size_t bytes, float *y, float a,
                        const uint8_t *row, const uint8_t *next, size_t begin, size_t end)
{
    const __m512 va = _mm512_set1_ps(a);
    for (size_t b = begin / elems; b < end / elems; b++) {
        for (size_t i = 0; i < bytes; i += 64)
            fetch(next + b * bytes + i);
        block(y + b * elems, va, row + b * bytes);
    }
}

INLINE void axpy_rows_blocks(axpy_block_fn *block, size_t elems, size_t bytes,
                             const hs_axpy_rows *p)
{
    for (size_t r = 0; r < p->n; r++)
        axpy_blocks(block, elems, bytes, p->y, p->a[r], hs_axpy_row(p, r),
                    hs_axpy_row(p, r + 1 < p->n ? r + 1 : r), p->begin, p->end);
}

#define QUANTIZED(type, micro, kind, elems)                                                   \
    static void tile_##type(const hs_tile *t) { TILE(micro, kind); }                          \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)               \
    {                                                                                         \
        (void)x;                                                                              \
        float y;                                                                              \
        const hs_tile t = {.row = row, .n_rows = 1, .q = q, .n = 1, .cols = n, .y = &y};      \
        micro(kind, 1, 1, &t, 0, 0);                                                          \
        return y;                                                                             \
    }                                                                                         \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end)     \
    {                                                                                         \
        axpy_blocks(axpy_block_##type, elems, hs_##type##_bytes, y, a, row, row, begin, end); \
    }                                                                                         \
    static void axpy_rows_##type(const hs_axpy_rows *p)                                       \
    {                                                                                         \
        axpy_rows_blocks(axpy_block_##type, elems, hs_##type##_bytes, p);                     \
    }

#define KIND(type, bias) ((pair_kind){pair_##type, hs_##type##_bytes, bias})
QUANTIZED(q8_0, quant_tile, KIND(q8_0, 0), hs_block_elems)
QUANTIZED(q4_0, quant_tile, KIND(q4_0, 8), hs_block_elems)
QUANTIZED(q5_0, quant_tile, KIND(q5_0, 16), hs_block_elems)
QUANTIZED(q6_k, q6_k_tile, 0, hs_q6_k_elems)

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
    k->type[HS_Q8_0] = ENTRY(HS_ACT_Q8, q8_0);
    k->type[HS_Q5_0] = ENTRY(HS_ACT_Q8, q5_0);
    k->type[HS_Q4_0] = ENTRY(HS_ACT_Q8, q4_0);
    k->type[HS_Q6_K] = ENTRY(HS_ACT_Q8, q6_k);
}
#endif
