#ifndef HS_TESTS_RUNTIME_UTIL_H
#define HS_TESTS_RUNTIME_UTIL_H

/* What the runtime's tests share: sessions over a model file, logits of a token list, and
 * placements made by rule. */

#include "formats/placement.h"
#include "runtime/budget.h"
#include "runtime/hotset.h"
#include "runtime/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline void must(hs_status s, const hs_err *err)
{
    if (s != HS_OK)
        fail_msg("%s", err->msg);
}

/* An empty file's path in `path`, which ends in XXXXXX. */
static inline void temp_path(char *path)
{
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static inline hs_model *load(const char *path)
{
    hs_err err = {0};
    hs_model *m = NULL;
    must(hs_model_load(&m, path, &err), &err);
    return m;
}

static inline hs_session *session(const hs_model *m, hs_session_params p)
{
    hs_err err = {0};
    hs_session *s = NULL;
    if (!p.device)
        p.device = "none";
    must(hs_session_new(&s, m, &p, &err), &err);
    return s;
}

typedef struct collector {
    float *at;
    size_t n_vocab;
} collector;

static inline bool collect(void *ud, size_t pos, const float *logits)
{
    const collector *c = ud;
    memcpy(c->at + pos * c->n_vocab, logits, c->n_vocab * sizeof(float));
    return true;
}

/* Logits of every position, f32 [n][n_vocab]; the caller frees. */
static inline float *logits_of(hs_session *s, const hs_model *m, const int32_t *ids, size_t n)
{
    hs_err err = {0};
    collector c = {malloc(n * m->n_vocab * sizeof(float)), m->n_vocab};
    assert_non_null(c.at);
    must(hs_session_eval(s, ids, n, collect, &c, &err), &err);
    return c.at;
}

typedef enum place_kind {
    PLACE_ALL,
    PLACE_ALTERNATING,
    PLACE_RANDOM,
    PLACE_ONE,
    PLACE_HALF_LAYERS,
    PLACE_NONE,
    PLACE_KINDS,
} place_kind;

static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static inline bool placed(place_kind kind, uint32_t l, uint32_t i, uint64_t *rng)
{
    switch (kind) {
    case PLACE_ALL: return true;
    case PLACE_ALTERNATING: return (i + l) % 2 == 0;
    case PLACE_RANDOM: return next_random(rng) % 3 == 0;
    case PLACE_ONE: return i == (l * 37 + 5) % 64;
    case PLACE_HALF_LAYERS: return l % 2 == 0;
    case PLACE_NONE:
    case PLACE_KINDS: break;
    }
    return false;
}

/* What of the dense part goes to the device. */
enum {
    DENSE_ATTN = 1,
    DENSE_KV = 2,
    DENSE_PREDICTOR = 4,
    DENSE_NORM = 8,
    DENSE_HEAD = 16,
    DENSE_ALL = 31
};

static inline hs_placement *make_placement(const hs_model *m, place_kind kind, unsigned dense,
                                           uint32_t n_ctx, uint32_t kv_type)
{
    hs_err err = {0};
    hs_placement *p = NULL;
    uint32_t *n_ff = malloc(m->n_layer * sizeof *n_ff);
    int32_t *id = malloc(m->n_ff * sizeof *id);
    assert_non_null(n_ff);
    assert_non_null(id);
    for (uint32_t l = 0; l < m->n_layer; l++)
        n_ff[l] = m->n_ff;
    must(hs_placement_new(&p, m->n_layer, n_ff, &err), &err);
    uint64_t rng = 7;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->n_ff; i++)
            if (placed(kind, l, i, &rng))
                id[n++] = (int32_t)i;
        must(hs_placement_set(p, l, id, n, &err), &err);
        p->layer[l].attn = dense & DENSE_ATTN;
        p->layer[l].kv = (dense & DENSE_ATTN) && (dense & DENSE_KV);
        p->layer[l].predictor = (dense & DENSE_PREDICTOR) && m->layer[l].fc1.data;
        p->layer[l].ffn_norm = dense & DENSE_NORM;
    }
    free(id);
    free(n_ff);
    p->output = dense & DENSE_HEAD;
    p->has_plan = true;
    p->n_ctx = n_ctx;
    p->kv_type = kv_type;
    strcpy(p->objective, "impact");
    strcpy(p->method, "exact");
    p->group = 64;
    memcpy(p->fingerprint, m->fingerprint, sizeof p->fingerprint);
    p->plan_bytes = p->vram_capacity = hs_budget_total(m, p);
    return p;
}

/* Write it where a session can read it. */
static inline void write_placement(const hs_placement *p, const char *path)
{
    hs_err err = {0};
    hs_out *out = NULL;
    must(hs_out_open(&out, path, true, &err), &err);
    must(hs_placement_write(p, out, false, &err), &err);
    must(hs_out_commit(out, false, &err), &err);
}

#endif
