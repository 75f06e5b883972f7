/* hotset-run: a prompt in, text out.  Sees the library through hotset.h alone. */
#include "formats/err.h"
#include "runtime/cli.h"
#include "runtime/hotset.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

typedef struct options {
    hs_cli cli;
    const char *model, *placement, *device, *prompt, *file, *tokens, *kv_type, *sparsity;
    uint64_t budget, seed;
    bool has_budget, has_seed, has_threshold, has_logits, has_verify, ignore_eos;
    int64_t n_predict, n_ctx, batch, n_logits, n_verify, top_k, repeat_last_n;
    double temp, top_p, min_p, repeat, presence, frequency, threshold;
} options;

typedef struct logit {
    float value;
    int32_t id;
} logit;

typedef struct run {
    options *o;
    hs_model *m;
    hs_session *s;
    hs_sampler *sampler;
    hs_model_info model;
    hs_session_info session;
    int32_t *prompt, *ids; /* ids: [n_ctx + 1] generated ones */
    size_t n_prompt, n_ids;
    char *text; /* generated so far */
    size_t n_text, cap_text, shown;
    logit *sorted;  /* [n_vocab], with --logits */
    json_t *logits; /* one entry per generated token */
    double load_s, prompt_s, decode_s;
    size_t n_decode; /* tokens evaluated one by one */
    bool full;
} run;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double rate(size_t n, double seconds) { return n && seconds > 0 ? (double)n / seconds : 0; }

static hs_status no_memory(hs_err *err) { return hs_fail(err, HS_ERR_NOMEM, "out of memory"); }

/* ---- prompt ------------------------------------------------------------------------------ */

/* Exactly these ids: "1,300,359". */
static hs_status parse_tokens(run *r, hs_err *err)
{
    const char *s = r->o->tokens;
    r->prompt = calloc(strlen(s) / 2 + 1, sizeof *r->prompt);
    if (!r->prompt)
        return no_memory(err);
    for (;;) {
        const size_t digits = strspn(s, "0123456789");
        if (!digits || (s[digits] && s[digits] != ','))
            return hs_fail(err, HS_ERR_USAGE,
                           "--tokens: expected ids separated by commas, got '%.24s'", s);
        const unsigned long long id = digits < 12 ? strtoull(s, NULL, 10) : UINT64_MAX;
        if (id >= r->model.n_vocab)
            return hs_fail(err, HS_ERR_USAGE, "--tokens: id %.*s: the vocabulary has %u tokens",
                           (int)(digits < 24 ? digits : 24), s, r->model.n_vocab);
        r->prompt[r->n_prompt++] = (int32_t)id;
        if (!s[digits])
            return HS_OK;
        s += digits + 1;
    }
}

static hs_status read_prompt(run *r, hs_err *err)
{
    const options *o = r->o;
    if (o->tokens)
        return parse_tokens(r, err);
    char *text = NULL;
    size_t n = o->prompt ? strlen(o->prompt) : 0, n_ids = 0;
    int32_t *ids = NULL;
    hs_status s = o->file ? hs_read_text(o->file, &text, &n, err) : HS_OK;
    if (s == HS_OK && n)
        s = hs_tokenize(r->m, text ? text : o->prompt, n, o->cli.special, &ids, &n_ids, err);
    free(text);
    if (s != HS_OK)
        return s;
    /* Without a prompt BOS is all there is to start from, whether or not the model adds it. */
    const bool wants = r->model.add_bos || (!o->prompt && !o->file);
    const bool bos = wants && !o->cli.no_bos && r->model.bos >= 0;
    r->prompt = calloc(n_ids + 1, sizeof *r->prompt);
    if (!r->prompt) {
        free(ids);
        return no_memory(err);
    }
    if (bos)
        r->prompt[r->n_prompt++] = r->model.bos;
    if (n_ids)
        memcpy(r->prompt + r->n_prompt, ids, n_ids * sizeof *ids);
    r->n_prompt += n_ids;
    free(ids);
    if (!r->n_prompt)
        return hs_fail(err, HS_ERR_USAGE, "nothing to start from: no prompt and no BOS");
    return HS_OK;
}

/* In steps, so that an interruption is seen between them. */
static hs_status eval_prompt(run *r, hs_err *err)
{
    if (r->n_prompt > hs_session_n_ctx(r->s))
        return hs_fail(err, HS_ERR_NOSPACE, "the prompt has %zu tokens, the context holds %zu",
                       r->n_prompt, hs_session_n_ctx(r->s));
    hs_progress p;
    hs_progress_init(&p, &r->o->cli, "prompt", "tokens");
    const size_t step = (size_t)r->o->batch * 4;
    const double t0 = now();
    hs_status s = HS_OK;
    for (size_t i = 0, n; s == HS_OK && i < r->n_prompt; i += n) {
        n = r->n_prompt - i < step ? r->n_prompt - i : step;
        s = hs_session_eval(r->s, r->prompt + i, n, NULL, NULL, err);
        if (s == HS_OK && !hs_progress_step(&p, i + n, r->n_prompt))
            s = hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    }
    hs_progress_end(&p);
    r->prompt_s = now() - t0;
    return s;
}

/* ---- generation -------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const logit *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static hs_status keep_logits(run *r, const float *v, hs_err *err)
{
    const uint32_t n = r->model.n_vocab;
    const size_t k = (uint64_t)r->o->n_logits < n ? (size_t)r->o->n_logits : n;
    for (uint32_t i = 0; i < n; i++)
        r->sorted[i] = (logit){v[i], (int32_t)i};
    qsort(r->sorted, n, sizeof *r->sorted, by_value);
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < k; i++)
        ok = !json_array_append_new(
            list, json_pack("[i,f]", r->sorted[i].id, (double)r->sorted[i].value));
    if (!ok || json_array_append(r->logits, list)) {
        json_decref(list);
        return no_memory(err);
    }
    json_decref(list);
    return HS_OK;
}

/* Text mode: print what can no longer change; at the end all of it and a newline. */
static void show(run *r, bool end)
{
    const size_t rest = r->n_text - r->shown;
    const size_t n = end || !rest ? rest : hs_utf8_complete(r->text + r->shown, rest);
    if (n)
        fwrite(r->text + r->shown, 1, n, stdout);
    if (end)
        putchar('\n');
    r->shown += n;
    fflush(stdout);
}

static hs_status add_text(run *r, int32_t id, hs_err *err)
{
    const size_t n = hs_token_bytes(r->m, id, NULL, 0);
    if (n > r->cap_text - r->n_text) {
        const size_t cap = (r->cap_text + n) * 2 + 64;
        char *p = realloc(r->text, cap);
        if (!p)
            return no_memory(err);
        r->text = p;
        r->cap_text = cap;
    }
    if (n)
        hs_token_bytes(r->m, id, r->text + r->n_text, n);
    r->n_text += n;
    if (!r->o->cli.json)
        show(r, false);
    return HS_OK;
}

static hs_status generate(run *r, hs_err *err)
{
    for (size_t i = 0; i < r->n_prompt; i++)
        hs_sampler_accept(r->sampler, r->prompt[i]);
    hs_status s = HS_OK;
    const size_t limit = r->o->n_predict < 0 ? SIZE_MAX : (size_t)r->o->n_predict;
    while (r->n_ids < limit && !ferror(stdout)) {
        if (hs_cli_interrupted())
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
        const float *logits = hs_session_logits(r->s);
        if (r->logits && (s = keep_logits(r, logits, err)) != HS_OK)
            return s;
        int32_t id = hs_sampler_next(r->sampler, logits);
        if (id < 0)
            return hs_fail(err, HS_ERR_FAILED, "no token may be chosen");
        r->ids[r->n_ids++] = id;
        if (hs_token_is_eog(r->m, id))
            break;
        if ((s = add_text(r, id, err)) != HS_OK || r->n_ids == limit)
            return s;
        if (hs_session_pos(r->s) == hs_session_n_ctx(r->s)) {
            r->full = true;
            break;
        }
        hs_sampler_accept(r->sampler, id);
        const double t0 = now();
        if ((s = hs_session_eval(r->s, &id, 1, NULL, NULL, err)) != HS_OK)
            return s;
        r->decode_s += now() - t0;
        r->n_decode++;
    }
    return HS_OK;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *json_ids(const int32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

/* JSON strings are UTF-8: every byte that is part of no character becomes U+FFFD. */
static json_t *json_text(const char *p, size_t n)
{
    char *t = malloc(n * 3 + 1);
    size_t k = 0;
    for (size_t i = 0; t && i < n;) {
        const size_t c = hs_utf8_char(p + i, n - i);
        memcpy(t + k, c ? p + i : "\xef\xbf\xbd", c ? c : 3);
        k += c ? c : 3;
        i += c ? c : 1;
    }
    json_t *s = t ? json_stringn(t, k) : NULL;
    free(t);
    return s;
}

static json_t *json_memory(const hs_memory *m)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "budget", (json_int_t)m->budget, "planned",
                     (json_int_t)m->planned, "used", (json_int_t)m->used, "weights",
                     (json_int_t)m->weights, "kv", (json_int_t)m->kv, "scratch",
                     (json_int_t)m->scratch);
}

static json_t *json_sparsity(const run *r)
{
    json_t *a = json_array();
    for (uint32_t l = 0; l < r->model.n_layer; l++) {
        hs_layer_stats y;
        hs_session_layer_stats(r->s, l, &y);
        json_array_append_new(a, json_pack("{s:i,s:f,s:f,s:I,s:I}", "layer", (int)l,
                                           "predicted_share", y.predicted_share, "active_share",
                                           y.active_share, "cpu_neurons", (json_int_t)y.cpu_neurons,
                                           "device_neurons", (json_int_t)y.device_neurons));
    }
    return a;
}

static hs_status print_json(const run *r, hs_err *err)
{
    hs_memory host, device;
    const bool has_device = hs_session_memory(r->s, &host, &device);
    json_t *root = json_object();
    int bad = json_object_set_new(root, "prompt_tokens", json_ids(r->prompt, r->n_prompt));
    bad |= json_object_set_new(root, "tokens", json_ids(r->ids, r->n_ids));
    bad |= json_object_set_new(root, "text", json_text(r->text, r->n_text));
    if (r->logits)
        bad |= json_object_set(root, "logits", r->logits);
    bad |= json_object_set_new(
        root, "timings",
        json_pack("{s:f,s:I,s:f,s:I,s:f}", "load_s", r->load_s, "prompt_n", (json_int_t)r->n_prompt,
                  "prompt_per_s", rate(r->n_prompt, r->prompt_s), "decode_n",
                  (json_int_t)r->n_decode, "decode_per_s", rate(r->n_decode, r->decode_s)));
    bad |= json_object_set_new(root, "sparsity", json_sparsity(r));
    bad |= json_object_set_new(root, "memory",
                               json_pack("{s:o,s:o}", "device",
                                         has_device ? json_memory(&device) : json_null(), "host",
                                         json_memory(&host)));
    /* A float has 9 significant digits.  A write error is hs_cli_finish's. */
    if (!bad) {
        json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        putchar('\n');
    }
    json_decref(root);
    return bad ? no_memory(err) : HS_OK;
}

/* ---- talk -------------------------------------------------------------------------------- */

static const char *sparsity_name(hs_sparsity s)
{
    static const char *const name[] = {"auto", "off", "exact", "predicted"};
    return name[s];
}

static void say_loaded(const run *r)
{
    const hs_cli *c = &r->o->cli;
    const hs_model_info *m = &r->model;
    char a[24], b[24], d[24], e[24], f[24];
    hs_cli_note(c, "%s: %s, %u layers, %s, activation %s, %s%s; loaded in %.2f s", r->o->model,
                m->arch, m->n_layer, hs_format_bytes(a, sizeof a, m->weight_bytes), m->activation,
                m->sparse_layout ? "sparse layout" : "dense layout",
                m->has_predictors ? " with predictors" : "", r->load_s);
    hs_cli_note(c, "cpu %s, %d thread%s, device %s, context %u, kv %s, sparsity %s", r->session.cpu,
                r->session.n_threads, r->session.n_threads == 1 ? "" : "s", r->session.device,
                r->session.n_ctx, r->o->kv_type, sparsity_name(r->session.sparsity));
    hs_memory host, device;
    if (hs_session_memory(r->s, &host, &device))
        hs_cli_note(
            c, "device memory: %s of %s: weights %s, kv %s, scratch %s",
            hs_format_bytes(e, sizeof e, device.used), hs_format_bytes(f, sizeof f, device.budget),
            hs_format_bytes(a, sizeof a, device.weights), hs_format_bytes(b, sizeof b, device.kv),
            hs_format_bytes(d, sizeof d, device.scratch));
    hs_cli_debug(c, "host memory: weights %s, kv %s, scratch %s",
                 hs_format_bytes(a, sizeof a, host.weights), hs_format_bytes(b, sizeof b, host.kv),
                 hs_format_bytes(d, sizeof d, host.scratch));
    hs_cli_notes(c, r->session.notes);
}

static void say_done(const run *r)
{
    const hs_cli *c = &r->o->cli;
    double active = 0;
    uint64_t cpu = 0, device = 0;
    for (uint32_t l = 0; l < r->model.n_layer; l++) {
        hs_layer_stats y;
        hs_session_layer_stats(r->s, l, &y);
        active += y.active_share / r->model.n_layer;
        cpu += y.cpu_neurons;
        device += y.device_neurons;
        hs_cli_debug(c, "layer %u: %s, predicted %.2f %%, active %.2f %%, cpu %llu, device %llu", l,
                     sparsity_name(y.mode), 100 * y.predicted_share, 100 * y.active_share,
                     (unsigned long long)y.cpu_neurons, (unsigned long long)y.device_neurons);
    }
    if (r->full)
        hs_cli_note(c, "stopped: the context of %zu tokens is full", hs_session_n_ctx(r->s));
    hs_cli_note(c, "prompt: %zu tokens, %.1f tokens/s; generated: %zu tokens, %.1f tokens/s",
                r->n_prompt, rate(r->n_prompt, r->prompt_s), r->n_ids,
                rate(r->n_decode, r->decode_s));
    if (r->model.relu_family && cpu + device)
        hs_cli_note(c, "active neurons: %.1f %%, of them on the device: %.1f %%", 100 * active,
                    100.0 * (double)device / (double)(cpu + device));
}

/* ---- set-up ------------------------------------------------------------------------------ */

static hs_sparsity sparsity_of(const char *name)
{
    return !strcmp(name, "off")         ? HS_SPARSITY_OFF
           : !strcmp(name, "exact")     ? HS_SPARSITY_EXACT
           : !strcmp(name, "predicted") ? HS_SPARSITY_PREDICTED
                                        : HS_SPARSITY_AUTO;
}

static hs_session_params session_params(const options *o)
{
    return (hs_session_params){
        .n_ctx = (uint32_t)o->n_ctx,
        .kv_f32 = !strcmp(o->kv_type, "f32"),
        .n_threads = (int)o->cli.threads,
        .cpu = o->cli.cpu,
        .sparsity = sparsity_of(o->sparsity),
        .has_threshold = o->has_threshold,
        .threshold = (float)o->threshold,
        .placement = o->placement,
        .device = o->device,
        .has_budget = o->has_budget,
        .vram_budget = o->budget,
    };
}

static hs_status load(run *r, hs_err *err)
{
    const options *o = r->o;
    const double t0 = now();
    hs_status s = hs_model_load(&r->m, o->model, err);
    if (s != HS_OK)
        return s;
    hs_model_describe(r->m, &r->model);
    if ((s = read_prompt(r, err)) != HS_OK)
        return s;
    const hs_session_params p = session_params(o);
    if ((s = hs_session_new(&r->s, r->m, &p, err)) != HS_OK)
        return s;
    hs_session_set_batch(r->s, (size_t)o->batch);
    hs_session_describe(r->s, &r->session);
    r->load_s = now() - t0;
    say_loaded(r);
    return HS_OK;
}

static hs_status set_up_choice(run *r, hs_err *err)
{
    options *o = r->o;
    if (!o->has_seed) {
        if (getrandom(&o->seed, sizeof o->seed, 0) != sizeof o->seed)
            o->seed = (uint64_t)time(NULL);
        hs_cli_note(&o->cli, "seed %llu", (unsigned long long)o->seed);
    }
    if (o->temp <= 0 && (o->repeat != 1 || o->presence != 0 || o->frequency != 0))
        hs_cli_warn(&o->cli, "--temp 0 takes the largest raw logit: the penalties have no effect");
    const hs_sampler_params p = {
        .temp = (float)o->temp,
        .top_k = (int32_t)o->top_k,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .repeat_penalty = (float)o->repeat,
        .frequency_penalty = (float)o->frequency,
        .presence_penalty = (float)o->presence,
        .penalty_last_n = (int32_t)o->repeat_last_n,
        .seed = o->seed,
    };
    const hs_status s = hs_sampler_new(&r->sampler, &p, r->model.n_vocab, err);
    if (s != HS_OK)
        return s;
    for (uint32_t i = 0; o->ignore_eos && i < r->model.n_vocab; i++)
        if (hs_token_is_eog(r->m, (int32_t)i))
            hs_sampler_ban(r->sampler, (int32_t)i);
    r->ids = calloc(hs_session_n_ctx(r->s) + 1, sizeof *r->ids);
    if (o->has_logits) {
        r->logits = json_array();
        r->sorted = calloc((size_t)r->model.n_vocab + 1, sizeof *r->sorted);
    }
    if (!r->ids || (o->has_logits && (!r->logits || !r->sorted)))
        return no_memory(err);
    return HS_OK;
}

/* ---- device against CPU --------------------------------------------------------------------- */

static hs_status print_difference(const run *r, const hs_difference *d, hs_err *err)
{
    if (r->o->cli.json) {
        json_t *root = json_pack("{s:{s:s,s:I,s:f,s:I,s:i,s:f,s:f,s:I}}", "verify", "device",
                                 r->session.device, "tokens", (json_int_t)d->n_tokens, "largest",
                                 (double)d->largest, "position", (json_int_t)d->pos, "id",
                                 (int)d->id, "on_device", (double)d->a, "on_cpu", (double)d->b,
                                 "choices", (json_int_t)d->choices);
        if (!root)
            return no_memory(err);
        json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(root);
    } else {
        printf("%s against the CPU, %zu tokens: largest difference of a logit %.9g",
               r->session.device, d->n_tokens, (double)d->largest);
        if (d->largest > 0)
            printf(" at position %zu, token %d (%.9g and %.9g)", d->pos, d->id, (double)d->a,
                   (double)d->b);
        printf(", %zu other choices\n", d->choices);
    }
    return d->choices ? hs_fail(err, HS_ERR_FAILED, "device %s: chooses other tokens than the CPU",
                                r->session.device)
                      : HS_OK;
}

static hs_status verify(run *r, hs_err *err)
{
    const options *o = r->o;
    hs_session *cpu = NULL;
    hs_difference d;
    hs_session_params p = session_params(o);
    if (!strcmp(r->session.device, "none"))
        return hs_fail(err, HS_ERR_USAGE,
                       "--verify: nothing is on a device; give --placement and --device");
    if ((uint64_t)o->n_verify > hs_session_n_ctx(r->s))
        return hs_fail(err, HS_ERR_NOSPACE, "--verify: %lld tokens, the context holds %zu",
                       (long long)o->n_verify, hs_session_n_ctx(r->s));
    p.placement = NULL;
    p.device = "none";
    p.n_ctx = (uint32_t)hs_session_n_ctx(r->s);
    hs_status s = hs_session_new(&cpu, r->m, &p, err);
    if (s != HS_OK)
        return s;
    hs_session_set_batch(cpu, (size_t)o->batch);
    s = hs_session_compare(r->s, cpu, r->prompt, r->n_prompt, (size_t)o->n_verify, &d, err);
    hs_session_free(cpu);
    return s == HS_OK ? print_difference(r, &d, err) : s;
}

static int run_verify(options *o)
{
    run r = {.o = o};
    hs_err err;
    hs_status s = load(&r, &err);
    if (s == HS_OK)
        s = verify(&r, &err);
    const int status = s == HS_OK ? 0 : hs_cli_fail(&o->cli, &err);
    free(r.prompt);
    hs_session_free(r.s);
    hs_model_free(r.m);
    return status;
}

static int run_all(options *o)
{
    run r = {.o = o};
    hs_err err;
    hs_status s = load(&r, &err);
    if (s == HS_OK)
        s = set_up_choice(&r, &err);
    const bool ready = s == HS_OK;
    if (s == HS_OK)
        s = eval_prompt(&r, &err);
    if (s == HS_OK)
        s = generate(&r, &err);
    const bool done = ready && (s == HS_OK || s == HS_ERR_INTERRUPTED);
    if (!o->cli.json && (s == HS_OK || r.n_ids))
        show(&r, true);
    int status = s == HS_OK ? 0 : hs_cli_fail(&o->cli, &err);
    if (o->cli.json && done && print_json(&r, &err) != HS_OK)
        status = hs_cli_fail(&o->cli, &err);
    if (done)
        say_done(&r);
    json_decref(r.logits);
    free(r.sorted);
    free(r.ids);
    free(r.prompt);
    free(r.text);
    hs_sampler_free(r.sampler);
    hs_session_free(r.s);
    hs_model_free(r.m);
    return status;
}

/* ---- options ----------------------------------------------------------------------------- */

static int parse(options *o, int argc, char **argv)
{
    const hs_opt opts[] = {
        {.type = HS_OPT_GROUP, .help = "Model and placement"},
        {HS_OPT_STRING, "model", 'm', &o->model, "FILE", "GGUF or PWRI model; needed"},
        {HS_OPT_STRING, "placement", 0, &o->placement, "FILE",
         "which neurons and blocks live on the device (default: none, CPU only)"},
        {HS_OPT_SIZE, "vram-budget", 0, &o->budget, "SIZE",
         "most device memory to use (default: the placement's own)", .given = &o->has_budget},
        {HS_OPT_CHOICE, "device", 0, &o->device, "NAME",
         "what executes the placement "
         "(default: auto)",
         0, 0, "auto|none|cuda|emu"},
        {HS_OPT_CHOICE, "sparsity", 0, &o->sparsity, "MODE",
         "which neurons are computed (default: auto)", 0, 0, "auto|off|exact|predicted"},
        {HS_OPT_REAL, "sparse-threshold", 0, &o->threshold, "X",
         "predictor score from which a neuron is computed (default: the file's)",
         .given = &o->has_threshold},
        {HS_OPT_CHOICE, "kv-type", 0, &o->kv_type, "TYPE", "type of the KV cache (default: f16)", 0,
         0, "f32|f16"},
        {HS_OPT_INT, "ctx", 'c', &o->n_ctx, "N",
         "context in tokens (default: the model's, at most 4096)", 1, 1 << 24},
        {HS_OPT_INT, "batch", 0, &o->batch, "N",
         "prompt tokens evaluated together; changes no result (default: 64)", 1, 64},
        {HS_OPT_INT, "verify", 0, &o->n_verify, "N",
         "instead of generating, compare the logits of N tokens on the device and on the CPU: "
         "the prompt's, then the CPU's choices",
         1, 1 << 24, .given = &o->has_verify},
        {.type = HS_OPT_GROUP, .help = "Prompt (default: BOS alone)"},
        {HS_OPT_STRING, "prompt", 'p', &o->prompt, "TEXT", "start from this text"},
        {HS_OPT_STRING, "file", 'f', &o->file, "FILE",
         "start from this file's bytes, unchanged; - is standard input"},
        {HS_OPT_STRING, "tokens", 0, &o->tokens, "IDS",
         "start from exactly these comma-separated ids, no BOS added"},
        {.type = HS_OPT_GROUP, .help = "Generation"},
        {HS_OPT_INT, "predict", 'n', &o->n_predict, "N",
         "most tokens to generate; 0 evaluates the prompt, -1 goes on to the end of the context "
         "(default: 128)",
         -1, 2147483647},
        {HS_OPT_UINT, "seed", 's', &o->seed, "N", "seed of the choice (default: random)",
         .given = &o->has_seed},
        {HS_OPT_REAL, "temp", 0, &o->temp, "X",
         "temperature; 0 takes the largest raw logit (default: 0.8)", 0, 1e6},
        {HS_OPT_INT, "top-k", 0, &o->top_k, "N", "keep the N likeliest, 0: all (default: 40)", 0,
         2147483647},
        {HS_OPT_REAL, "top-p", 0, &o->top_p, "X",
         "keep the likeliest that reach this probability, 1: all (default: 0.95)", 0, 1},
        {HS_OPT_REAL, "min-p", 0, &o->min_p, "X",
         "drop what is less likely than X times the likeliest, 0: none (default: 0.05)", 0, 1},
        {HS_OPT_REAL, "repeat-penalty", 0, &o->repeat, "X",
         "divide positive and multiply negative logits of recent tokens (default: 1, off)", 1e-6,
         1e6},
        {HS_OPT_INT, "repeat-last-n", 0, &o->repeat_last_n, "N",
         "tokens the penalties look back at, -1: all (default: 64)", -1, 1 << 24},
        {HS_OPT_REAL, "presence-penalty", 0, &o->presence, "X",
         "subtract from the logits of recent tokens (default: 0)", -1e6, 1e6},
        {HS_OPT_REAL, "frequency-penalty", 0, &o->frequency, "X",
         "subtract once for every recent occurrence (default: 0)", -1e6, 1e6},
        {HS_OPT_FLAG, "ignore-eos", 0, &o->ignore_eos, NULL, "never choose an end token"},
        {HS_OPT_INT, "logits", 0, &o->n_logits, "K",
         "with --json: the K largest raw logits behind every generated token", 1, 2147483647,
         .given = &o->has_logits},
        {.type = HS_OPT_END},
    };
    o->cli = (hs_cli){
        .program = "hotset-run",
        .synopsis = "-m FILE [--placement FILE] [--vram-budget SIZE] [--device NAME] "
                    "[-p TEXT | -f FILE | --tokens IDS] [-n N] [-c N] [-s SEED] [--temp X] "
                    "[--sparsity MODE] [--json]",
        .summary = "Generates text with a model, split between CPU and device as a placement "
                   "says. Standard output gets the generated text as it comes, without the "
                   "prompt, and one newline at the end; everything else goes to standard error.",
        .example = "-m model.gguf --placement model.gpuidx -p 'In the beginning' -n 64",
        .opts = opts,
        .has_model = true,
        .has_text = true,
    };
    return hs_cli_parse(&o->cli, argc, argv);
}

static const char *contradiction(const options *o)
{
    if (!o->model)
        return "-m FILE is needed";
    if ((o->prompt != NULL) + (o->file != NULL) + (o->tokens != NULL) > 1)
        return "give only one of -p TEXT, -f FILE and --tokens IDS";
    if (o->has_logits && !o->cli.json)
        return "--logits needs --json";
    return NULL;
}

int main(int argc, char **argv)
{
    const hs_sampler_params d = hs_sampler_defaults();
    options o = {
        .device = "auto",
        .sparsity = "auto",
        .kv_type = "f16",
        .n_predict = 128,
        .batch = 64,
        .temp = 0.8,
        .top_k = d.top_k,
        .top_p = 0.95,
        .min_p = 0.05,
        .repeat = 1,
        .repeat_last_n = d.penalty_last_n,
    };
    const int r = parse(&o, argc, argv);
    if (r >= 0)
        return r;
    const char *wrong = contradiction(&o);
    const int status = wrong          ? hs_cli_usage(&o.cli, "%s", wrong)
                       : o.has_verify ? run_verify(&o)
                                      : run_all(&o);
    hs_cli_fini(&o.cli);
    return hs_cli_finish(&o.cli, status);
}
