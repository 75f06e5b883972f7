/* Every kernel against an independent reading of runtime/kernels.h, bit for bit, on every level
 * this machine has.  All buffers end at an inaccessible page and rows start unaligned. */
#include "runtime/kernels.h"
#include "runtime/mathx.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* ---- the plain and the strange --------------------------------------------------------- */

static uint64_t seed = 1;

static uint32_t rnd(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static float from_bits(uint32_t u)
{
    const hs_f32_bits v = {.u = u};
    return v.f;
}

static uint32_t bits(float f)
{
    const hs_f32_bits v = {.f = f};
    return v.u;
}

static float plain_float(void) { return ((float)(rnd() >> 8) * 0x1p-24f - 0.5f) * 4; }

static float strange_float(void)
{
    static const uint32_t edges[] = {
        0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
        0x3f800000, 0xbf800000, 0x00400000, 0x20000000, 0x5f000000,
    };
    return rnd() % 4 ? from_bits(edges[rnd() % (sizeof edges / sizeof edges[0])])
                     : from_bits(rnd());
}

/* strange: one in `strange` is; 0: none. */
static float any_float(unsigned strange)
{
    return strange && rnd() % strange == 0 ? strange_float() : plain_float();
}

static uint16_t any_f16(unsigned strange)
{
    static const uint16_t edges[] = {0,      0x8000, 1,      0x8001, 0x03ff, 0x0400,
                                     0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01};
    if (strange && rnd() % strange == 0)
        return rnd() % 2 ? edges[rnd() % 12] : (uint16_t)rnd();
    return (uint16_t)((rnd() & 0x83ff) | (10 + rnd() % 6) << 10);
}

static bool same(float a, float b) { return bits(a) == bits(b) || (isnan(a) && isnan(b)); }

/* ---- buffers that end at a wall --------------------------------------------------------- */

enum { page = 4096, arena = 16 * page, n_walls = 5 };

static uint8_t *walls[n_walls];

static int make_walls(void **state)
{
    (void)state;
    for (int i = 0; i < n_walls; i++) {
        walls[i] =
            mmap(NULL, arena + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (walls[i] == MAP_FAILED || mprotect(walls[i] + arena, page, PROT_NONE))
            return -1;
    }
    return 0;
}

static void *at_wall(int i, size_t bytes)
{
    assert_true(bytes <= arena);
    return walls[i] + arena - bytes;
}

/* ---- the rules, written once more ------------------------------------------------------ */

typedef struct type_case {
    hs_dtype type;
    size_t block, bytes;
    bool quantized;
} type_case;

static const type_case types[] = {
    {HS_F32, 1, 4, false},     {HS_F16, 1, 2, false},     {HS_BF16, 1, 2, false},
    {HS_Q8_0, 32, 34, true},   {HS_Q4_0, 32, 18, true},   {HS_Q5_0, 32, 22, true},
    {HS_Q6_K, 256, 210, true}, {HS_Q4_1, 32, 20, true},   {HS_Q5_1, 32, 24, true},
    {HS_Q2_K, 256, 84, true},  {HS_Q3_K, 256, 110, true}, {HS_Q4_K, 256, 144, true},
    {HS_Q5_K, 256, 176, true}, {HS_IQ4_NL, 32, 18, true}, {HS_IQ4_XS, 256, 136, true},
};
enum { n_types = sizeof types / sizeof types[0] };

static float half_value(const uint8_t *p)
{
    const unsigned h = p[0] | (unsigned)p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    const float sign = h >> 15 ? -1.0f : 1.0f;
    if (e == 31)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexpf((float)(1024 + m), (int)e - 25) : ldexpf((float)m, -24));
}

static int q6_k_quant(const uint8_t *p, size_t e)
{
    const size_t half = e / 128, l = e % 32, quarter = e % 128 / 32;
    const unsigned low = p[64 * half + 32 * (quarter & 1) + l] >> (quarter >= 2 ? 4 : 0) & 15;
    const unsigned high = p[128 + 32 * half + l] >> 2 * quarter & 3;
    return (int)(low | high << 4) - 32;
}

/* Q4_K's and Q5_K's pair of six bits for sub-block s. */
static void six_bits(const uint8_t *p, size_t s, unsigned *scale, unsigned *min)
{
    *scale = s < 4 ? p[s] & 63u : (p[s + 4] & 15u) + (p[s - 4] / 64u) * 16;
    *min = s < 4 ? p[s + 4] & 63u : (p[s + 4] / 16u) + (p[s] / 64u) * 16;
}

static int iq4_value(unsigned q)
{
    static const int values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
    return values[q];
}

/* Of an element: value = scale * q + min. */
typedef struct element {
    float scale, min;
    int q;
} element;

static element k_element(const type_case *t, const uint8_t *p, size_t e)
{
    element r = {0, 0, 0};
    unsigned scale, min;
    if (t->type == HS_Q2_K) {
        r.q = p[16 + e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3;
        r.scale = half_value(p + 80) * (float)(p[e / 16] & 15);
        r.min = -(half_value(p + 82) * (float)(p[e / 16] >> 4));
    } else if (t->type == HS_Q3_K) {
        const size_t s = e / 16;
        const int low = p[96 + s % 8] >> (s < 8 ? 0 : 4) & 15;
        const int six = low + (p[104 + s % 4] >> 2 * (s / 4) & 3) * 16;
        r.q = (p[32 + e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3) -
              4 * !(p[e % 32] >> e / 32 & 1);
        r.scale = half_value(p + 108) * (float)(six - 32);
    } else if (t->type == HS_IQ4_XS) {
        const size_t s = e / 32;
        const unsigned high = p[2] | (unsigned)p[3] << 8;
        const int six = (int)((p[4 + s / 2] >> s % 2 * 4 & 15u) + (high >> 2 * s & 3) * 16);
        r.q = iq4_value(p[8 + 16 * s + e % 16] >> e % 32 / 16 * 4 & 15u);
        r.scale = half_value(p) * (float)(six - 32);
    } else {
        const bool five = t->type == HS_Q5_K;
        six_bits(p + 4, e / 32, &scale, &min);
        r.q = p[(five ? 48 : 16) + e / 64 * 32 + e % 32] >> e % 64 / 32 * 4 & 15;
        r.q += five ? (p[16 + e % 32] >> e / 32 & 1) * 16 : 0;
        r.scale = half_value(p) * (float)scale;
        r.min = -(half_value(p + 2) * (float)min);
    }
    return r;
}

static bool has_min(const type_case *t)
{
    return t->type == HS_Q4_1 || t->type == HS_Q5_1 || t->type == HS_Q2_K || t->type == HS_Q4_K ||
           t->type == HS_Q5_K;
}

/* Element i of a row; of float rows the integer is 1. */
static element weight(const type_case *t, const uint8_t *row, size_t i)
{
    const uint8_t *p = row + i / t->block * t->bytes;
    const size_t e = i % t->block;
    element r = {0, 0, 1};
    uint32_t u;
    const unsigned nibble =
        t->block == 32 ? p[t->bytes - 16 + e % 16] >> (e < 16 ? 0 : 4) & 15u : 0;
    switch (t->type) {
    case HS_F32: memcpy(&u, p, 4); return (element){from_bits(u), 0, 1};
    case HS_F16: return (element){half_value(p), 0, 1};
    case HS_BF16: return (element){from_bits((uint32_t)(p[0] | p[1] << 8) << 16), 0, 1};
    case HS_Q8_0: return (element){half_value(p), 0, (int8_t)p[2 + e]};
    case HS_Q4_0: return (element){half_value(p), 0, (int)nibble - 8};
    case HS_Q4_1: return (element){half_value(p), half_value(p + 2), (int)nibble};
    case HS_IQ4_NL: return (element){half_value(p), 0, iq4_value(nibble)};
    case HS_Q5_0:
        memcpy(&u, p + 2, 4);
        return (element){half_value(p), 0, (int)nibble + (int)(u >> e & 1) * 16 - 16};
    case HS_Q5_1:
        memcpy(&u, p + 4, 4);
        return (element){half_value(p), half_value(p + 2), (int)nibble + (int)(u >> e & 1) * 16};
    case HS_Q6_K:
        r.q = q6_k_quant(p, e);
        r.scale = half_value(p + 208) * (float)(int8_t)p[192 + e / 16];
        return r;
    default: return k_element(t, p, e);
    }
}

static float halved(float *lane, int n)
{
    for (n /= 2; n; n /= 2)
        for (int j = 0; j < n; j++)
            lane[j] += lane[j + n];
    return lane[0];
}

static float want_dot(const type_case *t, const uint8_t *row, const float *x, hs_q8 a, size_t n)
{
    float lane[32] = {0};
    if (!t->quantized) {
        for (size_t i = 0; i < n; i++) {
            const float product = weight(t, row, i).scale * x[i];
            lane[i % 32] += product;
        }
        return halved(lane, 32);
    }
    const bool halves = t->type == HS_Q6_K || t->type == HS_Q3_K || t->type == HS_Q2_K;
    const size_t group = halves ? 16 : 32;
    for (size_t i = 0; i < n; i += group) {
        int64_t sum = 0, asum = 0;
        element w = {0, 0, 0};
        for (size_t e = i; e < i + group; e++) {
            w = weight(t, row, e);
            sum += (int64_t)w.q * a.q[e];
            asum += a.q[e];
        }
        float *to = &lane[i / group % 16];
        const float scale = w.scale * a.d[i / 32], min = w.min * a.d[i / 32];
        const float term = (float)sum * scale, min_term = (float)asum * min;
        *to += term;
        if (has_min(t))
            *to += min_term;
    }
    return halved(lane, 16);
}

/* ---- inputs ----------------------------------------------------------------------------- */

static void fill_row(const type_case *t, uint8_t *row, size_t n, unsigned strange)
{
    for (size_t b = 0; b < n / t->block; b++, row += t->bytes) {
        for (size_t i = 0; i < t->bytes; i++)
            row[i] = (uint8_t)rnd();
        const uint16_t h = any_f16(strange);
        const float f = any_float(strange);
        if (t->type == HS_F32)
            memcpy(row, &f, 4);
        else if (t->type == HS_BF16)
            memcpy(row, (const uint8_t *)&f + 2, 2);
        else
            memcpy(row + (t->type == HS_Q6_K   ? 208
                          : t->type == HS_Q2_K ? 80
                          : t->type == HS_Q3_K ? 108
                                               : 0),
                   &h, 2);
        const uint16_t m = any_f16(strange);
        if (has_min(t))
            memcpy(row + (t->type == HS_Q2_K ? 82 : 2), &m, 2);
        if (t->type == HS_Q8_0 && rnd() % 4 == 0) /* the extremes of every product */
            memset(row + 2, rnd() % 2 ? -128 : 127, 32);
    }
}

static hs_q8 fill_q8(size_t n, unsigned strange)
{
    const hs_q8 a = {at_wall(1, n), at_wall(2, n / 32 * sizeof(float))};
    for (size_t b = 0; b < n / 32; b++) {
        const int8_t all = rnd() % 2 ? -127 : 127;
        const bool extreme = rnd() % 4 == 0;
        for (size_t i = 0; i < 32; i++)
            a.q[32 * b + i] = extreme ? all : (int8_t)((int)(rnd() % 255) - 127);
        a.d[b] = any_float(strange);
    }
    return a;
}

typedef void level_fn(const hs_kernels *k);

/* On every level this machine runs. */
static void each_level(level_fn *fn)
{
    const hs_cpu_level best = hs_cpu_detect();
    for (int level = HS_CPU_SCALAR; level <= (int)best; level++) {
        hs_kernels k;
        hs_kernels_init(&k, (hs_cpu_level)level);
        fn(&k);
    }
}

/* Row lengths in blocks. */
static size_t max_blocks(const type_case *t)
{
    return t->block == 1 ? 131 : t->block == 32 ? 37 : 4;
}

/* ---- dot --------------------------------------------------------------------------------- */

static void check_dot(const hs_kernels *k, const type_case *t, size_t n, unsigned strange)
{
    const size_t bytes = n / t->block * t->bytes;
    uint8_t *row = at_wall(0, bytes);
    float *x = t->quantized ? NULL : at_wall(1, n * sizeof *x);
    hs_q8 a = {0};
    fill_row(t, row, n, strange);
    if (t->quantized)
        a = fill_q8(n, strange);
    for (size_t i = 0; x && i < n; i++)
        x[i] = any_float(strange);
    const float want = want_dot(t, row, x, a, n);
    const float got = k->type[t->type].dot(row, x, a, n);
    if (!same(want, got))
        fail_msg("%s %s n=%zu: %a, got %a", hs_cpu_name(k->level), hs_dtype_name(t->type), n,
                 (double)want, (double)got);
}

static void dot_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        for (size_t blocks = 0; blocks <= max_blocks(&types[t]); blocks++)
            for (unsigned strange = 0; strange <= 60; strange += 6)
                for (int rep = 0; rep < (types[t].quantized ? 20 : 2); rep++)
                    check_dot(k, &types[t], blocks * types[t].block, strange);
}

static void dot_is_canonical(void **state)
{
    (void)state;
    each_level(dot_level);
}

/* The row's address does not matter: every offset of an element. */
static void unaligned_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++) {
        const type_case *c = &types[t];
        const size_t n = c->block == 256 ? 512 : 96, bytes = n / c->block * c->bytes;
        const size_t step = c->quantized ? 1 : c->bytes;
        uint8_t *base = at_wall(0, bytes + 64);
        float *x = at_wall(3, n * sizeof *x);
        const hs_q8 a = fill_q8(n, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = plain_float();
        for (size_t offset = 0; offset <= 64; offset += step) {
            fill_row(c, base + offset, n, 0);
            const float want = want_dot(c, base + offset, x, a, n);
            assert_true(same(want, k->type[c->type].dot(base + offset, x, a, n)));
        }
    }
}

static void dot_of_unaligned_rows(void **state)
{
    (void)state;
    each_level(unaligned_level);
}

/* Several rows and tokens: the bits of dot, with the rows and the activations at a wall, and
 * nothing written beside them. */
static void check_tile(const hs_kernels *k, const type_case *c, size_t n, unsigned strange)
{
    const bool many = rnd() % 4 == 0; /* more than one panel of kernels_q_avx512.c */
    const size_t tokens = rnd() % (many ? 20 : 6), rows = rnd() % (many ? 20 : 6);
    const size_t bytes = n / c->block * c->bytes;
    const size_t ldx = n + (c->quantized ? 32 : 1) * (rnd() % 2), ldy = rows + rnd() % 3;
    uint8_t *row = at_wall(0, rows * bytes);
    const size_t span = tokens ? (tokens - 1) * ldx + n : 0;
    float *x = c->quantized ? NULL : at_wall(1, span * sizeof *x);
    const hs_q8 a = c->quantized ? fill_q8(span, strange) : (hs_q8){0};
    float *y = at_wall(3, tokens * ldy * sizeof *y);
    for (size_t r = 0; r < rows; r++)
        fill_row(c, row + r * bytes, n, strange);
    for (size_t i = 0; x && i < span; i++)
        x[i] = any_float(strange);
    for (size_t i = 0; i < tokens * ldy; i++)
        y[i] = 12345;
    int32_t *id = rnd() % 2 ? at_wall(4, rows * sizeof *id) : NULL;
    for (size_t r = 0; id && r < rows; r++)
        id[r] = (int32_t)(rnd() % rows);
    hs_kernel_tile(&k->type[c->type],
                   &(hs_tile){row, bytes, rows, id, x, a, ldx, ldx, tokens, n, y, ldy});
    for (size_t t = 0; t < tokens; t++)
        for (size_t r = 0; r < ldy; r++) {
            const hs_q8 q = {a.q + t * ldx, a.d + t * (ldx / 32)};
            const float want = r < rows
                                   ? k->type[c->type].dot(row + (id ? (size_t)id[r] : r) * bytes,
                                                          x ? x + t * ldx : NULL, q, n)
                                   : 12345;
            if (!same(want, y[t * ldy + r]))
                fail_msg("%s %s n=%zu row %zu token %zu: %a, got %a", hs_cpu_name(k->level),
                         hs_dtype_name(c->type), n, r, t, (double)want, (double)y[t * ldy + r]);
        }
}

static void tile_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        for (size_t blocks = 0; blocks <= max_blocks(&types[t]); blocks++)
            for (unsigned strange = 0; strange <= 60; strange += 12)
                for (int rep = 0; rep < (types[t].quantized ? 8 : 2); rep++)
                    check_tile(k, &types[t], blocks * types[t].block, strange);
}

/* More tokens, rows and columns than any kernel does in one go. */
static void big_tile(const hs_kernels *k, const type_case *c, size_t n, size_t tokens, size_t rows)
{
    const size_t bytes = n / c->block * c->bytes;
    uint8_t *row = malloc(rows * bytes);
    const hs_q8 a = {malloc(tokens * n), malloc(tokens * n / 32 * sizeof(float))};
    float *y = calloc(tokens * rows, sizeof *y);
    assert_true(row && a.q && a.d && y);
    fill_row(c, row, rows * n, 0);
    for (size_t i = 0; i < tokens * n; i++)
        a.q[i] = (int8_t)((int)(rnd() % 255) - 127);
    for (size_t i = 0; i < tokens * n / 32; i++)
        a.d[i] = plain_float();
    hs_kernel_tile(&k->type[c->type], &(hs_tile){.row = row,
                                                 .row_bytes = bytes,
                                                 .n_rows = rows,
                                                 .q = a,
                                                 .ldq = n,
                                                 .n = tokens,
                                                 .cols = n,
                                                 .y = y,
                                                 .ldy = rows});
    for (size_t t = 0; t < tokens; t += t + 7 < tokens ? 7 : 1)
        for (size_t r = 0; r < rows; r++) {
            const hs_q8 q = {a.q + t * n, a.d + t * n / 32};
            assert_true(same(want_dot(c, row + r * bytes, NULL, q, n), y[t * rows + r]));
        }
    free(row);
    free(a.q);
    free(a.d);
    free(y);
}

static void big_tiles_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        if (types[t].quantized && k->level != HS_CPU_SCALAR) {
            big_tile(k, &types[t], 4096 + 256, 70, 18);
            big_tile(k, &types[t], (size_t)131072 + 256, 5, 2);
        }
}

static void big_tiles_are_dots(void **state)
{
    (void)state;
    each_level(big_tiles_level);
}

static void tile_is_dot(void **state)
{
    (void)state;
    each_level(tile_level);
}

/* Against the sum in double: the bound of design.md section 6. */
static void accuracy_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++) {
        const type_case *c = &types[t];
        for (size_t n = 256; n <= 1024; n += 256) {
            uint8_t *row = at_wall(0, n / c->block * c->bytes);
            float *x = at_wall(3, n * sizeof *x);
            const hs_q8 a = fill_q8(n, 0);
            fill_row(c, row, n, 0);
            double sum = 0, magnitude = 0;
            for (size_t i = 0; i < n; i++) {
                x[i] = plain_float();
                const element w = weight(c, row, i);
                const double v = c->quantized ? (double)a.d[i / 32] * a.q[i] : (double)x[i];
                sum += ((double)w.scale * w.q + (double)w.min) * v;
                magnitude += fabs((double)w.scale * w.q * v) + fabs((double)w.min * v);
            }
            const double got = (double)k->type[c->type].dot(row, x, a, n);
            assert_true(fabs(got - sum) <= 2 * (double)n * 0x1p-24 * magnitude);
        }
    }
}

static void dot_is_accurate(void **state)
{
    (void)state;
    each_level(accuracy_level);
}

/* ---- axpy -------------------------------------------------------------------------------- */

static void check_axpy(const hs_kernels *k, const type_case *t, size_t n, size_t begin, size_t end,
                       unsigned strange)
{
    uint8_t *row = at_wall(0, n / t->block * t->bytes);
    float *y = at_wall(1, n * sizeof *y), *want = at_wall(2, n * sizeof *y);
    const float a = any_float(strange);
    fill_row(t, row, n, strange);
    for (size_t i = 0; i < n; i++) {
        y[i] = any_float(strange);
        const element e = weight(t, row, i);
        const float scaled = t->quantized ? e.scale * (float)e.q : e.scale;
        const float w = has_min(t) ? scaled + e.min : scaled;
        const float product = a * w;
        want[i] = i >= begin && i < end ? y[i] + product : y[i];
    }
    k->type[t->type].axpy(y, a, row, begin, end);
    for (size_t i = 0; i < n; i++)
        if (!same(want[i], y[i]))
            fail_msg("%s %s n=%zu [%zu, %zu) at %zu: %a, got %a", hs_cpu_name(k->level),
                     hs_dtype_name(t->type), n, begin, end, i, (double)want[i], (double)y[i]);
}

static void axpy_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        for (size_t blocks = 0; blocks <= max_blocks(&types[t]); blocks++)
            for (unsigned strange = 0; strange <= 30; strange += 6)
                for (int rep = 0; rep < 4; rep++) {
                    const size_t n = blocks * types[t].block;
                    const size_t b = rnd() % (blocks + 1), e = b + rnd() % (blocks - b + 1);
                    check_axpy(k, &types[t], n, 0, n, strange);
                    check_axpy(k, &types[t], n, b * types[t].block, e * types[t].block, strange);
                }
}

static void axpy_is_canonical(void **state)
{
    (void)state;
    each_level(axpy_level);
}

/* Rows at once are rows in turn. */
static void check_axpy_rows(const hs_kernels *k, const type_case *c, size_t n, size_t begin,
                            size_t end, unsigned strange)
{
    const size_t rows = rnd() % 7, bytes = n / c->block * c->bytes;
    uint8_t *row = at_wall(0, rows * bytes);
    float *y = at_wall(1, n * sizeof *y), *want = at_wall(2, n * sizeof *y);
    float *a = at_wall(3, rows * sizeof *a);
    int32_t *id = rnd() % 2 ? at_wall(4, rows * sizeof *id) : NULL;
    for (size_t r = 0; r < rows; r++) {
        if (id)
            id[r] = (int32_t)(rnd() % rows);
        fill_row(c, row + r * bytes, n, strange);
        a[r] = any_float(strange);
    }
    for (size_t i = 0; i < n; i++)
        want[i] = y[i] = any_float(strange);
    for (size_t r = 0; r < rows; r++)
        k->type[c->type].axpy(want, a[r], row + (id ? (size_t)id[r] : r) * bytes, begin, end);
    hs_kernel_axpy_rows(&k->type[c->type], &(hs_axpy_rows){y, a, row, bytes, id, rows, begin, end});
    for (size_t i = 0; i < n; i++)
        assert_true(same(want[i], y[i]));
}

static void axpy_rows_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        for (size_t blocks = 0; blocks <= max_blocks(&types[t]); blocks++)
            for (unsigned strange = 0; strange <= 12; strange += 6) {
                const size_t n = blocks * types[t].block;
                const size_t b = rnd() % (blocks + 1), e = b + rnd() % (blocks - b + 1);
                check_axpy_rows(k, &types[t], n, 0, n, strange);
                check_axpy_rows(k, &types[t], n, b * types[t].block, e * types[t].block, strange);
            }
}

static void axpy_rows_are_axpys(void **state)
{
    (void)state;
    each_level(axpy_rows_level);
}

/* And what axpy adds is what the type table says a row holds. */
static void decode_level(const hs_kernels *k)
{
    for (size_t t = 0; t < n_types; t++)
        for (unsigned strange = 0; strange <= 12; strange += 6) {
            const type_case *c = &types[t];
            const size_t n = max_blocks(c) * c->block;
            uint8_t *row = at_wall(0, n / c->block * c->bytes);
            float *y = at_wall(1, n * sizeof *y), *want = at_wall(2, n * sizeof *y);
            fill_row(c, row, n, strange);
            for (size_t i = 0; i < n; i++)
                y[i] = -0.0f;
            hs_dtype_get(c->type)->decode(want, row, n);
            k->type[c->type].axpy(y, 1, row, 0, n);
            for (size_t i = 0; i < n; i++)
                assert_true(same(y[i], want[i]));
        }
}

static void axpy_decodes_as_the_table(void **state)
{
    (void)state;
    each_level(decode_level);
}

/* Every f16 there is, through the kernels' own conversion. */
static void f16_level(const hs_kernels *k)
{
    enum { n = 2048 };
    uint8_t *row = at_wall(0, 2 * n);
    float *y = at_wall(1, n * sizeof *y);
    for (uint32_t h = 0; h < 65536; h += n) {
        for (uint32_t i = 0; i < n; i++) {
            row[2 * i] = (uint8_t)(h + i);
            row[2 * i + 1] = (uint8_t)((h + i) >> 8);
            y[i] = -0.0f; /* the only addend that changes nothing */
        }
        k->type[HS_F16].axpy(y, 1, row, 0, n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(same(y[i], half_value(row + 2 * i)));
    }
}

static void f16_decodes(void **state)
{
    (void)state;
    each_level(f16_level);
}

/* ---- activations to q8 -------------------------------------------------------------------- */

static void check_quantize(const hs_kernels *k, size_t n, const float *values)
{
    float *x = at_wall(0, n * sizeof *x);
    const hs_q8 out = {at_wall(1, n), at_wall(2, n / 32 * sizeof(float))};
    memcpy(x, values, n * sizeof *x);
    if (n) {
        memset(out.q, 55, n);
        memset(out.d, 55, n / 32 * sizeof(float));
    }
    k->quantize_q8(out, x, n);
    for (size_t b = 0; b < n / 32; b++) {
        float amax = 0;
        bool finite = true;
        for (size_t i = 32 * b; i < 32 * b + 32; i++) {
            finite = finite && isfinite(x[i]);
            amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
        }
        const float d = amax / 127.0f, inverse = 1.0f / d;
        if (!finite)
            assert_false(isfinite(out.d[b]));
        else
            assert_true(same(out.d[b], isinf(inverse) ? 0 : d));
        for (size_t i = 32 * b; i < 32 * b + 32; i++) {
            const long want = !finite || isinf(inverse) ? 0 : lrintf(x[i] * inverse);
            assert_in_range(want + 127, 0, 254);
            assert_int_equal(out.q[i], want);
        }
    }
}

static void quantize_level(const hs_kernels *k)
{
    float x[320];
    for (size_t n = 0; n <= 320; n += 32)
        for (unsigned strange = 0; strange < 200; strange++) {
            for (size_t i = 0; i < n; i++)
                x[i] = any_float(strange * 2);
            check_quantize(k, n, x);
        }
    for (int e = -149; e < 128; e++) /* every size of number, denormals too */
        for (int rep = 0; rep < 4; rep++) {
            for (size_t i = 0; i < 32; i++)
                x[i] = ldexpf(plain_float() / 2, e);
            check_quantize(k, 32, x);
        }
    for (size_t i = 0; i < 32; i++) /* ties: scale 1 */
        x[i] = i ? (float)i - 16.5f : 127;
    check_quantize(k, 32, x);
    /* Both sides of the smallest usable scale. */
    for (uint32_t u = 0; u < 0x01000000; u += 0x3333) {
        for (size_t i = 0; i < 32; i++)
            x[i] = from_bits(u / (uint32_t)(i + 1) | (uint32_t)(i & 1) << 31);
        check_quantize(k, 32, x);
    }
}

static void quantize_is_exact(void **state)
{
    (void)state;
    each_level(quantize_level);
}

static void non_finite_level(const hs_kernels *k)
{
    float *x = at_wall(0, 32 * sizeof *x);
    const hs_q8 out = {at_wall(1, 32), at_wall(2, sizeof(float))};
    uint8_t *row = at_wall(3, 34);
    static const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    fill_row(&types[3], row, 32, 0);
    for (size_t v = 0; v < 4; v++)
        for (size_t at = 0; at < 32; at++) {
            for (size_t i = 0; i < 32; i++)
                x[i] = i == at ? values[v] : FLT_MAX;
            k->quantize_q8(out, x, 32);
            assert_false(isfinite(out.d[0]));
            assert_false(isfinite(k->type[HS_Q8_0].dot(row, NULL, out, 32)));
        }
}

/* What the caller's finiteness check relies on. */
static void non_finite_stays(void **state)
{
    (void)state;
    each_level(non_finite_level);
}

/* ---- vectors ------------------------------------------------------------------------------ */

static void scale_mul_level(const hs_kernels *k)
{
    for (size_t n = 0; n <= 70; n++)
        for (unsigned strange = 0; strange <= 20; strange += 5) {
            float *x = at_wall(0, n * sizeof *x), *w = at_wall(1, n * sizeof *x);
            float *y = at_wall(2, n * sizeof *x), want[70];
            const float scale = any_float(strange);
            for (size_t i = 0; i < n; i++) {
                x[i] = any_float(strange);
                w[i] = any_float(strange);
                const float first = x[i] * scale;
                want[i] = first * w[i];
            }
            k->scale_mul(y, x, scale, w, n);
            for (size_t i = 0; i < n; i++)
                assert_true(same(y[i], want[i]));
            k->scale_mul(x, x, scale, w, n);
            for (size_t i = 0; i < n; i++)
                assert_true(same(x[i], want[i]));
        }
}

static void scale_mul_is_exact(void **state)
{
    (void)state;
    each_level(scale_mul_level);
}

static void check_exp_sum(const hs_kernels *k, size_t n, unsigned strange, float spread)
{
    float *x = at_wall(0, n * sizeof *x), *e = at_wall(1, n * sizeof *x);
    float lane[32] = {0}, want[160];
    const float max = any_float(strange) * 2;
    for (size_t i = 0; i < n; i++) {
        x[i] = any_float(strange) * spread;
        want[i] = hs_expf(x[i] - max);
        lane[i % 32] += want[i];
    }
    const float sum = halved(lane, 32);
    assert_true(same(k->exp_sum(e, x, max, n), sum));
    for (size_t i = 0; i < n; i++)
        assert_true(same(e[i], want[i]));
    assert_true(same(k->exp_sum(x, x, max, n), sum));
    if (n)
        assert_memory_equal(x, e, n * sizeof *x);
}

static void exp_sum_level(const hs_kernels *k)
{
    for (size_t n = 0; n <= 131; n++)
        for (unsigned strange = 0; strange <= 60; strange += 12)
            for (int spread = 1; spread < 100; spread *= 4)
                check_exp_sum(k, n, strange, (float)spread);
}

static void exp_sum_is_canonical(void **state)
{
    (void)state;
    each_level(exp_sum_level);
}

static void max_level(const hs_kernels *k)
{
    for (size_t n = 1; n <= 131; n++) {
        float *x = at_wall(0, n * sizeof *x);
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < n; i++)
                x[i] = i == at ? 7 : plain_float();
            assert_true(k->max(x, n) == 7);
        }
        for (size_t i = 0; i < n; i++)
            x[i] = rnd() % 2 ? -0.0f : -1;
        x[rnd() % n] = -0.0f;
        assert_int_equal(bits(k->max(x, n)), 0);
        for (size_t i = 0; i < n; i++)
            x[i] = -INFINITY;
        assert_true(k->max(x, n) == -INFINITY);
        x[n - 1] = INFINITY;
        assert_true(k->max(x, n) == INFINITY);
    }
}

static void max_is_found(void **state)
{
    (void)state;
    each_level(max_level);
}

/* ---- the table ----------------------------------------------------------------------------- */

static void levels(void **state)
{
    (void)state;
    const hs_cpu_level best = hs_cpu_detect();
    const bool avx2 = best == HS_CPU_AVX2 || best == HS_CPU_AVX512;
    hs_kernels k;
    hs_kernels_init(&k, HS_CPU_SCALAR);
    assert_int_equal(k.level, HS_CPU_SCALAR);
    hs_kernels_init(&k, HS_CPU_NEON);
    assert_int_equal(k.level, HS_CPU_SCALAR);
    hs_kernels_init(&k, HS_CPU_AVX2);
    assert_int_equal(k.level, avx2 ? HS_CPU_AVX2 : HS_CPU_SCALAR);
    hs_kernels_init(&k, HS_CPU_AVX512);
    assert_int_equal(k.level, avx2 ? best : HS_CPU_SCALAR);
}

static void table_level(const hs_kernels *k)
{
    bool listed[HS_DTYPE_LIMIT] = {false};
    for (size_t t = 0; t < n_types; t++) {
        listed[types[t].type] = true;
        assert_int_equal(k->type[types[t].type].act, types[t].quantized ? HS_ACT_Q8 : HS_ACT_F32);
    }
    for (int type = 0; type < HS_DTYPE_LIMIT; type++) {
        assert_int_equal(k->type[type].act != HS_ACT_NONE, listed[type]);
        assert_int_equal(k->type[type].dot != NULL, listed[type]);
        assert_int_equal(k->type[type].axpy != NULL, listed[type]);
    }
}

static void table_is_complete(void **state)
{
    (void)state;
    each_level(table_level);
}

static void cpu_names(void **state)
{
    (void)state;
    for (int level = HS_CPU_SCALAR; level <= HS_CPU_NEON; level++) {
        hs_cpu_level got;
        assert_true(hs_cpu_from_name(hs_cpu_name((hs_cpu_level)level), &got));
        assert_int_equal(got, level);
    }
    hs_cpu_level got;
    assert_false(hs_cpu_from_name("", &got));
    assert_false(hs_cpu_from_name("avx", &got));
    assert_false(hs_cpu_from_name("AVX2", &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dot_is_canonical),
        cmocka_unit_test(dot_of_unaligned_rows),
        cmocka_unit_test(dot_is_accurate),
        cmocka_unit_test(tile_is_dot),
        cmocka_unit_test(big_tiles_are_dots),
        cmocka_unit_test(axpy_is_canonical),
        cmocka_unit_test(axpy_rows_are_axpys),
        cmocka_unit_test(axpy_decodes_as_the_table),
        cmocka_unit_test(f16_decodes),
        cmocka_unit_test(quantize_is_exact),
        cmocka_unit_test(non_finite_stays),
        cmocka_unit_test(scale_mul_is_exact),
        cmocka_unit_test(exp_sum_is_canonical),
        cmocka_unit_test(max_is_found),
        cmocka_unit_test(levels),
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(cpu_names),
    };
    return cmocka_run_group_tests_name("kernels", tests, make_walls, NULL);
}
