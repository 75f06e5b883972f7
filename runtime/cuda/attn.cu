/* One attention block for one token: projections, RoPE, the KV cache, softmax, output. */

#include "runtime/cuda/common.cuh"

typedef struct rope_args {
    hs_dev_vec qkv;       /* a token's q, k, v */
    const uint32_t *step; /* position of the first token; then from word 4 on the angles */
    uint32_t n_head, n_head_kv, head_dim, rope_dim, n_ctx;
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

/* A thread owns elements 2p and 2p + 1 of one head of q, k or v of one token (blockIdx.y): rotates
 * those of q and k (when the pair is below rope_dim), and stores k and v to the cache in its type.
 * Heads are numbered q first, then k, then v.  Reference: rope() of runtime/attn.c. */
template <hs_dtype KV>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_rope(typename kv_elem<KV>::type *k_cache, typename kv_elem<KV>::type *v_cache, rope_args a)
{
    const uint32_t pairs = (a.head_dim + 1) / 2, i = blockIdx.x * HS_BLOCK + threadIdx.x;
    const uint32_t head = i / pairs, e = 2 * (i % pairs), t = blockIdx.y, pos = a.step[0] + t;
    if (head >= a.n_head + 2 * a.n_head_kv || pos >= a.n_ctx)
        return;
    const float *rope = reinterpret_cast<const float *>(a.step + 4) + (size_t)t * a.rope_dim;
    const bool is_q = head < a.n_head, is_v = head >= a.n_head + a.n_head_kv,
               two = e + 1 < a.head_dim;
    float *x = a.qkv.p + (size_t)t * a.qkv.ld + (size_t)head * a.head_dim + e;
    float x0 = x[0], x1 = two ? x[1] : 0;
    if (!is_v && e + 1 < a.rope_dim) {
        const float c = rope[e], s = rope[e + 1], y0 = x0;
        x0 = hs_addf(hs_mulf(y0, c), -hs_mulf(x1, s));
        x1 = hs_addf(hs_mulf(y0, s), hs_mulf(x1, c));
    }
    if (is_q) {
        x[0] = x0;
        if (two)
            x[1] = x1;
        return;
    }
    const uint32_t h = head - a.n_head - (is_v ? a.n_head_kv : 0);
    typename kv_elem<KV>::type *out =
        (is_v ? v_cache : k_cache) + ((size_t)pos * a.n_head_kv + h) * a.head_dim + e;
    out[0] = kv_elem<KV>::to(x0);
    if (two)
        out[1] = kv_elem<KV>::to(x1);
}

/* Attention over blocks of HS_ATT_BLOCK positions (flash decoding): a block of threads has one kv
 * head with all its query heads, one block of positions and one token, so K and V are read once
 * for all of these heads and a long context keeps the whole device busy.  Grids cover the longest
 * context; blocks past the token's position return.  Reference: attend() of runtime/attn.c. */
typedef struct attend_args {
    hs_dev_vec q, o;
    float *att, *top, *part;
    const uint32_t *step;
    uint32_t n_ctx, blocks, n_head, head_dim, group, stride; /* stride: elements of a position */
    float scale;
} attend_args;

/* This block's token and positions. */
typedef struct attend_place {
    uint32_t t, len, from, n; /* len: positions the token sees; n of them from `from` on here */
    bool any;
    __device__ __forceinline__ explicit attend_place(const attend_args &a)
        : t(blockIdx.z), len(a.step[0] + blockIdx.z + 1), from(blockIdx.y * HS_ATT_BLOCK)
    {
        any = from < len && len <= a.n_ctx;
        n = any ? hs_dev_min(len - from, HS_ATT_BLOCK) : 0;
    }
} attend_place;

static __device__ __forceinline__ float *att_row(const attend_args &a, uint32_t t, uint32_t head)
{
    return a.att + ((size_t)t * a.n_head + head) * a.n_ctx;
}

static __device__ __forceinline__ float larger(float a, float b) { return a > b ? a : b; }

/* Scores of one position at a time for up to HS_DEV_BATCH heads. */
template <hs_dtype KV>
static __device__ __forceinline__ void scores_of_heads(const attend_args &a, const uint8_t *k,
                                                       size_t row_bytes, const attend_place &at,
                                                       uint32_t h, uint32_t n_heads)
{
    const hs_group<KV> g(0);
    const hs_dev_act q = {
        a.q.p + (size_t)at.t * a.q.ld + (size_t)h * a.head_dim, NULL, NULL, a.head_dim, 0, n_heads};
    for (uint32_t i = threadIdx.x / 32; i < at.n; i += HS_WARPS) {
        float v[2];
        hs_dev_dot_batch<KV>(k + i * row_bytes, q, a.head_dim, g, v);
        for (unsigned j = 0; j < 2; j++) {
            const uint32_t head = g.lane / g.share + HS_ROWS * j;
            if (g.leads() && head < n_heads)
                att_row(a, at.t, h + head)[at.from + i] = hs_mulf(v[j], a.scale);
        }
    }
}

/* Scores of four positions at a time for one head. */
template <hs_dtype KV>
static __device__ __forceinline__ void scores_of_head(const attend_args &a, const uint8_t *k,
                                                      size_t row_bytes, const attend_place &at,
                                                      uint32_t h)
{
    const hs_dev_act q = {
        a.q.p + (size_t)at.t * a.q.ld + (size_t)h * a.head_dim, NULL, NULL, a.head_dim, 0, 1};
    float *att = att_row(a, at.t, h) + at.from;
    for (uint32_t i = threadIdx.x / 32; i * HS_ROWS < at.n; i += HS_WARPS) {
        const hs_group<KV> g(i);
        const unsigned wanted = at.n - g.first >= HS_ROWS ? 15 : (1u << (at.n - g.first)) - 1;
        const float v = hs_dev_dots<KV>(k, row_bytes, wanted, q, a.head_dim, g);
        if (g.leads() && g.mine < at.n)
            att[g.mine] = hs_mulf(v, a.scale);
    }
}

/* att = scores of these positions, top = the largest of each head (maxima are exact). */
template <hs_dtype KV>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_scores(const typename kv_elem<KV>::type *k_cache, attend_args a)
{
    const attend_place at(a);
    if (!at.any)
        return;
    const uint32_t first = blockIdx.x * a.group;
    const uint8_t *k = reinterpret_cast<const uint8_t *>(k_cache + (size_t)at.from * a.stride +
                                                         (size_t)blockIdx.x * a.head_dim);
    const size_t row_bytes = a.stride * sizeof *k_cache;
    for (uint32_t h = 0; h < a.group; h += HS_DEV_BATCH)
        if (a.group < 3)
            for (uint32_t i = 0; i < a.group; i++)
                scores_of_head<KV>(a, k, row_bytes, at, first + i);
        else
            scores_of_heads<KV>(a, k, row_bytes, at, first + h,
                                hs_dev_min(a.group - h, HS_DEV_BATCH));
    __syncthreads();
    for (uint32_t h = first + threadIdx.x / 32; h < first + a.group; h += HS_WARPS) {
        const float *att = att_row(a, at.t, h) + at.from;
        float m = att[0];
        for (uint32_t i = threadIdx.x % 32; i < at.n; i += 32)
            m = larger(att[i], m);
        for (int x = 16; x > 0; x /= 2)
            m = larger(__shfl_xor_sync(0xffffffffu, m, x), m);
        if (threadIdx.x % 32 == 0)
            a.top[((size_t)at.t * a.n_head + h) * a.blocks + blockIdx.y] = m;
    }
}

/* att = exp(score - largest of all positions); part = the block's sum of them times V, positions
 * rising; a thread an element of a head. */
template <hs_dtype KV>
static __global__ void __launch_bounds__(HS_BLOCK)
    k_values(const typename kv_elem<KV>::type *v_cache, attend_args a)
{
    const attend_place at(a);
    if (!at.any)
        return;
    const uint32_t first = blockIdx.x * a.group;
    for (uint32_t h = first; h < first + a.group; h++) {
        const float *top = a.top + ((size_t)at.t * a.n_head + h) * a.blocks;
        float m = top[0];
        for (uint32_t b = 1; b * HS_ATT_BLOCK < at.len; b++)
            m = larger(top[b], m);
        m = hs_addf(m, 0.0f); /* -0 and +0 would compare equal */
        float *att = att_row(a, at.t, h) + at.from;
        for (uint32_t i = threadIdx.x; i < at.n; i += HS_BLOCK)
            att[i] = hs_expf(hs_addf(att[i], -m));
    }
    __syncthreads();
    const uint8_t *v = reinterpret_cast<const uint8_t *>(v_cache + (size_t)at.from * a.stride +
                                                         (size_t)blockIdx.x * a.head_dim);
    const size_t row_bytes = a.stride * sizeof *v_cache;
    for (uint32_t e = threadIdx.x; e < a.group * a.head_dim; e += HS_BLOCK) {
        const uint32_t h = first + e / a.head_dim, c = e % a.head_dim;
        const float *att = att_row(a, at.t, h) + at.from;
        float o = 0;
#ifndef HS_CUDA_EMU
#pragma unroll 8
#endif
        for (uint32_t i = 0; i < at.n; i++)
            o = hs_addf(o, hs_mulf(att[i], hs_row<KV>::value(v + i * row_bytes, c)));
        a.part[(((size_t)at.t * a.n_head + h) * a.blocks + blockIdx.y) * a.head_dim + c] = o;
    }
}

/* A block a head (x) and token (y): the canonical sum of the exponentials by warp 0, the blocks'
 * sums one after the other by a thread an element. */
static __global__ void __launch_bounds__(HS_BLOCK) k_merge(attend_args a)
{
    __shared__ float inverse;
    const unsigned lane = threadIdx.x % 32;
    const uint32_t h = blockIdx.x, t = blockIdx.y, len = a.step[0] + t + 1;
    if (len > a.n_ctx)
        return;
    if (threadIdx.x < 32) {
        const float *att = att_row(a, t, h);
        float s = 0;
        for (uint32_t i = lane; i < len; i += 32)
            s = hs_addf(s, att[i]);
        s = hs_dev_sum(s, 32, 0xffffffffu);
        if (lane == 0)
            inverse = 1.0f / s;
    }
    __syncthreads();
    const float *part = a.part + ((size_t)t * a.n_head + h) * a.blocks * a.head_dim;
    for (uint32_t c = threadIdx.x; c < a.head_dim; c += HS_BLOCK) {
        float o = part[c];
        for (uint32_t b = 1; b * HS_ATT_BLOCK < len; b++)
            o = hs_addf(o, part[(size_t)b * a.head_dim + c]);
        a.o.p[(size_t)t * a.o.ld + (size_t)h * a.head_dim + c] = hs_mulf(o, inverse);
    }
}

static bool project_check(hs_device *dev, const hs_dev_attn *a, uint32_t qn, uint32_t kn)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t row = 4 * (uint64_t)a->n_embd;
    return HS_DEV(holds)(dev, s->rec, row * a->n_tokens, "attn: xn") &&
           HS_DEV(holds)(dev, a->norm, row, "attn: norm") &&
           HS_DEV(shape)(dev, &a->wq, qn, a->n_embd, "attn: wq") &&
           HS_DEV(shape)(dev, &a->wk, kn, a->n_embd, "attn: wk") &&
           HS_DEV(shape)(dev, &a->wv, kn, a->n_embd, "attn: wv") &&
           HS_DEV(holds)(dev, s->qkv, 4 * (uint64_t)(qn + 2 * kn) * a->n_tokens, "attn: qkv");
}

static bool cache_check(hs_device *dev, const hs_dev_attn *a, uint32_t qn, uint32_t kn)
{
    const hs_dev_scratch *s = a->scratch;
    const uint64_t heads = 4 * (uint64_t)a->n_head * a->n_tokens,
                   blocks = (a->n_ctx + HS_ATT_BLOCK - 1) / HS_ATT_BLOCK;
    if (a->kv_type != HS_F16 && a->kv_type != HS_F32) {
        HS_DEV(fail)(dev, "attn: cache of %s", hs_dtype_name(a->kv_type));
        return false;
    }
    const uint64_t cache = (uint64_t)a->n_ctx * kn * (a->kv_type == HS_F16 ? 2 : 4);
    return HS_DEV(holds)(dev, a->k_cache, cache, "attn: k cache") &&
           HS_DEV(holds)(dev, a->v_cache, cache, "attn: v cache") &&
           HS_DEV(holds)(dev, s->step, 16 + 4 * (uint64_t)a->rope_dim * a->n_tokens,
                         "attn: step") &&
           HS_DEV(holds)(dev, s->att, heads * a->n_ctx, "attn: att") &&
           HS_DEV(holds)(dev, s->top, heads * blocks, "attn: top") &&
           HS_DEV(holds)(dev, s->part, heads * blocks * a->head_dim, "attn: part") &&
           HS_DEV(holds)(dev, s->o, 4 * (uint64_t)qn * a->n_tokens, "attn: o");
}

static bool attn_check(hs_device *dev, const hs_dev_attn *a)
{
    const hs_dev_scratch *s = a->scratch;
    const uint32_t qn = a->n_head * a->head_dim, kn = a->n_head_kv * a->head_dim;
    if (a->n_tokens < 1 || a->n_tokens > HS_DEV_BATCH) {
        HS_DEV(fail)(dev, "attn: %u tokens, expected 1 to %d", a->n_tokens, HS_DEV_BATCH);
        return false;
    }
    if (a->n_head == 0 || a->n_head_kv == 0 || a->n_head % a->n_head_kv != 0 || a->head_dim == 0 ||
        a->rope_dim > a->head_dim) {
        HS_DEV(fail)(dev, "attn: %u heads, %u for kv, of %u", a->n_head, a->n_head_kv, a->head_dim);
        return false;
    }
    if (!HS_DEV(holds)(dev, s->x, 4 * (uint64_t)a->n_embd * a->n_tokens, "attn: x") ||
        (a->stage != HS_DEV_ATTN_OUT && !project_check(dev, a, qn, kn)) ||
        (a->stage == HS_DEV_ATTN_ALL && !cache_check(dev, a, qn, kn)))
        return false;
    return a->stage == HS_DEV_ATTN_QKV ||
           (HS_DEV(shape)(dev, &a->wo, a->n_embd, qn, "attn: wo") &&
            HS_DEV(holds)(dev, s->o, 4 * (uint64_t)qn * a->n_tokens, "attn: o"));
}

template <hs_dtype KV> static void attend(hs_device *dev, const hs_dev_attn *a, hs_dev_vec qkv)
{
    typedef typename kv_elem<KV>::type elem;
    const hs_dev_scratch *s = a->scratch;
    const uint32_t kn = a->n_head_kv * a->head_dim,
                   blocks = (a->n_ctx + HS_ATT_BLOCK - 1) / HS_ATT_BLOCK;
    elem *k = hs_dev_ptr<elem>(dev, a->k_cache), *v = hs_dev_ptr<elem>(dev, a->v_cache);
    const uint32_t *step = hs_dev_ptr<const uint32_t>(dev, s->step);
    const rope_args r = {qkv, step, a->n_head, a->n_head_kv, a->head_dim, a->rope_dim, a->n_ctx};
    const uint64_t pairs = (uint64_t)(a->n_head + 2 * a->n_head_kv) * ((a->head_dim + 1) / 2);
    HS_RUN(dev, k_rope<KV>, dim3((unsigned)((pairs + HS_BLOCK - 1) / HS_BLOCK), a->n_tokens), k, v,
           r);
    attend_args t = {};
    t.q = qkv;
    t.o = hs_dev_rows(dev, s->o, a->n_head * a->head_dim, a->n_tokens);
    t.att = hs_dev_ptr<float>(dev, s->att);
    t.top = hs_dev_ptr<float>(dev, s->top);
    t.part = hs_dev_ptr<float>(dev, s->part);
    t.step = step;
    t.n_ctx = a->n_ctx;
    t.blocks = blocks;
    t.n_head = a->n_head;
    t.head_dim = a->head_dim;
    t.group = a->n_head / a->n_head_kv;
    t.stride = kn;
    t.scale = 1.0f / sqrtf((float)a->head_dim);
    const dim3 grid(a->n_head_kv, blocks, a->n_tokens);
    HS_RUN(dev, k_scores<KV>, grid, static_cast<const elem *>(k), t);
    HS_RUN(dev, k_values<KV>, grid, static_cast<const elem *>(v), t);
    HS_RUN(dev, k_merge, dim3(a->n_head, a->n_tokens), t);
}

static void project(hs_device *dev, const hs_dev_attn *a, hs_dev_vec qkv, hs_dev_quantized *have)
{
    const hs_dev_scratch *s = a->scratch;
    const hs_dev_vec x = hs_dev_rows(dev, s->x, a->n_embd, a->n_tokens),
                     xn = hs_dev_rows(dev, s->rec, a->n_embd, a->n_tokens);
    const bool quantize = hs_dev_type_quantized(a->wq.dtype) ||
                          hs_dev_type_quantized(a->wk.dtype) || hs_dev_type_quantized(a->wv.dtype);
    HS_DEV(norm)(dev, s, xn, x, a->norm, a->n_embd, a->eps, quantize, have);
    const hs_dev_mat *w[] = {&a->wq, &a->wk, &a->wv};
    for (int i = 0; i < 3; i++) {
        HS_DEV(matvec)(dev, s, w[i], qkv, xn, HS_DEV_SET, have);
        qkv.p += w[i]->rows;
    }
}

extern "C" void HS_DEV(attn)(hs_device *dev, const hs_dev_attn *a);

void HS_DEV(attn)(hs_device *dev, const hs_dev_attn *a)
{
    const hs_dev_scratch *s = a->scratch;
    if (!HS_DEV(begin)(dev) || !attn_check(dev, a))
        return;
    const uint32_t qn = a->n_head * a->head_dim, kn = a->n_head_kv * a->head_dim;
    hs_dev_quantized have = {NULL};
    const hs_dev_vec qkv = hs_dev_rows(dev, s->qkv, qn + 2 * kn, a->n_tokens);
    if (a->stage != HS_DEV_ATTN_OUT)
        project(dev, a, qkv, &have);
    if (a->stage == HS_DEV_ATTN_ALL) {
        if (a->kv_type == HS_F16)
            attend<HS_F16>(dev, a, qkv);
        else
            attend<HS_F32>(dev, a, qkv);
    }
    if (a->stage != HS_DEV_ATTN_QKV)
        HS_DEV(matvec)
    (dev, s, &a->wo, hs_dev_rows(dev, s->x, a->n_embd, a->n_tokens),
     hs_dev_rows(dev, s->o, qn, a->n_tokens), HS_DEV_ADD, &have);
    HS_DEV(end)(dev, "attn");
}
