/* A job is never owed to a worker: the caller takes chunks too, and returns once no chunk is
 * left and nobody is inside.  A worker that wakes up late finds the job closed and sleeps again,
 * so a machine with fewer CPUs than threads loses little.
 *
 * `state` says who may read the job:
 *
 *   bit 31      bit 30                  bits 29…0
 *   JOB_OPEN    CALLER_SLEEPS           workers inside
 *
 * The job's fields are written only while state is 0, and read only by who added itself to an
 * open state. */
#include "runtime/pool.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define JOB_OPEN      0x80000000u
#define CALLER_SLEEPS 0x40000000u

/* Pauses before sleeping.  One is 10 to 140 cycles, so this is 10 to 100 µs: longer than the
 * serial stretches between two products of one token, shorter than a scheduler's tick. */
enum { spin_pauses = 2000, spin_pauses_crowded = 20, cache_line = 64, max_threads = 1024 };

struct hs_pool {
    /* The job. */
    void (*fn)(void *ud, int64_t begin, int64_t end);
    void *ud;
    int64_t n, step, n_chunks;

    _Alignas(cache_line) _Atomic int64_t next; /* first chunk that nobody took */
    _Alignas(cache_line) _Atomic uint32_t state;
    _Alignas(cache_line) _Atomic uint32_t calls; /* jobs so far: what idle workers watch */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    int spin;
    int n_workers; /* threads started, the caller not counted */
    pthread_t workers[];
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    /* EAGAIN and EINTR are as good as waking: every caller looks again. */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void take_chunks(hs_pool *p)
{
    for (;;) {
        const int64_t c = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (c >= p->n_chunks)
            return;
        const int64_t begin = c * p->step;
        p->fn(p->ud, begin, p->n - begin < p->step ? p->n : begin + p->step);
    }
}

static bool enter(hs_pool *p)
{
    uint32_t s = atomic_load_explicit(&p->state, memory_order_relaxed);
    while (s & JOB_OPEN)
        if (atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void leave(hs_pool *p)
{
    if (atomic_fetch_sub_explicit(&p->state, 1, memory_order_release) == (CALLER_SLEEPS | 1))
        futex_wake(&p->state, 1);
}

/* Until `calls` is no longer `seen`. */
static void wait_for_call(hs_pool *p, uint32_t seen)
{
    for (int i = 0; i < p->spin; i++) {
        if (atomic_load_explicit(&p->calls, memory_order_acquire) != seen)
            return;
        pause_cpu();
    }
    /* The caller raises `calls`, then reads `sleepers`; here it is the other way round.  Either
     * it sees this sleeper or the kernel sees its call and does not sleep. */
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->calls) == seen)
        futex_wait(&p->calls, seen);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void *worker_main(void *arg)
{
    hs_pool *p = arg;
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&p->calls, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        if (enter(p)) {
            take_chunks(p);
            leave(p);
        }
        wait_for_call(p, seen);
    }
}

static void call_workers(hs_pool *p, int64_t wanted)
{
    atomic_fetch_add(&p->calls, 1);
    if (atomic_load(&p->sleepers))
        futex_wake(&p->calls, wanted < INT_MAX ? (int)wanted : INT_MAX);
}

static void wait_until_empty(hs_pool *p)
{
    uint32_t s = atomic_fetch_and_explicit(&p->state, ~JOB_OPEN, memory_order_acquire) & ~JOB_OPEN;
    for (int i = 0; s && i < p->spin; i++) {
        pause_cpu();
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
    while (s & ~CALLER_SLEEPS) {
        if (s & CALLER_SLEEPS)
            futex_wait(&p->state, s);
        else
            atomic_fetch_or_explicit(&p->state, CALLER_SLEEPS, memory_order_relaxed);
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
    if (s)
        atomic_store_explicit(&p->state, 0, memory_order_relaxed);
}

void hs_pool_run(hs_pool *p, int64_t n, int64_t step,
                 void (*fn)(void *ud, int64_t begin, int64_t end), void *ud)
{
    assert(step > 0);
    if (n <= 0)
        return;
    const int64_t n_chunks = n / step + (n % step != 0);
    if (!p || p->n_workers == 0 || n_chunks == 1) {
        for (int64_t b = 0; b < n; b = n - b < step ? n : b + step)
            fn(ud, b, n - b < step ? n : b + step);
        return;
    }
    p->fn = fn;
    p->ud = ud;
    p->n = n;
    p->step = step;
    p->n_chunks = n_chunks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->state, JOB_OPEN, memory_order_release);
    call_workers(p, n_chunks - 1);
    take_chunks(p);
    wait_until_empty(p);
}

static bool start_workers(hs_pool *p, int n)
{
    /* Signals belong to the program's own thread. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->n_workers < n) {
        const int e = pthread_create(&p->workers[p->n_workers], NULL, worker_main, p);
        if (e) {
            pthread_sigmask(SIG_SETMASK, &old, NULL);
            errno = e;
            return false;
        }
        p->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return true;
}

hs_status hs_pool_new(hs_pool **out, int n_threads, hs_err *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > max_threads)
        return hs_fail(err, HS_ERR_USAGE, "threads: expected 1 to %d, got %d", (int)max_threads,
                       n_threads);
    const size_t bytes = sizeof(hs_pool) + (size_t)(n_threads - 1) * sizeof(pthread_t);
    hs_pool *p = aligned_alloc(cache_line, (bytes + cache_line - 1) / cache_line * cache_line);
    if (!p)
        return hs_fail(err, HS_ERR_NOMEM, "thread pool: out of memory");
    memset(p, 0, bytes);
    p->spin = n_threads <= hs_cpu_count() ? spin_pauses : spin_pauses_crowded;
    if (!start_workers(p, n_threads - 1)) {
        const int e = errno;
        const int started = p->n_workers;
        hs_pool_free(p);
        return hs_fail(err, HS_ERR_IO, "thread pool: cannot start thread %d of %d: %s", started + 2,
                       n_threads, strerror(e));
    }
    *out = p;
    return HS_OK;
}

void hs_pool_free(hs_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    call_workers(p, INT_MAX);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i], NULL);
    free(p);
}

int hs_pool_size(const hs_pool *p) { return p ? p->n_workers + 1 : 1; }

static int affinity_count(void)
{
    /* cpu_set_t holds 1024 CPUs; the kernel refuses (EINVAL) a mask smaller than its own. */
    for (size_t cpus = 1024; cpus <= 1u << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        const int rc = sched_getaffinity(0, bytes, set);
        const int e = errno;
        const int count = rc ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (count > 0)
            return count;
        if (rc == 0 || e != EINVAL)
            break;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= INT_MAX ? (int)online : 1;
}

int hs_cpu_count(void)
{
    const int count = affinity_count(), quota = hs_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 && quota < count ? quota : count;
}
