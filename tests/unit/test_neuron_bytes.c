/* What one neuron takes: three rows of n_embd values in their own types and an index entry, two
 * rows in a model without a gate; never anything of the other side of the matrices. */
#include "tests/unit/latency_util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static hs_mat matrix(hs_dtype type, uint32_t rows, uint32_t cols)
{
    static const uint8_t nothing[1] = {0};
    uint64_t bytes = 0;
    assert_true(hs_dtype_row_bytes(type, cols, &bytes));
    return (hs_mat){nothing, type, cols, rows, bytes};
}

static void test_bytes(void **state)
{
    (void)state;
    const sim_shape shape = {.n_layer = 1,
                             .n_embd = 64,
                             .n_ff = 256,
                             .n_head = 1,
                             .n_head_kv = 1,
                             .n_vocab = 32,
                             .active = 0.1};
    static const struct {
        hs_dtype type;
        uint64_t row; /* 64 values */
    } types[] = {{HS_F32, 256}, {HS_F16, 128}, {HS_Q8_0, 68}, {HS_Q4_0, 36}};
    hs_model *m = sim_model(&shape);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hs_layer *y = &m->layer[0];
        y->gate = y->up = y->down_t = matrix(types[i].type, 256, 64);
        assert_int_equal(hs_budget_neuron_bytes(m, 0), 3 * types[i].row + 4);
        /* 256 of anything here is aligned. */
        assert_int_equal(hs_budget_neurons(m, 0, 256), 256 * (3 * types[i].row + 4));
        y->gate = (hs_mat){0};
        assert_int_equal(hs_budget_neuron_bytes(m, 0), 2 * types[i].row + 4);
        assert_int_equal(hs_budget_neurons(m, 0, 256), 256 * (2 * types[i].row + 4));
    }
    sim_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
