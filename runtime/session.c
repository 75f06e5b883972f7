/* A session's life: resolve what was asked for against the file and the machine, take all
 * memory at once, then evaluate batches without allocating. */
#include "runtime/session.h"

#include "formats/cursor.h"
#include "runtime/budget.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void note(hs_session *s, const char *fmt, ...) HS_PRINTF(2, 3);
static void note(hs_session *s, const char *fmt, ...)
{
    if (s->n_notes == HS_MAX_NOTES)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->note_text[s->n_notes], sizeof s->note_text[0], fmt, ap);
    va_end(ap);
    s->notes[s->n_notes] = s->note_text[s->n_notes];
    s->n_notes++;
}

/* ---- resolving ------------------------------------------------------------------------- */

static hs_status resolve_machine(hs_session *s, const hs_session_params *p, hs_err *err)
{
    hs_cpu_level level = hs_cpu_detect();
    if (p->cpu) {
        hs_cpu_level want;
        if (!hs_cpu_from_name(p->cpu, &want))
            return hs_fail(err, HS_ERR_USAGE,
                           "--cpu: '%s' is not one of scalar, avx2, avx512, neon", p->cpu);
        if (want > level || (want == HS_CPU_NEON) != (level == HS_CPU_NEON && want))
            return hs_fail(err, HS_ERR_USAGE, "--cpu: this machine has %s, not %s",
                           hs_cpu_name(level), hs_cpu_name(want));
        level = want;
    }
    hs_kernels_init(&s->k, level);
    return hs_pool_new(&s->pool, p->n_threads > 0 ? p->n_threads : hs_cpu_count(), err);
}

static hs_status resolve_context(hs_session *s, const hs_session_params *p, hs_err *err)
{
    const uint32_t train = s->m->n_ctx_train;
    s->n_ctx = p->n_ctx ? p->n_ctx : train < 4096 ? train : 4096;
    if (s->n_ctx > (1u << 24))
        return hs_fail(err, HS_ERR_USAGE, "context %u is above the limit of %u", s->n_ctx,
                       1u << 24);
    if (s->n_ctx > train)
        note(s, "context %u is longer than the %u the model was trained for", s->n_ctx, train);
    s->kv_type = p->kv_f32 ? HS_F32 : HS_F16;
    return HS_OK;
}

static hs_status resolve_sparsity(hs_session *s, const hs_session_params *p, hs_err *err)
{
    const hs_model *m = s->m;
    const bool relu = hs_act_is_sparse(m->fn);
    hs_model_info info;
    hs_model_describe(m, &info);
    s->threshold = p->has_threshold ? p->threshold : m->threshold;
    if (isnan(s->threshold))
        return hs_fail(err, HS_ERR_USAGE, "the sparse threshold is not a number");
    s->sparsity = p->sparsity;
    if (p->sparsity == HS_SPARSITY_AUTO)
        s->sparsity = !relu               ? HS_SPARSITY_OFF
                      : m->has_predictors ? HS_SPARSITY_PREDICTED
                                          : HS_SPARSITY_EXACT;
    if (p->sparsity == HS_SPARSITY_PREDICTED && !m->has_predictors)
        return hs_fail(err, HS_ERR_USAGE,
                       "sparsity predicted: the model has no predictors "
                       "(use exact or auto)");
    if (!relu) {
        if (p->sparsity != HS_SPARSITY_OFF)
            note(s, "runs dense: activation %s is not ReLU-family, no neuron is ever inactive",
                 info.activation);
        s->sparsity = HS_SPARSITY_OFF;
    }
    for (uint32_t l = 0; l < m->n_layer; l++) {
        const hs_layer *y = &m->layer[l];
        const uint64_t ffn = hs_mat_bytes(&y->gate) + hs_mat_bytes(&y->up) +
                             hs_mat_bytes(y->down.data ? &y->down : &y->down_t);
        const uint64_t predictor = hs_mat_bytes(&y->fc1) + hs_mat_bytes(&y->fc2);
        s->mode[l] = s->sparsity;
        /* The byte rule of auto: a predictor is read whole for every token; when it is not
         * smaller than the FFN itself, skipping neurons cannot pay for it. */
        if (p->sparsity == HS_SPARSITY_AUTO && s->sparsity == HS_SPARSITY_PREDICTED &&
            predictor >= ffn) {
            s->mode[l] = HS_SPARSITY_OFF;
            note(s,
                 "layer %u runs dense: its predictor (%llu bytes) is not smaller than its FFN "
                 "(%llu bytes)",
                 l, (unsigned long long)predictor, (unsigned long long)ffn);
        }
    }
    return HS_OK;
}

/* The kind of device that executes `pl`, or NULL, and which ones of the machine. */
static hs_status resolve_device(hs_session *s, const hs_session_params *p, hs_placement *pl,
                                const hs_device_ops **ops, int *ordinal, hs_err *err)
{
    const char *want = p->device ? p->device : "auto";
    const bool is_auto = !strcmp(want, "auto");
    const int n = pl ? (int)pl->n_devices : 1;
    hs_err why = {0};
    *ops = NULL;
    for (int i = 0; i < n; i++)
        ordinal[i] = i;
    s->device_name = "none";
    if (!strcmp(want, "none"))
        return HS_OK;
    if (!strcmp(want, "emu")) {
        *ops = hs_device_emu();
    } else if (!strcmp(want, "cuda") || is_auto) {
        *ops = hs_device_cuda();
        if (!*ops)
            hs_fail(&why, HS_ERR_DEVICE,
                    "device cuda: this build has no CUDA (nvcc was not found when it was "
                    "made)");
        else if ((*ops)->count(&why) <= 0)
            *ops = NULL;
        if (!*ops && !is_auto)
            return hs_fail(err, HS_ERR_DEVICE, "%s", why.msg);
    } else {
        return hs_fail(err, HS_ERR_USAGE, "--device: '%s' is not one of auto, none, cuda, emu",
                       want);
    }
    if (!pl) {
        note(s,
             "%sno placement: everything runs on the CPU; hotset-profile and hotset-solve make "
             "one",
             is_auto ? "" : "warning: ");
        *ops = NULL;
    } else if (!*ops) {
        note(s, "warning: the placement is not executed, everything runs on the CPU: %s", why.msg);
    } else if (hs_budget_total(s->m, pl) == 0) {
        note(s, "the placement puts nothing on the device: everything runs on the CPU");
        *ops = NULL;
    } else {
        s->device_name = (*ops)->name;
        if (is_auto)
            return hs_split_choose(*ops, n, ordinal, err);
    }
    return HS_OK;
}

static hs_status read_placement(hs_session *s, const hs_session_params *p, hs_placement **out,
                                hs_err *err)
{
    *out = NULL;
    if (!p->placement)
        return HS_OK;
    hs_status st = hs_placement_read(out, p->placement, err);
    if (st != HS_OK)
        return st;
    hs_placement *pl = *out;
    if ((st = hs_placement_check(pl, s->m, err)) != HS_OK)
        return hs_ctx(err, st, "%s: ", p->placement);
    if (!pl->fingerprint[0])
        note(s, "warning: %s carries no model fingerprint; accepted because its shape fits",
             p->placement);
    bool kv = false;
    for (uint32_t l = 0; l < pl->n_layer; l++)
        kv = kv || pl->layer[l].kv;
    if (kv && pl->n_ctx && pl->n_ctx != s->n_ctx)
        note(s, "the placement was planned for context %u, this run uses %u", pl->n_ctx, s->n_ctx);
    pl->n_ctx = s->n_ctx;
    pl->kv_type = s->kv_type;
    return HS_OK;
}

/* ---- memory ---------------------------------------------------------------------------- */

/* Down matrices by neuron: the file's where it has them, else transposed copies.  A ReLU-family
 * model gets them in every mode, so that no mode or placement computes the sum otherwise. */
static hs_status make_down_t(hs_session *s, const hs_placement *pl, const hs_device_ops *ops,
                             hs_err *err)
{
    const hs_model *m = s->m;
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        const hs_layer *y = &m->layer[l];
        s->down_t[l] = y->down_t;
        const bool by_neuron = hs_act_is_sparse(m->fn) || (ops && pl && pl->layer[l].n_device > 0);
        if (y->down_t.data || !by_neuron)
            continue;
        const hs_dtype t = hs_transposed_type(y->down.dtype);
        uint64_t row;
        if (!hs_dtype_row_bytes(t, m->n_embd, &row))
            return hs_fail(err, HS_ERR_NOMEM, "transposing ffn_down: size overflows");
        s->down_t[l] = (hs_mat){NULL, t, m->n_embd, m->n_ff, row};
        bytes += row * m->n_ff;
        n++;
    }
    if (!n)
        return HS_OK;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    s->transposed = malloc(bytes);
    float *row = malloc(((size_t)m->n_ff + m->n_embd) * sizeof *row);
    if (!s->transposed || !row) {
        free(row);
        return hs_fail(err, HS_ERR_NOMEM, "transposing ffn_down needs %llu bytes",
                       (unsigned long long)bytes);
    }
    uint8_t *at = s->transposed;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        hs_mat *d = &s->down_t[l];
        if (d->data || !d->row_bytes)
            continue;
        const hs_mat *w = &m->layer[l].down;
        const size_t elem = d->row_bytes / m->n_embd;
        for (uint32_t r = 0; r < w->rows; r++) {
            hs_dtype_get(w->dtype)->decode(row, hs_mat_row(w, r), w->cols);
            for (uint32_t c = 0; c < w->cols; c++)
                hs_dtype_get(d->dtype)->encode(at + c * d->row_bytes + r * elem, row + c, 1);
        }
        d->data = at;
        at += d->row_bytes * m->n_ff;
    }
    free(row);
    s->transposed_bytes = bytes;
    clock_gettime(CLOCK_MONOTONIC, &t1);
    note(s,
         "transposed ffn_down of %u layers at load: %.1f MiB, %.2f s (the sparse layout needs "
         "neither)",
         n, (double)bytes / 1048576.0,
         (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9);
    return HS_OK;
}

static hs_status make_kv(hs_session *s, hs_err *err)
{
    const hs_model *m = s->m;
    uint32_t host = 0;
    for (uint32_t l = 0; l < m->n_layer; l++)
        s->kv_slot[l] = s->split->layer[l].kv ? -1 : (int32_t)host++;
    s->kv_row_bytes = (uint64_t)m->n_head_kv * m->head_dim * (s->kv_type == HS_F32 ? 4 : 2);
    const uint64_t rope = (uint64_t)s->n_ctx * m->rope_dim * sizeof *s->rope;
    const uint64_t att = (uint64_t)s->n_ctx * m->n_head * sizeof *s->att;
    const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t half, need;
    /* malloc promises more than the machine has, and the process would be killed later. */
    if (!hs_mul(s->kv_row_bytes * s->n_ctx, host, &half) || half > memory ||
        (need = 2 * half + rope + att) > memory)
        return hs_fail(err, HS_ERR_NOMEM,
                       "context %u needs more host memory than this machine's %llu MiB", s->n_ctx,
                       (unsigned long long)(memory >> 20));
    s->host_kv_bytes = 2 * half;
    s->k_cache = malloc(half + 1);
    s->v_cache = malloc(half + 1);
    s->rope = malloc(rope);
    if (!s->k_cache || !s->v_cache || !s->rope)
        return hs_fail(err, HS_ERR_NOMEM,
                       "the KV cache for context %u needs %llu bytes of host memory", s->n_ctx,
                       (unsigned long long)need);
    for (uint32_t i = 0; i < m->rope_dim; i += 2) {
        const double f =
            pow((double)m->rope_base, -(double)i / m->rope_dim) * (double)m->rope_scale;
        for (uint32_t t = 0; t < s->n_ctx; t++) {
            s->rope[(uint64_t)t * m->rope_dim + i] = (float)cos(t * f);
            s->rope[(uint64_t)t * m->rope_dim + i + 1] = (float)sin(t * f);
        }
    }
    return HS_OK;
}

/* Run twice: with block NULL it only adds up. */
static uint64_t lay_out(hs_session *s, uint8_t *block)
{
    const hs_model *m = s->m;
    const uint64_t b = HS_MAX_BATCH, qn = (uint64_t)m->n_head * m->head_dim,
                   kn = (uint64_t)m->n_head_kv * m->head_dim;
    uint64_t hid = 0, cols = m->n_embd > m->n_ff ? m->n_embd : m->n_ff;
    for (uint32_t l = 0; l < m->n_layer; l++)
        if (m->layer[l].fc1.data && m->layer[l].fc1.rows > hid)
            hid = m->layer[l].fc1.rows;
    cols = cols > qn ? cols : qn;
    /* The same elements of several tokens must not lie a power of two apart: they would take each
     * other's place in the first cache. */
    cols = ((cols > hid ? cols : hid) + 63) / 64 * 64 + 64;
    s->q8_cols = cols;
    const struct {
        void *slot; /* address of the pointer to set */
        uint64_t bytes;
    } parts[] = {
        {&s->x, 4 * b * m->n_embd},
        {&s->xn, 4 * b * m->n_embd},
        {&s->y, 4 * b * m->n_embd},
        {&s->q, 4 * b * qn},
        {&s->o, 4 * b * qn},
        {&s->kx, 4 * b * kn},
        {&s->vx, 4 * b * kn},
        {&s->g, 4 * b * m->n_ff},
        {&s->u, 4 * b * m->n_ff},
        {&s->hid, 4 * b * hid},
        {&s->score, 4 * b * m->n_ff},
        {&s->att, 4ull * m->n_head * s->n_ctx},
        {&s->zc, 4 * b * m->n_ff},
        {&s->act, 4 * b * m->n_ff},
        {&s->chunk, 4 * b * 3 * (m->n_ff / HS_FFN_CHUNK + 1)},
        {&s->sum, 8 * b * m->n_embd},
        {&s->q8, b * cols},
        {&s->q8d, b * cols / 32 * 4},
        {&s->logits, 4ull * m->n_vocab},
    };
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint8_t *p = block ? block + at : NULL;
        memcpy(parts[i].slot, &p, sizeof p);
        at += (parts[i].bytes + 63) / 64 * 64;
    }
    return at;
}

static hs_status make_scratch(hs_session *s, hs_err *err)
{
    s->block_bytes = lay_out(s, NULL);
    if (posix_memalign(&s->block, 64, s->block_bytes) != 0) {
        s->block = NULL;
        return hs_fail(err, HS_ERR_NOMEM, "working memory needs %llu bytes",
                       (unsigned long long)s->block_bytes);
    }
    lay_out(s, s->block);
    return HS_OK;
}

static hs_status session_init(hs_session *s, const hs_session_params *p, hs_placement **pl,
                              hs_err *err)
{
    const hs_model *m = s->m;
    hs_status st;
    s->mode = calloc(m->n_layer, sizeof *s->mode);
    s->count = calloc(m->n_layer, sizeof *s->count);
    s->down_t = calloc(m->n_layer, sizeof *s->down_t);
    s->kv_slot = calloc(m->n_layer, sizeof *s->kv_slot);
    if (!s->mode || !s->count || !s->down_t || !s->kv_slot)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const hs_device_ops *ops;
    int ordinal[HS_PLACEMENT_DEVICES];
    if ((st = resolve_machine(s, p, err)) != HS_OK || (st = resolve_context(s, p, err)) != HS_OK ||
        (st = resolve_sparsity(s, p, err)) != HS_OK ||
        (st = read_placement(s, p, pl, err)) != HS_OK ||
        (st = resolve_device(s, p, *pl, &ops, ordinal, err)) != HS_OK ||
        (st = make_down_t(s, *pl, ops, err)) != HS_OK)
        return st;
    s->budget = p->has_budget ? p->vram_budget : *pl ? (*pl)->vram_capacity : 0;
    st = hs_split_new(&s->split, m, *pl, s->down_t, ops, ordinal, s->budget, s->n_ctx, s->kv_type,
                      err);
    if (st != HS_OK)
        return p->placement ? hs_ctx(err, st, "%s: ", p->placement) : st;
    if ((st = make_kv(s, err)) != HS_OK)
        return st;
    return make_scratch(s, err);
}

hs_status hs_session_new(hs_session **out, const hs_model *m, const hs_session_params *p,
                         hs_err *err)
{
    *out = NULL;
    hs_session *s = calloc(1, sizeof *s);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    s->m = m;
    s->batch = HS_MAX_BATCH;
    hs_placement *pl = NULL;
    const hs_status st = session_init(s, p, &pl, err);
    hs_placement_free(pl);
    if (st != HS_OK) {
        hs_session_free(s);
        return st;
    }
    *out = s;
    return HS_OK;
}

void hs_session_free(hs_session *s)
{
    if (!s)
        return;
    hs_split_free(s->split);
    hs_pool_free(s->pool);
    free(s->block);
    free(s->rope);
    free(s->k_cache);
    free(s->v_cache);
    free(s->kv_slot);
    free(s->transposed);
    free(s->down_t);
    free(s->count);
    free(s->mode);
    free(s);
}

/* ---- evaluation ------------------------------------------------------------------------ */

static bool all_finite(const float *x, size_t n)
{
    float bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += x[i] * 0.0f; /* NaN as soon as one is not finite */
    return bad == 0;
}

/* Weights that are not finite are the file's fault; finite ones may still overflow. */
static hs_status nonfinite(const hs_session *s, uint32_t layer, hs_err *err)
{
    const char *name = hs_model_find_nonfinite(s->m, layer);
    if (name)
        return hs_fail(err, HS_ERR_FORMAT, "%s: tensor %s has weights that are not finite",
                       s->m->path, name);
    char where[32];
    snprintf(where, sizeof where, layer < s->m->n_layer ? "layer %u" : "the output head", layer);
    return hs_fail(err, HS_ERR_FAILED, "%s: values overflow in %s at positions from %u", s->m->path,
                   where, s->pos);
}

/* Logits of token t of a batch of n. */
static hs_status head(hs_session *s, size_t t, size_t n, hs_err *err)
{
    const hs_model *m = s->m;
    float *x = s->x + t * m->n_embd;
    hs_status st;
    if (s->split->output != HS_NOWHERE) {
        if ((st = hs_hybrid_head(s, t, n, err)) != HS_OK)
            return st;
    } else {
        if ((st = hs_hybrid_home(s, n, err)) != HS_OK)
            return st;
        hs_rmsnorm(s, s->xn, x, m->output_norm);
        hs_matmul(s, &m->output, s->xn, m->n_embd, s->logits, m->n_vocab, 1);
    }
    if (all_finite(s->logits, m->n_vocab))
        return HS_OK;
    /* On a device it was not seen in which layer. */
    for (uint32_t l = 0; hs_is_hybrid(s) && l < m->n_layer; l++)
        if (hs_model_find_nonfinite(m, l))
            return nonfinite(s, l, err);
    return nonfinite(s, m->n_layer, err);
}

static hs_status eval_batch(hs_session *s, const int32_t *ids, size_t n, bool last,
                            hs_logits_fn each, void *ud, hs_err *err)
{
    const hs_model *m = s->m;
    hs_status st;
    for (size_t t = 0; t < n; t++)
        hs_dtype_get(m->token_embd.dtype)
            ->decode(s->x + t * m->n_embd, hs_mat_row(&m->token_embd, (uint64_t)ids[t]), m->n_embd);
    if ((st = hs_hybrid_begin(s, n, err)) != HS_OK)
        return st;
    for (uint32_t l = 0, done; l < m->n_layer; l += done) {
        if ((st = hs_hybrid_run(s, l, n, &done, err)) != HS_OK)
            return st;
        if (done > 0)
            continue;
        done = 1;
        if ((st = hs_attn_forward(s, l, n, err)) != HS_OK ||
            (st = hs_ffn_forward(s, l, n, err)) != HS_OK)
            return st;
        if (s->split->at == HS_NOWHERE && !all_finite(s->x, n * m->n_embd))
            return nonfinite(s, l, err);
    }
    for (size_t t = 0; s->watch && t < n; t++) {
        hs_rmsnorm(s, s->xn, s->x + t * m->n_embd, m->output_norm);
        hs_watched(s, HS_INPUT_HEAD, 0, s->xn, m->n_embd, 1);
    }
    for (size_t t = each ? 0 : n - 1; (each || last) && t < n; t++) {
        if ((st = head(s, t, n, err)) != HS_OK)
            return st;
        if (each && !each(ud, s->pos + t, s->logits))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    }
    s->pos += (uint32_t)n;
    return HS_OK;
}

hs_status hs_session_eval(hs_session *s, const int32_t *ids, size_t n, hs_logits_fn each, void *ud,
                          hs_err *err)
{
    if (n > s->n_ctx - s->pos)
        return hs_fail(err, HS_ERR_NOSPACE, "%zu tokens do not fit the context of %u", s->pos + n,
                       s->n_ctx);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->m->n_vocab)
            return hs_fail(err, HS_ERR_USAGE, "token %zu has id %d, the vocabulary ends at %u", i,
                           ids[i], s->m->n_vocab - 1);
    const uint32_t start = s->pos;
    const size_t step = hs_is_hybrid(s) && s->batch > HS_DEV_BATCH ? HS_DEV_BATCH : s->batch;
    for (size_t i = 0; i < n; i += step) {
        const size_t k = n - i < step ? n - i : step;
        const hs_status st = eval_batch(s, ids + i, k, i + k == n, each, ud, err);
        if (st != HS_OK) {
            hs_hybrid_abandon(s);
            s->pos = start;
            return st;
        }
    }
    return HS_OK;
}

const float *hs_session_logits(const hs_session *s) { return s->logits; }
size_t hs_session_pos(const hs_session *s) { return s->pos; }
size_t hs_session_n_ctx(const hs_session *s) { return s->n_ctx; }
void hs_session_reset(hs_session *s) { s->pos = 0; }

void hs_session_set_batch(hs_session *s, size_t n)
{
    s->batch = n < 1 ? 1 : n > HS_MAX_BATCH ? HS_MAX_BATCH : (uint32_t)n;
}

void hs_session_observe(hs_session *s, hs_observe_fn fn, void *ud)
{
    s->observe = fn;
    s->observe_ud = ud;
}

void hs_session_watch(hs_session *s, hs_input_fn fn, void *ud)
{
    s->watch = fn;
    s->watch_ud = ud;
}

/* ---- questions ------------------------------------------------------------------------- */

void hs_session_layer_stats(const hs_session *s, uint32_t layer, hs_layer_stats *out)
{
    const hs_layer_counts *c = &s->count[layer];
    const double cells = (double)c->tokens * s->m->n_ff;
    uint64_t active, predicted;
    hs_hybrid_stats(s, layer, &active, &predicted);
    predicted += c->predicted;
    *out = (hs_layer_stats){
        .mode = s->mode[layer],
        .predicted_share = cells > 0 ? (double)predicted / cells : 0,
        .active_share = cells > 0 ? (double)(c->cpu_active + active) / cells : 0,
        .cpu_neurons = c->cpu_active,
        .device_neurons = active,
    };
}

bool hs_session_memory(const hs_session *s, hs_memory *host, hs_memory *device)
{
    hs_model_info info;
    hs_model_describe(s->m, &info);
    *host = (hs_memory){
        .weights = info.weight_bytes + s->transposed_bytes,
        .kv = s->host_kv_bytes,
        .scratch = s->block_bytes + (uint64_t)s->n_ctx * s->m->rope_dim * 4,
    };
    host->planned = host->used = host->weights + host->kv + host->scratch;
    *device = (hs_memory){0};
    const hs_split *sp = s->split;
    if (!hs_is_hybrid(s))
        return false;
    device->budget = sp->budget;
    device->planned = sp->planned;
    for (int i = 0; i < sp->n_dev; i++) {
        device->used += sp->ops->used(sp->device[i].dev);
        device->weights += sp->device[i].weights;
        device->kv += sp->device[i].kv;
        device->scratch += sp->device[i].scratch_bytes;
    }
    return true;
}

void hs_session_describe(const hs_session *s, hs_session_info *out)
{
    *out = (hs_session_info){
        .device = s->device_name,
        .cpu = hs_cpu_name(s->k.level),
        .n_threads = hs_pool_size(s->pool),
        .sparsity = s->sparsity,
        .threshold = s->threshold,
        .n_ctx = s->n_ctx,
        .notes = s->notes,
    };
}
