/* Activation profiles as GGUF.  The counts are all that a file must have; a statistic that is
 * there for one layer must be there for all. */
#include "formats/activation_impl.h"

#include "formats/cursor.h"
#include "formats/gguf_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hs_status no_memory(hs_err *err) { return hs_fail(err, HS_ERR_NOMEM, "out of memory"); }

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

static const hs_gguf_tensor *find(const hs_gguf *g, uint32_t layer, const char *what)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, what);
    return hs_gguf_tensor_find(g, name);
}

static const hs_gguf_tensor *count_tensor(const hs_gguf *g, uint32_t layer)
{
    return find(g, layer, HS_PROFILE_COUNT);
}

/* Every layer from 0 on has its counts, and nothing else is in the file but further statistics
 * of those layers. */
static hs_status check_layers(const hs_gguf *g, uint32_t *n_layer, hs_err *err)
{
    uint32_t want = 0;
    const hs_status s = hs_gguf_u32(g, HS_PROFILE_KEY_LAYERS, &want, err);
    if (s != HS_OK)
        return s;
    const bool stated = hs_gguf_find(g, HS_PROFILE_KEY_LAYERS) != NULL;
    if (stated && !want)
        return hs_fail(err, HS_ERR_FORMAT, HS_PROFILE_KEY_LAYERS ": expected at least 1, got 0");
    /* UINT32_MAX + 1 layers cannot be: names are unique and would not fit the file. */
    for (size_t i = 0; !stated && i < g->n_tensors; i++) {
        uint32_t l;
        const char *rest = layer_of(g->tensors[i].name, &l);
        if (rest && strcmp(rest, HS_PROFILE_COUNT) == 0 && l >= want)
            want = l < UINT32_MAX ? l + 1 : l;
    }
    for (uint32_t l = 0; l < (want ? want : 1); l++)
        if (!count_tensor(g, l))
            return hs_fail(err, HS_ERR_FORMAT, "blk.%" PRIu32 "." HS_PROFILE_COUNT ": missing", l);
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
    hs_status s = hs_gguf_array(g, HS_PROFILE_KEY_SOURCE, HS_KV_STRING, &kv, err);
    size_t pos = 0;
    for (uint64_t i = 0; s == HS_OK && kv && i < kv->count; i++) {
        const hs_str v = hs_kv_next_str(kv, &pos);
        if (v.n <= HS_PROFILE_NAME_AT || v.p[HS_PROFILE_NAME_AT - 1] != ' ' ||
            !hs_activation_is_hash(v.p, HS_FINGERPRINT_CHARS) ||
            !hs_activation_is_name(v.p + HS_PROFILE_NAME_AT, v.n - HS_PROFILE_NAME_AT))
            return hs_fail(err, HS_ERR_FORMAT,
                           HS_PROFILE_KEY_SOURCE
                           ": entry %" PRIu64
                           ": expected \"<32 hex digits> <file name>\", got \"%.*s\"",
                           i, (int)(v.n < 80 ? v.n : 80), v.p);
        char hash[HS_FINGERPRINT_CHARS + 1] = {0}, name[256] = {0};
        memcpy(hash, v.p, HS_FINGERPRINT_CHARS);
        memcpy(name, v.p + HS_PROFILE_NAME_AT, v.n - HS_PROFILE_NAME_AT);
        s = hs_activation_add_source(a, name, hash, err);
    }
    return s;
}

static hs_status read_facts(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    if (!hs_gguf_find(g, HS_PROFILE_KEY_TOKENS))
        return hs_fail(err, HS_ERR_FORMAT, HS_PROFILE_KEY_TOKENS ": missing");
    hs_status s = hs_gguf_u64(g, HS_PROFILE_KEY_TOKENS, &a->tokens, err);
    hs_str print = {NULL, 0};
    if (s == HS_OK)
        s = hs_gguf_str(g, HS_PROFILE_KEY_FINGERPRINT, &print, err);
    if (s == HS_OK && print.n && !hs_activation_is_hash(print.p, print.n))
        s = hs_fail(err, HS_ERR_FORMAT,
                    HS_PROFILE_KEY_FINGERPRINT ": expected 32 hex digits, got \"%.*s\"",
                    (int)(print.n < 80 ? print.n : 80), print.p);
    if (s == HS_OK && print.n)
        memcpy(a->fingerprint, print.p, print.n);
    if (s == HS_OK)
        s = hs_gguf_u64(g, HS_PROFILE_KEY_CHUNKS, &a->chunks_done, err);
    if (s == HS_OK)
        s = hs_gguf_u32(g, HS_PROFILE_KEY_CONTEXT, &a->n_ctx, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, HS_PROFILE_KEY_NO_BOS, &a->no_bos, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, HS_PROFILE_KEY_SPECIAL, &a->special, err);
    if (s == HS_OK)
        s = hs_gguf_u32(g, HS_PROFILE_KEY_GENERATE, &a->generate, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, HS_PROFILE_KEY_COMPLETE, &a->complete, err);
    if (s == HS_OK)
        s = hs_gguf_u64(g, HS_PROFILE_KEY_GENERATED, &a->tokens_generated, err);
    return s == HS_OK ? read_sources(a, g, err) : s;
}

/* ---- statistics ----------------------------------------------------------------------- */

/* *there: whether the file has it, for every layer. */
static hs_status present(const hs_gguf *g, uint32_t n_layer, const char *what, bool *there,
                         hs_err *err)
{
    uint32_t found = 0;
    for (uint32_t l = 0; l < n_layer; l++)
        found += find(g, l, what) != NULL;
    *there = found == n_layer;
    if (!found || *there)
        return HS_OK;
    for (uint32_t l = 0; l < n_layer; l++)
        if (!find(g, l, what))
            return hs_fail(err, HS_ERR_FORMAT, "blk.%" PRIu32 ".%s: missing, other layers have it",
                           l, what);
    return HS_OK;
}

static hs_status check_tensor(const hs_gguf_tensor *t, hs_dtype type, uint32_t n_dims,
                              const uint64_t ne[2], hs_err *err)
{
    if (t->dtype == type && t->n_dims == n_dims && t->ne[0] == ne[0] && t->ne[1] == ne[1])
        return HS_OK;
    return hs_fail(err, HS_ERR_FORMAT,
                   "%s: expected %s {%" PRIu64 ", %" PRIu64 "}, got %" PRIu32
                   "-dimensional %s {%" PRIu64 ", %" PRIu64 "}",
                   t->name, hs_dtype_name(type), ne[0], ne[1], t->n_dims, hs_dtype_name(t->dtype),
                   t->ne[0], t->ne[1]);
}

static hs_status read_stat(hs_activation *a, const hs_gguf *g, hs_activation_stat stat, hs_err *err)
{
    const char *name = hs_activation_stat_name(stat);
    for (uint32_t l = 0; l < a->n_layer; l++) {
        uint64_t ne[2];
        const uint32_t n_dims = hs_activation_stat_dims(a, stat, l, ne);
        const hs_status s = check_tensor(find(g, l, name), HS_I64, n_dims, ne, err);
        if (s != HS_OK)
            return s;
    }
    const hs_status s = hs_activation_stat_add(a, stat, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        const uint8_t *p = find(g, l, name)->data;
        const uint64_t n = hs_activation_stat_len(a, stat, l);
        for (uint64_t i = 0; i < n; i++)
            a->stat[stat][l][i] = (int64_t)hs_get_u64(p + i * 8);
    }
    return s;
}

/* The neurons whose pairs were counted say how many there are. */
static hs_status read_top(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    bool there = false;
    hs_status s = present(g, a->n_layer, HS_PROFILE_TOP, &there, err);
    if (s != HS_OK)
        return s;
    if (!there)
        return hs_fail(err, HS_ERR_FORMAT, "blk.0." HS_PROFILE_TOP ": missing");
    const hs_gguf_tensor *first = find(g, 0, HS_PROFILE_TOP);
    if (!first->ne[0] || first->ne[0] > HS_ACTIVATION_MAX_TOP)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected 1 to %d neurons, got %" PRIu64,
                       first->name, HS_ACTIVATION_MAX_TOP, first->ne[0]);
    const uint64_t ne[2] = {first->ne[0], 1};
    a->n_top = (uint32_t)ne[0];
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++)
        s = check_tensor(find(g, l, HS_PROFILE_TOP), HS_I32, 1, ne, err);
    if (s == HS_OK)
        s = read_stat(a, g, HS_STAT_COACTIVE, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        const uint8_t *p = find(g, l, HS_PROFILE_TOP)->data;
        for (uint32_t i = 0; i < a->n_top; i++)
            a->top[(size_t)l * a->n_top + i] = (int32_t)hs_get_u32(p + (size_t)i * 4);
    }
    return s;
}

static hs_status check_levels(const hs_gguf *g, hs_err *err)
{
    const hs_kv *kv = NULL;
    const hs_status s = hs_gguf_array(g, HS_PROFILE_KEY_LEVELS, HS_KV_U32, &kv, err);
    if (s != HS_OK)
        return s;
    bool same = kv && kv->count == HS_MAGNITUDE_LEVELS;
    for (uint64_t i = 0; same && i < HS_MAGNITUDE_LEVELS; i++)
        same = hs_kv_int(kv, i) == (int64_t)hs_magnitude_level[i];
    return same ? HS_OK
                : hs_fail(err, HS_ERR_FORMAT,
                          HS_PROFILE_KEY_LEVELS ": expected [50, 70, 80, 90, 95]");
}

static hs_status read_magnitude(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    hs_status s = hs_gguf_u32(g, HS_PROFILE_KEY_MAGNITUDE, &a->magnitude, err);
    bool there = false;
    if (s == HS_OK)
        s = check_levels(g, err);
    if (s == HS_OK)
        s = present(g, a->n_layer, HS_PROFILE_THRESHOLD, &there, err);
    if (s == HS_OK && !there)
        s = hs_fail(err, HS_ERR_FORMAT, "blk.0." HS_PROFILE_THRESHOLD ": missing");
    const uint64_t ne[2] = {HS_MAGNITUDE_LEVELS, 1};
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++)
        s = check_tensor(find(g, l, HS_PROFILE_THRESHOLD), HS_F32, 1, ne, err);
    if (s == HS_OK)
        s = read_stat(a, g, HS_STAT_MAGNITUDE, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        const uint8_t *p = find(g, l, HS_PROFILE_THRESHOLD)->data;
        for (size_t i = 0; i < HS_MAGNITUDE_LEVELS; i++)
            a->threshold[(size_t)l * HS_MAGNITUDE_LEVELS + i] = hs_get_f32(p + i * 4);
    }
    return s;
}

static hs_status read_stats(hs_activation *a, const hs_gguf *g, hs_err *err)
{
    for (int i = 0; i < HS_STATS; i++) {
        const hs_activation_stat stat = (hs_activation_stat)i;
        bool there = false;
        hs_status s = present(g, a->n_layer, hs_activation_stat_name(stat), &there, err);
        if (s == HS_OK && there)
            s = stat == HS_STAT_COACTIVE    ? read_top(a, g, err)
                : stat == HS_STAT_MAGNITUDE ? read_magnitude(a, g, err)
                                            : read_stat(a, g, stat, err);
        if (s != HS_OK)
            return s;
    }
    /* Without its tensors the key alone is a fault that the check finds. */
    return hs_gguf_u32(g, HS_PROFILE_KEY_MAGNITUDE, &a->magnitude, err);
}

hs_status hs_activation_parse(hs_activation **out, const hs_gguf *g, hs_err *err)
{
    *out = NULL;
    hs_str type = {NULL, 0};
    hs_status s = hs_gguf_str(g, HS_PROFILE_KEY_TYPE, &type, err);
    if (s != HS_OK)
        return s;
    if (g->pwri || !hs_str_eq(type, HS_PROFILE_FILE_TYPE))
        return hs_fail(err, HS_ERR_FORMAT,
                       HS_PROFILE_KEY_TYPE ": expected \"" HS_PROFILE_FILE_TYPE
                                           "\", got \"%.*s\"%s",
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
        s = read_stats(a, g, err);
    if (s == HS_OK)
        s = hs_activation_check(a, HS_ERR_FORMAT, err);
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
    enum { LINE = HS_PROFILE_NAME_AT + sizeof a->source->name };
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
        hs_gguf_set_str_array(w, HS_PROFILE_KEY_SOURCE, v, a->n_source);
    }
    const bool ok = text && v;
    free(text);
    free(v);
    return ok ? HS_OK : no_memory(err);
}

/* One tensor a layer, "blk.<layer>.<what>". */
static void declare_tensor(hs_gguf_writer *w, uint32_t layer, const char *what, hs_dtype type,
                           uint32_t n_dims, const uint64_t *ne)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, what);
    hs_gguf_add_tensor(w, name, type, n_dims, ne);
}

/* Statistic by statistic, so that what is read together lies together. */
static void declare_tensors(hs_gguf_writer *w, const hs_activation *a)
{
    const uint64_t levels = HS_MAGNITUDE_LEVELS, top = a->n_top;
    for (uint32_t l = 0; l < a->n_layer; l++) {
        const uint64_t ne = a->n_ff[l];
        declare_tensor(w, l, HS_PROFILE_COUNT, HS_I64, 1, &ne);
    }
    for (int i = 0; i < HS_STATS; i++) {
        const hs_activation_stat st = (hs_activation_stat)i;
        for (uint32_t l = 0; a->stat[st] && l < a->n_layer; l++) {
            uint64_t ne[2];
            const uint32_t n_dims = hs_activation_stat_dims(a, st, l, ne);
            if (st == HS_STAT_COACTIVE)
                declare_tensor(w, l, HS_PROFILE_TOP, HS_I32, 1, &top);
            if (st == HS_STAT_MAGNITUDE)
                declare_tensor(w, l, HS_PROFILE_THRESHOLD, HS_F32, 1, &levels);
            declare_tensor(w, l, hs_activation_stat_name(st), HS_I64, n_dims, ne);
        }
    }
}

static void declare_state(hs_gguf_writer *w, const hs_activation *a)
{
    if (a->n_ctx) {
        hs_gguf_set_u64(w, HS_PROFILE_KEY_CHUNKS, a->chunks_done);
        hs_gguf_set_u32(w, HS_PROFILE_KEY_CONTEXT, a->n_ctx);
    }
    if (a->generate)
        hs_gguf_set_u32(w, HS_PROFILE_KEY_GENERATE, a->generate);
    if (a->complete)
        hs_gguf_set_bool(w, HS_PROFILE_KEY_COMPLETE, true);
    if (a->no_bos)
        hs_gguf_set_bool(w, HS_PROFILE_KEY_NO_BOS, true);
    if (a->special)
        hs_gguf_set_bool(w, HS_PROFILE_KEY_SPECIAL, true);
    if (a->tokens_generated)
        hs_gguf_set_u64(w, HS_PROFILE_KEY_GENERATED, a->tokens_generated);
    if (a->magnitude) {
        hs_gguf_set_u32(w, HS_PROFILE_KEY_MAGNITUDE, a->magnitude);
        hs_gguf_set_array(w, HS_PROFILE_KEY_LEVELS, HS_KV_U32, hs_magnitude_level,
                          HS_MAGNITUDE_LEVELS);
    }
}

static hs_status declare(hs_gguf_writer *w, const hs_activation *a, hs_err *err)
{
    hs_gguf_set_str(w, HS_PROFILE_KEY_TYPE, HS_PROFILE_FILE_TYPE);
    hs_gguf_set_u32(w, HS_PROFILE_KEY_LAYERS, a->n_layer);
    hs_gguf_set_u64(w, HS_PROFILE_KEY_TOKENS, a->tokens);
    if (a->fingerprint[0])
        hs_gguf_set_str(w, HS_PROFILE_KEY_FINGERPRINT, a->fingerprint);
    const hs_status s = declare_sources(w, a, err);
    if (s != HS_OK)
        return s;
    declare_state(w, a);
    declare_tensors(w, a);
    return HS_OK;
}

static hs_status write_tensors(hs_gguf_writer *w, const hs_activation *a, hs_err *err)
{
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++)
        s = hs_gguf_writer_data(w, a->count[l], (uint64_t)a->n_ff[l] * 8, err);
    for (int i = 0; s == HS_OK && i < HS_STATS; i++) {
        const hs_activation_stat st = (hs_activation_stat)i;
        for (uint32_t l = 0; s == HS_OK && a->stat[st] && l < a->n_layer; l++) {
            if (st == HS_STAT_COACTIVE)
                s = hs_gguf_writer_data(w, a->top + (size_t)l * a->n_top, (uint64_t)a->n_top * 4,
                                        err);
            if (st == HS_STAT_MAGNITUDE)
                s = hs_gguf_writer_data(w, a->threshold + (size_t)l * HS_MAGNITUDE_LEVELS,
                                        HS_MAGNITUDE_LEVELS * sizeof(float), err);
            if (s == HS_OK)
                s = hs_gguf_writer_data(w, a->stat[st][l], hs_activation_stat_len(a, st, l) * 8,
                                        err);
        }
    }
    return s;
}

hs_status hs_activation_write(const hs_activation *a, const char *path, bool force, hs_err *err)
{
    hs_status s = hs_activation_check(a, HS_ERR_USAGE, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", path);
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    hs_out *out = NULL;
    s = w ? declare(w, a, err) : no_memory(err);
    if (s == HS_OK)
        s = hs_out_open(&out, path, force, err);
    if (s == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    if (s == HS_OK)
        s = write_tensors(w, a, err);
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, err);
    hs_gguf_writer_free(w);
    if (s == HS_OK)
        return hs_out_commit(out, true, err);
    hs_out_abort(out);
    return s;
}
