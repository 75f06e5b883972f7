/* Matrices with one input share their sums. */
#include "tools/profile/sums.h"

#include "formats/imatrix.h"
#include "runtime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct channel_sums {
    double *sum2; /* [n] */
    uint32_t n;
    uint64_t count; /* tokens */
} channel_sums;

enum { LAYER_INPUTS = HS_INPUT_HEAD }; /* all but the head's belong to a layer */

struct hs_sums {
    channel_sums *input; /* [n_layer][LAYER_INPUTS], then the head's */
    uint32_t n_layer;
};

static size_t n_inputs(const hs_sums *s) { return (size_t)s->n_layer * LAYER_INPUTS + 1; }

static uint32_t length_of(const hs_model *m, size_t input)
{
    switch (input) {
    case HS_INPUT_ATTN_OUT: return m->n_head * m->head_dim;
    case HS_INPUT_DOWN: return m->n_ff;
    default: return m->n_embd;
    }
}

hs_status hs_sums_new(hs_sums **out, const hs_model *m, hs_err *err)
{
    hs_sums *s = calloc(1, sizeof *s);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    s->n_layer = m->n_layer;
    s->input = calloc(n_inputs(s), sizeof *s->input);
    bool ok = s->input != NULL;
    for (size_t i = 0; ok && i < n_inputs(s); i++) {
        channel_sums *c = &s->input[i];
        c->n = length_of(m, i + 1 < n_inputs(s) ? i % LAYER_INPUTS : HS_INPUT_HEAD);
        c->sum2 = calloc(c->n, sizeof *c->sum2);
        ok = c->sum2 != NULL;
    }
    if (!ok) {
        hs_sums_free(s);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for the importance matrix");
    }
    *out = s;
    return HS_OK;
}

void hs_sums_free(hs_sums *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->input && i < n_inputs(s); i++)
        free(s->input[i].sum2);
    free(s->input);
    free(s);
}

void hs_sums_watch(void *ud, hs_input input, uint32_t layer, const float *x, size_t len, size_t n)
{
    const hs_sums *s = ud;
    channel_sums *c = input == HS_INPUT_HEAD
                          ? &s->input[n_inputs(s) - 1]
                          : &s->input[(size_t)layer * LAYER_INPUTS + (size_t)input];
    c->count += n;
    for (size_t t = 0; t < n; t++, x += len)
        for (size_t i = 0; i < len; i++)
            c->sum2[i] += (double)x[i] * (double)x[i];
}

/* ---- writing -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    hs_input input;
} matrices[] = {{"attn_q", HS_INPUT_ATTN},  {"attn_k", HS_INPUT_ATTN},
                {"attn_v", HS_INPUT_ATTN},  {"attn_output", HS_INPUT_ATTN_OUT},
                {"ffn_gate", HS_INPUT_FFN}, {"ffn_up", HS_INPUT_FFN},
                {"ffn_down", HS_INPUT_DOWN}};
enum { N_MATRICES = sizeof matrices / sizeof *matrices };

static hs_imatrix_entry entry_of(const channel_sums *c)
{
    return (hs_imatrix_entry){.sum2 = c->sum2, .n = c->n, .count = c->count};
}

static size_t fill(hs_imatrix_entry *e, const hs_sums *s)
{
    size_t n = 0;
    for (uint32_t l = 0; l < s->n_layer; l++)
        for (size_t k = 0; k < N_MATRICES; k++) {
            e[n] = entry_of(&s->input[(size_t)l * LAYER_INPUTS + (size_t)matrices[k].input]);
            snprintf(e[n].name, sizeof e[n].name, "blk.%u.%s.weight", l, matrices[k].name);
            n++;
        }
    e[n] = entry_of(&s->input[n_inputs(s) - 1]);
    snprintf(e[n].name, sizeof e[n].name, "output.weight");
    return n + 1;
}

static hs_str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return (hs_str){name, strlen(name)};
}

hs_status hs_sums_write(const hs_sums *s, const char *path, bool replace, const hs_texts *t,
                        uint64_t n_chunks, hs_err *err)
{
    hs_imatrix_entry *e = calloc((size_t)s->n_layer * N_MATRICES + 1, sizeof *e);
    hs_str *names = calloc(t->n, sizeof *names);
    hs_status status = HS_OK;
    if (!e || !names)
        status = hs_fail(err, HS_ERR_NOMEM, "out of memory for the importance matrix");
    if (status == HS_OK) {
        for (size_t i = 0; i < t->n; i++)
            names[i] = base_name(t->text[i].path);
        const hs_imatrix_source source = {
            names, t->n, n_chunks < UINT32_MAX ? (uint32_t)n_chunks : UINT32_MAX, t->n_ctx};
        status = hs_imatrix_write(path, replace, &source, e, fill(e, s), err);
    }
    free(names);
    free(e);
    return status;
}
