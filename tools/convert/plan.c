#include "tools/convert/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct planner {
    hs_conv_plan *p;
    const hs_checkpoint *ckpt;
    const hs_conv_config *c;
    const char *dir;
    const hs_cli *cli;
    bool *used; /* [tensors of the checkpoint] */
    hs_err *err;
} planner;

void hs_conv_plan_fini(hs_conv_plan *p)
{
    free(p->item);
    *p = (hs_conv_plan){0};
}

static uint64_t dim(const hs_conv_config *c, hs_conv_dim d)
{
    switch (d) {
    case HS_DIM_EMBD: return c->n_embd;
    case HS_DIM_VOCAB: return c->n_vocab;
    case HS_DIM_FF: return c->n_ff;
    case HS_DIM_Q: return (uint64_t)c->n_head * c->head_dim;
    case HS_DIM_KV: return (uint64_t)c->n_head_kv * c->head_dim;
    case HS_DIM_NONE: break;
    }
    return 0;
}

/* ---- the type ---------------------------------------------------------------------------- */

/* The float type that most elements of the checkpoint have. */
static hs_dtype own_type(const hs_checkpoint *c)
{
    uint64_t f32 = 0, f16 = 0, bf16 = 0;
    for (size_t i = 0; i < hs_checkpoint_count(c); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(c, i);
        const uint64_t n = hs_ckpt_elems(t);
        if (t->elem == HS_ELEM_F32 || t->elem == HS_ELEM_F64)
            f32 += n;
        else if (t->elem == HS_ELEM_F16)
            f16 += n;
        else if (t->elem == HS_ELEM_BF16)
            bf16 += n;
    }
    if (bf16 >= f16 && bf16 >= f32 && bf16)
        return HS_BF16;
    return f16 >= f32 && f16 ? HS_F16 : HS_F32;
}

/* ---- tensors --------------------------------------------------------------------------- */

static hs_status add(planner *pl, const char *name, const hs_ckpt_tensor *t, bool transpose,
                     uint32_t heads)
{
    if (hs_elem_bytes(t->elem) == 0 || t->elem > HS_ELEM_BF16)
        return hs_fail(pl->err, HS_ERR_UNSUPPORTED,
                       "%s: tensor %.100s is of type %s, expected float weights (a bitsandbytes, "
                       "FP8 or other quantized checkpoint? convert the original weights)",
                       t->file, t->name, t->elem_name);
    hs_conv_item *it = &pl->p->item[pl->p->n++];
    *it = (hs_conv_item){.src = t, .transpose = transpose, .heads = heads, .n_dims = t->n_dims};
    snprintf(it->name, sizeof it->name, "%s", name);
    it->ne[0] = t->shape[t->n_dims - 1];
    it->ne[1] = t->n_dims == 2 ? t->shape[0] : 1;
    if (transpose) {
        it->ne[0] = t->shape[0];
        it->ne[1] = t->shape[1];
    }
    it->dtype = t->n_dims == 1 ? HS_F32 : pl->p->dtype;
    const uint32_t block = hs_dtype_get(it->dtype)->block_elems;
    if (it->ne[0] % block) {
        hs_cli_note(pl->cli,
                    "%s: rows of %" PRIu64 " do not divide into blocks of %u: F16 instead "
                    "of %s",
                    name, it->ne[0], block, hs_dtype_name(it->dtype));
        it->dtype = HS_F16;
    }
    return HS_OK;
}

static hs_status check_shape(planner *pl, const hs_ckpt_tensor *t, uint64_t rows, uint64_t cols)
{
    const uint32_t n_dims = cols ? 2 : 1;
    if (t->n_dims == n_dims && t->shape[0] == rows && (!cols || t->shape[1] == cols))
        return HS_OK;
    char got[96] = "";
    size_t k = 0;
    for (uint32_t i = 0; i < t->n_dims && k < sizeof got; i++)
        k += (size_t)snprintf(got + k, sizeof got - k, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    if (cols)
        return hs_fail(pl->err, HS_ERR_FORMAT,
                       "%s: tensor %.100s: expected shape [%" PRIu64 ", %" PRIu64 "], got [%s]",
                       t->file, t->name, rows, cols, got);
    return hs_fail(pl->err, HS_ERR_FORMAT,
                   "%s: tensor %.100s: expected shape [%" PRIu64 "], got [%s]", t->file, t->name,
                   rows, got);
}

static const hs_ckpt_tensor *take(planner *pl, const char *name)
{
    const hs_ckpt_tensor *t = hs_checkpoint_find(pl->ckpt, name);
    if (t)
        pl->used[t - hs_checkpoint_at(pl->ckpt, 0)] = true;
    return t;
}

/* `format` is one of arch.c's names; its only conversion is %u. */
static void expand(char *out, size_t cap, const char *format, uint32_t layer)
{
    const char *u = strstr(format, "%u");
    if (u)
        snprintf(out, cap, "%.*s%u%s", (int)(u - format), format, layer, u + 2);
    else
        snprintf(out, cap, "%s", format);
}

static hs_status add_row(planner *pl, const hs_conv_name *row, uint32_t layer)
{
    const hs_conv_config *c = pl->c;
    char name[64], source[128];
    expand(name, sizeof name, row->gguf, layer);
    expand(source, sizeof source, row->source, layer);
    const hs_ckpt_tensor *t = take(pl, source);
    if (row->transform == HS_CONV_OUTPUT && c->tied) {
        if (!pl->p->pwri) /* whoever reads plain GGUF uses the embedding then */
            return HS_OK;
        expand(source, sizeof source, c->arch->head[0].source, layer);
        t = take(pl, source);
    }
    if (!t)
        return hs_fail(pl->err, HS_ERR_FORMAT, "%s: tensor %s is missing%s", pl->dir, source,
                       row->transform == HS_CONV_OUTPUT
                           ? " (and config.json does not say tie_word_embeddings)"
                           : "");
    const hs_status s = check_shape(pl, t, dim(c, row->dim[0]), dim(c, row->dim[1]));
    if (s != HS_OK)
        return s;
    const bool down = row->transform == HS_CONV_DOWN && pl->p->pwri;
    if (down)
        snprintf(name, sizeof name, "blk.%u.ffn_down_t.weight", layer);
    return add(pl, name, t, down,
               row->transform == HS_CONV_PERMUTE_Q   ? c->n_head
               : row->transform == HS_CONV_PERMUTE_K ? c->n_head_kv
                                                     : 0);
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A checkpoint of another kind, told by its names: before anything is called missing. */
static hs_status check_kind(planner *pl)
{
    for (size_t i = 0; i < hs_checkpoint_count(pl->ckpt); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(pl->ckpt, i);
        const char *advice = hs_conv_advice(t->name);
        if (advice)
            return hs_fail(pl->err, HS_ERR_UNSUPPORTED, "%s: tensor %.100s: this is %s", t->file,
                           t->name, advice);
    }
    return HS_OK;
}

static hs_status check_surplus(planner *pl)
{
    for (size_t i = 0; i < hs_checkpoint_count(pl->ckpt); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(pl->ckpt, i);
        bool known = pl->used[i];
        for (const char *const *skip = pl->c->arch->skip; *skip && !known; skip++)
            known = ends_with(t->name, *skip);
        if (!known)
            return hs_fail(pl->err, HS_ERR_UNSUPPORTED,
                           "%s: tensor %.100s is not part of %s as supported here", t->file,
                           t->name, pl->c->arch->class_name);
    }
    return HS_OK;
}

static hs_status add_predictors(planner *pl, const hs_conv_predictor *pred)
{
    hs_status s = HS_OK;
    char name[64];
    for (uint32_t l = 0; pred && l < pred->n_layer && s == HS_OK; l++) {
        snprintf(name, sizeof name, "blk.%u.fc1.weight", l);
        s = add(pl, name, pred->fc1[l], false, 0);
        snprintf(name, sizeof name, "blk.%u.fc2.weight", l);
        if (s == HS_OK)
            s = add(pl, name, pred->fc2[l], false, 0);
    }
    return s;
}

static hs_status add_all(planner *pl, const hs_conv_predictor *pred)
{
    const hs_conv_arch *a = pl->c->arch;
    hs_status s = check_kind(pl);
    for (const hs_conv_name *r = a->head; r->gguf && s == HS_OK; r++)
        s = add_row(pl, r, 0);
    for (uint32_t l = 0; l < pl->c->n_layer && s == HS_OK; l++)
        for (const hs_conv_name *r = a->layer; r->gguf && s == HS_OK; r++)
            s = add_row(pl, r, l);
    for (const hs_conv_name *r = a->tail; r->gguf && s == HS_OK; r++)
        s = add_row(pl, r, 0);
    if (s == HS_OK)
        s = add_predictors(pl, pred);
    return s == HS_OK ? check_surplus(pl) : s;
}

static size_t count_rows(const hs_conv_name *r)
{
    size_t n = 0;
    while (r[n].gguf)
        n++;
    return n;
}

hs_status hs_conv_plan_make(hs_conv_plan *p, const hs_checkpoint *ckpt,
                            const hs_conv_predictor *pred, const hs_conv_config *c,
                            const char *outtype, bool pwri, const char *dir, const hs_cli *cli,
                            hs_err *err)
{
    const hs_conv_arch *a = c->arch;
    const bool own = strcmp(outtype, "auto") == 0;
    *p =
        (hs_conv_plan){.pwri = pwri, .dtype = own ? own_type(ckpt) : hs_dtype_by_name(outtype)->id};
    p->item = calloc(count_rows(a->head) + count_rows(a->tail) +
                         (count_rows(a->layer) + 2) * (size_t)c->n_layer,
                     sizeof *p->item);
    planner pl = {p, ckpt, c, dir, cli, NULL, err};
    pl.used = calloc(hs_checkpoint_count(ckpt) + 1, sizeof *pl.used);
    const hs_status s =
        p->item && pl.used ? add_all(&pl, pred) : hs_fail(err, HS_ERR_NOMEM, "out of memory");
    free(pl.used);
    if (s != HS_OK)
        hs_conv_plan_fini(p);
    return s;
}
