/* A conversion from start to end: read and check everything, and only then open the output. */
#include "tools/convert/convert.h"

#include "formats/file.h"
#include "tools/convert/write.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const hs_conv_options *o;
    const hs_cli *cli;
    hs_conv_config c;
    hs_conv_vocab v;
    hs_checkpoint *ckpt;
    hs_conv_predictor pred;
    hs_conv_plan plan;
    bool pwri;
    char name[256];
    hs_err *err;
} job;

/* The last part of the folder's path as it was given, as the original converter names a model. */
static void name_model(job *j)
{
    const char *path = j->o->model_dir;
    size_t end = strlen(path);
    while (end && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start && path[start - 1] != '/')
        start--;
    snprintf(j->name, sizeof j->name, "%.*s", (int)(end - start), path + start);
    if (!*j->name || strcmp(j->name, ".") == 0 || strcmp(j->name, "..") == 0) {
        char *real = realpath(path, NULL);
        const char *slash = real ? strrchr(real, '/') : NULL;
        snprintf(j->name, sizeof j->name, "%s", slash ? slash + 1 : "");
        free(real);
    }
    if (j->c.n_ctx == 4096)
        snprintf(j->name, sizeof j->name, "LLaMA v2");
    else if (!*j->name)
        snprintf(j->name, sizeof j->name, "LLaMA");
}

/* Layout and activation depend on each other where neither is stated. */
static hs_status choose(job *j)
{
    const hs_conv_options *o = j->o;
    hs_conv_config *c = &j->c;
    const bool asked = strcmp(o->layout, "powerinfer") == 0;
    const bool dense = strcmp(o->layout, "dense") == 0;
    if (dense && o->predictor)
        return hs_fail(j->err, HS_ERR_USAGE, "--layout dense has no place for --predictor");
    if (o->has_threshold && !o->predictor)
        return hs_fail(j->err, HS_ERR_USAGE, "--sparse-threshold needs --predictor");
    if (!*c->act) {
        const bool sparse = asked || o->predictor;
        snprintf(c->act, sizeof c->act, "%s", sparse ? c->arch->sparse_act : c->arch->dense_act);
        hs_cli_note(j->cli, "config.json does not name its activation (hidden_act): taken as %s",
                    c->act);
    }
    j->pwri = !dense && (asked || o->predictor || hs_conv_is_relu(c->act));
    if (j->pwri && !hs_conv_is_relu(c->act))
        hs_cli_warn(j->cli,
                    "the activation is %s, which gives no sparsity; PowerInfer itself "
                    "would run this file with ReLU",
                    c->act);
    return HS_OK;
}

/* An output is never an input. */
static hs_status check_output(const job *j)
{
    const hs_conv_options *o = j->o;
    const char *clash = NULL;
    static const char *const small[] = {"config.json",           "tokenizer.model",
                                        "tokenizer_config.json", "added_tokens.json",
                                        "tokenizer.json",        "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        char *path = hs_path_join(o->model_dir, small[i]);
        if (!path)
            return hs_fail(j->err, HS_ERR_NOMEM, "out of memory");
        if (hs_same_file(path, o->output))
            clash = small[i];
        free(path);
    }
    const char *last = NULL;
    for (size_t i = 0; i < j->plan.n; i++) {
        const char *file = j->plan.item[i].src->file;
        if (file != last && hs_same_file(file, o->output))
            clash = file;
        last = file;
    }
    if (clash)
        return hs_fail(j->err, HS_ERR_USAGE, "%s: is an input of this conversion (%s)", o->output,
                       clash);
    return HS_OK;
}

static void print_plan(const hs_conv_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const hs_conv_item *it = &p->item[i];
        printf("%s -> %s%s  %s -> %s  {%" PRIu64, *it->src->name ? it->src->name : "(tensor)",
               it->name,
               it->transpose ? " (transposed)"
               : it->heads   ? " (permuted)"
                             : "",
               it->src->elem_name, hs_dtype_name(it->dtype), it->ne[0]);
        printf(it->n_dims == 2 ? ", %" PRIu64 "}\n" : "}\n", it->ne[1]);
    }
}

static hs_status write_file(job *j, hs_gguf_writer *w, hs_conv_report *r)
{
    hs_out *out;
    hs_status s = hs_out_open(&out, j->o->output, j->o->force, j->err);
    if (s != HS_OK)
        return s;
    s = hs_gguf_writer_begin(w, out, j->err);
    if (s == HS_OK && !j->o->vocab_only) {
        hs_progress bar;
        hs_conv_stats stats = {0};
        hs_progress_init(&bar, j->cli, "converting", "B");
        s = hs_conv_write_data(w, &j->plan, &stats, j->cli, hs_progress_step, &bar, j->err);
        hs_progress_end(&bar);
        r->too_large = stats.too_large;
        r->flushed = stats.flushed;
        r->not_finite = stats.not_finite;
    }
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, j->err);
    if (s != HS_OK) {
        hs_out_abort(out);
        return s;
    }
    return hs_out_commit(out, true, j->err);
}

static hs_status produce(job *j, hs_conv_report *r)
{
    const hs_conv_options *o = j->o;
    const bool has = o->has_threshold || j->pred.has_threshold;
    const hs_conv_meta meta = {
        .name = j->name,
        .c = &j->c,
        .v = &j->v,
        .plan = o->vocab_only ? NULL : &j->plan,
        .predictors = o->predictor != NULL,
        .has_threshold = has,
        .threshold = o->has_threshold ? (float)o->threshold : j->pred.threshold,
    };
    hs_gguf_writer *w = hs_gguf_writer_new(j->pwri && !o->vocab_only, 32);
    if (!w)
        return hs_fail(j->err, HS_ERR_NOMEM, "out of memory");
    hs_conv_declare(w, &meta);
    r->bytes = hs_gguf_writer_size(w);
    hs_status s = HS_OK;
    if (!o->dry_run) {
        s = check_output(j);
        if (s == HS_OK)
            s = write_file(j, w, r);
    } else if (!j->cli->json) {
        print_plan(&j->plan);
    }
    hs_gguf_writer_free(w);
    return s;
}

static hs_status read_weights(job *j)
{
    const hs_conv_options *o = j->o;
    hs_status s = hs_checkpoint_open_dir(&j->ckpt, o->model_dir, j->err);
    if (s == HS_OK && o->predictor)
        s = hs_conv_predictor_open(&j->pred, o->predictor, &j->c, j->err);
    if (s == HS_OK)
        s = hs_conv_plan_make(&j->plan, j->ckpt, o->predictor ? &j->pred : NULL, &j->c, o->outtype,
                              j->pwri, o->model_dir, j->cli, j->err);
    return s;
}

hs_status hs_convert(const hs_conv_options *o, const hs_cli *cli, hs_conv_report *r, hs_err *err)
{
    job j = {.o = o, .cli = cli, .err = err};
    *r = (hs_conv_report){0};
    hs_status s = hs_conv_config_read(&j.c, o->model_dir, err);
    if (s != HS_OK)
        return s;
    name_model(&j);
    if (!o->vocab_only)
        s = choose(&j);
    if (s == HS_OK)
        s = hs_conv_vocab_read(&j.v, o->model_dir, &j.c, cli, err);
    if (s == HS_OK && !o->vocab_only)
        s = read_weights(&j);
    if (s == HS_OK)
        s = produce(&j, r);
    r->layout = o->vocab_only ? "vocabulary" : j.pwri ? "powerinfer" : "dense";
    r->architecture = j.c.arch->name;
    r->dtype = o->vocab_only ? "" : hs_dtype_name(j.plan.dtype);
    snprintf(r->activation, sizeof r->activation, "%s", j.c.act);
    r->tensors = j.plan.n;
    r->predictors = o->predictor != NULL;
    hs_conv_plan_fini(&j.plan);
    hs_conv_predictor_fini(&j.pred);
    hs_checkpoint_free(j.ckpt);
    hs_conv_vocab_fini(&j.v);
    return s;
}
