/* A model of a given shape with random weights and a given share of active neurons, for
 * benchmarks: quick to write, as large as the real thing, of no other use.
 *
 *   model OUT [-e N_EMBD] [-f N_FF] [-l LAYERS] [-H HEADS] [-k KV_HEADS] [-v VOCAB] [-t TYPE]
 *         [-r RANK] [-P PREDICTOR_TYPE] [-p PREDICTED] [-a ACTIVE] [-d 1] [-z]
 *
 * -d 1: a plain GGUF with SiLU, down by output, that any engine reads; no predictor.
 * With -z the weights are a hole in the file: zeros that take no disk, for programs that ask for
 * shapes only.
 *
 * Element 0 of every embedding is a constant E, the rest is N(0, 1), and the layers add next to
 * nothing to the residual.  A gate row with w[0] = m / E and N(0, 1) / sqrt(n) elsewhere gives
 * values of about N(m, 1), so m sets the share above 0; the predictor does the same with its
 * hidden unit 0, which is E itself.  ACTIVE is the share of all neurons, or of the predicted ones
 * where there is a predictor (RANK > 0).  Rows repeat after a prime number of them. */
#include "formats/file.h"
#include "formats/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { pool_rows = 509, name_bytes = 16 };

typedef struct shape {
    const char *out;
    uint32_t n_embd, n_ff, n_layer, n_head, n_head_kv, n_vocab, rank, plain;
    const hs_dtype_info *type, *predictor;
    double predicted, active;
    bool hollow;
} shape;

typedef struct tensor {
    char name[64];
    const hs_dtype_info *type;
    uint32_t cols, rows; /* rows 0: a vector of ones */
    float spread;        /* of the random values */
    float first;         /* element 0 of every row; NAN: like the others */
    bool identity;       /* row 0 is 1, 0, 0, … and element 0 of the others is 0 */
} tensor;

static uint64_t seed = 1;

static float normal(void)
{
    float sum = -6; /* twelve uniform values have the variance 1 */
    for (int i = 0; i < 12; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(seed >> 40) * 0x1p-24f;
    }
    return sum;
}

/* The x above which a share of N(0, 1) lies. */
static double quantile(double share)
{
    double low = -4, high = 4;
    for (int i = 0; i < 60; i++) {
        const double mid = (low + high) / 2;
        if (0.5 * erfc(mid / sqrt(2)) > share)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static hs_status write_tensor(hs_gguf_writer *w, const tensor *t, hs_err *err)
{
    uint64_t row_bytes = 0;
    const uint32_t rows = t->rows ? t->rows : 1, kept = rows < pool_rows ? rows : pool_rows;
    if (!hs_dtype_row_bytes(t->type->id, t->cols, &row_bytes))
        return hs_fail(err, HS_ERR_USAGE, "%s: %u columns do not divide", t->name, t->cols);
    float *x = malloc(t->cols * sizeof *x);
    uint8_t *pool = malloc(kept * row_bytes);
    hs_status s = x && pool ? HS_OK : hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (uint32_t r = 0; s == HS_OK && r < kept; r++) {
        for (uint32_t i = 0; i < t->cols; i++)
            x[i] = t->rows ? t->spread * normal() : 1;
        if (!isnan(t->first))
            x[0] = t->first;
        if (t->identity && r == 0)
            memset(x, 0, t->cols * sizeof *x);
        if (t->identity)
            x[0] = r == 0;
        t->type->encode(pool + r * row_bytes, x, t->cols);
    }
    /* Row 0 only once where it is special. */
    for (uint32_t r = 0; s == HS_OK && r < rows; r++)
        s = hs_gguf_writer_data(w, pool + (r < kept ? r : 1 + r % (kept - 1)) * row_bytes,
                                row_bytes, err);
    free(pool);
    free(x);
    return s;
}

/* All tensors in the file's order; returns their number. */
static size_t list_tensors(const shape *sh, tensor *out)
{
    const uint32_t e = sh->n_embd, kv = e / sh->n_head * sh->n_head_kv;
    const hs_dtype_info *f32 = hs_dtype_get(HS_F32), *t = sh->type, *p = sh->predictor;
    const double root = sqrt(e), constant = root / 2;
    /* See above: m = first * E. */
    const float gate = (float)(-quantile(sh->active) / constant), unit = (float)(1 / root);
    const float fc2 = (float)(-quantile(sh->predicted) * sqrt(sh->rank / 2.0) / constant);
    size_t n = 0;
    out[n++] = (tensor){"token_embd.weight", t, e, sh->n_vocab, 1, (float)constant};
    for (uint32_t l = 0; l < sh->n_layer; l++) {
        const tensor layer[] = {
            {"attn_q", t, e, e, 0.02f, NAN},          {"attn_k", t, e, kv, 0.02f, NAN},
            {"attn_v", t, e, kv, 0.02f, NAN},         {"attn_output", t, e, e, 1e-4f, NAN},
            {"ffn_gate", t, e, sh->n_ff, unit, gate}, {"ffn_up", t, e, sh->n_ff, unit, NAN},
            {"ffn_down_t", t, e, sh->n_ff, 1e-4f, 0}, {"attn_norm", f32, e, 0, 1, NAN},
            {"ffn_norm", f32, e, 0, 1, NAN},
        };
        for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++, n++) {
            out[n] = layer[i];
            snprintf(out[n].name, sizeof out[n].name, "blk.%u.%.20s.weight", l, layer[i].name);
            if (sh->plain && i == 6) {
                snprintf(out[n].name, sizeof out[n].name, "blk.%u.ffn_down.weight", l);
                out[n].cols = sh->n_ff;
                out[n].rows = e;
            }
        }
    }
    out[n++] = (tensor){"output_norm.weight", f32, e, 0, 1, NAN};
    out[n++] = (tensor){"output.weight", t, e, sh->n_vocab, 0.02f, NAN};
    for (uint32_t l = 0; sh->rank && l < sh->n_layer; l++) {
        out[n] = (tensor){"", p, e, sh->rank, unit, NAN, true};
        snprintf(out[n++].name, sizeof out[n].name, "blk.%u.fc1.weight", l);
        out[n] = (tensor){"", p, sh->rank, sh->n_ff, 1, fc2};
        snprintf(out[n++].name, sizeof out[n].name, "blk.%u.fc2.weight", l);
    }
    return n;
}

static hs_status set_vocabulary(hs_gguf_writer *w, uint32_t n, hs_err *err)
{
    char(*name)[name_bytes] = calloc(n, sizeof *name);
    hs_str *str = calloc(n, sizeof *str);
    float *score = calloc(n, sizeof *score);
    int32_t *type = calloc(n, sizeof *type);
    if (!name || !str || !score || !type)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        const int byte = (int)i - 3;
        snprintf(name[i], sizeof name[i],
                 i == 0         ? "<unk>"
                 : i == 1       ? "<s>"
                 : i == 2       ? "</s>"
                 : byte < 0x100 ? "<0x%02X>"
                                : "t%d",
                 (unsigned)byte);
        type[i] = i == 0 ? 2 : i < 3 ? 3 : byte < 0x100 ? 6 : 1;
        str[i] = (hs_str){name[i], strlen(name[i])};
    }
    hs_gguf_set_str(w, "tokenizer.ggml.model", "llama");
    hs_gguf_set_str_array(w, "tokenizer.ggml.tokens", str, n);
    hs_gguf_set_array(w, "tokenizer.ggml.scores", HS_KV_F32, score, n);
    hs_gguf_set_array(w, "tokenizer.ggml.token_type", HS_KV_I32, type, n);
    hs_gguf_set_u32(w, "tokenizer.ggml.bos_token_id", 1);
    hs_gguf_set_u32(w, "tokenizer.ggml.eos_token_id", 2);
    free(type);
    free(score);
    free(str);
    free(name);
    return HS_OK;
}

static hs_status write_model(const shape *sh, hs_err *err)
{
    hs_gguf_writer *w = hs_gguf_writer_new(!sh->plain, 32);
    tensor *t = calloc(11ull * sh->n_layer + 3, sizeof *t);
    hs_out *out = NULL;
    if (!w || !t)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_gguf_set_str(w, "general.architecture", "llama");
    hs_gguf_set_str(w, "general.name", "random weights");
    hs_gguf_set_u32(w, "llama.context_length", 4096);
    hs_gguf_set_u32(w, "llama.embedding_length", sh->n_embd);
    hs_gguf_set_u32(w, "llama.block_count", sh->n_layer);
    hs_gguf_set_u32(w, "llama.feed_forward_length", sh->n_ff);
    hs_gguf_set_u32(w, "llama.rope.dimension_count", sh->n_embd / sh->n_head);
    hs_gguf_set_u32(w, "llama.attention.head_count", sh->n_head);
    hs_gguf_set_u32(w, "llama.attention.head_count_kv", sh->n_head_kv);
    hs_gguf_set_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    hs_gguf_set_f32(w, "powerinfer.sparse_threshold", 0);
    hs_gguf_set_str(w, "hotset.activation", sh->plain ? "silu" : "relu");
    hs_status s = set_vocabulary(w, sh->n_vocab, err);
    const size_t n = list_tensors(sh, t);
    for (size_t i = 0; i < n; i++) {
        const uint64_t ne[2] = {t[i].cols, t[i].rows};
        hs_gguf_add_tensor(w, t[i].name, t[i].type->id, t[i].rows ? 2 : 1, ne);
    }
    if (s == HS_OK && (s = hs_out_open(&out, sh->out, true, err)) == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    for (size_t i = 0; s == HS_OK && !sh->hollow && i < n; i++)
        s = write_tensor(w, &t[i], err);
    if (s == HS_OK && (sh->hollow || (s = hs_gguf_writer_end(w, err)) == HS_OK))
        s = hs_out_commit(out, false, err);
    else
        hs_out_abort(out);
    if (s == HS_OK && sh->hollow && truncate(sh->out, (off_t)hs_gguf_writer_size(w)) != 0)
        s = hs_fail(err, HS_ERR_FAILED, "%s: cannot be made longer", sh->out);
    hs_gguf_writer_free(w);
    free(t);
    return s;
}

int main(int argc, char **argv)
{
    shape sh = {.n_embd = 256,
                .n_ff = 1024,
                .n_layer = 2,
                .n_head = 8,
                .n_head_kv = 4,
                .n_vocab = 512,
                .type = hs_dtype_get(HS_Q4_0),
                .predictor = hs_dtype_get(HS_Q4_0),
                .predicted = 0.1,
                .active = 0.1};
    for (int c; (c = getopt(argc, argv, "e:f:l:H:k:v:t:r:P:p:a:d:z")) != -1;) {
        uint32_t *const number[] = {
            ['e'] = &sh.n_embd,    ['f'] = &sh.n_ff,    ['l'] = &sh.n_layer, ['H'] = &sh.n_head,
            ['k'] = &sh.n_head_kv, ['v'] = &sh.n_vocab, ['r'] = &sh.rank,    ['d'] = &sh.plain};
        if (c == 't')
            sh.type = hs_dtype_by_name(optarg);
        else if (c == 'P')
            sh.predictor = hs_dtype_by_name(optarg);
        else if (c == 'p')
            sh.predicted = strtod(optarg, NULL);
        else if (c == 'a')
            sh.active = strtod(optarg, NULL);
        else if (c == 'z')
            sh.hollow = true;
        else if (c != '?' && number[c])
            *number[c] = (uint32_t)strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    hs_err err = {0};
    sh.out = argv[optind];
    if (!sh.out || !sh.type || !sh.type->encode || !sh.predictor || !sh.predictor->encode ||
        !sh.n_head || !sh.n_embd || write_model(&sh, &err) != HS_OK) {
        fprintf(stderr, "model: %s\n", err.msg[0] ? err.msg : "usage: see the source");
        return 1;
    }
    return 0;
}
