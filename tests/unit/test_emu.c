/* The CUDA emulation header itself: barriers, shuffles, ballot, atomics and shared memory mean
 * what they mean on a GPU, and planted faults are reported instead of hanging. */

#include "tests/unit/test_emu.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

static void good(hs_status st, const hs_err *err)
{
    if (st)
        fail_msg("%s", err->msg);
}

static void test_ids(void **state)
{
    (void)state;
    uint32_t out[6 * 15];
    hs_err err;
    good(hs_test_emu_ids(out, 3, 2, 5, 3, &err), &err);
    for (unsigned b = 0; b < 6; b++)
        for (unsigned t = 0; t < 15; t++)
            assert_int_equal(out[b * 15 + t], b * 10000 + t / 5 * 100 + t % 5);
}

static void test_reduce(void **state)
{
    (void)state;
    uint32_t in[5 * 256], out[5], want[5] = {0};
    for (uint32_t i = 0; i < 5 * 256; i++) {
        in[i] = i * 2654435761u;
        want[i / 256] += in[i];
    }
    hs_err err;
    good(hs_test_emu_reduce(out, in, 5, &err), &err);
    assert_memory_equal(out, want, sizeof want);
}

static void test_reverse(void **state)
{
    (void)state;
    static const unsigned sizes[] = {1, 31, 33, 64, 100, 1024};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t in[1024], out[1024];
        for (unsigned i = 0; i < sizes[k]; i++)
            in[i] = 7 * i + 1;
        hs_err err;
        good(hs_test_emu_reverse(out, in, sizes[k], &err), &err);
        for (unsigned i = 0; i < sizes[k]; i++)
            assert_int_equal(out[i], in[sizes[k] - 1 - i]);
    }
}

static void test_warp(void **state)
{
    (void)state;
    uint32_t out[HS_TEST_EMU_WARP_OPS][32];
    hs_err err;
    good(hs_test_emu_warp(out, &err), &err);
    for (unsigned l = 0; l < 32; l++) {
        assert_int_equal(out[0][l], 100 + (l ^ 5));
        assert_int_equal(out[1][l], 100 + (l + 3 < 32 ? l + 3 : l));
        assert_int_equal(out[2][l], 100 + (l >= 2 ? l - 2 : l));
        assert_int_equal(out[3][l], 107);
        assert_int_equal(out[4][l], 100 + (l % 8 + 3 < 8 ? l + 3 : l));
        assert_int_equal(out[5][l], 0xaaaaaaaau);
        assert_int_equal(out[6][l], 1);
        assert_int_equal(out[7][l], 1);
    }
}

static void test_halves(void **state)
{
    (void)state;
    uint32_t out[32];
    hs_err err;
    good(hs_test_emu_halves(out, &err), &err);
    for (unsigned l = 0; l < 32; l++) /* 120 = 0 + … + 15, 376 = 16 + … + 31 */
        assert_int_equal(out[l], 32000 + (l < 16 ? 120 * 16 * 16 : 376));
}

static void test_atomics(void **state)
{
    (void)state;
    uint32_t sum = 5, max = 0, min = 1000, wins = 0;
    float fsum = 1;
    hs_err err;
    good(hs_test_emu_atomics(&sum, &fsum, &max, &min, &wins, 1000, &err), &err);
    assert_int_equal(sum, 1005);
    assert_true(fsum == 501);
    assert_int_equal(max, 999);
    assert_int_equal(min, 0);
    assert_int_equal(wins, 1);
}

static void test_syncwarp(void **state)
{
    (void)state;
    uint32_t seen = 0;
    hs_err err;
    good(hs_test_emu_syncwarp(&seen, 1, &err), &err);
    assert_int_equal(seen, 32);
    /* Without it a lane overtakes its neighbour, as on a GPU. */
    seen = 0;
    const hs_status st = hs_test_emu_syncwarp(&seen, 0, &err);
    assert_true(seen < 32);
    assert_int_equal(st, hs_test_emu_detects() ? HS_ERR_DEVICE : HS_OK);
}

static void test_uninit(void **state)
{
    (void)state;
    uint32_t out[2] = {0};
    hs_err err;
    good(hs_test_emu_uninit(out, &err), &err);
    assert_true(out[0] == 0xffffffffu && out[1] == 0xffffffffu);
}

static void test_faults(void **state)
{
    (void)state;
    static const char *const want[HS_TEST_EMU_N_FAULT] = {
        [HS_TEST_EMU_EXIT] = "kernel k_exit, block (0,0,0): divergent barrier: 64 of 128 threads "
                             "wait at __syncthreads (line ",
        [HS_TEST_EMU_TWO_LINES] = "kernel k_two_lines, block (0,0,0): divergent barrier: 64 of 64 "
                                  "threads wait at __syncthreads (lines ",
        [HS_TEST_EMU_WARP_EXIT] = "kernel k_warp_exit, block (0,0,0): thread 4: a warp operation "
                                  "with a lane that has returned",
        [HS_TEST_EMU_WARP_LATE] = "kernel k_warp_late, block (0,0,0): divergent barrier: 1 of 64 "
                                  "threads wait at __syncthreads (line ",
        [HS_TEST_EMU_MIXED] = "kernel k_mixed, block (0,0,0): thread 31: lanes of a warp meet in "
                              "different operations or masks",
        [HS_TEST_EMU_OUTSIDE] = "kernel k_outside, block (0,0,0): thread 16: a warp operation "
                                "whose mask leaves out the caller",
        [HS_TEST_EMU_BLOCK] = "kernel k_answer: invalid block (1025,1,1)",
        [HS_TEST_EMU_GRID] = "kernel k_answer: invalid grid (0,1,1)",
        [HS_TEST_EMU_SHARED] = "kernel k_answer: 49153 bytes of shared memory, limit 49152",
    };
    for (int f = 0; f < HS_TEST_EMU_N_FAULT; f++) {
        uint32_t after = 0;
        hs_err err = {.code = HS_OK};
        assert_int_equal(hs_test_emu_plant((hs_test_emu_fault)f, &after, &err), HS_ERR_DEVICE);
        if (strncmp(err.msg, want[f], strlen(want[f])) != 0)
            fail_msg("fault %d: got \"%s\", expected \"%s…\"", f, err.msg, want[f]);
        assert_int_equal(after, 42);
    }
}

typedef struct turn {
    hs_test_emu_stream *s;
    uint32_t *out;
} turn;

static void *take_turn(void *ud)
{
    const turn *t = ud;
    for (int i = 0; i < 3; i++)
        if (hs_test_emu_step(t->s, t->out, NULL))
            return NULL;
    return ud;
}

/* One stream, always another host thread; and two streams at once on two threads. */
static void test_host_threads(void **state)
{
    (void)state;
    uint32_t out[2] = {0};
    turn t[2] = {{hs_test_emu_open(), &out[0]}, {hs_test_emu_open(), &out[1]}};
    void *ok;
    for (int round = 0; round < 3; round++) {
        pthread_t th[2];
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&th[k], NULL, take_turn, &t[k]), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(pthread_join(th[k], &ok), 0);
            assert_non_null(ok);
        }
        assert_non_null(take_turn(&t[0]));
    }
    assert_int_equal(out[0], 2016 * 18);
    assert_int_equal(out[1], 2016 * 9);
    hs_test_emu_close(t[0].s);
    hs_test_emu_close(t[1].s);
}

/* Only where the kernels are compiled for the detector (build/race/test_emu). */
static void test_races(void **state)
{
    (void)state;
    if (!hs_test_emu_detects())
        skip();
    static const char *const want[HS_TEST_EMU_N_BAD] = {
        [HS_TEST_EMU_NO_BARRIER] = "kernel k_neighbour: race in shared memory: block 0 thread ",
        [HS_TEST_EMU_NO_SYNCWARP] = "kernel k_neighbour: race in shared memory: block 0 thread ",
        [HS_TEST_EMU_ONLY_SHUFFLE] = "kernel k_neighbour: race in shared memory: block 0 thread ",
        [HS_TEST_EMU_HALF_SYNCWARP] = "kernel k_neighbour: race in shared memory: block 0 thread ",
        [HS_TEST_EMU_WRITE_WRITE] = "kernel k_words: race in global memory: block 0 thread 0 "
                                    "wrote, block 0 thread 1 writes, no barrier between",
        [HS_TEST_EMU_READ_WRITE] = "kernel k_words: race in global memory: block 0 thread 0 read, "
                                   "block 0 thread 40 writes, no barrier between",
        [HS_TEST_EMU_BLOCKS] = "kernel k_blocks: race in global memory: block 0 thread ",
        [HS_TEST_EMU_BYTES] = "kernel k_words: race in global memory: block 0 thread 0 wrote, "
                              "block 0 thread 1 writes, no barrier between",
        [HS_TEST_EMU_PLAIN_ATOMIC] = "kernel k_words: race in global memory: block 0 thread ",
        [HS_TEST_EMU_REUSE] = "kernel k_reuse: race in shared memory: block 0 thread ",
        [HS_TEST_EMU_PAST_GLOBAL] = "kernel k_words: block 0 thread 0: read of 4 bytes out of "
                                    "bounds in global memory",
        [HS_TEST_EMU_BEFORE_GLOBAL] = "kernel k_words: block 0 thread 0: read of 4 bytes out of "
                                      "bounds in global memory",
        [HS_TEST_EMU_PAST_SHARED] = "kernel k_past_shared: block 0 thread 31: read of 4 bytes out "
                                    "of bounds in shared memory",
    };
    for (int i = 0; i < HS_TEST_EMU_N_RACE; i++) {
        hs_err err = {.code = HS_OK};
        const hs_status st = hs_test_emu_race_case((hs_test_emu_race)i, &err);
        if (i >= HS_TEST_EMU_N_BAD)
            good(st, &err);
        else if (st != HS_ERR_DEVICE || strncmp(err.msg, want[i], strlen(want[i])) != 0)
            fail_msg("case %d: got %d \"%s\", expected \"%s…\"", i, st, st ? err.msg : "", want[i]);
    }
}

#ifdef ASAN
static void test_overrun(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint32_t out;
        close(2); /* the report is expected */
        _exit(hs_test_emu_overrun(&out, NULL) == HS_OK ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reverse),  cmocka_unit_test(test_warp),
        cmocka_unit_test(test_halves),   cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_syncwarp), cmocka_unit_test(test_uninit),
        cmocka_unit_test(test_faults),   cmocka_unit_test(test_host_threads),
        cmocka_unit_test(test_races),
#ifdef ASAN
        cmocka_unit_test(test_overrun),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
