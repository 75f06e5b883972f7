/* RMSNorm, activation quantization, dense matrix times vector, and the output head. */

#include "runtime/cuda/common.cuh"

#include <float.h>

/* One block.  Warp 0 computes the canonical dot(x, x) (32 lanes, as a float row), then thread t
 * owns elements t, t + HS_BLOCK, …  Reads x twice and w once, writes y; shared: one float. */
static __global__ void __launch_bounds__(HS_BLOCK)
    k_norm(float *y, const float *x, const float *w, uint32_t n, float eps)
{
    __shared__ float scale;
    if (threadIdx.x < 32) {
        float s = 0;
        for (uint32_t i = threadIdx.x; i < n; i += 32)
            s = hs_addf(s, hs_mulf(x[i], x[i]));
        s = hs_dev_sum(s, 32, 0xffffffffu);
        if (threadIdx.x == 0)
            scale = 1.0f / sqrtf(hs_addf(s / (float)n, eps));
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += HS_BLOCK)
        y[i] = hs_mulf(hs_mulf(x[i], scale), w[i]);
}

/* A warp owns one block of 32: the largest magnitude by a butterfly over bits, which order like
 * the magnitudes with NaN on top, then each lane one element.  Reads 128 bytes, writes 36.
 * Reference: hs_kernels.quantize_q8. */
static __global__ void __launch_bounds__(HS_BLOCK)
    k_quantize(int8_t *q, float *d, const float *x, uint32_t n_block)
{
    const uint32_t b = blockIdx.x * HS_WARPS + threadIdx.x / 32;
    if (b >= n_block)
        return;
    const size_t i = (size_t)b * 32 + threadIdx.x % 32;
    hs_f32_bits amax;
    amax.f = x[i];
    amax.u &= 0x7fffffff;
    for (int h = 16; h > 0; h /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, amax.u, h);
        amax.u = other > amax.u ? other : amax.u;
    }
    const float scale = amax.f / 127.0f, inverse = 1.0f / scale;
    const bool usable = inverse > 0 && inverse <= FLT_MAX;
    /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, half to even. */
    const float magic = 12582912.0f;
    q[i] = usable ? (int8_t)hs_addf(hs_addf(hs_mulf(x[i], inverse), magic), -magic) : 0;
    if (threadIdx.x % 32 == 0)
        d[b] = usable || !(scale <= 1) ? scale : 0;
}

/* A group of 32 or 16 lanes owns four rows (and their y).  Every weight byte is read once; x stays
 * in the caches.  Reference: hs_kernel_type.dot. */
template <hs_dtype T>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_matvec(float *y, const uint8_t *w, uint64_t row_bytes, uint32_t rows, uint32_t cols,
             hs_dev_act x, bool relu)
{
    const hs_group<T> g(hs_dev_group_index<T>());
    if (g.first >= rows)
        return;
    const unsigned wanted = rows - g.first >= HS_ROWS ? 15 : (1u << (rows - g.first)) - 1;
    const float v = hs_dev_dots<T>(w, row_bytes, wanted, x, cols, g);
    if (g.leads() && g.mine < rows)
        y[g.mine] = relu ? hs_act_gate(HS_FN_RELU, 0, v) : v;
}

void HS_DEV(norm)(hs_device *dev, hs_buf y, hs_buf x, hs_buf w, uint32_t n, float eps)
{
    HS_LAUNCH(k_norm, 1, HS_BLOCK, 0, dev->stream, hs_dev_ptr<float>(dev, y),
              hs_dev_ptr<const float>(dev, x), hs_dev_ptr<const float>(dev, w), n, eps);
}

hs_dev_act HS_DEV(activation)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m,
                              hs_buf x, hs_dev_quantized *have)
{
    const hs_dev_act act = {hs_dev_ptr<const float>(dev, x),
                            hs_dev_ptr<const int8_t>(dev, s->act_q),
                            hs_dev_ptr<const float>(dev, s->act_d)};
    if (!hs_dev_type_quantized(m->dtype) || (have->any && have->offset == x.offset))
        return act;
    const uint32_t n_block = m->cols / 32;
    if (!HS_DEV(holds)(dev, s->act_q, m->cols, "scratch.act_q") ||
        !HS_DEV(holds)(dev, s->act_d, 4 * (uint64_t)n_block, "scratch.act_d"))
        return act;
    HS_LAUNCH(k_quantize, (n_block + HS_WARPS - 1) / HS_WARPS, HS_BLOCK, 0, dev->stream,
              hs_dev_ptr<int8_t>(dev, s->act_q), hs_dev_ptr<float>(dev, s->act_d), act.x, n_block);
    *have = {true, x.offset};
    return act;
}

void HS_DEV(matvec)(hs_device *dev, const hs_dev_scratch *s, const hs_dev_mat *m, hs_buf y,
                    hs_buf x, bool relu, hs_dev_quantized *have)
{
    if (m->rows == 0)
        return;
    const hs_dev_act act = HS_DEV(activation)(dev, s, m, x, have);
    if (dev->err.code)
        return;
    HS_LAUNCH_BY_TYPE(m->dtype, k_matvec, hs_dev_row_blocks(m->dtype, m->rows), HS_BLOCK, 0,
                      dev->stream, hs_dev_ptr<float>(dev, y),
                      hs_dev_ptr<const uint8_t>(dev, m->buf), m->row_bytes, m->rows, m->cols, act,
                      relu);
}

extern "C" void HS_DEV(head)(hs_device *dev, const hs_dev_head *a);

void HS_DEV(head)(hs_device *dev, const hs_dev_head *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd;
    if (!HS_DEV(begin)(dev) || !HS_DEV(holds)(dev, s->x, row, "head: x") ||
        !HS_DEV(holds)(dev, s->xn, row, "head: xn") ||
        !HS_DEV(holds)(dev, a->norm, row, "head: norm") ||
        !HS_DEV(holds)(dev, s->logits, 4 * (uint64_t)a->w.rows, "head: logits") ||
        !HS_DEV(shape)(dev, &a->w, a->w.rows, a->n_embd, "head: weight"))
        return;
    hs_dev_quantized have = {false, 0};
    HS_DEV(norm)(dev, s->xn, s->x, a->norm, a->n_embd, a->eps);
    HS_DEV(matvec)(dev, s, &a->w, s->logits, s->xn, false, &have);
    HS_DEV(end)(dev, "head");
}
