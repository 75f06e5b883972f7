/* RMSNorm, activation quantization, dense matrix times vector, and the output head. */

#include "runtime/cuda/common.cuh"

#include <float.h>

/* Into q and d: 32 elements, the lane's being x, as hs_kernels.quantize_q8 does it.  The largest
 * magnitude by a butterfly over bits, which order like the magnitudes with NaN on top. */
static __device__ __forceinline__ void quantize_block(int8_t *q, float *d, float x)
{
    hs_f32_bits amax;
    amax.f = x;
    amax.u &= 0x7fffffff;
    for (int h = 16; h > 0; h /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, amax.u, h);
        amax.u = other > amax.u ? other : amax.u;
    }
    const float scale = amax.f / 127.0f, inverse = 1.0f / scale;
    const bool usable = inverse > 0 && inverse <= FLT_MAX;
    /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, half to even. */
    const float magic = 12582912.0f;
    const unsigned lane = threadIdx.x % 32;
    q[lane] = usable ? (int8_t)hs_addf(hs_addf(hs_mulf(x, inverse), magic), -magic) : 0;
    if (lane == 0)
        *d = usable || !(scale <= 1) ? scale : 0;
}

typedef struct norm_args {
    hs_dev_vec y, x;
    const float *w;
    int8_t *q; /* NULL: not quantized */
    float *d;
    uint32_t cols, ldq;
    float eps;
} norm_args;

/* A block a token.  Warp 0 computes the canonical dot(x, x) (32 lanes, as a float row); then a warp
 * owns 32 neighbouring elements, writes and quantizes them.  Reads x twice and w once. */
static __global__ void __launch_bounds__(HS_BLOCK) k_norm(norm_args a)
{
    __shared__ float scale;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float *x = a.x.p + (size_t)blockIdx.x * a.x.ld;
    float *y = a.y.p + (size_t)blockIdx.x * a.y.ld;
    if (warp == 0) {
        float s = 0;
        for (uint32_t i = lane; i < a.cols; i += 32)
            s = hs_addf(s, hs_mulf(x[i], x[i]));
        s = hs_dev_sum(s, 32, 0xffffffffu);
        if (lane == 0)
            scale = 1.0f / sqrtf(hs_addf(s / (float)a.cols, a.eps));
    }
    __syncthreads();
    for (uint32_t b = warp; b < (a.cols + 31) / 32; b += HS_WARPS) {
        const uint32_t i = 32 * b + lane;
        float v = 0;
        if (i < a.cols)
            y[i] = v = hs_mulf(hs_mulf(x[i], scale), a.w[i]);
        if (a.q) /* cols is a multiple of 32 then */
            quantize_block(a.q + (size_t)blockIdx.x * a.ldq + 32 * b,
                           a.d + (size_t)blockIdx.x * (a.ldq / 32) + b, v);
    }
}

/* A warp owns one block of 32 of one token (blockIdx.y).  Reads 128 bytes, writes 36. */
static __global__ void __launch_bounds__(HS_BLOCK)
    k_quantize(int8_t *q, float *d, hs_dev_vec x, uint32_t n_block, uint32_t ldq)
{
    const uint32_t b = blockIdx.x * HS_WARPS + threadIdx.x / 32, t = blockIdx.y;
    if (b >= n_block)
        return;
    quantize_block(q + (size_t)t * ldq + 32 * b, d + (size_t)t * (ldq / 32) + b,
                   x.p[(size_t)t * x.ld + 32 * b + threadIdx.x % 32]);
}

static __device__ __forceinline__ void put(float *y, float v, hs_dev_then then)
{
    *y = then == HS_DEV_ADD    ? hs_addf(*y, v)
         : then == HS_DEV_RELU ? hs_act_gate(HS_FN_RELU, 0, v)
                               : v;
}

/* A group of 32 or 16 lanes owns four rows (and their y).  Every weight byte is read once; x stays
 * in the caches.  Reference: hs_kernel_type.dot. */
template <hs_dtype T>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_matvec(float *y, const uint8_t *w, uint64_t row_bytes, uint32_t rows, uint32_t cols,
             hs_dev_act x, hs_dev_then then)
{
    const hs_group<T> g(hs_dev_group_index<T>());
    if (g.first >= rows)
        return;
    const unsigned wanted = rows - g.first >= HS_ROWS ? 15 : (1u << (rows - g.first)) - 1;
    const float v = hs_dev_dots<T>(w, row_bytes, wanted, x, cols, g);
    if (g.leads() && g.mine < rows)
        put(&y[g.mine], v, then);
}

/* The same for up to HS_DEV_BATCH tokens: a tile of four rows times the tokens, each weight read
 * once for all of them. */
template <hs_dtype T>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_matmul(hs_dev_vec y, const uint8_t *w, uint64_t row_bytes, uint32_t rows, uint32_t cols,
             hs_dev_act x, hs_dev_then then)
{
    const hs_group<T> g(hs_dev_group_index<T>());
    const unsigned token = g.lane / g.share;
#ifndef HS_CUDA_EMU
#pragma unroll 1
#endif
    for (uint32_t r = g.first; r < g.first + HS_ROWS && r < rows; r++) {
        float v[2];
        hs_dev_dot_batch<T>(w + r * row_bytes, x, cols, g, v);
        for (unsigned i = 0; i < 2; i++)
            if (g.leads() && token + HS_ROWS * i < y.n)
                put(&y.p[(token + HS_ROWS * i) * y.ld + r], v[i], then);
    }
}

static bool act_room(hs_device *dev, const hs_dev_scratch *s, uint32_t cols, uint32_t n)
{
    const uint64_t bytes = (uint64_t)n * cols;
    return HS_DEV(holds)(dev, s->act_q, bytes, "scratch.act_q") &&
           HS_DEV(holds)(dev, s->act_d, bytes / 32 * 4, "scratch.act_d");
}

void HS_DEV(norm)(hs_device *dev, const hs_dev_scratch *s, hs_dev_vec y, hs_dev_vec x, hs_buf w,
                  uint32_t cols, float eps, bool quantize, hs_dev_quantized *have)
{
    norm_args a = {};
    a.y = y;
    a.x = x;
    a.w = hs_dev_ptr<const float>(dev, w);
    a.cols = cols;
    a.eps = eps;
    if (quantize && cols % 32 == 0 && act_room(dev, s, cols, x.n)) {
        a.q = hs_dev_ptr<int8_t>(dev, s->act_q);
        a.d = hs_dev_ptr<float>(dev, s->act_d);
        a.ldq = cols;
        have->of = y.p;
    }
    HS_RUN(dev, k_norm, x.n, a);
}

hs_dev_act HS_DEV(activation)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m,
                              hs_dev_vec x, hs_dev_quantized *have)
{
    const hs_dev_act act = {x.p,
                            hs_dev_ptr<const int8_t>(dev, s->act_q),
                            hs_dev_ptr<const float>(dev, s->act_d),
                            x.ld,
                            m->cols,
                            x.n};
    if (!hs_dev_type_quantized(m->dtype) || have->of == x.p || !act_room(dev, s, m->cols, x.n))
        return act;
    const uint32_t n_block = m->cols / 32;
    HS_RUN(dev, k_quantize, dim3((n_block + HS_WARPS - 1) / HS_WARPS, x.n),
           hs_dev_ptr<int8_t>(dev, s->act_q), hs_dev_ptr<float>(dev, s->act_d), x, n_block,
           m->cols);
    have->of = x.p;
    return act;
}

void HS_DEV(matvec)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m, hs_dev_vec y,
                    hs_dev_vec x, hs_dev_then then, hs_dev_quantized *have)
{
    if (m->rows == 0)
        return;
    const hs_dev_act act = HS_DEV(activation)(dev, s, m, x, have);
    const uint8_t *w = hs_dev_ptr<const uint8_t>(dev, m->buf);
    const unsigned grid = hs_dev_row_blocks(m->dtype, m->rows);
    if (dev->err.code)
        return;
    if (x.n == 1)
        HS_LAUNCH_BY_TYPE(dev, m->dtype, k_matvec, grid, y.p, w, m->row_bytes, m->rows, m->cols,
                          act, then);
    else
        HS_LAUNCH_BY_TYPE(dev, m->dtype, k_matmul, grid, y, w, m->row_bytes, m->rows, m->cols, act,
                          then);
}

extern "C" void HS_DEV(head)(hs_device *dev, const hs_dev_head *a);

void HS_DEV(head)(hs_device *dev, const hs_dev_head *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd;
    if (!HS_DEV(begin)(dev) || !HS_DEV(holds)(dev, s->x, row * (a->token + 1), "head: x") ||
        !HS_DEV(holds)(dev, s->rec, row, "head: xn") ||
        !HS_DEV(holds)(dev, a->norm, row, "head: norm") ||
        !HS_DEV(holds)(dev, s->logits, 4 * (uint64_t)a->w.rows, "head: logits") ||
        !HS_DEV(shape)(dev, &a->w, a->w.rows, a->n_embd, "head: weight"))
        return;
    hs_dev_quantized have = {NULL};
    hs_dev_vec x = hs_dev_rows(dev, s->x, a->n_embd, 1);
    const hs_dev_vec xn = hs_dev_rows(dev, s->rec, a->n_embd, 1),
                     y = hs_dev_rows(dev, s->logits, a->w.rows, 1);
    x.p += (size_t)a->token * a->n_embd;
    HS_DEV(norm)
    (dev, s, xn, x, a->norm, a->n_embd, a->eps, hs_dev_type_quantized(a->w.dtype), &have);
    HS_DEV(matvec)(dev, s, &a->w, y, xn, HS_DEV_SET, &have);
    HS_DEV(end)(dev, "head");
}
