/* hotset-perplexity: how well a model predicts a text. */
#include "runtime/cli.h"
#include "runtime/hotset.h"
#include "tools/perplexity/chunks.h"
#include "tools/perplexity/logp.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *text, *placement, *device, *sparsity, *kv_type, *protocol;
    const char *kl_base, *kl;
    int64_t n_ctx, chunks;
    uint64_t vram_budget;
    bool has_budget, has_threshold;
    double threshold;
} options;

typedef struct run {
    hs_cli *cli;
    const options *opt;
    hs_model *model;
    hs_session *session;
    hs_model_info info;
    int32_t *ids; /* the text; `llama` with BOS before it */
    hs_ppl_chunks chunks;
    int32_t *inputs; /* [n_ctx] */
    float *logp;     /* [n_vocab], only for --kl-base and --kl */
    hs_out *base_out;
    hs_logp_file base;
    hs_progress progress;
    /* While evaluating: */
    const int32_t *target; /* of the next position */
    uint64_t total, tokens;
    double nll;
    hs_divergence divergence;
    hs_err *err;
    hs_status failed; /* what stopped the callback, if it was not an interruption */
} run;

/* ---- scoring ---------------------------------------------------------------------------- */

/* ln sum exp(x), the largest taken out so that nothing overflows. */
static double log_sum_exp(const float *x, size_t n)
{
    double max = (double)x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static hs_status use_distribution(run *r, int32_t id, const float *logits, double total)
{
    const size_t n = r->info.n_vocab;
    for (size_t i = 0; i < n; i++)
        r->logp[i] = (float)((double)logits[i] - total);
    if (r->base_out) {
        const hs_status s = hs_logp_append(r->base_out, id, r->logp, n, r->err);
        if (s != HS_OK)
            return s;
    }
    if (r->opt->kl && !hs_logp_compare(&r->base, r->tokens, id, r->logp, &r->divergence))
        return hs_fail(r->err, HS_ERR_FORMAT,
                       "%s: token %llu: expected id %d of this text and its "
                       "log-probabilities",
                       r->opt->kl, (unsigned long long)r->tokens, id);
    return HS_OK;
}

static bool score(void *ud, size_t pos, const float *logits)
{
    (void)pos;
    run *r = ud;
    const int32_t id = *r->target++;
    const double total = log_sum_exp(logits, r->info.n_vocab);
    if (r->logp && (r->failed = use_distribution(r, id, logits, total)) != HS_OK)
        return false;
    r->nll += total - (double)logits[id];
    r->tokens++;
    return hs_progress_step(&r->progress, r->tokens, r->total);
}

static hs_status score_chunk(run *r, uint64_t k, hs_err *err)
{
    const hs_ppl_chunk c = hs_ppl_chunks_get(&r->chunks, k, r->inputs);
    hs_session_reset(r->session);
    r->target = c.target + c.first;
    hs_status s = HS_OK;
    if (c.first)
        s = hs_session_eval(r->session, r->inputs, c.first, NULL, NULL, err);
    if (s == HS_OK)
        s = hs_session_eval(r->session, r->inputs + c.first, c.n_inputs - c.first, score, r, err);
    return s;
}

static hs_status score_all(run *r, hs_err *err)
{
    hs_err why = {0};
    r->err = &why;
    hs_progress_init(&r->progress, r->cli, "perplexity", "tokens");
    hs_status s = HS_OK;
    for (uint64_t k = 0; s == HS_OK && k < r->chunks.n_chunks; k++) {
        s = score_chunk(r, k, err);
        if (s == HS_OK)
            hs_cli_debug(r->cli, "chunk %llu of %llu: perplexity so far %.6f",
                         (unsigned long long)k + 1, (unsigned long long)r->chunks.n_chunks,
                         exp(r->nll / (double)r->tokens));
    }
    hs_progress_end(&r->progress);
    r->err = NULL;
    if (r->failed == HS_OK)
        return s;
    return hs_fail(err, why.code, "%s", why.msg);
}

/* ---- setting up -------------------------------------------------------------------------- */

static hs_sparsity sparsity_of(const char *name)
{
    return !strcmp(name, "off")         ? HS_SPARSITY_OFF
           : !strcmp(name, "exact")     ? HS_SPARSITY_EXACT
           : !strcmp(name, "predicted") ? HS_SPARSITY_PREDICTED
                                        : HS_SPARSITY_AUTO;
}

static hs_status open_session(run *r, hs_err *err)
{
    const options *o = r->opt;
    const hs_session_params p = {
        .n_ctx = (uint32_t)o->n_ctx,
        .kv_f32 = !strcmp(o->kv_type, "f32"),
        .n_threads = (int)r->cli->threads,
        .cpu = r->cli->cpu,
        .sparsity = sparsity_of(o->sparsity),
        .has_threshold = o->has_threshold,
        .threshold = (float)o->threshold,
        .placement = o->placement,
        .device = o->device,
        .has_budget = o->has_budget,
        .vram_budget = o->vram_budget,
    };
    hs_status s = hs_session_new(&r->session, r->model, &p, err);
    if (s != HS_OK)
        return s;
    hs_session_info info;
    hs_session_describe(r->session, &info);
    hs_cli_notes(r->cli, info.notes);
    hs_cli_debug(r->cli, "context %u, %d threads, cpu %s, device %s", info.n_ctx, info.n_threads,
                 info.cpu, info.device);
    return HS_OK;
}

/* The text's tokens, with room for a BOS before them, which `llama` wants there. */
static hs_status read_ids(run *r, hs_err *err)
{
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n_bytes, n = 0;
    hs_status s = hs_read_text(r->opt->text, &text, &n_bytes, err);
    if (s != HS_OK)
        return s;
    s = hs_tokenize(r->model, text, n_bytes, r->cli->special, &ids, &n, err);
    free(text);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", r->opt->text);
    hs_ppl_chunks *c = &r->chunks;
    const size_t before = c->protocol == HS_PPL_LLAMA && c->bos >= 0;
    r->ids = malloc((n + 1) * sizeof *r->ids);
    if (r->ids) {
        r->ids[0] = c->bos;
        if (n)
            memcpy(r->ids + before, ids, n * sizeof *ids);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "%s: out of memory for %zu tokens", r->opt->text, n);
    }
    free(ids);
    c->ids = r->ids;
    c->n_ids = n + before;
    return s;
}

static hs_status plan_chunks(run *r, hs_err *err)
{
    hs_ppl_chunks *c = &r->chunks;
    c->protocol = !strcmp(r->opt->protocol, "llama") ? HS_PPL_LLAMA : HS_PPL_ONCE;
    c->n_ctx = hs_session_n_ctx(r->session);
    const size_t least = c->protocol == HS_PPL_LLAMA ? 3 : 2;
    if (c->n_ctx < least)
        return hs_fail(err, HS_ERR_USAGE, "context: --protocol %s needs at least %zu, got %zu",
                       r->opt->protocol, least, c->n_ctx);
    /* `once` is defined with BOS; llama.cpp's tool asks the model. */
    const bool bos = !r->cli->no_bos && (c->protocol == HS_PPL_ONCE || r->info.add_bos);
    c->bos = bos ? r->info.bos : -1;
    hs_status s = read_ids(r, err);
    if (s != HS_OK)
        return s;
    if ((s = hs_ppl_chunks_count(c, (uint64_t)r->opt->chunks, err)) != HS_OK)
        return hs_ctx(err, s, "%s: ", r->opt->text);
    r->total = hs_ppl_chunks_scored(c);
    r->inputs = malloc(c->n_ctx * sizeof *r->inputs);
    if (!r->inputs)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for a context of %zu tokens", c->n_ctx);
    return HS_OK;
}

static hs_status open_base(run *r, hs_err *err)
{
    const options *o = r->opt;
    if (!o->kl && !o->kl_base)
        return HS_OK;
    const hs_logp_header h = {r->info.n_vocab, (uint32_t)r->chunks.n_ctx, r->chunks.protocol,
                              r->total};
    r->logp = malloc(r->info.n_vocab * sizeof *r->logp);
    if (!r->logp)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for %u log-probabilities", h.n_vocab);
    hs_status s = HS_OK;
    if (o->kl)
        s = hs_logp_open(&r->base, o->kl, &h, err);
    if (s == HS_OK && o->kl_base)
        s = hs_out_open(&r->base_out, o->kl_base, r->cli->force, err);
    if (s == HS_OK && o->kl_base)
        s = hs_logp_begin(r->base_out, &h, err);
    return s;
}

/* ---- result ------------------------------------------------------------------------------ */

/* JSON has no infinity. */
static json_t *real_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static hs_status print_json(const run *r, double perplexity, hs_err *err)
{
    json_t *o = json_pack("{s:I, s:o, s:o, s:I, s:I, s:s}", "tokens", (json_int_t)r->tokens, "nll",
                          real_or_null(r->nll), "perplexity", real_or_null(perplexity), "context",
                          (json_int_t)r->chunks.n_ctx, "chunks", (json_int_t)r->chunks.n_chunks,
                          "protocol", r->opt->protocol);
    const hs_divergence *d = &r->divergence;
    int bad = !o;
    if (o && r->opt->kl)
        bad = json_object_set_new(
            o, "kl",
            json_pack("{s:o, s:o, s:f, s:f}", "mean", real_or_null(d->kl / (double)d->n), "max",
                      real_or_null(d->max_kl), "same_top_share", (double)d->same_top / (double)d->n,
                      "max_probability_error", d->max_error));
    char *s = bad ? NULL : json_dumps(o, JSON_REAL_PRECISION(17));
    json_decref(o);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for the result");
    puts(s);
    free(s);
    return HS_OK;
}

static hs_status print_result(const run *r, hs_err *err)
{
    const double perplexity = exp(r->nll / (double)r->tokens);
    if (r->cli->json)
        return print_json(r, perplexity, err);
    printf("perplexity %.6f (%llu tokens in %llu chunks of %zu, %.6f nats each)\n", perplexity,
           (unsigned long long)r->tokens, (unsigned long long)r->chunks.n_chunks, r->chunks.n_ctx,
           r->nll / (double)r->tokens);
    const hs_divergence *d = &r->divergence;
    if (r->opt->kl)
        printf("divergence from %s: mean %.8f, max %.6f nats; same most probable token %.3f %%; "
               "largest difference of a probability %.6f\n",
               r->opt->kl, d->kl / (double)d->n, d->max_kl,
               100 * (double)d->same_top / (double)d->n, d->max_error);
    return HS_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

static hs_status work(run *r, hs_err *err)
{
    const options *o = r->opt;
    hs_status s = hs_model_load(&r->model, o->model, err);
    if (s != HS_OK)
        return s;
    hs_model_describe(r->model, &r->info);
    if ((s = open_session(r, err)) != HS_OK || (s = plan_chunks(r, err)) != HS_OK ||
        (s = open_base(r, err)) != HS_OK || (s = score_all(r, err)) != HS_OK)
        return s;
    if (r->base_out) {
        s = hs_out_commit(r->base_out, true, err);
        r->base_out = NULL;
        if (s != HS_OK)
            return s;
    }
    return print_result(r, err);
}

static void run_fini(run *r)
{
    hs_out_abort(r->base_out);
    hs_logp_close(&r->base);
    free(r->logp);
    free(r->inputs);
    free(r->ids);
    hs_session_free(r->session);
    hs_model_free(r->model);
}

/* -1, or the exit status of a usage error. */
static int check_usage(const hs_cli *cli, const options *o)
{
    if (!o->model || !o->text)
        return hs_cli_usage(cli, "%s is missing", o->model ? "-i TEXT" : "-m FILE");
    for (int i = 0; o->kl_base && i < 4; i++) {
        const char *const input[] = {o->model, o->text, o->placement, o->kl};
        if (input[i] && hs_same_file(input[i], o->kl_base))
            return hs_cli_usage(cli, "--kl-base %s is also an input", o->kl_base);
    }
    return -1;
}

int main(int argc, char **argv)
{
    options o = {.sparsity = "auto", .kv_type = "f16", .protocol = "once", .device = "auto"};
    const hs_opt opts[] = {
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE", "model to measure (GGUF or PWRI)"},
        {HS_OPT_STRING, "input", 'i', &o.text, "FILE",
         "text to predict, bytes unchanged; - is standard input"},
        {HS_OPT_INT, "ctx", 'c', &o.n_ctx, "N",
         "context of a chunk (default: the model's, at most 4096)", 2, 16777216},
        {HS_OPT_INT, "chunks", 0, &o.chunks, "N", "only the first N chunks (default: all)", 1,
         1e15},
        {HS_OPT_CHOICE, "protocol", 0, &o.protocol, "NAME", "what is scored (default: once)",
         .choices = "once|llama"},
        {.type = HS_OPT_GROUP, .help = "Running the model"},
        {HS_OPT_CHOICE, "sparsity", 0, &o.sparsity, "MODE", "neurons to compute (default: auto)",
         .choices = "auto|off|exact|predicted"},
        {HS_OPT_REAL, "sparse-threshold", 0, &o.threshold, "X",
         "predictor score that keeps a neuron (default: the file's)", .given = &o.has_threshold},
        {HS_OPT_CHOICE, "kv-type", 0, &o.kv_type, "TYPE", "type of the KV cache (default: f16)",
         .choices = "f16|f32"},
        {HS_OPT_STRING, "placement", 0, &o.placement, "FILE",
         "neurons on the device, as hotset-solve wrote it (default: none)"},
        {HS_OPT_CHOICE, "device", 0, &o.device, "NAME",
         "what executes the placement (default: auto)", .choices = "auto|none|cuda|emu"},
        {HS_OPT_SIZE, "vram-budget", 0, &o.vram_budget, "SIZE",
         "device memory to use (default: the placement's)", .given = &o.has_budget},
        {.type = HS_OPT_GROUP, .help = "Comparing models"},
        {HS_OPT_STRING, "kl-base", 0, &o.kl_base, "FILE",
         "write every log-probability: 4 bytes per token and vocabulary entry"},
        {HS_OPT_STRING, "kl", 0, &o.kl, "FILE", "compare with what --kl-base wrote"},
        {.type = HS_OPT_END},
    };
    hs_cli cli = {
        .program = "hotset-perplexity",
        .synopsis = "-m FILE -i TEXT [-c N] [--chunks N] [--protocol NAME] [options]",
        .summary = "Tells how well a model predicts a text (its perplexity) and how far its "
                   "probabilities are from another model's.",
        .example = "-m kjv.gguf -i valid.txt -c 256",
        .opts = opts,
        .has_model = true,
        .has_text = true,
        .has_output = true,
    };
    int status = hs_cli_parse(&cli, argc, argv);
    if (status >= 0)
        return status;
    if ((status = check_usage(&cli, &o)) < 0) {
        hs_err err = {0};
        run r = {.cli = &cli, .opt = &o};
        status = work(&r, &err) == HS_OK ? 0 : hs_cli_fail(&cli, &err);
        run_fini(&r);
        status = hs_cli_finish(&cli, status);
    }
    hs_cli_fini(&cli);
    return status;
}
