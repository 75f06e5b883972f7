/* Any bytes as a placement: whatever is accepted keeps the header's promises, and writing it
 * gives a file that reads as the same placement. */
#include "formats/placement.h"

#include "formats/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_layer(const hs_placement_layer *y, uint32_t n_devices)
{
    if (!y->n_ff || y->n_device > y->n_ff || (y->kv && !y->attn) ||
        (y->kv && y->kv_device != y->attn_device) || y->attn_device >= n_devices ||
        y->predictor_device >= n_devices || y->ffn_norm_device >= n_devices ||
        (n_devices == 1 && y->on_which))
        abort();
    for (uint32_t i = 0; y->on_which && i < y->n_device; i++)
        if (y->on_which[i] >= n_devices)
            abort();
    for (uint32_t i = 0; i < y->n_device; i++)
        if (y->neuron[i] < 0 || (uint32_t)y->neuron[i] >= y->n_ff ||
            (i && y->neuron[i] <= y->neuron[i - 1]))
            abort();
}

static void check(const hs_placement *p)
{
    if (!p->n_layer || p->has_plan != (strlen(p->fingerprint) == HS_FINGERPRINT_CHARS))
        abort();
    for (uint32_t l = 0; l < p->n_layer; l++)
        check_layer(&p->layer[l], p->n_devices);
    if (!p->n_devices || p->n_devices > HS_PLACEMENT_DEVICES || p->output_device >= p->n_devices ||
        (p->n_devices > 1 && !p->has_plan))
        abort();
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n_ledger; i++) {
        sum += p->ledger[i].bytes;
        if (p->ledger[i].device < 0 || p->ledger[i].device >= (int32_t)p->n_devices)
            abort();
    }
    if (!p->has_plan)
        return;
    if ((p->n_ledger && sum != p->plan_bytes) || p->plan_bytes > p->vram_capacity || !p->n_ctx ||
        !isfinite(p->gap) || !isfinite(p->bound) || (p->kv_type != HS_F16 && p->kv_type != HS_F32))
        abort();
}

static void check_same(const hs_placement *a, const hs_placement *b)
{
    if (a->n_layer != b->n_layer || a->plan_bytes != b->plan_bytes || a->n_ledger != b->n_ledger ||
        a->gap != b->gap || a->output != b->output || a->n_devices != b->n_devices ||
        a->output_device != b->output_device || a->vram_capacity != b->vram_capacity)
        abort();
    for (uint32_t l = 0; l < a->n_layer; l++)
        if (a->layer[l].n_device != b->layer[l].n_device || a->layer[l].kv != b->layer[l].kv ||
            memcmp(a->layer[l].neuron, b->layer[l].neuron, 4 * (size_t)a->layer[l].n_device) != 0 ||
            (a->n_devices > 1 &&
             memcmp(a->layer[l].on_which, b->layer[l].on_which, a->layer[l].n_device) != 0))
            abort();
}

/* Each device's part is a placement that keeps the same promises, and together they are all. */
static void check_views(const hs_placement *p)
{
    uint64_t neurons = 0, of_views = 0, lines = 0;
    for (uint32_t l = 0; l < p->n_layer; l++)
        neurons += p->layer[l].n_device;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        hs_placement *v;
        if (hs_placement_view(&v, p, d, NULL) != HS_OK)
            abort();
        check(v);
        for (uint32_t l = 0; l < v->n_layer; l++)
            of_views += v->layer[l].n_device;
        lines += v->n_ledger;
        hs_placement_free(v);
    }
    if (neurons != of_views || lines != p->n_ledger)
        abort();
}

static void there_and_back(const hs_placement *p)
{
    hs_out *out;
    hs_map map = {0};
    if (hs_out_open(&out, "/tmp/fuzz_placement.gpuidx", true, NULL) != HS_OK)
        return;
    if (hs_placement_write(p, out, false, NULL) != HS_OK || hs_out_map(out, &map, NULL) != HS_OK)
        abort();
    hs_gguf *g;
    hs_placement *again;
    if (hs_gguf_parse(&g, map.data, map.size, NULL) != HS_OK ||
        hs_placement_parse(&again, g, NULL) != HS_OK)
        abort();
    check_same(p, again);
    hs_placement_free(again);
    hs_gguf_free(g);
    hs_map_close(&map);
    hs_out_abort(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hs_gguf *g;
    hs_placement *p;
    hs_err err = {0};
    if (hs_gguf_parse(&g, data, size, &err) != HS_OK)
        return 0;
    const hs_status s = hs_placement_parse(&p, g, &err);
    hs_gguf_free(g);
    if (s == HS_OK) {
        check(p);
        check_views(p);
        there_and_back(p);
        hs_placement_free(p);
    } else if (!err.msg[0]) {
        abort();
    }
    return 0;
}
