#include "tests/unit/test_emu.h"

#include "runtime/cuda/emu_runtime.h"

static hs_status take(cudaStream_t s, hs_err *err)
{
    const hs_status st = s->err.code;
    if (st && err)
        *err = s->err;
    s->err.code = HS_OK;
    return st;
}

static hs_status finish(cudaStream_t s, hs_err *err)
{
    const hs_status st = take(s, err);
    cudaStreamDestroy(s);
    return st;
}

static cudaStream_t stream_new(void)
{
    cudaStream_t s;
    if (cudaStreamCreate(&s) != cudaSuccess)
        abort();
    return s;
}

static __global__ void k_ids(uint32_t *out)
{
    const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
    const unsigned thread = threadIdx.x + blockDim.x * threadIdx.y;
    out[block * blockDim.x * blockDim.y + thread] = block * 10000 + threadIdx.y * 100 + threadIdx.x;
}

hs_status hs_test_emu_ids(uint32_t *out, unsigned gx, unsigned gy, unsigned bx, unsigned by,
                          hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_ids, dim3(gx, gy), dim3(bx, by), 0, s, out);
    return finish(s, err);
}

static __global__ void k_reduce(uint32_t *out, const uint32_t *in)
{
    __shared__ uint32_t part[256];
    const unsigned t = threadIdx.x;
    part[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned h = 128; h > 0; h /= 2) {
        if (t < h)
            part[t] += part[t + h];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

hs_status hs_test_emu_reduce(uint32_t *out, const uint32_t *in, unsigned n_block, hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_reduce, n_block, 256, 0, s, out, in);
    return finish(s, err);
}

static __global__ void k_reverse(uint32_t *out, const uint32_t *in)
{
    HS_SHARED(uint32_t, tile);
    const unsigned t = threadIdx.x;
    tile[blockDim.x - 1 - t] = in[t];
    __syncthreads();
    out[t] = tile[t];
}

hs_status hs_test_emu_reverse(uint32_t *out, const uint32_t *in, unsigned n, hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_reverse, 1, n, n * sizeof(uint32_t), s, out, in);
    return finish(s, err);
}

static __global__ void k_warp(uint32_t *out)
{
    const unsigned lane = threadIdx.x, all = 0xffffffffu;
    const uint32_t v = 100 + lane;
    out[0 * 32 + lane] = __shfl_xor_sync(all, v, 5);
    out[1 * 32 + lane] = __shfl_down_sync(all, v, 3);
    out[2 * 32 + lane] = __shfl_up_sync(all, v, 2);
    out[3 * 32 + lane] = __shfl_sync(all, v, 7);
    out[4 * 32 + lane] = __shfl_down_sync(all, v, 3, 8);
    out[5 * 32 + lane] = __ballot_sync(all, lane & 1);
    out[6 * 32 + lane] = (uint32_t)__any_sync(all, lane == 9) + 2 * (uint32_t)__any_sync(all, 0);
    out[7 * 32 + lane] = (uint32_t)__all_sync(all, 1) + 2 * (uint32_t)__all_sync(all, lane != 9);
}

hs_status hs_test_emu_warp(uint32_t (*out)[32], hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_warp, 1, 32, 0, s, &out[0][0]);
    return finish(s, err);
}

static __global__ void k_halves(uint32_t *out)
{
    const unsigned lane = threadIdx.x, mask = 0xffffu << (lane & 16);
    uint32_t v = lane;
    for (unsigned round = 0; round < (lane < 16 ? 3u : 1u); round++)
        for (int h = 8; h > 0; h /= 2)
            v += __shfl_xor_sync(mask, v, h);
    v += 1000 * (uint32_t)__popc(__ballot_sync(0xffffffffu, 1));
    out[lane] = v;
}

hs_status hs_test_emu_halves(uint32_t *out, hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_halves, 1, 32, 0, s, out);
    return finish(s, err);
}

static __global__ void k_atomics(uint32_t *sum, float *fsum, uint32_t *max, uint32_t *min,
                                 uint32_t *wins, uint32_t *owner, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(sum, 1u);
    atomicAdd(fsum, 0.5f);
    atomicMax(max, i);
    atomicMin(min, i);
    if (atomicCAS(owner, 0xffffffffu, i) == 0xffffffffu)
        atomicAdd(wins, 1u);
}

hs_status hs_test_emu_atomics(uint32_t *sum, float *fsum, uint32_t *max, uint32_t *min,
                              uint32_t *wins, unsigned n, hs_err *err)
{
    cudaStream_t s = stream_new();
    uint32_t owner = 0xffffffffu;
    HS_LAUNCH(k_atomics, (n + 95) / 96, 96, 0, s, sum, fsum, max, min, wins, &owner, n);
    return finish(s, err);
}

static __global__ void k_syncwarp(uint32_t *seen, int sync)
{
    __shared__ uint32_t slot[32];
    const unsigned lane = threadIdx.x;
    slot[lane] = 0;
    __syncthreads();
    slot[lane] = lane + 1;
    if (sync)
        __syncwarp();
    if (slot[(lane + 1) % 32] == (lane + 1) % 32 + 1)
        atomicAdd(seen, 1u);
}

hs_status hs_test_emu_syncwarp(uint32_t *seen, int sync, hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_syncwarp, 1, 32, 0, s, seen, sync);
    return finish(s, err);
}

static __global__ void k_uninit(uint32_t *out)
{
    HS_SHARED(uint32_t, tile);
    out[blockIdx.x] = tile[3];
    __syncthreads();
    tile[3] = 0;
}

hs_status hs_test_emu_uninit(uint32_t out[2], hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_uninit, 2, 1, 16, s, out);
    return finish(s, err);
}

static __global__ void k_exit(uint32_t *out)
{
    if (threadIdx.x & 1)
        return;
    __syncthreads();
    *out = 1;
}

static __global__ void k_two_lines(uint32_t *out)
{
    if (threadIdx.x < blockDim.x / 2)
        __syncthreads();
    else
        __syncthreads();
    *out = 1;
}

static __global__ void k_warp_exit(uint32_t *out)
{
    if (threadIdx.x == 3)
        return;
    *out = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}

static __global__ void k_warp_late(uint32_t *out)
{
    if (threadIdx.x == 40)
        __syncthreads();
    *out = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}

static __global__ void k_mixed(uint32_t *out)
{
    if (threadIdx.x & 1)
        *out = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
    else
        *out = __ballot_sync(0xffffffffu, 1);
}

static __global__ void k_outside(uint32_t *out) { *out = __shfl_xor_sync(0xffffu, threadIdx.x, 1); }

static __global__ void k_answer(uint32_t *out)
{
    __syncthreads();
    if (threadIdx.x == 0)
        *out = 42;
}

hs_status hs_test_emu_plant(hs_test_emu_fault fault, uint32_t *after, hs_err *err)
{
    cudaStream_t s = stream_new();
    uint32_t out = 0;
    switch (fault) {
    case HS_TEST_EMU_EXIT: HS_LAUNCH(k_exit, 2, 128, 0, s, &out); break;
    case HS_TEST_EMU_TWO_LINES: HS_LAUNCH(k_two_lines, 1, 64, 0, s, &out); break;
    case HS_TEST_EMU_WARP_EXIT: HS_LAUNCH(k_warp_exit, 1, 32, 0, s, &out); break;
    case HS_TEST_EMU_WARP_LATE: HS_LAUNCH(k_warp_late, 1, 64, 0, s, &out); break;
    case HS_TEST_EMU_MIXED: HS_LAUNCH(k_mixed, 1, 32, 0, s, &out); break;
    case HS_TEST_EMU_OUTSIDE: HS_LAUNCH(k_outside, 1, 32, 0, s, &out); break;
    case HS_TEST_EMU_BLOCK: HS_LAUNCH(k_answer, 1, 1025, 0, s, &out); break;
    case HS_TEST_EMU_GRID: HS_LAUNCH(k_answer, 0, 32, 0, s, &out); break;
    case HS_TEST_EMU_SHARED: HS_LAUNCH(k_answer, 1, 32, (48 << 10) + 1, s, &out); break;
    case HS_TEST_EMU_N_FAULT: break;
    }
    const hs_status st = take(s, err);
    HS_LAUNCH(k_answer, 1, 128, 0, s, after);
    const hs_status st2 = finish(s, NULL);
    return st2 ? HS_ERR_FAILED : st;
}

static __global__ void k_overrun(uint32_t *out)
{
    HS_SHARED(uint32_t, tile);
    *out = tile[4];
}

hs_status hs_test_emu_overrun(uint32_t *out, hs_err *err)
{
    cudaStream_t s = stream_new();
    HS_LAUNCH(k_overrun, 1, 1, 16, s, out);
    return finish(s, err);
}

/* --- for the detector ------------------------------------------------------------------ */

/* A lane reads its neighbour's word: a tile of shared memory, one word a thread. */
static __global__ void k_neighbour(uint32_t *out, hs_test_emu_race what)
{
    __shared__ uint32_t tile[64];
    const unsigned t = threadIdx.x, next = (t + 1) % blockDim.x;
    tile[t] = t;
    switch (what) {
    case HS_TEST_EMU_GOOD_BARRIER: __syncthreads(); break;
    case HS_TEST_EMU_GOOD_SYNCWARP: __syncwarp(); break;
    case HS_TEST_EMU_ONLY_SHUFFLE: __shfl_xor_sync(0xffffffffu, t, 1); break;
    case HS_TEST_EMU_HALF_SYNCWARP: __syncwarp(t < 16 ? 0xffffu : 0xffff0000u); break;
    default: break;
    }
    out[t] = tile[next];
}

static __global__ void k_chain(uint32_t *out)
{
    __shared__ uint32_t word;
    const unsigned t = threadIdx.x;
    if (t == 0)
        word = 7;
    if (t < 2)
        __syncwarp(3);
    if (t == 1 || t == 2)
        __syncwarp(6);
    if (t == 2)
        *out = word;
}

static __global__ void k_words(uint32_t *out, hs_test_emu_race what)
{
    const unsigned t = threadIdx.x;
    uint8_t *byte = reinterpret_cast<uint8_t *>(out);
    uint16_t *half = reinterpret_cast<uint16_t *>(out);
    switch (what) {
    case HS_TEST_EMU_WRITE_WRITE: out[t / 2] = t; break;
    case HS_TEST_EMU_READ_WRITE:
        if (t == 0)
            out[1] = out[0];
        if (t == 40)
            out[0] = 1;
        break;
    case HS_TEST_EMU_BYTES:
        if (t == 0)
            half[0] = 1;
        if (t == 1)
            byte[1] = 1;
        break;
    case HS_TEST_EMU_GOOD_BYTES: byte[t] = 1; break;
    case HS_TEST_EMU_PLAIN_ATOMIC:
    case HS_TEST_EMU_GOOD_ATOMIC:
        atomicAdd(out, 1u);
        if (what == HS_TEST_EMU_PLAIN_ATOMIC && t == 9)
            out[1] = out[0];
        break;
    case HS_TEST_EMU_PAST_GLOBAL:
        if (t == 0)
            out[0] = out[64];
        break;
    case HS_TEST_EMU_BEFORE_GLOBAL:
        if (t == 0)
            out[0] = out[-1];
        break;
    default: break;
    }
}

static __global__ void k_blocks(uint32_t *out, hs_test_emu_race what)
{
    __shared__ uint32_t word;
    if (what == HS_TEST_EMU_BLOCKS) {
        if (blockIdx.x == 0)
            out[0] = 1;
        else
            out[1] = out[0];
        return;
    }
    if (threadIdx.x == 33)
        word = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 5)
        out[blockIdx.x] = word;
}

static __global__ void k_reuse(uint32_t *out, int again)
{
    __shared__ uint32_t tile[64];
    const unsigned t = threadIdx.x;
    uint32_t sum = 0;
    for (unsigned round = 0; round < 3; round++) {
        tile[t] = t + round;
        __syncthreads();
        sum += tile[63 - t];
        if (again)
            __syncthreads();
    }
    out[t] = sum;
}

static __global__ void k_past_shared(uint32_t *out)
{
    HS_SHARED(uint32_t, tile);
    tile[threadIdx.x] = 1;
    out[threadIdx.x] = tile[threadIdx.x == 31 ? 32 : threadIdx.x];
}

int hs_test_emu_detects(void) { return HS_EMU_RACE; }

hs_status hs_test_emu_race_case(hs_test_emu_race what, hs_err *err)
{
    cudaStream_t s = stream_new();
    void *p;
    if (cudaMalloc(&p, 256) != cudaSuccess)
        abort();
    uint32_t *out = static_cast<uint32_t *>(p);
    switch (what) {
    case HS_TEST_EMU_NO_BARRIER: HS_LAUNCH(k_neighbour, 1, 64, 0, s, out, what); break;
    case HS_TEST_EMU_NO_SYNCWARP:
    case HS_TEST_EMU_ONLY_SHUFFLE:
    case HS_TEST_EMU_HALF_SYNCWARP:
    case HS_TEST_EMU_GOOD_BARRIER:
    case HS_TEST_EMU_GOOD_SYNCWARP: HS_LAUNCH(k_neighbour, 1, 32, 0, s, out, what); break;
    case HS_TEST_EMU_GOOD_CHAIN: HS_LAUNCH(k_chain, 1, 32, 0, s, out); break;
    case HS_TEST_EMU_BLOCKS:
    case HS_TEST_EMU_GOOD_BLOCKS: HS_LAUNCH(k_blocks, 2, 64, 0, s, out, what); break;
    case HS_TEST_EMU_REUSE: HS_LAUNCH(k_reuse, 1, 64, 0, s, out, 0); break;
    case HS_TEST_EMU_GOOD_REUSE: HS_LAUNCH(k_reuse, 1, 64, 0, s, out, 1); break;
    case HS_TEST_EMU_PAST_SHARED: HS_LAUNCH(k_past_shared, 1, 32, 128, s, out); break;
    case HS_TEST_EMU_GOOD_ATOMIC: HS_LAUNCH(k_words, 3, 64, 0, s, out, what); break;
    case HS_TEST_EMU_GOOD_LAUNCHES:
        HS_LAUNCH(k_reuse, 1, 64, 0, s, out, 1);
        HS_LAUNCH(k_reuse, 1, 64, 0, s, out, 1);
        break;
    default: HS_LAUNCH(k_words, 1, 64, 0, s, out, what); break;
    }
    const hs_status st = finish(s, err);
    cudaFree(p);
    return st;
}

struct hs_test_emu_stream {
    cudaStream_t s;
};

hs_test_emu_stream *hs_test_emu_open(void)
{
    hs_test_emu_stream *t = (hs_test_emu_stream *)malloc(sizeof *t);
    if (!t)
        abort();
    t->s = stream_new();
    return t;
}

void hs_test_emu_close(hs_test_emu_stream *t)
{
    cudaStreamDestroy(t->s);
    free(t);
}

static __global__ void k_step(uint32_t *out)
{
    __shared__ uint32_t part[2];
    uint32_t v = threadIdx.x;
    for (int h = 16; h > 0; h /= 2)
        v += __shfl_down_sync(0xffffffffu, v, (unsigned)h);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0)
        *out += part[0] + part[1];
}

hs_status hs_test_emu_step(hs_test_emu_stream *t, uint32_t *out, hs_err *err)
{
    HS_LAUNCH(k_step, 1, 64, 0, t->s, out);
    return take(t->s, err);
}
