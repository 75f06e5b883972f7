/* hotset-quantize: the tensors of a model in another type. */
#include "formats/gguf_write.h"
#include "runtime/cli.h"
#include "runtime/pool.h"
#include "tools/quantize/convert.h"
#include "tools/quantize/plan.h"
#include "tools/quantize/report.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct program {
    hs_cli cli;
    hs_quant_options o;
    const char *compat, *imatrix_path, *output_type, *embedding_type, *predictor_type;
    hs_strings rules;
    bool dry_run, no_sync;
    const char *in_path, *out_path, *type;
    hs_gguf *in;
    hs_imatrix *imatrix;
    hs_quant_plan plan;
    hs_progress progress;
} program;

/* --- options ------------------------------------------------------------ */

static int parse(program *p, int argc, char **argv)
{
    const hs_opt opts[] = {
        {.type = HS_OPT_GROUP, .help = "Types"},
        {HS_OPT_CHOICE, "compat", 0, &p->compat, "NAME",
         "types and bytes of that program's quantizer, none of our keys (default: off)", 0, 0,
         "powerinfer", NULL},
        {HS_OPT_FLAG, "pure", 0, &p->o.pure, NULL,
         "TYPE for every matrix (default: finer types for some, as TYPE says)", 0, 0, NULL, NULL},
        {HS_OPT_STRING, "imatrix", 0, &p->imatrix_path, "FILE",
         "weigh errors by this importance matrix, a GGUF file (default: all alike)", 0, 0, NULL,
         NULL},
        {HS_OPT_STRING, "output-tensor-type", 0, &p->output_type, "TYPE",
         "type of the head (default: Q6_K, or Q8_0 where rows do not divide by 256)", 0, 0, NULL,
         NULL},
        {HS_OPT_STRING, "token-embedding-type", 0, &p->embedding_type, "TYPE",
         "type of the token embedding (default: as other matrices)", 0, 0, NULL, NULL},
        {HS_OPT_STRING, "predictor-type", 0, &p->predictor_type, "TYPE",
         "type of the predictors (default: Q8_0; a float TYPE is for them too)", 0, 0, NULL, NULL},
        {HS_OPT_LIST, "tensor-type", 0, &p->rules, "REGEX=TYPE",
         "type of the matrices whose name matches; repeatable, the first match wins", 0, 0, NULL,
         NULL},
        {.type = HS_OPT_GROUP, .help = "Limits"},
        {HS_OPT_FLAG, "allow-requantize", 0, &p->o.allow_requantize, NULL,
         "accept tensors that are quantized already (default: refuse)", 0, 0, NULL, NULL},
        {HS_OPT_FLAG, "no-fallback", 0, &p->o.no_fallback, NULL,
         "fail where rows do not divide into blocks (default: the nearest type)", 0, 0, NULL, NULL},
        {HS_OPT_FLAG, "dry-run", 0, &p->dry_run, NULL, "say what would be done; write nothing", 0,
         0, NULL, NULL},
        {HS_OPT_FLAG, "no-sync", 0, &p->no_sync, NULL,
         "do not wait until the output is on the disk (default: wait)", 0, 0, NULL, NULL},
        {.type = HS_OPT_END},
    };
    p->cli.opts = opts;
    const int status = hs_cli_parse(&p->cli, argc, argv);
    p->cli.opts = NULL;
    return status;
}

static hs_status read_type(const char *name, const hs_dtype_info **type, const char *option,
                           hs_err *err)
{
    if (!name)
        return HS_OK;
    *type = hs_quant_type(name, err);
    return *type ? HS_OK : hs_ctx(err, HS_ERR_USAGE, "%s: ", option);
}

static hs_status check_compat(const program *p, hs_err *err)
{
    if (p->output_type || p->embedding_type || p->predictor_type || p->rules.n || p->imatrix_path)
        return hs_fail(
            err, HS_ERR_USAGE,
            "--compat powerinfer fixes all types and bytes; only --pure may change them");
    if (p->o.type && p->o.type->id == HS_BF16)
        return hs_fail(err, HS_ERR_USAGE, "--compat powerinfer: PowerInfer has no type BF16");
    if (p->o.type && !p->o.type->encode_powerinfer)
        return hs_fail(err, HS_ERR_USAGE,
                       "--compat powerinfer writes F32 F16 Q8_0 Q6_K Q5_0 Q4_0 and COPY; its bytes "
                       "of %s are not known",
                       p->type);
    return HS_OK;
}

/* Operands and type names; order is what people get wrong most. */
static hs_status read_arguments(program *p, hs_err *err)
{
    p->in_path = p->cli.operands[0];
    p->out_path = p->cli.operands[1];
    p->type = p->cli.operands[2];
    p->o.compat = p->compat != NULL;
    if (strcasecmp(p->type, "COPY") != 0) {
        p->o.mixture = hs_quant_mixture_find(p->type);
        if (!p->o.mixture)
            return hs_fail(err, HS_ERR_USAGE,
                           "third argument '%s' is not a type; types are %s COPY, as in: "
                           "hotset-quantize %s",
                           p->type, hs_quant_mixture_names(), p->cli.example);
        p->o.type = hs_dtype_get(p->o.mixture->base);
        p->type = p->o.mixture->name;
    } else {
        p->type = "COPY";
    }
    hs_status s = read_type(p->output_type, &p->o.output_type, "--output-tensor-type", err);
    if (s == HS_OK)
        s = read_type(p->embedding_type, &p->o.embedding_type, "--token-embedding-type", err);
    if (s == HS_OK)
        s = read_type(p->predictor_type, &p->o.predictor_type, "--predictor-type", err);
    for (size_t i = 0; s == HS_OK && i < p->rules.n; i++)
        s = hs_quant_rule_add(&p->o, p->rules.v[i], err);
    if (s == HS_OK && p->o.compat)
        s = check_compat(p, err);
    if (s == HS_OK && hs_same_file(p->in_path, p->out_path))
        s = hs_fail(err, HS_ERR_USAGE, "%s: is the input too; name another output", p->out_path);
    return s;
}

/* --- work --------------------------------------------------------------- */

static void step_done(void *ud, size_t i, const hs_quant_step *step)
{
    (void)step;
    const program *p = ud;
    hs_quant_say_step(&p->cli, &p->plan, i, true);
}

static hs_status write_output(program *p, hs_gguf_writer *w, hs_pool *pool, hs_out *out,
                              hs_err *err)
{
    const hs_quant_hooks hooks = {hs_progress_step, &p->progress, step_done, p};
    hs_progress_init(&p->progress, &p->cli, "quantizing", "B");
    hs_status s = hs_gguf_writer_begin(w, out, err);
    if (s == HS_OK) {
        s = hs_quant_convert(&p->plan, w, pool, &hooks, err);
        if (s == HS_ERR_FORMAT)
            s = hs_ctx(err, s, "%s: ", p->in_path);
    }
    hs_progress_end(&p->progress);
    return s == HS_OK ? hs_gguf_writer_end(w, err) : s;
}

static hs_status convert(program *p, hs_gguf_writer *w, hs_err *err)
{
    hs_pool *pool = NULL;
    hs_out *out = NULL;
    const int threads = p->cli.threads ? (int)p->cli.threads : hs_cpu_count();
    hs_status s = hs_pool_new(&pool, threads, err);
    if (s == HS_OK)
        s = hs_out_open(&out, p->out_path, p->cli.force, err);
    if (s == HS_OK)
        s = write_output(p, w, pool, out, err);
    if (s == HS_OK)
        s = hs_out_commit(out, !p->no_sync, err);
    else
        hs_out_abort(out);
    hs_pool_free(pool);
    return s;
}

static void say_plan(const program *p)
{
    for (size_t i = 0; p->dry_run && i < p->plan.n; i++)
        hs_quant_say_step(&p->cli, &p->plan, i, false);
    hs_quant_say_fallbacks(&p->cli, &p->plan);
    if (!p->plan.n_changed && p->o.type)
        hs_cli_warn(&p->cli, "%s: no tensor changes its type", p->in_path);
}

/* Our other files are GGUF too, and have nothing to quantize. */
static hs_status check_input(const program *p, hs_err *err)
{
    static const struct {
        const char *key, *value, *what;
    } other[] = {
        {"general.type", "activation-profile", "an activation profile"},
        {"general.type", "imatrix", "an importance matrix"},
        {"general.architecture", "generic.gpu_index", "a placement"},
        {"general.architecture", "hotset.placement", "a placement"},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        hs_str v = {0};
        hs_err ignored;
        if (hs_gguf_str(p->in, other[i].key, &v, &ignored) == HS_OK && hs_str_eq(v, other[i].value))
            return hs_fail(err, HS_ERR_FORMAT, "%s: %s: is %s, expected a model", p->in_path,
                           other[i].key, other[i].what);
    }
    return HS_OK;
}

static hs_status run(program *p, hs_err *err)
{
    hs_status s = read_arguments(p, err);
    if (s == HS_OK)
        s = hs_gguf_open(&p->in, p->in_path, err);
    if (s == HS_OK)
        s = check_input(p, err);
    if (s == HS_OK && p->imatrix_path)
        s = hs_imatrix_open(&p->imatrix, p->imatrix_path, err);
    if (s != HS_OK)
        return s;
    p->o.imatrix = p->imatrix;
    s = hs_quant_plan_new(&p->plan, p->in, &p->o, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", p->in_path);
    hs_gguf_writer *w = hs_quant_declare(p->in, &p->o, &p->plan);
    if (!w)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    say_plan(p);
    if (!p->dry_run)
        s = convert(p, w, err);
    const hs_quant_report report = {.input = p->in_path,
                                    .output = p->out_path,
                                    .type = p->type,
                                    .compat = p->o.compat,
                                    .dry_run = p->dry_run,
                                    .file_before = p->in->map.size,
                                    .file_after = hs_gguf_writer_size(w)};
    if (s == HS_OK)
        s = hs_quant_print(&p->cli, &report, &p->plan, err);
    hs_gguf_writer_free(w);
    return s;
}

int main(int argc, char **argv)
{
    program p = {
        .cli = {.program = "hotset-quantize",
                .synopsis = "IN.gguf OUT.gguf TYPE [options]",
                .summary =
                    "Converts the weight matrices of a GGUF or PowerInfer model. TYPE, with bits "
                    "per weight: F32, F16, BF16, Q8_0 (8.5), Q6_K (6.6), Q5_K_M, Q5_K_S (5.5), "
                    "Q5_1 (6), Q5_0 (5.5), Q4_K_M, Q4_K_S (4.5), Q4_1 (5), Q4_0 (4.5), IQ4_NL "
                    "(4.5), IQ4_XS (4.25), Q3_K_L, Q3_K_M, Q3_K_S (3.4), Q2_K (2.6), a little "
                    "more where some matrices get finer types; or COPY: only what options ask "
                    "for.",
                .example = "model.gguf model.q4_0.gguf Q4_0",
                .min_operands = 3,
                .max_operands = 3,
                .has_output = true}};
    int status = parse(&p, argc, argv);
    if (status < 0) {
        hs_err err = {HS_OK, ""};
        const hs_status s = run(&p, &err);
        status = s == HS_OK ? 0 : hs_cli_fail(&p.cli, &err);
    }
    hs_quant_plan_fini(&p.plan);
    hs_quant_options_fini(&p.o);
    hs_gguf_free(p.in);
    hs_imatrix_free(p.imatrix);
    free(p.rules.v);
    const int end = hs_cli_finish(&p.cli, status);
    hs_cli_fini(&p.cli);
    return end;
}
