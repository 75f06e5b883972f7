/* Chooses a token from logits.  Truncations (top-k, top-p, min-p) all keep a prefix of the
 * candidates in descending order, so the candidates are a heap and only as many are taken off
 * it as are kept: a large vocabulary is never sorted. */
#include "runtime/hotset.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct hs_sampler {
    hs_sampler_params p;
    uint32_t n_vocab;
    uint64_t rng[4];
    uint8_t *banned; /* [n_vocab] */
    uint32_t *count; /* [n_vocab] occurrences among the tokens looked back at */
    int32_t *recent; /* ring [penalty_last_n]; NULL when all tokens count */
    size_t n_recent, at;
    candidate *cand; /* [n_vocab] */
};

/* ---- randomness ----------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014), which spreads a seed over the generator's state … */
static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

/* … of xoshiro256** (Blackman, Vigna 2018). */
static uint64_t next_u64(uint64_t s[4])
{
    const uint64_t r = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return r;
}

/* Uniform in [0, 1). */
static double next_unit(uint64_t s[4]) { return (double)(next_u64(s) >> 11) * 0x1p-53; }

/* ---- candidates ----------------------------------------------------------------------- */

static bool better(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(candidate *h, size_t n, size_t i)
{
    const candidate x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && better(h[c + 1], h[c]))
            c++;
        if (!better(h[c], x))
            break;
        h[i] = h[c];
    }
    h[i] = x;
}

/* The best of the first n moves to position n - 1. */
static void take_best(candidate *h, size_t n)
{
    const candidate top = h[0];
    h[0] = h[n - 1];
    sift_down(h, n - 1, 0);
    h[n - 1] = top;
}

static float penalised(const hs_sampler *s, float logit, uint32_t count)
{
    if (!count)
        return logit;
    logit = logit > 0 ? logit / s->p.repeat_penalty : logit * s->p.repeat_penalty;
    return logit - (float)count * s->p.frequency_penalty - s->p.presence_penalty;
}

/* Every id that may be chosen, with a finite logit.  Returns their number. */
static size_t collect(hs_sampler *s, const float *logits)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        const float x = penalised(s, logits[i], s->count[i]);
        if (!s->banned[i] && x >= -FLT_MAX)
            s->cand[n++] = (candidate){x > FLT_MAX ? FLT_MAX : x, (int32_t)i};
    }
    return n;
}

static int32_t argmax(const hs_sampler *s, const float *logits)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (!s->banned[i] && !isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    return best;
}

static double weight(candidate c, float max, double temp)
{
    return exp(((double)c.logit - (double)max) / temp);
}

/* min-p alone: the order of the candidates stays.  Returns how many are left. */
static size_t keep_likely(hs_sampler *s, size_t n, float max)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (weight(s->cand[i], max, 1) >= (double)s->p.min_p)
            s->cand[m++] = s->cand[i];
    return m;
}

/* Top-k, then top-p of the probability it leaves, then min-p.  The kept ones end up at the end of
 * the n candidates, the best one last; returns their number. */
static size_t keep_best(hs_sampler *s, size_t n, size_t k, float max)
{
    candidate *c = s->cand;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(c, n, i);
    size_t taken = 0, kept = 0;
    double total = 0, sum = 0;
    if (k < n)
        for (; taken < k; taken++)
            take_best(c, n - taken);
    for (size_t i = n; i-- > n - k;)
        total += weight(c[i], max, 1);
    const double enough = s->p.top_p < 1 ? (double)s->p.top_p * total : HUGE_VAL;
    for (; kept < k && (!kept || sum < enough); kept++) {
        if (kept == taken)
            take_best(c, n - taken++);
        const double w = weight(c[n - 1 - kept], max, 1);
        if (kept && w < (double)s->p.min_p)
            break;
        sum += w;
    }
    return kept;
}

/* Draw from c[0..n) with weights exp((logit - max) / temp). */
static int32_t draw(hs_sampler *s, const candidate *c, size_t n, float max)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += weight(c[i], max, (double)s->p.temp);
    double r = next_unit(s->rng) * sum;
    size_t i = 0, last = 0;
    for (; i < n; i++) {
        const double w = weight(c[i], max, (double)s->p.temp);
        if (w > 0)
            last = i;
        r -= w;
        if (w > 0 && r < 0)
            break;
    }
    return c[i < n ? i : last].id; /* rounding may leave r at the very end */
}

/* ---- interface ------------------------------------------------------------------------ */

hs_sampler_params hs_sampler_defaults(void)
{
    return (hs_sampler_params){.temp = 0.8f,
                               .top_k = 40,
                               .top_p = 0.95f,
                               .min_p = 0.05f,
                               .repeat_penalty = 1,
                               .penalty_last_n = 64};
}

static hs_status check(const hs_sampler_params *p, hs_err *err)
{
    if (!(p->temp >= 0) || isinf(p->temp))
        return hs_fail(err, HS_ERR_USAGE, "temperature %g: expected 0 or more", (double)p->temp);
    if (p->top_k < 0)
        return hs_fail(err, HS_ERR_USAGE, "top-k %d: expected 0 or more", p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return hs_fail(err, HS_ERR_USAGE, "top-p %g: expected 0 to 1", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return hs_fail(err, HS_ERR_USAGE, "min-p %g: expected 0 to 1", (double)p->min_p);
    if (!(p->repeat_penalty > 0) || isinf(p->repeat_penalty))
        return hs_fail(err, HS_ERR_USAGE, "repeat penalty %g: expected more than 0",
                       (double)p->repeat_penalty);
    if (!isfinite(p->frequency_penalty) || !isfinite(p->presence_penalty))
        return hs_fail(err, HS_ERR_USAGE, "penalties must be finite");
    if (p->penalty_last_n < -1)
        return hs_fail(err, HS_ERR_USAGE, "%d tokens of penalty: expected -1 or more",
                       p->penalty_last_n);
    return HS_OK;
}

hs_status hs_sampler_new(hs_sampler **out, const hs_sampler_params *p, uint32_t n_vocab,
                         hs_err *err)
{
    *out = NULL;
    const hs_status st = check(p, err);
    if (st != HS_OK)
        return st;
    if (!n_vocab || n_vocab > INT32_MAX)
        return hs_fail(err, HS_ERR_USAGE, "a vocabulary of %u tokens", n_vocab);
    hs_sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->p = *p;
        s->n_vocab = n_vocab;
        s->banned = calloc(n_vocab, 1);
        s->count = calloc(n_vocab, sizeof *s->count);
        s->cand = calloc(n_vocab, sizeof *s->cand);
        if (p->penalty_last_n > 0)
            s->recent = calloc((size_t)p->penalty_last_n, sizeof *s->recent);
    }
    if (!s || !s->banned || !s->count || !s->cand || (p->penalty_last_n > 0 && !s->recent)) {
        hs_sampler_free(s);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for a sampler of %u tokens", n_vocab);
    }
    uint64_t x = p->seed;
    for (int i = 0; i < 4; i++)
        s->rng[i] = splitmix64(&x);
    *out = s;
    return HS_OK;
}

void hs_sampler_free(hs_sampler *s)
{
    if (!s)
        return;
    free(s->cand);
    free(s->recent);
    free(s->count);
    free(s->banned);
    free(s);
}

void hs_sampler_accept(hs_sampler *s, int32_t id)
{
    if (id < 0 || (uint32_t)id >= s->n_vocab || s->p.penalty_last_n == 0)
        return;
    if (s->recent) {
        const size_t cap = (size_t)s->p.penalty_last_n;
        if (s->n_recent == cap)
            s->count[s->recent[s->at]]--;
        else
            s->n_recent++;
        s->recent[s->at] = id;
        s->at = (s->at + 1) % cap;
    }
    s->count[id]++;
}

void hs_sampler_ban(hs_sampler *s, int32_t id)
{
    if (id >= 0 && (uint32_t)id < s->n_vocab)
        s->banned[id] = 1;
}

int32_t hs_sampler_next(hs_sampler *s, const float *logits)
{
    if (s->p.temp <= 0)
        return argmax(s, logits);
    const size_t n = collect(s, logits);
    if (!n)
        return -1;
    float max = s->cand[0].logit;
    for (size_t i = 1; i < n; i++)
        max = s->cand[i].logit > max ? s->cand[i].logit : max;
    const size_t k = s->p.top_k > 0 && (size_t)s->p.top_k < n ? (size_t)s->p.top_k : n;
    if (k == n && s->p.top_p >= 1)
        return draw(s, s->cand, keep_likely(s, n, max), max);
    const size_t kept = keep_best(s, n, k, max);
    return draw(s, s->cand + n - kept, kept, max);
}
