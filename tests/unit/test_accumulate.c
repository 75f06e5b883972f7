/* The order-free sum of the down projection: the same bits at every level, for every type, in
 * any order and split, and close to the sum in exact arithmetic. */
#include "runtime/kernels.h"
#include "runtime/mathx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROWS = 300, COLS = 512 };

typedef struct rig {
    uint64_t rng;
    float w[ROWS][COLS];
    float a[ROWS];
    uint8_t coded[ROWS][COLS * 4];
    double sum[3][COLS];
} rig;

static float rnd(rig *r)
{
    r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
    const int exponent = (int)(r->rng >> 60) - 10; /* magnitudes from 2^-10 to 2^5 */
    return ldexpf((float)(int32_t)(r->rng >> 24) * 0x1p-31f, exponent);
}

static rig *new_rig(void)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->rng = 11;
    for (int i = 0; i < ROWS; i++) {
        r->a[i] = rnd(r);
        for (int c = 0; c < COLS; c++)
            r->w[i][c] = rnd(r) * 0.01f;
    }
    return r;
}

static void levels_give_the_same_bits_for_every_length(void **state)
{
    (void)state;
    rig *r = new_rig();
    hs_kernels ref, k;
    hs_kernels_init(&ref, HS_CPU_SCALAR);
    for (hs_cpu_level l = HS_CPU_SCALAR; l <= hs_cpu_detect(); l++) {
        hs_kernels_init(&k, l);
        for (size_t n = 0; n < 70; n++) {
            memset(r->sum, 0, sizeof r->sum);
            for (int i = 0; i < 20; i++) {
                ref.accumulate(r->sum[0], r->a[i], r->w[i] + 1, n);
                k.accumulate(r->sum[1], r->a[i], r->w[i] + 1, n);
            }
            assert_memory_equal(r->sum[0], r->sum[1], sizeof r->sum[0]);
            assert_true(r->sum[1][n] == 0);
        }
    }
    free(r);
}

static void add_row(const hs_kernels *k, hs_dtype type, double *y, float a, const void *row,
                    size_t begin, size_t end)
{
    hs_kernel_sum_rows(
        k, type, &(hs_sum_rows){.y = y, .a = &a, .row = row, .n = 1, .begin = begin, .end = end});
}

/* Rows in another order and in two parts, by column ranges; the exact sum in long double. */
static void check_type(rig *r, const hs_kernels *k, hs_dtype type)
{
    const hs_dtype_info *ti = hs_dtype_get(type);
    float w[COLS];
    long double exact[COLS] = {0};
    memset(r->sum, 0, sizeof r->sum);
    for (int i = 0; i < ROWS; i++) {
        ti->encode(r->coded[i], r->w[i], COLS);
        ti->decode(w, r->coded[i], COLS);
        for (int c = 0; c < COLS; c++)
            exact[c] += (long double)r->a[i] * (long double)w[c];
    }
    hs_kernel_sum_rows(k, type,
                       &(hs_sum_rows){.y = r->sum[0],
                                      .a = r->a,
                                      .row = r->coded[0],
                                      .row_bytes = sizeof r->coded[0],
                                      .n = ROWS,
                                      .end = COLS});
    for (int i = ROWS - 1; i >= 0; i--) {
        double *part = r->sum[1 + i % 3 / 2];
        add_row(k, type, part, r->a[i], r->coded[i], 256, COLS);
        add_row(k, type, part, r->a[i], r->coded[i], 0, 256);
    }
    for (int c = 0; c < COLS; c++) {
        assert_true(r->sum[0][c] == r->sum[1][c] + r->sum[2][c]);
        /* Each product is off by at most half a step of the grid. */
        assert_true(fabsl((long double)r->sum[0][c] - exact[c]) <= ROWS * 0x1p-37L);
    }
}

static void order_and_split_do_not_matter(void **state)
{
    (void)state;
    rig *r = new_rig();
    for (hs_cpu_level l = HS_CPU_SCALAR; l <= hs_cpu_detect(); l++) {
        hs_kernels k;
        hs_kernels_init(&k, l);
        for (uint32_t t = 0; t < HS_DTYPE_LIMIT; t++)
            if (k.type[t].act != HS_ACT_NONE)
                check_type(r, &k, (hs_dtype)t);
    }
    free(r);
}

/* Lists of rows, columns that are no multiple of a vector: the scalar level's bits, no more. */
static void lists_give_the_same_bits_at_every_level(void **state)
{
    (void)state;
    rig *r = new_rig();
    int32_t id[9];
    hs_kernels ref, k;
    hs_kernels_init(&ref, HS_CPU_SCALAR);
    for (uint32_t t = 0; t < HS_DTYPE_LIMIT; t++) {
        if (ref.type[t].act == HS_ACT_NONE)
            continue;
        const hs_dtype_info *ti = hs_dtype_get((hs_dtype)t);
        for (int i = 0; i < ROWS; i++)
            ti->encode(r->coded[i], r->w[i], COLS);
        for (size_t n = 0; n <= 9; n++) {
            for (size_t i = 0; i < n; i++)
                id[i] = (int32_t)((i * 37 + n) % ROWS);
            hs_sum_rows p = {.y = r->sum[0],
                             .a = r->a,
                             .row = r->coded[0],
                             .row_bytes = sizeof r->coded[0],
                             .id = id,
                             .n = n,
                             .begin = ti->block_elems == 1 ? 5 : ti->block_elems,
                             .end = ti->block_elems == 1 ? 300 : COLS};
            memset(r->sum, 0, sizeof r->sum);
            hs_kernel_sum_rows(&ref, (hs_dtype)t, &p);
            for (hs_cpu_level l = HS_CPU_AVX2; l <= hs_cpu_detect(); l++) {
                memset(r->sum[1], 0, sizeof r->sum[1]);
                hs_kernels_init(&k, l);
                p.y = r->sum[1];
                hs_kernel_sum_rows(&k, (hs_dtype)t, &p);
                assert_memory_equal(r->sum[0], r->sum[1], sizeof r->sum[0]);
            }
        }
    }
    free(r);
}

static void magnitudes_beyond_the_grid_stay_right(void **state)
{
    (void)state;
    hs_kernels k;
    hs_kernels_init(&k, hs_cpu_detect());
    const float w[4] = {3e30f, -2e8f, 70000.0f, INFINITY};
    double y[4] = {0};
    k.accumulate(y, 2.0f, w, 4);
    assert_true(y[0] == 2.0 * (double)3e30f);
    assert_true(fabs(y[1] + 4e8) < 1e-6);
    assert_true(y[2] == 140000.0);
    assert_true(isinf(y[3]));
    k.accumulate(y, NAN, w, 1);
    assert_true(isnan(y[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_give_the_same_bits_for_every_length),
        cmocka_unit_test(order_and_split_do_not_matter),
        cmocka_unit_test(lists_give_the_same_bits_at_every_level),
        cmocka_unit_test(magnitudes_beyond_the_grid_stay_right),
    };
    return cmocka_run_group_tests_name("accumulate", tests, NULL, NULL);
}
