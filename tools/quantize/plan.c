/* The rules, strongest first: --tensor-type, the options for one kind of tensor, --pure, and
 * what each TYPE means for heads and predictors. */
#include "tools/quantize/plan.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- types and rules ---------------------------------------------------- */

const hs_dtype_info *hs_quant_type(const char *name, hs_err *err)
{
    const hs_dtype_info *t = hs_dtype_by_name(name);
    if (t && t->encode)
        return t;
    hs_fail(err, HS_ERR_USAGE,
            "'%s' is not a type of tensors; those are F32 F16 BF16 Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K "
            "Q4_1 Q4_0 IQ4_NL IQ4_XS Q3_K Q2_K",
            name);
    return NULL;
}

hs_status hs_quant_rule_add(hs_quant_options *o, const char *text, hs_err *err)
{
    const char *eq = strrchr(text, '=');
    if (!eq || eq == text)
        return hs_fail(err, HS_ERR_USAGE, "--tensor-type '%s': expected REGEX=TYPE", text);
    hs_quant_rule rule = {.text = text, .type = hs_quant_type(eq + 1, err)};
    if (!rule.type)
        return hs_ctx(err, HS_ERR_USAGE, "--tensor-type '%s': ", text);
    hs_quant_rule *rules = realloc(o->rules, (o->n_rules + 1) * sizeof *rules);
    if (!rules)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    o->rules = rules;
    char *pattern = strndup(text, (size_t)(eq - text));
    if (!pattern)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const int bad = regcomp(&rule.regex, pattern, REG_EXTENDED | REG_NOSUB);
    free(pattern);
    if (bad) {
        char why[128];
        regerror(bad, &rule.regex, why, sizeof why);
        return hs_fail(err, HS_ERR_USAGE, "--tensor-type '%s': %s", text, why);
    }
    o->rules[o->n_rules++] = rule;
    return HS_OK;
}

void hs_quant_options_fini(hs_quant_options *o)
{
    for (size_t i = 0; i < o->n_rules; i++)
        regfree(&o->rules[i].regex);
    free(o->rules);
    o->rules = NULL;
    o->n_rules = 0;
}

/* --- which type a tensor should get ------------------------------------- */

typedef struct context {
    const hs_gguf *in;
    hs_quant_options *o;
    hs_quant_model model;
    bool tied; /* no output.weight: the embedding is the head too */
} context;

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_predictor(const char *name)
{
    return ends_with(name, ".fc1.weight") || ends_with(name, ".fc2.weight");
}

static bool is_head(const context *c, const char *name)
{
    return strcmp(name, "output.weight") == 0 ||
           (c->tied && strcmp(name, "token_embd.weight") == 0);
}

/* Norms, biases and whatever is no matrix keep their type: the runtimes want them so. */
static bool may_change(const hs_gguf_tensor *t)
{
    return t->n_dims == 2 && ends_with(t->name, ".weight");
}

static bool is_float(const hs_dtype_info *t) { return t->block_elems == 1; }

/* Tokens are chosen by the head's output, so it gets the finer Q6_K; a row that does not divide
 * into its blocks of 256 gets Q8_0. */
static const hs_dtype_info *head_type(const hs_gguf_tensor *t)
{
    return hs_dtype_get(t->ne[0] % 256 ? HS_Q8_0 : HS_Q6_K);
}

/* powerinfer-format.md section 5.7: also for float targets. */
static const hs_dtype_info *compat_type(const context *c, const hs_gguf_tensor *t)
{
    const hs_dtype_info *type = c->o->type;
    if (c->o->pure)
        return type;
    if (strcmp(t->name, "output.weight") == 0)
        return c->model.falcon || type->id == HS_Q8_0 ? hs_dtype_get(HS_Q8_0) : head_type(t);
    if (is_predictor(t->name) && type->id != HS_Q4_0)
        return hs_dtype_get(HS_Q5_0);
    return type;
}

static const hs_dtype_info *wanted_type(const context *c, const hs_gguf_tensor *t,
                                        bool *coarser_head)
{
    hs_quant_options *o = c->o;
    for (size_t i = 0; i < o->n_rules; i++)
        if (regexec(&o->rules[i].regex, t->name, 0, NULL, 0) == 0) {
            o->rules[i].used = true;
            return o->rules[i].type;
        }
    if (o->output_type && strcmp(t->name, "output.weight") == 0)
        return o->output_type;
    if (o->embedding_type && strcmp(t->name, "token_embd.weight") == 0)
        return o->embedding_type;
    if (o->predictor_type && is_predictor(t->name))
        return o->predictor_type;
    if (!o->type)
        return hs_dtype_get(t->dtype);
    if (o->compat)
        return compat_type(c, t);
    if (o->pure || is_float(o->type))
        return o->type;
    if (is_predictor(t->name))
        return hs_dtype_get(HS_Q8_0);
    if (!is_head(c, t->name))
        return o->mixture ? hs_dtype_get(hs_quant_mixture_type(o->mixture, &c->model, t->name))
                          : o->type;
    if (o->type->id == HS_Q8_0)
        return o->type;
    *coarser_head = t->ne[0] % 256 != 0;
    return head_type(t);
}

/* --- the plan ----------------------------------------------------------- */

void hs_quant_fallback_reason(const hs_quant_step *s, char *buf, size_t cap)
{
    snprintf(buf, cap, "row length %" PRIu64 " is not a multiple of %" PRIu32 ", the block of %s",
             s->tensor->ne[0], s->wanted->block_elems, s->wanted->name);
}

/* Numbers above those of PowerInfer's own ggml, which its programs cannot read. */
static bool known_to_powerinfer(const context *c, const hs_dtype_info *t)
{
    return t->id <= HS_Q6_K || (t->id == HS_I32 && c->in->pwri);
}

static hs_status check_step(const context *c, const hs_quant_step *s, hs_err *err)
{
    const char *name = s->tensor->name;
    if (c->o->compat && !known_to_powerinfer(c, s->to))
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%s: PowerInfer has no type %s", name, s->to->name);
    if (c->o->compat && s->from != s->to && !s->to->encode_powerinfer)
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%s: PowerInfer's bytes of %s are not known", name,
                       s->to->name);
    if (s->from == s->to)
        return HS_OK;
    if (!s->from->decode)
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%s: cannot convert from %s, only copy it", name,
                       s->from->name);
    if (!is_float(s->from) && !c->o->allow_requantize)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: is %s already, and quantizing again loses more; "
                       "start from an F16 or F32 file, or give --allow-requantize",
                       name, s->from->name);
    return HS_OK;
}

/* The nearest type whose blocks divide a row of n: first those of 32, of about the same size. */
static const hs_dtype_info *fitting_type(const context *c, const hs_dtype_info *t, uint64_t n)
{
    if (n % t->block_elems == 0)
        return t;
    if (n % 32 || c->o->compat)
        return hs_dtype_get(HS_F16);
    switch (t->id) {
    case HS_Q2_K:
    case HS_Q3_K:
    case HS_IQ4_XS: return hs_dtype_get(HS_IQ4_NL);
    case HS_Q4_K: return hs_dtype_get(HS_Q5_0);
    case HS_Q5_K: return hs_dtype_get(HS_Q5_1);
    default: return hs_dtype_get(HS_Q8_0);
    }
}

static hs_status find_importance(const context *c, hs_quant_step *s, hs_err *err)
{
    if (!c->o->imatrix || s->from == s->to || !s->to->encode_weighted)
        return HS_OK;
    return hs_imatrix_find(c->o->imatrix, s->tensor, &s->importance, &s->weight, &s->covered, err);
}

static hs_status plan_step(const context *c, const hs_gguf_tensor *t, hs_quant_step *s, hs_err *err)
{
    s->tensor = t;
    s->from = hs_dtype_get(t->dtype);
    s->wanted = may_change(t) ? wanted_type(c, t, &s->coarser_head) : s->from;
    s->to = fitting_type(c, s->wanted, t->ne[0]);
    s->compat = c->o->compat;
    s->elems = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* checked by the reader */
    if (s->to != s->wanted && c->o->no_fallback) {
        char why[128];
        hs_quant_fallback_reason(s, why, sizeof why);
        return hs_fail(err, HS_ERR_FAILED, "%s: %s, and --no-fallback is given", t->name, why);
    }
    if (!hs_mul(s->elems / s->to->block_elems, s->to->block_bytes, &s->bytes))
        return hs_fail(err, HS_ERR_FORMAT, "%s: the size overflows", t->name);
    const hs_status status = check_step(c, s, err);
    return status == HS_OK ? find_importance(c, s, err) : status;
}

static hs_status check_rules(const hs_quant_options *o, hs_err *err)
{
    for (size_t i = 0; i < o->n_rules; i++)
        if (!o->rules[i].used)
            return hs_fail(err, HS_ERR_USAGE,
                           "--tensor-type '%s' matches no weight matrix that an earlier rule "
                           "left; see hotset-inspect --tensors for the names",
                           o->rules[i].text);
    return HS_OK;
}

hs_status hs_quant_plan_new(hs_quant_plan *plan, const hs_gguf *in, hs_quant_options *o,
                            hs_err *err)
{
    *plan = (hs_quant_plan){.n = in->n_tensors, .imatrix = o->imatrix != NULL};
    plan->steps = calloc(in->n_tensors + 1, sizeof *plan->steps);
    if (!plan->steps)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_str arch;
    hs_status s = hs_gguf_str(in, "general.architecture", &arch, err);
    context c = {.in = in, .o = o, .tied = !hs_gguf_tensor_find(in, "output.weight")};
    hs_quant_model_read(&c.model, in);
    for (size_t i = 0; s == HS_OK && i < plan->n; i++) {
        hs_quant_step *step = &plan->steps[i];
        s = plan_step(&c, &in->tensors[i], step, err);
        plan->n_changed += step->to != step->from;
        plan->n_fallbacks += step->to != step->wanted;
        plan->n_weighable += step->to != step->from && step->to->encode_weighted != NULL;
        plan->n_weighted += step->importance != HS_IMPORTANCE_NONE;
        plan->elems += step->elems;
        plan->bytes_before += step->tensor->bytes;
        plan->bytes_after += step->bytes;
    }
    if (s == HS_OK)
        s = check_rules(o, err);
    if (s != HS_OK)
        hs_quant_plan_fini(plan);
    return s;
}

void hs_quant_plan_fini(hs_quant_plan *plan)
{
    free(plan->steps);
    *plan = (hs_quant_plan){0};
}
