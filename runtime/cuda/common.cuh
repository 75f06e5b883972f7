#ifndef HS_RUNTIME_CUDA_COMMON_CUH
#define HS_RUNTIME_CUDA_COMMON_CUH

/* What all device source files share: the device object, launching, and the canonical row
 * product of runtime/kernels.h for every weight type.
 *
 * Each .cu is compiled twice, by nvcc and for the CPU, and both objects may be in one program:
 * HS_DEV() gives the few functions that cross files a name of their own in each. */

#include "runtime/device.h"
#include "runtime/mathx.h"

#ifdef HS_CUDA_EMU
#include "runtime/cuda/emu_runtime.h"
#define HS_DEV(name) hs_device_emu_##name
#define HS_DEV_NAME  "emu"
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define HS_DEV(name) hs_device_cuda_##name
#define HS_DEV_NAME  "cuda"
#define HS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#endif

/* Threads of every block, its warps, and the rows that a group of lanes computes together. */
static constexpr unsigned HS_BLOCK = 128, HS_WARPS = HS_BLOCK / 32, HS_ROWS = 4;
static constexpr unsigned HS_MAX_RECV = 32;

/* One receive that waits in pinned memory for sync to hand it over. */
typedef struct hs_dev_recv {
    void *dst;
    const uint8_t *src;
    size_t bytes;
} hs_dev_recv;

struct hs_device {
    uint8_t *arena;
    uint64_t arena_bytes, used;
    cudaStream_t stream;
    int ordinal;
    hs_err err; /* first failure since the last sync; nothing is queued after it */
    /* Pinned memory that sends and receives go through, so that the copies are asynchronous and
     * the host's pointers may be any; started over by each sync. */
    uint8_t *stage;
    size_t stage_bytes, stage_used;
    hs_dev_recv recv[HS_MAX_RECV];
    unsigned n_recv;
};

/* --- host side, device.cu ------------------------------------------------------------ */

extern "C" {
/* Make the device current on this host thread; false when a failure is pending. */
bool HS_DEV(begin)(hs_device *dev);
/* Notice a launch that was refused. */
void HS_DEV(end)(hs_device *dev, const char *what);
/* Record a failure, unless one is pending. */
void HS_DEV(fail)(hs_device *dev, const char *fmt, ...) HS_PRINTF(2, 3);
/* The buffer lies in allocated memory and holds `bytes`; else records a failure. */
bool HS_DEV(holds)(hs_device *dev, hs_buf buf, uint64_t bytes, const char *what);
/* The matrix has this shape, a type with kernels, and lies in allocated memory. */
bool HS_DEV(shape)(hs_device *dev, const hs_dev_mat *m, uint32_t rows, uint32_t cols,
                   const char *what);

/* linear.cu: y = x * scale(x) * w, RMSNorm; all f32 [n]. */
void HS_DEV(norm)(hs_device *dev, hs_buf y, hs_buf x, hs_buf w, uint32_t n, float eps);
}

/* What scratch.act_q/act_d hold at the moment: the quantized form of one f32 buffer. */
typedef struct hs_dev_quantized {
    bool any;
    uint64_t offset;
} hs_dev_quantized;

/* The activation a kernel reads: x by float rows, q and d by quantized ones. */
typedef struct hs_dev_act {
    const float *x;
    const int8_t *q;
    const float *d;
} hs_dev_act;

extern "C" {
/* The activation for products of m with x; quantizes x when m needs that and it is not yet. */
hs_dev_act HS_DEV(activation)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m,
                              hs_buf x, hs_dev_quantized *have);
/* y = m x, f32 [m->rows]; relu keeps positive values only. */
void HS_DEV(matvec)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m, hs_buf y,
                    hs_buf x, bool relu, hs_dev_quantized *have);
}

template <class T> static inline T *hs_dev_ptr(const hs_device *dev, hs_buf buf)
{
    return reinterpret_cast<T *>(dev->arena + buf.offset);
}

/* Launch `kernel<type>`; the type was checked by HS_DEV(shape). */
#define HS_LAUNCH_BY_TYPE(type, kernel, grid, block, shared_bytes, stream, ...)           \
    do {                                                                                  \
        switch (type) {                                                                   \
        case HS_F32:                                                                      \
            HS_LAUNCH(kernel<HS_F32>, grid, block, shared_bytes, stream, __VA_ARGS__);    \
            break;                                                                        \
        case HS_F16:                                                                      \
            HS_LAUNCH(kernel<HS_F16>, grid, block, shared_bytes, stream, __VA_ARGS__);    \
            break;                                                                        \
        case HS_BF16:                                                                     \
            HS_LAUNCH(kernel<HS_BF16>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q8_0:                                                                     \
            HS_LAUNCH(kernel<HS_Q8_0>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q5_0:                                                                     \
            HS_LAUNCH(kernel<HS_Q5_0>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q4_0:                                                                     \
            HS_LAUNCH(kernel<HS_Q4_0>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q6_K:                                                                     \
            HS_LAUNCH(kernel<HS_Q6_K>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q4_1:                                                                     \
            HS_LAUNCH(kernel<HS_Q4_1>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q5_1:                                                                     \
            HS_LAUNCH(kernel<HS_Q5_1>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q2_K:                                                                     \
            HS_LAUNCH(kernel<HS_Q2_K>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q3_K:                                                                     \
            HS_LAUNCH(kernel<HS_Q3_K>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q4_K:                                                                     \
            HS_LAUNCH(kernel<HS_Q4_K>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_Q5_K:                                                                     \
            HS_LAUNCH(kernel<HS_Q5_K>, grid, block, shared_bytes, stream, __VA_ARGS__);   \
            break;                                                                        \
        case HS_IQ4_NL:                                                                   \
            HS_LAUNCH(kernel<HS_IQ4_NL>, grid, block, shared_bytes, stream, __VA_ARGS__); \
            break;                                                                        \
        case HS_IQ4_XS:                                                                   \
            HS_LAUNCH(kernel<HS_IQ4_XS>, grid, block, shared_bytes, stream, __VA_ARGS__); \
            break;                                                                        \
        default: break;                                                                   \
        }                                                                                 \
    } while (0)

static inline bool hs_dev_type_quantized(hs_dtype t)
{
    switch (t) {
    case HS_Q8_0:
    case HS_Q5_0:
    case HS_Q4_0:
    case HS_Q6_K:
    case HS_Q4_1:
    case HS_Q5_1:
    case HS_Q2_K:
    case HS_Q3_K:
    case HS_Q4_K:
    case HS_Q5_K:
    case HS_IQ4_NL:
    case HS_IQ4_XS: return true;
    default: return false;
    }
}

/* Threads that share one row. */
static inline unsigned hs_dev_type_lanes(hs_dtype t) { return hs_dev_type_quantized(t) ? 16 : 32; }

/* Blocks for `rows` rows of this type. */
static inline unsigned hs_dev_row_blocks(hs_dtype t, uint32_t rows)
{
    const unsigned per = HS_BLOCK / hs_dev_type_lanes(t) * HS_ROWS;
    return (unsigned)(((uint64_t)rows + per - 1) / per);
}

/* --- device side --------------------------------------------------------------------- */

static __device__ __forceinline__ float hs_dev_f16(uint16_t h)
{
#ifdef HS_CUDA_EMU
    /* The exponent is moved from bias 15 to bias 127 by a product, which also makes subnormals
     * right; infinity and NaN get the largest exponent. */
    hs_f32_bits v;
    v.u = (uint32_t)(h & 0x7fff) << 13;
    v.f *= 0x1p112f;
    if ((h & 0x7c00) == 0x7c00)
        v.u |= 0x7f800000u;
    v.u |= (uint32_t)(h & 0x8000) << 16;
    return v.f;
#else
    return __half2float(__ushort_as_half(h));
#endif
}

static __device__ __forceinline__ uint16_t hs_dev_to_f16(float f)
{
#ifdef HS_CUDA_EMU
    return hs_f32_to_f16(f);
#else
    return __half_as_ushort(__float2half_rn(f));
#endif
}

/* Rows of quantized blocks are aligned to 2 bytes only. */
static __device__ __forceinline__ uint32_t hs_dev_load_u32(const uint8_t *p)
{
    const uint16_t *h = reinterpret_cast<const uint16_t *>(p);
    return h[0] | (uint32_t)h[1] << 16;
}

static __device__ __forceinline__ float hs_dev_load_f16(const uint8_t *p)
{
    return hs_dev_f16(*reinterpret_cast<const uint16_t *>(p));
}

/* The halving tree over `lanes` neighbouring lanes; every lane gets the result.  A butterfly adds
 * the same pairs as lane[j] += lane[j + h], perhaps swapped, which changes no bit. */
static __device__ __forceinline__ float hs_dev_sum(float v, int lanes, unsigned mask)
{
    for (int h = lanes / 2; h > 0; h /= 2)
        v = hs_addf(v, __shfl_xor_sync(mask, v, h));
    return v;
}

#include "runtime/cuda/rows.cuh"

/* A group of lanes computes HS_ROWS rows at a time: their halving trees share one butterfly, which
 * takes 6 exchanges instead of 5 (or 4) for each row, and more loads are in flight. */
template <hs_dtype T> struct hs_group {
    static constexpr unsigned lanes = hs_row<T>::lanes, share = lanes / HS_ROWS;
    uint32_t first, mine; /* rows first … first + 3; the one whose result this lane gets */
    unsigned lane, mask;
    __device__ __forceinline__ explicit hs_group(uint32_t group)
    {
        lane = threadIdx.x % lanes;
        mask = lanes == 32 ? 0xffffffffu : 0xffffu << (threadIdx.x & 16);
        first = group * HS_ROWS;
        mine = first + lane / share;
    }
    /* Of each row, the lane that stores its result. */
    __device__ __forceinline__ bool leads() const { return lane % share == 0; }
    /* Bit r: row first + r is wanted by its lanes. */
    __device__ __forceinline__ unsigned wanted(bool mine_is) const
    {
        const unsigned b = __ballot_sync(mask, mine_is) >> (threadIdx.x % 32 - lane);
        return (b & 1) | (b >> share & 1) << 1 | (b >> 2 * share & 1) << 2 |
               (b >> 3 * share & 1) << 3;
    }
};

/* This thread's group among all of the launch. */
template <hs_dtype T> static __device__ __forceinline__ uint32_t hs_dev_group_index()
{
    return (blockIdx.x * HS_BLOCK + threadIdx.x) / hs_row<T>::lanes;
}

/* One step of the tree for two rows: lanes with bit h clear go on with a, the others with b. */
static __device__ __forceinline__ float hs_dev_fold(float a, float b, unsigned lane, int h,
                                                    unsigned mask)
{
    const bool upper = lane & (unsigned)h;
    return hs_addf(upper ? b : a, __shfl_xor_sync(mask, upper ? a : b, h));
}

/* The canonical products of the wanted rows with the activation; a lane gets that of its row. */
template <hs_dtype T>
static __device__ __forceinline__ float hs_dev_dots(const uint8_t *w, uint64_t row_bytes,
                                                    unsigned wanted, hs_dev_act a, uint32_t n,
                                                    const hs_group<T> &g)
{
    constexpr int lanes = hs_row<T>::lanes;
    const uint8_t *row = w + g.first * row_bytes;
    const float p0 = wanted & 1 ? hs_row<T>::partial(row, a, n, g.lane) : 0;
    const float p1 = wanted & 2 ? hs_row<T>::partial(row + row_bytes, a, n, g.lane) : 0;
    const float p2 = wanted & 4 ? hs_row<T>::partial(row + 2 * row_bytes, a, n, g.lane) : 0;
    const float p3 = wanted & 8 ? hs_row<T>::partial(row + 3 * row_bytes, a, n, g.lane) : 0;
    const float even = hs_dev_fold(p0, p2, g.lane, lanes / 2, g.mask);
    const float odd = hs_dev_fold(p1, p3, g.lane, lanes / 2, g.mask);
    return hs_dev_sum(hs_dev_fold(even, odd, g.lane, lanes / 4, g.mask), lanes / 4, g.mask);
}

#endif
