/* Pickle, the subset that saved tensors need.
 *
 * Values live in one growing table and refer to each other by index, so a hostile program can
 * neither free nor forge anything: an opcode makes at most one value, pushes at most one index
 * and moves existing indices into a container. */
#include "formats/pickle.h"

#include "formats/pickle_vm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROGRAM ((size_t)8 << 20)
#define UNSET       UINT32_MAX

const char *hs_pk_type_name(hs_pk_type type)
{
    static const char *const names[] = {
        "None",    "a bool", "an integer", "a float",   "a string", "a global",
        "a tuple", "a list", "a dict",     "a storage", "a tensor",
    };
    return names[type];
}

hs_status(hs_pk_fail)(hs_pk *m, hs_status code, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return hs_fail(m->err, code, "byte %zu: %s", m->at, text);
}

hs_status hs_pk_list_add(hs_pk *m, hs_pk_list *l, uint32_t v)
{
    if (l->n == l->cap) {
        const uint32_t cap = l->cap ? 2 * l->cap : 4;
        uint32_t *p = l->n < HS_PK_MAX_VALUES ? realloc(l->v, cap * sizeof *p) : NULL;
        if (!p)
            return hs_pk_fail(m, l->n < HS_PK_MAX_VALUES ? HS_ERR_NOMEM : HS_ERR_FORMAT,
                              "too many values in one place");
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return HS_OK;
}

hs_status hs_pk_push(hs_pk *m, hs_pk_value v)
{
    if (m->n_value == m->cap_value) {
        const uint32_t cap = m->cap_value ? 2 * m->cap_value : 64;
        hs_pk_value *p = m->n_value < HS_PK_MAX_VALUES ? realloc(m->value, cap * sizeof *p) : NULL;
        if (!p)
            return hs_pk_fail(m, m->n_value < HS_PK_MAX_VALUES ? HS_ERR_NOMEM : HS_ERR_FORMAT,
                              "the program makes too many values");
        m->value = p;
        m->cap_value = cap;
    }
    m->value[m->n_value] = v;
    return hs_pk_list_add(m, &m->stack, m->n_value++);
}

/* Values below the innermost MARK are out of reach. */
static uint32_t stack_floor(const hs_pk *m) { return m->mark.n ? m->mark.v[m->mark.n - 1] : 0; }

hs_status hs_pk_pop(hs_pk *m, uint32_t *v)
{
    if (m->stack.n <= stack_floor(m))
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    *v = m->stack.v[--m->stack.n];
    return HS_OK;
}

/* Where the values above the innermost MARK begin; the mark is gone afterwards. */
static hs_status pop_mark(hs_pk *m, uint32_t *base)
{
    if (!m->mark.n)
        return hs_pk_fail(m, HS_ERR_FORMAT, "no MARK");
    *base = m->mark.v[--m->mark.n];
    return HS_OK;
}

hs_status hs_pk_pop_type(hs_pk *m, hs_pk_type type, uint32_t *v)
{
    const hs_status s = hs_pk_pop(m, v);
    if (s == HS_OK && m->value[*v].type != type)
        return hs_pk_fail(m, HS_ERR_FORMAT, "expected %s, got %s", hs_pk_type_name(type),
                          hs_pk_type_name(m->value[*v].type));
    return s;
}

/* --- opcodes: constants -------------------------------------------------- */

static hs_status op_proto(hs_pk *m)
{
    const uint8_t v = hs_cur_u8(&m->in);
    if (v > 5)
        return hs_pk_fail(m, HS_ERR_UNSUPPORTED, "pickle protocol %d, at most 5 is known", v);
    return HS_OK;
}

static hs_status op_frame(hs_pk *m)
{
    const uint64_t n = hs_cur_u64(&m->in);
    if (!m->in.bad && n > m->in.size - m->in.pos)
        return hs_pk_fail(m, HS_ERR_FORMAT, "FRAME of %" PRIu64 " bytes reaches past the end", n);
    return HS_OK;
}

static hs_status op_none(hs_pk *m) { return hs_pk_push(m, (hs_pk_value){.type = HS_PK_NONE}); }
static hs_status op_true(hs_pk *m)
{
    return hs_pk_push(m, (hs_pk_value){.type = HS_PK_BOOL, .u.b = true});
}
static hs_status op_false(hs_pk *m) { return hs_pk_push(m, (hs_pk_value){.type = HS_PK_BOOL}); }

static hs_status push_int(hs_pk *m, int64_t i)
{
    return hs_pk_push(m, (hs_pk_value){.type = HS_PK_INT, .u.i = i});
}

static hs_status op_int1(hs_pk *m) { return push_int(m, hs_cur_u8(&m->in)); }
static hs_status op_int2(hs_pk *m) { return push_int(m, hs_cur_u16(&m->in)); }
static hs_status op_int4(hs_pk *m) { return push_int(m, (int32_t)hs_cur_u32(&m->in)); }

static hs_status op_long1(hs_pk *m)
{
    const uint8_t n = hs_cur_u8(&m->in);
    if (n > 8)
        return hs_pk_fail(m, HS_ERR_UNSUPPORTED, "LONG1 of %d bytes, at most 8 are accepted", n);
    const uint8_t *p = hs_cur_take(&m->in, n);
    uint64_t u = p && n && p[n - 1] >= 0x80 ? UINT64_MAX : 0; /* sign extension */
    for (int i = n; p && i-- > 0;)
        u = u << 8 | p[i];
    return push_int(m, (int64_t)u);
}

/* The only big-endian number of the format. */
static hs_status op_float(hs_pk *m)
{
    const uint8_t *p = hs_cur_take(&m->in, 8);
    uint8_t le[8] = {0};
    for (int i = 0; p && i < 8; i++)
        le[i] = p[7 - i];
    return hs_pk_push(m, (hs_pk_value){.type = HS_PK_FLOAT, .u.f = hs_get_f64(le)});
}

static hs_status push_str(hs_pk *m, uint64_t n)
{
    const uint8_t *p = hs_cur_take(&m->in, n);
    if (!p) /* reported by the loop */
        return HS_OK;
    return hs_pk_push(m,
                      (hs_pk_value){.type = HS_PK_STR, .n = (uint32_t)n, .u.s = (const char *)p});
}

static hs_status op_str1(hs_pk *m) { return push_str(m, hs_cur_u8(&m->in)); }
static hs_status op_str4(hs_pk *m) { return push_str(m, hs_cur_u32(&m->in)); }
static hs_status op_str8(hs_pk *m) { return push_str(m, hs_cur_u64(&m->in)); }

static hs_status op_global(hs_pk *m)
{
    const char *line[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        line[i] = (const char *)m->in.base + m->in.pos;
        const char *end = memchr(line[i], '\n', m->in.size - m->in.pos);
        if (!end) {
            m->in.bad = true;
            return HS_OK;
        }
        n[i] = (size_t)(end - line[i]);
        m->in.pos += n[i] + 1;
    }
    return hs_pk_push_global(m, line[0], n[0], line[1], n[1]);
}

static hs_status op_stack_global(hs_pk *m)
{
    uint32_t module = 0, name = 0;
    hs_status s = hs_pk_pop_type(m, HS_PK_STR, &name);
    if (s == HS_OK)
        s = hs_pk_pop_type(m, HS_PK_STR, &module);
    if (s != HS_OK)
        return s;
    const hs_pk_value *a = &m->value[module], *b = &m->value[name];
    return hs_pk_push_global(m, a->u.s, a->n, b->u.s, b->n);
}

/* --- opcodes: memo ------------------------------------------------------- */

static hs_status memo_put(hs_pk *m, uint32_t at)
{
    if (m->stack.n <= stack_floor(m))
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    if (at >= HS_PK_MAX_VALUES)
        return hs_pk_fail(m, HS_ERR_FORMAT, "memo index %" PRIu32 " is out of range", at);
    while (m->memo.n <= at) {
        const hs_status s = hs_pk_list_add(m, &m->memo, UNSET);
        if (s != HS_OK)
            return s;
    }
    m->memo.v[at] = m->stack.v[m->stack.n - 1];
    return HS_OK;
}

static hs_status memo_get(hs_pk *m, uint32_t at)
{
    if (m->in.bad)
        return HS_OK;
    if (at >= m->memo.n || m->memo.v[at] == UNSET)
        return hs_pk_fail(m, HS_ERR_FORMAT, "memo index %" PRIu32 " was never stored", at);
    return hs_pk_list_add(m, &m->stack, m->memo.v[at]);
}

static hs_status op_put1(hs_pk *m) { return memo_put(m, hs_cur_u8(&m->in)); }
static hs_status op_put4(hs_pk *m) { return memo_put(m, hs_cur_u32(&m->in)); }
static hs_status op_memoize(hs_pk *m) { return memo_put(m, m->memo.n); }
static hs_status op_get1(hs_pk *m) { return memo_get(m, hs_cur_u8(&m->in)); }
static hs_status op_get4(hs_pk *m) { return memo_get(m, hs_cur_u32(&m->in)); }

/* --- opcodes: containers ------------------------------------------------- */

static hs_status op_mark(hs_pk *m) { return hs_pk_list_add(m, &m->mark, m->stack.n); }

/* The values from `base` up leave the stack as the items of a new tuple. */
static hs_status make_tuple(hs_pk *m, uint32_t base)
{
    hs_pk_list items = {0};
    hs_status s = HS_OK;
    for (uint32_t i = base; i < m->stack.n && s == HS_OK; i++)
        s = hs_pk_list_add(m, &items, m->stack.v[i]);
    m->stack.n = base;
    if (s != HS_OK) {
        free(items.v);
        return s;
    }
    const uint32_t before = m->n_value;
    s = hs_pk_push(m, (hs_pk_value){.type = HS_PK_TUPLE, .u.items = items});
    if (m->n_value == before) /* nobody else owns them */
        free(items.v);
    return s;
}

static hs_status op_tuple(hs_pk *m)
{
    uint32_t base = 0;
    const hs_status s = pop_mark(m, &base);
    return s == HS_OK ? make_tuple(m, base) : s;
}

static hs_status tuple_of(hs_pk *m, uint32_t n)
{
    if (m->stack.n - stack_floor(m) < n)
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    return make_tuple(m, m->stack.n - n);
}

static hs_status op_tuple0(hs_pk *m) { return tuple_of(m, 0); }
static hs_status op_tuple1(hs_pk *m) { return tuple_of(m, 1); }
static hs_status op_tuple2(hs_pk *m) { return tuple_of(m, 2); }
static hs_status op_tuple3(hs_pk *m) { return tuple_of(m, 3); }
static hs_status op_list(hs_pk *m) { return hs_pk_push(m, (hs_pk_value){.type = HS_PK_LIST}); }
static hs_status op_dict(hs_pk *m) { return hs_pk_push(m, (hs_pk_value){.type = HS_PK_DICT}); }

/* Move the values from `base` up into the container just below. */
static hs_status extend(hs_pk *m, hs_pk_type type, uint32_t base)
{
    if (base > m->stack.n || base <= stack_floor(m))
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    hs_pk_value *c = &m->value[m->stack.v[base - 1]];
    if (c->type != type)
        return hs_pk_fail(m, HS_ERR_FORMAT, "expected %s, got %s", hs_pk_type_name(type),
                          hs_pk_type_name(c->type));
    if (type == HS_PK_DICT && (m->stack.n - base) % 2)
        return hs_pk_fail(m, HS_ERR_FORMAT, "a key without a value");
    hs_status s = HS_OK;
    for (uint32_t i = base; i < m->stack.n && s == HS_OK; i++)
        s = hs_pk_list_add(m, &c->u.items, m->stack.v[i]);
    m->stack.n = base;
    return s;
}

static hs_status extend_last(hs_pk *m, hs_pk_type type, uint32_t n)
{
    if (m->stack.n - stack_floor(m) < n + 1)
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    return extend(m, type, m->stack.n - n);
}

static hs_status extend_marked(hs_pk *m, hs_pk_type type)
{
    uint32_t base = 0;
    const hs_status s = pop_mark(m, &base);
    return s == HS_OK ? extend(m, type, base) : s;
}

static hs_status op_append(hs_pk *m) { return extend_last(m, HS_PK_LIST, 1); }
static hs_status op_appends(hs_pk *m) { return extend_marked(m, HS_PK_LIST); }
static hs_status op_setitem(hs_pk *m) { return extend_last(m, HS_PK_DICT, 2); }
static hs_status op_setitems(hs_pk *m) { return extend_marked(m, HS_PK_DICT); }

/* A state dict's "_metadata" arrives this way; nothing of it is needed. */
static hs_status op_build(hs_pk *m)
{
    uint32_t state = 0;
    const hs_status s = hs_pk_pop(m, &state);
    if (s != HS_OK)
        return s;
    if (m->stack.n <= stack_floor(m))
        return hs_pk_fail(m, HS_ERR_FORMAT, "the stack is empty");
    const hs_pk_value *v = &m->value[m->stack.v[m->stack.n - 1]];
    if (v->type != HS_PK_DICT && v->type != HS_PK_TENSOR)
        return hs_pk_fail(m, HS_ERR_UNSUPPORTED, "BUILD on %s", hs_pk_type_name(v->type));
    return HS_OK;
}

/* --- the program --------------------------------------------------------- */

typedef struct opcode {
    uint8_t byte;
    const char *name;
    hs_status (*run)(hs_pk *m); /* NULL: known, refused */
} opcode;

enum { STOP = '.' };

static const opcode opcodes[] = {
    {0x80, "PROTO", op_proto},
    {0x95, "FRAME", op_frame},
    {'N', "NONE", op_none},
    {0x88, "NEWTRUE", op_true},
    {0x89, "NEWFALSE", op_false},
    {'K', "BININT1", op_int1},
    {'M', "BININT2", op_int2},
    {'J', "BININT", op_int4},
    {0x8a, "LONG1", op_long1},
    {'G', "BINFLOAT", op_float},
    {0x8c, "SHORT_BINUNICODE", op_str1},
    {'X', "BINUNICODE", op_str4},
    {0x8d, "BINUNICODE8", op_str8},
    {'c', "GLOBAL", op_global},
    {0x93, "STACK_GLOBAL", op_stack_global},
    {'q', "BINPUT", op_put1},
    {'r', "LONG_BINPUT", op_put4},
    {0x94, "MEMOIZE", op_memoize},
    {'h', "BINGET", op_get1},
    {'j', "LONG_BINGET", op_get4},
    {'(', "MARK", op_mark},
    {'t', "TUPLE", op_tuple},
    {')', "EMPTY_TUPLE", op_tuple0},
    {0x85, "TUPLE1", op_tuple1},
    {0x86, "TUPLE2", op_tuple2},
    {0x87, "TUPLE3", op_tuple3},
    {']', "EMPTY_LIST", op_list},
    {'}', "EMPTY_DICT", op_dict},
    {'a', "APPEND", op_append},
    {'e', "APPENDS", op_appends},
    {'s', "SETITEM", op_setitem},
    {'u', "SETITEMS", op_setitems},
    {'Q', "BINPERSID", hs_pk_persid},
    {'R', "REDUCE", hs_pk_reduce},
    {'b', "BUILD", op_build},
    /* The rest is named for the message only. */
    {'i', "INST", NULL},
    {'o', "OBJ", NULL},
    {0x81, "NEWOBJ", NULL},
    {0x92, "NEWOBJ_EX", NULL},
    {0x82, "EXT1", NULL},
    {0x83, "EXT2", NULL},
    {0x84, "EXT4", NULL},
    {'P', "PERSID", NULL},
    {'0', "POP", NULL},
    {'1', "POP_MARK", NULL},
    {'2', "DUP", NULL},
    {'I', "INT", NULL},
    {'L', "LONG", NULL},
    {'F', "FLOAT", NULL},
    {'S', "STRING", NULL},
    {'V', "UNICODE", NULL},
    {'T', "BINSTRING", NULL},
    {'U', "SHORT_BINSTRING", NULL},
    {'B', "BINBYTES", NULL},
    {'C', "SHORT_BINBYTES", NULL},
    {0x8b, "LONG4", NULL},
    {0x8f, "EMPTY_SET", NULL},
    {0x90, "ADDITEMS", NULL},
    {0x91, "FROZENSET", NULL},
    {0x96, "BYTEARRAY8", NULL},
};

static hs_status step(hs_pk *m, uint8_t op)
{
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
        if (opcodes[i].byte != op)
            continue;
        if (!opcodes[i].run)
            return hs_pk_fail(m, HS_ERR_UNSUPPORTED, "opcode %s is not allowed", opcodes[i].name);
        const hs_status s = opcodes[i].run(m);
        if (s == HS_OK && m->in.bad)
            return hs_pk_fail(m, HS_ERR_FORMAT, "%s: the program ends inside it", opcodes[i].name);
        return s;
    }
    return hs_pk_fail(m, HS_ERR_UNSUPPORTED, "opcode 0x%02x is not allowed", op);
}

static hs_status run(hs_pk *m, uint32_t *result)
{
    for (;;) {
        m->at = m->in.pos;
        const uint8_t op = hs_cur_u8(&m->in);
        if (m->in.bad)
            return hs_pk_fail(m, HS_ERR_FORMAT, "the program ends without STOP");
        if (op == STOP)
            return hs_pk_pop(m, result);
        const hs_status s = step(m, op);
        if (s != HS_OK)
            return s;
    }
}

static void vm_free(hs_pk *m)
{
    for (uint32_t i = 0; i < m->n_value; i++) {
        const hs_pk_value *v = &m->value[i];
        if (v->type == HS_PK_TUPLE || v->type == HS_PK_LIST || v->type == HS_PK_DICT)
            free(v->u.items.v);
    }
    free(m->value);
    free(m->tensor);
    free(m->stack.v);
    free(m->mark.v);
    free(m->memo.v);
}

hs_status hs_pickle_tensors(const void *program, size_t size, hs_pickle_storage storage,
                            void *storage_ud, hs_ckpt_visit visit, void *visit_ud, hs_err *err)
{
    if (size > MAX_PROGRAM)
        return hs_fail(err, HS_ERR_FORMAT, "%zu bytes of pickle, at most %zu are accepted", size,
                       MAX_PROGRAM);
    hs_pk m = {.in = {.base = program, .size = size},
               .storage = storage,
               .storage_ud = storage_ud,
               .visit = visit,
               .visit_ud = visit_ud,
               .err = err};
    uint32_t result = 0;
    hs_status s = run(&m, &result);
    if (s == HS_OK)
        s = hs_pk_walk(&m, result);
    vm_free(&m);
    return s;
}
