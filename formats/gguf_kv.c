/* Typed look-ups of KVs, and walking over their values. */
#include "formats/gguf.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const type_name[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
static const uint8_t type_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
enum { N_TYPES = sizeof type_bytes };
_Static_assert(sizeof type_name / sizeof *type_name == N_TYPES && N_TYPES == HS_KV_F64 + 1,
               "one row per type");

const char *hs_kv_type_name(uint32_t type) { return type < N_TYPES ? type_name[type] : "?"; }

size_t hs_kv_type_bytes(uint32_t type) { return type < N_TYPES ? type_bytes[type] : 0; }

bool hs_str_eq(hs_str s, const char *z)
{
    const size_t n = strlen(z);
    return s.n == n && memcmp(s.p, z, n) == 0;
}

static bool is_integer(hs_kv_type t) { return t <= HS_KV_I32 || t == HS_KV_U64 || t == HS_KV_I64; }

int64_t hs_kv_int(const hs_kv *kv, uint64_t i)
{
    const hs_kv_type t = kv->type == HS_KV_ARRAY ? kv->elem : kv->type;
    const uint8_t *p = kv->raw + i * hs_kv_type_bytes(t);
    switch (t) {
    case HS_KV_U8:
    case HS_KV_BOOL: return p[0];
    case HS_KV_I8: return (int8_t)p[0];
    case HS_KV_U16: return hs_get_u16(p);
    case HS_KV_I16: return (int16_t)hs_get_u16(p);
    case HS_KV_U32: return hs_get_u32(p);
    case HS_KV_I32: return (int32_t)hs_get_u32(p);
    case HS_KV_U64:
    case HS_KV_I64: return (int64_t)hs_get_u64(p);
    default: return 0;
    }
}

double hs_kv_real(const hs_kv *kv, uint64_t i)
{
    const hs_kv_type t = kv->type == HS_KV_ARRAY ? kv->elem : kv->type;
    const uint8_t *p = kv->raw + i * hs_kv_type_bytes(t);
    switch (t) {
    case HS_KV_F32: return (double)hs_get_f32(p);
    case HS_KV_F64: return hs_get_f64(p);
    case HS_KV_U64: return (double)hs_get_u64(p);
    default: return (double)hs_kv_int(kv, i);
    }
}

static hs_status wrong_type(hs_err *err, const hs_kv *kv, const char *want)
{
    return hs_fail(err, HS_ERR_FORMAT, "%.*s: expected %s, got %s%s",
                   kv->key.n < 80 ? (int)kv->key.n : 80, kv->key.p, want,
                   kv->type == HS_KV_ARRAY ? "array of " : "",
                   type_name[kv->type == HS_KV_ARRAY ? kv->elem : kv->type]);
}

/* An integer of any type in 0..max. */
static hs_status get_uint(const hs_gguf *g, const char *key, const char *want, uint64_t max,
                          uint64_t *out, hs_err *err)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (!is_integer(kv->type))
        return wrong_type(err, kv, want);
    const int64_t v = hs_kv_int(kv, 0);
    if (kv->type != HS_KV_U64 && v < 0)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected %s, got %" PRId64, key, want, v);
    if ((uint64_t)v > max)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected %s, got %" PRIu64, key, want, (uint64_t)v);
    *out = (uint64_t)v;
    return HS_OK;
}

hs_status hs_gguf_u32(const hs_gguf *g, const char *key, uint32_t *out, hs_err *err)
{
    uint64_t v = *out;
    const hs_status s = get_uint(g, key, "u32", UINT32_MAX, &v, err);
    *out = (uint32_t)v;
    return s;
}

hs_status hs_gguf_u64(const hs_gguf *g, const char *key, uint64_t *out, hs_err *err)
{
    return get_uint(g, key, "u64", UINT64_MAX, out, err);
}

hs_status hs_gguf_f32(const hs_gguf *g, const char *key, float *out, hs_err *err)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_F32)
        return wrong_type(err, kv, "f32");
    *out = hs_get_f32(kv->raw);
    return HS_OK;
}

hs_status hs_gguf_f64(const hs_gguf *g, const char *key, double *out, hs_err *err)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_F64 && kv->type != HS_KV_F32)
        return wrong_type(err, kv, "f64");
    *out = hs_kv_real(kv, 0);
    return HS_OK;
}

hs_status hs_gguf_bool(const hs_gguf *g, const char *key, bool *out, hs_err *err)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_BOOL)
        return wrong_type(err, kv, "bool");
    *out = kv->raw[0] != 0;
    return HS_OK;
}

hs_status hs_gguf_str(const hs_gguf *g, const char *key, hs_str *out, hs_err *err)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_STRING)
        return wrong_type(err, kv, "string");
    *out = (hs_str){(const char *)kv->raw, kv->raw_bytes};
    return HS_OK;
}

hs_status hs_gguf_array(const hs_gguf *g, const char *key, hs_kv_type elem, const hs_kv **out,
                        hs_err *err)
{
    *out = NULL;
    const hs_kv *kv = hs_gguf_find(g, key);
    if (!kv)
        return HS_OK;
    if (kv->type != HS_KV_ARRAY || kv->elem != elem) {
        char want[32];
        snprintf(want, sizeof want, "array of %s", hs_kv_type_name(elem));
        return wrong_type(err, kv, want);
    }
    *out = kv;
    return HS_OK;
}

hs_str hs_kv_next_str(const hs_kv *kv, size_t *pos)
{
    const uint8_t *p = kv->raw + *pos;
    const size_t n = (size_t)hs_get_u64(p);
    *pos += 8 + n;
    return (hs_str){(const char *)p + 8, n};
}
