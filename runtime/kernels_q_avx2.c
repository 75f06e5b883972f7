/* AVX2 products of quantized rows, bit for bit those of kernels_scalar.c.  Blocks of 32 are taken
 * eight at a time, a chunk: their eight sums (sixteen of the types with groups of 16) come out of
 * one tree of horizontal additions and are converted and scaled together. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_avx2.h"

#include <stdbool.h>

enum { chunk_blocks = 8, tokens_at_once = 4 };

/* The integers of block b of 32, less the bias of types that have one. */
typedef __m256i quants_fn(const uint8_t *row, size_t b);

/* Eight blocks: scales and minima of eight groups, or of sixteen. */
typedef struct chunk {
    __m256i q[chunk_blocks];
    __m256 d[2], m[2];
} chunk;

/* Those of n blocks from block b on; zeros for the rest. */
typedef void scales_fn(chunk *c, const uint8_t *row, size_t b, size_t n);

typedef struct q_kind {
    quants_fn *quants;
    scales_fn *scales;
    char bias;      /* of unsigned integers; 0 with centred: signed ones */
    bool is_signed; /* integers may be negative */
    bool halves;    /* groups of 16 */
    bool min;
    size_t block, bytes; /* elements and bytes of a block of the type, to fetch ahead */
} q_kind;

/* ---- integers ----------------------------------------------------------------------------- */

INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

INLINE __m256i quants_q8_0(const uint8_t *row, size_t b)
{
    return load32(row + b * hs_q8_0_bytes + 2);
}

INLINE __m256i quants_q4_0(const uint8_t *row, size_t b)
{
    return nibbles(row + b * hs_q4_0_bytes + 2);
}

INLINE __m256i quants_q4_1(const uint8_t *row, size_t b)
{
    return nibbles(row + b * hs_q4_1_bytes + 4);
}

INLINE __m256i quants_q5_0(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q5_0_bytes;
    return _mm256_or_si256(nibbles(p + 6), fifth_bits(hs_load_u32(p + 2)));
}

INLINE __m256i quants_q5_1(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b * hs_q5_1_bytes;
    return _mm256_or_si256(nibbles(p + 8), fifth_bits(hs_load_u32(p + 4)));
}

INLINE __m256i levels(const uint8_t *p)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)hs_iq4_values);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(p));
}

INLINE __m256i quants_iq4_nl(const uint8_t *row, size_t b)
{
    return levels(row + b * hs_iq4_nl_bytes + 2);
}

INLINE __m256i quants_iq4_xs(const uint8_t *row, size_t b)
{
    return levels(row + b / 8 * hs_iq4_xs_bytes + hs_iq4_xs_q + 16 * (b % 8));
}

/* v's bytes shifted right, `mask` of them kept; counts are constants where loops are unrolled. */
INLINE __m256i bits(__m256i v, size_t shift, char mask)
{
    const __m256i moved = _mm256_srl_epi16(v, _mm_cvtsi32_si128((int)shift));
    return _mm256_and_si256(moved, _mm256_set1_epi8(mask));
}

INLINE __m256i quants_q6_k(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q6_k_bytes;
    const size_t k = b % 8;
    const __m256i low = bits(load32(p + k / 4 * 64 + k % 2 * 32), k % 4 / 2 * 4, 15);
    const __m256i high = bits(load32(p + hs_q6_k_qh + k / 4 * 32), k % 4 * 2, 3);
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}

INLINE __m256i quants_q2_k(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q2_k_bytes;
    return bits(load32(p + hs_q2_k_q + b % 8 / 4 * 32), b % 4 * 2, 3);
}

INLINE __m256i quants_q3_k(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q3_k_bytes;
    const __m256i low = bits(load32(p + hs_q3_k_q + b % 8 / 4 * 32), b % 4 * 2, 3);
    return _mm256_or_si256(low, _mm256_slli_epi16(bits(load32(p), b % 8, 1), 2));
}

INLINE __m256i quants_q4_k(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q4_k_bytes;
    return bits(load32(p + hs_q4_k_q + b % 8 / 2 * 32), b % 2 * 4, 15);
}

INLINE __m256i quants_q5_k(const uint8_t *row, size_t b)
{
    const uint8_t *p = row + b / 8 * hs_q5_k_bytes;
    const __m256i low = bits(load32(p + hs_q5_k_q + b % 8 / 2 * 32), b % 2 * 4, 15);
    return _mm256_or_si256(low, _mm256_slli_epi16(bits(load32(p + hs_q5_k_high), b % 8, 1), 4));
}

/* ---- scales ------------------------------------------------------------------------------ */

/* The 16-bit numbers at p, p + stride, …: n of them, then zeros. */
INLINE __m256 halves8(const uint8_t *p, size_t stride, size_t n)
{
    uint16_t h[8] = {0};
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        if (i < n)
            h[i] = hs_load_u16(p + i * stride);
    return _mm256_cvtph_ps(_mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3],
                                          (short)h[4], (short)h[5], (short)h[6], (short)h[7]));
}

#define SCALES_32(type, has_min)                                                      \
    INLINE void scales_##type(chunk *c, const uint8_t *row, size_t b, size_t n)       \
    {                                                                                 \
        c->d[0] = halves8(row + b * hs_##type##_bytes, hs_##type##_bytes, n);         \
        if (has_min)                                                                  \
            c->m[0] = halves8(row + b * hs_##type##_bytes + 2, hs_##type##_bytes, n); \
    }

SCALES_32(q8_0, false)
SCALES_32(q4_0, false)
SCALES_32(q5_0, false)
SCALES_32(iq4_nl, false)
SCALES_32(q4_1, true)
SCALES_32(q5_1, true)

INLINE __m256 times8(float d, __m128i bytes)
{
    return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

INLINE void times16(__m256 *to, float d, __m128i bytes)
{
    to[0] = times8(d, bytes);
    to[1] = times8(d, _mm_unpackhi_epi64(bytes, bytes));
}

INLINE void scales_q6_k(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    const uint8_t *p = row + b / 8 * hs_q6_k_bytes;
    times16(c->d, load_d(p + hs_q6_k_d), _mm_loadu_si128((const __m128i *)(p + hs_q6_k_scale)));
}

INLINE void scales_q2_k(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    const uint8_t *p = row + b / 8 * hs_q2_k_bytes;
    const __m128i v = _mm_loadu_si128((const __m128i *)p), low = _mm_set1_epi8(15);
    times16(c->d, load_d(p + hs_q2_k_d), _mm_and_si128(v, low));
    times16(c->m, load_d(p + hs_q2_k_d + 2), _mm_and_si128(_mm_srli_epi16(v, 4), low));
    c->m[0] = negated(c->m[0]);
    c->m[1] = negated(c->m[1]);
}

INLINE void scales_q3_k(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    const uint8_t *p = row + b / 8 * hs_q3_k_bytes;
    int8_t v[16];
    hs_unpack_k3(p + hs_q3_k_scale, v);
    times16(c->d, load_d(p + hs_q3_k_d), _mm_loadu_si128((const __m128i *)v));
}

INLINE void scales_k4(chunk *c, const uint8_t *p)
{
    uint8_t v[16];
    hs_unpack_k4(p + 4, v, v + 8);
    c->d[0] = times8(load_d(p), _mm_loadl_epi64((const __m128i *)v));
    c->m[0] = negated(times8(load_d(p + 2), _mm_loadl_epi64((const __m128i *)(v + 8))));
}

INLINE void scales_q4_k(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    scales_k4(c, row + b / 8 * hs_q4_k_bytes);
}

INLINE void scales_q5_k(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    scales_k4(c, row + b / 8 * hs_q5_k_bytes);
}

INLINE void scales_iq4_xs(chunk *c, const uint8_t *row, size_t b, size_t n)
{
    (void)n;
    const uint8_t *p = row + b / 8 * hs_iq4_xs_bytes;
    int8_t v[8];
    for (size_t k = 0; k < 8; k++)
        v[k] = (int8_t)hs_iq4_xs_scale(p, k);
    c->d[0] = times8(load_d(p), _mm_loadl_epi64((const __m128i *)v));
}

/* ---- sums --------------------------------------------------------------------------------- */

/* Sums of four neighbours' products. */
INLINE __m256i fours(q_kind kind, __m256i q, __m256i a)
{
    const __m256i one = _mm256_set1_epi16(1);
    if (kind.is_signed)
        return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q)),
                                 one);
    if (kind.bias)
        return _mm256_madd_epi16(biased_pairs(q, a, kind.bias), one);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(q, a), one);
}

/* 128-bit lanes of v[0…3] added up: those of the low ones below, of the high ones above. */
INLINE __m256i lanes4(const __m256i *v)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
}

/* The chunk's group sums as floats, in order; sum[1] only of the types with groups of 16. */
INLINE void group_sums(bool halves, const __m256i *v, __m256 *sum)
{
    const __m256i a = lanes4(v), b = lanes4(v + 4);
    if (halves) {
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        sum[0] = _mm256_cvtepi32_ps(_mm256_permutevar8x32_epi32(a, order));
        sum[1] = _mm256_cvtepi32_ps(_mm256_permutevar8x32_epi32(b, order));
    } else {
        sum[0] = _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                                     _mm256_permute2x128_si256(a, b, 0x31)));
    }
}

/* A token's scales of the chunk's groups; n blocks of it are there. */
INLINE void token_scales(bool halves, const float *da, size_t n, __m256 *d)
{
    __m256 v;
    if (n == chunk_blocks) {
        v = _mm256_loadu_ps(da);
    } else {
        float copy[8] = {0};
        memcpy(copy, da, n * sizeof *copy);
        v = _mm256_loadu_ps(copy);
    }
    d[0] = v;
    if (halves) {
        d[0] = _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
        d[1] = _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
    }
}

INLINE __m256 add_term(__m256 lane, __m256 sum, __m256 d, __m256 da)
{
    return _mm256_add_ps(lane, _mm256_mul_ps(sum, _mm256_mul_ps(d, da)));
}

/* lane += the chunk's products with a token; odd: of 32-groups, the upper eight lanes. */
INLINE void add_chunk(q_kind kind, __m256 *lane, size_t odd, const chunk *c, const int8_t *a,
                      const float *da, size_t n)
{
    __m256i v[chunk_blocks], ones[chunk_blocks];
    __m256 sum[2], asum[2], d[2];
#pragma GCC unroll 8
    for (size_t i = 0; i < chunk_blocks; i++) {
        const __m256i va =
            i < n ? _mm256_loadu_si256((const __m256i *)(a + 32 * i)) : _mm256_setzero_si256();
        v[i] = fours(kind, c->q[i], va);
        ones[i] =
            _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), va), _mm256_set1_epi16(1));
    }
    token_scales(kind.halves, da, n, d);
    group_sums(kind.halves, v, sum);
    if (kind.min)
        group_sums(kind.halves, ones, asum);
    for (size_t i = 0; i < (kind.halves ? 2 : 1); i++) {
        __m256 *to = lane + (kind.halves ? i : odd);
        *to = add_term(*to, sum[i], c->d[i], d[i]);
        if (kind.min)
            *to = add_term(*to, asum[i], c->m[i], d[i]);
    }
}

/* Chunk from block b on of a row, for n_tokens tokens. */
INLINE void chunk_tokens(q_kind kind, size_t n_tokens, const uint8_t *row, const hs_tile *t,
                         size_t token, size_t b, size_t n, __m256 (*lane)[2])
{
    chunk c;
#pragma GCC unroll 8
    for (size_t i = 0; i < chunk_blocks; i++)
        c.q[i] = i < n ? kind.quants(row, b + i) : _mm256_setzero_si256();
    kind.scales(&c, row, b, n);
    for (size_t k = 0; k < n_tokens; k++)
        add_chunk(kind, lane[k], b / chunk_blocks & 1, &c, t->q.q + (token + k) * t->ldq + 32 * b,
                  t->q.d + (token + k) * (t->ldq / hs_block_elems) + b, n);
}

INLINE void row_tokens(q_kind kind, size_t n_tokens, const hs_tile *t, size_t r, size_t token)
{
    __m256 lane[tokens_at_once][2];
    for (size_t k = 0; k < n_tokens; k++)
        lane[k][0] = lane[k][1] = _mm256_setzero_ps();
    const uint8_t *row = hs_tile_row(t, r);
    const size_t n_blocks = t->cols / hs_block_elems;
    size_t b = 0;
    for (; b + chunk_blocks <= n_blocks; b += chunk_blocks) {
        fetch_ahead(row + b * hs_block_elems / kind.block * kind.bytes,
                    (size_t)chunk_blocks * hs_block_elems * kind.bytes / kind.block);
        chunk_tokens(kind, n_tokens, row, t, token, b, chunk_blocks, lane);
    }
    if (b < n_blocks)
        chunk_tokens(kind, n_tokens, row, t, token, b, n_blocks - b, lane);
    for (size_t k = 0; k < n_tokens; k++)
        t->y[(token + k) * t->ldy + r] = halve16(lane[k]);
}

INLINE void quant_tile(q_kind kind, const hs_tile *t)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t k = 0;
        for (; k + tokens_at_once <= t->n; k += tokens_at_once)
            row_tokens(kind, tokens_at_once, t, r, k);
        for (; k < t->n; k++)
            row_tokens(kind, 1, t, r, k);
    }
}

#define ROWS(type, bias, is_signed, halves, min, block)                                       \
    static void tile_##type(const hs_tile *t)                                                 \
    {                                                                                         \
        const q_kind kind = {quants_##type, scales_##type, bias,  is_signed,                  \
                             halves,        min,           block, hs_##type##_bytes};         \
        quant_tile(kind, t);                                                                  \
    }                                                                                         \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)               \
    {                                                                                         \
        (void)x;                                                                              \
        float y;                                                                              \
        tile_##type(&(hs_tile){.row = row, .n_rows = 1, .q = q, .n = 1, .cols = n, .y = &y}); \
        return y;                                                                             \
    }

ROWS(q8_0, 0, true, false, false, 32)
ROWS(q4_0, 8, false, false, false, 32)
ROWS(q5_0, 16, false, false, false, 32)
ROWS(q4_1, 0, false, false, true, 32)
ROWS(q5_1, 0, false, false, true, 32)
ROWS(iq4_nl, 0, true, false, false, 32)
ROWS(q6_k, 32, false, true, false, 256)
ROWS(q2_k, 0, false, true, true, 256)
ROWS(q3_k, 4, false, true, false, 256)
ROWS(q4_k, 0, false, false, true, 256)
ROWS(q5_k, 0, false, false, true, 256)
ROWS(iq4_xs, 0, true, false, false, 256)

#define SET(id, rows)                   \
    do {                                \
        k->type[id].act = HS_ACT_Q8;    \
        k->type[id].dot = dot_##rows;   \
        k->type[id].tile = tile_##rows; \
    } while (0)

void hs_kernels_q_avx2(hs_kernels *k)
{
    SET(HS_Q8_0, q8_0);
    SET(HS_Q4_0, q4_0);
    SET(HS_Q5_0, q5_0);
    SET(HS_Q4_1, q4_1);
    SET(HS_Q5_1, q5_1);
    SET(HS_IQ4_NL, iq4_nl);
    SET(HS_Q6_K, q6_k);
    SET(HS_Q2_K, q2_k);
    SET(HS_Q3_K, q3_k);
    SET(HS_Q4_K, q4_k);
    SET(HS_Q5_K, q5_k);
    SET(HS_IQ4_XS, iq4_xs);
}
#endif
