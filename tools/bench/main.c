/* hotset-bench: how fast a model runs here, and how near to the limit of memory. */
#include "runtime/cli.h"
#include "runtime/model.h"
#include "runtime/pool.h"
#include "tools/bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_modes = 4, max_tests = 4096 };

typedef struct options {
    hs_strings models;
    const char *prompt, *gen, *threads, *sparsity, *placement, *device, *kv_type, *format;
    int64_t reps;
    uint64_t vram_budget;
    bool has_budget, has_threshold, no_warmup, no_probe;
    double threshold;
    /* Parsed: */
    hs_bench_list n_prompt, n_gen, n_threads;
    const char *mode[max_modes];
    size_t n_modes;
    hs_bench_format output;
} options;

/* One model's tests. */
typedef struct run {
    const hs_cli *cli;
    const options *opt;
    hs_model *model;
    hs_session *session[HS_BENCH_MAX_LIST * max_modes]; /* [threads][modes] */
    hs_bench_probe *probe[HS_BENCH_MAX_LIST];           /* [threads] */
    hs_bench_test *test;
    size_t n_tests;
    double *numbers; /* backing of the tests' figures */
    hs_progress progress;
} run;

/* ---- the tests of a model ---------------------------------------------------------------- */

static hs_sparsity sparsity_of(const char *name)
{
    return !strcmp(name, "off")         ? HS_SPARSITY_OFF
           : !strcmp(name, "exact")     ? HS_SPARSITY_EXACT
           : !strcmp(name, "predicted") ? HS_SPARSITY_PREDICTED
                                        : HS_SPARSITY_AUTO;
}

static hs_status open_sessions(run *r, hs_err *err)
{
    const options *o = r->opt;
    int64_t most = 1;
    for (size_t i = 0; i < o->n_prompt.n; i++)
        most = o->n_prompt.v[i] > most ? o->n_prompt.v[i] : most;
    for (size_t i = 0; i < o->n_gen.n; i++)
        most = o->n_gen.v[i] > most ? o->n_gen.v[i] : most;
    for (size_t t = 0; t < o->n_threads.n; t++) {
        for (size_t k = 0; k < o->n_modes; k++) {
            const hs_session_params p = {.n_ctx = (uint32_t)most,
                                         .kv_f32 = !strcmp(o->kv_type, "f32"),
                                         .n_threads = (int)o->n_threads.v[t],
                                         .cpu = r->cli->cpu,
                                         .sparsity = sparsity_of(o->mode[k]),
                                         .has_threshold = o->has_threshold,
                                         .threshold = (float)o->threshold,
                                         .placement = o->placement,
                                         .device = o->device,
                                         .has_budget = o->has_budget,
                                         .vram_budget = o->vram_budget};
            hs_session **s = &r->session[t * o->n_modes + k];
            const hs_status st = hs_session_new(s, r->model, &p, err);
            if (st != HS_OK)
                return st;
            hs_session_info info;
            hs_session_describe(*s, &info);
            if (t == 0)
                hs_cli_notes(r->cli, info.notes);
        }
        if (!o->no_probe) {
            const hs_status st = hs_bench_probe_new(&r->probe[t], (int)o->n_threads.v[t], err);
            if (st != HS_OK)
                return st;
        }
    }
    return HS_OK;
}

/* The tests in the order of the table: modes of one test together, so that they alternate. */
static hs_status list_tests(run *r, hs_err *err)
{
    const options *o = r->opt;
    const size_t shapes = o->n_prompt.n + o->n_gen.n, reps = (size_t)o->reps;
    const size_t most = shapes * o->n_threads.n * o->n_modes;
    if (most > max_tests)
        return hs_fail(err, HS_ERR_USAGE, "%zu tests are more than %d", most, max_tests);
    r->test = calloc(most + 1, sizeof *r->test);
    r->numbers = calloc(3 * reps * most + 1, sizeof *r->numbers);
    if (!r->test || !r->numbers)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (size_t t = 0; t < o->n_threads.n; t++)
        for (size_t i = 0; i < shapes; i++) {
            const bool prompt = i < o->n_prompt.n;
            const int64_t n = prompt ? o->n_prompt.v[i] : o->n_gen.v[i - o->n_prompt.n];
            for (size_t k = 0; n && k < o->n_modes; k++) {
                double *v = r->numbers + 3 * reps * r->n_tests;
                r->test[r->n_tests++] = (hs_bench_test){.n_threads = o->n_threads.v[t],
                                                        .n_prompt = prompt ? n : 0,
                                                        .n_gen = prompt ? 0 : n,
                                                        .sparsity = o->mode[k],
                                                        .session = r->session[t * o->n_modes + k],
                                                        .ts = v,
                                                        .read = r->probe[t] ? v + reps : NULL,
                                                        .ratio = k ? v + 2 * reps : NULL};
            }
        }
    return HS_OK;
}

static hs_bench_probe *probe_of(const run *r, const hs_bench_test *t)
{
    for (size_t i = 0; i < r->opt->n_threads.n; i++)
        if (r->opt->n_threads.v[i] == t->n_threads)
            return r->probe[i];
    return NULL;
}

static hs_status warm_up(run *r, hs_err *err)
{
    for (size_t i = 0; i < r->n_tests; i++) {
        hs_bench_test t = r->test[i];
        double ts;
        t.n_prompt = t.n_prompt < 32 ? t.n_prompt : 32;
        t.n_gen = t.n_gen < 2 ? t.n_gen : 2;
        const hs_status s = hs_bench_run(&t, r->model, &ts, err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

/* Every round runs every test once, so what slows the machine for a while slows all of them. */
static hs_status run_rounds(run *r, hs_err *err)
{
    const size_t reps = (size_t)r->opt->reps;
    hs_progress_init(&r->progress, r->cli, "measuring", "tests");
    for (size_t k = 0; k < reps; k++)
        for (size_t i = 0, base = 0; i < r->n_tests; i++) {
            hs_bench_test *t = &r->test[i];
            base = t->ratio ? base : i;
            if (t->read)
                t->read[k] = hs_bench_probe_run(probe_of(r, t));
            const hs_status s = hs_bench_run(t, r->model, &t->ts[k], err);
            if (s != HS_OK)
                return s;
            if (t->ratio)
                t->ratio[k] = t->ts[k] / r->test[base].ts[k];
            if (!hs_progress_step(&r->progress, k * r->n_tests + i + 1, reps * r->n_tests))
                return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
        }
    hs_progress_end(&r->progress);
    return HS_OK;
}

/* ---- results ----------------------------------------------------------------------------- */

/* "llama 6.7B Q4_0": the type that holds most weights. */
static void describe(const hs_model *m, const char *file, hs_bench_row *row, char *type, size_t cap)
{
    uint64_t weights[HS_DTYPE_LIMIT] = {0}, n = 0;
    for (size_t i = 0; i < m->gguf->n_tensors; i++) {
        const hs_gguf_tensor *t = &m->gguf->tensors[i];
        const uint64_t elems = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        weights[t->dtype] += elems;
        n += elems;
    }
    unsigned best = 0;
    for (unsigned i = 0; i < HS_DTYPE_LIMIT; i++)
        best = weights[i] > weights[best] ? i : best;
    const bool small = n < 1000000000;
    snprintf(type, cap, "%s %.1f%c %s", m->arch->name, (double)n / (small ? 1e6 : 1e9),
             small ? 'M' : 'B', hs_dtype_name(best));
    hs_model_info info;
    hs_model_describe(m, &info);
    row->file = file;
    row->type = type;
    row->n_params = n;
    row->size = info.weight_bytes;
}

static hs_status print_rows(run *r, const char *file, bool *first, hs_err *err)
{
    hs_bench_row row = {.reps = (uint64_t)r->opt->reps};
    char type[64];
    describe(r->model, file, &row, type, sizeof type);
    for (size_t i = 0; i < r->n_tests; i++) {
        hs_bench_account(&r->test[i], r->model, !strcmp(r->opt->kv_type, "f32"));
        row.test = &r->test[i];
        json_t *o = hs_bench_row_json(&row);
        if (!o)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory");
        if (*first)
            hs_bench_head(r->opt->output);
        hs_bench_print(r->opt->output, &row, *first, o);
        *first = false;
        json_decref(o);
    }
    return HS_OK;
}

static void run_fini(run *r)
{
    for (size_t i = 0; i < sizeof r->session / sizeof r->session[0]; i++)
        hs_session_free(r->session[i]);
    for (size_t i = 0; i < HS_BENCH_MAX_LIST; i++)
        hs_bench_probe_free(r->probe[i]);
    free(r->test);
    free(r->numbers);
    hs_model_free(r->model);
}

static hs_status bench_model(const hs_cli *cli, const options *o, const char *file, bool *first,
                             hs_err *err)
{
    run r = {.cli = cli, .opt = o};
    hs_status s = hs_model_load(&r.model, file, err);
    if (s == HS_OK && (s = open_sessions(&r, err)) == HS_OK && (s = list_tests(&r, err)) == HS_OK &&
        (o->no_warmup || (s = warm_up(&r, err)) == HS_OK) && (s = run_rounds(&r, err)) == HS_OK)
        s = print_rows(&r, file, first, err);
    run_fini(&r);
    return s;
}

/* ---- the program --------------------------------------------------------------------------- */

static bool parse_modes(options *o, char *text)
{
    static const char *const known[] = {"auto", "off", "exact", "predicted"};
    char *save = NULL;
    for (char *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        size_t i = 0;
        while (i < max_modes && strcmp(known[i], p) != 0)
            i++;
        if (i == max_modes || o->n_modes == max_modes)
            return false;
        o->mode[o->n_modes++] = known[i];
    }
    return o->n_modes > 0;
}

/* -1, or the exit status of a usage error. */
static int check_usage(const hs_cli *cli, options *o)
{
    static const char *const formats[] = {"md", "csv", "json", "jsonl"};
    const int64_t most = 1 << 24;
    char modes[64];
    if (o->models.n == 0)
        return hs_cli_usage(cli, "-m FILE is missing");
    if (!hs_bench_list_parse(&o->n_prompt, o->prompt, 0, most))
        return hs_cli_usage(cli, "-p: expected numbers as 128,512 or 16-64*2, got '%s'", o->prompt);
    if (!hs_bench_list_parse(&o->n_gen, o->gen, 0, most))
        return hs_cli_usage(cli, "-n: expected numbers as 32,128 or 16-64*2, got '%s'", o->gen);
    if (!o->threads) {
        o->n_threads = (hs_bench_list){.v = {hs_cpu_count()}, .n = 1};
    } else if (!hs_bench_list_parse(&o->n_threads, o->threads, 1, 1024)) {
        return hs_cli_usage(cli, "-t: expected numbers from 1 to 1024 as 1,2 or 1-8*2, got '%s'",
                            o->threads);
    }
    snprintf(modes, sizeof modes, "%s", o->sparsity);
    if (strlen(o->sparsity) >= sizeof modes || !parse_modes(o, modes))
        return hs_cli_usage(cli,
                            "--sparsity: expected a list of auto, off, exact, predicted, got '%s'",
                            o->sparsity);
    for (unsigned i = 0; i < 4; i++)
        if (!strcmp(formats[i], o->format))
            o->output = (hs_bench_format)i;
    if (cli->json)
        o->output = HS_BENCH_JSON;
    return -1;
}

static int work(const hs_cli *cli, const options *o)
{
    hs_err err = {0};
    bool first = true;
    int status = 0;
    for (size_t i = 0; status == 0 && i < o->models.n; i++)
        if (bench_model(cli, o, o->models.v[i], &first, &err) != HS_OK)
            status = hs_cli_fail(cli, &err);
    if (o->output == HS_BENCH_JSON && !first)
        puts("\n]");
    else if (o->output == HS_BENCH_JSON && status == 0)
        puts("[]");
    return status;
}

int main(int argc, char **argv)
{
    options o = {.prompt = "512",
                 .gen = "128",
                 .reps = 5,
                 .sparsity = "auto",
                 .kv_type = "f16",
                 .device = "auto",
                 .format = "md"};
    const hs_opt opts[] = {
        {HS_OPT_FILES, "model", 'm', &o.models, "FILE...", "models to measure (GGUF or PWRI)"},
        {.type = HS_OPT_GROUP, .help = "Tests; lists as 1,2,8 and ranges as 1-4, 16-64+16, 1-8*2"},
        {HS_OPT_STRING, "n-prompt", 'p', &o.prompt, "LIST",
         "tokens of a prompt; 0: no such test (default: 512)"},
        {HS_OPT_STRING, "n-gen", 'n', &o.gen, "LIST",
         "tokens to generate; 0: no such test (default: 128)"},
        {HS_OPT_STRING, "threads", 't', &o.threads, "LIST",
         "threads (default: the affinity mask's count)"},
        {HS_OPT_STRING, "sparsity", 0, &o.sparsity, "LIST",
         "modes of auto, off, exact, predicted (default: auto)"},
        {HS_OPT_INT, "repetitions", 'r', &o.reps, "N", "rounds (default: 5)", 1, 1000},
        {HS_OPT_FLAG, "no-warmup", 0, &o.no_warmup, NULL, "do not run every test briefly before"},
        {HS_OPT_FLAG, "no-probe", 0, &o.no_probe, NULL, "do not measure the memory bandwidth"},
        {.type = HS_OPT_GROUP, .help = "Running the model"},
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
        {.type = HS_OPT_GROUP, .help = "Output"},
        {HS_OPT_CHOICE, "output", 'o', &o.format, "FORMAT", "how to print (default: md)",
         .choices = "md|csv|json|jsonl"},
        {.type = HS_OPT_END},
    };
    hs_cli cli = {
        .program = "hotset-bench",
        .synopsis = "-m FILE... [-p LIST] [-n LIST] [-t LIST] [--sparsity LIST] [options]",
        .summary = "Measures prompt and generation speed, and the memory read for it as a share of "
                   "what this machine can read.",
        .example = "-m 7b.gguf -p 128 -n 32 -t 1,2 --sparsity off,auto",
        .opts = opts,
        .has_model = true,
    };
    int status = hs_cli_parse(&cli, argc, argv);
    if (status >= 0)
        return status;
    if ((status = check_usage(&cli, &o)) < 0)
        status = hs_cli_finish(&cli, work(&cli, &o));
    free(o.models.v);
    hs_cli_fini(&cli);
    return status;
}
