/* Checkpoints: which files make a folder's model, and element access whatever the container.
 * The one surprise: a file's kind is decided by its bytes, since both kinds go by any name. */
#include "formats/checkpoint.h"

#include "formats/cursor.h"
#include "formats/dtype.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/torch_zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct file {
    char *path;
    hs_map map;
    hs_torch_zip *zip; /* NULL for safetensors */
} file;

struct hs_checkpoint {
    file *file;
    size_t n_file;
    hs_ckpt_tensor *tensor;
    size_t n, cap;
    const hs_ckpt_tensor **by_name;
};

void hs_checkpoint_free(hs_checkpoint *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        free(c->tensor[i].name);
    for (size_t i = 0; i < c->n_file; i++) {
        hs_torch_zip_free(c->file[i].zip);
        hs_map_close(&c->file[i].map);
        free(c->file[i].path);
    }
    free(c->tensor);
    free(c->by_name);
    free(c->file);
    free(c);
}

size_t hs_checkpoint_count(const hs_checkpoint *c) { return c->n; }

const hs_ckpt_tensor *hs_checkpoint_at(const hs_checkpoint *c, size_t i) { return &c->tensor[i]; }

const hs_ckpt_tensor *hs_checkpoint_find(const hs_checkpoint *c, const char *name)
{
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int d = strcmp(c->by_name[mid]->name, name);
        if (d == 0)
            return c->by_name[mid];
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* --- opening ------------------------------------------------------------- */

static hs_status add_tensor(void *ud, const hs_ckpt_tensor *t, hs_err *err)
{
    hs_checkpoint *c = ud;
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 64;
        hs_ckpt_tensor *p = realloc(c->tensor, cap * sizeof *p);
        if (!p)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory");
        c->tensor = p;
        c->cap = cap;
    }
    hs_ckpt_tensor *d = &c->tensor[c->n];
    *d = *t;
    d->name = strdup(t->name);
    d->file = c->file[c->n_file - 1].path;
    if (!d->name)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    c->n++;
    return HS_OK;
}

static bool is_torch(const uint8_t *p, size_t n)
{
    /* A safetensors header length may look like either magic; its brace settles it. */
    if (n >= 9 && p[8] == '{' && hs_get_u64(p) <= n - 8)
        return false;
    return n >= 2 && ((p[0] == 'P' && p[1] == 'K') || (p[0] == 0x80 && p[1] <= 5));
}

/* Takes `path` (malloc'd, or NULL when that failed). */
static hs_status add_file(hs_checkpoint *c, char *path, hs_err *err)
{
    file *p = realloc(c->file, (c->n_file + 1) * sizeof *p);
    if (p)
        c->file = p;
    if (!p || !path) {
        free(path);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    file *f = &c->file[c->n_file++];
    *f = (file){.path = path};
    hs_status s = hs_map_open(&f->map, path, err);
    if (s == HS_OK && is_torch(f->map.data, f->map.size))
        s = hs_torch_zip_parse(&f->zip, f->map.data, f->map.size, add_tensor, c, err);
    else if (s == HS_OK)
        s = hs_safetensors_parse(f->map.data, f->map.size, add_tensor, c, err);
    return s == HS_OK ? s : hs_ctx(err, s, "%s: ", path);
}

static int by_name(const void *a, const void *b)
{
    const hs_ckpt_tensor *x = *(hs_ckpt_tensor *const *)a, *y = *(hs_ckpt_tensor *const *)b;
    const int d = strcmp(x->name, y->name);
    return d ? d : (x > y) - (x < y);
}

static hs_status index_names(hs_checkpoint *c, hs_err *err)
{
    c->by_name = malloc((c->n + 1) * sizeof(const hs_ckpt_tensor *));
    if (!c->by_name)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < c->n; i++)
        c->by_name[i] = &c->tensor[i];
    qsort(c->by_name, c->n, sizeof(const hs_ckpt_tensor *), by_name);
    for (size_t i = 1; i < c->n; i++) {
        const hs_ckpt_tensor *a = c->by_name[i - 1], *b = c->by_name[i];
        if (strcmp(a->name, b->name) != 0)
            continue;
        if (a->file == b->file)
            return hs_fail(err, HS_ERR_FORMAT, "%s: duplicate tensor name %.200s", a->file,
                           a->name);
        return hs_fail(err, HS_ERR_FORMAT, "%s: tensor %.200s is also in %s", b->file, b->name,
                       a->file);
    }
    return HS_OK;
}

static hs_status new_checkpoint(hs_checkpoint **c, hs_err *err)
{
    *c = calloc(1, sizeof **c);
    return *c ? HS_OK : hs_fail(err, HS_ERR_NOMEM, "out of memory");
}

static hs_status finish(hs_checkpoint *c, hs_status s, hs_checkpoint **out)
{
    if (s == HS_OK)
        *out = c;
    else
        hs_checkpoint_free(c);
    return s;
}

hs_status hs_checkpoint_open_file(hs_checkpoint **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_checkpoint *c;
    hs_status s = new_checkpoint(&c, err);
    if (s != HS_OK)
        return s;
    s = add_file(c, strdup(path), err);
    if (s == HS_OK)
        s = index_names(c, err);
    return finish(c, s, out);
}

/* --- an index and its shards --------------------------------------------- */

typedef struct shard {
    const char *name; /* borrowed from the JSON tree */
    size_t promised;  /* tensors the index expects in it */
} shard;

static int shard_by_name(const void *a, const void *b)
{
    return strcmp(((const shard *)a)->name, ((const shard *)b)->name);
}

/* The distinct files of a weight map, sorted: the index's own order means nothing. */
static hs_status list_shards(json_t *map, shard *shards, size_t *n_shards, hs_err *err)
{
    size_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        const char *name = json_string_value(value);
        if (!name)
            return hs_fail(err, HS_ERR_FORMAT, "weight_map: %.200s: expected a file name", key);
        if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strstr(name, ".."))
            return hs_fail(err, HS_ERR_FORMAT,
                           "weight_map: %.100s: \"%.200s\" is not a plain file name", key, name);
        shards[n++] = (shard){name, 1};
    }
    if (!n)
        return hs_fail(err, HS_ERR_FORMAT, "weight_map is empty");
    qsort(shards, n, sizeof *shards, shard_by_name);
    size_t k = 0;
    for (size_t i = 1; i < n; i++) {
        if (strcmp(shards[i].name, shards[k].name) == 0)
            shards[k].promised++;
        else
            shards[++k] = shards[i];
    }
    *n_shards = k + 1;
    return HS_OK;
}

static hs_status check_present(const char *dir, const shard *shards, size_t n, hs_err *err)
{
    char missing[320] = "";
    size_t used = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = hs_path_join(dir, shards[i].name);
        if (!path)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory");
        const bool there = access(path, F_OK) == 0;
        free(path);
        if (there)
            continue;
        count++;
        if (used < sizeof missing) {
            const int k = snprintf(missing + used, sizeof missing - used, "%s%s (%zu tensors)",
                                   used ? ", " : "", shards[i].name, shards[i].promised);
            used += k > 0 ? (size_t)k : 0;
        }
    }
    if (!count)
        return HS_OK;
    return hs_fail(err, HS_ERR_INPUT, "%zu of %zu shards are missing (incomplete download?): %s",
                   count, n, missing);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static hs_status check_promises(const hs_checkpoint *c, json_t *map, hs_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        const char *where = json_string_value(value);
        const hs_ckpt_tensor *t = hs_checkpoint_find(c, key);
        if (!t)
            return hs_fail(err, HS_ERR_FORMAT, "tensor %.200s is promised in %s, which lacks it",
                           key, where);
        if (strcmp(base_name(t->file), where) != 0)
            return hs_fail(err, HS_ERR_FORMAT, "tensor %.200s is promised in %s and stands in %s",
                           key, where, base_name(t->file));
    }
    return HS_OK;
}

static hs_status add_shards(hs_checkpoint *c, const char *dir, const char *path, json_t *map,
                            hs_err *err)
{
    shard *shards = calloc(json_object_size(map) + 1, sizeof *shards);
    if (!shards)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    size_t n = 0;
    hs_status s = list_shards(map, shards, &n, err);
    if (s == HS_OK)
        s = check_present(dir, shards, n, err);
    if (s != HS_OK)
        s = hs_ctx(err, s, "%s: ", path);
    for (size_t i = 0; i < n && s == HS_OK; i++)
        s = add_file(c, hs_path_join(dir, shards[i].name), err);
    if (s == HS_OK)
        s = index_names(c, err);
    free(shards);
    return s;
}

static hs_status open_index(hs_checkpoint *c, const char *dir, const char *path, hs_err *err)
{
    json_t *root;
    hs_status s = hs_json_read(&root, path, err);
    if (s != HS_OK)
        return s;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        s = hs_fail(err, HS_ERR_FORMAT, "%s: weight_map: expected an object", path);
    if (s == HS_OK)
        s = add_shards(c, dir, path, map, err);
    if (s == HS_OK) {
        s = check_promises(c, map, err);
        if (s != HS_OK)
            s = hs_ctx(err, s, "%s: ", path);
    }
    json_decref(root);
    return s;
}

hs_status hs_checkpoint_open_dir(hs_checkpoint **out, const char *dir, hs_err *err)
{
    static const struct {
        const char *name;
        bool index;
    } kinds[] = {
        {"model.safetensors.index.json", true},
        {"model.safetensors", false},
        {"pytorch_model.bin.index.json", true},
        {"pytorch_model.bin", false},
    };
    *out = NULL;
    hs_checkpoint *c;
    hs_status s = new_checkpoint(&c, err);
    if (s != HS_OK)
        return s;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *path = hs_path_join(dir, kinds[i].name);
        if (!path)
            return finish(c, hs_fail(err, HS_ERR_NOMEM, "out of memory"), out);
        if (access(path, F_OK) != 0) {
            free(path);
            continue;
        }
        if (kinds[i].index) {
            s = open_index(c, dir, path, err);
            free(path);
        } else {
            s = add_file(c, path, err);
            if (s == HS_OK)
                s = index_names(c, err);
        }
        return finish(c, s, out);
    }
    s = hs_fail(err, HS_ERR_INPUT,
                "%s: no weights: expected model.safetensors or pytorch_model.bin, or the "
                ".index.json of either",
                dir);
    return finish(c, s, out);
}

/* --- elements ------------------------------------------------------------ */

uint32_t hs_elem_bytes(hs_elem e)
{
    switch (e) {
    case HS_ELEM_F64:
    case HS_ELEM_I64: return 8;
    case HS_ELEM_F32:
    case HS_ELEM_I32: return 4;
    case HS_ELEM_F16:
    case HS_ELEM_BF16:
    case HS_ELEM_I16: return 2;
    case HS_ELEM_I8:
    case HS_ELEM_U8:
    case HS_ELEM_BOOL: return 1;
    case HS_ELEM_OTHER: break;
    }
    return 0;
}

uint64_t hs_ckpt_elems(const hs_ckpt_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i]; /* the readers have checked that this does not wrap */
    return n;
}

static const uint8_t *element(const hs_ckpt_tensor *t, uint64_t i)
{
    uint64_t at = 0;
    for (uint32_t d = t->n_dims; d-- > 0;) {
        at += i % t->shape[d] * (uint64_t)t->stride[d];
        i /= t->shape[d];
    }
    return t->data + at * hs_elem_bytes(t->elem);
}

static bool is_float(hs_elem e)
{
    return e == HS_ELEM_F64 || e == HS_ELEM_F32 || e == HS_ELEM_F16 || e == HS_ELEM_BF16;
}

static hs_status wrong_kind(const hs_ckpt_tensor *t, const char *expected, hs_err *err)
{
    return hs_fail(err, HS_ERR_UNSUPPORTED, "%s: tensor %.200s is of type %s, expected %s", t->file,
                   t->name, t->elem_name, expected);
}

hs_status hs_ckpt_row_f32(const hs_ckpt_tensor *t, uint64_t row, float *out, hs_err *err)
{
    if (!is_float(t->elem))
        return wrong_kind(t, "float weights (is this an already quantized checkpoint?)", err);
    if (t->n_dims < 1 || t->n_dims > 2 || row >= (t->n_dims == 2 ? t->shape[0] : 1))
        return hs_fail(err, HS_ERR_FORMAT, "%s: tensor %.200s has no row %" PRIu64, t->file,
                       t->name, row);
    const uint64_t n = t->shape[t->n_dims - 1];
    if (!n)
        return HS_OK;
    const size_t size = hs_elem_bytes(t->elem), step = size * (size_t)t->stride[t->n_dims - 1];
    const uint8_t *p = t->data + (t->n_dims == 2 ? row * (uint64_t)t->stride[0] * size : 0);
    switch (t->elem) {
    case HS_ELEM_F32:
        for (uint64_t i = 0; i < n; i++, p += step)
            out[i] = hs_get_f32(p);
        break;
    case HS_ELEM_F16:
        for (uint64_t i = 0; i < n; i++, p += step)
            out[i] = hs_f16_to_f32(hs_get_u16(p));
        break;
    case HS_ELEM_BF16:
        for (uint64_t i = 0; i < n; i++, p += step)
            out[i] = hs_bf16_to_f32(hs_get_u16(p));
        break;
    default:
        for (uint64_t i = 0; i < n; i++, p += step)
            out[i] = (float)hs_get_f64(p);
        break;
    }
    return HS_OK;
}

static int64_t integer(hs_elem e, const uint8_t *p)
{
    switch (e) {
    case HS_ELEM_I64: return (int64_t)hs_get_u64(p);
    case HS_ELEM_I32: return (int32_t)hs_get_u32(p);
    case HS_ELEM_I16: return (int16_t)hs_get_u16(p);
    case HS_ELEM_I8: return (int8_t)*p;
    case HS_ELEM_BOOL: return *p != 0;
    default: return *p;
    }
}

static hs_status check_index(const hs_ckpt_tensor *t, uint64_t i, hs_err *err)
{
    if (i >= hs_ckpt_elems(t))
        return hs_fail(err, HS_ERR_FORMAT, "%s: tensor %.200s has no element %" PRIu64, t->file,
                       t->name, i);
    return HS_OK;
}

hs_status hs_ckpt_value(const hs_ckpt_tensor *t, uint64_t i, double *out, hs_err *err)
{
    const hs_status s = check_index(t, i, err);
    if (s != HS_OK)
        return s;
    if (t->elem == HS_ELEM_OTHER)
        return wrong_kind(t, "a number we know", err);
    const uint8_t *p = element(t, i);
    switch (t->elem) {
    case HS_ELEM_F64: *out = hs_get_f64(p); break;
    case HS_ELEM_F32: *out = (double)hs_get_f32(p); break;
    case HS_ELEM_F16: *out = (double)hs_f16_to_f32(hs_get_u16(p)); break;
    case HS_ELEM_BF16: *out = (double)hs_bf16_to_f32(hs_get_u16(p)); break;
    default: *out = (double)integer(t->elem, p); break;
    }
    return HS_OK;
}

hs_status hs_ckpt_int(const hs_ckpt_tensor *t, uint64_t i, int64_t *out, hs_err *err)
{
    const hs_status s = check_index(t, i, err);
    if (s != HS_OK)
        return s;
    if (is_float(t->elem) || t->elem == HS_ELEM_OTHER)
        return wrong_kind(t, "an integer type", err);
    *out = integer(t->elem, element(t, i));
    return HS_OK;
}
