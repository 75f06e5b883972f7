/* Tables and JSON of a profile's summary. */
#include "tools/profile/print.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* A file's name comes from a file: nothing in it may move the cursor, and JSON wants UTF-8. */
static void clean_name(char out[256], const char *name, bool ascii)
{
    size_t i = 0;
    for (; name[i] && i < 255; i++) {
        const unsigned char c = (unsigned char)name[i];
        const bool bad = c < 0x20 || c == 0x7f || (ascii && c >= 0x80);
        out[i] = (char)(bad ? '?' : name[i]);
    }
    out[i] = 0;
}

/* ---- text ----------------------------------------------------------------------------- */

static void print_head(FILE *f, const hs_activation *a)
{
    fprintf(f, "%" PRIu64 " positions", a->tokens);
    if (a->n_ctx)
        fprintf(f, " in %" PRIu64 " chunks of %" PRIu32, a->chunks_done, a->n_ctx);
    fprintf(f, ", %" PRIu32 " layers, model %s\n", a->n_layer,
            a->fingerprint[0] ? a->fingerprint : "unknown");
    for (size_t i = 0; i < a->n_source; i++) {
        char name[256];
        clean_name(name, a->source[i].name, false);
        fprintf(f, "text %s (%s)\n", name, a->source[i].hash);
    }
}

static void print_row(FILE *f, const char *label, const hs_summary_part *p)
{
    fprintf(f, "%-6s %8" PRIu64 " %8.2f %%", label, p->neurons, 100 * p->active_share);
    for (int i = 0; i < HS_SUMMARY_SHARES; i++)
        fprintf(f, " %6.2f %%", 100 * p->share[i]);
    fprintf(f, " %7.3f %8" PRIu64 "\n", p->gini, p->dead);
}

static void print_neurons(FILE *f, const hs_summary_neuron *n, uint32_t count, bool with_layer)
{
    for (uint32_t i = 0; i < HS_SUMMARY_EXTREMES; i++) {
        char cell[48] = "";
        if (i < count && with_layer)
            snprintf(cell, sizeof cell, "%" PRIu32 ".%" PRIu32 ": %.2f %%", n[i].layer, n[i].neuron,
                     100 * n[i].frequency);
        else if (i < count)
            snprintf(cell, sizeof cell, "%" PRIu32 ": %.2f %%", n[i].neuron, 100 * n[i].frequency);
        fprintf(f, " %16s", cell);
    }
}

static void print_extremes(FILE *f, const hs_summary *s, const char *title, bool hot)
{
    fprintf(f, "\n%s\n", title);
    for (uint32_t l = 0; l <= s->n_layer; l++) {
        const bool model = l == s->n_layer;
        const hs_summary_part *p = model ? &s->model : &s->layer[l];
        if (model)
            fprintf(f, "model ");
        else
            fprintf(f, "%-6" PRIu32, l);
        print_neurons(f, hot ? p->hot : p->cold, hot ? p->n_hot : p->n_cold, model);
        fputc('\n', f);
    }
}

void hs_profile_print(FILE *f, const hs_activation *a, const hs_summary *s)
{
    print_head(f, a);
    fprintf(f, "\n%-6s %8s %10s", "layer", "neurons", "active");
    for (int i = 0; i < HS_SUMMARY_SHARES; i++)
        fprintf(f, "    %d %%", hs_summary_percent[i]);
    fprintf(f, " %9s %8s\n", "Gini", "dead");
    for (uint32_t l = 0; l < s->n_layer; l++) {
        char label[16];
        snprintf(label, sizeof label, "%" PRIu32, l);
        print_row(f, label, &s->layer[l]);
    }
    print_row(f, "model", &s->model);
    fprintf(f, "active: mean share of neurons active at a position; 80 %%: share of the neurons, "
               "hottest\nfirst, that makes 80 %% of all activations; dead: never active\n");
    print_extremes(f, s, "hottest neurons (share of positions at which active)", true);
    print_extremes(f, s, "coldest neurons that were active at all", false);
}

/* ---- JSON ----------------------------------------------------------------------------- */

static json_t *neurons_json(const hs_summary_neuron *n, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I, s:f}", "layer", (json_int_t)n[i].layer,
                                        "neuron", (json_int_t)n[i].neuron, "count",
                                        (json_int_t)n[i].count, "frequency", n[i].frequency));
    return list;
}

static json_t *part_json(const hs_summary_part *p)
{
    json_t *o =
        json_pack("{s:I, s:f}", "neurons", (json_int_t)p->neurons, "active_share", p->active_share);
    for (int i = 0; i < HS_SUMMARY_SHARES; i++) {
        char key[16];
        snprintf(key, sizeof key, "share_%d", hs_summary_percent[i]);
        json_object_set_new(o, key, json_real(p->share[i]));
    }
    json_object_set_new(o, "gini", json_real(p->gini));
    json_object_set_new(o, "dead", json_integer((json_int_t)p->dead));
    json_object_set_new(o, "hottest", neurons_json(p->hot, p->n_hot));
    json_object_set_new(o, "coldest", neurons_json(p->cold, p->n_cold));
    return o;
}

static json_t *sources_json(const hs_activation *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_source; i++) {
        char name[256];
        clean_name(name, a->source[i].name, false);
        json_t *text = json_string(name);
        if (!text) { /* not UTF-8 */
            clean_name(name, a->source[i].name, true);
            text = json_string(name);
        }
        json_t *o = json_object();
        json_object_set_new(o, "name", text);
        json_object_set_new(o, "hash", json_string(a->source[i].hash));
        json_array_append_new(list, o);
    }
    return list;
}

hs_status hs_profile_print_json(FILE *f, const hs_activation *a, const hs_summary *s, hs_err *err)
{
    json_t *root = json_object(), *layers = json_array();
    json_object_set_new(root, "tokens", json_integer((json_int_t)a->tokens));
    json_object_set_new(root, "fingerprint",
                        a->fingerprint[0] ? json_string(a->fingerprint) : json_null());
    json_object_set_new(root, "context", a->n_ctx ? json_integer(a->n_ctx) : json_null());
    json_object_set_new(root, "chunks",
                        a->n_ctx ? json_integer((json_int_t)a->chunks_done) : json_null());
    json_object_set_new(root, "sources", sources_json(a));
    for (uint32_t l = 0; l < s->n_layer; l++) {
        json_t *o = part_json(&s->layer[l]);
        json_object_set_new(o, "layer", json_integer(l));
        json_array_append_new(layers, o);
    }
    json_object_set_new(root, "layers", layers);
    json_object_set_new(root, "model", part_json(&s->model));
    /* jansson's calls accept NULL and fail: one that ran out of memory leaves the list short. */
    const bool whole = root && json_array_size(json_object_get(root, "layers")) == s->n_layer &&
                       json_object_get(root, "model") && json_dumpf(root, f, JSON_INDENT(1)) == 0;
    json_decref(root);
    if (!whole)
        return hs_fail(err, HS_ERR_FAILED, "cannot write JSON");
    fputc('\n', f);
    return HS_OK;
}
