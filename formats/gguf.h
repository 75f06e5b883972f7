#ifndef HS_FORMATS_GGUF_H
#define HS_FORMATS_GGUF_H

/* Reader of GGUF version 2 and 3, and of PWRI (the same container, another magic).
 *
 * Everything is checked at the door: after hs_gguf_open every string, array and tensor of the
 * object lies inside the file, names are unique, tensors do not overlap, shapes and sizes do
 * not wrap.  Strings and data are borrowed from the map and live as long as the object. */

#include "formats/dtype.h"
#include "formats/err.h"
#include "formats/file.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hs_kv_type {
    HS_KV_U8 = 0,
    HS_KV_I8,
    HS_KV_U16,
    HS_KV_I16,
    HS_KV_U32,
    HS_KV_I32,
    HS_KV_F32,
    HS_KV_BOOL,
    HS_KV_STRING,
    HS_KV_ARRAY,
    HS_KV_U64,
    HS_KV_I64,
    HS_KV_F64,
} hs_kv_type;

enum { HS_GGUF_MAX_NAME = 63, HS_GGUF_MAX_DIMS = 4 };

/* Bytes inside the file, without a NUL. */
typedef struct hs_str {
    const char *p;
    size_t n;
} hs_str;

typedef struct hs_kv {
    hs_str key; /* 1..65535 bytes, no NUL inside */
    hs_kv_type type;
    hs_kv_type elem;    /* of an array; never HS_KV_ARRAY */
    uint64_t count;     /* of an array */
    const uint8_t *raw; /* the value's bytes (a string or array: after its length / header) */
    size_t raw_bytes;
} hs_kv;

typedef struct hs_gguf_tensor {
    char name[HS_GGUF_MAX_NAME + 1];
    hs_dtype dtype;
    uint32_t n_dims; /* 1..4 */
    uint64_t ne[4];  /* ne[0] varies fastest; unused ones are 1 */
    uint64_t offset; /* from the start of the data section */
    uint64_t bytes;
    const uint8_t *data; /* NULL when bytes is 0 */
} hs_gguf_tensor;

typedef struct hs_gguf {
    bool pwri; /* magic PWRI: sparse layout, old type numbers */
    uint32_t version;
    uint32_t alignment;
    uint64_t data_start;
    size_t n_kv, n_tensors;
    hs_kv *kv;               /* in file order */
    hs_gguf_tensor *tensors; /* in file order */
    hs_map map;              /* owned; empty after hs_gguf_parse */
    size_t *by_name;         /* owned: tensor indices sorted by name */
    size_t *by_key;          /* owned: KV indices sorted by key */
} hs_gguf;

/* Open and check `path`; messages start with it. */
HS_NODISCARD hs_status hs_gguf_open(hs_gguf **out, const char *path, hs_err *err);
/* The same on borrowed memory, which must outlive the object.  `data` need not be aligned. */
HS_NODISCARD hs_status hs_gguf_parse(hs_gguf **out, const void *data, size_t size, hs_err *err);
void hs_gguf_free(hs_gguf *g);

/* NULL when absent. */
const hs_kv *hs_gguf_find(const hs_gguf *g, const char *key);
const hs_gguf_tensor *hs_gguf_tensor_find(const hs_gguf *g, const char *name);

/* Typed look-ups.  *out keeps its value (the default) when the key is absent; a value of
 * another type or outside the target's range is HS_ERR_FORMAT naming key and types.  Integer
 * look-ups accept every integer type whose value fits. */
HS_NODISCARD hs_status hs_gguf_u32(const hs_gguf *g, const char *key, uint32_t *out, hs_err *err);
HS_NODISCARD hs_status hs_gguf_u64(const hs_gguf *g, const char *key, uint64_t *out, hs_err *err);
HS_NODISCARD hs_status hs_gguf_f32(const hs_gguf *g, const char *key, float *out, hs_err *err);
HS_NODISCARD hs_status hs_gguf_f64(const hs_gguf *g, const char *key, double *out, hs_err *err);
HS_NODISCARD hs_status hs_gguf_bool(const hs_gguf *g, const char *key, bool *out, hs_err *err);
HS_NODISCARD hs_status hs_gguf_str(const hs_gguf *g, const char *key, hs_str *out, hs_err *err);
/* An array of exactly `elem`; *out NULL when absent. */
HS_NODISCARD hs_status hs_gguf_array(const hs_gguf *g, const char *key, hs_kv_type elem,
                                     const hs_kv **out, hs_err *err);

/* Walk a string array: `pos` starts at 0 and is advanced; call it kv->count times. */
hs_str hs_kv_next_str(const hs_kv *kv, size_t *pos);
/* Element i of a numeric array, or a scalar with i = 0, as stored, widened. */
int64_t hs_kv_int(const hs_kv *kv, uint64_t i); /* integer and bool types */
double hs_kv_real(const hs_kv *kv, uint64_t i); /* F32, F64 and integer types */
/* "u32", "string", "array"… */
const char *hs_kv_type_name(uint32_t type);
/* Bytes of one value; 0 for strings, arrays and unknown types. */
size_t hs_kv_type_bytes(uint32_t type);
bool hs_str_eq(hs_str s, const char *z);

#ifdef __cplusplus
}
#endif

#endif
