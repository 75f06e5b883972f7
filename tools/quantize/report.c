/* Names in a file may be any bytes but NUL; in JSON they have to be UTF-8, so that what is not
 * becomes '?'. */
#include "tools/quantize/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SHAPE_CHARS = 100 };

static const char *shape(const hs_gguf_tensor *t, char buf[SHAPE_CHARS])
{
    size_t n = 0;
    for (uint32_t k = 0; k < t->n_dims; k++) {
        const int m = snprintf(buf + n, SHAPE_CHARS - n, "%s%" PRIu64, k ? ", " : "", t->ne[k]);
        n += (size_t)m; /* four numbers of 20 digits fit */
    }
    return buf;
}

void hs_quant_say_step(const hs_cli *cli, const hs_quant_plan *plan, size_t i, bool done)
{
    const hs_quant_step *s = &plan->steps[i];
    char dims[SHAPE_CHARS], a[24], b[24], error[40] = "", weights[64] = "";
    hs_format_bytes(a, sizeof a, s->tensor->bytes);
    hs_format_bytes(b, sizeof b, s->bytes);
    if (s->from == s->to) {
        hs_cli_note(cli, "[%3zu/%zu] %-28s {%s} %s kept, %s", i + 1, plan->n, s->tensor->name,
                    shape(s->tensor, dims), s->from->name, a);
        return;
    }
    if (done)
        snprintf(error, sizeof error, ", error %.3g%%", 100 * s->rms_error);
    if (s->importance == HS_IMPORTANCE_CHANNELS)
        snprintf(weights, sizeof weights, ", importance of %" PRIu64 "/%" PRIu64 " channels",
                 s->covered, s->tensor->ne[0]);
    else if (plan->imatrix && s->to->encode_weighted)
        snprintf(weights, sizeof weights, ", %s",
                 s->importance == HS_IMPORTANCE_ROWS ? "importance by row has no effect"
                                                     : "no importance");
    hs_cli_note(cli, "[%3zu/%zu] %-28s {%s} %s -> %s, %s -> %s%s%s", i + 1, plan->n,
                s->tensor->name, shape(s->tensor, dims), s->from->name, s->to->name, a, b, error,
                weights);
}

void hs_quant_say_fallbacks(const hs_cli *cli, const hs_quant_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const hs_quant_step *s = &plan->steps[i];
        if (s->coarser_head)
            hs_cli_note(cli, "%s: row length %" PRIu64 " does not divide by 256, so the head is %s",
                        s->tensor->name, s->tensor->ne[0], s->to->name);
        if (s->to == s->wanted)
            continue;
        char why[128];
        hs_quant_fallback_reason(s, why, sizeof why);
        hs_cli_warn(cli, "%s: %s; it becomes %s", s->tensor->name, why, s->to->name);
        bytes += s->bytes;
    }
    if (plan->imatrix && plan->n_weighted < plan->n_weighable)
        hs_cli_warn(cli, "%zu of %zu quantized tensors are not in the importance matrix",
                    plan->n_weighable - plan->n_weighted, plan->n_weighable);
    if (!plan->n_fallbacks)
        return;
    char a[24], b[24];
    hs_cli_warn(cli,
                "%zu of %zu tensors, %s of %s, are not of the type asked for (--no-fallback makes "
                "that an error)",
                plan->n_fallbacks, plan->n, hs_format_bytes(a, sizeof a, bytes),
                hs_format_bytes(b, sizeof b, plan->bytes_after));
}

static double bits_per_weight(uint64_t bytes, uint64_t elems)
{
    return elems ? 8 * (double)bytes / (double)elems : 0;
}

static void print_text(const hs_quant_report *r, const hs_quant_plan *plan)
{
    size_t count[HS_DTYPE_LIMIT] = {0};
    for (size_t i = 0; i < plan->n; i++)
        count[plan->steps[i].to->id]++;
    char a[24], b[24];
    printf("%s%s: %s -> %s, %.2f bits per weight;", r->output, r->dry_run ? " (not written)" : "",
           hs_format_bytes(a, sizeof a, r->file_before),
           hs_format_bytes(b, sizeof b, r->file_after),
           bits_per_weight(plan->bytes_after, plan->elems));
    const char *comma = "";
    for (uint32_t id = 0; id < HS_DTYPE_LIMIT; id++)
        if (count[id]) {
            printf("%s %zu %s", comma, count[id], hs_dtype_name(id));
            comma = ",";
        }
    putchar('\n');
}

static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    char ascii[4096];
    if (v || strlen(s) >= sizeof ascii)
        return v;
    size_t n = 0;
    for (; s[n]; n++)
        ascii[n] = (char)((unsigned char)s[n] < 0x80 ? s[n] : '?');
    ascii[n] = 0;
    return json_string(ascii);
}

static json_t *number(uint64_t v) { return json_integer((json_int_t)v); }

static json_t *step_json(const hs_quant_report *r, const hs_quant_step *s)
{
    json_t *dims = json_array();
    for (uint32_t k = 0; k < s->tensor->n_dims; k++)
        json_array_append_new(dims, number(s->tensor->ne[k]));
    const bool known = s->from->decode && !r->dry_run;
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:f, s:b, s:o}", "name", text(s->tensor->name),
        "shape", dims, "type_before", s->from->name, "type_after", s->to->name, "bytes_before",
        number(s->tensor->bytes), "bytes_after", number(s->bytes), "rms_error",
        known ? json_real(s->rms_error) : json_null(), "bits_per_weight",
        bits_per_weight(s->bytes, s->elems), "fallback", s->to != s->wanted, "importance",
        s->importance == HS_IMPORTANCE_CHANNELS
            ? json_real((double)s->covered / (double)s->tensor->ne[0])
            : json_null());
}

static json_t *report_json(const hs_quant_report *r, const hs_quant_plan *plan)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < plan->n; i++)
        if (json_array_append_new(tensors, step_json(r, &plan->steps[i])) != 0) {
            json_decref(tensors);
            return NULL;
        }
    return json_pack("{s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o}", "input",
                     text(r->input), "output", text(r->output), "type", r->type, "compat",
                     r->compat ? json_string("powerinfer") : json_null(), "dry_run", r->dry_run,
                     "file_bytes_before", number(r->file_before), "file_bytes_after",
                     number(r->file_after), "bytes_before", number(plan->bytes_before),
                     "bytes_after", number(plan->bytes_after), "bits_per_weight_before",
                     bits_per_weight(plan->bytes_before, plan->elems), "bits_per_weight",
                     bits_per_weight(plan->bytes_after, plan->elems), "fallbacks",
                     number(plan->n_fallbacks), "tensors", tensors);
}

hs_status hs_quant_print(const hs_cli *cli, const hs_quant_report *r, const hs_quant_plan *plan,
                         hs_err *err)
{
    if (!cli->json) {
        print_text(r, plan);
        return HS_OK;
    }
    json_t *root = report_json(r, plan);
    /* A write error shows in hs_cli_finish. */
    const bool ok = root != NULL;
    if (ok)
        json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
    return ok ? HS_OK : hs_fail(err, HS_ERR_NOMEM, "out of memory for the JSON output");
}
