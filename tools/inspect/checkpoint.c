/* safetensors and torch files. */
#include "formats/checkpoint.h"

#include "runtime/hotset.h"
#include "tools/inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *shape(const hs_ckpt_tensor *t)
{
    json_t *a = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(a, inspect_count(t->shape[d]));
    return a;
}

static json_t *list_tensors(const hs_checkpoint *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < hs_checkpoint_count(c); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(c, i);
        json_array_append_new(rows, json_pack("{s:o,s:s,s:o,s:o}", "name",
                                              inspect_string(t->name, strlen(t->name), 256), "type",
                                              t->elem_name, "shape", shape(t), "values",
                                              inspect_count(hs_ckpt_elems(t))));
    }
    return rows;
}

/* One row per element type, in order of appearance. */
static void add_types(const hs_checkpoint *c, json_t *report)
{
    json_t *rows = json_array();
    uint64_t all = 0;
    for (size_t i = 0; i < hs_checkpoint_count(c); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(c, i);
        const uint64_t n = hs_ckpt_elems(t);
        json_t *row = NULL, *r;
        size_t k;
        json_array_foreach(rows, k, r)
        {
            if (!strcmp(json_string_value(json_object_get(r, "type")), t->elem_name))
                row = r;
        }
        if (!row) {
            row = json_pack("{s:s,s:I,s:I,s:I}", "type", t->elem_name, "tensors", (json_int_t)0,
                            "values", (json_int_t)0, "bytes", (json_int_t)0);
            json_array_append_new(rows, row);
        }
        const struct {
            const char *key;
            uint64_t add;
        } sum[] = {{"tensors", 1}, {"values", n}, {"bytes", n * hs_elem_bytes(t->elem)}};
        for (size_t j = 0; j < 3; j++) {
            json_t *v = json_object_get(row, sum[j].key);
            json_integer_set(v, json_integer_value(v) + (json_int_t)sum[j].add);
        }
        all += n;
    }
    json_object_set_new(report, "tensors", inspect_count(hs_checkpoint_count(c)));
    json_object_set_new(report, "values", inspect_count(all));
    json_object_set_new(report, "types", rows);
}

static hs_status bad_value(const hs_ckpt_tensor *t, uint64_t i, double v, hs_err *err)
{
    return hs_fail(err, HS_ERR_FORMAT, "tensor %s: value %llu is %s", t->name,
                   (unsigned long long)i,
                   isnan(v) ? "nan"
                   : v > 0  ? "inf"
                            : "-inf");
}

static bool is_float(hs_elem e)
{
    return e == HS_ELEM_F64 || e == HS_ELEM_F32 || e == HS_ELEM_F16 || e == HS_ELEM_BF16;
}

/* Matrices by the row, which is much faster; other shapes value by value. */
static hs_status check_rows(const hs_ckpt_tensor *t, hs_err *err)
{
    const uint64_t rows = t->n_dims == 2 ? t->shape[0] : 1, cols = t->shape[t->n_dims - 1];
    float *v = malloc(cols * sizeof *v + 1);
    if (!v)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for a row of %llu values",
                       (unsigned long long)cols);
    hs_status s = HS_OK;
    for (uint64_t r = 0; s == HS_OK && cols && r < rows; r++) {
        s = hs_ckpt_row_f32(t, r, v, err);
        for (uint64_t i = 0; s == HS_OK && i < cols; i++)
            if (!isfinite(v[i]))
                s = bad_value(t, r * cols + i, (double)v[i], err);
    }
    free(v);
    return s;
}

static hs_status check_tensor(const hs_ckpt_tensor *t, hs_err *err)
{
    if (t->elem != HS_ELEM_F64 && (t->n_dims == 1 || t->n_dims == 2))
        return check_rows(t, err);
    for (uint64_t i = 0; i < hs_ckpt_elems(t); i++) {
        double v;
        const hs_status s = hs_ckpt_value(t, i, &v, err);
        if (s != HS_OK)
            return s;
        if (!isfinite(v))
            return bad_value(t, i, v, err);
    }
    return HS_OK;
}

static hs_status check_all(const hs_checkpoint *c, json_t *report, hs_err *err)
{
    uint64_t n = 0;
    for (size_t i = 0; i < hs_checkpoint_count(c); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(c, i);
        if (t->elem == HS_ELEM_OTHER) {
            inspect_warn(report, "%s: values of type %s are not checked", t->name, t->elem_name);
            continue;
        }
        const hs_status s = is_float(t->elem) ? check_tensor(t, err) : HS_OK;
        if (s != HS_OK)
            return s;
        n++;
    }
    json_object_set_new(report, "tensors_checked", inspect_count(n));
    return HS_OK;
}

hs_status inspect_checkpoint(const inspect_options *o, json_t *report, hs_err *err)
{
    if (o->model)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: is neither a profile nor a placement, which -m needs", o->path);
    hs_checkpoint *c;
    hs_status s = hs_checkpoint_open_file(&c, o->path, err);
    if (s != HS_OK)
        return s;
    add_types(c, report);
    if (o->tensors)
        json_object_set_new(report, "tensor_list", list_tensors(c));
    if (o->check && (s = check_all(c, report, err)) != HS_OK)
        s = hs_ctx(err, s, "%s: ", o->path);
    hs_checkpoint_free(c);
    return s;
}
