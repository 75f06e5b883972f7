/* AVX-512 products of quantized rows, bit for bit those of kernels_scalar.c: the sixteen lanes of
 * a sum are one register, a step of the row fills them with the exact sums of sixteen groups
 * (VNNI), and one conversion, one scale and one addition take them all.
 *
 * One token: four rows at a time share its loads and corrections.  Several tokens: sixteen rows
 * become a panel, in which a register holds four elements of each row and a group's sum needs no
 * shuffle; what it costs to make is shared by the tokens. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_q_avx512.h"

#include <stdbool.h>

enum {
    max_rows = 4,
    panel_rows = 16,
    max_groups = 4096, /* of a row here; longer ones take the AVX2 kernels */
    panel_steps = 4,   /* of a panel */
    panel_tokens = 64,
    pair_rows = 2 * panel_rows, /* two panels at a time: an activation is loaded once for both */
    tokens_together = 8,
    min_tokens = 4, /* for fewer a panel does not pay */
};

INLINE __mmask16 first_lanes(size_t n) { return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff); }

INLINE void fetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

/* ---- sums of groups ---------------------------------------------------------------------- */

INLINE __m512i add_halves32(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i add_halves64(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The four 32-bit parts of each 128-bit lane added up: lane i of the result holds those of lane i
 * of v[0] … v[3]. */
INLINE __m512i add_fours(const __m512i *v)
{
    return add_halves64(add_halves32(v[0], v[1]), add_halves32(v[2], v[3]));
}

/* Partial sums of a step's vectors become its sixteen groups' sums, in order. */
INLINE __m512i group_sums(q_layout layout, const __m512i *v)
{
    if (layout != Q_PAIRS) {
        const __m512i order =
            _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        return _mm512_permutexvar_epi32(order, add_fours(v));
    }
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const __m512i a = add_fours(v), b = add_fours(v + 4);
    return _mm512_permutexvar_epi32(order, _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88),
                                                            _mm512_shuffle_i32x4(a, b, 0xdd)));
}

/* Sixteen groups' products before the bias is taken off. */
INLINE __m512i raw_sums(q_layout layout, const __m512i *w, const __m512i *a)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i v[8];
    if (layout == Q_QUADS) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            v[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[2 * i], a[2 * i]), w[2 * i + 1],
                                       a[2 * i + 1]);
    } else {
        const size_t n = layout == Q_PAIRS ? 8 : 4;
#pragma GCC unroll 8
        for (size_t i = 0; i < n; i++)
            v[i] = _mm512_dpbusd_epi32(zero, w[i], a[i]);
    }
    return group_sums(layout, v);
}

/* A step of activations as the layout has the weights. */
INLINE void load_activations(q_layout layout, const int8_t *q, __m512i *a)
{
    const size_t n = layout == Q_FOURS ? 4 : 8;
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++)
        a[i] = _mm512_loadu_si512(q + 64 * i);
    if (layout != Q_QUADS)
        return;
#pragma GCC unroll 4
    for (size_t i = 0; i < 8; i += 2) {
        const __m512i first = _mm512_shuffle_i32x4(a[i], a[i + 1], 0x88);
        a[i + 1] = _mm512_shuffle_i32x4(a[i], a[i + 1], 0xdd);
        a[i] = first;
    }
}

/* The activations' scales of a step's groups. */
INLINE __m512 load_scales(q_layout layout, const float *da)
{
    if (layout != Q_FOURS)
        return _mm512_loadu_ps(da);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(da)));
}

/* ---- a row's last, incomplete step ---- */

/* Zeros beside what is there: they add +0 to lanes, which are never -0. */
typedef struct rest {
    int8_t q[512];
    float d[16];
    uint8_t row[2 * 16 * hs_q8_0_bytes];
} rest;

INLINE void rest_activations(rest *r, const int8_t *q, const float *d, size_t elems)
{
    memset(r, 0, sizeof *r);
    memcpy(r->q, q, elems);
    memcpy(r->d, d, elems / hs_block_elems * sizeof *d);
}

INLINE const uint8_t *rest_row(rest *r, const uint8_t *row, size_t bytes)
{
    memcpy(r->row, row, bytes);
    return r->row;
}

/* Bytes of `elems` elements, a part of a step. */
INLINE size_t part_bytes(q_kind k, size_t elems) { return k.bytes * elems / q_step_elems(k); }

/* ---- one token --------------------------------------------------------------------------- */

/* Sums of the groups' activations, steps rounded up. */
INLINE void activation_sums(q_layout layout, const int8_t *q, size_t cols, int32_t *sum)
{
    const size_t elems = layout == Q_FOURS ? 256 : 512;
    for (size_t i = 0; i < cols; i += elems, sum += q_groups) {
        int8_t copy[512];
        const int8_t *from = q + i;
        if (cols - i < elems) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, from, cols - i);
            from = copy;
        }
        __m512i a[8], one[8];
        load_activations(layout, from, a);
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            one[j] = _mm512_set1_epi8(1);
        _mm512_storeu_si512(sum, raw_sums(layout, one, a));
    }
}

/* One token's step. */
typedef struct token_step {
    __m512i a[8], bias, sum;
    __m512 d;
} token_step;

INLINE void load_token(q_kind kind, token_step *s, const int8_t *q, const float *d,
                       const int32_t *sum)
{
    load_activations(kind.layout, q, s->a);
    s->d = load_scales(kind.layout, d);
    s->sum = _mm512_loadu_si512(sum);
    s->bias = _mm512_mullo_epi32(s->sum, _mm512_set1_epi32(kind.bias));
}

INLINE __m512 add_step(q_kind kind, __m512 lane, const token_step *s, const uint8_t *p)
{
    __m512i w[8];
    __m512 d, m;
    kind.quants(p, w);
    kind.scales(p, &d, &m);
    __m512i sum = raw_sums(kind.layout, w, s->a);
    if (kind.bias)
        sum = _mm512_sub_epi32(sum, s->bias);
    lane = _mm512_add_ps(lane, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, s->d)));
    if (kind.min)
        lane =
            _mm512_add_ps(lane, _mm512_mul_ps(_mm512_cvtepi32_ps(s->sum), _mm512_mul_ps(m, s->d)));
    return lane;
}

/* lane[j] += lane[j + h] for h = 8, 4, 2, 1. */
INLINE float halve16(__m512 v)
{
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Rows r … r + n_rows - 1; the rows after them are fetched meanwhile: the hardware neither follows
 * lists of rows nor crosses pages. */
INLINE void row_tile(q_kind kind, size_t n_rows, const hs_tile *t, size_t r, hs_q8 q,
                     const int32_t *sum, float *y)
{
    const size_t elems = q_step_elems(kind), whole = t->cols / elems * elems;
    const uint8_t *now[max_rows], *next[max_rows];
    __m512 lane[max_rows];
    token_step s;
#pragma GCC unroll 4
    for (size_t i = 0; i < n_rows; i++) {
        const size_t after = r + n_rows + i;
        now[i] = hs_tile_row(t, r + i);
        next[i] = hs_tile_row(t, after < t->n_rows ? after : r + i);
        lane[i] = _mm512_setzero_ps();
    }
    size_t at = 0, b = 0;
    for (; at < whole; at += elems, b += kind.bytes, sum += q_groups) {
        load_token(kind, &s, q.q + at, q.d + at / hs_block_elems, sum);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_rows; i++) {
            for (size_t line = 0; line < kind.bytes; line += 64)
                fetch(next[i] + b + line);
            lane[i] = add_step(kind, lane[i], &s, now[i] + b);
        }
    }
    if (at < t->cols) {
        rest part;
        rest_activations(&part, q.q + at, q.d + at / hs_block_elems, t->cols - at);
        load_token(kind, &s, part.q, part.d, sum);
        for (size_t i = 0; i < n_rows; i++)
            lane[i] = add_step(kind, lane[i], &s,
                               rest_row(&part, now[i] + b, part_bytes(kind, t->cols - at)));
    }
    for (size_t i = 0; i < n_rows; i++)
        y[i] = halve16(lane[i]);
}

INLINE void token_rows(q_kind kind, const hs_tile *t, size_t token)
{
    int32_t sum[max_groups + q_groups]; /* steps are whole */
    const hs_q8 q = {t->q.q + token * t->ldq, t->q.d + token * (t->ldq / hs_block_elems)};
    float *y = t->y + token * t->ldy;
    activation_sums(kind.layout, q.q, t->cols, sum);
    size_t r = 0;
    for (; r + max_rows <= t->n_rows; r += max_rows)
        row_tile(kind, max_rows, t, r, q, sum, y + r);
    for (; r < t->n_rows; r++)
        row_tile(kind, 1, t, r, q, sum, y + r);
}

/* ---- several tokens ---------------------------------------------------------------------- */

/* Sixteen rows, some steps: vector i of a group holds elements 4i … 4i+3 of each row. */
typedef struct panel {
    _Alignas(64) uint8_t w[panel_steps * q_groups][8][64]; /* the types with groups of 16 use 4 */
    float d[panel_steps * q_groups][panel_rows], m[panel_steps * q_groups][panel_rows];
} panel;

/* Per token and group: the bias's part of the sum, and the sum. */
typedef struct token_sums {
    int32_t bias[panel_tokens][panel_steps * q_groups];
    float sum[panel_tokens][panel_steps * q_groups];
} token_sums;

/* A step's integers in the order of the elements. */
INLINE void store_in_order(q_layout layout, const __m512i *w, uint8_t *to)
{
    if (layout == Q_QUADS) {
        const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 4
        for (size_t i = 0; i < 8; i += 2) {
            _mm512_store_si512(to + 64 * i, _mm512_permutex2var_epi64(w[i], first, w[i + 1]));
            _mm512_store_si512(to + 64 * (i + 1),
                               _mm512_permutex2var_epi64(w[i], second, w[i + 1]));
        }
        return;
    }
    const size_t n = layout == Q_FOURS ? 4 : 8;
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++)
        _mm512_store_si512(to + 64 * i, w[i]);
}

/* Four words of each of sixteen rows (`stride` apart) become four registers of one word each. */
INLINE void transpose_words(const uint8_t *from, size_t stride, uint8_t (*to)[64])
{
    __m512i v[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        v[i] = q_gather4(from + i * stride, 4 * stride);
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    _mm512_store_si512(to[0], _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(to[1], _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(to[2], _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(to[3], _mm512_unpackhi_epi64(b, d));
}

/* Step s of the panel from bytes b on of rows; `elems` of it are there. */
INLINE void pack_step(q_kind kind, panel *p, size_t s, const uint8_t *const *rows, size_t b,
                      size_t elems)
{
    _Alignas(64) uint8_t bytes[panel_rows][512];
    _Alignas(64) float d[panel_rows][q_groups], m[panel_rows][q_groups];
    rest part;
    memset(part.row, 0, sizeof part.row);
    for (size_t r = 0; r < panel_rows; r++) {
        __m512i w[8];
        __m512 vd, vm;
        const uint8_t *from = rows[r] + b;
        if (elems < q_step_elems(kind))
            from = rest_row(&part, from, part_bytes(kind, elems));
        kind.quants(from, w);
        kind.scales(from, &vd, &vm);
        store_in_order(kind.layout, w, bytes[r]);
        _mm512_store_ps(d[r], vd);
        _mm512_store_ps(m[r], vm);
    }
    const size_t words = q_group_elems(kind) / 4;
    for (size_t g = 0; g < q_groups; g++)
        for (size_t i = 0; i < words; i += 4)
            transpose_words(bytes[0] + (g * words + i) * 4, sizeof bytes[0],
                            p->w[s * q_groups + g] + i);
    for (size_t g = 0; g < q_groups; g += 4) {
        transpose_words((const uint8_t *)&d[0][g], sizeof d[0],
                        (uint8_t(*)[64])p->d[s * q_groups + g]);
        if (kind.min)
            transpose_words((const uint8_t *)&m[0][g], sizeof m[0],
                            (uint8_t(*)[64])p->m[s * q_groups + g]);
    }
}

/* [lane][token][row of two panels] */
typedef float token_lanes[q_groups][panel_tokens][pair_rows];

/* What panel_group has to know of where it is. */
typedef struct panel_place {
    const hs_tile *t;
    const panel *p;         /* two */
    const token_sums *sums; /* of this part of the columns */
    size_t token, n;        /* first token and how many */
    size_t first;           /* the panels' first element */
} panel_place;

/* acc += group g's products of 32 rows and n_tokens tokens from token k of the place on.  All the
 * chains of dependent products advance side by side, and a register of weights or activations
 * serves several: loads, not products, are what there are too few of. */
INLINE void panel_group(q_kind kind, size_t n_tokens, const panel_place *at, size_t g, size_t k,
                        float (*acc)[pair_rows])
{
    const size_t group = q_group_elems(kind), words = group / 4, ldq = at->t->ldq;
    const size_t elem = at->first + g * group, ldd = ldq / hs_block_elems;
    const int8_t *a = at->t->q.q + (at->token + k) * ldq + elem;
    const float *da = at->t->q.d + (at->token + k) * ldd + elem / hs_block_elems;
    __m512i sum[tokens_together][2];
#pragma GCC unroll 8
    for (size_t t = 0; t < n_tokens; t++)
        sum[t][0] = sum[t][1] =
            kind.bias ? _mm512_set1_epi32(at->sums->bias[k + t][g]) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t j = 0; j < words; j++) {
        const __m512i w0 = _mm512_load_si512(at->p[0].w[g][j]);
        const __m512i w1 = _mm512_load_si512(at->p[1].w[g][j]);
#pragma GCC unroll 8
        for (size_t t = 0; t < n_tokens; t++) {
            const __m512i four = _mm512_set1_epi32((int)hs_load_u32(a + t * ldq + 4 * j));
            sum[t][0] = _mm512_dpbusd_epi32(sum[t][0], w0, four);
            sum[t][1] = _mm512_dpbusd_epi32(sum[t][1], w1, four);
        }
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < n_tokens; t++) {
        const __m512 vda = _mm512_set1_ps(da[t * ldd]);
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            float *to = acc[k + t] + i * panel_rows;
            const __m512 d = _mm512_mul_ps(_mm512_load_ps(at->p[i].d[g]), vda);
            __m512 lane =
                _mm512_add_ps(_mm512_load_ps(to), _mm512_mul_ps(_mm512_cvtepi32_ps(sum[t][i]), d));
            if (kind.min)
                lane = _mm512_add_ps(
                    lane, _mm512_mul_ps(_mm512_set1_ps(at->sums->sum[k + t][g]),
                                        _mm512_mul_ps(_mm512_load_ps(at->p[i].m[g]), vda)));
            _mm512_store_ps(to, lane);
        }
    }
}

/* lane[j] += lane[j + h], rows side by side. */
INLINE void store_panel(const hs_tile *t, size_t r, size_t token, const token_lanes lane, size_t k,
                        size_t from)
{
    __m512 v[q_groups];
#pragma GCC unroll 16
    for (size_t i = 0; i < q_groups; i++)
        v[i] = _mm512_load_ps(lane[i][k] + from);
#pragma GCC unroll 4
    for (size_t h = 8; h > 0; h /= 2)
#pragma GCC unroll 8
        for (size_t i = 0; i < h; i++)
            v[i] = _mm512_add_ps(v[i], v[i + h]);
    _mm512_mask_storeu_ps(t->y + (token + k) * t->ldy + r + from, first_lanes(t->n_rows - r - from),
                          v[0]);
}

/* The sums of n tokens' activations in a panel's groups; elems: of those groups. */
INLINE void panel_sums(q_kind kind, token_sums *s, const hs_tile *t, size_t token, size_t n,
                       size_t first, size_t elems)
{
    for (size_t k = 0; k < n; k++) {
        int32_t sum[panel_steps * q_groups];
        activation_sums(kind.layout, t->q.q + (token + k) * t->ldq + first, elems, sum);
        for (size_t g = 0; g < elems / q_group_elems(kind); g++) {
            s->bias[k][g] = -kind.bias * sum[g];
            s->sum[k][g] = (float)sum[g];
        }
    }
}

/* All groups of two panels, for all tokens of the place. */
INLINE void panel_groups(q_kind kind, const panel_place *at, size_t n_groups, token_lanes lane)
{
    for (size_t l = 0; l < q_groups; l++)
        for (size_t g = l; g < n_groups; g += q_groups) {
            size_t k = 0;
            for (; k + tokens_together <= at->n; k += tokens_together)
                panel_group(kind, tokens_together, at, g, k, lane[l]);
            for (; k < at->n; k++)
                panel_group(kind, 1, at, g, k, lane[l]);
        }
}

/* Rows r … r + 31, or as many as there are, and at most panel_tokens tokens. */
INLINE void panel_tile(q_kind kind, const hs_tile *t, size_t r, size_t token, size_t n,
                       const token_sums *sums)
{
    _Alignas(64) token_lanes lane;
    panel p[2];
    const uint8_t *rows[pair_rows];
    for (size_t i = 0; i < pair_rows; i++)
        rows[i] = hs_tile_row(t, r + i < t->n_rows ? r + i : t->n_rows - 1);
    for (size_t l = 0; l < q_groups; l++)
        memset(lane[l], 0, n * sizeof lane[l][0]);
    const size_t elems = q_step_elems(kind), span = panel_steps * elems;
    for (size_t first = 0; first < t->cols; first += span, sums++) {
        const size_t here = t->cols - first < span ? t->cols - first : span;
        for (size_t s = 0; s * elems < here; s++)
            for (size_t i = 0; i < 2; i++)
                pack_step(kind, &p[i], s, rows + i * panel_rows, (first / elems + s) * kind.bytes,
                          here - s * elems);
        const panel_place at = {t, p, sums, token, n, first};
        panel_groups(kind, &at, here / q_group_elems(kind), lane);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < pair_rows && r + i < t->n_rows; i += panel_rows)
            store_panel(t, r, token, (const float(*)[panel_tokens][pair_rows])lane, k, i);
}

/* Sums of at most this many panels of columns are kept for all rows. */
enum { max_spans = 16 };

INLINE void panel_tokens_tile(q_kind kind, const hs_tile *t, size_t token, size_t n)
{
    token_sums sums[max_spans];
    const size_t span = panel_steps * q_step_elems(kind);
    for (size_t first = 0; first < t->cols; first += span)
        panel_sums(kind, &sums[first / span], t, token, n, first,
                   t->cols - first < span ? t->cols - first : span);
    for (size_t r = 0; r < t->n_rows; r += pair_rows)
        panel_tile(kind, t, r, token, n, sums);
}

static void longer_rows(hs_dtype type, const hs_tile *t)
{
    hs_kernels k;
    hs_kernels_init(&k, HS_CPU_AVX2);
    hs_kernel_tile(&k.type[type], t);
}

INLINE void quant_tile(q_kind kind, hs_dtype type, const hs_tile *t)
{
    if (t->cols / q_group_elems(kind) > max_groups) {
        longer_rows(type, t);
        return;
    }
    const bool panels = t->cols <= q_step_elems(kind) * panel_steps * max_spans;
    size_t k = 0;
    while (panels && t->n - k >= min_tokens) {
        const size_t n = t->n - k < panel_tokens ? t->n - k : panel_tokens;
        panel_tokens_tile(kind, t, k, n);
        k += n;
    }
    for (; k < t->n; k++)
        token_rows(kind, t, k);
}

/* blocks: of the type in a step */
#define ROWS(TYPE, type, layout, bias, min, blocks)                                           \
    static void tile_##type(const hs_tile *t)                                                 \
    {                                                                                         \
        const q_kind kind = {                                                                 \
            layout,          bias,           min, (size_t)(blocks)*hs_##type##_bytes,         \
            q_quants_##type, q_scales_##type};                                                \
        quant_tile(kind, TYPE, t);                                                            \
    }                                                                                         \
    static float dot_##type(const void *row, const float *x, hs_q8 q, size_t n)               \
    {                                                                                         \
        (void)x;                                                                              \
        float y;                                                                              \
        tile_##type(&(hs_tile){.row = row, .n_rows = 1, .q = q, .n = 1, .cols = n, .y = &y}); \
        return y;                                                                             \
    }

ROWS(HS_Q8_0, q8_0, Q_PAIRS, 128, 0, 16)
ROWS(HS_Q4_0, q4_0, Q_QUADS, 8, 0, 16)
ROWS(HS_Q5_0, q5_0, Q_QUADS, 16, 0, 16)
ROWS(HS_Q4_1, q4_1, Q_QUADS, 0, 1, 16)
ROWS(HS_Q5_1, q5_1, Q_QUADS, 0, 1, 16)
ROWS(HS_IQ4_NL, iq4_nl, Q_QUADS, 128, 0, 16)
ROWS(HS_Q6_K, q6_k, Q_FOURS, 32, 0, 1)
ROWS(HS_Q2_K, q2_k, Q_FOURS, 0, 1, 1)
ROWS(HS_Q3_K, q3_k, Q_FOURS, 4, 0, 1)
ROWS(HS_Q4_K, q4_k, Q_PAIRS, 0, 1, 2)
ROWS(HS_Q5_K, q5_k, Q_PAIRS, 0, 1, 2)
ROWS(HS_IQ4_XS, iq4_xs, Q_QUADS, 128, 0, 2)

#define SET(id, rows)                   \
    do {                                \
        k->type[id].act = HS_ACT_Q8;    \
        k->type[id].dot = dot_##rows;   \
        k->type[id].tile = tile_##rows; \
    } while (0)

void hs_kernels_q_avx512(hs_kernels *k)
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
