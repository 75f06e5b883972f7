/* hotset-inspect: what is in a file, and whether it is sound. */
#include "runtime/cli.h"
#include "tools/inspect/inspect.h"

#include <stdio.h>

static int run(const hs_cli *cli, const inspect_options *o)
{
    hs_err err;
    json_t *report, *w;
    size_t i;
    const hs_status s = inspect_file(o, &report, &err);
    json_array_foreach(json_object_get(report, "warnings"), i, w)
    {
        hs_cli_warn(cli, "%s: %s", o->path, json_string_value(w));
    }
    /* Of a broken file only what was asked for by name. */
    if (s == HS_OK || json_object_get(report, "key_values") ||
        json_object_get(report, "tensor_list")) {
        if (cli->json) {
            json_dumpf(report, stdout, JSON_COMPACT);
            putchar('\n');
        } else {
            inspect_print(report);
        }
    }
    json_decref(report);
    return s == HS_OK ? 0 : hs_cli_fail(cli, &err);
}

int main(int argc, char **argv)
{
    inspect_options o = {0};
    const hs_opt opts[] = {
        {HS_OPT_FLAG, "tensors", 0, &o.tensors, NULL, "list every tensor"},
        {HS_OPT_FLAG, "kv", 0, &o.kv, NULL, "list every key; long arrays are cut"},
        {HS_OPT_FLAG, "check", 0, &o.check, NULL,
         "read all data: every float and every block scale must be finite"},
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE",
         "also check that a profile or placement belongs to this model"},
        {.type = HS_OPT_END},
    };
    hs_cli cli = {
        .program = "hotset-inspect",
        .synopsis = "FILE [--tensors] [--kv] [--check] [-m MODEL] [--json]",
        .summary = "Tells what a file is and holds: GGUF and PowerInfer models, activation "
                   "profiles, placements, safetensors and torch files, told apart by content. "
                   "A broken file is exit 3 and one line that names the place.",
        .example = "model.gguf --check",
        .opts = opts,
        .min_operands = 1,
        .max_operands = 1,
    };
    const int r = hs_cli_parse(&cli, argc, argv);
    if (r >= 0)
        return r;
    o.path = cli.operands[0];
    const int status = run(&cli, &o);
    hs_cli_fini(&cli);
    return hs_cli_finish(&cli, status);
}
