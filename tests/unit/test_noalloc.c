/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign */
/* After hs_session_new nothing allocates: prompts, tokens, every mode, one thread and several. */
#include "tests/unit/runtime_util.h"

static _Atomic bool armed;
static _Atomic int calls;

static void count(void) { calls += armed; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    count();
    return __real_posix_memalign(out, align, n);
}

static void evaluate(const hs_model *m, hs_sparsity mode, int n_threads)
{
    static const int32_t prompt[] = {1, 5, 9, 30, 17, 44, 3, 8, 61, 12};
    hs_session *s =
        session(m, (hs_session_params){.n_threads = n_threads, .sparsity = mode, .n_ctx = 64});
    hs_err err = {0};
    armed = true;
    hs_status st = hs_session_eval(s, prompt, 10, NULL, NULL, &err);
    for (int32_t id = 20; st == HS_OK && id < 40; id++)
        st = hs_session_eval(s, &id, 1, NULL, NULL, &err);
    armed = false;
    hs_session_free(s);
    assert_int_equal(st, HS_OK);
}

static void evaluation_allocates_nothing(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/golden/mmask.gguf", "tests/golden/m256.q4_0.gguf"};
    for (int f = 0; f < 2; f++) {
        hs_model *m = load(files[f]);
        for (int mode = HS_SPARSITY_OFF; mode <= HS_SPARSITY_PREDICTED; mode++)
            for (int n = 1; n <= 3; n++)
                evaluate(m, (hs_sparsity)mode, n);
        hs_model_free(m);
    }
    assert_int_equal(calls, 0);
}

static void the_wrapper_counts(void **state)
{
    (void)state;
    armed = true;
    void *volatile p = malloc(3);
    armed = false;
    free(p);
    assert_int_equal(calls, 1);
    calls = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wrapper_counts),
        cmocka_unit_test(evaluation_allocates_nothing),
    };
    return cmocka_run_group_tests_name("noalloc", tests, NULL, NULL);
}
