/* Device bytes, computed from the file's real types and shapes.  The runtime allocates through
 * the same functions' arithmetic, so a plan is exact, not an estimate. */
#include "runtime/budget.h"

#include "formats/fingerprint.h"
#include "runtime/device.h"
#include "runtime/kernels.h"
#include "runtime/model.h"
#include "runtime/split.h"

#include <string.h>

/* Shapes are bounded by the loader, so none of these sums can wrap. */
static uint64_t up(uint64_t bytes)
{
    return (bytes + HS_DEVICE_ALIGN - 1) / HS_DEVICE_ALIGN * HS_DEVICE_ALIGN;
}

static uint64_t mat(const hs_mat *w) { return up(hs_mat_bytes(w)); }

static uint64_t norm(const hs_model *m) { return up((uint64_t)m->n_embd * 4); }

uint64_t hs_budget_attn(const hs_model *m, uint32_t l)
{
    const hs_layer *y = &m->layer[l];
    return norm(m) + mat(&y->wq) + mat(&y->wk) + mat(&y->wv) + mat(&y->wo);
}

uint64_t hs_budget_predictor(const hs_model *m, uint32_t l)
{
    return mat(&m->layer[l].fc1) + mat(&m->layer[l].fc2);
}

uint64_t hs_budget_ffn_norm(const hs_model *m, uint32_t l)
{
    (void)l;
    return norm(m);
}

uint64_t hs_budget_output(const hs_model *m) { return norm(m) + mat(&m->output); }

uint64_t hs_budget_kv(const hs_model *m, uint32_t n_ctx, uint32_t kv_type)
{
    const uint64_t elem = kv_type == HS_F32 ? 4 : 2;
    return 2 * up((uint64_t)n_ctx * m->n_head_kv * m->head_dim * elem);
}

/* A neuron's down row on the device: as stored, or as the transposition at load makes it. */
static uint64_t down_row(const hs_model *m, uint32_t l)
{
    const hs_layer *y = &m->layer[l];
    if (y->down_t.data)
        return y->down_t.row_bytes;
    uint64_t bytes = 0;
    if (!hs_dtype_row_bytes(hs_transposed_type(y->down.dtype), m->n_embd, &bytes))
        return (uint64_t)m->n_embd * 4;
    return bytes;
}

uint64_t hs_budget_neurons(const hs_model *m, uint32_t l, uint32_t k)
{
    const hs_layer *y = &m->layer[l];
    return up(k * y->gate.row_bytes) + up(k * y->up.row_bytes) + up(k * down_row(m, l)) +
           up((uint64_t)k * 4);
}

uint64_t hs_budget_neuron_bytes(const hs_model *m, uint32_t l)
{
    return m->layer[l].gate.row_bytes + m->layer[l].up.row_bytes + down_row(m, l) + 4;
}

void hs_scratch_sizes(const hs_model *m, uint32_t n_ctx, bool output, bool kv,
                      hs_scratch_size out[HS_N_SCRATCH])
{
    const uint64_t q = (uint64_t)m->n_head * m->head_dim;
    const uint64_t kvd = (uint64_t)m->n_head_kv * m->head_dim;
    uint64_t hid = 0;
    for (uint32_t l = 0; l < m->n_layer; l++)
        if (m->layer[l].fc1.data && m->layer[l].fc1.rows > hid)
            hid = m->layer[l].fc1.rows;
    uint64_t cols = m->n_embd > q ? m->n_embd : q;
    cols = (cols > hid ? cols : hid);
    cols = (cols + 31) / 32 * 32;
    const uint64_t b = HS_DEV_BATCH, blocks = kv ? (n_ctx + HS_ATT_BLOCK - 1) / HS_ATT_BLOCK : 0;
    const uint64_t record = hs_dev_record_words(m->n_embd, m->n_ff);
    const hs_scratch_size sizes[HS_N_SCRATCH] = {
        {offsetof(hs_dev_scratch, x), 4 * b * m->n_embd},
        {offsetof(hs_dev_scratch, step), 16 + 4 * b * m->rope_dim},
        {offsetof(hs_dev_scratch, rec), 4 * b * record},
        {offsetof(hs_dev_scratch, sum), 8ull * HS_DEV_SUMS * m->n_embd},
        {offsetof(hs_dev_scratch, far), 8 * b * m->n_embd},
        {offsetof(hs_dev_scratch, qkv), 4 * b * (q + 2 * kvd)},
        {offsetof(hs_dev_scratch, o), 4 * b * q},
        {offsetof(hs_dev_scratch, att), kv ? 4 * b * m->n_head * n_ctx : 0},
        {offsetof(hs_dev_scratch, top), 4 * b * m->n_head * blocks},
        {offsetof(hs_dev_scratch, part), 4 * b * q * blocks},
        {offsetof(hs_dev_scratch, hid), 4 * b * hid},
        {offsetof(hs_dev_scratch, z), 4 * b * m->n_ff},
        {offsetof(hs_dev_scratch, stats), 16ull * m->n_layer},
        {offsetof(hs_dev_scratch, logits), output ? 4ull * m->n_vocab : 0},
        {offsetof(hs_dev_scratch, act_q), b * cols},
        {offsetof(hs_dev_scratch, act_d), b * cols / 32 * 4},
    };
    memcpy(out, sizes, sizeof sizes);
}

uint64_t hs_budget_scratch(const hs_model *m, uint32_t n_ctx, bool output, bool kv)
{
    hs_scratch_size s[HS_N_SCRATCH];
    hs_scratch_sizes(m, n_ctx, output, kv, s);
    uint64_t sum = 0;
    for (int i = 0; i < HS_N_SCRATCH; i++)
        sum += up(s[i].bytes);
    return sum;
}

static uint32_t neurons_on(const hs_placement_layer *y, uint32_t d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < y->n_device; i++)
        n += (y->on_which ? y->on_which[i] : 0) == d;
    return n;
}

uint64_t hs_budget_device(const hs_model *m, const hs_placement *p, uint32_t d)
{
    const bool output = p->output && p->output_device == d;
    uint64_t sum = output ? hs_budget_output(m) : 0;
    bool kv = false;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        const uint32_t n = neurons_on(y, d);
        const bool has_kv = y->kv && y->kv_device == d;
        sum += y->attn && y->attn_device == d ? hs_budget_attn(m, l) : 0;
        sum += y->predictor && y->predictor_device == d ? hs_budget_predictor(m, l) : 0;
        sum += y->ffn_norm && y->ffn_norm_device == d ? hs_budget_ffn_norm(m, l) : 0;
        sum += has_kv ? hs_budget_kv(m, p->n_ctx, p->kv_type) : 0;
        sum += n ? hs_budget_neurons(m, l, n) : 0;
        kv = kv || has_kv;
    }
    return sum ? sum + hs_budget_scratch(m, p->n_ctx, output, kv) : 0;
}

uint64_t hs_budget_total(const hs_model *m, const hs_placement *p)
{
    uint64_t sum = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        sum += hs_budget_device(m, p, d);
    return sum;
}

hs_status hs_placement_check(const hs_placement *p, const hs_model *m, hs_err *err)
{
    if (p->n_layer != m->n_layer)
        return hs_fail(err, HS_ERR_FORMAT, "made for %u layers, the model has %u", p->n_layer,
                       m->n_layer);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        if (p->layer[l].n_ff != m->n_ff)
            return hs_fail(err, HS_ERR_FORMAT, "layer %u: made for %u neurons, the model has %u", l,
                           p->layer[l].n_ff, m->n_ff);
        if (p->layer[l].predictor && !m->layer[l].fc1.data)
            return hs_fail(err, HS_ERR_FORMAT, "layer %u: places a predictor the model lacks", l);
    }
    if (p->fingerprint[0] && !hs_fingerprint_matches(m->gguf, p->fingerprint, false))
        return hs_fail(err, HS_ERR_FORMAT,
                       "made for another model: fingerprint %s, the model's is %s", p->fingerprint,
                       m->fingerprint);
    return HS_OK;
}
