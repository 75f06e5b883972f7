/* hotset-convert: a Hugging Face folder, and predictors, into one file. */
#include "tools/convert/convert.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

static hs_status print_report(const hs_cli *cli, const hs_conv_options *o, const hs_conv_report *r,
                              hs_err *err)
{
    char size[24];
    hs_format_bytes(size, sizeof size, r->bytes);
    if (cli->json) {
        json_t *root =
            json_pack("{s:s? s:b s:s s:s s:s s:s s:b s:I s:I s:I s:I s:I}", "output", o->output,
                      "written", !o->dry_run, "layout", r->layout, "architecture", r->architecture,
                      "type", r->dtype, "activation", r->activation, "predictors", r->predictors,
                      "tensors", (json_int_t)r->tensors, "bytes", (json_int_t)r->bytes,
                      "values_too_large", (json_int_t)r->too_large, "values_flushed",
                      (json_int_t)r->flushed, "values_not_finite", (json_int_t)r->not_finite);
        if (!root)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory for the JSON output");
        json_dumpf(root, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(root);
    }
    if (r->flushed)
        hs_cli_note(cli, "%" PRIu64 " values were too small for the type and became 0", r->flushed);
    hs_cli_note(cli, "%s%s: %s, %s%s%s, %" PRIu64 " tensors, %s",
                o->dry_run ? "would write " : "wrote ", o->output ? o->output : "the file",
                r->layout, r->architecture, *r->dtype ? " " : "", r->dtype, r->tensors, size);
    return HS_OK;
}

static hs_status run(const hs_cli *cli, const hs_conv_options *o, hs_err *err)
{
    hs_conv_report r;
    const hs_status s = hs_convert(o, cli, &r, err);
    return s == HS_OK ? print_report(cli, o, &r, err) : s;
}

int main(int argc, char **argv)
{
    hs_conv_options o = {.outtype = "auto", .layout = "auto"};
    const hs_opt opts[] = {
        {HS_OPT_STRING, "output", 'o', &o.output, "FILE", "write the model to FILE"},
        {HS_OPT_STRING, "predictor", 0, &o.predictor, "DIR",
         "predictors: folder of model_<layer>.pt or .safetensors, or one safetensors file"},
        {HS_OPT_CHOICE, "outtype", 0, &o.outtype, "TYPE",
         "type of the matrices (default: auto, the checkpoint's own float type)",
         .choices = "auto|f32|f16|bf16|q8_0"},
        {HS_OPT_CHOICE, "layout", 0, &o.layout, "LAYOUT",
         "powerinfer: down projection by neuron; dense: plain GGUF (default: auto, powerinfer for "
         "predictors or a ReLU-family activation)",
         .choices = "auto|powerinfer|dense"},
        {HS_OPT_REAL, "sparse-threshold", 0, &o.threshold, "X",
         "a neuron is active from this predictor score on (default: the predictors' config.json)",
         .min = -1e30, .max = 1e30, .given = &o.has_threshold},
        {HS_OPT_FLAG, "vocab-only", 0, &o.vocab_only, NULL, "write the vocabulary without weights"},
        {HS_OPT_FLAG, "dry-run", 0, &o.dry_run, NULL,
         "check everything and list the tensors, write nothing"},
        {.type = HS_OPT_END},
    };
    hs_cli cli = {
        .program = "hotset-convert",
        .synopsis = "MODEL_DIR -o FILE [--predictor DIR] [--outtype TYPE] [--layout LAYOUT] "
                    "[--sparse-threshold X] [--vocab-only] [--dry-run]",
        .summary = "Converts a Hugging Face folder (config.json, tokenizer.model, safetensors or "
                   "pytorch_model.bin) to a GGUF or PowerInfer-GGUF file.",
        .example = "data/kjv-relu-8m --predictor data/kjv-relu-8m/predictor -o kjv.gguf",
        .opts = opts,
        .min_operands = 1,
        .max_operands = 1,
        .has_output = true,
    };
    const int r = hs_cli_parse(&cli, argc, argv);
    if (r >= 0)
        return r;
    int status;
    hs_err err;
    o.model_dir = cli.operands[0];
    o.force = cli.force;
    if (!o.output && !o.dry_run)
        status = hs_cli_usage(&cli, "-o FILE is needed");
    else if (o.vocab_only && o.predictor)
        status = hs_cli_usage(&cli, "--vocab-only has no place for --predictor");
    else
        status = run(&cli, &o, &err) == HS_OK ? 0 : hs_cli_fail(&cli, &err);
    hs_cli_fini(&cli);
    return hs_cli_finish(&cli, status);
}
