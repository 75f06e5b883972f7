/* Placements for comparison.  They keep to the budget as the plan does, working buffers too. */
#include "tools/solver/baseline.h"

#include <stdlib.h>

const char *const hs_baseline_name[HS_N_BASELINES] = {"cpu", "layers", "random", "greedy"};

static hs_status nothing(hs_placement *p, hs_err *err)
{
    p->output = false;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        hs_placement_layer *y = &p->layer[l];
        y->attn = y->kv = y->predictor = y->ffn_norm = false;
        const hs_status s = hs_placement_set(p, l, NULL, 0, err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status layers(const hs_baseline_problem *x, hs_placement *p, hs_err *err)
{
    const hs_plan_costs *c = x->bytes;
    uint64_t used = c->scratch[false][true];
    hs_status s = HS_OK;
    uint32_t l = p->n_layer;
    while (s == HS_OK && l-- > 0) {
        hs_placement_layer *y = &p->layer[l];
        if (!hs_plan_mine(c, l))
            continue;
        const uint64_t bytes = c->attn[l] + c->kv + c->predictor[l] + c->ffn_norm[l] +
                               x->neurons(x->neurons_ud, l, y->n_ff);
        if (used + bytes > x->budget)
            return HS_OK;
        used += bytes;
        y->attn = y->kv = y->ffn_norm = true;
        y->predictor = c->predictor[l] > 0;
        s = hs_placement_set(p, l, x->order[l], y->n_ff, err);
    }
    p->output = !c->no_output &&
                used - c->scratch[false][true] + c->scratch[true][true] + c->output <= x->budget;
    return s;
}

/* xorshift; the seed is part of the definition. */
static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return n ? (uint32_t)((*state >> 20) % n) : 0;
}

static hs_status by_lot(const hs_baseline_problem *x, uint64_t room, hs_placement *p, hs_err *err)
{
    uint64_t all = 0, state = 20240607;
    uint32_t most = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        all += hs_plan_mine(x->bytes, l) ? x->neurons(x->neurons_ud, l, p->layer[l].n_ff) : 0;
        most = p->layer[l].n_ff > most ? p->layer[l].n_ff : most;
    }
    int32_t *id = calloc((size_t)most + 1, sizeof *id);
    if (!id)
        return hs_fail(err, HS_ERR_NOMEM, "random split: out of memory");
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer && all; l++) {
        if (!hs_plan_mine(x->bytes, l))
            continue;
        const uint32_t n_ff = p->layer[l].n_ff;
        const uint64_t have = x->neurons(x->neurons_ud, l, n_ff);
        const double part = room < all ? (double)room / (double)all : 1;
        uint32_t n = (uint32_t)(part * n_ff);
        while (n && x->neurons(x->neurons_ud, l, n) > (uint64_t)(part * (double)have))
            n--;
        for (uint32_t i = 0; i < n_ff; i++)
            id[i] = (int32_t)i;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t j = i + draw(&state, n_ff - i);
            const int32_t t = id[i];
            id[i] = id[j];
            id[j] = t;
        }
        s = hs_placement_set(p, l, id, n, err);
    }
    free(id);
    return s;
}

typedef struct candidate {
    double worth; /* activations per byte */
    uint64_t bytes;
    uint32_t layer, group;
} candidate;

static int worthiest_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth < y->worth ? 1 : -1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return (x->group > y->group) - (x->group < y->group);
}

static size_t list_groups(const hs_baseline_problem *x, const hs_placement *p, candidate *out)
{
    size_t n = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const uint32_t n_ff = hs_plan_mine(x->bytes, l) ? p->layer[l].n_ff : 0;
        uint64_t before = 0;
        for (uint32_t k = 0; k * (uint64_t)x->group < n_ff; k++) {
            const uint64_t end = (k + 1) * (uint64_t)x->group;
            const uint32_t to = end < n_ff ? (uint32_t)end : n_ff;
            double sum = 0;
            for (uint32_t i = k * x->group; i < to; i++)
                sum += (double)x->profile->count[l][x->order[l][i]];
            const uint64_t bytes = x->neurons(x->neurons_ud, l, to);
            out[n++] = (candidate){bytes > before ? sum / (double)(bytes - before) : 0,
                                   bytes - before, l, k};
            before = bytes;
        }
    }
    return n;
}

static hs_status greedy(const hs_baseline_problem *x, uint64_t room, hs_placement *p, hs_err *err)
{
    size_t n = 0;
    for (uint32_t l = 0; l < p->n_layer; l++)
        n += p->layer[l].n_ff / x->group + 1;
    candidate *c = calloc(n + 1, sizeof *c);
    uint32_t *have = calloc((size_t)p->n_layer + 1, sizeof *have);
    hs_status s = HS_OK;
    if (c && have) {
        n = list_groups(x, p, c);
        qsort(c, n, sizeof *c, worthiest_first);
        /* A group whose hotter neighbour did not fit is passed over as well. */
        for (size_t i = 0; i < n; i++)
            if (c[i].group == have[c[i].layer] && c[i].bytes <= room) {
                room -= c[i].bytes;
                have[c[i].layer]++;
            }
        for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++) {
            const uint64_t k = have[l] * (uint64_t)x->group, n_ff = p->layer[l].n_ff;
            s = hs_placement_set(p, l, x->order[l], (uint32_t)(k < n_ff ? k : n_ff), err);
        }
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "greedy split: out of memory");
    }
    free(c);
    free(have);
    return s;
}

hs_status hs_baseline_make(const hs_baseline_problem *x, hs_baseline which, hs_placement *p,
                           hs_err *err)
{
    const hs_status s = nothing(p, err);
    if (s != HS_OK || which == HS_BASE_CPU)
        return s;
    if (which == HS_BASE_LAYERS)
        return layers(x, p, err);
    const uint64_t room = hs_plan_dense(x->bytes, x->budget, p);
    return which == HS_BASE_RANDOM ? by_lot(x, room, p, err) : greedy(x, room, p, err);
}
