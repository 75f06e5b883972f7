/* AVX-512 row updates in double (mathx.h's order-free sums), four rows at a time: the sums of 32
 * columns stay in registers meanwhile.  a * w is exact in double, so that a fused product and
 * addition of the grid gives the bits of separate ones. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_block.h"
#include "runtime/mathx.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { columns = 32, rows_at_once = 4 };

INLINE __m512d on_grid(__m512d a, __m512d w)
{
    const __m512d grid = _mm512_set1_pd(HS_GRID);
    return _mm512_sub_pd(_mm512_fmadd_pd(a, w, grid), grid);
}

/* sum[0…3] += a * 32 columns of a row from column i on. */
typedef void add_fn(__m512d *sum, float a, const uint8_t *row, size_t i);

INLINE void add_floats(__m512d *sum, float a, __m512 low, __m512 high)
{
    const __m512d va = _mm512_set1_pd((double)a);
    const __m256 part[4] = {_mm512_castps512_ps256(low), _mm512_extractf32x8_ps(low, 1),
                            _mm512_castps512_ps256(high), _mm512_extractf32x8_ps(high, 1)};
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
        sum[v] = _mm512_add_pd(sum[v], on_grid(va, _mm512_cvtps_pd(part[v])));
}

INLINE void add_f32(__m512d *sum, float a, const uint8_t *row, size_t i)
{
    add_floats(sum, a, _mm512_loadu_ps(row + 4 * i), _mm512_loadu_ps(row + 4 * (i + 16)));
}

INLINE void add_f16(__m512d *sum, float a, const uint8_t *row, size_t i)
{
    const __m256i *h = (const __m256i *)(row + 2 * i);
    add_floats(sum, a, _mm512_cvtph_ps(_mm256_loadu_si256(h)),
               _mm512_cvtph_ps(_mm256_loadu_si256(h + 1)));
}

INLINE __m512 widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE void add_bf16(__m512d *sum, float a, const uint8_t *row, size_t i)
{
    const __m256i *h = (const __m256i *)(row + 2 * i);
    add_floats(sum, a, widen_bf16(_mm256_loadu_si256(h)), widen_bf16(_mm256_loadu_si256(h + 1)));
}

INLINE void add_q8_0(__m512d *sum, float a, const uint8_t *row, size_t i)
{
    const uint8_t *p = row + i / hs_block_elems * hs_q8_0_bytes;
    const __m512 d = _mm512_set1_ps(_cvtsh_ss(hs_load_u16(p)));
    const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p + 2)));
    const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p + 18)));
    add_floats(sum, a, _mm512_mul_ps(d, _mm512_cvtepi32_ps(low)),
               _mm512_mul_ps(d, _mm512_cvtepi32_ps(high)));
}

/* A block has sixteen products: they are a table that the integers look up. */
INLINE void add_q4_0(__m512d *sum, float a, const uint8_t *row, size_t i)
{
    const uint8_t *p = row + i / hs_block_elems * hs_q4_0_bytes;
    const __m512 level = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512 w = _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(hs_load_u16(p))), level);
    const __m512d va = _mm512_set1_pd((double)a);
    const __m512d low = on_grid(va, _mm512_cvtps_pd(_mm512_castps512_ps256(w)));
    const __m512d high = on_grid(va, _mm512_cvtps_pd(_mm512_extractf32x8_ps(w, 1)));
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; v++) {
        /* Of an index, the lowest four bits count. */
        const __m512i q = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(p + 2 + 8 * v)));
        sum[v] = _mm512_add_pd(sum[v], _mm512_permutex2var_pd(low, q, high));
        sum[v + 2] =
            _mm512_add_pd(sum[v + 2], _mm512_permutex2var_pd(low, _mm512_srli_epi64(q, 4), high));
    }
}

INLINE void add_rows(add_fn *add, size_t n_rows, const hs_sum_rows *p, size_t r, size_t block,
                     size_t bytes)
{
    const uint8_t *now[rows_at_once], *next[rows_at_once];
#pragma GCC unroll 4
    for (size_t k = 0; k < n_rows; k++) {
        const size_t after = r + n_rows + k;
        now[k] = hs_sum_row(p, r + k);
        next[k] = hs_sum_row(p, after < p->n ? after : r + k);
    }
    for (size_t i = p->begin; i < p->end; i += columns) {
        __m512d sum[4];
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            sum[v] = _mm512_loadu_pd(p->y + i + 8 * v);
#pragma GCC unroll 4
        for (size_t k = 0; k < n_rows; k++) {
            /* The hardware does not follow lists of rows. */
            for (size_t b = 0; b < columns / block * bytes; b += 64)
                _mm_prefetch((const char *)(next[k] + i / block * bytes + b), _MM_HINT_T0);
            add(sum, p->a[r + k], now[k], i);
        }
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            _mm512_storeu_pd(p->y + i + 8 * v, sum[v]);
    }
}

#define SUM_ROWS(type, block, bytes)                                \
    static void sum_##type(const hs_sum_rows *p)                    \
    {                                                               \
        size_t r = 0;                                               \
        for (; r + rows_at_once <= p->n; r += rows_at_once)         \
            add_rows(add_##type, rows_at_once, p, r, block, bytes); \
        for (; r < p->n; r++)                                       \
            add_rows(add_##type, 1, p, r, block, bytes);            \
    }

SUM_ROWS(f32, 1, 4)
SUM_ROWS(f16, 1, 2)
SUM_ROWS(bf16, 1, 2)
SUM_ROWS(q8_0, hs_block_elems, hs_q8_0_bytes)
SUM_ROWS(q4_0, hs_block_elems, hs_q4_0_bytes)

void hs_kernels_sum_avx512(hs_kernels *k)
{
    k->type[HS_F32].sum_rows = sum_f32;
    k->type[HS_F16].sum_rows = sum_f16;
    k->type[HS_BF16].sum_rows = sum_bf16;
    k->type[HS_Q8_0].sum_rows = sum_q8_0;
    k->type[HS_Q4_0].sum_rows = sum_q4_0;
}
#endif
