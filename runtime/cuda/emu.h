#ifndef HS_RUNTIME_CUDA_EMU_H
#define HS_RUNTIME_CUDA_EMU_H

/* The part of CUDA C++ that our device source uses, on the CPU: docs/device.md has what is
 * guaranteed and what is not.
 *
 * A launch runs to its end on the calling thread, block after block.  The threads of a block are
 * fibers; each runs until it returns or meets a barrier or a warp operation that others have not
 * reached, then the next ready lane of its warp goes on, then the next warp.  Between two such
 * points nothing is lockstep, so a missing __syncthreads or __syncwarp gives wrong results here
 * too.  A block that cannot go on is a failure of the stream with the reason, never a hang.
 *
 * All state belongs to a stream.  Just the pointer to the running one is per host thread, because
 * threadIdx and its kin take no argument. */

#include "formats/err.h"
#include "runtime/cuda/emu_fiber.h"
#if HS_EMU_RACE
#include "runtime/cuda/emu_race.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* One block at a time per host thread, so one copy per host thread. */
#define __shared__ static thread_local

static constexpr unsigned HS_EMU_WARP = 32, HS_EMU_MAX_BLOCK = 1024;
static constexpr size_t HS_EMU_MAX_SHARED = 48 << 10; /* what every GPU grants without asking */

struct dim3 {
    unsigned x, y, z;
    __forceinline__ dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

typedef enum hs_emu_op {
    HS_EMU_SYNC,
    HS_EMU_BALLOT,
    HS_EMU_XOR,
    HS_EMU_DOWN,
    HS_EMU_UP,
    HS_EMU_IDX,
} hs_emu_op;

typedef struct hs_emu_warp {
    uint32_t lanes;      /* exist: the last warp of a block may be short */
    uint32_t live;       /* have not returned */
    uint32_t ready;      /* can run */
    uint32_t waiting;    /* are inside a warp operation */
    hs_emu_fiber *fiber; /* [32] */
    /* Each lane's call: mask, operation and width in one number, and the operands. */
    uint64_t key[HS_EMU_WARP];
    uint32_t value[HS_EMU_WARP], arg[HS_EMU_WARP], result[HS_EMU_WARP];
} hs_emu_warp;

/* Something a stream will do.  Deferred streams do it when the host waits, graphs whenever they are
 * launched. */
typedef struct hs_emu_task {
    struct hs_emu_task *next;
    void (*run)(struct hs_emu_stream *s, const void *args);
    uint8_t args[]; /* aligned by the pointers before */
} hs_emu_task;

typedef struct hs_emu_list {
    hs_emu_task *first, **end;
} hs_emu_list;

typedef struct hs_emu_stream {
    hs_emu_list queue;
    uint64_t n_queued, n_done;
    hs_emu_list *capture; /* tasks go there instead while it is set */
    bool deferred;
    /* Through pointers, so that no compiler can prove that a switch leaves a kernel's __shared__
     * variables alone. */
    void (*barrier)(struct hs_emu_stream *s, int line);
    uint32_t (*collect)(struct hs_emu_stream *s, uint64_t key, uint32_t value, uint32_t arg);
    hs_emu_fiber host, *cur, *previous;
    hs_emu_fiber *fiber; /* [n_fiber] */
    hs_emu_warp *warp;   /* [n_fiber / 32] */
    uint8_t *stacks, *shared;
    size_t n_fiber, stack_step;
    unsigned n_thread, n_returned, n_barrier; /* of the running block */
    int barrier_line, barrier_line2;          /* the second one if they differ */
    dim3 grid, block, at;
    const char *kernel;
    void (*run)(const void *args);
    const void *args;
    void *tsan,
        *tsan_host; /* ThreadSanitizer's contexts of the device and of the launching thread */
    hs_err err;     /* first failure; launches do nothing until it is taken */
} hs_emu_stream;

__attribute__((unused)) static thread_local hs_emu_stream *hs_emu_now;

#define threadIdx       (hs_emu_now->cur->tid)
#define blockIdx        (hs_emu_now->at)
#define blockDim        (hs_emu_now->block)
#define gridDim         (hs_emu_now->grid)
#define warpSize        32
#define __syncthreads() hs_emu_now->barrier(hs_emu_now, __LINE__)

/* --- scheduling ---------------------------------------------------------------------- */

static inline void hs_emu_arrive(hs_emu_stream *s)
{
#if HS_EMU_ASAN
    hs_emu_fiber *from = s->previous;
    __sanitizer_finish_switch_fiber(s->cur->fake_stack, &from->stack, &from->stack_bytes);
#else
    (void)s;
#endif
}

static inline void hs_emu_switch(hs_emu_stream *s, hs_emu_fiber *to)
{
    hs_emu_fiber *from = s->cur;
    s->previous = from;
    s->cur = to;
#if HS_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if HS_EMU_TSAN
    if (to == &s->host || from == &s->host)
        __tsan_switch_to_fiber(to == &s->host ? s->tsan_host : s->tsan, 0);
#endif
    hs_emu_jump(&from->ctx, &to->ctx);
    hs_emu_arrive(s);
}

/* Let others run until somebody has made this lane ready again.  Nearly always the next lane is
 * the one to go on; a guess that needs no look at `ready` keeps the switch short. */
static inline void hs_emu_wait(hs_emu_stream *s, hs_emu_fiber *f)
{
    const uint32_t ready = f->warp->ready, later = ready & 0xfffffffeu << f->lane;
    if (later & 2u << f->lane) {
        hs_emu_switch(s, f + 1);
    } else {
        const uint32_t pick = later ? later : ready;
        hs_emu_switch(s, pick ? f->warp->fiber + __builtin_ctz(pick) : &s->host);
    }
}

/* A thread's life: the same fiber runs one thread of every block. */
static void hs_emu_entry(void)
{
    hs_emu_stream *s = hs_emu_now;
    hs_emu_arrive(s);
    for (;;) {
        s->run(s->args);
        hs_emu_fiber *f = s->cur;
        s->n_returned++;
        f->warp->live &= ~(1u << f->lane);
        f->warp->ready &= ~(1u << f->lane);
        hs_emu_wait(s, f);
    }
}

#define HS_EMU_WHERE_FMT "kernel %s, block (%u,%u,%u): "
#define HS_EMU_WHERE(s)  (s)->kernel, (s)->at.x, (s)->at.y, (s)->at.z

/* Called by a fiber, which is abandoned where it stands. */
static inline void hs_emu_fault(hs_emu_stream *s, const char *why)
{
    hs_fail(&s->err, HS_ERR_DEVICE, HS_EMU_WHERE_FMT "thread %u: %s", HS_EMU_WHERE(s),
            s->cur->index, why);
    hs_emu_switch(s, &s->host);
}

/* Nobody can run and the block is not done. */
static inline void hs_emu_stuck(hs_emu_stream *s)
{
    char line[48];
    if (s->barrier_line2)
        snprintf(line, sizeof line, " (lines %d and %d)", s->barrier_line, s->barrier_line2);
    else
        snprintf(line, sizeof line, " (line %d)", s->barrier_line);
    unsigned n_warp = 0;
    for (unsigned w = 0; w * HS_EMU_WARP < s->n_thread; w++)
        n_warp += (unsigned)__builtin_popcount(s->warp[w].waiting);
    hs_fail(&s->err, HS_ERR_DEVICE,
            HS_EMU_WHERE_FMT "divergent barrier: %u of %u threads wait at __syncthreads%s, "
                             "%u in a warp operation, %u have returned",
            HS_EMU_WHERE(s), s->n_barrier, s->n_thread, s->n_barrier ? line : "", n_warp,
            s->n_returned);
}

static inline void hs_emu_block_begin(hs_emu_stream *s, size_t shared_bytes)
{
    s->n_returned = s->n_barrier = 0;
    s->barrier_line = s->barrier_line2 = 0;
    memset(s->shared, 0xff, shared_bytes); /* NaN: nobody may count on zeros */
    for (unsigned i = 0; i < s->n_thread; i += HS_EMU_WARP) {
        hs_emu_warp *w = &s->warp[i / HS_EMU_WARP];
        const unsigned n = s->n_thread - i < HS_EMU_WARP ? s->n_thread - i : HS_EMU_WARP;
        w->lanes = w->live = w->ready = (uint32_t)((1ull << n) - 1);
        w->waiting = 0;
    }
}

static inline void hs_emu_block_run(hs_emu_stream *s)
{
    for (;;) {
        for (unsigned i = 0; i < s->n_thread; i += HS_EMU_WARP) {
            const uint32_t ready = s->warp[i / HS_EMU_WARP].ready;
            if (ready)
                hs_emu_switch(s, &s->fiber[i + (unsigned)__builtin_ctz(ready)]);
            if (s->err.code)
                return;
        }
        if (s->n_returned == s->n_thread)
            return;
        if (s->n_barrier != s->n_thread || s->barrier_line2) {
            hs_emu_stuck(s);
            return;
        }
        s->n_barrier = 0;
        s->barrier_line = 0;
#if HS_EMU_RACE
        hs_emu_race_barrier();
#endif
        for (unsigned i = 0; i < s->n_thread; i += HS_EMU_WARP)
            s->warp[i / HS_EMU_WARP].ready = s->warp[i / HS_EMU_WARP].live;
    }
}

/* --- launch -------------------------------------------------------------------------- */

static inline void hs_emu_fibers_free(hs_emu_stream *s)
{
#if HS_EMU_TSAN
    if (s->tsan)
        __tsan_destroy_fiber(s->tsan);
    s->tsan = NULL;
#endif
    hs_emu_stacks_free(s->stacks, s->n_fiber, s->stack_step);
    free(s->fiber);
    free(s->warp);
    s->stacks = NULL;
    s->fiber = NULL;
    s->warp = NULL;
    s->n_fiber = 0;
}

/* All fibers at the start of their life. */
static inline void hs_emu_fibers_start(hs_emu_stream *s)
{
#if HS_EMU_TSAN
    if (s->tsan)
        __tsan_destroy_fiber(s->tsan);
    s->tsan = __tsan_create_fiber(0);
#endif
    for (size_t i = 0; i < s->n_fiber; i++)
        hs_emu_fiber_aim(&s->fiber[i], hs_emu_entry);
}

/* At least n fibers; more than before means all are made anew, which is safe between launches. */
static inline bool hs_emu_fibers_need(hs_emu_stream *s, unsigned n)
{
    n = (n + HS_EMU_WARP - 1) / HS_EMU_WARP * HS_EMU_WARP;
    if (n <= s->n_fiber)
        return true;
    hs_emu_fibers_free(s);
    s->fiber = (hs_emu_fiber *)calloc(n, sizeof *s->fiber);
    s->warp = (hs_emu_warp *)calloc(n / HS_EMU_WARP, sizeof *s->warp);
    s->stacks = s->fiber && s->warp ? hs_emu_stacks_new(n, &s->stack_step) : NULL;
    if (!s->stacks) {
        hs_emu_fibers_free(s);
        return false;
    }
    s->n_fiber = n;
    for (unsigned i = 0; i < n; i++) {
        hs_emu_fiber *f = &s->fiber[i];
        f->stack = s->stacks + (i + 1) * s->stack_step - HS_EMU_STACK;
        f->stack_bytes = HS_EMU_STACK;
        f->index = i;
        f->lane = i % HS_EMU_WARP;
        f->warp = &s->warp[i / HS_EMU_WARP];
        if (f->lane == 0)
            f->warp->fiber = f;
    }
    hs_emu_fibers_start(s);
    return true;
}

static inline bool hs_emu_launch_check(hs_emu_stream *s, dim3 grid, dim3 block, size_t shared_bytes)
{
    const uint64_t n = (uint64_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        hs_fail(&s->err, HS_ERR_DEVICE, "kernel %s: invalid grid (%u,%u,%u)", s->kernel, grid.x,
                grid.y, grid.z);
    else if (n == 0 || n > HS_EMU_MAX_BLOCK || block.z > 64)
        hs_fail(&s->err, HS_ERR_DEVICE, "kernel %s: invalid block (%u,%u,%u)", s->kernel, block.x,
                block.y, block.z);
    else if (shared_bytes > HS_EMU_MAX_SHARED)
        hs_fail(&s->err, HS_ERR_DEVICE, "kernel %s: %zu bytes of shared memory, limit %zu",
                s->kernel, shared_bytes, HS_EMU_MAX_SHARED);
    else if (!hs_emu_fibers_need(s, (unsigned)n))
        hs_fail(&s->err, HS_ERR_NOMEM, "kernel %s: out of memory for %u threads", s->kernel,
                (unsigned)n);
    return !s->err.code;
}

#if HS_EMU_RACE
static inline void hs_emu_race_open(hs_emu_stream *s, size_t shared_bytes)
{
    const hs_emu_race_launch launch = {
        &s->cur,
        {{s, s + 1},
         {s->fiber, s->fiber + s->n_fiber},
         {s->warp, s->warp + s->n_fiber / HS_EMU_WARP},
         {s->stacks, s->stacks + s->n_fiber * s->stack_step}},
        s->shared,
        shared_bytes,
        HS_EMU_MAX_SHARED,
    };
    hs_emu_race_begin(&launch);
}

static inline void hs_emu_race_close(hs_emu_stream *s)
{
    char text[224];
    if (hs_emu_race_end(text, sizeof text) && !s->err.code)
        hs_fail(&s->err, HS_ERR_DEVICE, "kernel %s: %s", s->kernel, text);
}
#endif

static inline void hs_emu_run(hs_emu_stream *s, const char *name, dim3 grid, dim3 block,
                              size_t shared_bytes, void (*run)(const void *), const void *args)
{
    s->kernel = name;
    if (s->err.code || !hs_emu_launch_check(s, grid, block, shared_bytes))
        return;
    s->run = run;
    s->args = args;
    s->grid = grid;
    s->block = block;
    s->n_thread = block.x * block.y * block.z;
    for (unsigned i = 0; i < s->n_thread; i++)
        s->fiber[i].tid = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    s->cur = &s->host;
#if HS_EMU_TSAN
    s->tsan_host = __tsan_get_current_fiber();
#endif
#if HS_EMU_ASAN
    __asan_unpoison_memory_region(s->shared, HS_EMU_MAX_SHARED);
    __asan_poison_memory_region(s->shared + shared_bytes, HS_EMU_MAX_SHARED - shared_bytes);
#endif
    hs_emu_now = s;
#if HS_EMU_RACE
    hs_emu_race_open(s, shared_bytes);
#endif
    for (s->at.z = 0; s->at.z < grid.z && !s->err.code; s->at.z++)
        for (s->at.y = 0; s->at.y < grid.y && !s->err.code; s->at.y++)
            for (s->at.x = 0; s->at.x < grid.x && !s->err.code; s->at.x++) {
                hs_emu_block_begin(s, shared_bytes);
#if HS_EMU_RACE
                hs_emu_race_block(s->at.x + grid.x * (s->at.y + grid.y * s->at.z));
#endif
                hs_emu_block_run(s);
            }
    hs_emu_now = NULL;
#if HS_EMU_RACE
    hs_emu_race_close(s);
#endif
    if (s->err.code) /* threads were left in the middle of the kernel */
        hs_emu_fibers_start(s);
}

/* --- the queue ------------------------------------------------------------------------- */

static inline void hs_emu_list_free(hs_emu_list *l)
{
    while (l->first) {
        hs_emu_task *t = l->first;
        l->first = t->next;
        free(t);
    }
    l->end = &l->first;
}

/* Do it now, or when the host waits, or with a graph; f is copied and takes the stream. */
template <class F> static void hs_emu_do(hs_emu_stream *s, F f)
{
    if (!s->deferred && !s->capture) {
        f(s);
        return;
    }
    hs_emu_task *t = (hs_emu_task *)malloc(sizeof *t + sizeof f);
    if (!t) {
        hs_fail(&s->err, HS_ERR_NOMEM, "out of memory");
        return;
    }
    t->next = NULL;
    t->run = [](hs_emu_stream *on, const void *p) { (*static_cast<const F *>(p))(on); };
    memcpy(t->args, &f, sizeof f);
    hs_emu_list *l = s->capture ? s->capture : &s->queue;
    *l->end = t;
    l->end = &t->next;
    s->n_queued += !s->capture;
}

/* Do what was queued first, until `upto` tasks are done in all.  Nothing is done after a failure.
 */
static inline void hs_emu_catch_up(hs_emu_stream *s, uint64_t upto)
{
    while (s->queue.first && s->n_done < upto) {
        hs_emu_task *t = s->queue.first;
        s->queue.first = t->next;
        if (!t->next)
            s->queue.end = &s->queue.first;
        s->n_done++;
        if (!s->err.code)
            t->run(s, t->args);
        free(t);
    }
}

template <class... P, class... A>
static void hs_emu_launch(hs_emu_stream *s, const char *name, dim3 grid, dim3 block,
                          size_t shared_bytes, void (*kernel)(P...), A... args)
{
    hs_emu_do(s, [=](hs_emu_stream *on) {
        const auto body = [=] { kernel(args...); };
        using body_type = decltype(body);
        hs_emu_run(
            on, name, grid, block, shared_bytes,
            [](const void *p) { (*static_cast<body_type *>(p))(); }, &body);
    });
}

#define HS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    hs_emu_launch(stream, #kernel, grid, block, shared_bytes, kernel, __VA_ARGS__)

/* The launch's dynamic shared memory as an array of `type`. */
#define HS_SHARED(type, name) type *name = reinterpret_cast<type *>(hs_emu_now->shared)

/* --- barriers and warp operations ---------------------------------------------------- */

__attribute__((noinline, unused)) static void hs_emu_barrier(hs_emu_stream *s, int line)
{
    hs_emu_fiber *f = s->cur;
    if (s->n_barrier++ == 0)
        s->barrier_line = line;
    else if (s->barrier_line != line)
        s->barrier_line2 = line;
    f->warp->ready &= ~(1u << f->lane);
    hs_emu_wait(s, f);
}

/* The lane whose value this lane gets. */
static inline unsigned hs_emu_source(hs_emu_op op, unsigned lane, uint32_t arg, unsigned width)
{
    const unsigned first = lane & ~(width - 1), last = first + width - 1;
    switch (op) {
    case HS_EMU_XOR: return (lane ^ arg) <= last ? lane ^ arg : lane;
    case HS_EMU_DOWN: return arg <= last - lane ? lane + arg : lane;
    case HS_EMU_UP: return arg <= lane - first ? lane - arg : lane;
    case HS_EMU_IDX: return first + (arg & (width - 1));
    case HS_EMU_SYNC:
    case HS_EMU_BALLOT: break;
    }
    return lane;
}

/* The usual call: an exchange by XOR within an aligned group of lanes, all with one operand. */
static inline bool hs_emu_butterfly(hs_emu_warp *w, uint32_t mask)
{
    const unsigned first = (unsigned)__builtin_ctz(mask), n = (unsigned)__builtin_popcount(mask);
    const uint32_t arg = w->arg[first];
    uint32_t same = 0;
    if ((n & (n - 1)) != 0 || first % n != 0 || mask >> first != (uint32_t)((1ull << n) - 1) ||
        arg >= n)
        return false;
    for (unsigned lane = first; lane < first + n; lane++)
        same |= w->arg[lane] ^ arg;
    if (same)
        return false;
    for (unsigned lane = first; lane < first + n; lane++)
        w->result[lane] = w->value[lane ^ arg];
    return true;
}

static inline void hs_emu_ballot(hs_emu_warp *w, uint32_t mask)
{
    uint32_t ballot = 0;
    for (uint32_t m = mask; m; m &= m - 1)
        ballot |= (uint32_t)(w->value[__builtin_ctz(m)] != 0) << __builtin_ctz(m);
    for (uint32_t m = mask; m; m &= m - 1)
        w->result[__builtin_ctz(m)] = ballot;
}

static inline void hs_emu_exchange_any(hs_emu_warp *w, hs_emu_op op, uint32_t mask, unsigned width)
{
    for (uint32_t m = mask; m; m &= m - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(m);
        const unsigned from = hs_emu_source(op, lane, w->arg[lane], width);
        /* A lane outside the mask has no defined value. */
        w->result[lane] = mask >> from & 1 ? w->value[from] : 0xffffffffu;
    }
}

/* The last lane of `mask` has arrived: answer all of them. */
__attribute__((noinline, unused)) static bool hs_emu_finish(hs_emu_warp *w, uint64_t key)
{
    const uint32_t mask = (uint32_t)(key >> 32);
    const hs_emu_op op = (hs_emu_op)(key & 0xff);
    uint64_t differ = 0;
    for (unsigned lane = 0; lane < HS_EMU_WARP; lane++)
        differ |= mask >> lane & 1 ? w->key[lane] ^ key : 0;
    if (differ)
        return false;
    if (op == HS_EMU_BALLOT)
        hs_emu_ballot(w, mask);
    else if (op != HS_EMU_SYNC && (op != HS_EMU_XOR || !hs_emu_butterfly(w, mask)))
        hs_emu_exchange_any(w, op, mask, (unsigned)(key >> 8 & 0xff));
#if HS_EMU_RACE
    if (op == HS_EMU_SYNC)
        hs_emu_race_syncwarp(w->fiber->index / HS_EMU_WARP, mask);
#endif
    w->waiting &= ~mask;
    w->ready |= mask;
    return true;
}

__attribute__((noinline, unused)) static uint32_t hs_emu_collect(hs_emu_stream *s, uint64_t key,
                                                                 uint32_t value, uint32_t arg)
{
    hs_emu_fiber *f = s->cur;
    hs_emu_warp *w = f->warp;
    const unsigned lane = f->lane;
    const uint32_t mask = (uint32_t)(key >> 32) & w->lanes;
    key = (uint64_t)mask << 32 | (uint32_t)key;
    if (!(mask >> lane & 1))
        hs_emu_fault(s, "a warp operation whose mask leaves out the caller");
    if (mask & ~w->live)
        hs_emu_fault(s, "a warp operation with a lane that has returned");
    w->key[lane] = key;
    w->value[lane] = value;
    w->arg[lane] = arg;
    w->waiting |= 1u << lane;
    if ((w->waiting & mask) != mask) {
        w->ready &= ~(1u << lane);
        hs_emu_wait(s, f);
    } else if (!hs_emu_finish(w, key)) {
        hs_emu_fault(s, "lanes of a warp meet in different operations or masks");
    }
    return w->result[lane];
}

static inline uint32_t hs_emu_call(hs_emu_op op, unsigned mask, uint32_t value, uint32_t arg,
                                   int width)
{
    return hs_emu_now->collect(hs_emu_now, (uint64_t)mask << 32 | (uint32_t)width << 8 | op, value,
                               arg);
}

template <class T>
static inline T hs_emu_shuffle(hs_emu_op op, unsigned mask, T v, unsigned arg, int width)
{
    static_assert(sizeof(T) == 4, "32-bit values only");
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = hs_emu_call(op, mask, bits, arg, width);
    memcpy(&v, &bits, 4);
    return v;
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32)
{
    return hs_emu_shuffle(HS_EMU_XOR, mask, v, (unsigned)x, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    return hs_emu_shuffle(HS_EMU_DOWN, mask, v, d, width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    return hs_emu_shuffle(HS_EMU_UP, mask, v, d, width);
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    return hs_emu_shuffle(HS_EMU_IDX, mask, v, (unsigned)lane, width);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return hs_emu_call(HS_EMU_BALLOT, mask, (uint32_t)predicate, 0, 32);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    hs_emu_call(HS_EMU_SYNC, mask, 0, 0, 32);
}

/* --- atomics: fibers switch nowhere else, so a plain update is indivisible ----------- */

template <class T, class F> static inline T hs_emu_update(T *p, F f)
{
#if HS_EMU_RACE
    hs_emu_race_atomic(true);
#endif
    const T old = *p;
    *p = f(old);
#if HS_EMU_RACE
    hs_emu_race_atomic(false);
#endif
    return old;
}
template <class T> static inline T atomicAdd(T *p, T v)
{
    return hs_emu_update(p, [v](T old) { return old + v; });
}
template <class T> static inline T atomicExch(T *p, T v)
{
    return hs_emu_update(p, [v](T) { return v; });
}
template <class T> static inline T atomicOr(T *p, T v)
{
    return hs_emu_update(p, [v](T old) { return old | v; });
}
template <class T> static inline T atomicMax(T *p, T v)
{
    return hs_emu_update(p, [v](T old) { return old > v ? old : v; });
}
template <class T> static inline T atomicMin(T *p, T v)
{
    return hs_emu_update(p, [v](T old) { return old < v ? old : v; });
}
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    return hs_emu_update(p, [=](T old) { return old == expected ? v : old; });
}
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

/* --- arithmetic ---------------------------------------------------------------------- */

static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline int __float2int_rn(float f) { return (int)lrintf(f); }
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)((unsigned)a >> i) * (int8_t)((unsigned)b >> i);
    return c;
}

#endif
