/* A placement by rule, for benchmarks: every dense block and a share of each layer's neurons on the
 * device, spread evenly.
 *
 *   placement MODEL OUT SHARE N_CTX */
#include "formats/placement.h"
#include "formats/file.h"
#include "runtime/budget.h"
#include "runtime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(hs_status st, const hs_err *err)
{
    if (st) {
        fprintf(stderr, "placement: %s\n", err->msg);
        exit(1);
    }
}

static void fill(hs_placement *p, const hs_model *m, double share)
{
    hs_err err;
    int32_t *id = malloc(m->n_ff * sizeof *id);
    if (!id)
        exit(1);
    for (uint32_t l = 0; l < m->n_layer; l++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->n_ff; i++)
            if ((uint32_t)((i + 1) * share) > (uint32_t)(i * share))
                id[n++] = (int32_t)i;
        need(hs_placement_set(p, l, id, n, &err), &err);
        p->layer[l].attn = p->layer[l].kv = p->layer[l].ffn_norm = true;
        p->layer[l].predictor = m->layer[l].fc1.data != NULL;
    }
    free(id);
}

int main(int argc, char **argv)
{
    hs_err err;
    hs_model *m;
    hs_placement *p;
    hs_out *out;
    if (argc != 5) {
        fprintf(stderr, "usage: placement MODEL OUT SHARE N_CTX\n");
        return 2;
    }
    need(hs_model_load(&m, argv[1], &err), &err);
    uint32_t *n_ff = malloc(m->n_layer * sizeof *n_ff);
    if (!n_ff)
        return 1;
    for (uint32_t l = 0; l < m->n_layer; l++)
        n_ff[l] = m->n_ff;
    need(hs_placement_new(&p, m->n_layer, n_ff, &err), &err);
    fill(p, m, strtod(argv[3], NULL));
    p->output = p->has_plan = true;
    p->n_ctx = (uint32_t)strtoul(argv[4], NULL, 10);
    p->kv_type = HS_F16;
    strcpy(p->objective, "impact");
    strcpy(p->method, "greedy");
    p->group = 64;
    memcpy(p->fingerprint, m->fingerprint, sizeof p->fingerprint);
    p->plan_bytes = p->vram_capacity = hs_budget_total(m, p);
    need(hs_out_open(&out, argv[2], true, &err), &err);
    need(hs_placement_write(p, out, false, &err), &err);
    need(hs_out_commit(out, false, &err), &err);
    hs_placement_free(p);
    hs_model_free(m);
    free(n_ff);
    return 0;
}
