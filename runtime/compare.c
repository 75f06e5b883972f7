/* Two sessions of one model side by side. */
#include "formats/cursor.h"
#include "runtime/model.h"
#include "runtime/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens whose logits are kept at a time. */
enum { CHUNK = 32 };

typedef struct comparison {
    size_t first, n_vocab; /* position of the chunk's first token */
    float *a;              /* [CHUNK][n_vocab] */
    hs_difference *out;
    int32_t best; /* of b's last logits */
} comparison;

static bool keep(void *ud, size_t pos, const float *logits)
{
    comparison *c = ud;
    memcpy(c->a + (pos - c->first) * c->n_vocab, logits, c->n_vocab * sizeof *logits);
    return true;
}

/* The largest, the lower id when two are equal; *lead is how far it is ahead. */
static int32_t largest(const float *v, size_t n, float *lead)
{
    size_t best = 0;
    float second = -INFINITY;
    for (size_t i = 1; i < n; i++)
        if (v[i] > v[best]) {
            second = v[best];
            best = i;
        } else if (v[i] > second) {
            second = v[i];
        }
    *lead = v[best] - second;
    return (int32_t)best;
}

static bool compare(void *ud, size_t pos, const float *b)
{
    comparison *c = ud;
    hs_difference *d = c->out;
    const float *a = c->a + (pos - c->first) * c->n_vocab;
    float lead;
    c->best = largest(b, c->n_vocab, &lead);
    if (lead > 1e-2f && largest(a, c->n_vocab, &(float){0}) != c->best)
        d->choices++;
    for (size_t i = 0; i < c->n_vocab; i++) {
        const float x = fabsf(a[i] - b[i]);
        if (x > d->largest) {
            d->largest = x;
            d->pos = pos;
            d->id = (int32_t)i;
            d->a = a[i];
            d->b = b[i];
        }
    }
    d->n_tokens++;
    return true;
}

hs_status hs_session_compare(hs_session *a, hs_session *b, const int32_t *ids, size_t n_ids,
                             size_t n, hs_difference *out, hs_err *err)
{
    *out = (hs_difference){0};
    uint64_t bytes;
    comparison c = {.n_vocab = a->m->n_vocab, .out = out};
    if (!hs_mul(CHUNK * sizeof(float), c.n_vocab, &bytes) || !(c.a = malloc(bytes)))
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_session_reset(a);
    hs_session_reset(b);
    hs_status st = HS_OK;
    while (st == HS_OK && out->n_tokens < n) {
        const size_t given = n_ids > out->n_tokens ? n_ids - out->n_tokens : 0;
        size_t k = given ? given : 1;
        k = k > CHUNK ? CHUNK : k;
        k = k > n - out->n_tokens ? n - out->n_tokens : k;
        const int32_t chosen = c.best, *next = given ? ids + out->n_tokens : &chosen;
        c.first = out->n_tokens;
        st = hs_session_eval(a, next, k, keep, &c, err);
        if (st == HS_OK)
            st = hs_session_eval(b, next, k, compare, &c, err);
    }
    free(c.a);
    return st;
}
