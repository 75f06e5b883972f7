/* Calibration texts: read, hashed, tokenized, cut. */
#include "tools/profile/texts.h"

#include <stdlib.h>
#include <string.h>

hs_status hs_texts_read(hs_texts *t, const char *const *path, size_t n, hs_err *err)
{
    t->text = calloc(n, sizeof *t->text);
    if (!t->text)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        hs_text *x = &t->text[i];
        x->path = path[i];
        const hs_status s = hs_read_text(path[i], &x->bytes, &x->n_bytes, err);
        if (s != HS_OK)
            return s;
        if (!x->n_bytes)
            return hs_fail(err, HS_ERR_INPUT, "%s: needs at least 1 token, got 0", path[i]);
        hs_hash_hex(hs_hash_bytes(hs_hash_init(), x->bytes, x->n_bytes), x->hash);
    }
    return HS_OK;
}

hs_status hs_texts_tokenize(hs_texts *t, const hs_model *m, uint64_t max_chunks, bool special,
                            const hs_cli *cli, hs_err *err)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < t->n; i++)
        total += t->text[i].n_bytes;
    hs_progress progress;
    hs_progress_init(&progress, cli, "tokenizing", "B");
    hs_status s = HS_OK;
    t->n_chunks = 0;
    t->whole = true;
    for (size_t i = 0; s == HS_OK && i < t->n; i++) {
        hs_text *x = &t->text[i];
        if (max_chunks && t->n_chunks >= max_chunks) {
            t->whole = false;
            break;
        }
        if (!hs_progress_step(&progress, done, total)) {
            s = hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
            break;
        }
        s = hs_tokenize(m, x->bytes, x->n_bytes, special, &x->ids, &x->n_ids, err);
        if (s != HS_OK) {
            (void)hs_ctx(err, s, "%s: ", x->path);
            break;
        }
        if (!x->n_ids)
            s = hs_fail(err, HS_ERR_INPUT, "%s: needs at least 1 token, got 0", x->path);
        free(x->bytes);
        x->bytes = NULL;
        done += x->n_bytes;
        t->n_chunks += hs_text_chunks(x->n_ids, t->n_ctx, t->bos >= 0);
    }
    if (max_chunks && t->n_chunks > max_chunks) {
        t->n_chunks = max_chunks;
        t->whole = false;
    }
    hs_progress_end(&progress);
    return s;
}

void hs_texts_free(hs_texts *t)
{
    for (size_t i = 0; t->text && i < t->n; i++) {
        free(t->text[i].bytes);
        free(t->text[i].ids);
    }
    free(t->text);
    *t = (hs_texts){0};
}

uint64_t hs_text_chunks(size_t n_ids, uint32_t n_ctx, bool bos)
{
    const size_t step = n_ctx - (bos ? 1u : 0u);
    return n_ids / step + (n_ids % step ? 1 : 0);
}

/* Tokens of chunk k over all texts, without BOS: n of them from text[i].ids + at. */
static size_t locate(const hs_texts *t, uint64_t k, size_t *i, size_t *at)
{
    const bool bos = t->bos >= 0;
    const size_t step = t->n_ctx - (bos ? 1u : 0u);
    if (k >= t->n_chunks)
        return 0;
    for (*i = 0; *i < t->n; (*i)++) {
        const size_t n_ids = t->text[*i].n_ids;
        const uint64_t n = hs_text_chunks(n_ids, t->n_ctx, bos);
        if (k < n) {
            *at = (size_t)k * step;
            return n_ids - *at < step ? n_ids - *at : step;
        }
        k -= n;
    }
    return 0;
}

size_t hs_texts_chunk(const hs_texts *t, uint64_t k, int32_t *out, size_t *text)
{
    size_t i, at;
    const size_t n = locate(t, k, &i, &at);
    if (!n)
        return 0;
    size_t len = 0;
    if (t->bos >= 0)
        out[len++] = t->bos;
    memcpy(out + len, t->text[i].ids + at, n * sizeof *out);
    *text = i;
    return len + n;
}

uint64_t hs_texts_positions(const hs_texts *t, uint64_t k)
{
    uint64_t sum = 0;
    size_t i, at;
    for (uint64_t c = 0; c < k && c < t->n_chunks; c++)
        sum += locate(t, c, &i, &at) + (t->bos >= 0);
    return sum;
}
