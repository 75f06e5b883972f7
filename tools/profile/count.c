/* Counting active neurons.  A chunk counts when it is complete and not before: that is what
 * makes a resumed profile equal to an uninterrupted one, byte for byte. */
#include "tools/profile/count.h"

#include "tools/profile/pilot.h"
#include "tools/profile/tally.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Tokens between two looks at the clock and at Ctrl-C; also the session's batch. */
enum { PIECE = 32 };

/* What every profile has, and what was asked for. */
static hs_status add_stats(hs_activation *a, const hs_count_want *want, hs_err *err)
{
    a->generate = want->generate;
    a->magnitude = want->magnitude;
    a->n_top = want->n_top < a->n_ff[0] ? want->n_top : a->n_ff[0];
    const struct {
        hs_activation_stat stat;
        bool wanted;
    } stats[] = {
        {HS_STAT_SUM, true},
        {HS_STAT_SQUARES, true},
        {HS_STAT_HISTOGRAM, true},
        {HS_STAT_GENERATED, want->generate > 0},
        {HS_STAT_BY_TEXT, a->n_source > 1 && a->n_source <= HS_ACTIVATION_MAX_TEXTS},
        {HS_STAT_COACTIVE, a->n_top > 0},
        {HS_STAT_MAGNITUDE, want->magnitude > 0},
        {HS_STAT_KEPT, want->magnitude > 0},
    };
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < sizeof stats / sizeof *stats; i++)
        if (stats[i].wanted)
            s = hs_activation_stat_add(a, stats[i].stat, err);
    return s;
}

hs_status hs_count_begin(hs_activation **out, const hs_model *m, const hs_texts *t,
                         const hs_count_want *want, const hs_cli *cli, hs_err *err)
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
    if (s == HS_OK)
        s = add_stats(a, want, err);
    if (s != HS_OK) {
        hs_activation_free(a);
        return s;
    }
    memcpy(a->fingerprint, info.fingerprint, sizeof a->fingerprint);
    a->n_ctx = t->n_ctx;
    a->no_bos = cli->no_bos;
    a->special = cli->special;
    *out = a;
    return HS_OK;
}

/* Observed, every neuron is computed; "off" keeps a dense file's matrices as they are.  F32 keys
 * and values: a count should depend on the weights, not on the cache's rounding. */
static hs_session_params params_of(const hs_cli *cli)
{
    return (hs_session_params){.kv_f32 = true,
                               .n_threads = (int)cli->threads,
                               .cpu = cli->cpu,
                               .sparsity = HS_SPARSITY_OFF,
                               .device = "none"};
}

hs_status hs_count_pilot(hs_activation *a, const hs_model *m, const hs_cli *cli, hs_err *err)
{
    return hs_pilot_run(a, m, params_of(cli), err);
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
    const struct {
        const char *option;
        uint32_t was, is;
    } same[] = {{"--generate", a->generate, fresh->generate},
                {"--coactivation", a->n_top, fresh->n_top},
                {"--magnitude", a->magnitude, fresh->magnitude}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same[i].was != same[i].is)
            return hs_fail(err, HS_ERR_USAGE,
                           "%s: cannot resume: made with %s %" PRIu32 ", got %" PRIu32, path,
                           same[i].option, same[i].was, same[i].is);
    bool shape = a->n_layer == fresh->n_layer;
    for (uint32_t l = 0; shape && l < a->n_layer; l++)
        shape = a->n_ff[l] == fresh->n_ff[l];
    if (!shape)
        return hs_fail(err, HS_ERR_USAGE, "%s: cannot resume: its layers are not the model's",
                       path);
    return same_sources(a, fresh, path, err);
}

/* ---- evaluation ----------------------------------------------------------------------- */

typedef struct run {
    const hs_count_job *job;
    hs_activation *a; /* rank 0: the profile; others: what they counted since the last save */
    hs_session *session;
    hs_tally *tally;
    hs_model_info info;
    int32_t *chunk; /* [n_ctx] */
    size_t text;    /* that the chunk is of */
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

/* Everything that the other ranks have counted since the last save goes to rank 0. */
static hs_status gather(run *r, hs_err *err)
{
    hs_ranks *ranks = r->job->ranks;
    hs_activation *a = r->a;
    int64_t tokens[2] = {(int64_t)a->tokens, (int64_t)a->tokens_generated};
    hs_status s = hs_ranks_sum(ranks, tokens, 2, err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++) {
        s = hs_ranks_sum(ranks, a->count[l], a->n_ff[l], err);
        for (int i = 0; s == HS_OK && i < HS_STATS; i++)
            if (a->stat[i])
                s = hs_ranks_sum(ranks, a->stat[i][l],
                                 hs_activation_stat_len(a, (hs_activation_stat)i, l), err);
    }
    a->tokens = (uint64_t)tokens[0];
    a->tokens_generated = (uint64_t)tokens[1];
    return s;
}

/* A model that ended each text at once generated nothing; the file has no counts of nothing. */
static hs_status write_out(run *r, hs_err *err)
{
    int64_t **generated = r->a->stat[HS_STAT_GENERATED];
    const bool last = r->a->chunks_done == r->job->texts->n_chunks;
    if (!r->a->tokens_generated)
        r->a->stat[HS_STAT_GENERATED] = NULL;
    const hs_status s = last ? hs_activation_write(r->a, r->job->out, r->job->replace, err)
                             : hs_activation_write(r->a, r->job->partial, true, err);
    r->a->stat[HS_STAT_GENERATED] = generated;
    if (s == HS_OK && last)
        unlink(r->job->partial); /* most often there is none */
    return s;
}

static hs_status save(run *r, hs_err *err)
{
    r->last_save = now();
    r->a->complete = r->job->texts->whole && r->a->chunks_done == r->job->texts->n_chunks;
    hs_status s = gather(r, err);
    if (s == HS_OK && hs_ranks_index(r->job->ranks) == 0)
        s = write_out(r, err);
    return hs_ranks_agree(r->job->ranks, s, err);
}

static bool step(run *r, uint64_t in_chunk)
{
    const uint64_t n = (uint64_t)hs_ranks_count(r->job->ranks);
    return hs_progress_step(&r->progress, r->done + in_chunk * n - r->first, r->total - r->first);
}

/* The lowest id on ties, as --temp 0 chooses. */
static int32_t likeliest(const run *r)
{
    const float *logits = hs_session_logits(r->session);
    uint32_t best = 0;
    for (uint32_t i = 1; i < r->info.n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Let the model go on with the chunk: each token is chosen, then evaluated and counted. */
static hs_status generate(run *r, size_t n, hs_err *err)
{
    hs_tally_generated(r->tally, true);
    for (uint32_t i = 0; i < r->a->generate; i++) {
        const int32_t id = likeliest(r);
        if (hs_token_is_eog(r->job->model, id))
            break;
        const hs_status s = hs_session_eval(r->session, &id, 1, NULL, NULL, err);
        if (s != HS_OK)
            return s;
        if (!step(r, n + i + 1))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    }
    return HS_OK;
}

static hs_status eval_chunk(run *r, size_t n, hs_err *err)
{
    hs_tally_clear(r->tally);
    hs_session_reset(r->session);
    for (size_t at = 0; at < n;) {
        const size_t k = n - at < PIECE ? n - at : PIECE;
        const hs_status s = hs_session_eval(r->session, r->chunk + at, k, NULL, NULL, err);
        if (s != HS_OK)
            return s;
        at += k;
        if (!step(r, at))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    }
    return generate(r, n, err);
}

/* One chunk for every rank, those that are left: all count or none does, so that what is done
 * are the first chunks, without a gap. */
static hs_status round_of_chunks(run *r, hs_err *err)
{
    hs_ranks *ranks = r->job->ranks;
    const hs_texts *t = r->job->texts;
    const uint64_t first = r->a->chunks_done, rest = t->n_chunks - first,
                   ranked = (uint64_t)hs_ranks_count(ranks), n = ranked < rest ? ranked : rest,
                   mine = (uint64_t)hs_ranks_index(ranks);
    hs_status s = HS_OK;
    if (mine < n)
        s = eval_chunk(r, hs_texts_chunk(t, first + mine, r->chunk, &r->text), err);
    s = hs_ranks_agree(ranks, s, err);
    if (s == HS_OK && mine < n)
        s = hs_tally_take(r->tally, r->a, r->text, err);
    s = hs_ranks_agree(ranks, s, err);
    if (s != HS_OK)
        return s;
    r->a->chunks_done += n;
    r->done = hs_texts_positions(t, r->a->chunks_done) + r->a->chunks_done * r->a->generate;
    return HS_OK;
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
    hs_session_observe(r->session, hs_tally_observe, r->tally);
    if (r->job->sums)
        hs_session_watch(r->session, hs_sums_watch, r->job->sums);
    r->last_save = now();
    while (s == HS_OK && r->a->chunks_done < t->n_chunks) {
        s = round_of_chunks(r, err);
        if (s == HS_ERR_INTERRUPTED)
            return stop(r, first, err);
        if (s != HS_OK)
            break;
        const bool due = now() - r->last_save >= r->job->autosave_s;
        if (r->a->chunks_done == t->n_chunks || hs_ranks_same(r->job->ranks, due))
            s = save(r, err);
    }
    return s;
}

static hs_status open_session(run *r, hs_err *err)
{
    const hs_cli *cli = r->job->cli;
    hs_session_params p = params_of(cli);
    p.n_ctx = r->a->n_ctx + r->a->generate;
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

static hs_status prepare(run *r, hs_err *err)
{
    hs_status s = open_session(r, err);
    if (s == HS_OK)
        s = hs_tally_new(&r->tally, r->a, err);
    r->chunk = calloc(r->job->texts->n_ctx, sizeof *r->chunk);
    if (s == HS_OK && !r->chunk)
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_model_describe(r->job->model, &r->info);
    if (hs_ranks_index(r->job->ranks) > 0) {
        const uint64_t done = r->a->chunks_done;
        hs_activation_clear(r->a);
        r->a->chunks_done = done;
    }
    return hs_ranks_agree(r->job->ranks, s, err);
}

/* What a resumed profile holds must be what its chunks have. */
static hs_status check_done(const hs_activation *a, const hs_count_job *job, hs_err *err)
{
    const hs_texts *t = job->texts;
    if (a->chunks_done > t->n_chunks)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: cannot resume: holds %" PRIu64 " chunks, more than the %" PRIu64
                       " wanted",
                       job->from, a->chunks_done, t->n_chunks);
    const uint64_t given = a->tokens - a->tokens_generated,
                   want = hs_texts_positions(t, a->chunks_done);
    if (given != want)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: cannot resume: %" PRIu64 " chunks have %" PRIu64
                       " positions, hotset.profile.tokens says %" PRIu64,
                       job->from, a->chunks_done, want, given);
    return HS_OK;
}

hs_status hs_count_run(hs_activation *a, const hs_count_job *job, hs_err *err)
{
    const hs_texts *t = job->texts;
    hs_status s = check_done(a, job, err);
    if (s == HS_OK && a->generate && !a->stat[HS_STAT_GENERATED]) /* nothing so far */
        s = hs_activation_stat_add(a, HS_STAT_GENERATED, err);
    if (s != HS_OK || (a->chunks_done == t->n_chunks && job->from == job->out))
        return s;
    run r = {.job = job, .a = a};
    r.first = r.done = hs_texts_positions(t, a->chunks_done) + a->chunks_done * a->generate;
    r.total = hs_texts_positions(t, t->n_chunks) + t->n_chunks * a->generate;
    s = prepare(&r, err);
    hs_progress_init(&r.progress, job->cli, "profiling", "tokens");
    if (s == HS_OK)
        s = a->chunks_done < t->n_chunks ? loop(&r, err) : save(&r, err); /* only to be named */
    hs_progress_end(&r.progress);
    hs_tally_free(r.tally);
    free(r.chunk);
    hs_session_free(r.session);
    return s;
}
