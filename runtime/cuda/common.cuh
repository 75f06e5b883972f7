#ifndef HS_RUNTIME_CUDA_COMMON_CUH
#define HS_RUNTIME_CUDA_COMMON_CUH

/* What all device source files share: the device object, launching, and the canonical row
 * product of runtime/kernels.h for every weight type.
 *
 * Each .cu is compiled twice, by nvcc and for the CPU, and both objects may be in one program:
 * HS_DEV() gives the few functions that cross files a name of their own in each. */

#include "runtime/device.h"
#include "runtime/kernels.h"
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
struct hs_device {
    uint8_t *arena;
    uint64_t arena_bytes, used;
    cudaStream_t stream;
    cudaEvent_t event; /* of the last mark */
    int ordinal;
    bool capturing;
    hs_err err; /* first failure since the last report; nothing is queued after it */
    hs_dev_counts counts;
};

struct hs_dev_graph {
    cudaGraphExec_t exec;
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
}

/* Vectors of several tokens: token t's at p + t * ld. */
typedef struct hs_dev_vec {
    float *p;
    uint32_t ld, n; /* n tokens */
} hs_dev_vec;

/* What scratch.act_q and act_d hold at the moment: the quantized form of these. */
typedef struct hs_dev_quantized {
    const float *of;
} hs_dev_quantized;

/* The activations a kernel reads: x by float rows, q and d by quantized ones; token t's at
 * x + t * ldx, q + t * ldq and d + t * ldq / 32. */
typedef struct hs_dev_act {
    const float *x;
    const int8_t *q;
    const float *d;
    uint32_t ldx, ldq, n;
} hs_dev_act;

/* What a product does with its result. */
typedef enum hs_dev_then { HS_DEV_SET, HS_DEV_RELU, HS_DEV_ADD } hs_dev_then;

extern "C" {
/* linear.cu: y = x * scale(x) * w, RMSNorm, and with `quantize` its quantized form. */
void HS_DEV(norm)(hs_device *dev, const hs_dev_scratch *s, hs_dev_vec y, hs_dev_vec x, hs_buf w,
                  uint32_t cols, float eps, bool quantize, hs_dev_quantized *have);
/* The activation for products of m with x; quantizes x when m needs that and it is not yet. */
hs_dev_act HS_DEV(activation)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m,
                              hs_dev_vec x, hs_dev_quantized *have);
/* y = m x, relu of it, or y += m x. */
void HS_DEV(matvec)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m, hs_dev_vec y,
                    hs_dev_vec x, hs_dev_then then, hs_dev_quantized *have);
}

template <class T> static inline T *hs_dev_ptr(const hs_device *dev, hs_buf buf)
{
    return reinterpret_cast<T *>(dev->arena + buf.offset);
}

static __host__ __device__ inline uint32_t hs_dev_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline hs_dev_vec hs_dev_rows(const hs_device *dev, hs_buf buf, uint32_t ld, uint32_t n)
{
    return {hs_dev_ptr<float>(dev, buf), ld, n};
}

/* Launch a kernel of HS_BLOCK threads on the device's stream. */
#define HS_RUN(dev, kernel, grid, ...)                                    \
    do {                                                                  \
        (dev)->counts.launches++;                                         \
        HS_LAUNCH(kernel, grid, HS_BLOCK, 0, (dev)->stream, __VA_ARGS__); \
    } while (0)

/* Launch `kernel<type>`; the type was checked by HS_DEV(shape). */
#define HS_LAUNCH_BY_TYPE(dev, type, kernel, grid, ...)                           \
    do {                                                                          \
        switch (type) {                                                           \
        case HS_F32: HS_RUN(dev, kernel<HS_F32>, grid, __VA_ARGS__); break;       \
        case HS_F16: HS_RUN(dev, kernel<HS_F16>, grid, __VA_ARGS__); break;       \
        case HS_BF16: HS_RUN(dev, kernel<HS_BF16>, grid, __VA_ARGS__); break;     \
        case HS_Q8_0: HS_RUN(dev, kernel<HS_Q8_0>, grid, __VA_ARGS__); break;     \
        case HS_Q5_0: HS_RUN(dev, kernel<HS_Q5_0>, grid, __VA_ARGS__); break;     \
        case HS_Q4_0: HS_RUN(dev, kernel<HS_Q4_0>, grid, __VA_ARGS__); break;     \
        case HS_Q6_K: HS_RUN(dev, kernel<HS_Q6_K>, grid, __VA_ARGS__); break;     \
        case HS_Q4_1: HS_RUN(dev, kernel<HS_Q4_1>, grid, __VA_ARGS__); break;     \
        case HS_Q5_1: HS_RUN(dev, kernel<HS_Q5_1>, grid, __VA_ARGS__); break;     \
        case HS_Q2_K: HS_RUN(dev, kernel<HS_Q2_K>, grid, __VA_ARGS__); break;     \
        case HS_Q3_K: HS_RUN(dev, kernel<HS_Q3_K>, grid, __VA_ARGS__); break;     \
        case HS_Q4_K: HS_RUN(dev, kernel<HS_Q4_K>, grid, __VA_ARGS__); break;     \
        case HS_Q5_K: HS_RUN(dev, kernel<HS_Q5_K>, grid, __VA_ARGS__); break;     \
        case HS_IQ4_NL: HS_RUN(dev, kernel<HS_IQ4_NL>, grid, __VA_ARGS__); break; \
        case HS_IQ4_XS: HS_RUN(dev, kernel<HS_IQ4_XS>, grid, __VA_ARGS__); break; \
        default: break;                                                           \
        }                                                                         \
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

/* Four trees over the group's lanes in one: of lane quarter i the sum of p[i]. */
static __device__ __forceinline__ float hs_dev_fold4(const float *p, unsigned lanes, unsigned lane,
                                                     unsigned mask)
{
    const float even = hs_dev_fold(p[0], p[2], lane, (int)lanes / 2, mask);
    const float odd = hs_dev_fold(p[1], p[3], lane, (int)lanes / 2, mask);
    return hs_dev_sum(hs_dev_fold(even, odd, lane, (int)lanes / 4, mask), (int)lanes / 4, mask);
}

/* The canonical products of the wanted rows with one activation; a lane gets that of its row. */
template <hs_dtype T>
static __device__ __forceinline__ float hs_dev_dots(const uint8_t *w, uint64_t row_bytes,
                                                    unsigned wanted, hs_dev_act a, uint32_t cols,
                                                    const hs_group<T> &g)
{
    const uint8_t *row = w + g.first * row_bytes;
    float p[HS_ROWS] = {0, 0, 0, 0};
#ifndef HS_CUDA_EMU
#pragma unroll
#endif
    for (unsigned r = 0; r < HS_ROWS; r++)
        if (wanted >> r & 1)
            hs_row<T>::template partial<1>(row + r * row_bytes, a, cols, g.lane, 1, &p[r]);
    return hs_dev_fold4(p, hs_row<T>::lanes, g.lane, g.mask);
}

/* The canonical products of one row with the activations of up to HS_DEV_BATCH tokens, whose
 * weights are read once; a lane gets those of tokens lane / share and that + 4. */
template <hs_dtype T>
static __device__ __forceinline__ void hs_dev_dot_batch(const uint8_t *row, hs_dev_act a,
                                                        uint32_t cols, const hs_group<T> &g,
                                                        float out[2])
{
    static_assert(HS_DEV_BATCH == 2 * HS_ROWS, "two results a lane");
    float p[HS_DEV_BATCH] = {0, 0, 0, 0, 0, 0, 0, 0};
    hs_row<T>::template partial<HS_DEV_BATCH>(row, a, cols, g.lane, a.n, p);
    out[0] = hs_dev_fold4(p, hs_row<T>::lanes, g.lane, g.mask);
    out[1] = hs_dev_fold4(p + HS_ROWS, hs_row<T>::lanes, g.lane, g.mask);
}

#endif
