/* One attention block for one token: projections, RoPE, the KV cache, softmax, output. */

#include "runtime/cuda/common.cuh"

typedef struct rope_args {
    float *q, *k;
    const float *v;
    const float *rope; /* cos, sin of pair p at 2p, 2p + 1 */
    uint32_t n_head, n_head_kv, head_dim, rope_dim;
    uint64_t at; /* first element of this position in the caches */
} rope_args;

template <hs_dtype KV> struct kv_elem;
template <> struct kv_elem<HS_F32> {
    typedef float type;
    static __device__ __forceinline__ float to(float f) { return f; }
};
template <> struct kv_elem<HS_F16> {
    typedef uint16_t type;
    static __device__ __forceinline__ uint16_t to(float f) { return hs_dev_to_f16(f); }
};

/* A thread owns elements 2p and 2p + 1 of one head of q, k or v: rotates those of q and k (when
 * the pair is below rope_dim), and stores k and v to the cache in its type.  Heads are numbered
 * q first, then k, then v.  Reference: rope() of runtime/attn.c. */
template <hs_dtype KV>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_rope(typename kv_elem<KV>::type *k_cache, typename kv_elem<KV>::type *v_cache, rope_args a)
{
    const uint32_t pairs = (a.head_dim + 1) / 2, i = blockIdx.x * HS_BLOCK + threadIdx.x;
    const uint32_t head = i / pairs, e = 2 * (i % pairs);
    if (head >= a.n_head + 2 * a.n_head_kv)
        return;
    const bool is_q = head < a.n_head, is_v = head >= a.n_head + a.n_head_kv,
               two = e + 1 < a.head_dim;
    const uint32_t h = is_q ? head : is_v ? head - a.n_head - a.n_head_kv : head - a.n_head;
    const float *src = (is_q ? a.q : is_v ? a.v : a.k) + (size_t)h * a.head_dim + e;
    float x0 = src[0], x1 = two ? src[1] : 0;
    if (!is_v && e + 1 < a.rope_dim) {
        const float c = a.rope[e], s = a.rope[e + 1], y0 = x0;
        x0 = hs_addf(hs_mulf(y0, c), -hs_mulf(x1, s));
        x1 = hs_addf(hs_mulf(y0, s), hs_mulf(x1, c));
    }
    if (is_q) {
        float *q = a.q + (size_t)h * a.head_dim + e;
        q[0] = x0;
        if (two)
            q[1] = x1;
        return;
    }
    typename kv_elem<KV>::type *out =
        (is_v ? v_cache : k_cache) + a.at + (size_t)h * a.head_dim + e;
    out[0] = kv_elem<KV>::to(x0);
    if (two)
        out[1] = kv_elem<KV>::to(x1);
}

typedef struct attend_args {
    const float *q;
    float *att, *o;
    uint32_t n, n_ctx;                /* positions to attend to; row length of att */
    uint32_t head_dim, group, stride; /* query heads of one kv head; elements of a position */
    float scale;
} attend_args;

/* The largest score, by any order: maxima are exact.  All threads get it; shared: 4 floats. */
static __device__ float block_max(const float *x, uint32_t n)
{
    __shared__ float part[HS_WARPS];
    float m = x[0];
    for (uint32_t i = threadIdx.x; i < n; i += HS_BLOCK)
        m = x[i] > m ? x[i] : m;
    for (int h = 16; h > 0; h /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, m, h);
        m = other > m ? other : m;
    }
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = m;
    __syncthreads();
    for (unsigned w = 0; w < HS_WARPS; w++)
        m = part[w] > m ? part[w] : m;
    return hs_addf(m, 0.0f); /* -0 and +0 would compare equal */
}

/* A block owns one query head.  Scores: a warp four positions, the canonical dot of float rows
 * with K as the weight.  Probabilities: e = exp(score - max) by all threads, their canonical
 * 32-lane sum by warp 0.  Output: a thread an element, positions ascending.  K and V of the head
 * are read once; att holds one row in global memory.  Reference: attend_heads() of runtime/attn.c.
 */
template <hs_dtype KV>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_attend(const typename kv_elem<KV>::type *k_cache, const typename kv_elem<KV>::type *v_cache,
             attend_args a)
{
    __shared__ float inverse;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t at = (size_t)(blockIdx.x / a.group) * a.head_dim;
    const hs_dev_act q = {a.q + (size_t)blockIdx.x * a.head_dim, NULL, NULL};
    float *att = a.att + (size_t)blockIdx.x * a.n_ctx;
    for (uint32_t i = warp; i * HS_ROWS < a.n; i += HS_WARPS) {
        const hs_group<KV> g(i);
        const unsigned wanted = a.n - g.first >= HS_ROWS ? 15 : (1u << (a.n - g.first)) - 1;
        const float v = hs_dev_dots<KV>(reinterpret_cast<const uint8_t *>(k_cache + at),
                                        a.stride * sizeof *k_cache, wanted, q, a.head_dim, g);
        if (g.leads() && g.mine < a.n)
            att[g.mine] = hs_mulf(v, a.scale);
    }
    __syncthreads();
    const float max = block_max(att, a.n);
    __syncthreads(); /* block_max reads what is overwritten here */
    for (uint32_t t = threadIdx.x; t < a.n; t += HS_BLOCK)
        att[t] = hs_expf(hs_addf(att[t], -max));
    __syncthreads();
    if (warp == 0) {
        float s = 0;
        for (uint32_t t = lane; t < a.n; t += 32)
            s = hs_addf(s, att[t]);
        s = hs_dev_sum(s, 32, 0xffffffffu);
        if (lane == 0)
            inverse = 1.0f / s;
    }
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < a.head_dim; c += HS_BLOCK) {
        float o = 0;
        for (uint32_t t = 0; t < a.n; t++) {
            const uint8_t *row =
                reinterpret_cast<const uint8_t *>(v_cache + (size_t)t * a.stride + at);
            o = hs_addf(o, hs_mulf(att[t], hs_row<KV>::value(row, c)));
        }
        a.o[(size_t)blockIdx.x * a.head_dim + c] = hs_mulf(o, inverse);
    }
}

static bool attn_check(hs_device *dev, const hs_dev_attn *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd;
    const uint32_t qn = a->n_head * a->head_dim, kn = a->n_head_kv * a->head_dim;
    if (a->n_head == 0 || a->n_head_kv == 0 || a->n_head % a->n_head_kv != 0 || a->head_dim == 0 ||
        a->rope_dim > a->head_dim) {
        HS_DEV(fail)(dev, "attn: %u heads, %u for kv, of %u", a->n_head, a->n_head_kv, a->head_dim);
        return false;
    }
    if (a->stage != HS_DEV_ATTN_OUT &&
        (!HS_DEV(holds)(dev, s->x, row, "attn: x") || !HS_DEV(holds)(dev, s->xn, row, "attn: xn") ||
         !HS_DEV(holds)(dev, a->norm, row, "attn: norm") ||
         !HS_DEV(shape)(dev, &a->wq, qn, a->n_embd, "attn: wq") ||
         !HS_DEV(shape)(dev, &a->wk, kn, a->n_embd, "attn: wk") ||
         !HS_DEV(shape)(dev, &a->wv, kn, a->n_embd, "attn: wv") ||
         !HS_DEV(holds)(dev, s->q, 4 * (uint64_t)qn, "attn: q") ||
         !HS_DEV(holds)(dev, s->k, 4 * (uint64_t)kn, "attn: k") ||
         !HS_DEV(holds)(dev, s->v, 4 * (uint64_t)kn, "attn: v")))
        return false;
    if (a->stage != HS_DEV_ATTN_QKV && (!HS_DEV(shape)(dev, &a->wo, a->n_embd, qn, "attn: wo") ||
                                        !HS_DEV(holds)(dev, s->o, 4 * (uint64_t)qn, "attn: o") ||
                                        !HS_DEV(holds)(dev, s->y, row, "attn: y")))
        return false;
    if (a->stage != HS_DEV_ATTN_ALL)
        return true;
    if (a->pos >= a->n_ctx || (a->kv_type != HS_F16 && a->kv_type != HS_F32)) {
        HS_DEV(fail)
        (dev, "attn: position %u of %u, cache of %s", a->pos, a->n_ctx, hs_dtype_name(a->kv_type));
        return false;
    }
    const uint64_t cache = (uint64_t)a->n_ctx * kn * (a->kv_type == HS_F16 ? 2 : 4);
    return HS_DEV(holds)(dev, a->k_cache, cache, "attn: k cache") &&
           HS_DEV(holds)(dev, a->v_cache, cache, "attn: v cache") &&
           HS_DEV(holds)(dev, s->rope, 4 * (uint64_t)a->rope_dim, "attn: rope") &&
           HS_DEV(holds)(dev, s->att, 4 * (uint64_t)a->n_head * a->n_ctx, "attn: att");
}

template <hs_dtype KV> static void attend(hs_device *dev, const hs_dev_attn *a)
{
    typedef typename kv_elem<KV>::type elem;
    const hs_dev_scratch *s = a->scratch;
    const uint32_t kn = a->n_head_kv * a->head_dim;
    elem *k = hs_dev_ptr<elem>(dev, a->k_cache), *v = hs_dev_ptr<elem>(dev, a->v_cache);
    rope_args r = {};
    r.q = hs_dev_ptr<float>(dev, s->q);
    r.k = hs_dev_ptr<float>(dev, s->k);
    r.v = hs_dev_ptr<const float>(dev, s->v);
    r.rope = hs_dev_ptr<const float>(dev, s->rope);
    r.n_head = a->n_head;
    r.n_head_kv = a->n_head_kv;
    r.head_dim = a->head_dim;
    r.rope_dim = a->rope_dim;
    r.at = (uint64_t)a->pos * kn;
    const uint64_t pairs = (uint64_t)(a->n_head + 2 * a->n_head_kv) * ((a->head_dim + 1) / 2);
    HS_LAUNCH(k_rope<KV>, (unsigned)((pairs + HS_BLOCK - 1) / HS_BLOCK), HS_BLOCK, 0, dev->stream,
              k, v, r);
    attend_args t = {};
    t.q = r.q;
    t.att = hs_dev_ptr<float>(dev, s->att);
    t.o = hs_dev_ptr<float>(dev, s->o);
    t.n = a->pos + 1;
    t.n_ctx = a->n_ctx;
    t.head_dim = a->head_dim;
    t.group = a->n_head / a->n_head_kv;
    t.stride = kn;
    t.scale = 1.0f / sqrtf((float)a->head_dim);
    HS_LAUNCH(k_attend<KV>, a->n_head, HS_BLOCK, 0, dev->stream, k, v, t);
}

extern "C" void HS_DEV(attn)(hs_device *dev, const hs_dev_attn *a);

void HS_DEV(attn)(hs_device *dev, const hs_dev_attn *a)
{
    const hs_dev_scratch *s = a->scratch;
    if (!HS_DEV(begin)(dev) || !attn_check(dev, a))
        return;
    hs_dev_quantized have = {false, 0};
    if (a->stage != HS_DEV_ATTN_OUT) {
        HS_DEV(norm)(dev, s->xn, s->x, a->norm, a->n_embd, a->eps);
        HS_DEV(matvec)(dev, s, &a->wq, s->q, s->xn, false, &have);
        HS_DEV(matvec)(dev, s, &a->wk, s->k, s->xn, false, &have);
        HS_DEV(matvec)(dev, s, &a->wv, s->v, s->xn, false, &have);
    }
    if (a->stage == HS_DEV_ATTN_ALL) {
        if (a->kv_type == HS_F16)
            attend<HS_F16>(dev, a);
        else
            attend<HS_F32>(dev, a);
    }
    if (a->stage != HS_DEV_ATTN_QKV)
        HS_DEV(matvec)(dev, s, &a->wo, s->y, s->o, false, &have);
    HS_DEV(end)(dev, "attn");
}
