/* The device's part of one feed-forward layer: predictor, gate and up rows of the resident
 * neurons, and their sum over the transposed down projection. */

#include "runtime/cuda/common.cuh"

static constexpr unsigned HS_DEV_PARTS = 4;
static_assert(HS_DEV_PARTS <= HS_DEV_SUMS && HS_DEV_BATCH <= HS_DEV_SUMS, "room for the sums");

typedef struct neuron_args {
    const uint8_t *gate, *up; /* rows of this kernel's type; NULL where another launch has them */
    uint64_t row_bytes;
    const uint32_t *cand; /* bit i of token t's words, ld apart: candidate; NULL: all are */
    const int32_t *id;
    float *z; /* [tokens][n] */
    unsigned long long *count;
    hs_dev_act x;
    uint32_t ld, n, n_embd;
    float param;
    hs_act_fn fn;
    bool gated; /* the model has a gate */
} neuron_args;

static __device__ __forceinline__ bool candidate(const neuron_args &a, unsigned t, uint32_t i)
{
    if (!a.cand)
        return true;
    const uint32_t id = (uint32_t)a.id[i];
    return a.cand[(size_t)t * a.ld + id / 32] >> (id % 32) & 1;
}

/* What the gate's product says; sets `active`. */
static __device__ __forceinline__ float after_gate(const neuron_args &a, float v, bool *active)
{
    const float z = hs_act_gate(a.fn, a.param, v);
    *active = *active && z != 0;
    return z;
}

/* z of an active neuron from its gate's z and the up product; clears `active` where that is 0. */
static __device__ __forceinline__ float after_up(const neuron_args &a, float z, float u,
                                                 bool *active)
{
    const float v = a.gated ? hs_act_up(a.fn, u) : hs_act_gate(a.fn, a.param, u);
    z = !*active ? 0 : a.gated ? hs_mulf(z, v) : v;
    /* With a gate, that alone decides, but for dReLU. */
    *active = *active && (v != 0 || (a.gated && a.fn != HS_FN_DRELU));
    return z;
}

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
    const bool on = exists && (!first || candidate(a, 0, g.mine));
    float z = 1;
    bool active = on;
    if (a.gate) {
        const unsigned wanted = g.wanted(on);
        const float v = wanted ? hs_dev_dots<T>(a.gate, a.row_bytes, wanted, a.x, a.n_embd, g) : 0;
        z = after_gate(a, v, &active);
    } else if (a.gated && exists) {
        z = a.z[g.mine];
        active = z != 0;
    }
    if (a.up) {
        const unsigned wanted = g.wanted(active);
        const float u = wanted ? hs_dev_dots<T>(a.up, a.row_bytes, wanted, a.x, a.n_embd, g) : 0;
        z = after_up(a, z, u, &active);
    }
    __syncwarp(g.mask); /* all have read z */
    if (g.leads() && exists) {
        a.z[g.mine] = on ? z : 0;
        if (a.up && active)
            atomicAdd(a.count, 1ull);
    }
}

/* The same for up to HS_DEV_BATCH tokens with a mask each: a group takes its four neurons one after
 * the other, each row read once if any token wants it; a lane quarter has the results of tokens
 * q and q + 4. */
template <hs_dtype T>
static __global__ void __launch_bounds__(HS_BLOCK) k_neurons_batch(neuron_args a)
{
    const hs_group<T> g(hs_dev_group_index<T>());
    const bool first = a.gate || !a.gated;
#ifndef HS_CUDA_EMU
#pragma unroll 1
#endif
    for (uint32_t r = g.first; r < g.first + HS_ROWS && r < a.n; r++) {
        bool on[2], active[2];
        float z[2] = {1, 1}, v[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned t = g.lane / g.share + HS_ROWS * i;
            active[i] = on[i] = t < a.x.n && (!first || candidate(a, t, r));
            if (a.gated && !a.gate && t < a.x.n) {
                z[i] = a.z[(size_t)t * a.n + r];
                active[i] = z[i] != 0;
            }
        }
        if (a.gate && __ballot_sync(g.mask, on[0] || on[1])) {
            hs_dev_dot_batch<T>(a.gate + r * a.row_bytes, a.x, a.n_embd, g, v);
            for (unsigned i = 0; i < 2; i++)
                z[i] = after_gate(a, v[i], &active[i]);
        }
        if (a.up && __ballot_sync(g.mask, active[0] || active[1])) {
            hs_dev_dot_batch<T>(a.up + r * a.row_bytes, a.x, a.n_embd, g, v);
            for (unsigned i = 0; i < 2; i++)
                z[i] = after_up(a, z[i], v[i], &active[i]);
        } else if (a.up) {
            z[0] = z[1] = 0;
        }
        __syncwarp(g.mask); /* all have read z */
        for (unsigned i = 0; i < 2; i++) {
            const unsigned t = g.lane / g.share + HS_ROWS * i;
            if (!g.leads() || t >= a.x.n)
                continue;
            a.z[(size_t)t * a.n + r] = on[i] ? z[i] : 0;
            if (a.up && active[i])
                atomicAdd(a.count, 1ull);
        }
    }
}

/* A thread a score: bit i of the token's words says that neuron i is a candidate.  Not
 * (score < threshold): a NaN score counts as active, as on the CPU. */
static __global__ void __launch_bounds__(HS_BLOCK)
    k_candidates(uint32_t *cand, uint32_t ld, const float *score, uint32_t n_ff, float threshold,
                 unsigned long long *count)
{
    const uint32_t i = blockIdx.x * HS_BLOCK + threadIdx.x, t = blockIdx.y;
    const bool is = i < n_ff && !(score[(size_t)t * n_ff + i] < threshold);
    const uint32_t bits = __ballot_sync(0xffffffffu, is);
    if (threadIdx.x % 32 == 0 && i < n_ff) {
        cand[(size_t)t * ld + i / 32] = bits;
        atomicAdd(count, (unsigned long long)__popc(bits));
    }
}

typedef struct down_args {
    double *sum; /* [parts][tokens][n_embd] */
    const uint8_t *w;
    uint64_t row_bytes;
    const float *z;          /* [tokens][n] */
    uint32_t n, n_embd, per; /* neurons of one part */
} down_args;

/* A thread owns one output column of one part of the neurons (blockIdx.y) and one token
 * (blockIdx.z), and adds hs_grid_product(z[r], down[r][column]), z == 0 left out: one writer, no
 * atomics, and a sum that does not depend on its order.  Each block lists the neurons with z != 0
 * tile by tile of HS_BLOCK in shared memory (12 bytes a thread), so idle rows cost no iteration; a
 * warp reads 32 neighbouring elements of a row. */
template <hs_dtype T> static __global__ void __launch_bounds__(HS_BLOCK) k_down(down_args a)
{
    __shared__ uint32_t row[HS_BLOCK];
    __shared__ float factor[HS_BLOCK];
    __shared__ unsigned found[HS_WARPS];
    const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t column = blockIdx.x * HS_BLOCK + t, from = blockIdx.y * a.per;
    const uint32_t end = a.n - from < a.per ? a.n : from + a.per;
    const float *z = a.z + (size_t)blockIdx.z * a.n;
    double sum = 0;
    for (uint32_t base = from; base < end; base += HS_BLOCK) {
        const float v = t < end - base ? z[base + t] : 0.0f;
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
        const unsigned rows = column < a.n_embd ? total : 0;
#ifndef HS_CUDA_EMU
#pragma unroll 4
#endif
        for (unsigned i = 0; i < rows; i++)
            sum += hs_grid_product(factor[i], hs_row<T>::value(a.w + row[i] * a.row_bytes, column));
        __syncthreads();
    }
    if (column < a.n_embd)
        a.sum[((size_t)blockIdx.y * gridDim.z + blockIdx.z) * a.n_embd + column] = sum;
}

/* A thread an element: the parts' sums together, for the host (far, with `collect`) or with the
 * host's (far, if there) onto the residual. */
static __global__ void __launch_bounds__(HS_BLOCK)
    k_finish(float *x, const double *sum, double *far, uint32_t n, unsigned parts, bool collect)
{
    const uint32_t i = blockIdx.x * HS_BLOCK + threadIdx.x;
    if (i >= n)
        return;
    double total = 0;
    for (unsigned p = 0; p < parts; p++)
        total += sum[(size_t)p * n + i];
    if (collect)
        far[i] = total;
    else
        x[i] = hs_addf(x[i], (float)(total + (far ? far[i] : 0)));
}

/* Parts of the sum over the neurons: few do not make many, several tokens are work enough. */
static unsigned parts_of(const hs_dev_ffn *a)
{
    const uint32_t tiles = (a->n + HS_BLOCK - 1) / HS_BLOCK;
    return a->n_tokens > 1 ? tiles > 0 : hs_dev_min(tiles, HS_DEV_PARTS);
}

static bool prepare_check(hs_device *dev, const hs_dev_ffn *a, uint64_t row)
{
    const hs_dev_scratch *s = a->scratch;
    if ((a->has_norm || a->has_predictor) && !HS_DEV(holds)(dev, s->x, row, "ffn: x"))
        return false;
    if (a->has_norm && !HS_DEV(holds)(dev, a->norm, 4 * (uint64_t)a->n_embd, "ffn: norm"))
        return false;
    return !a->has_predictor ||
           (HS_DEV(shape)(dev, &a->fc1, a->fc1.rows, a->n_embd, "ffn: fc1") &&
            HS_DEV(shape)(dev, &a->fc2, a->n_ff, a->fc1.rows, "ffn: fc2") &&
            HS_DEV(holds)(dev, s->hid, 4 * (uint64_t)a->fc1.rows * a->n_tokens, "ffn: hid") &&
            HS_DEV(holds)(dev, s->z, 4 * (uint64_t)a->n_ff * a->n_tokens, "ffn: scores"));
}

static bool ffn_check(hs_device *dev, const hs_dev_ffn *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd * a->n_tokens;
    const uint64_t rec = 4 * (uint64_t)hs_dev_record_words(a->n_embd, a->n_ff) * a->n_tokens;
    if (a->n_tokens < 1 || a->n_tokens > HS_DEV_BATCH) {
        HS_DEV(fail)(dev, "ffn: %u tokens, expected 1 to %d", a->n_tokens, HS_DEV_BATCH);
        return false;
    }
    if (!HS_DEV(holds)(dev, s->rec, rec, "ffn: record") ||
        !HS_DEV(holds)(dev, s->stats, 16 * ((uint64_t)a->layer + 1), "ffn: stats") ||
        ((a->stages & HS_DEV_FFN_PREPARE) && !prepare_check(dev, a, row)) ||
        ((a->stages & HS_DEV_FFN_FINISH) && !HS_DEV(holds)(dev, s->x, row, "ffn: x")) ||
        ((a->stages & HS_DEV_FFN_COLLECT || a->has_far) &&
         !HS_DEV(holds)(dev, s->far, 2 * row, "ffn: far")))
        return false;
    if (a->n == 0)
        return true;
    return HS_DEV(holds)(dev, s->sum, parts_of(a) * 2 * row, "ffn: sum") &&
           (!a->has_gate || HS_DEV(shape)(dev, &a->gate, a->n, a->n_embd, "ffn: gate")) &&
           HS_DEV(shape)(dev, &a->up, a->n, a->n_embd, "ffn: up") &&
           HS_DEV(shape)(dev, &a->down, a->n, a->n_embd, "ffn: down") &&
           HS_DEV(holds)(dev, a->id, 4 * (uint64_t)a->n, "ffn: id") &&
           HS_DEV(holds)(dev, s->z, 4 * (uint64_t)a->n * a->n_tokens, "ffn: z");
}

static hs_dev_vec records(hs_device *dev, const hs_dev_ffn *a)
{
    return hs_dev_rows(dev, a->scratch->rec, hs_dev_record_words(a->n_embd, a->n_ff), a->n_tokens);
}

static bool wants_quantized(const hs_dev_ffn *a)
{
    return a->n && (hs_dev_type_quantized(a->up.dtype) ||
                    (a->has_gate && hs_dev_type_quantized(a->gate.dtype)));
}

static void prepare(hs_device *dev, const hs_dev_ffn *a, hs_dev_quantized *have)
{
    const hs_dev_scratch *s = a->scratch;
    const hs_dev_vec x = hs_dev_rows(dev, s->x, a->n_embd, a->n_tokens), rec = records(dev, a);
    if (a->has_predictor) { /* reads the residual, not its norm */
        const hs_dev_vec hid = hs_dev_rows(dev, s->hid, a->fc1.rows, a->n_tokens),
                         score = hs_dev_rows(dev, s->z, a->n_ff, a->n_tokens);
        HS_DEV(matvec)(dev, s, &a->fc1, hid, x, HS_DEV_RELU, have);
        HS_DEV(matvec)(dev, s, &a->fc2, score, hid, HS_DEV_SET, have);
        HS_RUN(dev, k_candidates, dim3((a->n_ff + HS_BLOCK - 1) / HS_BLOCK, a->n_tokens),
               reinterpret_cast<uint32_t *>(rec.p + a->n_embd), rec.ld,
               static_cast<const float *>(score.p), a->n_ff, a->threshold,
               hs_dev_ptr<unsigned long long>(dev, s->stats) + 2 * a->layer + 1);
    }
    if (a->has_norm)
        HS_DEV(norm)(dev, s, rec, x, a->norm, a->n_embd, a->eps, wants_quantized(a), have);
}

static void neurons(hs_device *dev, const hs_dev_ffn *a, const hs_dev_mat *gate,
                    const hs_dev_mat *up, hs_dev_quantized *have)
{
    const hs_dev_scratch *s = a->scratch;
    const hs_dev_mat *m = gate ? gate : up;
    const hs_dev_vec rec = records(dev, a);
    neuron_args k = {};
    k.gate = gate ? hs_dev_ptr<const uint8_t>(dev, gate->buf) : NULL;
    k.up = up ? hs_dev_ptr<const uint8_t>(dev, up->buf) : NULL;
    k.row_bytes = m->row_bytes;
    k.cand = a->masked ? reinterpret_cast<const uint32_t *>(rec.p + a->n_embd) : NULL;
    k.ld = rec.ld;
    k.id = hs_dev_ptr<const int32_t>(dev, a->id);
    k.z = hs_dev_ptr<float>(dev, s->z);
    k.count = hs_dev_ptr<unsigned long long>(dev, s->stats) + 2 * a->layer;
    k.x = HS_DEV(activation)(dev, s, m, rec, have);
    k.n = a->n;
    k.n_embd = a->n_embd;
    k.param = a->fn_param;
    k.fn = a->fn;
    k.gated = a->has_gate;
    const unsigned grid = hs_dev_row_blocks(m->dtype, a->n);
    if (dev->err.code)
        return;
    if (a->n_tokens == 1)
        HS_LAUNCH_BY_TYPE(dev, m->dtype, k_neurons, grid, k);
    else
        HS_LAUNCH_BY_TYPE(dev, m->dtype, k_neurons_batch, grid, k);
}

static void down(hs_device *dev, const hs_dev_ffn *a)
{
    const hs_dev_scratch *s = a->scratch;
    const unsigned parts = parts_of(a);
    down_args k = {};
    k.sum = hs_dev_ptr<double>(dev, s->sum);
    k.w = hs_dev_ptr<const uint8_t>(dev, a->down.buf);
    k.row_bytes = a->down.row_bytes;
    k.z = hs_dev_ptr<const float>(dev, s->z);
    k.n = a->n;
    k.n_embd = a->n_embd;
    k.per = (a->n + parts - 1) / parts;
    HS_LAUNCH_BY_TYPE(dev, a->down.dtype, k_down,
                      dim3((a->n_embd + HS_BLOCK - 1) / HS_BLOCK, parts, a->n_tokens), k);
}

static void finish(hs_device *dev, const hs_dev_ffn *a, bool collect)
{
    const hs_dev_scratch *s = a->scratch;
    const uint32_t n = a->n_embd * a->n_tokens;
    HS_RUN(dev, k_finish, (n + HS_BLOCK - 1) / HS_BLOCK, hs_dev_ptr<float>(dev, s->x),
           hs_dev_ptr<const double>(dev, s->sum),
           collect || a->has_far ? hs_dev_ptr<double>(dev, s->far) : NULL, n, parts_of(a), collect);
}

extern "C" void HS_DEV(ffn)(hs_device *dev, const hs_dev_ffn *a);

void HS_DEV(ffn)(hs_device *dev, const hs_dev_ffn *a)
{
    if (!HS_DEV(begin)(dev) || !ffn_check(dev, a))
        return;
    hs_dev_quantized have = {a->prepared && a->has_norm && wants_quantized(a) ? records(dev, a).p
                                                                              : NULL};
    if (a->stages & HS_DEV_FFN_PREPARE)
        prepare(dev, a, &have);
    if ((a->stages & HS_DEV_FFN_NEURONS) && a->n) {
        if (a->has_gate && a->gate.dtype != a->up.dtype) {
            neurons(dev, a, &a->gate, NULL, &have);
            neurons(dev, a, NULL, &a->up, &have);
        } else {
            neurons(dev, a, a->has_gate ? &a->gate : NULL, &a->up, &have);
        }
        down(dev, a);
    }
    if (a->stages & HS_DEV_FFN_COLLECT)
        finish(dev, a, true);
    if (a->stages & HS_DEV_FFN_FINISH)
        finish(dev, a, false);
    HS_DEV(end)(dev, "ffn");
}
