#ifndef HS_RUNTIME_CUDA_EMU_RUNTIME_H
#define HS_RUNTIME_CUDA_EMU_RUNTIME_H

/* The calls of the CUDA runtime that device.cu makes, for the emulation: memory is the heap, and
 * a stream does everything at once. */

#include "runtime/cuda/emu.h"

typedef hs_emu_stream *cudaStream_t;
typedef enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorLaunchFailure = 719,
} cudaError_t;
typedef enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
} cudaMemcpyKind;

static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetLastError(void) { return cudaSuccess; }
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
static inline cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return posix_memalign(p, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamCreate(cudaStream_t *out)
{
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
    *out = s;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    hs_emu_fibers_free(s);
#if HS_EMU_ASAN
    __asan_unpoison_memory_region(s->shared, HS_EMU_MAX_SHARED);
#endif
    free(s->shared);
    free(s);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return s->err.code ? cudaErrorLaunchFailure : cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind,
                                          cudaStream_t)
{
    memcpy(dst, src, n);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t)
{
    memset(dst, value, n);
    return cudaSuccess;
}
static inline const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory" : "kernel failure";
}

#endif
