#include "tools/bench/measure.h"

#include "runtime/model.h"
#include "runtime/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The same tokens in every run; which ones hardly matters. */
static int32_t token_at(const hs_model *m, int64_t i)
{
    return (int32_t)((uint64_t)(i + 1) * 2654435761u % m->n_vocab);
}

hs_status hs_bench_run(const hs_bench_test *t, const hs_model *m, double *ts, hs_err *err)
{
    const int64_t n = t->n_prompt ? t->n_prompt : t->n_gen;
    hs_status s = HS_OK;
    hs_session_reset(t->session);
    if (t->n_prompt) {
        int32_t *ids = malloc((size_t)n * sizeof *ids);
        if (!ids)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory");
        for (int64_t i = 0; i < n; i++)
            ids[i] = token_at(m, i);
        const double start = now();
        s = hs_session_eval(t->session, ids, (size_t)n, NULL, NULL, err);
        *ts = (double)n / (now() - start);
        free(ids);
        return s;
    }
    const double start = now();
    for (int64_t i = 0; s == HS_OK && i < n; i++) {
        const int32_t id = token_at(m, i);
        s = hs_session_eval(t->session, &id, 1, NULL, NULL, err);
    }
    *ts = (double)n / (now() - start);
    return s;
}

void hs_bench_account(hs_bench_test *t, const hs_model *m, bool kv_f32)
{
    double bytes = (double)hs_mat_bytes(&m->output), predicted = 0, active = 0;
    double on_device = 0, neurons = 0;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        const hs_layer *y = &m->layer[l];
        hs_layer_stats st;
        hs_session_layer_stats(t->session, l, &st);
        const double down = (double)hs_mat_bytes(y->down.data ? &y->down : &y->down_t);
        const bool dense = st.mode == HS_SPARSITY_OFF;
        bytes += (double)(hs_mat_bytes(&y->wq) + hs_mat_bytes(&y->wk) + hs_mat_bytes(&y->wv) +
                          hs_mat_bytes(&y->wo));
        if (st.mode == HS_SPARSITY_PREDICTED)
            bytes += (double)(hs_mat_bytes(&y->fc1) + hs_mat_bytes(&y->fc2));
        bytes += (double)hs_mat_bytes(&y->gate) * (dense ? 1 : st.predicted_share);
        bytes += (double)hs_mat_bytes(&y->up) * (dense ? 1 : st.active_share);
        /* Rows by neuron skip inactive ones even in a dense run. */
        bytes += down * (dense && y->down.data ? 1 : st.active_share);
        predicted += st.predicted_share / m->n_layer;
        active += st.active_share / m->n_layer;
        on_device += (double)st.device_neurons;
        neurons += (double)(st.cpu_neurons + st.device_neurons);
    }
    /* Keys and values of the tokens before, on average over the run. */
    bytes += (double)m->n_layer * m->n_head_kv * m->head_dim * (kv_f32 ? 8 : 4) *
             (double)(t->n_gen + 1) / 2;
    t->predicted_share = predicted;
    t->active_share = active;
    t->device_share = neurons > 0 ? on_device / neurons : 0;
    hs_memory host, device;
    const bool split = hs_session_memory(t->session, &host, &device);
    t->bytes_per_token = t->n_gen && !split ? bytes : 0;
}

/* ---- bandwidth ------------------------------------------------------------------------- */

enum { probe_bytes = 256 << 20, probe_chunk = 1 << 20, probe_ahead = 2048, line = 64 };

struct hs_bench_probe {
    hs_pool *pool;
    uint8_t *data;
    uint64_t sum[probe_bytes / probe_chunk]; /* keeps the reads alive */
};

static void read_chunks(void *ud, int64_t begin, int64_t end)
{
    hs_bench_probe *p = ud;
    for (int64_t c = begin; c < end; c++) {
        const uint8_t *at = p->data + (size_t)c * probe_chunk;
        uint64_t sum[4] = {0}, v;
        /* One word of every line: the whole line comes, and nothing else takes time. */
        for (size_t i = 0; i < probe_chunk; i += 4ull * line)
            for (size_t j = 0; j < 4; j++) {
                /* The hardware's own prefetching stops at pages; chunks lie one after the other. */
                if (i + probe_ahead < probe_chunk)
                    __builtin_prefetch(at + i + j * line + probe_ahead);
                memcpy(&v, at + i + j * line, sizeof v);
                sum[j] += v;
            }
        p->sum[c] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

hs_status hs_bench_probe_new(hs_bench_probe **out, int n_threads, hs_err *err)
{
    hs_bench_probe *p = calloc(1, sizeof *p);
    *out = p;
    if (!p || !(p->data = malloc(probe_bytes))) {
        hs_bench_probe_free(p);
        *out = NULL;
        return hs_fail(err, HS_ERR_NOMEM, "the bandwidth probe needs %d MiB", probe_bytes >> 20);
    }
    memset(p->data, 1, probe_bytes); /* pages of their own */
    const hs_status s = hs_pool_new(&p->pool, n_threads, err);
    if (s != HS_OK) {
        hs_bench_probe_free(p);
        *out = NULL;
    }
    return s;
}

double hs_bench_probe_run(hs_bench_probe *p)
{
    const double start = now();
    hs_pool_run(p->pool, probe_bytes / probe_chunk, 1, read_chunks, p);
    return probe_bytes / (now() - start);
}

void hs_bench_probe_free(hs_bench_probe *p)
{
    if (!p)
        return;
    hs_pool_free(p->pool);
    free(p->data);
    free(p);
}
