/* Activation profiles in memory: made, checked, added up.  One surprise: a profile is checked by
 * the same function before it is written and after it is read, so no program can write one that
 * the next would refuse. */
#include "formats/activation_impl.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    for (int i = 0; i < HS_STATS; i++)
        hs_activation_stat_drop(a, (hs_activation_stat)i);
    free(a->count);
    free(a->n_ff);
    free(a->source);
    free(a);
}

static hs_status copy_shape(hs_activation *to, const hs_activation *a, hs_err *err)
{
    memcpy(to->fingerprint, a->fingerprint, sizeof to->fingerprint);
    to->n_ctx = a->n_ctx;
    to->no_bos = a->no_bos;
    to->special = a->special;
    to->generate = a->generate;
    to->magnitude = a->magnitude;
    to->n_top = a->n_top;
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < a->n_source; i++)
        s = hs_activation_add_source(to, a->source[i].name, a->source[i].hash, err);
    for (int i = 0; s == HS_OK && i < HS_STATS; i++)
        if (a->stat[i])
            s = hs_activation_stat_add(to, (hs_activation_stat)i, err);
    if (s == HS_OK && a->top)
        memcpy(to->top, a->top, (size_t)a->n_layer * a->n_top * sizeof *a->top);
    if (s == HS_OK && a->threshold)
        memcpy(to->threshold, a->threshold,
               (size_t)a->n_layer * HS_MAGNITUDE_LEVELS * sizeof *a->threshold);
    return s;
}

hs_status hs_activation_new_like(hs_activation **out, const hs_activation *a, hs_err *err)
{
    hs_status s = hs_activation_new(out, a->n_layer, a->n_ff, err);
    if (s == HS_OK)
        s = copy_shape(*out, a, err);
    if (s != HS_OK) {
        hs_activation_free(*out);
        *out = NULL;
    }
    return s;
}

void hs_activation_clear(hs_activation *a)
{
    a->tokens = a->tokens_generated = a->chunks_done = 0;
    a->complete = false;
    for (uint32_t l = 0; l < a->n_layer; l++) {
        memset(a->count[l], 0, a->n_ff[l] * sizeof *a->count[l]);
        for (int i = 0; i < HS_STATS; i++)
            if (a->stat[i])
                memset(a->stat[i][l], 0,
                       hs_activation_stat_len(a, (hs_activation_stat)i, l) * sizeof(int64_t));
    }
}

bool hs_activation_is_hash(const char *p, size_t n)
{
    if (n != HS_FINGERPRINT_CHARS)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(p[i] >= '0' && p[i] <= '9') && !(p[i] >= 'a' && p[i] <= 'f'))
            return false;
    return true;
}

/* A name that could be mistaken for a path would make the file depend on the machine. */
bool hs_activation_is_name(const char *p, size_t n)
{
    return n > 0 && n < sizeof((hs_activation_source *)0)->name && !memchr(p, '/', n) &&
           !memchr(p, '\0', n);
}

hs_status hs_activation_add_source(hs_activation *a, const char *name, const char *hash,
                                   hs_err *err)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    if (!hs_activation_is_name(base, strlen(base)))
        return hs_fail(err, HS_ERR_USAGE, "%s: expected a file name of 1 to 255 bytes", name);
    if (!hs_activation_is_hash(hash, strlen(hash)))
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
                               "blk.%" PRIu32 "." HS_PROFILE_COUNT ": neuron %" PRIu32
                               ": expected a count of at least 0, got %" PRId64,
                               l, i, n);
            if ((uint64_t)n > a->tokens)
                return hs_fail(err, code,
                               "blk.%" PRIu32 "." HS_PROFILE_COUNT ": neuron %" PRIu32
                               ": count %" PRId64 " exceeds " HS_PROFILE_KEY_TOKENS " %" PRIu64,
                               l, i, n, a->tokens);
        }
    }
    return HS_OK;
}

hs_status hs_activation_check(const hs_activation *a, hs_status code, hs_err *err)
{
    if (!a->tokens || a->tokens > INT64_MAX)
        return hs_fail(err, code, HS_PROFILE_KEY_TOKENS ": expected 1 to 2^63-1, got %" PRIu64,
                       a->tokens);
    if (a->fingerprint[0] && !hs_activation_is_hash(a->fingerprint, strnlen(a->fingerprint, 33)))
        return hs_fail(err, code,
                       HS_PROFILE_KEY_FINGERPRINT ": expected 32 hex digits, got \"%.33s\"",
                       a->fingerprint);
    if (!a->chunks_done != !a->n_ctx)
        return hs_fail(err, code,
                       HS_PROFILE_KEY_CHUNKS " %" PRIu64 " and " HS_PROFILE_KEY_CONTEXT " %" PRIu32
                                             ": expected both or neither",
                       a->chunks_done, a->n_ctx);
    if ((a->generate || a->complete) && !a->n_ctx)
        return hs_fail(err, code,
                       HS_PROFILE_KEY_GENERATE " or " HS_PROFILE_KEY_COMPLETE
                                               " without " HS_PROFILE_KEY_CONTEXT);
    uint64_t most;
    if (!hs_mul(a->chunks_done, (uint64_t)a->n_ctx + a->generate, &most))
        most = UINT64_MAX;
    if (a->n_ctx && (a->tokens < a->chunks_done || a->tokens > most))
        return hs_fail(err, code,
                       HS_PROFILE_KEY_TOKENS " %" PRIu64 " cannot come from %" PRIu64
                                             " chunks of at most %" PRIu64,
                       a->tokens, a->chunks_done, (uint64_t)a->n_ctx + a->generate);
    const hs_status s = check_counts(a, code, err);
    return s == HS_OK ? hs_activation_check_stats(a, code, err) : s;
}

/* ---- adding --------------------------------------------------------------------------- */

/* Whether its counts are those of its one text: an imported part has no text. */
static bool one_text(const hs_activation *a) { return a->n_source == 1 && a->n_ctx; }

static bool has_texts(const hs_activation *a) { return one_text(a) || a->stat[HS_STAT_BY_TEXT]; }

/* Thresholds decide what a count is. */
static hs_status check_same_rule(const hs_activation *dst, const hs_activation *src, hs_err *err)
{
    if (dst->magnitude != src->magnitude)
        return hs_fail(err, HS_ERR_FORMAT,
                       HS_PROFILE_KEY_MAGNITUDE ": expected %" PRIu32 ", got %" PRIu32,
                       dst->magnitude, src->magnitude);
    if (dst->magnitude && memcmp(dst->threshold, src->threshold,
                                 (size_t)dst->n_layer * HS_MAGNITUDE_LEVELS * sizeof(float)) != 0)
        return hs_fail(err, HS_ERR_FORMAT,
                       "its magnitude thresholds differ: calibrated on another model");
    return HS_OK;
}

static hs_status check_sum(const int64_t *a, const int64_t *b, uint64_t n, uint32_t layer,
                           const char *what, hs_err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        int64_t sum;
        if (__builtin_add_overflow(a[i], b[i], &sum))
            return hs_fail(err, HS_ERR_FORMAT,
                           "layer %" PRIu32 ": %s %" PRIu64 ": %" PRId64 " and %" PRId64
                           " overflow",
                           layer, what, i, a[i], b[i]);
    }
    return HS_OK;
}

static bool kept(const hs_activation *a, const hs_activation *b, hs_activation_stat st)
{
    if (!a->stat[st] || !b->stat[st] || st == HS_STAT_BY_TEXT)
        return false;
    return st != HS_STAT_COACTIVE ||
           (a->n_top == b->n_top &&
            memcmp(a->top, b->top, (size_t)a->n_layer * a->n_top * sizeof *a->top) == 0);
}

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
    hs_status s = check_same_rule(dst, src, err);
    for (uint32_t l = 0; s == HS_OK && l < dst->n_layer; l++) {
        s = check_sum(dst->count[l], src->count[l], dst->n_ff[l], l, "neuron", err);
        for (int i = 0; s == HS_OK && i < HS_STATS; i++) {
            const hs_activation_stat st = (hs_activation_stat)i;
            if (kept(dst, src, st))
                s = check_sum(dst->stat[st][l], src->stat[st][l],
                              hs_activation_stat_len(dst, st, l), l, hs_activation_stat_name(st),
                              err);
        }
    }
    return s;
}

/* What the sum needs beside dst's own memory, taken before anything changes. */
typedef struct room {
    hs_activation_source *source;
    hs_activation shape; /* dst's, with the sum's texts: owns by_text only */
    bool by_text;
} room;

static hs_status make_room(room *r, hs_activation *dst, const hs_activation *src, hs_err *err)
{
    const size_t n = dst->n_source + src->n_source;
    r->shape = (hs_activation){.n_layer = dst->n_layer, .n_ff = dst->n_ff, .n_source = n};
    r->by_text = has_texts(dst) && has_texts(src) && n <= HS_ACTIVATION_MAX_TEXTS;
    r->source = calloc(n ? n : 1, sizeof *r->source);
    hs_status s = r->source ? HS_OK : no_memory(err);
    if (s == HS_OK && r->by_text)
        s = hs_activation_stat_add(&r->shape, HS_STAT_BY_TEXT, err);
    if (s == HS_OK && src->stat[HS_STAT_GENERATED] && !dst->stat[HS_STAT_GENERATED])
        s = hs_activation_stat_add(dst, HS_STAT_GENERATED, err);
    if (s != HS_OK) {
        free(r->source);
        hs_activation_stat_drop(&r->shape, HS_STAT_BY_TEXT);
    }
    return s;
}

static void copy_texts(int64_t *to, const hs_activation *a, uint32_t l)
{
    const int64_t *from = one_text(a) ? a->count[l] : a->stat[HS_STAT_BY_TEXT][l];
    memcpy(to, from, a->n_source * a->n_ff[l] * sizeof *to);
}

/* Before the counts of dst change: they may be those of its one text. */
static void join_texts(room *r, hs_activation *dst, const hs_activation *src)
{
    for (uint32_t l = 0; r->by_text && l < dst->n_layer; l++) {
        int64_t *v = r->shape.stat[HS_STAT_BY_TEXT][l];
        copy_texts(v, dst, l);
        copy_texts(v + dst->n_source * dst->n_ff[l], src, l);
    }
    if (dst->n_source)
        memcpy(r->source, dst->source, dst->n_source * sizeof *r->source);
    if (src->n_source)
        memcpy(r->source + dst->n_source, src->source, src->n_source * sizeof *r->source);
}

static void add_up(int64_t *a, const int64_t *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void add_state(hs_activation *dst, const hs_activation *src)
{
    if (dst->complete && src->complete && dst->n_ctx == src->n_ctx &&
        dst->generate == src->generate && dst->no_bos == src->no_bos &&
        dst->special == src->special) {
        dst->chunks_done += src->chunks_done;
        return;
    }
    dst->chunks_done = 0;
    dst->n_ctx = dst->generate = 0;
    dst->complete = false;
    dst->no_bos = dst->no_bos || src->no_bos;
    dst->special = dst->special || src->special;
}

hs_status hs_activation_add(hs_activation *dst, const hs_activation *src, hs_err *err)
{
    hs_status s = check_addable(dst, src, err);
    room r = {0};
    if (s == HS_OK)
        s = make_room(&r, dst, src, err);
    if (s != HS_OK)
        return s;
    join_texts(&r, dst, src);
    for (int i = 0; i < HS_STATS; i++) {
        const hs_activation_stat st = (hs_activation_stat)i;
        if (kept(dst, src, st))
            for (uint32_t l = 0; l < dst->n_layer; l++)
                add_up(dst->stat[st][l], src->stat[st][l], hs_activation_stat_len(dst, st, l));
        else if (st != HS_STAT_GENERATED) /* where there is none it is all zeros */
            hs_activation_stat_drop(dst, st);
    }
    for (uint32_t l = 0; l < dst->n_layer; l++)
        add_up(dst->count[l], src->count[l], dst->n_ff[l]);
    free(dst->source);
    dst->source = r.source;
    dst->n_source += src->n_source;
    dst->stat[HS_STAT_BY_TEXT] = r.shape.stat[HS_STAT_BY_TEXT];
    if (!dst->fingerprint[0])
        memcpy(dst->fingerprint, src->fingerprint, sizeof dst->fingerprint);
    dst->tokens += src->tokens;
    dst->tokens_generated += src->tokens_generated;
    add_state(dst, src);
    return HS_OK;
}
