/* Layers split between the host and one or several devices: the bits of the host alone whatever
 * the placement, the number of devices, the batch and the length; the waits and bytes that
 * docs/device.md derives; the choice of devices. */
#include "runtime/session.h"
#include "tests/unit/runtime_util.h"

enum { N_CTX = 35 };
/* The thread sanitizer takes seconds for each context; a few show what threads do. */
#ifdef __SANITIZE_THREAD__
enum { BATCHES = 1, REPETITIONS = 4 };
#else
enum { BATCHES = 4, REPETITIONS = 20 };
#endif

/* Every neuron and dense block on one of n devices or (but with `full`) on the host, by chance. */
static hs_placement *scatter(const hs_model *m, uint32_t n, uint64_t seed, bool full)
{
    hs_err err = {0};
    const uint64_t capacity[HS_PLACEMENT_DEVICES] = {1u << 30, 1u << 30, 1u << 30};
    hs_placement *p = make_placement(m, PLACE_NONE, 0, N_CTX, HS_F16);
    int32_t *device = malloc(m->n_ff * sizeof *device);
    uint64_t rng = seed;
    assert_non_null(device);
    if (n > 1)
        must(hs_placement_devices(p, n, capacity, &err), &err);
    const uint32_t kinds = full ? n : n + 1; /* the last one: the host */
    for (uint32_t l = 0; l < m->n_layer; l++) {
        hs_placement_layer *y = &p->layer[l];
        for (uint32_t i = 0; i < m->n_ff; i++) {
            const uint32_t d = next_random(&rng) % kinds;
            device[i] = d == n ? HS_PLACEMENT_HOST : (int32_t)d;
        }
        if (n > 1) {
            must(hs_placement_spread(p, l, device, &err), &err);
        } else {
            uint32_t k = 0;
            for (uint32_t i = 0; i < m->n_ff; i++)
                if (device[i] == 0)
                    device[k++] = (int32_t)i;
            must(hs_placement_set(p, l, device, k, &err), &err);
        }
        const uint32_t attn = next_random(&rng) % kinds, norm = next_random(&rng) % kinds,
                       predictor = next_random(&rng) % kinds;
        y->attn = attn < n;
        y->kv = y->attn && (full || next_random(&rng) % 2);
        y->ffn_norm = norm < n;
        y->predictor = predictor < n && m->layer[l].fc1.data;
        y->attn_device = y->attn ? (uint8_t)attn : 0;
        y->kv_device = y->kv ? (uint8_t)attn : 0;
        y->ffn_norm_device = y->ffn_norm ? (uint8_t)norm : 0;
        y->predictor_device = y->predictor ? (uint8_t)predictor : 0;
        /* Half of the layers so that the residual can stay where it is. */
        if (y->attn && next_random(&rng) % 2) {
            y->ffn_norm = true;
            y->ffn_norm_device = y->attn_device;
            y->predictor = m->layer[l].fc1.data != NULL;
            y->predictor_device = y->predictor ? y->attn_device : 0;
        }
    }
    free(device);
    const uint32_t head = next_random(&rng) % kinds;
    p->output = head < n;
    p->output_device = p->output ? (uint8_t)head : 0;
    p->plan_bytes = p->vram_capacity = hs_budget_total(m, p);
    for (uint32_t d = 0; n > 1 && d < n; d++)
        p->device_bytes[d] = p->device_capacity[d] = hs_budget_device(m, p, d);
    return p;
}

static void ids_of(int32_t *ids, const hs_model *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(1 + i * 53 % (m->n_vocab - 1));
}

/* Logits of a whole context, in batches of that many. */
static float *whole_context(hs_session *s, const hs_model *m, size_t batch)
{
    int32_t ids[N_CTX];
    ids_of(ids, m, N_CTX);
    hs_session_reset(s);
    hs_session_set_batch(s, batch);
    return logits_of(s, m, ids, N_CTX);
}

/* The emulation, or with HS_DEVICE=cuda (scripts/check-gpu) the GPUs there are. */
static const char *device_name(void)
{
    const char *name = getenv("HS_DEVICE");
    return name ? name : "emu";
}

static uint32_t most_devices(void)
{
    const hs_device_ops *ops =
        strcmp(device_name(), "cuda") == 0 ? hs_device_cuda() : hs_device_emu();
    const int n = ops ? ops->count(NULL) : 0;
    return n < 3 ? (uint32_t)n : 3;
}

static hs_session *open_split(const hs_model *m, const hs_placement *p, hs_sparsity sp)
{
    char path[] = "/tmp/hotset-test-XXXXXX";
    temp_path(path);
    write_placement(p, path);
    hs_session *s = session(m, (hs_session_params){.n_threads = 2,
                                                   .sparsity = sp,
                                                   .n_ctx = N_CTX,
                                                   .device = device_name(),
                                                   .placement = path});
    unlink(path);
    return s;
}

static void check_model(const char *file, uint64_t seed, size_t n_batches)
{
    static const size_t batches[] = {7, 1, 2, 32};
    hs_model *m = load(file);
    hs_err err = {0};
    assert_true(most_devices() > 0);
    hs_session *host = session(m, (hs_session_params){.n_threads = 1, .n_ctx = N_CTX});
    float *want = whole_context(host, m, 32);
    const size_t bytes = (size_t)N_CTX * m->n_vocab * sizeof *want;
    for (uint32_t n = 1; n <= most_devices(); n++)
        for (uint32_t full = 0; full < 2; full++) {
            hs_placement *p = scatter(m, n, seed + n, full);
            hs_session *s = open_split(m, p, HS_SPARSITY_AUTO);
            for (size_t b = 0; b < n_batches; b++) {
                float *got = whole_context(s, m, batches[b]);
                if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s: %u devices, batch %zu: other logits", file, n, batches[b]);
                free(got);
            }
            const int32_t one = 1; /* the context is full: no token more, and nothing broken */
            assert_int_equal(hs_session_eval(s, &one, 1, NULL, NULL, &err), HS_ERR_NOSPACE);
            hs_memory h, d;
            assert_true(hs_session_memory(s, &h, &d));
            assert_int_equal(d.used, d.planned);
            assert_int_equal(d.used, hs_budget_total(m, p));
            hs_session_free(s);
            hs_placement_free(p);
        }
    free(want);
    hs_session_free(host);
    hs_model_free(m);
}

static void devices_batches_and_lengths_change_no_bit(void **state)
{
    (void)state;
    check_model("tests/golden/mmask.gguf", 11, BATCHES);
    check_model("tests/golden/m1.gguf", 22, BATCHES < 2 ? BATCHES : 2);
    check_model("tests/golden/m256.q4_0.gguf", 33, BATCHES < 2 ? BATCHES : 2);
}

/* Many times, a session of its own or one that goes on. */
static void repetitions_are_identical(void **state)
{
    (void)state;
    hs_model *m = load("tests/golden/mmask.gguf");
    hs_placement *p = scatter(m, most_devices() > 1 ? 2 : 1, 5, false);
    hs_session *s = open_split(m, p, HS_SPARSITY_AUTO);
    float *want = whole_context(s, m, 1);
    for (int i = 1; i < REPETITIONS; i++) {
        if (i % 4 == 0) {
            hs_session_free(s);
            s = open_split(m, p, HS_SPARSITY_AUTO);
        }
        float *got = whole_context(s, m, 1);
        assert_memory_equal(got, want, (size_t)N_CTX * m->n_vocab * sizeof *want);
        free(got);
    }
    free(want);
    hs_session_free(s);
    hs_placement_free(p);
    hs_model_free(m);
}

/* What one token at position 10 costs on device 0. */
static hs_dev_counts cost_of_token(const hs_model *m, const hs_placement *p, hs_sparsity sp)
{
    hs_session *s = open_split(m, p, sp);
    hs_err err = {0};
    int32_t ids[12];
    hs_dev_counts a, b;
    ids_of(ids, m, 12);
    must(hs_session_eval(s, ids, 10, NULL, NULL, &err), &err);
    must(hs_session_eval(s, ids + 10, 1, NULL, NULL, &err), &err); /* graphs are captured */
    s->split->ops->counts(s->split->device[0].dev, &a);
    must(hs_session_eval(s, ids + 11, 1, NULL, NULL, &err), &err);
    s->split->ops->counts(s->split->device[0].dev, &b);
    hs_session_free(s);
    return (hs_dev_counts){b.syncs - a.syncs,
                           b.sends - a.sends,
                           b.recvs - a.recvs,
                           b.bytes_sent - a.bytes_sent,
                           b.bytes_received - a.bytes_received,
                           b.launches - a.launches,
                           b.graphs - a.graphs};
}

static void check_counts(const char *what, hs_dev_counts got, hs_dev_counts want)
{
    if (got.syncs != want.syncs || got.sends != want.sends || got.recvs != want.recvs ||
        got.bytes_sent != want.bytes_sent || got.bytes_received != want.bytes_received ||
        got.graphs != want.graphs)
        fail_msg("%s: %llu waits, %llu + %llu copies of %llu + %llu bytes, %llu graphs; expected "
                 "%llu, %llu + %llu, %llu + %llu, %llu",
                 what, (unsigned long long)got.syncs, (unsigned long long)got.sends,
                 (unsigned long long)got.recvs, (unsigned long long)got.bytes_sent,
                 (unsigned long long)got.bytes_received, (unsigned long long)got.graphs,
                 (unsigned long long)want.syncs, (unsigned long long)want.sends,
                 (unsigned long long)want.recvs, (unsigned long long)want.bytes_sent,
                 (unsigned long long)want.bytes_received, (unsigned long long)want.graphs);
}

/* The table of docs/device.md, "What one token costs". */
static void waits_and_bytes_are_as_derived(void **state)
{
    (void)state;
    hs_model *m = load("tests/golden/mmask.gguf");
    const uint64_t L = m->n_layer, x = 4 * m->n_embd, sum = 8 * m->n_embd, v = 4 * m->n_vocab,
                   rec = 4 * hs_dev_record_words(m->n_embd, m->n_ff), step = 16 + 4 * m->rope_dim,
                   q = 4 * m->n_head * m->head_dim, kv = 8 * m->n_head_kv * m->head_dim;
    const struct {
        const char *what;
        place_kind kind;
        unsigned dense;
        hs_sparsity sparsity;
        hs_dev_counts want; /* syncs, sends, recvs, bytes both ways, launches, graphs */
    } cases[] = {
        {"all on the device",
         PLACE_ALL,
         DENSE_ALL,
         HS_SPARSITY_PREDICTED,
         {1, 2, 1, x + step, v, 0, 1}},
        {"all on the device, exact",
         PLACE_ALL,
         DENSE_ALL,
         HS_SPARSITY_EXACT,
         {1, 2, 1, x + step, v, 0, 1}},
        {"all but the head",
         PLACE_ALL,
         DENSE_ALL & ~DENSE_HEAD,
         HS_SPARSITY_PREDICTED,
         {1, 2, 1, x + step, x, 0, 1}},
        {"split layers",
         PLACE_ALTERNATING,
         DENSE_ALL,
         HS_SPARSITY_PREDICTED,
         {L + 1, L + 2, L + 1, x + step + L * sum, L * rec + v, 0, 0}},
        {"dense blocks only",
         PLACE_NONE,
         DENSE_ALL,
         HS_SPARSITY_EXACT,
         {L + 1, L + 2, L + 1, x + step + L * sum, L * rec + v, 0, 0}},
        {"neurons only",
         PLACE_ALTERNATING,
         0,
         HS_SPARSITY_PREDICTED,
         {L, L, L, L * rec, L * sum, 0, 0}},
        {"cache on the host",
         PLACE_ALTERNATING,
         DENSE_ALL & ~DENSE_KV,
         HS_SPARSITY_PREDICTED,
         {2 * L + 1, 2 * L + 1, 2 * L + 1, x + L * q + L * sum, L * (q + kv) + L * rec + v, 0, 0}},
        {"predictors and neurons",
         PLACE_ALTERNATING,
         DENSE_PREDICTOR,
         HS_SPARSITY_PREDICTED,
         {L, 2 * L, 2 * L, L * (x + rec), L * (rec + sum), 0, 0}},
        {"head only", PLACE_NONE, DENSE_HEAD, HS_SPARSITY_PREDICTED, {1, 1, 1, x, v, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_placement *p = make_placement(m, cases[i].kind, cases[i].dense, N_CTX, HS_F16);
        check_counts(cases[i].what, cost_of_token(m, p, cases[i].sparsity), cases[i].want);
        hs_placement_free(p);
    }
    hs_model_free(m);
}

/* ---- the choice of devices --------------------------------------------------------------- */

static const uint64_t *free_memory; /* [n_there] */
static int n_there;

static int fake_count(hs_err *err)
{
    (void)err;
    return n_there;
}

static hs_status fake_probe(int ordinal, uint64_t *avail, uint64_t *total, hs_err *err)
{
    if (free_memory[ordinal] == 0)
        return hs_fail(err, HS_ERR_DEVICE, "device fake: lost");
    *avail = free_memory[ordinal];
    *total = 1000;
    return HS_OK;
}

static void the_freest_devices_are_chosen(void **state)
{
    (void)state;
    const hs_device_ops ops = {.name = "fake", .count = fake_count, .probe = fake_probe};
    const uint64_t sizes[] = {5, 9, 7, 9, 1};
    int got[5] = {0};
    hs_err err = {0};
    free_memory = sizes;
    n_there = 5;
    must(hs_split_choose(&ops, 1, got, &err), &err);
    assert_int_equal(got[0], 1);
    must(hs_split_choose(&ops, 4, got, &err), &err);
    const int want[] = {1, 3, 2, 0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(got[i], want[i]);
    assert_int_equal(hs_split_choose(&ops, 6, got, &err), HS_ERR_NOSPACE);
    assert_string_equal(err.msg, "planned for 6 devices, this machine has 5");
    const uint64_t lost[] = {5, 0};
    free_memory = lost;
    n_there = 2;
    assert_int_equal(hs_split_choose(&ops, 1, got, &err), HS_ERR_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_batches_and_lengths_change_no_bit),
        cmocka_unit_test(repetitions_are_identical),
        cmocka_unit_test(waits_and_bytes_are_as_derived),
        cmocka_unit_test(the_freest_devices_are_chosen),
    };
    return cmocka_run_group_tests_name("hybrid", tests, NULL, NULL);
}
