/* torch.save files: the golden ones decode to their known values, hostile ones are refused by
 * opcode, global or member, and what we write is what torch 1.13 wrote. */
#include "formats/checkpoint.h"
#include "formats/file.h"
#include "formats/pickle.h"
#include "formats/torch_zip.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>

/* --- golden files -------------------------------------------------------- */

static hs_checkpoint *open_ok(const char *path)
{
    hs_checkpoint *c = NULL;
    hs_err err = {0};
    if (hs_checkpoint_open_file(&c, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return c;
}

/* n values start, start + step, … under the name, in a tensor of this shape. */
static void check_ramp(const hs_checkpoint *c, const char *name, hs_elem elem, uint32_t n_dims,
                       const uint64_t *shape, double start, double step)
{
    const hs_ckpt_tensor *t = hs_checkpoint_find(c, name);
    assert_non_null(t);
    assert_int_equal(t->elem, elem);
    assert_int_equal(t->n_dims, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        assert_int_equal(t->shape[i], shape[i]);
    for (uint64_t i = 0; i < hs_ckpt_elems(t); i++) {
        double v = -1;
        assert_int_equal(hs_ckpt_value(t, i, &v, NULL), HS_OK);
        assert_true(fabs(v - (start + step * (double)i)) < 1e-12);
    }
}

static void test_golden_plain(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        hs_elem elem;
    } cases[] = {
        {"tests/golden/pt/activation_0.pt", HS_ELEM_I64},
        {"tests/golden/pt/activation_i32.pt", HS_ELEM_I32},
        {"tests/golden/pt/activation_f32.pt", HS_ELEM_F32},
        {"tests/golden/pt/f64.pt", HS_ELEM_F64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hs_checkpoint *c = open_ok(cases[i].path);
        assert_int_equal(hs_checkpoint_count(c), 1);
        check_ramp(c, "", cases[i].elem, 1, (const uint64_t[]){8}, 0, 1);
        hs_checkpoint_free(c);
    }
    hs_checkpoint *c = open_ok("tests/golden/pt/view.pt");
    check_ramp(c, "", HS_ELEM_F32, 1, (const uint64_t[]){10}, 10, 1);
    hs_checkpoint_free(c);
}

static void test_golden_values(void **state)
{
    (void)state;
    hs_checkpoint *c = open_ok("tests/golden/pt/bool.pt");
    const hs_ckpt_tensor *t = hs_checkpoint_at(c, 0);
    assert_int_equal(t->elem, HS_ELEM_BOOL);
    assert_int_equal(hs_ckpt_elems(t), 8);
    for (uint64_t i = 0; i < 8; i++) {
        int64_t v = -1;
        assert_int_equal(hs_ckpt_int(t, i, &v, NULL), HS_OK);
        assert_int_equal(v, i >= 4);
    }
    hs_checkpoint_free(c);

    static const uint16_t bits[] = {0x3ef5, 0xbf95, 0x3f98}; /* as the file stores them */
    c = open_ok("tests/golden/pt/bf16.pt");
    t = hs_checkpoint_at(c, 0);
    assert_int_equal(t->elem, HS_ELEM_BF16);
    assert_int_equal(hs_ckpt_elems(t), 3);
    for (uint64_t i = 0; i < 3; i++) {
        double v;
        const uint32_t u = (uint32_t)bits[i] << 16;
        float f;
        memcpy(&f, &u, 4);
        assert_int_equal(hs_ckpt_value(t, i, &v, NULL), HS_OK);
        assert_true(v == (double)f);
    }
    hs_checkpoint_free(c);
}

/* fc1.weight [4][6] and fc2.weight [10][4], three ways of saving them, and a Parameter; the
 * numbers were read from the archives' records with Python's zipfile and numpy. */
static const struct {
    const char *path, *name;
    hs_elem elem;
    uint64_t elems;
    double first, second, last, sum;
} golden[] = {
    {"tests/golden/pt/param.pt", "", HS_ELEM_F32, 3, 1.0785403251647949, -1.5493873357772827,
     0.12682472169399261, -0.34402228891849518},
    {"tests/golden/pt/sd.pt", "fc1.weight", HS_ELEM_F32, 24, 0.013372277840971947,
     0.29198253154754639, -0.40119105577468872, -0.085923489648848772},
    {"tests/golden/pt/sd.pt", "fc2.weight", HS_ELEM_F32, 40, -0.21508973836898804,
     -0.33671820163726807, 0.49129033088684082, 1.594298243522644},
    {"tests/golden/pt/model_0.pt", "fc1.weight", HS_ELEM_F32, 24, 1.0135018825531006,
     -1.2561734914779663, 0.59569025039672852, -1.7185827195644379},
    {"tests/golden/pt/model_0.pt", "fc2.weight", HS_ELEM_F32, 40, -0.17943893373012543,
     0.71825897693634033, 0.19756568968296051, 11.805415362119675},
    {"tests/golden/pt/model_plain_dict.pt", "fc1.weight", HS_ELEM_F16, 24, 0.67431640625,
     -0.07135009765625, 0.85595703125, -1.9918365478515625},
    {"tests/golden/pt/model_plain_dict.pt", "fc2.weight", HS_ELEM_F16, 40, 1.72265625, -1.921875,
     1.5498046875, -2.7543792724609375},
};

static void test_golden_dicts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        hs_checkpoint *c = open_ok(golden[i].path);
        const hs_ckpt_tensor *t = hs_checkpoint_find(c, golden[i].name);
        assert_non_null(t);
        assert_int_equal(hs_checkpoint_count(c), *golden[i].name ? 2 : 1);
        assert_string_equal(t->file, golden[i].path);
        assert_int_equal(t->elem, golden[i].elem);
        const uint64_t n = hs_ckpt_elems(t);
        assert_int_equal(n, golden[i].elems);
        if (t->n_dims == 2)
            assert_int_equal(t->shape[0], n == 24 ? 4 : 10);
        double v[40], sum = 0;
        for (uint64_t k = 0; k < n; k++) {
            assert_int_equal(hs_ckpt_value(t, k, &v[k], NULL), HS_OK);
            sum += v[k];
        }
        assert_true(v[0] == golden[i].first && v[1] == golden[i].second);
        assert_true(v[n - 1] == golden[i].last && sum == golden[i].sum);
        hs_checkpoint_free(c);
    }
}

static void test_golden_checkpoint(void **state)
{
    (void)state;
    hs_checkpoint *c = open_ok("tests/golden/hf/m1/pytorch_model.bin");
    assert_int_equal(hs_checkpoint_count(c), 30);
    const hs_ckpt_tensor *t = hs_checkpoint_find(c, "model.layers.2.mlp.down_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->shape[0], 128);
    assert_int_equal(t->shape[1], 1536);
    hs_checkpoint_free(c);
}

static void test_legacy(void **state)
{
    (void)state;
    hs_checkpoint *c = NULL;
    hs_err err;
    assert_int_equal(hs_checkpoint_open_file(&c, "tests/golden/pt/legacy.pt", &err),
                     HS_ERR_UNSUPPORTED);
    assert_null(c);
    assert_string_equal(err.msg, "tests/golden/pt/legacy.pt: a torch file in the format of before "
                                 "torch 1.6; load it with torch and save it again, as zip or as "
                                 "safetensors");
}

/* --- pickles ------------------------------------------------------------- */

typedef struct seen {
    int n;
    char names[512];
    hs_ckpt_tensor last;
} seen;

static hs_status collect(void *ud, const hs_ckpt_tensor *t, hs_err *err)
{
    (void)err;
    seen *s = ud;
    s->n++;
    const size_t used = strlen(s->names);
    snprintf(s->names + used, sizeof s->names - used, "[%s]", t->name);
    s->last = *t;
    s->last.name = NULL;
    return HS_OK;
}

/* Storage 0: 24 floats. */
static hs_status floats24(void *ud, const char *key, const uint8_t **data, size_t *bytes,
                          hs_err *err)
{
    if (strcmp(key, "0") != 0)
        return hs_fail(err, HS_ERR_FORMAT, "no storage %s", key);
    *data = ud;
    *bytes = 96;
    return HS_OK;
}

#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define STORAGE(n)                                     \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpuK" n "tQ"
#define HOOKS \
    "\x89"    \
    "ccollections\nOrderedDict\n)R"
/* A tensor of 24 floats, 4 by 6. */
#define TENSOR REBUILD "(" STORAGE("\x18") "K\0K\4K\6\x86K\6K\1\x86" HOOKS "tR"

typedef struct pickle_case {
    const char *what, *program;
    size_t n;
    const char *expected; /* message, or the names of the tensors */
} pickle_case;

#define P(bytes) bytes, sizeof(bytes) - 1

static const pickle_case accepted[] = {
    {"plain", P("\x80\x02" TENSOR "."), "[]"},
    {"dict", P("\x80\x02}(X\1\0\0\0a" TENSOR "X\1\0\0\0b" TENSOR "u."), "[a][b]"},
    {"nested, integer key", P("}(X\1\0\0\0a}K\7" TENSOR "sX\1\0\0\0bK\1u."), "[a.7]"},
    {"other values",
     P("}(X\1\0\0\0aNX\1\0\0\0bG\0\0\0\0\0\0\0\0X\1\0\0\0c]K\1aX\1\0\0\0d" TENSOR "u."), "[d]"},
    {"protocol 4",
     P("\x80\x04\x95\x58\0\0\0\0\0\0\0\x8c\14torch._utils\x94\x8c\22_rebuild_tensor_v2\x94\x93\x94"
       "(" STORAGE("\x18") "K\0K\2\x85\x94K\1\x85" HOOKS "t\x94R\x94."),
     "[]"},
    {"parameter", P("ctorch._utils\n_rebuild_parameter\n(" TENSOR HOOKS "tR."), "[]"},
    {"from type",
     P("ctorch._tensor\n_rebuild_from_type_v2\n(" REBUILD "ctorch.nn.parameter\nParameter\n"
       "(" STORAGE("\x18") "K\0K\2\x85K\1\x85" HOOKS "t}tR."),
     "[]"},
    {"same tensor twice", P("}(X\1\0\0\0a" TENSOR "q\0X\1\0\0\0bh\0u."), "[a][b]"},
    {"state dict", P("}X\1\0\0\0a" TENSOR "s}X\1\0\0\0x}sb."), "[a]"},
};

static const pickle_case refused[] = {
    {"unknown global",
     P("\x80\x02"
       "cos\nsystem\nX\2\0\0\0id\x85R."),
     "byte 2: global \"os system\" is not allowed (tensors are read, code is never run)"},
    {"builtin", P("cbuiltins\neval\n."),
     "byte 0: global \"builtins eval\" is not allowed (tensors are read, code is never run)"},
    {"stack global", P("\x8c\2os\x8c\6system\x93."),
     "byte 12: global \"os system\" is not allowed (tensors are read, code is never run)"},
    {"calling a storage class", P("ctorch\nFloatStorage\n)R."),
     "byte 21: torch FloatStorage called with 0 arguments: not how tensors are saved"},
    {"calling a type", P("ctorch\nTensor\n)R."),
     "byte 15: torch Tensor called with 0 arguments: not how tensors are saved"},
    {"object", P("(ios\nsystem\n."), "byte 1: opcode INST is not allowed"},
    {"new object", P(")\x81."), "byte 1: opcode NEWOBJ is not allowed"},
    {"extension", P("\x82\1."), "byte 0: opcode EXT1 is not allowed"},
    {"unknown opcode", P("\xfe."), "byte 0: opcode 0xfe is not allowed"},
    {"empty", P(""), "byte 0: the program ends without STOP"},
    {"missing stop", P("N"), "byte 1: the program ends without STOP"},
    {"cut opcode", P("X\5\0\0\0ab"), "byte 0: BINUNICODE: the program ends inside it"},
    {"huge count",
     P("X\xff\xff\xff\xff"
       "ab."),
     "byte 0: BINUNICODE: the program ends inside it"},
    {"huge frame", P("\x95\xff\xff\xff\xff\xff\xff\xff\x7f."),
     "byte 0: FRAME of 9223372036854775807 bytes reaches past the end"},
    {"cut global", P("ctorch\nFloat"), "byte 0: GLOBAL: the program ends inside it"},
    {"protocol", P("\x80\x09N."), "byte 0: pickle protocol 9, at most 5 is known"},
    {"long", P("\x8a\x09\1\1\1\1\1\1\1\1\1."), "byte 0: LONG1 of 9 bytes, at most 8 are accepted"},
    {"stop on empty", P("."), "byte 0: the stack is empty"},
    {"pop below mark", P("NN(\x86."), "byte 3: the stack is empty"},
    {"no mark", P("Nt."), "byte 1: no MARK"},
    {"reduce a string", P("X\1\0\0\0a)R."), "byte 7: expected a global, got a string"},
    {"memo out of range", P("h\5."), "byte 0: memo index 5 was never stored"},
    {"memo huge put", P("Nr\xff\xff\xff\xff."), "byte 1: memo index 4294967295 is out of range"},
    {"memo huge get", P("j\xff\xff\xff\xff."), "byte 0: memo index 4294967295 was never stored"},
    {"put on nothing", P("q\0."), "byte 0: the stack is empty"},
    {"append to a dict", P("}Na."), "byte 2: expected a list, got a dict"},
    {"setitems odd", P("}(Nu."), "byte 3: a key without a value"},
    {"setitem on nothing", P("NNs."), "byte 2: the stack is empty"},
    {"build on a string", P("X\1\0\0\0aNb."), "byte 7: BUILD on a string"},
    {"self-referential", P("}q\0X\1\0\0\0ah\0s."),
     "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: dicts nested too deeply, "
     "or one that contains itself"},
    {"key of a tensor", P("}N" TENSOR "s."),
     ": a tensor's key is None, expected a string or an integer"},
    {"NUL in a name", P("}X\2\0\0\0a\0" TENSOR "s."),
     ": a tensor's key is a string with a NUL, expected a string or an integer"},
    {"persistent id", P("Q."), "byte 0: the stack is empty"},
    {"persistent string", P("X\1\0\0\0aQ."), "byte 6: expected a tuple, got a string"},
    {"storage key missing",
     P("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
       "9X\3\0\0\0cpuK\1tQ."),
     "byte 50: no storage 9"},
    {"storage path", P("(X\7\0\0\0storagectorch\nFloatStorage\nX\4\0\0\0../9X\3\0\0\0cpuK\1tQ."),
     "byte 53: not a storage reference"},
    {"storage too short", P(STORAGE("\x19") "."),
     "byte 50: storage 0: 25 elements of float32 declared, the record has 96 bytes"},
    {"storage negative",
     P("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
       "0X\3\0\0\0cpuJ\xff\xff\xff\xfftQ."),
     "byte 53: storage 0: -1 elements of float32 declared, the record has 96 bytes"},
    {"untyped storage", P("ctorch.storage\nUntypedStorage\n."),
     "byte 0: global \"torch.storage UntypedStorage\" is not allowed (tensors are read, code is "
     "never run)"},
    {"view past the end", P(REBUILD "(" STORAGE("\x18") "K\1K\4K\6\x86K\6K\1\x86" HOOKS "tR."),
     "byte 126: the tensor reaches element 24 of a storage of 24"},
    {"stride past the end", P(REBUILD "(" STORAGE("\x18") "K\0K\4K\6\x86K\7K\1\x86" HOOKS "tR."),
     "byte 126: the tensor reaches element 26 of a storage of 24"},
    {"size wraps",
     P(REBUILD "(" STORAGE("\x18") "K\0\x8a\5\0\0\0\0\1\x8a\5\0\0\0\0\1\x86K\0K\0\x86" HOOKS "tR."),
     "byte 136: the tensor's size wraps"},
    {"negative offset",
     P(REBUILD "(" STORAGE("\x18") "J\xff\xff\xff\xffK\4\x85K\1\x85" HOOKS "tR."),
     "byte 125: storage offset -1 is negative"},
    {"negative stride",
     P(REBUILD "(" STORAGE("\x18") "K\0K\4\x85J\xff\xff\xff\xff\x85" HOOKS "tR."),
     "byte 125: stride 0 is not a number from 0 up"},
    {"sizes and strides differ", P(REBUILD "(" STORAGE("\x18") "K\0K\4\x85K\1K\1\x86" HOOKS "tR."),
     "byte 124: a tensor of 1 sizes and 2 strides, at most 8"},
    {"few arguments", P(REBUILD "N\x85R."), "byte 35: _rebuild_tensor_v2 with 1 arguments"},
    {"wrong argument", P(REBUILD "(NNNNNNtR."),
     "byte 41: argument 1: expected a storage, got None"},
    {"rebuild in rebuild",
     P("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\n"
       "ctorch\nTensor\n)}tR."),
     "byte 92: torch._tensor _rebuild_from_type_v2 called with 0 arguments: not how tensors are "
     "saved"},
};

static void test_accepted(void **state)
{
    (void)state;
    float data[24];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        const pickle_case *c = &accepted[i];
        seen s = {0};
        hs_err err = {0};
        if (hs_pickle_tensors(c->program, c->n, floats24, data, collect, &s, &err) != HS_OK)
            fail_msg("%s: %s", c->what, err.msg);
        assert_string_equal(s.names, c->expected);
        assert_int_equal(s.last.elem, HS_ELEM_F32);
        assert_ptr_equal(s.last.data, data);
    }
}

static void test_refused(void **state)
{
    (void)state;
    float data[24] = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const pickle_case *c = &refused[i];
        seen s = {0};
        hs_err err = {0};
        const hs_status st = hs_pickle_tensors(c->program, c->n, floats24, data, collect, &s, &err);
        if (st != HS_ERR_FORMAT && st != HS_ERR_UNSUPPORTED)
            fail_msg("%s: status %d", c->what, st);
        if (strcmp(err.msg, c->expected) != 0)
            fail_msg("%s: got \"%s\", expected \"%s\"", c->what, err.msg, c->expected);
        assert_int_equal(s.n, 0);
    }
}

/* Every prefix of a good program fails cleanly; exact-size copies let ASan see over-reads. */
static void test_truncated(void **state)
{
    (void)state;
    static const char program[] = "\x80\x02}(X\1\0\0\0a" TENSOR "q\0X\1\0\0\0bh\0u.";
    float data[24] = {0};
    for (size_t n = 0; n + 1 < sizeof program; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, program, n);
        seen s = {0};
        hs_err err;
        const hs_status st = hs_pickle_tensors(copy, n, floats24, data, collect, &s, &err);
        assert_int_not_equal(st, HS_OK);
        free(copy);
    }
}

static void test_strides(void **state)
{
    (void)state;
    static const char transposed[] =
        REBUILD "(" STORAGE("\x18") "K\0K\6K\4\x86K\1K\6\x86" HOOKS "}tR."; /* 7 arguments */
    static const char expanded[] =
        REBUILD "(" STORAGE("\x18") "K\2K\3K\4\x86K\0K\1\x86" HOOKS "tR.";
    static const char empty[] = REBUILD "(" STORAGE("\x18") "K\x18K\0K\4\x86K\4K\1\x86" HOOKS "tR.";
    float data[24];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    seen s = {0};
    hs_err err;
    assert_int_equal(
        hs_pickle_tensors(transposed, sizeof transposed - 1, floats24, data, collect, &s, &err),
        HS_OK);
    float row[6];
    double v;
    assert_int_equal(s.last.shape[0], 6);
    assert_int_equal(hs_ckpt_row_f32(&s.last, 5, row, &err), HS_OK);
    for (int i = 0; i < 4; i++)
        assert_true(row[i] == data[5 + 6 * i]);
    assert_int_equal(hs_ckpt_value(&s.last, 4 * 2 + 3, &v, &err), HS_OK);
    assert_true(v == (double)data[2 + 6 * 3]);
    assert_int_equal(
        hs_pickle_tensors(expanded, sizeof expanded - 1, floats24, data, collect, &s, &err), HS_OK);
    for (uint64_t r = 0; r < 3; r++) {
        assert_int_equal(hs_ckpt_row_f32(&s.last, r, row, &err), HS_OK);
        for (int i = 0; i < 4; i++)
            assert_true(row[i] == data[2 + i]);
    }
    assert_int_equal(hs_pickle_tensors(empty, sizeof empty - 1, floats24, data, collect, &s, &err),
                     HS_OK);
    assert_int_equal(hs_ckpt_elems(&s.last), 0);
    assert_int_not_equal(hs_ckpt_value(&s.last, 0, &v, &err), HS_OK);
}

/* A program of nothing but marks, and one that keeps pushing: bounded, refused or empty. */
static void test_floods(void **state)
{
    (void)state;
    const size_t n = (size_t)4 << 20;
    char *p = malloc(n);
    hs_err err;
    seen s = {0};
    memset(p, '(', n);
    assert_int_equal(hs_pickle_tensors(p, n, floats24, NULL, collect, &s, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "byte 524288: too many values in one place");
    memset(p, '}', n);
    assert_int_equal(hs_pickle_tensors(p, n, floats24, NULL, collect, &s, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "byte 524288: the program makes too many values");
    free(p);
    assert_int_equal(s.n, 0);
}

/* Dicts that hold the same dict twice, 30 deep: 2^30 paths from 400 bytes. */
static void test_laughs(void **state)
{
    (void)state;
    char p[1024];
    size_t n = 0;
    p[n++] = '}';
    for (int i = 0; i < 30; i++) {
        /* q i } ( K 1 h i K 2 h i u */
        const char step[] = {'q',     (char)i, '}', '(', 'K',     1,  'h',
                             (char)i, 'K',     2,   'h', (char)i, 'u'};
        memcpy(p + n, step, sizeof step);
        n += sizeof step;
    }
    p[n++] = '.';
    seen s = {0};
    hs_err err;
    assert_int_equal(hs_pickle_tensors(p, n, floats24, NULL, collect, &s, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "dicts nested too deeply"));
}

/* --- archives ------------------------------------------------------------ */

typedef struct part {
    const char *name;
    const void *data;
    size_t n;
} part;

static void *make_zip(const part *parts, size_t n, bool deflate, size_t *size)
{
    const size_t cap = (size_t)8 << 20;
    void *buf = malloc(cap);
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_set_format_zip(a), ARCHIVE_OK);
    if (deflate)
        archive_write_zip_set_compression_deflate(a);
    else
        archive_write_zip_set_compression_store(a);
    assert_int_equal(archive_write_open_memory(a, buf, cap, size), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, parts[i].name);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_size(e, (la_int64_t)parts[i].n);
        assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, parts[i].data, parts[i].n), parts[i].n);
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return buf;
}

static const char program24[] = "\x80\x02" TENSOR ".";
static const char floats[96] = {0};

static void check_zip(const part *parts, size_t n, bool deflate, const char *expected)
{
    size_t size = 0;
    void *zip = make_zip(parts, n, deflate, &size);
    seen s = {0};
    hs_err err = {0};
    hs_torch_zip *z = NULL;
    const hs_status st = hs_torch_zip_parse(&z, zip, size, collect, &s, &err);
    if (expected) {
        assert_string_equal(err.msg, expected);
        assert_int_equal(hs_exit_status(st), 3);
        assert_null(z);
    } else {
        if (st != HS_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(s.n, 1);
        float row[6];
        assert_int_equal(hs_ckpt_row_f32(&s.last, 3, row, NULL), HS_OK);
    }
    hs_torch_zip_free(z);
    free(zip);
}

#define PART(name, data)             \
    {                                \
        name, data, sizeof(data) - 1 \
    }
#define PROGRAM                                       \
    {                                                 \
        "a/data.pkl", program24, sizeof program24 - 1 \
    }
#define FLOATS                            \
    {                                     \
        "a/data/0", floats, sizeof floats \
    }

static void test_archives(void **state)
{
    (void)state;
    const part good[] = {PROGRAM, FLOATS, PART("a/version", "3\n"), PART("a/byteorder", "little"),
                         PART("a/.data/serialization_id", "1234")};
    check_zip(good, 5, false, NULL);
    check_zip(good, 5, true, NULL);
    const part utf8[] = {{"\xe6\x97\xa5/data.pkl", program24, sizeof program24 - 1},
                         {"\xe6\x97\xa5/data/0", floats, sizeof floats}};
    check_zip(utf8, 2, false, NULL);
    const part bare[] = {{"data.pkl", program24, sizeof program24 - 1},
                         {"data/0", floats, sizeof floats}};
    check_zip(bare, 2, false, NULL);

    const part big[] = {PROGRAM, FLOATS, PART("a/byteorder", "big")};
    check_zip(big, 3, false, "byteorder is \"big\", only \"little\" is supported");
    const part no_data[] = {PROGRAM};
    check_zip(no_data, 1, false,
              "data.pkl: byte 86: storage 0: the archive has no member a/data/0");
    const part no_pkl[] = {FLOATS};
    check_zip(no_pkl, 1, false, "a zip archive without data.pkl: not a torch file");
    const part two[] = {PROGRAM, {"b/data.pkl", program24, sizeof program24 - 1}};
    check_zip(two, 2, false, "two members named data.pkl");
    const part twice[] = {PROGRAM, FLOATS, FLOATS};
    check_zip(twice, 3, false, "two members named a/data/0");
    const part up[] = {PROGRAM, FLOATS, PART("a/../../x", "1")};
    check_zip(up, 3, false, "member 2: unsafe name \"a/../../x\"");
    const part absolute[] = {PROGRAM, FLOATS, PART("/etc/x", "1")};
    check_zip(absolute, 3, false, "member 2: unsafe name \"/etc/x\"");
    const part short_data[] = {PROGRAM, {"a/data/0", floats, 92}};
    check_zip(short_data, 2, false,
              "data.pkl: byte 86: storage 0: 24 elements of float32 declared, the record has 92 "
              "bytes");

    const size_t n = (size_t)6 << 20;
    char *zeros = calloc(1, n);
    const part bomb[] = {PROGRAM, FLOATS, {"a/data/1", zeros, n}};
    size_t size = 0;
    void *zip = make_zip(bomb, 3, true, &size);
    hs_torch_zip *z;
    hs_err err;
    seen s = {0};
    assert_int_equal(hs_torch_zip_parse(&z, zip, size, collect, &s, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "16 times the file"));
    free(zip);
    free(zeros);
}

static void test_damaged(void **state)
{
    (void)state;
    hs_map map;
    assert_int_equal(hs_map_open(&map, "tests/golden/pt/sd.pt", NULL), HS_OK);
    uint8_t *copy = malloc(map.size);
    seen s;
    hs_err err;
    hs_torch_zip *z;
    memcpy(copy, map.data, map.size);
    copy[512 + 3] ^= 1; /* in data/0 */
    memset(&s, 0, sizeof s);
    assert_int_equal(hs_torch_zip_parse(&z, copy, map.size, collect, &s, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "sd/data/0: ZIP bad CRC"));
    for (size_t n = 0; n < map.size; n += 7) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, map.data, n);
        memset(&s, 0, sizeof s);
        assert_int_not_equal(hs_torch_zip_parse(&z, cut, n, collect, &s, &err), HS_OK);
        free(cut);
    }
    free(copy);
    hs_map_close(&map);
    assert_int_equal(hs_torch_zip_parse(&z, "", 0, collect, &s, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "not a torch zip file (it does not start with PK)");
    assert_int_equal(hs_torch_zip_parse(&z, "\x80\x04N.", 4, collect, &s, &err),
                     HS_ERR_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "a bare pickle, not a torch zip file; save its tensors with torch.save");
}

/* --- writing ------------------------------------------------------------- */

static void check_rewrite(const char *path, const char *stem)
{
    hs_map map;
    hs_err err = {0};
    hs_checkpoint *c = open_ok(path);
    const hs_ckpt_tensor *t = hs_checkpoint_at(c, 0);
    const uint64_t n = hs_ckpt_elems(t);
    int64_t *v = calloc(n + 1, sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(hs_ckpt_int(t, i, &v[i], NULL), HS_OK);
    char out_path[64];
    snprintf(out_path, sizeof out_path, "/tmp/hotset-test-%ld.pt", (long)getpid());
    hs_out *out;
    assert_int_equal(hs_out_open(&out, out_path, true, &err), HS_OK);
    assert_int_equal(hs_torch_write_i64(out, stem, v, n, &err), HS_OK);
    assert_int_equal(hs_out_map(out, &map, &err), HS_OK);
    hs_map original;
    assert_int_equal(hs_map_open(&original, path, &err), HS_OK);
    assert_int_equal(map.size, original.size);
    assert_memory_equal(map.data, original.data, original.size);
    hs_map_close(&original);
    hs_map_close(&map);
    hs_out_abort(out);
    hs_checkpoint_free(c);
    free(v);
}

static void test_write(void **state)
{
    (void)state;
    check_rewrite("tests/golden/pt/activation_0.pt", "activation_0");
    check_rewrite("data/kjv-relu-8m/reference/activation/activation_0.pt", "activation_0");
    check_rewrite("data/kjv-relu-8m/reference/activation/activation_5.pt", "activation_5");
}

/* Sizes on both sides of every opcode and padding boundary read back as written. */
static void test_round_trip(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 2, 255, 256, 511, 512, 513, 65535, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t n = sizes[i];
        int64_t *v = malloc((n + 1) * sizeof *v);
        for (uint64_t k = 0; k < n; k++)
            v[k] = (int64_t)(k * UINT64_C(0x9e3779b97f4a7c15));
        hs_out *out;
        hs_err err = {0};
        assert_int_equal(hs_out_open(&out, "/tmp/hotset-test-rt.pt", true, &err), HS_OK);
        char stem[80];
        snprintf(stem, sizeof stem, "%.*s", (int)(i * 7 + 1),
                 "a-stem-of-growing-length-that-moves-the-padding-through-all-cases-of-it");
        assert_int_equal(hs_torch_write_i64(out, stem, v, n, &err), HS_OK);
        hs_map map;
        assert_int_equal(hs_out_map(out, &map, &err), HS_OK);
        seen s = {0};
        hs_torch_zip *z = NULL;
        if (hs_torch_zip_parse(&z, map.data, map.size, collect, &s, &err) != HS_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(s.last.shape[0], n);
        assert_int_equal((s.last.data - map.data) % 64, 0);
        for (uint64_t k = 0; k < n; k++) {
            int64_t x = 0;
            assert_int_equal(hs_ckpt_int(&s.last, k, &x, NULL), HS_OK);
            assert_true(x == v[k]);
        }
        hs_torch_zip_free(z);
        hs_map_close(&map);
        hs_out_abort(out);
        free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_plain), cmocka_unit_test(test_golden_values),
        cmocka_unit_test(test_golden_dicts), cmocka_unit_test(test_golden_checkpoint),
        cmocka_unit_test(test_legacy),       cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_strides),      cmocka_unit_test(test_floods),
        cmocka_unit_test(test_laughs),       cmocka_unit_test(test_archives),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_write),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
