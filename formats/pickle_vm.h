#ifndef HS_FORMATS_PICKLE_VM_H
#define HS_FORMATS_PICKLE_VM_H

/* The pickle interpreter's inside, shared by pickle.c (stack, memo, containers) and
 * pickle_tensor.c (what may be called, and the walk over the result); nobody else includes it. */

#include "formats/cursor.h"
#include "formats/pickle.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HS_PK_MAX_VALUES = 1 << 19, /* about 25 per tensor: 20,000 tensors a file, in under 64 MB */
    HS_PK_MAX_TENSORS = 1 << 17,
};

typedef enum hs_pk_type {
    HS_PK_NONE,
    HS_PK_BOOL,
    HS_PK_INT,
    HS_PK_FLOAT,
    HS_PK_STR,
    HS_PK_GLOBAL,
    HS_PK_TUPLE,
    HS_PK_LIST,
    HS_PK_DICT, /* items are key, value, key, value… */
    HS_PK_STORAGE,
    HS_PK_TENSOR,
} hs_pk_type;

typedef enum hs_pk_global_id {
    HS_PK_G_TENSOR_V2,
    HS_PK_G_PARAMETER,
    HS_PK_G_FROM_TYPE,
    HS_PK_G_ORDERED_DICT,
    HS_PK_G_TYPE, /* a class that may be named, never called */
    HS_PK_G_STORAGE,
} hs_pk_global_id;

typedef struct hs_pk_global {
    const char *module, *name;
    hs_pk_global_id id;
    hs_elem elem;
    const char *elem_name;
} hs_pk_global;

typedef struct hs_pk_tensor {
    hs_elem elem;
    const char *elem_name;
    uint32_t n_dims;
    uint64_t shape[HS_CKPT_MAX_DIMS];
    int64_t stride[HS_CKPT_MAX_DIMS];
    const uint8_t *data;
} hs_pk_tensor;

typedef struct hs_pk_list {
    uint32_t *v;
    uint32_t n, cap;
} hs_pk_list;

typedef struct hs_pk_value {
    hs_pk_type type;
    uint32_t n; /* bytes of a string */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* inside the program, without a NUL */
        const hs_pk_global *g;
        hs_pk_list items;
        struct {
            const hs_pk_global *g;
            const uint8_t *data;
            uint64_t elems, bytes;
        } st;
        uint32_t t; /* index into the tensors */
    } u;
} hs_pk_value;

typedef struct hs_pk {
    hs_cursor in;
    size_t at; /* position of the opcode being executed */
    hs_pk_value *value;
    uint32_t n_value, cap_value;
    hs_pk_tensor *tensor;
    uint32_t n_tensor, cap_tensor;
    hs_pk_list stack, mark, memo;
    uint32_t steps; /* of the walk over the result */
    hs_pickle_storage storage;
    void *storage_ud;
    hs_ckpt_visit visit;
    void *visit_ud;
    hs_err *err;
} hs_pk;

hs_status hs_pk_fail(hs_pk *m, hs_status code, const char *fmt, ...) HS_PRINTF(3, 4);
#ifdef __clang_analyzer__
#define hs_pk_fail(m, code, ...) ((void)hs_pk_fail(m, code, __VA_ARGS__), (code))
#endif
HS_NODISCARD hs_status hs_pk_list_add(hs_pk *m, hs_pk_list *l, uint32_t v);
HS_NODISCARD hs_status hs_pk_push(hs_pk *m, hs_pk_value v);
HS_NODISCARD hs_status hs_pk_pop(hs_pk *m, uint32_t *v);
HS_NODISCARD hs_status hs_pk_pop_type(hs_pk *m, hs_pk_type type, uint32_t *v);
/* "None", "a dict"… */
const char *hs_pk_type_name(hs_pk_type type);

/* The global the program names, onto the stack. */
HS_NODISCARD hs_status hs_pk_push_global(hs_pk *m, const char *module, size_t module_n,
                                         const char *name, size_t name_n);
HS_NODISCARD hs_status hs_pk_persid(hs_pk *m);
HS_NODISCARD hs_status hs_pk_reduce(hs_pk *m);
HS_NODISCARD hs_status hs_pk_walk(hs_pk *m, uint32_t result);

#ifdef __cplusplus
}
#endif

#endif
