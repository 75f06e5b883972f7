/* Faster encoders give the bytes of the plain ones. */
#include "runtime/encode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint32_t rnd(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}

static float any(unsigned kind)
{
    static const float odd[] = {0,        -0.0f,  1e-45f, -1e-40f, 1e-30f,   3e38f,    -3.4e38f,
                                INFINITY, NAN,    65504,  1,       -1,       0.5f,     -0.5f,
                                5e-39f,   -6e-8f, 1.5f,   8,       2.9e-39f, -INFINITY};
    const float u = (float)(rnd() >> 8) * 0x1p-24f - 0.5f;
    switch (kind % 4) {
    case 0: return u * ldexpf(1, (int)(kind / 4 % 40) - 20);
    case 1: return (float)((int)(rnd() % 33) - 16) / 2; /* halves, equal magnitudes */
    case 2: return rnd() % 32 ? u : odd[rnd() % (sizeof odd / sizeof *odd)];
    default: return odd[rnd() % (sizeof odd / sizeof *odd)];
    }
}

/* Calls check(type, level) for every type that has an encoder and every level of this machine. */
static void each_type_and_level(void (*check)(const hs_dtype_info *t, hs_cpu_level level))
{
    for (uint32_t id = 0; id < HS_DTYPE_LIMIT; id++) {
        const hs_dtype_info *t = hs_dtype_get(id);
        for (int level = HS_CPU_SCALAR; t && t->encode && level <= (int)hs_cpu_detect(); level++)
            check(t, (hs_cpu_level)level);
    }
}

/* Any number of blocks, at any address; what lies behind stays as it is. */
static void check_bytes(const hs_dtype_info *t, hs_cpu_level level)
{
    hs_encode_fn *encode = hs_encoder(t, level);
    assert_true(level != HS_CPU_SCALAR || encode == t->encode);
    const size_t most = t->block_elems == 256 ? 2 : 20, unit = t->block_elems == 1 ? 7 : 1;
    for (unsigned round = 0; encode != t->encode && round < 1500; round++) {
        float x[640 + 1];
        uint8_t want[4 * 640 + 8], got[4 * 640 + 8 + 1];
        const size_t n = round % (most + 1) * t->block_elems * unit;
        for (size_t i = 0; i < n; i++)
            x[i + 1] = any(round);
        memset(want, 1, sizeof want);
        memset(got, 1, sizeof got);
        t->encode(want, x + 1, n);
        encode(got + 1, x + 1, n);
        if (memcmp(want, got + 1, sizeof want) != 0)
            fail_msg("%s, %s: round %u differs", t->name, hs_cpu_name(level), round);
    }
}

static void same_bytes(void **state)
{
    (void)state;
    each_type_and_level(check_bytes);
}

static void check_weighted(const hs_dtype_info *t, hs_cpu_level level)
{
    hs_encode_weighted_fn *encode = hs_weighted_encoder(t, level);
    assert_true(level != HS_CPU_SCALAR || encode == t->encode_weighted);
    assert_int_equal(encode == NULL, t->encode_weighted == NULL);
    for (unsigned round = 0; encode != t->encode_weighted && round < 500; round++) {
        float x[256], w[256];
        uint8_t want[1024] = {0}, got[1024] = {0};
        for (size_t i = 0; i < 256; i++) {
            x[i] = any(round);
            w[i] = round % 5 ? any(round / 5) : 0;
        }
        t->encode_weighted(want, x, w, 256);
        encode(got, x, w, 256);
        if (memcmp(want, got, sizeof want) != 0)
            fail_msg("%s, %s: round %u differs", t->name, hs_cpu_name(level), round);
    }
}

static void same_bytes_with_importances(void **state)
{
    (void)state;
    each_type_and_level(check_weighted);
}

/* Any bytes, so scales that are no numbers too; those may be any NaN. */
static void check_decoder(const hs_dtype_info *t, hs_cpu_level level)
{
    hs_decode_fn *decode = hs_decoder(t, level);
    for (unsigned round = 0; decode != t->decode && round < 500; round++) {
        const size_t n = t->block_elems == 1 ? round % 257 : round % 9 * 32;
        uint8_t raw[1024 + 1];
        float want[257], got[257];
        for (size_t i = 0; i < sizeof raw; i++)
            raw[i] = (uint8_t)rnd();
        want[n] = got[n] = 7;
        t->decode(want, raw + 1, n);
        decode(got, raw + 1, n);
        for (size_t i = 0; i <= n; i++)
            if (memcmp(&want[i], &got[i], 4) != 0 && !(isnan(want[i]) && isnan(got[i])))
                fail_msg("%s, %s: element %zu is %a, not %a", t->name, hs_cpu_name(level), i,
                         (double)got[i], (double)want[i]);
    }
}

static void same_values(void **state)
{
    (void)state;
    each_type_and_level(check_decoder);
}

static void same_losses(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 600; round++) {
        float x[300], y[300];
        const size_t n = round % 300;
        for (size_t i = 0; i < n; i++) {
            x[i] = any(4 * round);
            y[i] = x[i] + any(4 * round) / 64;
        }
        const hs_loss want = hs_loss_of(HS_CPU_SCALAR)(x, y, n);
        double lost = 0, sum = 0;
        for (size_t i = 0; i < n; i++) {
            lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            sum += (double)x[i] * (double)x[i];
        }
        assert_true(fabs(want.lost2 - lost) <= 1e-4 * lost);
        assert_true(fabs(want.sum2 - sum) <= 1e-4 * sum);
        for (int level = HS_CPU_AVX2; level <= (int)hs_cpu_detect(); level++) {
            const hs_loss got = hs_loss_of((hs_cpu_level)level)(x, y, n);
            assert_memory_equal(&want, &got, sizeof want);
        }
    }
}

/* Where the levels change: each half and its neighbours. */
static void same_bytes_at_the_edges(void **state)
{
    (void)state;
    static const hs_dtype types[] = {HS_Q4_0, HS_Q8_0};
    for (size_t k = 0; k < 2; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        hs_encode_fn *encode = hs_encoder(t, hs_cpu_detect());
        const int top = types[k] == HS_Q4_0 ? 8 : 127;
        for (int half = -2 * top; half <= 2 * top; half++) {
            float x[32] = {[0] = (float)(types[k] == HS_Q4_0 ? -top : top)};
            x[1] = (float)half / 2;
            x[2] = nextafterf(x[1], 1e9f);
            x[3] = nextafterf(x[1], -1e9f);
            uint8_t want[34], got[34];
            t->encode(want, x, 32);
            encode(got, x, 32);
            assert_memory_equal(want, got, t->block_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(same_bytes_with_importances),
        cmocka_unit_test(same_values),
        cmocka_unit_test(same_losses),
        cmocka_unit_test(same_bytes_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
