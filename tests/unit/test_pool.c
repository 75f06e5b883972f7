#include "runtime/pool.h"

#include <malloc.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { cells = 4096 };

typedef struct job {
    int64_t n, step;
    int hits[cells]; /* plain on purpose: TSan sees two writers of one cell */
    _Atomic int bad;
} job;

static void count(void *ud, int64_t begin, int64_t end)
{
    job *j = ud;
    const int64_t want = j->n - begin < j->step ? j->n : begin + j->step;
    if (begin % j->step || end != want)
        j->bad++;
    for (int64_t i = begin; i < end; i++)
        j->hits[i]++;
}

static void check_once(hs_pool *pool, job *j, int64_t n, int64_t step)
{
    memset(j, 0, sizeof *j);
    j->n = n;
    j->step = step;
    hs_pool_run(pool, n, step, count, j);
    assert_int_equal(j->bad, 0);
    for (int64_t i = 0; i < cells; i++)
        assert_int_equal(j->hits[i], i < n);
}

static void every_index_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, cells};
    static const int64_t steps[] = {1, 2, 3, 64, 5000, INT64_MAX};
    static job j;
    for (int threads = 0; threads <= 8; threads++) {
        hs_pool *pool = NULL;
        if (threads) { /* 0: no pool at all */
            assert_int_equal(hs_pool_new(&pool, threads, NULL), HS_OK);
            assert_int_equal(hs_pool_size(pool), threads);
        }
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t t = 0; t < sizeof steps / sizeof steps[0]; t++)
                check_once(pool, &j, sizes[s], steps[t]);
        hs_pool_free(pool);
    }
}

static void negative_is_nothing(void **state)
{
    (void)state;
    job j = {0};
    hs_pool_run(NULL, -5, 1, count, &j);
    hs_pool *pool;
    assert_int_equal(hs_pool_new(&pool, 2, NULL), HS_OK);
    hs_pool_run(pool, -5, 1, count, &j);
    for (int i = 0; i < cells; i++)
        assert_int_equal(j.hits[i], 0);
    hs_pool_free(pool);
}

typedef struct chain {
    int64_t value[64];
} chain;

static void add_one(void *ud, int64_t begin, int64_t end)
{
    chain *c = ud;
    for (int64_t i = begin; i < end; i++)
        c->value[i]++;
}

/* Thousands of tiny jobs, back to back and with workers asleep in between: what a late worker
 * does to the next job shows here. */
static void jobs_in_a_row(void **state)
{
    (void)state;
    hs_pool *pool;
    assert_int_equal(hs_pool_new(&pool, 5, NULL), HS_OK);
    chain c = {0};
    const size_t heap = mallinfo2().uordblks;
    int64_t expected = 0;
    for (int i = 0; i < 3000; i++, expected++) {
        hs_pool_run(pool, 64, 1 + i % 20, add_one, &c);
        if (i % 500 == 0)
            usleep(3000);
    }
    assert_int_equal(mallinfo2().uordblks, heap);
    for (int i = 0; i < 64; i++)
        assert_int_equal(c.value[i], expected);
    hs_pool_free(pool);
}

typedef struct meeting {
    _Atomic int here, missed;
    int wanted;
} meeting;

static void meet(void *ud, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    meeting *m = ud;
    m->here++;
    const time_t deadline = time(NULL) + 20;
    while (m->here < m->wanted) {
        if (time(NULL) > deadline) {
            m->missed++;
            return;
        }
        sched_yield();
    }
}

/* Every thread takes part: a chunk that waits for all the others ends. */
static void threads_run_together(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 6; threads += 2) {
        hs_pool *pool;
        assert_int_equal(hs_pool_new(&pool, threads, NULL), HS_OK);
        for (int round = 0; round < 3; round++) {
            meeting m = {.wanted = threads};
            hs_pool_run(pool, threads, 1, meet, &m);
            assert_int_equal(m.here, threads);
            assert_int_equal(m.missed, 0);
            usleep(2000); /* the next round finds them asleep */
        }
        hs_pool_free(pool);
    }
}

static void bad_sizes(void **state)
{
    (void)state;
    static const int sizes[] = {-1, 0, 1025};
    for (size_t i = 0; i < 3; i++) {
        hs_pool *pool = (hs_pool *)64; /* must be overwritten */
        hs_err err;
        assert_int_equal(hs_pool_new(&pool, sizes[i], &err), HS_ERR_USAGE);
        assert_null(pool);
        char want[64];
        snprintf(want, sizeof want, "threads: expected 1 to 1024, got %d", sizes[i]);
        assert_string_equal(err.msg, want);
    }
    hs_pool_free(NULL);
    assert_int_equal(hs_pool_size(NULL), 1);
}

static void cpu_count_follows_affinity(void **state)
{
    (void)state;
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all))
        skip(); /* more CPUs than cpu_set_t holds */
    const int quota = hs_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    const int most = CPU_COUNT(&all);
    assert_int_equal(hs_cpu_count(), quota > 0 && quota < most ? quota : most);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(hs_cpu_count(), 1);

    /* One CPU for four threads: slower, not stuck. */
    static job j;
    hs_pool *pool;
    assert_int_equal(hs_pool_new(&pool, 4, NULL), HS_OK);
    for (int i = 0; i < 20; i++)
        check_once(pool, &j, cells, 64);
    hs_pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void put(const char *root, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int quota_of(const char *root, const char *groups)
{
    char path[256];
    put(root, "groups", groups);
    snprintf(path, sizeof path, "%s/groups", root);
    return hs_cpu_quota(path, root);
}

/* The tightest of a group and those above it; both versions of control groups. */
static void quota_is_read(void **state)
{
    (void)state;
    char root[] = "/tmp/test_pool.XXXXXX";
    assert_non_null(mkdtemp(root));
    put(root, "a/b/c/cpu.max", "max 100000\n");
    put(root, "a/b/cpu.max", "250000 100000\n");
    put(root, "a/cpu.max", "400000 100000\n");
    put(root, "cpu.max", "50000 100000\n");
    put(root, "half/cpu.max", "garbage\n");
    put(root, "cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
    put(root, "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota_of(root, "0::/a/b/c\n"), 1);
    put(root, "cpu.max", "max 100000\n");
    assert_int_equal(quota_of(root, "0::/a/b/c\n"), 3);
    assert_int_equal(quota_of(root, "0::/a\n"), 4);
    assert_int_equal(quota_of(root, "0::/half\n"), 0);
    assert_int_equal(quota_of(root, "0::/\n"), 0);
    assert_int_equal(quota_of(root, "0::/not/there\n"), 0);
    assert_int_equal(quota_of(root, "3:memory:/a\n2:cpu,cpuacct:/x/y\n"), 3);
    assert_int_equal(quota_of(root, "2:cpuset:/x\nnonsense\n\n"), 0);
    assert_int_equal(quota_of(root, ""), 0);
    assert_int_equal(hs_cpu_quota("/nowhere/groups", root), 0);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_once), cmocka_unit_test(negative_is_nothing),
        cmocka_unit_test(jobs_in_a_row),    cmocka_unit_test(threads_run_together),
        cmocka_unit_test(bad_sizes),        cmocka_unit_test(cpu_count_follows_affinity),
        cmocka_unit_test(quota_is_read),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
