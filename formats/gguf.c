/* The reader: header, KVs and tensor table, each checked against the bytes that are left before
 * anything is allocated for it, then the order-free checks (duplicates, overlaps) by sorting. */
#include "formats/gguf.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_KEY = 65535,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,             /* key length, key, type, a one-byte value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name, n_dims, one dimension, type, offset */
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 65536,
    PWRI_I32 = 18,
    /* Names in messages are cut to this: a hostile key is as long as the message allows. */
    SHOWN = 80,
};

static int shown(size_t n) { return n < SHOWN ? (int)n : SHOWN; }

static hs_status truncated(hs_err *err, const hs_cursor *c, const char *what)
{
    return hs_fail(err, HS_ERR_FORMAT, "file ends at byte %zu inside %s", c->size, what);
}

/* --- KVs ---------------------------------------------------------------- */

static bool bools_ok(const uint8_t *p, size_t n)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < n; i++)
        seen |= p[i];
    return seen <= 1;
}

/* "KV 3 (general.name) at byte 120: ", the common start of messages about it. */
static hs_status kv_fail(hs_err *err, size_t i, const hs_kv *kv, size_t at, hs_status s)
{
    return hs_ctx(err, s, "KV %zu (%.*s) at byte %zu: ", i, shown(kv->key.n), kv->key.p, at);
}

static hs_status read_key(hs_cursor *c, size_t i, hs_str *key, hs_err *err)
{
    const size_t at = c->pos;
    const uint64_t n = hs_cur_u64(c);
    if (!c->bad && (n == 0 || n > MAX_KEY))
        return hs_fail(err, HS_ERR_FORMAT,
                       "KV %zu at byte %zu: key of %" PRIu64 " bytes, expected 1 to %d", i, at, n,
                       MAX_KEY);
    const uint8_t *p = hs_cur_take(c, n);
    if (!p)
        return hs_fail(err, HS_ERR_FORMAT,
                       "KV %zu at byte %zu: the key runs past the end of the file", i, at);
    if (memchr(p, 0, (size_t)n))
        return hs_fail(err, HS_ERR_FORMAT, "KV %zu at byte %zu: the key contains a NUL byte", i,
                       at);
    *key = (hs_str){(const char *)p, (size_t)n};
    return HS_OK;
}

static hs_status read_strings(hs_cursor *c, hs_kv *kv, hs_err *err)
{
    for (uint64_t i = 0; i < kv->count; i++) {
        const size_t at = c->pos;
        const uint64_t n = hs_cur_u64(c);
        if (!hs_cur_take(c, n))
            return hs_fail(err, HS_ERR_FORMAT,
                           "string %" PRIu64 " of %" PRIu64
                           " at byte %zu runs past the end of the file",
                           i, kv->count, at);
    }
    return HS_OK;
}

static hs_status read_array(hs_cursor *c, hs_kv *kv, hs_err *err)
{
    const uint32_t elem = hs_cur_u32(c);
    kv->count = hs_cur_u64(c);
    if (c->bad)
        return truncated(err, c, "an array header");
    if (elem == HS_KV_ARRAY)
        return hs_fail(err, HS_ERR_FORMAT, "array of arrays, expected plain elements");
    if (elem > HS_KV_F64)
        return hs_fail(err, HS_ERR_FORMAT, "unknown array element type %" PRIu32, elem);
    kv->elem = (hs_kv_type)elem;
    const size_t least = elem == HS_KV_STRING ? 8 : hs_kv_type_bytes(elem);
    uint64_t bytes;
    if (!hs_mul(kv->count, least, &bytes) || bytes > c->size - c->pos)
        return hs_fail(err, HS_ERR_FORMAT,
                       "array of %" PRIu64 " %s values does not fit in the %zu bytes left",
                       kv->count, hs_kv_type_name(elem), c->size - c->pos);
    kv->raw = c->base + c->pos;
    const size_t start = c->pos;
    if (elem == HS_KV_STRING) {
        const hs_status s = read_strings(c, kv, err);
        if (s != HS_OK)
            return s;
    } else {
        hs_cur_take(c, bytes);
        if (elem == HS_KV_BOOL && !bools_ok(kv->raw, (size_t)bytes))
            return hs_fail(err, HS_ERR_FORMAT, "a bool is neither 0 nor 1");
    }
    kv->raw_bytes = c->pos - start;
    return HS_OK;
}

static hs_status read_value(hs_cursor *c, hs_kv *kv, hs_err *err)
{
    const uint32_t type = hs_cur_u32(c);
    if (c->bad)
        return truncated(err, c, "the value's type");
    if (type > HS_KV_F64)
        return hs_fail(err, HS_ERR_FORMAT, "unknown value type %" PRIu32, type);
    kv->type = (hs_kv_type)type;
    if (type == HS_KV_ARRAY)
        return read_array(c, kv, err);
    const uint64_t n = type == HS_KV_STRING ? hs_cur_u64(c) : hs_kv_type_bytes(type);
    kv->raw = hs_cur_take(c, n);
    kv->raw_bytes = (size_t)n;
    if (!kv->raw)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s value of %" PRIu64 " bytes runs past the end of the file",
                       hs_kv_type_name(type), n);
    if (type == HS_KV_BOOL && kv->raw[0] > 1)
        return hs_fail(err, HS_ERR_FORMAT, "bool value %u, expected 0 or 1", kv->raw[0]);
    return HS_OK;
}

static hs_status read_kvs(hs_gguf *g, hs_cursor *c, hs_err *err)
{
    for (size_t i = 0; i < g->n_kv; i++) {
        hs_kv *kv = &g->kv[i];
        hs_status s = read_key(c, i, &kv->key, err);
        if (s != HS_OK)
            return s;
        const size_t at = c->pos;
        s = read_value(c, kv, err);
        if (s != HS_OK)
            return kv_fail(err, i, kv, at, s);
    }
    return HS_OK;
}

static int str_order(hs_str a, hs_str b)
{
    const int k = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return k ? k : (a.n > b.n) - (a.n < b.n);
}

static int key_order(const void *a, const void *b, void *g)
{
    const hs_kv *kv = ((const hs_gguf *)g)->kv;
    return str_order(kv[*(const size_t *)a].key, kv[*(const size_t *)b].key);
}

static hs_status sort_keys(hs_gguf *g, hs_err *err)
{
    for (size_t i = 0; i < g->n_kv; i++)
        g->by_key[i] = i;
    qsort_r(g->by_key, g->n_kv, sizeof *g->by_key, key_order, g);
    for (size_t i = 1; i < g->n_kv; i++) {
        const size_t a = g->by_key[i - 1], b = g->by_key[i];
        if (str_order(g->kv[a].key, g->kv[b].key) == 0)
            return hs_fail(err, HS_ERR_FORMAT, "KVs %zu and %zu have the same key %.*s",
                           a < b ? a : b, a < b ? b : a, shown(g->kv[a].key.n), g->kv[a].key.p);
    }
    return HS_OK;
}

static hs_status read_alignment(hs_gguf *g, hs_err *err)
{
    g->alignment = 32;
    const hs_kv *kv = hs_gguf_find(g, "general.alignment");
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_U32)
        return hs_fail(err, HS_ERR_FORMAT, "general.alignment: expected u32, got %s",
                       hs_kv_type_name(kv->type));
    const uint32_t a = hs_get_u32(kv->raw);
    if (a < MIN_ALIGNMENT || a > MAX_ALIGNMENT || (a & (a - 1)))
        return hs_fail(err, HS_ERR_FORMAT,
                       "general.alignment %" PRIu32 ", expected a power of two from %d to %d", a,
                       MIN_ALIGNMENT, MAX_ALIGNMENT);
    g->alignment = a;
    return HS_OK;
}

/* --- tensors ------------------------------------------------------------ */

static hs_status tensor_ctx(hs_err *err, const hs_gguf *g, size_t i, hs_status s)
{
    return hs_ctx(err, s, "tensor %zu (%s): ", i, g->tensors[i].name);
}

static hs_status read_name(hs_cursor *c, size_t i, char *name, hs_err *err)
{
    const size_t at = c->pos;
    const uint64_t n = hs_cur_u64(c);
    if (!c->bad && (n == 0 || n > HS_GGUF_MAX_NAME))
        return hs_fail(err, HS_ERR_FORMAT,
                       "tensor %zu at byte %zu: name of %" PRIu64 " bytes, expected 1 to %d", i, at,
                       n, HS_GGUF_MAX_NAME);
    const uint8_t *p = hs_cur_take(c, n);
    if (!p)
        return hs_fail(err, HS_ERR_FORMAT,
                       "tensor %zu at byte %zu: the name runs past the end of the file", i, at);
    if (memchr(p, 0, (size_t)n))
        return hs_fail(err, HS_ERR_FORMAT, "tensor %zu at byte %zu: the name contains a NUL byte",
                       i, at);
    memcpy(name, p, (size_t)n);
    name[n] = 0;
    return HS_OK;
}

static hs_status read_shape(hs_cursor *c, hs_gguf_tensor *t, hs_err *err)
{
    t->n_dims = hs_cur_u32(c);
    if (c->bad)
        return truncated(err, c, "the tensor's shape");
    if (t->n_dims < 1 || t->n_dims > HS_GGUF_MAX_DIMS)
        return hs_fail(err, HS_ERR_FORMAT, "%" PRIu32 " dimensions, expected 1 to %d", t->n_dims,
                       HS_GGUF_MAX_DIMS);
    for (uint32_t k = 0; k < HS_GGUF_MAX_DIMS; k++)
        t->ne[k] = k < t->n_dims ? hs_cur_u64(c) : 1;
    return c->bad ? truncated(err, c, "the tensor's shape") : HS_OK;
}

/* What a tensor's shape and type come to in bytes. */
static hs_status measure(hs_gguf_tensor *t, uint32_t type, hs_err *err)
{
    const hs_dtype_info *info = hs_dtype_get(type);
    if (!info)
        return hs_fail(err, HS_ERR_UNSUPPORTED, "unknown tensor type %" PRIu32, type);
    t->dtype = info->id;
    uint64_t elems = 1;
    for (uint32_t k = 0; k < t->n_dims; k++) {
        /* Empty index lists of placements are the one kind of empty tensor. */
        if (t->ne[k] == 0 && !(t->n_dims == 1 && t->dtype == HS_I32))
            return hs_fail(err, HS_ERR_FORMAT, "dimension %" PRIu32 " is 0", k);
        if (!hs_mul(elems, t->ne[k], &elems) || elems > INT64_MAX)
            return hs_fail(err, HS_ERR_FORMAT,
                           "dimension %" PRIu32 " is %" PRIu64 ": the element count overflows", k,
                           t->ne[k]);
    }
    if (t->ne[0] % info->block_elems)
        return hs_fail(err, HS_ERR_FORMAT,
                       "row length %" PRIu64 " is not a multiple of %" PRIu32 ", the block of %s",
                       t->ne[0], info->block_elems, info->name);
    if (!hs_mul(elems / info->block_elems, info->block_bytes, &t->bytes))
        return hs_fail(err, HS_ERR_FORMAT, "%" PRIu64 " elements of %s: the size overflows", elems,
                       info->name);
    return HS_OK;
}

static hs_status read_tensor(hs_gguf *g, hs_cursor *c, size_t i, hs_err *err)
{
    hs_gguf_tensor *t = &g->tensors[i];
    hs_status s = read_name(c, i, t->name, err);
    if (s != HS_OK)
        return s;
    s = read_shape(c, t, err);
    if (s == HS_OK) {
        uint32_t type = hs_cur_u32(c);
        t->offset = hs_cur_u64(c);
        if (g->pwri && type == PWRI_I32)
            type = HS_I32;
        s = c->bad ? truncated(err, c, "the tensor table") : measure(t, type, err);
    }
    return s == HS_OK ? s : tensor_ctx(err, g, i, s);
}

static int name_order(const void *a, const void *b, void *g)
{
    const hs_gguf_tensor *t = ((const hs_gguf *)g)->tensors;
    return strcmp(t[*(const size_t *)a].name, t[*(const size_t *)b].name);
}

static hs_status sort_names(hs_gguf *g, hs_err *err)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        g->by_name[i] = i;
    qsort_r(g->by_name, g->n_tensors, sizeof *g->by_name, name_order, g);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const size_t a = g->by_name[i - 1], b = g->by_name[i];
        if (strcmp(g->tensors[a].name, g->tensors[b].name) == 0)
            return hs_fail(err, HS_ERR_FORMAT, "tensors %zu and %zu have the same name %s",
                           a < b ? a : b, a < b ? b : a, g->tensors[a].name);
    }
    return HS_OK;
}

/* --- the data section --------------------------------------------------- */

/* Place tensor i; *end is raised to where its padded data ends. */
static hs_status place(hs_gguf *g, const uint8_t *data, size_t size, size_t i, uint64_t *end,
                       hs_err *err)
{
    hs_gguf_tensor *t = &g->tensors[i];
    if (t->offset % g->alignment)
        return hs_fail(err, HS_ERR_FORMAT,
                       "offset %" PRIu64 " is not a multiple of the alignment %" PRIu32, t->offset,
                       g->alignment);
    const uint64_t room = size > g->data_start ? size - g->data_start : 0;
    uint64_t last, padded;
    if (!hs_add(t->offset, t->bytes, &last) || (t->bytes && last > room))
        return hs_fail(err, HS_ERR_FORMAT,
                       "%" PRIu64 " bytes at offset %" PRIu64
                       " run past the end of the data section (%" PRIu64 " bytes)",
                       t->bytes, t->offset, room);
    if (!hs_align_up(last, g->alignment, &padded))
        return hs_fail(err, HS_ERR_FORMAT, "offset %" PRIu64 " overflows when padded", t->offset);
    if (t->bytes) {
        t->data = data + g->data_start + t->offset;
        if (padded > *end)
            *end = padded;
    }
    return HS_OK;
}

static int offset_order(const void *a, const void *b, void *g)
{
    const hs_gguf_tensor *t = ((const hs_gguf *)g)->tensors;
    const hs_gguf_tensor *x = &t[*(const size_t *)a], *y = &t[*(const size_t *)b];
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* An empty tensor shares its offset with the one that follows. */
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static hs_status check_overlaps(hs_gguf *g, size_t *order, hs_err *err)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        order[i] = i;
    qsort_r(order, g->n_tensors, sizeof *order, offset_order, g);
    const hs_gguf_tensor *before = NULL;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[order[i]];
        if (before && t->offset < before->offset + before->bytes)
            return hs_fail(err, HS_ERR_FORMAT,
                           "tensor %zu (%s) at offset %" PRIu64 " overlaps tensor %zu (%s)",
                           order[i], t->name, t->offset, (size_t)(before - g->tensors),
                           before->name);
        if (t->bytes)
            before = t;
    }
    return HS_OK;
}

static hs_status place_all(hs_gguf *g, const hs_cursor *c, hs_err *err)
{
    if (!hs_align_up(c->pos, g->alignment, &g->data_start))
        return hs_fail(err, HS_ERR_FORMAT, "the tensor table ends at byte %zu", c->pos);
    uint64_t end = 0, total;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_status s = place(g, c->base, c->size, i, &end, err);
        if (s != HS_OK)
            return tensor_ctx(err, g, i, s);
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].offset > end)
            return tensor_ctx(err, g, i,
                              hs_fail(err, HS_ERR_FORMAT,
                                      "offset %" PRIu64
                                      " is past the end of the data section (%" PRIu64 " bytes)",
                                      g->tensors[i].offset, end));
    if (!hs_add(g->data_start, end, &total) || c->size > total)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%" PRIu64
                       " bytes after the last tensor's data, which ends at byte %" PRIu64,
                       c->size - total, total);
    size_t *order = malloc(g->n_tensors * sizeof *order + 1);
    if (!order)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const hs_status s = check_overlaps(g, order, err);
    free(order);
    return s;
}

/* --- the whole ---------------------------------------------------------- */

static hs_status read_magic(hs_gguf *g, hs_cursor *c, hs_err *err)
{
    if (c->size == 0)
        return hs_fail(err, HS_ERR_FORMAT, "empty file, expected GGUF or PWRI");
    const uint8_t *magic = hs_cur_take(c, 4);
    if (!magic)
        return truncated(err, c, "the magic");
    g->pwri = memcmp(magic, "PWRI", 4) == 0;
    if (!g->pwri && memcmp(magic, "GGUF", 4) != 0)
        return hs_fail(err, HS_ERR_FORMAT,
                       "starts with bytes %02x %02x %02x %02x, expected GGUF or PWRI", magic[0],
                       magic[1], magic[2], magic[3]);
    g->version = hs_cur_u32(c);
    if (c->bad)
        return truncated(err, c, "the header");
    if (g->version == 2u << 24 || g->version == 3u << 24)
        return hs_fail(err, HS_ERR_UNSUPPORTED, "big-endian file, expected little-endian");
    if (g->version != 2 && g->version != 3)
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%s version %" PRIu32 ", expected 2 or 3",
                       g->pwri ? "PWRI" : "GGUF", g->version);
    return HS_OK;
}

static hs_status read_header(hs_gguf *g, hs_cursor *c, hs_err *err)
{
    const hs_status s = read_magic(g, c, err);
    if (s != HS_OK)
        return s;
    const uint64_t n_tensors = hs_cur_u64(c), n_kv = hs_cur_u64(c);
    if (c->bad)
        return truncated(err, c, "the header");
    const size_t left = c->size - c->pos;
    if (n_tensors > left / MIN_TENSOR_BYTES)
        return hs_fail(err, HS_ERR_FORMAT,
                       "tensor count %" PRIu64 " does not fit in the %zu bytes left", n_tensors,
                       left);
    if (n_kv > left / MIN_KV_BYTES)
        return hs_fail(err, HS_ERR_FORMAT,
                       "KV count %" PRIu64 " does not fit in the %zu bytes left", n_kv, left);
    g->n_tensors = (size_t)n_tensors;
    g->n_kv = (size_t)n_kv;
    g->kv = calloc(g->n_kv + 1, sizeof *g->kv);
    g->by_key = calloc(g->n_kv + 1, sizeof *g->by_key);
    g->tensors = calloc(g->n_tensors + 1, sizeof *g->tensors);
    g->by_name = calloc(g->n_tensors + 1, sizeof *g->by_name);
    if (!g->kv || !g->by_key || !g->tensors || !g->by_name)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    return HS_OK;
}

static hs_status parse(hs_gguf *g, const void *data, size_t size, hs_err *err)
{
    hs_cursor c = {.base = data, .size = size};
    hs_status s = read_header(g, &c, err);
    if (s == HS_OK)
        s = read_kvs(g, &c, err);
    if (s == HS_OK)
        s = sort_keys(g, err);
    if (s == HS_OK)
        s = read_alignment(g, err);
    for (size_t i = 0; s == HS_OK && i < g->n_tensors; i++)
        s = read_tensor(g, &c, i, err);
    if (s == HS_OK)
        s = sort_names(g, err);
    if (s == HS_OK)
        s = place_all(g, &c, err);
    return s;
}

/* Takes `map` over when all is well; it may be an empty one. */
static hs_status parse_new(hs_gguf **out, const void *data, size_t size, hs_map map, hs_err *err)
{
    *out = NULL;
    hs_gguf *g = calloc(1, sizeof *g);
    if (!g)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const hs_status s = parse(g, data, size, err);
    if (s != HS_OK) {
        hs_gguf_free(g);
        return s;
    }
    g->map = map;
    *out = g;
    return HS_OK;
}

hs_status hs_gguf_parse(hs_gguf **out, const void *data, size_t size, hs_err *err)
{
    return parse_new(out, data, size, (hs_map){0}, err);
}

hs_status hs_gguf_open(hs_gguf **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_map map;
    hs_status s = hs_map_open(&map, path, err);
    if (s == HS_OK) {
        s = parse_new(out, map.data, map.size, map, err);
        if (s != HS_OK)
            hs_map_close(&map);
    }
    return s == HS_OK ? s : hs_ctx(err, s, "%s: ", path);
}

void hs_gguf_free(hs_gguf *g)
{
    if (!g)
        return;
    free(g->kv);
    free(g->by_key);
    free(g->tensors);
    free(g->by_name);
    hs_map_close(&g->map);
    free(g);
}

/* --- by name ------------------------------------------------------------ */

const hs_kv *hs_gguf_find(const hs_gguf *g, const char *key)
{
    const hs_str want = {key, strlen(key)};
    size_t lo = 0, hi = g->n_kv;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const hs_kv *kv = &g->kv[g->by_key[mid]];
        const int k = str_order(kv->key, want);
        if (k == 0)
            return kv;
        if (k < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const hs_gguf_tensor *hs_gguf_tensor_find(const hs_gguf *g, const char *name)
{
    size_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const hs_gguf_tensor *t = &g->tensors[g->by_name[mid]];
        const int k = strcmp(t->name, name);
        if (k == 0)
            return t;
        if (k < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
