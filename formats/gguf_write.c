/* The writer keeps KVs as the bytes they will be, and tensors as their table rows; a small hash
 * index makes setting a key again cheap whatever their number. */
#include "formats/gguf_write.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PWRI_I32 = 18, HEADER_BYTES = 24, MAX_KEY = 65535, DEFAULT_ALIGNMENT = 32 };

typedef struct written_kv {
    uint8_t *block; /* owned: the key, then type and value as in the file */
    size_t key_bytes, value_bytes;
} written_kv;

typedef struct written_tensor {
    char name[HS_GGUF_MAX_NAME + 1];
    uint32_t type; /* the number in the file */
    uint32_t n_dims;
    uint64_t ne[HS_GGUF_MAX_DIMS];
    uint64_t offset, bytes;
} written_tensor;

struct hs_gguf_writer {
    bool pwri;
    uint32_t alignment;
    written_kv *kv;
    size_t n_kv, cap_kv;
    size_t *slots;  /* index + 1 of a KV by its key's hash; 0 is empty */
    size_t n_slots; /* a power of two, more than twice n_kv; or 0 */
    written_tensor *tensors;
    size_t n_tensors, cap_tensors;
    uint64_t data_bytes; /* padded */
    uint64_t kv_bytes, table_bytes;
    hs_err fault; /* the first one; code HS_OK while there is none */
    /* While data is written: */
    hs_out *out;
    size_t at;        /* the current tensor */
    uint64_t written; /* of it */
};

hs_gguf_writer *hs_gguf_writer_new(bool pwri, uint32_t alignment)
{
    hs_gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->pwri = pwri;
    w->alignment = alignment;
    if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1))) {
        hs_fail(&w->fault, HS_ERR_USAGE,
                "alignment %" PRIu32 ", expected a power of two from 8 to 65536", alignment);
        w->alignment = DEFAULT_ALIGNMENT;
    }
    return w;
}

void hs_gguf_writer_free(hs_gguf_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_kv; i++)
        free(w->kv[i].block);
    free(w->kv);
    free(w->slots);
    free(w->tensors);
    free(w);
}

/* --- KVs ---------------------------------------------------------------- */

static bool no_memory(hs_gguf_writer *w)
{
    if (w->fault.code == HS_OK)
        hs_fail(&w->fault, HS_ERR_NOMEM, "out of memory");
    return false;
}

/* Where `key` is, or belongs. */
static size_t *slot_of(const hs_gguf_writer *w, hs_str key)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (uint8_t)key.p[i]) * 0x100000001b3u;
    for (size_t i = (size_t)(h ^ h >> 32);; i++) {
        size_t *slot = &w->slots[i & (w->n_slots - 1)];
        if (!*slot)
            return slot;
        const written_kv *kv = &w->kv[*slot - 1];
        if (kv->key_bytes == key.n && memcmp(kv->block, key.p, key.n) == 0)
            return slot;
    }
}

static bool grow_kvs(hs_gguf_writer *w)
{
    if (w->n_kv < w->cap_kv)
        return true;
    const size_t cap = w->cap_kv ? 2 * w->cap_kv : 32;
    written_kv *kv = realloc(w->kv, cap * sizeof *kv);
    if (!kv)
        return no_memory(w);
    w->kv = kv;
    w->cap_kv = cap;
    size_t *slots = calloc(4 * cap, sizeof *slots);
    if (!slots)
        return no_memory(w);
    free(w->slots);
    w->slots = slots;
    w->n_slots = 4 * cap;
    for (size_t i = 0; i < w->n_kv; i++)
        *slot_of(w, (hs_str){(const char *)w->kv[i].block, w->kv[i].key_bytes}) = i + 1;
    return true;
}

/* Reserve the value of `key`: its type and `bytes` more; NULL after a fault. */
static uint8_t *new_value(hs_gguf_writer *w, hs_str key, uint32_t type, uint64_t bytes)
{
    if (w->fault.code != HS_OK)
        return NULL;
    if (key.n == 0 || key.n > MAX_KEY || memchr(key.p, 0, key.n)) {
        hs_fail(&w->fault, HS_ERR_FORMAT, "KV %zu: key of %zu bytes, expected 1 to %d without NUL",
                w->n_kv, key.n, MAX_KEY);
        return NULL;
    }
    uint8_t *block = bytes < SIZE_MAX / 2 ? malloc(key.n + 4 + (size_t)bytes) : NULL;
    if (!block || !grow_kvs(w)) {
        free(block);
        no_memory(w);
        return NULL;
    }
    memcpy(block, key.p, key.n);
    memcpy(block + key.n, &type, 4);
    const written_kv kv = {block, key.n, 4 + (size_t)bytes};
    size_t *slot = slot_of(w, key);
    if (*slot) {
        written_kv *old = &w->kv[*slot - 1];
        w->kv_bytes -= 8 + old->key_bytes + old->value_bytes;
        free(old->block);
        *old = kv;
    } else {
        w->kv[w->n_kv++] = kv;
        *slot = w->n_kv;
    }
    w->kv_bytes += 8 + key.n + kv.value_bytes;
    return block + key.n + 4;
}

static hs_str from_z(const char *z) { return (hs_str){z, strlen(z)}; }

static void set_plain(hs_gguf_writer *w, const char *key, hs_kv_type type, const void *v, size_t n)
{
    uint8_t *p = new_value(w, from_z(key), type, n);
    if (p)
        memcpy(p, v, n);
}

void hs_gguf_set_u32(hs_gguf_writer *w, const char *key, uint32_t v)
{
    set_plain(w, key, HS_KV_U32, &v, 4);
}

void hs_gguf_set_u64(hs_gguf_writer *w, const char *key, uint64_t v)
{
    set_plain(w, key, HS_KV_U64, &v, 8);
}

void hs_gguf_set_f32(hs_gguf_writer *w, const char *key, float v)
{
    set_plain(w, key, HS_KV_F32, &v, 4);
}

void hs_gguf_set_f64(hs_gguf_writer *w, const char *key, double v)
{
    set_plain(w, key, HS_KV_F64, &v, 8);
}

void hs_gguf_set_bool(hs_gguf_writer *w, const char *key, bool v)
{
    const uint8_t b = v;
    set_plain(w, key, HS_KV_BOOL, &b, 1);
}

static uint8_t *put(uint8_t *p, const void *v, size_t n)
{
    if (n)
        memcpy(p, v, n);
    return p + n;
}

static uint8_t *put_u32(uint8_t *p, uint32_t v) { return put(p, &v, 4); }
static uint8_t *put_u64(uint8_t *p, uint64_t v) { return put(p, &v, 8); }

void hs_gguf_set_strn(hs_gguf_writer *w, const char *key, hs_str v)
{
    uint8_t *p = new_value(w, from_z(key), HS_KV_STRING, 8 + (uint64_t)v.n);
    if (p)
        put(put_u64(p, v.n), v.p, v.n);
}

void hs_gguf_set_str(hs_gguf_writer *w, const char *key, const char *v)
{
    hs_gguf_set_strn(w, key, from_z(v));
}

void hs_gguf_set_array(hs_gguf_writer *w, const char *key, hs_kv_type elem, const void *v,
                       uint64_t n)
{
    uint64_t bytes;
    if (!hs_kv_type_bytes(elem) || !hs_mul(n, hs_kv_type_bytes(elem), &bytes) ||
        bytes > SIZE_MAX / 2) {
        if (w->fault.code == HS_OK)
            hs_fail(&w->fault, HS_ERR_FORMAT, "%s: array of %" PRIu64 " %s values", key, n,
                    hs_kv_type_name(elem));
        return;
    }
    uint8_t *p = new_value(w, from_z(key), HS_KV_ARRAY, 12 + bytes);
    if (p)
        put(put_u64(put_u32(p, elem), n), v, (size_t)bytes);
}

void hs_gguf_set_str_array(hs_gguf_writer *w, const char *key, const hs_str *v, uint64_t n)
{
    uint64_t bytes = 12;
    for (uint64_t i = 0; i < n; i++)
        bytes += 8 + (uint64_t)v[i].n;
    uint8_t *p = new_value(w, from_z(key), HS_KV_ARRAY, bytes);
    if (!p)
        return;
    p = put_u64(put_u32(p, HS_KV_STRING), n);
    for (uint64_t i = 0; i < n; i++)
        p = put(put_u64(p, v[i].n), v[i].p, v[i].n);
}

void hs_gguf_copy_kv(hs_gguf_writer *w, const hs_kv *kv)
{
    const size_t head = kv->type == HS_KV_ARRAY ? 12 : kv->type == HS_KV_STRING ? 8 : 0;
    uint8_t *p = new_value(w, kv->key, kv->type, head + (uint64_t)kv->raw_bytes);
    if (!p)
        return;
    if (kv->type == HS_KV_ARRAY)
        p = put_u64(put_u32(p, kv->elem), kv->count);
    else if (kv->type == HS_KV_STRING)
        p = put_u64(p, kv->raw_bytes);
    put(p, kv->raw, kv->raw_bytes);
}

/* --- tensors ------------------------------------------------------------ */

static bool grow_tensors(hs_gguf_writer *w)
{
    if (w->n_tensors < w->cap_tensors)
        return true;
    const size_t cap = w->cap_tensors ? 2 * w->cap_tensors : 64;
    written_tensor *t = realloc(w->tensors, cap * sizeof *t);
    if (!t)
        return no_memory(w);
    w->tensors = t;
    w->cap_tensors = cap;
    return true;
}

static hs_status measure(hs_gguf_writer *w, written_tensor *t, hs_dtype dtype, const uint64_t *ne)
{
    if (!hs_dtype_get(dtype))
        return hs_fail(&w->fault, HS_ERR_FORMAT, "unknown tensor type %d", (int)dtype);
    if (t->n_dims < 1 || t->n_dims > HS_GGUF_MAX_DIMS)
        return hs_fail(&w->fault, HS_ERR_FORMAT, "%" PRIu32 " dimensions, expected 1 to %d",
                       t->n_dims, HS_GGUF_MAX_DIMS);
    if (!hs_dtype_row_bytes(dtype, ne[0], &t->bytes))
        return hs_fail(&w->fault, HS_ERR_FORMAT,
                       "row length %" PRIu64 " is not a multiple of %" PRIu32 ", the block of %s",
                       ne[0], hs_dtype_get(dtype)->block_elems, hs_dtype_name(dtype));
    for (uint32_t k = 0; k < t->n_dims; k++) {
        t->ne[k] = ne[k];
        if (ne[k] == 0 && !(t->n_dims == 1 && dtype == HS_I32))
            return hs_fail(&w->fault, HS_ERR_FORMAT, "dimension %" PRIu32 " is 0", k);
        if (k && !hs_mul(t->bytes, ne[k], &t->bytes))
            return hs_fail(&w->fault, HS_ERR_FORMAT, "the size overflows");
    }
    uint64_t padded;
    t->offset = w->data_bytes;
    if (!hs_align_up(t->bytes, w->alignment, &padded) ||
        !hs_add(w->data_bytes, padded, &w->data_bytes) || w->data_bytes > INT64_MAX)
        return hs_fail(&w->fault, HS_ERR_FORMAT, "the file's size overflows");
    return HS_OK;
}

void hs_gguf_add_tensor(hs_gguf_writer *w, const char *name, hs_dtype dtype, uint32_t n_dims,
                        const uint64_t *ne)
{
    if (w->fault.code != HS_OK || !grow_tensors(w))
        return;
    written_tensor *t = &w->tensors[w->n_tensors];
    *t = (written_tensor){.n_dims = n_dims};
    t->type = w->pwri && dtype == HS_I32 ? PWRI_I32 : (uint32_t)dtype;
    const size_t n = strlen(name);
    if (n == 0 || n > HS_GGUF_MAX_NAME) {
        hs_fail(&w->fault, HS_ERR_FORMAT, "tensor name of %zu bytes, expected 1 to %d: %.80s", n,
                HS_GGUF_MAX_NAME, name);
        return;
    }
    memcpy(t->name, name, n + 1);
    const hs_status s = measure(w, t, dtype, ne);
    if (s != HS_OK) {
        hs_ctx(&w->fault, s, "%s: ", name);
        return;
    }
    w->table_bytes += 8 + n + 4 + 8 * (uint64_t)n_dims + 4 + 8;
    w->n_tensors++;
}

/* --- the file ----------------------------------------------------------- */

static const char alignment_key[] = "general.alignment";
enum { ALIGNMENT_KEY = sizeof alignment_key - 1 };

static const written_kv *find(const hs_gguf_writer *w, const char *key)
{
    const size_t slot = w->n_slots ? *slot_of(w, from_z(key)) : 0;
    return slot ? &w->kv[slot - 1] : NULL;
}

/* An alignment that nobody set as a KV is added after the others. */
static bool adds_alignment(const hs_gguf_writer *w)
{
    return w->alignment != DEFAULT_ALIGNMENT && !find(w, alignment_key);
}

static uint64_t table_end(const hs_gguf_writer *w)
{
    const uint64_t extra = adds_alignment(w) ? 8 + ALIGNMENT_KEY + 4 + 4 : 0;
    return HEADER_BYTES + w->kv_bytes + extra + w->table_bytes;
}

static uint64_t data_start(const hs_gguf_writer *w)
{
    const uint64_t a = w->alignment;
    return (table_end(w) + a - 1) & ~(a - 1);
}

uint64_t hs_gguf_writer_size(const hs_gguf_writer *w) { return data_start(w) + w->data_bytes; }

static hs_status put_zeros(hs_out *out, uint64_t n, hs_err *err)
{
    static const uint8_t zeros[4096];
    hs_status s = HS_OK;
    while (s == HS_OK && n) {
        const size_t k = n < sizeof zeros ? (size_t)n : sizeof zeros;
        s = hs_out_write(out, zeros, k, err);
        n -= k;
    }
    return s;
}

static hs_status put_kv(hs_out *out, const written_kv *kv, hs_err *err)
{
    uint8_t len[8];
    put_u64(len, kv->key_bytes);
    const hs_status s = hs_out_write(out, len, sizeof len, err);
    return s == HS_OK ? hs_out_write(out, kv->block, kv->key_bytes + kv->value_bytes, err) : s;
}

static hs_status put_kvs(hs_gguf_writer *w, hs_err *err)
{
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < w->n_kv; i++)
        s = put_kv(w->out, &w->kv[i], err);
    if (s == HS_OK && adds_alignment(w)) {
        uint8_t block[ALIGNMENT_KEY + 8];
        put_u32(put_u32(put(block, alignment_key, ALIGNMENT_KEY), HS_KV_U32), w->alignment);
        s = put_kv(w->out, &(written_kv){block, ALIGNMENT_KEY, 8}, err);
    }
    return s;
}

static hs_status put_tensor(hs_out *out, const written_tensor *t, hs_err *err)
{
    uint8_t row[8 + HS_GGUF_MAX_NAME + 4 + 8 * HS_GGUF_MAX_DIMS + 4 + 8], *p = row;
    const size_t n = strlen(t->name);
    p = put(put_u64(p, n), t->name, n);
    p = put_u32(p, t->n_dims);
    p = put(p, t->ne, 8 * (size_t)t->n_dims);
    p = put_u64(put_u32(p, t->type), t->offset);
    return hs_out_write(out, row, (size_t)(p - row), err);
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const written_tensor *t = tensors;
    return strcmp(t[*(const size_t *)a].name, t[*(const size_t *)b].name);
}

static hs_status check_names(const hs_gguf_writer *w, hs_err *err)
{
    size_t *order = malloc(w->n_tensors * sizeof *order + 1);
    if (!order)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < w->n_tensors; i++)
        order[i] = i;
    qsort_r(order, w->n_tensors, sizeof *order, by_name, w->tensors);
    hs_status s = HS_OK;
    for (size_t i = 1; s == HS_OK && i < w->n_tensors; i++)
        if (strcmp(w->tensors[order[i - 1]].name, w->tensors[order[i]].name) == 0)
            s = hs_fail(err, HS_ERR_FORMAT, "two tensors are called %s", w->tensors[order[i]].name);
    free(order);
    return s;
}

static hs_status check_declarations(const hs_gguf_writer *w, hs_err *err)
{
    if (w->fault.code != HS_OK)
        return hs_fail(err, w->fault.code, "%s", w->fault.msg);
    uint8_t want[8];
    put_u32(put_u32(want, HS_KV_U32), w->alignment);
    const written_kv *kv = find(w, alignment_key);
    if (kv && (kv->value_bytes != sizeof want ||
               memcmp(kv->block + ALIGNMENT_KEY, want, sizeof want) != 0))
        return hs_fail(err, HS_ERR_FORMAT, "%s is not the alignment %" PRIu32 " of the data",
                       alignment_key, w->alignment);
    return check_names(w, err);
}

/* Go on to the next tensor that has data, padding the one just finished. */
static hs_status step(hs_gguf_writer *w, hs_err *err)
{
    while (w->at < w->n_tensors && w->written == w->tensors[w->at].bytes) {
        const uint64_t a = w->alignment, n = w->written;
        const hs_status s = put_zeros(w->out, ((n + a - 1) & ~(a - 1)) - n, err);
        if (s != HS_OK)
            return s;
        w->at++;
        w->written = 0;
    }
    return HS_OK;
}

hs_status hs_gguf_writer_begin(hs_gguf_writer *w, hs_out *out, hs_err *err)
{
    hs_status s = check_declarations(w, err);
    if (s != HS_OK)
        return s;
    w->out = out;
    w->at = 0;
    w->written = 0;
    uint8_t head[HEADER_BYTES];
    put(head, w->pwri ? "PWRI" : "GGUF", 4);
    put_u32(head + 4, 3);
    put_u64(head + 8, w->n_tensors);
    put_u64(head + 16, w->n_kv + adds_alignment(w));
    s = hs_out_write(out, head, sizeof head, err);
    if (s == HS_OK)
        s = put_kvs(w, err);
    for (size_t i = 0; s == HS_OK && i < w->n_tensors; i++)
        s = put_tensor(out, &w->tensors[i], err);
    if (s == HS_OK)
        s = put_zeros(out, data_start(w) - table_end(w), err);
    return s == HS_OK ? step(w, err) : s;
}

hs_status hs_gguf_writer_data(hs_gguf_writer *w, const void *data, uint64_t bytes, hs_err *err)
{
    if (bytes == 0)
        return HS_OK;
    if (w->at == w->n_tensors)
        return hs_fail(err, HS_ERR_FAILED, "%" PRIu64 " bytes after the last tensor", bytes);
    const written_tensor *t = &w->tensors[w->at];
    if (bytes > t->bytes - w->written)
        return hs_fail(err, HS_ERR_FAILED, "%s: %" PRIu64 " bytes where %" PRIu64 " are missing",
                       t->name, bytes, t->bytes - w->written);
    const hs_status s = hs_out_write(w->out, data, (size_t)bytes, err);
    if (s != HS_OK)
        return s;
    w->written += bytes;
    return step(w, err);
}

hs_status hs_gguf_writer_end(hs_gguf_writer *w, hs_err *err)
{
    if (w->at < w->n_tensors)
        return hs_fail(err, HS_ERR_FAILED, "%s: %" PRIu64 " of %" PRIu64 " bytes were written",
                       w->tensors[w->at].name, w->written, w->tensors[w->at].bytes);
    w->out = NULL;
    return HS_OK;
}
