/* Counting active neurons.  A chunk counts when it is complete and not before: that is what
 * makes a resumed profile equal to an uninterrupted one, byte for byte. */
#include "tools/profile/count.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Tokens between two looks at the clock and at Ctrl-C; also the session's batch. */
enum { PIECE = 32 };

hs_status hs_count_begin(hs_activation **out, const hs_model *m, const hs_texts *t, bool no_bos,
                         bool special, hs_err *err)
{
    hs_model_info info;
    hs_model_describe(m, &info);
    uint32_t *n_ff = calloc(info.n_layer, sizeof *n_ff);
    if (!n_ff)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (uint32_t l = 0; l < info.n_layer; l++)
        n_ff[l] = info.n_ff;
    hs_activation *a = NULL;
    hs_status s = hs_activation_new(&a, info.n_layer, n_ff, err);
    free(n_ff);
    for (size_t i = 0; s == HS_OK && i < t->n; i++)
        s = hs_activation_add_source(a, t->text[i].path, t->text[i].hash, err);
    if (s != HS_OK) {
        hs_activation_free(a);
        return s;
    }
    memcpy(a->fingerprint, info.fingerprint, sizeof a->fingerprint);
    a->n_ctx = t->n_ctx;
    a->no_bos = no_bos;
    a->special = special;
    *out = a;
    return HS_OK;
}

static hs_status same_sources(const hs_activation *a, const hs_activation *fresh, const char *path,
                              hs_err *err)
{
    if (a->n_source != fresh->n_source)
        return hs_fail(err, HS_ERR_USAGE, "%s: cannot resume: made from %zu texts, got %zu", path,
                       a->n_source, fresh->n_source);
    for (size_t i = 0; i < a->n_source; i++)
        if (strcmp(a->source[i].hash, fresh->source[i].hash) != 0)
            return hs_fail(err, HS_ERR_USAGE,
                           "%s: cannot resume: text %zu was %s with hash %s, %s has hash %s", path,
                           i + 1, a->source[i].name, a->source[i].hash, fresh->source[i].name,
                           fresh->source[i].hash);
    return HS_OK;
}

hs_status hs_count_same(const hs_activation *a, const hs_activation *fresh, const char *path,
                        hs_err *err)
{
    if (!a->n_ctx)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: cannot resume: merged or imported, it does not say where it stopped",
                       path);
    if (strcmp(a->fingerprint, fresh->fingerprint) != 0)
        return hs_fail(err, HS_ERR_USAGE, "%s: cannot resume: made with model %s, this one is %s",
                       path, a->fingerprint[0] ? a->fingerprint : "(unknown)", fresh->fingerprint);
    if (a->n_ctx != fresh->n_ctx)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: cannot resume: made with context %" PRIu32 ", got %" PRIu32, path,
                       a->n_ctx, fresh->n_ctx);
    if (a->no_bos != fresh->no_bos || a->special != fresh->special)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: cannot resume: made with%s --no-bos and with%s "
                       "--special",
                       path, a->no_bos ? "" : "out", a->special ? "" : "out");
    bool shape = a->n_layer == fresh->n_layer;
    for (uint32_t l = 0; shape && l < a->n_layer; l++)
        shape = a->n_ff[l] == fresh->n_ff[l];
    if (!shape)
        return hs_fail(err, HS_ERR_USAGE, "%s: cannot resume: its layers are not the model's",
                       path);
    return same_sources(a, fresh, path, err);
}

/* ---- evaluation ----------------------------------------------------------------------- */

typedef struct counter {
    uint32_t n_ff;
    uint32_t *count; /* [n_layer][n_ff], of the chunk at hand */
} counter;

static void observe(void *ud, uint32_t layer, size_t pos, const float *z)
{
    (void)pos;
    const counter *c = ud;
    uint32_t *n = c->count + (size_t)layer * c->n_ff;
    for (uint32_t i = 0; i < c->n_ff; i++)
        n[i] += z[i] != 0.0f;
}

typedef struct run {
    const hs_count_job *job;
    hs_activation *a;
    hs_session *session;
    counter counter;
    int32_t *chunk; /* [n_ctx] */
    hs_progress progress;
    uint64_t first, done, total; /* positions: of this run's start, so far, of all chunks */
    double last_save;
} run;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static hs_status save(run *r, hs_err *err)
{
    r->last_save = now();
    if (r->a->chunks_done < r->job->texts->n_chunks)
        return hs_activation_write(r->a, r->job->partial, true, err);
    const hs_status s = hs_activation_write(r->a, r->job->out, r->job->replace, err);
    if (s == HS_OK)
        unlink(r->job->partial); /* most often there is none */
    return s;
}

static hs_status eval_chunk(run *r, size_t n, hs_err *err)
{
    memset(r->counter.count, 0, (size_t)r->a->n_layer * r->counter.n_ff * sizeof(uint32_t));
    hs_session_reset(r->session);
    for (size_t at = 0; at < n;) {
        const size_t k = n - at < PIECE ? n - at : PIECE;
        const hs_status s = hs_session_eval(r->session, r->chunk + at, k, NULL, NULL, err);
        if (s != HS_OK)
            return s;
        at += k;
        if (!hs_progress_step(&r->progress, r->done + at - r->first, r->total - r->first))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    }
    return HS_OK;
}

static void take_chunk(run *r, size_t n)
{
    const uint32_t *from = r->counter.count;
    for (uint32_t l = 0; l < r->a->n_layer; l++)
        for (uint32_t i = 0; i < r->counter.n_ff; i++)
            r->a->count[l][i] += *from++;
    r->a->tokens += n;
    r->a->chunks_done++;
    r->done += n;
}

/* The message of an interruption says what was kept. */
static hs_status stop(run *r, uint64_t first_chunk, hs_err *err)
{
    const uint64_t n = r->a->chunks_done;
    if (n > first_chunk) {
        const hs_status s = save(r, err);
        if (s != HS_OK)
            return s;
    }
    if (!n)
        return hs_fail(err, HS_ERR_INTERRUPTED,
                       "interrupted before the first chunk was done; nothing was written");
    return hs_fail(err, HS_ERR_INTERRUPTED,
                   "interrupted: %s holds %" PRIu64 " of %" PRIu64
                   " chunks; continue with --resume",
                   r->job->partial, n, r->job->texts->n_chunks);
}

static hs_status loop(run *r, hs_err *err)
{
    const hs_texts *t = r->job->texts;
    const uint64_t first = r->a->chunks_done;
    hs_status s = HS_OK;
    hs_session_observe(r->session, observe, &r->counter);
    r->last_save = now();
    while (s == HS_OK && r->a->chunks_done < t->n_chunks) {
        const size_t n = hs_texts_chunk(t, r->a->chunks_done, r->chunk);
        s = eval_chunk(r, n, err);
        if (s == HS_ERR_INTERRUPTED)
            return stop(r, first, err);
        if (s != HS_OK)
            break;
        take_chunk(r, n);
        if (r->a->chunks_done == t->n_chunks || now() - r->last_save >= r->job->autosave_s)
            s = save(r, err);
    }
    return s;
}

static hs_status open_session(run *r, hs_err *err)
{
    const hs_cli *cli = r->job->cli;
    /* Observed, every neuron is computed; "off" keeps a dense file's matrices as they are.  F32
     * keys and values: a count should depend on the weights, not on the cache's rounding. */
    const hs_session_params p = {.n_ctx = r->a->n_ctx,
                                 .kv_f32 = true,
                                 .n_threads = (int)cli->threads,
                                 .cpu = cli->cpu,
                                 .sparsity = HS_SPARSITY_OFF,
                                 .device = "none"};
    const hs_status s = hs_session_new(&r->session, r->job->model, &p, err);
    if (s != HS_OK)
        return s;
    hs_session_set_batch(r->session, PIECE);
    hs_session_info info;
    hs_session_describe(r->session, &info);
    for (const char *const *n = info.notes; n && *n; n++)
        hs_cli_debug(cli, "%s", *n);
    return HS_OK;
}

hs_status hs_count_run(hs_activation *a, const hs_count_job *job, hs_err *err)
{
    const hs_texts *t = job->texts;
    if (a->chunks_done > t->n_chunks)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: cannot resume: holds %" PRIu64 " chunks, more than the %" PRIu64
                       " wanted",
                       job->from, a->chunks_done, t->n_chunks);
    run r = {.job = job, .a = a, .counter = {.n_ff = a->n_ff[0]}};
    r.first = r.done = hs_texts_positions(t, a->chunks_done);
    r.total = hs_texts_positions(t, t->n_chunks);
    if (a->tokens != r.done)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: cannot resume: %" PRIu64 " chunks have %" PRIu64
                       " positions, hotset.profile.tokens is %" PRIu64,
                       job->from, a->chunks_done, r.done, a->tokens);
    if (a->chunks_done == t->n_chunks) /* nothing to do but to give it its name */
        return job->from == job->out ? HS_OK : save(&r, err);
    hs_status s = open_session(&r, err);
    r.chunk = calloc(t->n_ctx, sizeof *r.chunk);
    r.counter.count = calloc((size_t)a->n_layer * a->n_ff[0], sizeof *r.counter.count);
    if (s == HS_OK && (!r.chunk || !r.counter.count))
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_progress_init(&r.progress, job->cli, "profiling", "tokens");
    if (s == HS_OK)
        s = loop(&r, err);
    hs_progress_end(&r.progress);
    free(r.counter.count);
    free(r.chunk);
    hs_session_free(r.session);
    return s;
}
