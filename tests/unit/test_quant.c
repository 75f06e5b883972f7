#include "formats/dtype.h"
#include "formats/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static hs_gguf *open_file(const char *path)
{
    hs_gguf *g;
    hs_err err;
    if (hs_gguf_open(&g, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return g;
}

static const hs_gguf_tensor *part(const hs_gguf *g, const char *what, const char *type,
                                  const char *end)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "%s.%s%s", what, type, end);
    const hs_gguf_tensor *t = hs_gguf_tensor_find(g, name);
    if (!t)
        fail_msg("no %s", name);
    return t;
}

/* The table of an independent implementation: tests/gen/quant_oracle.py. */
static void decodes_like_the_oracle(void **state)
{
    (void)state;
    static const char *const names[] = {"Q4_0", "Q5_0", "Q8_0", "Q6_K", "Q4_1",   "Q5_1",
                                        "Q2_K", "Q3_K", "Q4_K", "Q5_K", "IQ4_NL", "IQ4_XS"};
    hs_gguf *g = open_file("tests/golden/quant/oracle.gguf");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const hs_dtype_info *t = hs_dtype_by_name(names[i]);
        const hs_gguf_tensor *in = part(g, "decode", names[i], ".in");
        const hs_gguf_tensor *out = part(g, "decode", names[i], ".out");
        const size_t n = (size_t)out->ne[0];
        assert_int_equal(in->bytes, n / t->block_elems * t->block_bytes);
        float *got = malloc(n * sizeof *got);
        assert_non_null(got);
        t->decode(got, in->data, n);
        for (size_t k = 0; k < n; k++) {
            float want;
            memcpy(&want, out->data + 4 * k, 4);
            if (memcmp(&got[k], &want, 4) != 0 && !(isnan(got[k]) && isnan(want)))
                fail_msg("%s: element %zu is %a, expected %a", names[i], k, (double)got[k],
                         (double)want);
        }
        free(got);
    }
    hs_gguf_free(g);
}

static void encodes_like_the_oracle(void **state)
{
    (void)state;
    static const char *const names[] = {"F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q4_1", "Q5_1"};
    hs_gguf *g = open_file("tests/golden/quant/oracle.gguf");
    const hs_gguf_tensor *in = hs_gguf_tensor_find(g, "encode.in");
    assert_non_null(in);
    const size_t n = (size_t)in->ne[0];
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    hs_dtype_get(HS_F32)->decode(x, in->data, n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const hs_dtype_info *t = hs_dtype_by_name(names[i]);
        const hs_gguf_tensor *out = part(g, "encode", names[i], ".out");
        uint8_t *got = malloc((size_t)out->bytes);
        assert_non_null(got);
        t->encode(got, x, n);
        for (size_t k = 0; k < out->bytes; k++)
            if (got[k] != out->data[k])
                fail_msg("%s: byte %zu is %u, expected %u", names[i], k, got[k], out->data[k]);
        free(got);
    }
    free(x);
    hs_gguf_free(g);
}

/* The original's quantizer turned m256 into m256.q4_0: Q4_0, and Q6_K for the head. */
static void encodes_like_the_original(void **state)
{
    (void)state;
    hs_gguf *from = open_file("tests/golden/m256.gguf");
    hs_gguf *to = open_file("tests/golden/m256.q4_0.gguf");
    size_t q4 = 0, q6 = 0;
    for (size_t i = 0; i < to->n_tensors; i++) {
        const hs_gguf_tensor *b = &to->tensors[i], *a = hs_gguf_tensor_find(from, b->name);
        assert_non_null(a);
        q4 += b->dtype == HS_Q4_0;
        q6 += b->dtype == HS_Q6_K;
        const size_t n = (size_t)(b->ne[0] * b->ne[1]);
        float *x = malloc(n * sizeof *x);
        uint8_t *got = malloc((size_t)b->bytes);
        assert_true(x && got);
        hs_dtype_get(a->dtype)->decode(x, a->data, n);
        hs_dtype_get(b->dtype)->encode_powerinfer(got, x, n);
        if (memcmp(got, b->data, (size_t)b->bytes) != 0)
            fail_msg("%s differs", b->name);
        free(got);
        free(x);
    }
    assert_int_equal(q4, 19);
    assert_int_equal(q6, 1);
    hs_gguf_free(from);
    hs_gguf_free(to);
}

/* --- properties --------------------------------------------------------- */

static uint32_t next_random(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    return *s ^= *s << 5;
}

/* The largest error a block may have, as a share of its largest magnitude: half a level, one
 * whole level at the end that the scale does not reach, and the rounding of the f16 scale. */
static double worst_share(hs_dtype type)
{
    const double f16 = 0x1p-11;
    switch (type) {
    case HS_F16: return f16;
    case HS_BF16: return 0x1p-8;
    case HS_Q8_0: return 0.5 / 127 + f16 * 1.01;
    case HS_Q5_0: return 1.0 / 16 + f16;
    case HS_Q4_0: return 1.0 / 8 + f16;
    case HS_Q6_K: return 1.0 / 32 + 1.0 / 128 + f16; /* also the 8-bit scale of a sub-block */
    case HS_Q4_1: return 1.0 / 15 + 2 * f16; /* of both signs: twice the magnitude, half a level */
    case HS_Q5_1: return 1.0 / 31 + 2 * f16;
    /* The search may leave an element to gain on others, and small scales are coarse. */
    case HS_Q2_K: return 0.7;
    case HS_Q3_K: return 0.4;
    case HS_IQ4_NL:
    case HS_IQ4_XS: return 0.25;
    case HS_Q4_K: return 0.2;
    case HS_Q5_K: return 0.1;
    default: return 0;
    }
}

static const hs_dtype types[] = {HS_F32,  HS_F16,  HS_BF16, HS_Q8_0,   HS_Q5_0,
                                 HS_Q4_0, HS_Q6_K, HS_Q4_1, HS_Q5_1,   HS_Q2_K,
                                 HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_IQ4_NL, HS_IQ4_XS};

static void error_is_bounded(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        for (int round = 0; round < 200; round++) {
            float x[256], y[256];
            uint8_t raw[1024];
            double amax = 0;
            for (size_t i = 0; i < 256; i++) {
                x[i] = ((float)next_random(&seed) / 0x1p32f - 0.5f) * (float)(1 << round % 12);
                amax = fmax(amax, fabs((double)x[i]));
            }
            t->encode(raw, x, 256);
            t->decode(y, raw, 256);
            for (size_t i = 0; i < 256; i++)
                if (!(fabs((double)x[i] - (double)y[i]) <= worst_share(types[k]) * amax))
                    fail_msg("%s: %g became %g in a block up to %g", t->name, (double)x[i],
                             (double)y[i], amax);
        }
    }
}

static void odd_blocks_are_defined(void **state)
{
    (void)state;
    static const float odd[] = {0,        -0.0f,    1e-45f,    -1e-40f, 1e-30f,    3e38f,
                                -3.4e38f, INFINITY, -INFINITY, NAN,     65504,     -65520,
                                1e-8f,    1,        5e-39f,    -6e-8f,  1.17e-38f, 2e-19f};
    enum { N = sizeof odd / sizeof *odd };
    uint32_t seed = 2;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        float x[256], y[256], w[256];
        uint8_t raw[1024], again[1024];
        for (int round = 0; round < 500; round++) {
            for (size_t i = 0; i < 256; i++)
                x[i] = round < N ? odd[round] : odd[next_random(&seed) % N];
            t->encode(raw, x, 256);
            t->encode(again, x, 256);
            assert_memory_equal(raw, again, 256 / t->block_elems * t->block_bytes);
            t->decode(y, raw, 256);
            if (t->encode_weighted) {
                for (size_t i = 0; i < 256; i++)
                    w[i] = fabsf(odd[next_random(&seed) % N]);
                t->encode_weighted(raw, x, w, 256);
            }
        }
        memset(x, 0, sizeof x);
        t->encode(raw, x, 256);
        t->decode(y, raw, 256);
        for (size_t i = 0; i < 256; i++)
            assert_true(y[i] == 0);
        t->encode(raw, x, 0); /* nothing is touched */
        t->decode(y, raw, 0);
    }
}

/* Weighted squared error of 256 elements after one of the two encoders. */
static double loss(const hs_dtype_info *t, const float *x, const float *w, bool weighted)
{
    uint8_t raw[1024];
    float y[256];
    double sum = 0;
    if (weighted)
        t->encode_weighted(raw, x, w, 256);
    else
        t->encode(raw, x, 256);
    t->decode(y, raw, 256);
    for (size_t i = 0; i < 256; i++)
        sum += (double)w[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static float uniform(uint32_t *seed) { return (float)next_random(seed) / 0x1p32f; }

/* Importances lower the error they weigh; all alike they are as good as none, and zeros no worse
 * than nothing. */
static void importances_count(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        if (!t->encode_weighted)
            continue;
        double with = 0, without = 0, plain = 0, ones = 0, zeros = 0;
        for (int round = 0; round < 40; round++) {
            float x[256], w[256], one[256], zero[256] = {0};
            for (size_t i = 0; i < 256; i++) {
                x[i] = uniform(&seed) + uniform(&seed) + uniform(&seed) - 1.5f;
                w[i] = i % 7 == 0 ? 0 : powf(uniform(&seed), 4);
                one[i] = 1;
            }
            with += loss(t, x, w, true);
            without += loss(t, x, w, false);
            plain += loss(t, x, one, false);
            ones += loss(t, x, one, true);
            uint8_t raw[1024];
            float y[256];
            t->encode_weighted(raw, x, zero, 256);
            t->decode(y, raw, 256);
            for (size_t i = 0; i < 256; i++)
                zeros += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        }
        if (!(with < 0.97 * without && ones <= plain && zeros <= plain))
            fail_msg("%s: with %g, without %g; plain %g, ones %g, zeros %g", t->name, with, without,
                     plain, ones, zeros);
    }
}

/* The error of each type on bell-shaped weights is what its search reaches, within a hundredth:
 * a search that gets worse shows here. */
static void error_is_what_it_was(void **state)
{
    (void)state;
    static const struct {
        hs_dtype type;
        double percent;
    } want[] = {{HS_Q4_0, 8.411},  {HS_Q4_1, 7.77},  {HS_Q5_0, 4.173},  {HS_Q5_1, 3.77},
                {HS_Q8_0, 0.5257}, {HS_Q2_K, 25.95}, {HS_Q3_K, 14.14},  {HS_Q4_K, 6.98},
                {HS_Q5_K, 3.437},  {HS_Q6_K, 1.658}, {HS_IQ4_NL, 7.31}, {HS_IQ4_XS, 7.37}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        const hs_dtype_info *t = hs_dtype_get(want[k].type);
        uint32_t seed = 4;
        double lost = 0, all = 0;
        for (int round = 0; round < 200; round++) {
            float x[256], one[256];
            for (size_t i = 0; i < 256; i++) {
                x[i] = 0;
                for (int j = 0; j < 12; j++)
                    x[i] += uniform(&seed) - 0.5f;
                all += (double)x[i] * (double)x[i];
                one[i] = 1;
            }
            lost += loss(t, x, one, false);
        }
        const double percent = 100 * sqrt(lost / all);
        if (!(fabs(percent - want[k].percent) < 0.01 * want[k].percent))
            fail_msg("%s: error %.3f%%, expected %.3f%%", t->name, percent, want[k].percent);
    }
}

/* Blocks lie anywhere in a file: no conversion may need alignment. */
static void blocks_need_no_alignment(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < HS_DTYPE_LIMIT; id++) {
        const hs_dtype_info *t = hs_dtype_get(id);
        if (!t || !t->decode)
            continue;
        float x[256], a[256], b[256];
        for (size_t i = 0; i < 256; i++)
            x[i] = sinf((float)i);
        uint8_t even[1032], odd[1032];
        t->encode(even, x, 256);
        t->encode(odd + 1, x, 256);
        const size_t n = 256 / t->block_elems * t->block_bytes;
        assert_memory_equal(even, odd + 1, n);
        t->decode(a, even, 256);
        t->decode(b, odd + 1, 256);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* 0.5 steps between levels: exact halves go away from zero in Q8_0, upwards in Q4_0. */
static void halves_round_as_the_format_says(void **state)
{
    (void)state;
    float x[32] = {127, 0.5f, -0.5f, 1.5f, -1.5f, 2.5f, -2.5f, 0.49999997f, 126.5f, -126.5f};
    uint8_t raw[34];
    hs_dtype_get(HS_Q8_0)->encode(raw, x, 32);
    static const int8_t q8[] = {127, 1, -1, 2, -2, 3, -3, 0, 127, -127, 0};
    assert_memory_equal(raw + 2, q8, sizeof q8);

    float y[32] = {-8, 8, 0.5f, -0.5f, 7.5f, 7.4f, -7.5f, 0}; /* d = 1; the first of equals */
    hs_dtype_get(HS_Q4_0)->encode(raw, y, 32);
    static const uint8_t q4[] = {0, 15, 9, 8, 15, 15, 1, 8};
    for (size_t i = 0; i < sizeof q4; i++)
        assert_int_equal(raw[2 + i] & 15, q4[i]);
    assert_int_equal(hs_f16_to_f32((uint16_t)(raw[0] | raw[1] << 8)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_like_the_oracle),
        cmocka_unit_test(encodes_like_the_oracle),
        cmocka_unit_test(encodes_like_the_original),
        cmocka_unit_test(error_is_bounded),
        cmocka_unit_test(odd_blocks_are_defined),
        cmocka_unit_test(importances_count),
        cmocka_unit_test(error_is_what_it_was),
        cmocka_unit_test(blocks_need_no_alignment),
        cmocka_unit_test(halves_round_as_the_format_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
