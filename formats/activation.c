/* Activation profiles in memory and as GGUF.  One surprise: a profile is checked by the same
 * function before it is written and after it is read, so no program can write one that the
 * next would refuse. */
#include "formats/activation.h"

#include "formats/cursor.h"
#include "formats/gguf_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_TYPE       "activation-profile"
#define KEY_TYPE        "general.type"
#define KEY_LAYERS      "hotset.profile.block_count"
#define KEY_TOKENS      "hotset.profile.tokens"
#define KEY_FINGERPRINT "hotset.profile.fingerprint"
#define KEY_SOURCE      "hotset.profile.source"
#define KEY_CHUNKS      "hotset.profile.chunks_done"
#define KEY_CONTEXT     "hotset.profile.context"
#define KEY_NO_BOS      "hotset.profile.no_bos"
#define KEY_SPECIAL     "hotset.profile.special"
#define COUNT_SUFFIX    "ffn_active_count"

enum { SOURCE_NAME_AT = HS_FINGERPRINT_CHARS + 1 }; /* "<hash> <name>" */

static hs_status no_memory(hs_err *err) { return hs_fail(err, HS_ERR_NOMEM, "out of memory"); }

hs_status hs_activation_new(hs_activation **out, uint32_t n_layer, const uint32_t *n_ff,
                            hs_err *err)
{
    *out = NULL;
    if (!n_layer)
        return hs_fail(err, HS_ERR_USAGE, "a profile needs at least one layer");
    for (uint32_t l = 0; l < n_layer; l++)
        if (!n_ff[l] || n_ff[l] > INT32_MAX)
            return hs_fail(err, HS_ERR_USAGE,
                           "layer %" PRIu32 ": expected 1 to %" PRId32 " neurons, got %" PRIu32, l,
                           INT32_MAX, n_ff[l]);
    hs_activation *a = calloc(1, sizeof *a);
    if (!a)
        return no_memory(err);
    a->n_ff = calloc(n_layer, sizeof *a->n_ff);
    a->count = calloc(n_layer, sizeof *a->count);
    bool ok = a->n_ff && a->count;
    for (uint32_t l = 0; ok && l < n_layer; l++) {
        a->n_layer = l + 1;
        a->n_ff[l] = n_ff[l];
        a->count[l] = calloc(n_ff[l], sizeof *a->count[l]);
        ok = a->count[l] != NULL;
    }
    if (!ok) {
        hs_activation_free(a);
        return no_memory(err);
    }
    *out = a;
    return HS_OK;
}

void hs_activation_free(hs_activation *a)
{
    if (!a)
        return;
    for (uint32_t l = 0; l < a->n_layer; l++)
        free(a->count[l]);
    free(a->count);
    free(a->n_ff);
    free(a->source);
    free(a);
}

static bool is_hash(const char *p, size_t n)
{
    if (n != HS_FINGERPRINT_CHARS)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(p[i] >= '0' && p[i] <= '9') && !(p[i] >= 'a' && p[i] <= 'f'))
            return false;
    return true;
}

/* A name that could be mistaken for a path would make the file depend on the machine. */
static bool is_source_name(const char *p, size_t n)
{
    return n > 0 && n < sizeof((hs_activation_source *)0)->name && !memchr(p, '/', n) &&
           !memchr(p, '\0', n);
}

hs_status hs_activation_add_source(hs_activation *a, const char *name, const char *hash,
                                   hs_err *err)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    if (!is_source_name(base, strlen(base)))
        return hs_fail(err, HS_ERR_USAGE, "%s: expected a file name of 1 to 255 bytes", name);
    if (!is_hash(hash, strlen(hash)))
        return hs_fail(err, HS_ERR_USAGE, "%s: expected a hash of 32 hex digits, got \"%s\"", name,
                       hash);
    hs_activation_source *grown = realloc(a->source, (a->n_source + 1) * sizeof *grown);
    if (!grown)
        return no_memory(err);
    a->source = grown;
    hs_activation_source *s = &grown[a->n_source++];
    memset(s, 0, sizeof *s);
    memcpy(s->name, base, strlen(base));
    memcpy(s->hash, hash, HS_FINGERPRINT_CHARS);
    return HS_OK;
}

static hs_status check_counts(const hs_activation *a, hs_status code, hs_err *err)
{
    for (uint32_t l = 0; l < a->n_layer; l++) {
        for (uint32_t i = 0; i < a->n_ff[l]; i++) {
            const int64_t n = a->count[l][i];
            if (n < 0)
                return hs_fail(err, code,
                               "blk.%" PRIu32 "." COUNT_SUFFIX ": neuron %" PRIu32
                               ": expected a count of at least 0, got %" PRId64,
                               l, i, n);
            if ((uint64_t)n > a->tokens)
                return hs_fail(err, code,
                               "blk.%" PRIu32 "." COUNT_SUFFIX ": neuron %" PRIu32
                               ": count %" PRId64 " exceeds " KEY_TOKENS " %" PRIu64,
                               l, i, n, a->tokens);
        }
    }
    return HS_OK;
}

static hs_status check(const hs_activation *a, hs_status code, hs_err *err)
{
    if (!a->tokens || a->tokens > INT64_MAX)
        return hs_fail(err, code, KEY_TOKENS ": expected 1 to 2^63-1, got %" PRIu64, a->tokens);
    if (a->fingerprint[0] && !is_hash(a->fingerprint, strnlen(a->fingerprint, 33)))
        return hs_fail(err, code, KEY_FINGERPRINT ": expected 32 hex digits, got \"%.33s\"",
                       a->fingerprint);
    if (!a->chunks_done != !a->n_ctx)
        return hs_fail(err, code,
                       KEY_CHUNKS " %" PRIu64 " and " KEY_CONTEXT " %" PRIu32
                                  ": expected both or neither",
                       a->chunks_done, a->n_ctx);
    uint64_t most;
    if (!hs_mul(a->chunks_done, a->n_ctx, &most))
        most = UINT64_MAX;
    if (a->n_ctx && (a->tokens < a->chunks_done || a->tokens > most))
        return hs_fail(err, code,
                       KEY_TOKENS " %" PRIu64 " cannot come from %" PRIu64
                                  " chunks of at most %" PRIu32,
                       a->tokens, a->chunks_done, a->n_ctx);
    return check_counts(a, code, err);
}

/* ---- reading -------------------------------------------------------------------------- */

/* "blk.<layer>.<rest>" with the number as we would print it; NULL otherwise. */
static const char *layer_of(const char *name, uint32_t *layer)
{
    if (strncmp(name, "blk.", 4) != 0)
        return NULL;
    const char *p = name + 4;
    uint64_t v = 0;
    const char *digits = p;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (uint64_t)(*p - '0');
        if (v > UINT32_MAX)
            return NULL;
    }
    if (p == digits || (*digits == '0' && p != digits + 1) || *p != '.')
        return NULL;
    *layer = (uint32_t)v;
    return p + 1;
}

static const hs_gguf_tensor *count_tensor(const hs_gguf *g, uint32_t layer)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "blk.%" PRIu32 "." COUNT_SUFFIX, layer);
    return hs_gguf_tensor_find(g, name);
}

/* Every layer from 0 on has its counts, and nothing else is in the file but further statistics
 * of those layers. */
static hs_status check_layers(const hs_gguf *g, uint32_t *n_layer, hs_err *err)
{
    uint32_t want = 0;
    const hs_status s = hs_gguf_u32(g, KEY_LAYERS, &want, err);
    if (s != HS_OK)
        return s;
    const bool stated = hs_gguf_find(g, KEY_LAYERS) != NULL;
    if (stated && !want)
        return hs_fail(err, HS_ERR_FORMAT, KEY_LAYERS ": expected at least 1, got 0");
    /* UINT32_MAX + 1 layers cannot be: names are unique and would not fit the file. */
    for (size_t i = 0; !stated && i < g->n_tensors; i++) {
        uint32_t l;
        const char *rest = layer_of(g->tensors[i].name, &l);
        if (rest && strcmp(rest, COUNT_SUFFIX) == 0 && l >= want)
            want = l < UINT32_MAX ? l + 1 : l;
    }
    for (uint32_t l = 0; l < (want ? want : 1); l++)
        if (!count_tensor(g, l))
            return hs_fail(err, HS_ERR_FORMAT, "blk.%" PRIu32 "." COUNT_SUFFIX ": missing", l);
    for (size_t i = 0; i < g->n_tensors; i++) {
        uint32_t l;
        const char *name = g->tensors[i].name, *rest = layer_of(name, &l);
        if (!rest || strncmp(rest, "ffn_", 4) != 0)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: unexpected tensor, a profile has only blk.N.ffn_...", name);
        if (l >= want)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: unexpected layer, the profile has %" PRIu32 " layers", name, want);
    }
    *n_layer = want;
    return HS_OK;
}

static hs_status read_counts(hs_activation **out, const hs_gguf *g, uint32_t n_layer, hs_err *err)
{
    uint32_t *n_ff = calloc(n_layer, sizeof *n_ff);
    if (!n_ff)
        return no_memory(err);
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < n_layer; l++) {
        const hs_gguf_tensor *t = count_tensor(g, l);
        if (t->dtype != HS_I64)
            s = hs_fail(err, HS_ERR_FORMAT, "%s: expected type I64, got %s", t->name,
                        hs_dtype_name(t->dtype));
        else if (t->n_dims != 1 || !t->ne[0] || t->ne[0] > INT32_MAX)
            s = hs_fail(err, HS_ERR_FORMAT,
                        "%s: expected 1 dimension of 1 to %" PRId32 " neurons, got %" PRIu32
                        " of %" PRIu64,
                        t->name, INT32_MAX, t->n_dims, t->ne[0]);
        else
            n_ff[l] = (uint32_t)t->ne[0];
    }
    if (s == HS_OK)
        s = hs_activation_new(out, n_layer, n_ff, err);
    for (uint32_t l = 0; s == HS_OK && l < n_layer; l++) {
        const uint8_t *p = count_tensor(g, l)->data;
        for (uint32_t i = 0; i < n_ff[l]; i++)
            (*out)->count[l][i] = (int64_t)hs_get_u64(p + (size_t)i * 8);
    }
    free(n_ff);
    return s;
}

static hs_status read_sources(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    const hs_kv *kv;
    hs_status s = hs_gguf_array(g, KEY_SOURCE, HS_KV_STRING, &kv, err);
    size_t pos = 0;
    for (uint64_t i = 0; s == HS_OK && kv && i < kv->count; i++) {
        const hs_str v = hs_kv_next_str(kv, &pos);
        if (v.n <= SOURCE_NAME_AT || v.p[SOURCE_NAME_AT - 1] != ' ' ||
            !is_hash(v.p, HS_FINGERPRINT_CHARS) ||
            !is_source_name(v.p + SOURCE_NAME_AT, v.n - SOURCE_NAME_AT))
            return hs_fail(err, HS_ERR_FORMAT,
                           KEY_SOURCE ": entry %" PRIu64
                                      ": expected \"<32 hex digits> <file name>\", got \"%.*s\"",
                           i, (int)(v.n < 80 ? v.n : 80), v.p);
        char hash[HS_FINGERPRINT_CHARS + 1] = {0}, name[256] = {0};
        memcpy(hash, v.p, HS_FINGERPRINT_CHARS);
        memcpy(name, v.p + SOURCE_NAME_AT, v.n - SOURCE_NAME_AT);
        s = hs_activation_add_source(a, name, hash, err);
    }
    return s;
}

static hs_status read_facts(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    if (!hs_gguf_find(g, KEY_TOKENS))
        return hs_fail(err, HS_ERR_FORMAT, KEY_TOKENS ": missing");
    hs_status s = hs_gguf_u64(g, KEY_TOKENS, &a->tokens, err);
    hs_str print = {NULL, 0};
    if (s == HS_OK)
        s = hs_gguf_str(g, KEY_FINGERPRINT, &print, err);
    if (s == HS_OK && print.n && !is_hash(print.p, print.n))
        s = hs_fail(err, HS_ERR_FORMAT, KEY_FINGERPRINT ": expected 32 hex digits, got \"%.*s\"",
                    (int)(print.n < 80 ? print.n : 80), print.p);
    if (s == HS_OK && print.n)
        memcpy(a->fingerprint, print.p, print.n);
    if (s == HS_OK)
        s = hs_gguf_u64(g, KEY_CHUNKS, &a->chunks_done, err);
    if (s == HS_OK)
        s = hs_gguf_u32(g, KEY_CONTEXT, &a->n_ctx, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, KEY_NO_BOS, &a->no_bos, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, KEY_SPECIAL, &a->special, err);
    return s == HS_OK ? read_sources(a, g, err) : s;
}

hs_status hs_activation_parse(hs_activation **out, const hs_gguf *g, hs_err *err)
{
    *out = NULL;
    hs_str type = {NULL, 0};
    hs_status s = hs_gguf_str(g, KEY_TYPE, &type, err);
    if (s != HS_OK)
        return s;
    if (g->pwri || !hs_str_eq(type, FILE_TYPE))
        return hs_fail(err, HS_ERR_FORMAT, KEY_TYPE ": expected \"" FILE_TYPE "\", got \"%.*s\"%s",
                       (int)(type.n < 80 ? type.n : 80), type.n ? type.p : "",
                       g->pwri ? " in a PWRI file" : "");
    uint32_t n_layer = 0;
    hs_activation *a = NULL;
    s = check_layers(g, &n_layer, err);
    if (s == HS_OK)
        s = read_counts(&a, g, n_layer, err);
    if (s == HS_OK)
        s = read_facts(a, g, err);
    if (s == HS_OK)
        s = check(a, HS_ERR_FORMAT, err);
    if (s != HS_OK) {
        hs_activation_free(a);
        return s;
    }
    *out = a;
    return HS_OK;
}

hs_status hs_activation_read(hs_activation **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_gguf *g;
    hs_status s = hs_gguf_open(&g, path, err);
    if (s != HS_OK)
        return s;
    s = hs_activation_parse(out, g, err);
    if (s != HS_OK)
        (void)hs_ctx(err, s, "%s: ", path);
    hs_gguf_free(g);
    return s;
}

/* ---- writing -------------------------------------------------------------------------- */

static hs_status declare_sources(hs_gguf_writer *w, const hs_activation *a, hs_err *err)
{
    enum { LINE = SOURCE_NAME_AT + sizeof a->source->name };
    if (!a->n_source)
        return HS_OK;
    char *text = calloc(a->n_source, LINE);
    hs_str *v = calloc(a->n_source, sizeof *v);
    if (text && v) {
        for (size_t i = 0; i < a->n_source; i++) {
            char *line = text + i * LINE;
            snprintf(line, LINE, "%s %s", a->source[i].hash, a->source[i].name);
            v[i] = (hs_str){line, strlen(line)};
        }
        hs_gguf_set_str_array(w, KEY_SOURCE, v, a->n_source);
    }
    const bool ok = text && v;
    free(text);
    free(v);
    return ok ? HS_OK : no_memory(err);
}

static hs_status declare(hs_gguf_writer *w, const hs_activation *a, hs_err *err)
{
    hs_gguf_set_str(w, KEY_TYPE, FILE_TYPE);
    hs_gguf_set_u32(w, KEY_LAYERS, a->n_layer);
    hs_gguf_set_u64(w, KEY_TOKENS, a->tokens);
    if (a->fingerprint[0])
        hs_gguf_set_str(w, KEY_FINGERPRINT, a->fingerprint);
    const hs_status s = declare_sources(w, a, err);
    if (s != HS_OK)
        return s;
    if (a->n_ctx) {
        hs_gguf_set_u64(w, KEY_CHUNKS, a->chunks_done);
        hs_gguf_set_u32(w, KEY_CONTEXT, a->n_ctx);
    }
    if (a->no_bos)
        hs_gguf_set_bool(w, KEY_NO_BOS, true);
    if (a->special)
        hs_gguf_set_bool(w, KEY_SPECIAL, true);
    for (uint32_t l = 0; l < a->n_layer; l++) {
        char name[HS_GGUF_MAX_NAME + 1];
        snprintf(name, sizeof name, "blk.%" PRIu32 "." COUNT_SUFFIX, l);
        const uint64_t ne = a->n_ff[l];
        hs_gguf_add_tensor(w, name, HS_I64, 1, &ne);
    }
    return HS_OK;
}

hs_status hs_activation_write(const hs_activation *a, const char *path, bool force, hs_err *err)
{
    hs_status s = check(a, HS_ERR_USAGE, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", path);
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    hs_out *out = NULL;
    s = w ? declare(w, a, err) : no_memory(err);
    if (s == HS_OK)
        s = hs_out_open(&out, path, force, err);
    if (s == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++)
        s = hs_gguf_writer_data(w, a->count[l], (uint64_t)a->n_ff[l] * 8, err);
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, err);
    hs_gguf_writer_free(w);
    if (s == HS_OK)
        return hs_out_commit(out, true, err);
    hs_out_abort(out);
    return s;
}

/* ---- adding --------------------------------------------------------------------------- */

static hs_status check_addable(const hs_activation *dst, const hs_activation *src, hs_err *err)
{
    if (src->n_layer != dst->n_layer)
        return hs_fail(err, HS_ERR_FORMAT, "expected %" PRIu32 " layers, got %" PRIu32,
                       dst->n_layer, src->n_layer);
    for (uint32_t l = 0; l < dst->n_layer; l++)
        if (src->n_ff[l] != dst->n_ff[l])
            return hs_fail(err, HS_ERR_FORMAT,
                           "layer %" PRIu32 ": expected %" PRIu32 " neurons, got %" PRIu32, l,
                           dst->n_ff[l], src->n_ff[l]);
    if (dst->fingerprint[0] && src->fingerprint[0] &&
        strcmp(dst->fingerprint, src->fingerprint) != 0)
        return hs_fail(err, HS_ERR_FORMAT, "expected a profile of model %s, got one of %s",
                       dst->fingerprint, src->fingerprint);
    uint64_t tokens;
    if (!hs_add(dst->tokens, src->tokens, &tokens) || tokens > INT64_MAX)
        return hs_fail(err, HS_ERR_FORMAT, "%" PRIu64 " and %" PRIu64 " tokens overflow",
                       dst->tokens, src->tokens);
    for (uint32_t l = 0; l < dst->n_layer; l++)
        for (uint32_t i = 0; i < dst->n_ff[l]; i++) {
            int64_t sum;
            if (__builtin_add_overflow(dst->count[l][i], src->count[l][i], &sum))
                return hs_fail(err, HS_ERR_FORMAT,
                               "layer %" PRIu32 ": neuron %" PRIu32 ": counts %" PRId64
                               " and %" PRId64 " overflow",
                               l, i, dst->count[l][i], src->count[l][i]);
        }
    return HS_OK;
}

hs_status hs_activation_add(hs_activation *dst, const hs_activation *src, hs_err *err)
{
    const hs_status s = check_addable(dst, src, err);
    if (s != HS_OK)
        return s;
    const size_t n = src->n_source;
    if (n) {
        hs_activation_source *grown = calloc(dst->n_source + n, sizeof *grown);
        if (!grown)
            return no_memory(err);
        if (dst->n_source)
            memcpy(grown, dst->source, dst->n_source * sizeof *grown);
        memcpy(grown + dst->n_source, src->source, n * sizeof *grown);
        free(dst->source);
        dst->source = grown;
        dst->n_source += n;
    }
    if (!dst->fingerprint[0])
        memcpy(dst->fingerprint, src->fingerprint, sizeof dst->fingerprint);
    dst->tokens += src->tokens;
    for (uint32_t l = 0; l < dst->n_layer; l++)
        for (uint32_t i = 0; i < dst->n_ff[l]; i++)
            dst->count[l][i] += src->count[l][i];
    dst->chunks_done = 0;
    dst->n_ctx = 0;
    dst->no_bos = dst->no_bos || src->no_bos;
    dst->special = dst->special || src->special;
    return HS_OK;
}
