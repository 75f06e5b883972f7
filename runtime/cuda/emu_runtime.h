#ifndef HS_RUNTIME_CUDA_EMU_RUNTIME_H
#define HS_RUNTIME_CUDA_EMU_RUNTIME_H

/* The calls of the CUDA runtime that device.cu makes, for the emulation.  Memory is the heap.  A
 * stream made with cudaStreamNonBlocking does nothing before the host waits for it: whoever reads a
 * result, or overwrites what a copy still has to read, too early gets wrong numbers every time. */

#include "runtime/cuda/emu.h"

typedef hs_emu_stream *cudaStream_t;
typedef enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorLaunchFailure = 719,
} cudaError_t;
typedef enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
} cudaMemcpyKind;
enum {
    cudaStreamNonBlocking = 1,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocPortable = 1,
    cudaDeviceScheduleBlockingSync = 4,
    cudaStreamCaptureModeThreadLocal = 1,
};

/* A test may define this: before each call that can fail it says with which error it does, or 0. */
extern "C" __attribute__((weak, visibility("default"))) int hs_emu_inject(const char *call);

static inline cudaError_t hs_emu_fails(const char *call)
{
    return hs_emu_inject ? (cudaError_t)hs_emu_inject(call) : cudaSuccess;
}

static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 8; /* as many as a placement may name */
    return hs_emu_fails("cudaGetDeviceCount");
}
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
/* All of the machine's memory: what the system calls free leaves out the page cache, which an
 * allocation would get. */
static inline cudaError_t cudaMemGetInfo(size_t *avail, size_t *total)
{
    *avail = *total = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return cudaSuccess;
}
/* A heap block of its own and of exactly this size, so that a bounds checker sees its ends; the
 * detector has room around it instead. */
static inline cudaError_t cudaMalloc(void **p, size_t bytes)
{
    constexpr size_t guard = HS_EMU_RACE ? 4096 : 0;
    void *block;
    const cudaError_t e = hs_emu_fails("cudaMalloc");
    if (e != cudaSuccess)
        return e;
    if (bytes > SIZE_MAX - 2 * guard || posix_memalign(&block, 256, bytes + 2 * guard) != 0)
        return cudaErrorMemoryAllocation;
    *p = (uint8_t *)block + guard;
#if HS_EMU_RACE
    static_assert(guard == HS_EMU_RACE_GUARD, "the detector's");
    hs_emu_race_alloc(*p, bytes);
#endif
    return cudaSuccess;
}
static inline cudaError_t cudaFree(void *p)
{
#if HS_EMU_RACE
    hs_emu_race_free(p);
#endif
    if (p)
        free((uint8_t *)p - (HS_EMU_RACE ? 4096 : 0));
    return cudaSuccess;
}

/* The arena of device.cu: nothing of it may be touched but the buffers handed out.  Fresh memory is
 * all ones, NaN: it holds nothing. */
static inline void hs_emu_arena_begin(uint8_t *arena, size_t bytes)
{
    (void)arena, (void)bytes;
#if HS_EMU_ASAN
    __asan_poison_memory_region(arena, bytes);
#endif
#if HS_EMU_RACE
    hs_emu_race_parts(arena);
#endif
}
static inline void hs_emu_arena_take(uint8_t *p, size_t bytes)
{
#if HS_EMU_ASAN
    __asan_unpoison_memory_region(p, bytes); /* not the rounding */
#endif
#if HS_EMU_RACE
    hs_emu_race_part(p, bytes);
#endif
    if (bytes)
        memset(p, 0xff, bytes);
}
static inline void hs_emu_arena_end(uint8_t *arena, size_t bytes)
{
    (void)arena, (void)bytes;
#if HS_EMU_ASAN
    if (arena)
        __asan_unpoison_memory_region(arena, bytes);
#endif
}
static inline cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    const cudaError_t e = hs_emu_fails("cudaHostAlloc");
    if (e != cudaSuccess)
        return e;
    return posix_memalign(p, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    const cudaError_t e = hs_emu_fails("cudaStreamCreate");
    if (e != cudaSuccess)
        return e;
    hs_emu_stream *s = (hs_emu_stream *)calloc(1, sizeof *s);
    uint8_t *shared = (uint8_t *)malloc(HS_EMU_MAX_SHARED);
    if (!s || !shared) {
        free(s);
        free(shared);
        return cudaErrorMemoryAllocation;
    }
    s->shared = shared;
    s->barrier = hs_emu_barrier;
    s->collect = hs_emu_collect;
    s->queue.end = &s->queue.first;
    s->deferred = flags & cudaStreamNonBlocking;
    *out = s;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, 0);
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    hs_emu_list_free(&s->queue);
    hs_emu_fibers_free(s);
#if HS_EMU_ASAN
    __asan_unpoison_memory_region(s->shared, HS_EMU_MAX_SHARED);
#endif
    free(s->shared);
    free(s);
    return cudaSuccess;
}
static inline cudaError_t hs_emu_wait_for(cudaStream_t s, uint64_t task, const char *call)
{
    const cudaError_t e = hs_emu_fails(call);
    if (e != cudaSuccess)
        return e;
    hs_emu_catch_up(s, task);
    return s->err.code ? cudaErrorLaunchFailure : cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return hs_emu_wait_for(s, s->n_queued, "cudaStreamSynchronize");
}
static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind,
                                          cudaStream_t s)
{
    const cudaError_t e = hs_emu_fails("cudaMemcpyAsync");
    if (e == cudaSuccess)
        hs_emu_do(s, [=](hs_emu_stream *) { memcpy(dst, src, n); });
    return e;
}
static inline cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t s)
{
    hs_emu_do(s, [=](hs_emu_stream *) { memset(dst, value, n); });
    return cudaSuccess;
}
/* A launch that is refused shows at the next call of this. */
static inline cudaError_t cudaGetLastError(void) { return hs_emu_fails("launch"); }

typedef struct hs_emu_event {
    cudaStream_t stream;
    uint64_t task;
} * cudaEvent_t;
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    const cudaError_t e = hs_emu_fails("cudaEventCreate");
    if (e != cudaSuccess)
        return e;
    *out = (cudaEvent_t)calloc(1, sizeof **out);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    e->stream = s;
    e->task = s->n_queued;
    return cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return e->stream ? hs_emu_wait_for(e->stream, e->task, "cudaEventSynchronize") : cudaSuccess;
}

/* A graph is the list of what was captured, and its instance the same list. */
typedef hs_emu_list *cudaGraph_t, *cudaGraphExec_t;
static inline cudaError_t cudaStreamBeginCapture(cudaStream_t s, int)
{
    hs_emu_list *l = (hs_emu_list *)calloc(1, sizeof *l);
    if (!l)
        return cudaErrorMemoryAllocation;
    l->end = &l->first;
    s->capture = l;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = s->capture;
    s->capture = NULL;
    return *out ? cudaSuccess : cudaErrorInvalidValue;
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, uint64_t)
{
    const cudaError_t e = hs_emu_fails("cudaGraphInstantiate");
    if (e != cudaSuccess)
        return e;
    hs_emu_list *l = (hs_emu_list *)calloc(1, sizeof *l);
    if (!l)
        return cudaErrorMemoryAllocation;
    *l = *g;
    if (!l->first)
        l->end = &l->first;
    g->first = NULL;
    g->end = &g->first;
    *out = l;
    return cudaSuccess;
}
static inline cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    if (g)
        hs_emu_list_free(g);
    free(g);
    return cudaSuccess;
}
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) { return cudaGraphDestroy(g); }
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s)
{
    hs_emu_do(s, [=](hs_emu_stream *on) {
        for (const hs_emu_task *t = g->first; t && !on->err.code; t = t->next)
            t->run(on, t->args);
    });
    return hs_emu_fails("cudaGraphLaunch");
}
static inline const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorDevicesUnavailable: return "the device is lost";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorLaunchFailure: return "kernel failure";
    case cudaSuccess: break;
    }
    return "no error";
}

#endif
