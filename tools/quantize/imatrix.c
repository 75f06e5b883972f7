/* Weights are used as the file has them, sums: only their ratios within a row matter. */
#include "tools/quantize/imatrix.h"

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
