/* One safetensors file.  The one surprise: the JSON header names tensors in any order, so they
 * are sorted by offset to prove that they tile the data without hole or overlap. */
#include "formats/safetensors.h"

#include "formats/cursor.h"
#include "formats/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The reference implementation's own cap. */
#define MAX_HEADER UINT64_C(100000000)

typedef struct entry {
    char *name; /* a copy */
    const json_t *info;
    uint64_t begin, end;
} entry;

typedef struct kind {
    const char *name;
    hs_elem elem;
    uint32_t bytes;
} kind;

/* What we cannot compute with is listed for its size alone. */
static const kind kinds[] = {
    {"F64", HS_ELEM_F64, 8},       {"F32", HS_ELEM_F32, 4},       {"F16", HS_ELEM_F16, 2},
    {"BF16", HS_ELEM_BF16, 2},     {"I64", HS_ELEM_I64, 8},       {"I32", HS_ELEM_I32, 4},
    {"I16", HS_ELEM_I16, 2},       {"I8", HS_ELEM_I8, 1},         {"U8", HS_ELEM_U8, 1},
    {"BOOL", HS_ELEM_BOOL, 1},     {"U16", HS_ELEM_OTHER, 2},     {"U32", HS_ELEM_OTHER, 4},
    {"U64", HS_ELEM_OTHER, 8},     {"F8_E4M3", HS_ELEM_OTHER, 1}, {"F8_E5M2", HS_ELEM_OTHER, 1},
    {"F8_E8M0", HS_ELEM_OTHER, 1}, {"C64", HS_ELEM_OTHER, 8},
};

static const kind *kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

static hs_status check_metadata(json_t *meta, hs_err *err)
{
    if (!json_is_object(meta))
        return hs_fail(err, HS_ERR_FORMAT, "__metadata__: expected an object of strings");
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value) if (!json_is_string(value)) return hs_fail(
        err, HS_ERR_FORMAT, "__metadata__: \"%s\" is not a string", key);
    return HS_OK;
}

/* A non-negative integer of the header; jansson has already refused those above 2^63-1. */
static hs_status get_u64(const json_t *v, const char *name, const char *what, uint64_t *out,
                         hs_err *err)
{
    if (!json_is_integer(v))
        return hs_fail(err, HS_ERR_FORMAT, "%s: %s is not an integer", name, what);
    const json_int_t i = json_integer_value(v);
    if (i < 0)
        return hs_fail(err, HS_ERR_FORMAT, "%s: %s is negative (%" JSON_INTEGER_FORMAT ")", name,
                       what, i);
    *out = (uint64_t)i;
    return HS_OK;
}

static hs_status read_entry(entry *e, uint64_t data_bytes, hs_err *err)
{
    if (!json_is_object(e->info))
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected an object", e->name);
    const json_t *off = json_object_get(e->info, "data_offsets");
    if (!json_is_array(off) || json_array_size(off) != 2)
        return hs_fail(err, HS_ERR_FORMAT, "%s: data_offsets: expected two integers", e->name);
    hs_status s = get_u64(json_array_get(off, 0), e->name, "data_offsets[0]", &e->begin, err);
    if (s == HS_OK)
        s = get_u64(json_array_get(off, 1), e->name, "data_offsets[1]", &e->end, err);
    if (s != HS_OK)
        return s;
    if (e->begin > e->end)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: data_offsets [%" PRIu64 ", %" PRIu64 "] are reversed", e->name,
                       e->begin, e->end);
    if (e->end > data_bytes)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: data_offsets [%" PRIu64 ", %" PRIu64 "] reach past the end: the file "
                       "has %" PRIu64 " data bytes",
                       e->name, e->begin, e->end, data_bytes);
    return HS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static hs_status check_tiling(const entry *e, size_t n, uint64_t data_bytes, hs_err *err)
{
    uint64_t pos = 0;
    for (size_t i = 0; i < n; i++) {
        if (e[i].begin < pos)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: data_offsets [%" PRIu64 ", %" PRIu64 "] overlap %s", e[i].name,
                           e[i].begin, e[i].end, e[i - 1].name);
        if (e[i].begin > pos)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: hole of %" PRIu64 " bytes before data offset %" PRIu64, e[i].name,
                           e[i].begin - pos, e[i].begin);
        pos = e[i].end;
    }
    if (pos != data_bytes)
        return hs_fail(err, HS_ERR_FORMAT,
                       "the header describes %" PRIu64 " data bytes, the file has %" PRIu64, pos,
                       data_bytes);
    return HS_OK;
}

/* Shape, dtype and their agreement with the offsets, into `t`. */
static hs_status fill_tensor(hs_ckpt_tensor *t, const entry *e, const uint8_t *data, hs_err *err)
{
    const char *dtype = json_string_value(json_object_get(e->info, "dtype"));
    const json_t *shape = json_object_get(e->info, "shape");
    if (!dtype || !*dtype || strlen(dtype) >= sizeof t->elem_name)
        return hs_fail(err, HS_ERR_FORMAT, "%s: dtype: expected a short string", e->name);
    if (!json_is_array(shape))
        return hs_fail(err, HS_ERR_FORMAT, "%s: shape: expected an array", e->name);
    if (json_array_size(shape) > HS_CKPT_MAX_DIMS)
        return hs_fail(err, HS_ERR_FORMAT, "%s: shape has %zu dimensions, at most %d are accepted",
                       e->name, json_array_size(shape), HS_CKPT_MAX_DIMS);
    const kind *k = kind_find(dtype);
    *t = (hs_ckpt_tensor){.elem = k ? k->elem : HS_ELEM_OTHER, .data = data + e->begin};
    memcpy(t->elem_name, dtype, strlen(dtype) + 1);
    t->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        const hs_status s =
            get_u64(json_array_get(shape, i), e->name, "a dimension", &t->shape[i], err);
        if (s != HS_OK)
            return s;
    }
    /* The wrap check treats 0 as 1, so that the strides of an empty tensor do not wrap either. */
    uint64_t step = 1, bytes = k ? k->bytes : 1;
    for (uint32_t i = t->n_dims; i-- > 0;) {
        t->stride[i] = (int64_t)step;
        if (!hs_mul(step, t->shape[i] ? t->shape[i] : 1, &step) || step > INT64_MAX)
            return hs_fail(err, HS_ERR_FORMAT, "%s: the product of the shape wraps", e->name);
    }
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (!t->shape[i])
            step = 0;
    if (!hs_mul(step, bytes, &bytes))
        return hs_fail(err, HS_ERR_FORMAT, "%s: the product of the shape wraps", e->name);
    if (k && bytes != e->end - e->begin)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: shape and dtype %s need %" PRIu64 " bytes, data_offsets cover %" PRIu64,
                       e->name, dtype, bytes, e->end - e->begin);
    return HS_OK;
}

static hs_status visit_all(const entry *e, size_t n, const uint8_t *data, hs_ckpt_visit visit,
                           void *ud, hs_err *err)
{
    /* All checks before the first call. */
    hs_ckpt_tensor t;
    for (size_t i = 0; i < n; i++) {
        const hs_status s = fill_tensor(&t, &e[i], data, err);
        if (s != HS_OK)
            return s;
    }
    for (size_t i = 0; i < n; i++) {
        hs_status s = fill_tensor(&t, &e[i], data, err);
        t.name = e[i].name;
        if (s == HS_OK)
            s = visit(ud, &t, err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status walk(json_t *root, const uint8_t *data, uint64_t data_bytes, hs_ckpt_visit visit,
                      void *ud, hs_err *err)
{
    entry *e = calloc(json_object_size(root) + 1, sizeof *e);
    if (!e)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    size_t n = 0;
    hs_status s = HS_OK;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            s = check_metadata(value, err);
        } else {
            e[n] = (entry){.name = strdup(key), .info = value};
            s = e[n].name ? read_entry(&e[n], data_bytes, err)
                          : hs_fail(err, HS_ERR_NOMEM, "out of memory");
            n++;
        }
        if (s != HS_OK)
            break;
    }
    if (s == HS_OK) {
        qsort(e, n, sizeof *e, by_offset);
        s = check_tiling(e, n, data_bytes, err);
    }
    if (s == HS_OK)
        s = visit_all(e, n, data, visit, ud, err);
    for (size_t i = 0; i < n; i++)
        free(e[i].name);
    free(e);
    return s;
}

hs_status hs_safetensors_parse(const void *data, size_t size, hs_ckpt_visit visit, void *ud,
                               hs_err *err)
{
    const uint8_t *p = data;
    if (size < 8)
        return hs_fail(err, HS_ERR_FORMAT, "%zu bytes, too short for a safetensors file", size);
    const uint64_t n = hs_get_u64(p);
    if (n == 0)
        return hs_fail(err, HS_ERR_FORMAT, "header length is 0");
    if (n > MAX_HEADER)
        return hs_fail(err, HS_ERR_FORMAT,
                       "header length %" PRIu64 " is above the format's limit of %" PRIu64, n,
                       MAX_HEADER);
    if (n > size - 8)
        return hs_fail(err, HS_ERR_FORMAT,
                       "header length %" PRIu64 " reaches past the end of the file (%zu bytes)", n,
                       size);
    json_t *root;
    hs_status s = hs_json_parse(&root, p + 8, (size_t)n, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "header: ");
    s = walk(root, p + 8 + n, size - 8 - n, visit, ud, err);
    json_decref(root);
    return s;
}
