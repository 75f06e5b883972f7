/* What a pickle may call, and the tensors of its result.  The one surprise: a dict may contain
 * itself (through the memo), so the walk over the result counts its depth and its steps. */
#include "formats/pickle_vm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 32, /* of dicts in dicts */
    MAX_NAME = 4096,
};

static const hs_pk_global globals[] = {
    {"torch._utils", "_rebuild_tensor_v2", HS_PK_G_TENSOR_V2, HS_ELEM_OTHER, ""},
    {"torch._utils", "_rebuild_parameter", HS_PK_G_PARAMETER, HS_ELEM_OTHER, ""},
    {"torch._tensor", "_rebuild_from_type_v2", HS_PK_G_FROM_TYPE, HS_ELEM_OTHER, ""},
    {"torch", "Tensor", HS_PK_G_TYPE, HS_ELEM_OTHER, ""},
    {"torch.nn.parameter", "Parameter", HS_PK_G_TYPE, HS_ELEM_OTHER, ""},
    {"collections", "OrderedDict", HS_PK_G_ORDERED_DICT, HS_ELEM_OTHER, ""},
    {"torch", "DoubleStorage", HS_PK_G_STORAGE, HS_ELEM_F64, "float64"},
    {"torch", "FloatStorage", HS_PK_G_STORAGE, HS_ELEM_F32, "float32"},
    {"torch", "HalfStorage", HS_PK_G_STORAGE, HS_ELEM_F16, "float16"},
    {"torch", "BFloat16Storage", HS_PK_G_STORAGE, HS_ELEM_BF16, "bfloat16"},
    {"torch", "LongStorage", HS_PK_G_STORAGE, HS_ELEM_I64, "int64"},
    {"torch", "IntStorage", HS_PK_G_STORAGE, HS_ELEM_I32, "int32"},
    {"torch", "ShortStorage", HS_PK_G_STORAGE, HS_ELEM_I16, "int16"},
    {"torch", "CharStorage", HS_PK_G_STORAGE, HS_ELEM_I8, "int8"},
    {"torch", "ByteStorage", HS_PK_G_STORAGE, HS_ELEM_U8, "uint8"},
    {"torch", "BoolStorage", HS_PK_G_STORAGE, HS_ELEM_BOOL, "bool"},
};

static bool is(const char *s, size_t n, const char *z)
{
    return n == strlen(z) && memcmp(s, z, n) == 0;
}

static int shown(size_t n) { return (int)(n < 80 ? n : 80); }

hs_status hs_pk_push_global(hs_pk *m, const char *module, size_t nm, const char *name, size_t nn)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (is(module, nm, globals[i].module) && is(name, nn, globals[i].name))
            return hs_pk_push(m, (hs_pk_value){.type = HS_PK_GLOBAL, .u.g = &globals[i]});
    return hs_pk_fail(m, HS_ERR_UNSUPPORTED,
                      "global \"%.*s %.*s\" is not allowed (tensors are read, code is never run)",
                      shown(nm), module, shown(nn), name);
}

/* The first n items of a tuple at least that long, each of its type. */
static hs_status typed(hs_pk *m, const hs_pk_list *args, const hs_pk_type *type, uint32_t n,
                       const hs_pk_value **out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = &m->value[args->v[i]];
        if (out[i]->type != type[i])
            return hs_pk_fail(m, HS_ERR_FORMAT, "argument %" PRIu32 ": expected %s, got %s", i + 1,
                              hs_pk_type_name(type[i]), hs_pk_type_name(out[i]->type));
    }
    return HS_OK;
}

/* ("storage", torch.FloatStorage, "0", "cpu", 24) */
hs_status hs_pk_persid(hs_pk *m)
{
    uint32_t id = 0;
    hs_status s = hs_pk_pop_type(m, HS_PK_TUPLE, &id);
    if (s != HS_OK)
        return s;
    const hs_pk_list args = m->value[id].u.items;
    if (args.n != 5)
        return hs_pk_fail(m, HS_ERR_FORMAT, "a storage of %" PRIu32 " parts, expected 5", args.n);
    static const hs_pk_type types[] = {HS_PK_STR, HS_PK_GLOBAL, HS_PK_STR, HS_PK_STR, HS_PK_INT};
    const hs_pk_value *a[5];
    s = typed(m, &args, types, 5, a);
    if (s != HS_OK)
        return s;
    const hs_pk_value *tag = a[0], *g = a[1], *key = a[2], *n = a[4];
    char name[64];
    if (!is(tag->u.s, tag->n, "storage") || g->u.g->id != HS_PK_G_STORAGE || !key->n ||
        key->n >= sizeof name || memchr(key->u.s, 0, key->n) || memchr(key->u.s, '/', key->n))
        return hs_pk_fail(m, HS_ERR_FORMAT, "not a storage reference");
    memcpy(name, key->u.s, key->n);
    name[key->n] = 0;
    hs_pk_value v = {.type = HS_PK_STORAGE};
    size_t bytes = 0;
    const hs_status found = m->storage(m->storage_ud, name, &v.u.st.data, &bytes, m->err);
    if (found != HS_OK)
        return hs_ctx(m->err, found, "byte %zu: ", m->at);
    uint64_t need;
    if (n->u.i < 0 || !hs_mul((uint64_t)n->u.i, hs_elem_bytes(g->u.g->elem), &need) || need > bytes)
        return hs_pk_fail(m, HS_ERR_FORMAT,
                          "storage %s: %" PRId64
                          " elements of %s declared, the record has %zu bytes",
                          name, n->u.i, g->u.g->elem_name, bytes);
    v.u.st.g = g->u.g;
    v.u.st.elems = (uint64_t)n->u.i;
    v.u.st.bytes = need;
    return hs_pk_push(m, v);
}

/* A non-negative item of a size or stride tuple. */
static hs_status dim(hs_pk *m, const hs_pk_list *l, uint32_t i, const char *what, uint64_t *out)
{
    const hs_pk_value *v = &m->value[l->v[i]];
    if (v->type != HS_PK_INT || v->u.i < 0)
        return hs_pk_fail(m, HS_ERR_FORMAT, "%s %" PRIu32 " is not a number from 0 up", what, i);
    *out = (uint64_t)v->u.i;
    return HS_OK;
}

/* Every element that size and stride can reach must lie inside the storage. */
static hs_status shape_tensor(hs_pk *m, hs_pk_tensor *t, const hs_pk_value *st, uint64_t offset,
                              const hs_pk_list *size, const hs_pk_list *stride)
{
    uint64_t last = offset, elems = 1;
    bool empty = false, ok = true;
    t->n_dims = size->n;
    for (uint32_t i = 0; i < size->n; i++) {
        uint64_t n = 0, step = 0, reach;
        hs_status s = dim(m, size, i, "size", &n);
        if (s == HS_OK)
            s = dim(m, stride, i, "stride", &step);
        if (s != HS_OK)
            return s;
        t->shape[i] = n;
        t->stride[i] = (int64_t)step;
        empty |= n == 0;
        ok &= hs_mul(elems, n ? n : 1, &elems) && elems <= INT64_MAX;
        ok &= hs_mul(n ? n - 1 : 0, step, &reach) && hs_add(last, reach, &last);
    }
    if (!ok)
        return hs_pk_fail(m, HS_ERR_FORMAT, "the tensor's size wraps");
    if (empty ? offset > st->u.st.elems : last >= st->u.st.elems)
        return hs_pk_fail(m, HS_ERR_FORMAT,
                          "the tensor reaches element %" PRIu64 " of a storage of %" PRIu64, last,
                          st->u.st.elems);
    t->elem = st->u.st.g->elem;
    t->elem_name = st->u.st.g->elem_name;
    t->data = st->u.st.data ? st->u.st.data + offset * hs_elem_bytes(t->elem) : NULL;
    return HS_OK;
}

static hs_status push_tensor(hs_pk *m, const hs_pk_tensor *t)
{
    if (m->n_tensor == m->cap_tensor) {
        const bool room = m->n_tensor < HS_PK_MAX_TENSORS;
        const uint32_t cap = m->cap_tensor ? 2 * m->cap_tensor : 64;
        hs_pk_tensor *p = room ? realloc(m->tensor, cap * sizeof *p) : NULL;
        if (!p)
            return hs_pk_fail(m, room ? HS_ERR_NOMEM : HS_ERR_FORMAT, "more than %d tensors",
                              HS_PK_MAX_TENSORS);
        m->tensor = p;
        m->cap_tensor = cap;
    }
    m->tensor[m->n_tensor] = *t;
    return hs_pk_push(m, (hs_pk_value){.type = HS_PK_TENSOR, .u.t = m->n_tensor++});
}

/* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static hs_status build_tensor(hs_pk *m, const hs_pk_list *args)
{
    if (args->n != 6 && args->n != 7)
        return hs_pk_fail(m, HS_ERR_FORMAT, "_rebuild_tensor_v2 with %" PRIu32 " arguments",
                          args->n);
    static const hs_pk_type types[] = {HS_PK_STORAGE, HS_PK_INT,  HS_PK_TUPLE,
                                       HS_PK_TUPLE,   HS_PK_BOOL, HS_PK_DICT};
    const hs_pk_value *a[6];
    hs_status s = typed(m, args, types, 6, a);
    if (s != HS_OK)
        return s;
    const hs_pk_value *st = a[0], *off = a[1], *size = a[2], *stride = a[3];
    const hs_pk_list ns = size->u.items, ss = stride->u.items;
    if (ns.n != ss.n || ns.n > HS_CKPT_MAX_DIMS)
        return hs_pk_fail(m, HS_ERR_FORMAT,
                          "a tensor of %" PRIu32 " sizes and %" PRIu32 " strides, at most %d", ns.n,
                          ss.n, HS_CKPT_MAX_DIMS);
    if (off->u.i < 0)
        return hs_pk_fail(m, HS_ERR_FORMAT, "storage offset %" PRId64 " is negative", off->u.i);
    hs_pk_tensor t = {0};
    s = shape_tensor(m, &t, st, (uint64_t)off->u.i, &ns, &ss);
    return s == HS_OK ? push_tensor(m, &t) : s;
}

static hs_status call(hs_pk *m, const hs_pk_global *g, const hs_pk_list *args, int depth)
{
    static const hs_pk_type parameter[] = {HS_PK_TENSOR, HS_PK_BOOL, HS_PK_DICT};
    static const hs_pk_type from_type[] = {HS_PK_GLOBAL, HS_PK_GLOBAL, HS_PK_TUPLE};
    const hs_pk_value *a[3];
    hs_status s;
    switch (g->id) {
    case HS_PK_G_TENSOR_V2: return build_tensor(m, args);
    case HS_PK_G_PARAMETER: /* (tensor, requires_grad, hooks) */
        if (args->n != 3)
            break;
        s = typed(m, args, parameter, 3, a);
        return s == HS_OK ? hs_pk_list_add(m, &m->stack, args->v[0]) : s;
    case HS_PK_G_FROM_TYPE: /* (function, class, arguments, state) */
        if (args->n != 4 || depth)
            break;
        s = typed(m, args, from_type, 3, a);
        if (s != HS_OK)
            return s;
        if (a[1]->u.g->id != HS_PK_G_TYPE)
            break;
        const hs_pk_list inner = a[2]->u.items;
        return call(m, a[0]->u.g, &inner, depth + 1);
    case HS_PK_G_ORDERED_DICT:
        if (args->n)
            break;
        return hs_pk_push(m, (hs_pk_value){.type = HS_PK_DICT});
    case HS_PK_G_TYPE:
    case HS_PK_G_STORAGE: break;
    }
    return hs_pk_fail(m, HS_ERR_UNSUPPORTED,
                      "%s %s called with %" PRIu32 " arguments: not how tensors are saved",
                      g->module, g->name, args->n);
}

hs_status hs_pk_reduce(hs_pk *m)
{
    uint32_t args = 0, g = 0;
    hs_status s = hs_pk_pop_type(m, HS_PK_TUPLE, &args);
    if (s == HS_OK)
        s = hs_pk_pop_type(m, HS_PK_GLOBAL, &g);
    if (s != HS_OK)
        return s;
    const hs_pk_list l = m->value[args].u.items;
    return call(m, m->value[g].u.g, &l, 0);
}

static hs_status visit_tensor(hs_pk *m, const hs_pk_tensor *t, char *name)
{
    hs_ckpt_tensor c = {.elem = t->elem, .n_dims = t->n_dims, .data = t->data};
    c.name = name;
    snprintf(c.elem_name, sizeof c.elem_name, "%s", t->elem_name);
    memcpy(c.shape, t->shape, sizeof c.shape);
    memcpy(c.stride, t->stride, sizeof c.stride);
    return m->visit(m->visit_ud, &c, m->err);
}

/* Append "." and the key to the n bytes of the name. */
static hs_status join(hs_pk *m, char *name, size_t *len, const hs_pk_value *key)
{
    size_t n = *len;
    char digits[24];
    const char *s = key->u.s;
    size_t k = key->n;
    if (key->type == HS_PK_INT) {
        k = (size_t)snprintf(digits, sizeof digits, "%" PRId64, key->u.i);
        s = digits;
    } else if (key->type != HS_PK_STR || memchr(s, 0, k)) {
        return hs_fail(m->err, HS_ERR_UNSUPPORTED,
                       "%.200s: a tensor's key is %s, expected a string or an integer", name,
                       key->type == HS_PK_STR ? "a string with a NUL" : hs_pk_type_name(key->type));
    }
    if (k + n + 2 > MAX_NAME)
        return hs_fail(m->err, HS_ERR_FORMAT, "%.200s: a name longer than %d bytes", name,
                       MAX_NAME);
    if (n)
        name[n++] = '.';
    if (k)
        memcpy(name + n, s, k);
    name[n + k] = 0;
    *len = n + k;
    return HS_OK;
}

static hs_status walk(hs_pk *m, uint32_t at, char *name, size_t n, int depth)
{
    const hs_pk_value *v = &m->value[at];
    if (++m->steps > 4 * HS_PK_MAX_VALUES || depth > MAX_DEPTH)
        return hs_fail(m->err, HS_ERR_FORMAT,
                       "%.200s: dicts nested too deeply, or one that contains itself", name);
    if (v->type == HS_PK_TENSOR)
        return visit_tensor(m, &m->tensor[v->u.t], name);
    if (v->type != HS_PK_DICT)
        return HS_OK;
    for (uint32_t i = 0; i < v->u.items.n; i += 2) {
        const uint32_t item = v->u.items.v[i + 1];
        const hs_pk_type type = m->value[item].type;
        if (type != HS_PK_TENSOR && type != HS_PK_DICT)
            continue;
        size_t k = n;
        hs_status s = join(m, name, &k, &m->value[v->u.items.v[i]]);
        if (s == HS_OK)
            s = walk(m, item, name, k, depth + 1);
        name[n] = 0;
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

hs_status hs_pk_walk(hs_pk *m, uint32_t result)
{
    char name[MAX_NAME] = "";
    return walk(m, result, name, 0, 0);
}
