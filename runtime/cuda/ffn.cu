/* The device's part of one feed-forward layer: predictor, gate and up rows of the resident
 * neurons, and their sum over the transposed down projection. */

#include "runtime/cuda/common.cuh"

typedef struct neuron_args {
    const uint8_t *gate, *up; /* rows of this kernel's type; NULL where another launch has them */
    uint64_t row_bytes;
    const float *score; /* NULL when not masked */
    const int32_t *id;
    float *z;
    uint32_t *count;
    hs_dev_act x;
    uint32_t n, n_embd;
    float threshold, param;
    hs_act_fn fn;
    bool gated; /* the model has a gate */
} neuron_args;

/* A group of 32 or 16 lanes owns four neurons, a quarter of it (8 or 4 lanes) the result of each.
 * Rows of neurons that are masked out, and up rows behind a closed gate, are not read.
 *
 * Gate and up of one type are done by one launch.  Else the gate's launch (up == NULL) leaves
 * act_gate in z and the up's launch (gate == NULL) starts from it. */
template <hs_dtype T> static __global__ void __launch_bounds__(HS_BLOCK) k_neurons(neuron_args a)
{
    const hs_group<T> g(hs_dev_group_index<T>());
    if (g.first >= a.n)
        return;
    const bool first = a.gate || !a.gated, exists = g.mine < a.n;
    const bool on = exists && !(first && a.score && a.score[a.id[g.mine]] < a.threshold);
    float z = 1;
    bool active = on;
    if (a.gate) {
        const unsigned wanted = g.wanted(on);
        const float v = wanted ? hs_dev_dots<T>(a.gate, a.row_bytes, wanted, a.x, a.n_embd, g) : 0;
        z = hs_act_gate(a.fn, a.param, v);
        active = on && z != 0;
    } else if (a.gated && exists) {
        z = a.z[g.mine];
        active = z != 0;
    }
    if (a.up) {
        const unsigned wanted = g.wanted(active);
        const float u = wanted ? hs_dev_dots<T>(a.up, a.row_bytes, wanted, a.x, a.n_embd, g) : 0;
        const float v = a.gated ? hs_act_up(a.fn, u) : hs_act_gate(a.fn, a.param, u);
        z = !active ? 0 : a.gated ? hs_mulf(z, v) : v;
        /* With a gate, that alone decides, but for dReLU. */
        active = active && (v != 0 || (a.gated && a.fn != HS_FN_DRELU));
    }
    __syncwarp(g.mask); /* all have read z */
    if (g.leads() && exists) {
        a.z[g.mine] = on ? z : 0;
        if (a.up && active)
            atomicAdd(a.count, 1u);
    }
}

/* A thread owns one output column and adds hs_grid_product(z[r], down[r][column]), z == 0 left
 * out: one writer, no atomics, and a sum that does not depend on its order.  Each block lists the
 * neurons with z != 0 tile by tile of HS_BLOCK in shared memory (12 bytes a thread), so idle rows
 * cost no iteration; a warp reads 32 neighbouring elements of a row. */
template <hs_dtype T>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_down(double *y, const uint8_t *w, uint64_t row_bytes, const float *z, uint32_t n,
           uint32_t n_embd)
{
    __shared__ uint32_t row[HS_BLOCK];
    __shared__ float factor[HS_BLOCK];
    __shared__ unsigned found[HS_WARPS];
    const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t column = blockIdx.x * HS_BLOCK + t;
    double sum = 0;
    for (uint32_t base = 0; base < n; base += HS_BLOCK) {
        const float v = t < n - base ? z[base + t] : 0.0f;
        const unsigned hits = __ballot_sync(0xffffffffu, v != 0);
        if (lane == 0)
            found[warp] = (unsigned)__popc(hits);
        __syncthreads();
        unsigned at = (unsigned)__popc(hits & ((1u << lane) - 1)), total = 0;
        for (unsigned i = 0; i < HS_WARPS; i++) {
            at += i < warp ? found[i] : 0;
            total += found[i];
        }
        if (v != 0) {
            row[at] = base + t;
            factor[at] = v;
        }
        __syncthreads();
        const unsigned rows = column < n_embd ? total : 0;
#ifndef HS_CUDA_EMU
#pragma unroll 4
#endif
        for (unsigned i = 0; i < rows; i++)
            sum += hs_grid_product(factor[i], hs_row<T>::value(w + row[i] * row_bytes, column));
        __syncthreads();
    }
    if (column < n_embd)
        y[column] = sum;
}

static bool ffn_check(hs_device *dev, const hs_dev_ffn *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd;
    if (!HS_DEV(holds)(dev, s->xn, row, "ffn: xn") ||
        !HS_DEV(holds)(dev, s->sum, 2 * row, "ffn: sum") ||
        !HS_DEV(holds)(dev, s->count, 4, "ffn: count"))
        return false;
    if ((a->has_norm || a->has_predictor) && !HS_DEV(holds)(dev, s->x, row, "ffn: x"))
        return false;
    if (a->has_norm && !HS_DEV(holds)(dev, a->norm, row, "ffn: norm"))
        return false;
    if ((a->has_predictor || (a->masked && a->n)) &&
        !HS_DEV(holds)(dev, s->score, 4 * (uint64_t)a->n_ff, "ffn: score"))
        return false;
    if (a->has_predictor && (!HS_DEV(shape)(dev, &a->fc1, a->fc1.rows, a->n_embd, "ffn: fc1") ||
                             !HS_DEV(shape)(dev, &a->fc2, a->n_ff, a->fc1.rows, "ffn: fc2") ||
                             !HS_DEV(holds)(dev, s->hid, 4 * (uint64_t)a->fc1.rows, "ffn: hid")))
        return false;
    if (a->n == 0)
        return true;
    return (!a->has_gate || HS_DEV(shape)(dev, &a->gate, a->n, a->n_embd, "ffn: gate")) &&
           HS_DEV(shape)(dev, &a->up, a->n, a->n_embd, "ffn: up") &&
           HS_DEV(shape)(dev, &a->down, a->n, a->n_embd, "ffn: down") &&
           HS_DEV(holds)(dev, a->id, 4 * (uint64_t)a->n, "ffn: id") &&
           HS_DEV(holds)(dev, s->z, 4 * (uint64_t)a->n, "ffn: z");
}

static void neurons(hs_device *dev, const hs_dev_ffn *a, const hs_dev_mat *gate,
                    const hs_dev_mat *up, hs_dev_quantized *have)
{
    const hs_dev_scratch *s = a->scratch;
    const hs_dev_mat *m = gate ? gate : up;
    neuron_args k = {};
    k.gate = gate ? hs_dev_ptr<const uint8_t>(dev, gate->buf) : NULL;
    k.up = up ? hs_dev_ptr<const uint8_t>(dev, up->buf) : NULL;
    k.row_bytes = m->row_bytes;
    k.score = a->masked ? hs_dev_ptr<const float>(dev, s->score) : NULL;
    k.id = hs_dev_ptr<const int32_t>(dev, a->id);
    k.z = hs_dev_ptr<float>(dev, s->z);
    k.count = hs_dev_ptr<uint32_t>(dev, s->count);
    k.x = HS_DEV(activation)(dev, s, m, s->xn, have);
    k.n = a->n;
    k.n_embd = a->n_embd;
    k.threshold = a->threshold;
    k.param = a->fn_param;
    k.fn = a->fn;
    k.gated = a->has_gate;
    if (!dev->err.code)
        HS_LAUNCH_BY_TYPE(m->dtype, k_neurons, hs_dev_row_blocks(m->dtype, a->n), HS_BLOCK, 0,
                          dev->stream, k);
}

extern "C" void HS_DEV(ffn)(hs_device *dev, const hs_dev_ffn *a);

void HS_DEV(ffn)(hs_device *dev, const hs_dev_ffn *a)
{
    const hs_dev_scratch *s = a->scratch;
    if (!HS_DEV(begin)(dev) || !ffn_check(dev, a))
        return;
    hs_dev_quantized have = {false, 0};
    if (a->has_norm)
        HS_DEV(norm)(dev, s->xn, s->x, a->norm, a->n_embd, a->eps);
    if (a->has_predictor) { /* reads the residual, not its norm */
        HS_DEV(matvec)(dev, s, &a->fc1, s->hid, s->x, true, &have);
        HS_DEV(matvec)(dev, s, &a->fc2, s->score, s->hid, false, &have);
    }
    cudaMemsetAsync(hs_dev_ptr<uint32_t>(dev, s->count), 0, 4, dev->stream);
    if (a->n == 0) {
        cudaMemsetAsync(hs_dev_ptr<double>(dev, s->sum), 0, 8 * (size_t)a->n_embd, dev->stream);
    } else {
        if (a->has_gate && a->gate.dtype != a->up.dtype) {
            neurons(dev, a, &a->gate, NULL, &have);
            neurons(dev, a, NULL, &a->up, &have);
        } else {
            neurons(dev, a, a->has_gate ? &a->gate : NULL, &a->up, &have);
        }
        HS_LAUNCH_BY_TYPE(a->down.dtype, k_down, (a->n_embd + HS_BLOCK - 1) / HS_BLOCK, HS_BLOCK, 0,
                          dev->stream, hs_dev_ptr<double>(dev, s->sum),
                          hs_dev_ptr<const uint8_t>(dev, a->down.buf), a->down.row_bytes,
                          hs_dev_ptr<const float>(dev, s->z), a->n, a->n_embd);
    }
    HS_DEV(end)(dev, "ffn");
}
