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

static void same_bytes(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < HS_DTYPE_LIMIT; id++) {
        const hs_dtype_info *t = hs_dtype_get(id);
        if (!t || !t->encode)
            continue;
        for (int level = HS_CPU_SCALAR; level <= (int)hs_cpu_detect(); level++) {
            hs_encode_fn *encode = hs_encoder(t, (hs_cpu_level)level);
            assert_true(level != HS_CPU_SCALAR || encode == t->encode);
            if (encode == t->encode)
                continue;
            for (unsigned round = 0; round < 4000; round++) {
                float x[64];
                uint8_t want[256], got[256 + 1];
                const size_t n = round % 3 * 32;
                for (size_t i = 0; i < n; i++)
                    x[i] = any(round);
                memset(want, 1, sizeof want);
                memset(got, 1, sizeof got);
                t->encode(want, x, n);
                encode(got + 1, x, n);
                if (memcmp(want, got + 1, sizeof want) != 0)
                    fail_msg("%s: round %u differs", t->name, round);
            }
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
        cmocka_unit_test(same_bytes_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
