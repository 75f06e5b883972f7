/* Weights are used as the file has them, sums: only their ratios within a row matter. */
#include "formats/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hs_imatrix {
    hs_gguf *g;
    size_t n; /* entries */
};

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static const hs_gguf_tensor *part(const hs_imatrix *m, const char *name, size_t n, const char *end)
{
    char full[HS_GGUF_MAX_NAME + 1];
    const int len = snprintf(full, sizeof full, "%.*s%s", (int)n, name, end);
    return len > 0 && (size_t)len < sizeof full ? hs_gguf_tensor_find(m->g, full) : NULL;
}

static float number(const hs_gguf_tensor *t, uint64_t i)
{
    float f;
    memcpy(&f, t->data + 4 * i, 4);
    return f;
}

static hs_status check_numbers(const hs_gguf_tensor *t, hs_err *err)
{
    if (t->dtype != HS_F32)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected F32, got %s", t->name,
                       hs_dtype_name(t->dtype));
    for (uint64_t i = 0; i < t->bytes / 4; i++)
        if (!(number(t, i) >= 0 && isfinite(number(t, i))))
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: element %" PRIu64 " is %g, expected a finite number >= 0", t->name,
                           i, (double)number(t, i));
    return HS_OK;
}

static hs_status check_entry(const hs_imatrix *m, const hs_gguf_tensor *t, hs_err *err)
{
    const size_t n = strlen(t->name) - (sizeof sums_end - 1);
    const hs_gguf_tensor *counts = part(m, t->name, n, counts_end);
    if (!counts)
        return hs_fail(err, HS_ERR_FORMAT, "%.*s%s: is missing", (int)n, t->name, counts_end);
    const hs_status s = check_numbers(t, err);
    if (s != HS_OK)
        return s;
    if (t->ne[1] == 0 || counts->bytes != 4 * t->ne[1] || t->ne[2] * t->ne[3] != 1)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected {1, %" PRIu64 "}", counts->name, t->ne[1]);
    return check_numbers(counts, err);
}

static hs_status check_all(hs_imatrix *m, hs_err *err)
{
    hs_str type = {"", 0};
    hs_status s = hs_gguf_str(m->g, "general.type", &type, err);
    if (s != HS_OK || !hs_str_eq(type, "imatrix"))
        return hs_fail(err, HS_ERR_FORMAT,
                       "is no importance matrix: general.type is not 'imatrix'");
    for (size_t i = 0; s == HS_OK && i < m->g->n_tensors; i++)
        if (ends_with(m->g->tensors[i].name, sums_end)) {
            s = check_entry(m, &m->g->tensors[i], err);
            m->n++;
        }
    if (s == HS_OK && m->n == 0)
        return hs_fail(err, HS_ERR_FORMAT, "holds no tensor NAME%s", sums_end);
    return s;
}

hs_status hs_imatrix_open(hs_imatrix **out, const char *path, hs_err *err)
{
    hs_imatrix *m = calloc(1, sizeof *m);
    if (!m)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_status s = hs_gguf_open(&m->g, path, err);
    if (s == HS_OK) {
        s = check_all(m, err);
        if (s != HS_OK)
            s = hs_ctx(err, s, "%s: ", path);
    }
    if (s == HS_OK)
        *out = m;
    else
        hs_imatrix_free(m);
    return s;
}

void hs_imatrix_free(hs_imatrix *m)
{
    if (!m)
        return;
    hs_gguf_free(m->g);
    free(m);
}

size_t hs_imatrix_entries(const hs_imatrix *m) { return m->n; }

/* The name a dense file has for this matrix: without the _t of the transposed one. */
static const hs_gguf_tensor *dense_part(const hs_imatrix *m, const char *name, const char *end)
{
    static const char transposed[] = "_t.weight";
    char dense[HS_GGUF_MAX_NAME + 1];
    if (!ends_with(name, transposed))
        return NULL;
    const int n = snprintf(dense, sizeof dense, "%.*s.weight",
                           (int)(strlen(name) - (sizeof transposed - 1)), name);
    return n > 0 ? part(m, dense, (size_t)n, end) : NULL;
}

hs_status hs_imatrix_find(const hs_imatrix *m, const hs_gguf_tensor *t, hs_importance_kind *kind,
                          const uint8_t **weight, uint64_t *covered, hs_err *err)
{
    *kind = HS_IMPORTANCE_NONE;
    *covered = 0;
    *weight = NULL;
    const hs_gguf_tensor *sums = part(m, t->name, strlen(t->name), sums_end);
    const hs_gguf_tensor *counts = part(m, t->name, strlen(t->name), counts_end);
    if (!sums) {
        sums = dense_part(m, t->name, sums_end);
        counts = dense_part(m, t->name, counts_end);
    }
    if (!sums || !counts || !(number(counts, 0) > 0))
        return HS_OK;
    if (sums->ne[1] == 1 && sums->ne[0] == t->ne[1] && ends_with(t->name, "_t.weight")) {
        *kind = HS_IMPORTANCE_ROWS;
        return HS_OK;
    }
    if (sums->ne[1] != 1 || sums->ne[0] != t->ne[0])
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: the importance matrix has {%" PRIu64 ", %" PRIu64
                       "}, expected {%" PRIu64 ", 1}: it is another model's",
                       t->name, sums->ne[0], sums->ne[1], t->ne[0]);
    for (uint64_t i = 0; i < t->ne[0]; i++)
        *covered += number(sums, i) > 0;
    if (*covered) {
        *kind = HS_IMPORTANCE_CHANNELS;
        *weight = sums->data;
    }
    return HS_OK;
}

/* --- writing ------------------------------------------------------------ */

static void declare(hs_gguf_writer *w, const hs_imatrix_source *source,
                    const hs_imatrix_entry *entry, size_t n)
{
    hs_gguf_set_str(w, "general.type", "imatrix");
    hs_gguf_set_str_array(w, "imatrix.datasets", source->datasets, source->n_datasets);
    hs_gguf_set_u32(w, "imatrix.chunk_count", source->n_chunks);
    hs_gguf_set_u32(w, "imatrix.chunk_size", source->chunk_size);
    for (size_t i = 0; i < n; i++) {
        char name[HS_GGUF_MAX_NAME + 1];
        snprintf(name, sizeof name, "%s%s", entry[i].name, sums_end);
        hs_gguf_add_tensor(w, name, HS_F32, 2, (const uint64_t[]){entry[i].n, 1});
        snprintf(name, sizeof name, "%s%s", entry[i].name, counts_end);
        hs_gguf_add_tensor(w, name, HS_F32, 2, (const uint64_t[]){1, 1});
    }
}

static hs_status write_entry(hs_gguf_writer *w, const hs_imatrix_entry *e, hs_err *err)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const float f = (float)e->sum2[i];
        if (!isfinite(f))
            return hs_fail(err, HS_ERR_FAILED, "%s: the squares of channel %" PRIu32 " overflow",
                           e->name, i);
        const hs_status s = hs_gguf_writer_data(w, &f, sizeof f, err);
        if (s != HS_OK)
            return s;
    }
    const float count = (float)e->count;
    return hs_gguf_writer_data(w, &count, sizeof count, err);
}

hs_status hs_imatrix_write(const char *path, bool replace, const hs_imatrix_source *source,
                           const hs_imatrix_entry *entry, size_t n, hs_err *err)
{
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    if (!w)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    declare(w, source, entry, n);
    hs_out *out = NULL;
    hs_status s = hs_out_open(&out, path, replace, err);
    if (s == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    for (size_t i = 0; s == HS_OK && i < n; i++)
        s = write_entry(w, &entry[i], err);
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, err);
    if (s == HS_OK)
        s = hs_out_commit(out, true, err);
    else
        hs_out_abort(out);
    hs_gguf_writer_free(w);
    return s;
}
