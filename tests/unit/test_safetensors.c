/* Safetensors: hand-broken files, each with its message (field reports C06-C12 and B2). */
#include "formats/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct seen {
    int n;
    char names[256];
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
    /* every accepted byte is readable */
    unsigned sum = 0;
    for (uint64_t i = 0; i < hs_ckpt_elems(t) * hs_elem_bytes(t->elem); i++)
        sum += t->data[i];
    return sum == 1u << 31 ? HS_ERR_FAILED : HS_OK;
}

/* The file on the heap in its exact size, so that ASan sees a read past it. */
static hs_status parse(const char *header, uint64_t claimed, size_t data_bytes, seen *s,
                       hs_err *err)
{
    const size_t n = strlen(header);
    if (!claimed)
        claimed = n;
    uint8_t *file = calloc(1, 8 + n + data_bytes);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(claimed >> (8 * i));
    memcpy(file + 8, header, n);
    memset(s, 0, sizeof *s);
    memset(err, 0, sizeof *err);
    const hs_status st = hs_safetensors_parse(file, 8 + n + data_bytes, collect, s, err);
    free(file);
    return st;
}

#define T(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *what, *header;
    uint64_t claimed; /* header length in the file; 0: the real one */
    size_t data_bytes;
    const char *expected;
} refused[] = {
    {"length 2^63", "{}", UINT64_C(1) << 63, 0,
     "header length 9223372036854775808 is above the format's limit of 100000000"},
    {"length 2^32", "{}", UINT64_C(1) << 32, 0,
     "header length 4294967296 is above the format's limit of 100000000"},
    {"above 100 MB", "{}", 100000001, 0,
     "header length 100000001 is above the format's limit of 100000000"},
    {"file size + 1", "{}", 11, 0, "header length 11 reaches past the end of the file (10 bytes)"},
    {"one byte past", "{}", 3, 0, "header length 3 reaches past the end of the file (10 bytes)"},
    {"array", "[]", 0, 0, "header: line 1, column 1: expected a JSON object"},
    {"no JSON", "{\"a\"", 0, 0, "header: line 1, column 4: ':' expected near end of file"},
    {"duplicate name", "{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[0,4]") "}", 0,
     4, "header: line 1, column 57: duplicate object key near '\"a\"'"},
    {"entry is no object", "{\"a\":3}", 0, 4, "a: expected an object"},
    {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4,
     "a: data_offsets: expected two integers"},
    {"three offsets", "{\"a\":" T("F32", "[1]", "[0,4,4]") "}", 0, 4,
     "a: data_offsets: expected two integers"},
    {"offset no integer", "{\"a\":" T("F32", "[1]", "[0,4.0]") "}", 0, 4,
     "a: data_offsets[1] is not an integer"},
    {"offset a string", "{\"a\":" T("F32", "[1]", "[\"0\",4]") "}", 0, 4,
     "a: data_offsets[0] is not an integer"},
    {"negative offset", "{\"a\":" T("F32", "[1]", "[-4,0]") "}", 0, 4,
     "a: data_offsets[0] is negative (-4)"},
    {"reversed", "{\"a\":" T("F32", "[1]", "[4,0]") "}", 0, 4,
     "a: data_offsets [4, 0] are reversed"},
    {"past the end", "{\"a\":" T("F32", "[2]", "[0,8]") "}", 0, 4,
     "a: data_offsets [0, 8] reach past the end: the file has 4 data bytes"},
    {"cut off", "{\"a\":" T("F32", "[250]", "[0,1000]") "}", 0, 999,
     "a: data_offsets [0, 1000] reach past the end: the file has 999 data bytes"},
    {"overlap", "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", 0, 12,
     "b: data_offsets [4, 12] overlap a"},
    {"same place", "{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 0, 4,
     "b: data_offsets [0, 4] overlap a"},
    {"hole", "{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 0, 12,
     "b: hole of 4 bytes before data offset 8"},
    {"hole in front", "{\"a\":" T("F32", "[1]", "[4,8]") "}", 0, 8,
     "a: hole of 4 bytes before data offset 4"},
    {"trailing bytes", "{\"a\":" T("F32", "[1]", "[0,4]") "}", 0, 5,
     "the header describes 4 data bytes, the file has 5"},
    {"shape wraps", "{\"a\":" T("F32", "[4294967296,4294967296]", "[0,4]") "}", 0, 4,
     "a: the product of the shape wraps"},
    {"bytes wrap", "{\"a\":" T("F32", "[4611686018427387905]", "[0,4]") "}", 0, 4,
     "a: the product of the shape wraps"},
    {"wraps behind a 0", "{\"a\":" T("F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, 0,
     "a: the product of the shape wraps"},
    {"shape too big", "{\"a\":" T("F32", "[1000,1000]", "[0,4]") "}", 0, 4,
     "a: shape and dtype F32 need 4000000 bytes, data_offsets cover 4"},
    {"shape too small", "{\"a\":" T("BF16", "[1]", "[0,4]") "}", 0, 4,
     "a: shape and dtype BF16 need 2 bytes, data_offsets cover 4"},
    {"negative dimension", "{\"a\":" T("F32", "[-1]", "[0,4]") "}", 0, 4,
     "a: a dimension is negative (-1)"},
    {"dimension no integer", "{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 0, 4,
     "a: a dimension is not an integer"},
    {"shape no array", "{\"a\":" T("F32", "1", "[0,4]") "}", 0, 4, "a: shape: expected an array"},
    {"nine dimensions", "{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 0, 4,
     "a: shape has 9 dimensions, at most 8 are accepted"},
    {"dtype no string", "{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
     "a: dtype: expected a short string"},
    {"dtype too long", "{\"a\":" T("F32F32F32F32F32F32", "[1]", "[0,4]") "}", 0, 4,
     "a: dtype: expected a short string"},
    {"metadata no object", "{\"__metadata__\":3}", 0, 0,
     "__metadata__: expected an object of strings"},
    {"metadata value", "{\"__metadata__\":{\"a\":3}}", 0, 0, "__metadata__: \"a\" is not a string"},
    {"second of two is bad",
     "{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[2]", "[4,8]") "}", 0, 8,
     "b: shape and dtype F32 need 8 bytes, data_offsets cover 4"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        seen s;
        hs_err err;
        const hs_status st =
            parse(refused[i].header, refused[i].claimed, refused[i].data_bytes, &s, &err);
        if (st != HS_ERR_FORMAT)
            fail_msg("%s: accepted", refused[i].what);
        if (strcmp(err.msg, refused[i].expected) != 0)
            fail_msg("%s: got \"%s\", expected \"%s\"", refused[i].what, err.msg,
                     refused[i].expected);
        assert_int_equal(s.n, 0); /* nothing is visited before all is checked */
    }
}

static void test_short(void **state)
{
    (void)state;
    hs_err err;
    seen s = {0};
    assert_int_equal(hs_safetensors_parse("", 0, collect, &s, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "0 bytes, too short for a safetensors file");
    assert_int_equal(hs_safetensors_parse("\0\0\0\0\0\0\0\0{}", 10, collect, &s, &err),
                     HS_ERR_FORMAT);
    assert_string_equal(err.msg, "header length is 0");
}

static void test_accepted(void **state)
{
    (void)state;
    seen s;
    hs_err err;
    /* out of order but without hole: visited in order of offset */
    assert_int_equal(
        parse("{\"b\":" T("F16", "[2,3]", "[4,16]") ",\"__metadata__\":{\"x\":\"y\"},"
                                                    "\"a\":" T("F32", "[]", "[0,4]") ",\"e\":" T(
                                                        "F32", "[0,7]", "[4,4]") "}   ",
              0, 16, &s, &err),
        HS_OK);
    assert_string_equal(s.names, "[a][e][b]");
    assert_int_equal(s.last.elem, HS_ELEM_F16);
    assert_int_equal(s.last.n_dims, 2);
    assert_int_equal(s.last.shape[0], 2);
    assert_int_equal(s.last.stride[0], 3);
    assert_int_equal(s.last.stride[1], 1);
    assert_int_equal(parse("{}", 0, 0, &s, &err), HS_OK);
    assert_int_equal(s.n, 0);

    static const struct {
        const char *header;
        size_t bytes;
        hs_elem elem;
        const char *name;
    } kinds[] = {
        {"{\"a\":" T("F64", "[2]", "[0,16]") "}", 16, HS_ELEM_F64, "F64"},
        {"{\"a\":" T("I64", "[2]", "[0,16]") "}", 16, HS_ELEM_I64, "I64"},
        {"{\"a\":" T("I32", "[2]", "[0,8]") "}", 8, HS_ELEM_I32, "I32"},
        {"{\"a\":" T("I16", "[2]", "[0,4]") "}", 4, HS_ELEM_I16, "I16"},
        {"{\"a\":" T("I8", "[2]", "[0,2]") "}", 2, HS_ELEM_I8, "I8"},
        {"{\"a\":" T("U8", "[2]", "[0,2]") "}", 2, HS_ELEM_U8, "U8"},
        {"{\"a\":" T("BOOL", "[2]", "[0,2]") "}", 2, HS_ELEM_BOOL, "BOOL"},
        {"{\"a\":" T("F8_E4M3", "[2]", "[0,2]") "}", 2, HS_ELEM_OTHER, "F8_E4M3"},
        {"{\"a\":" T("F4", "[16]", "[0,8]") "}", 8, HS_ELEM_OTHER, "F4"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(parse(kinds[i].header, 0, kinds[i].bytes, &s, &err), HS_OK);
        assert_int_equal(s.last.elem, kinds[i].elem);
        assert_string_equal(s.last.elem_name, kinds[i].name);
    }
}

static hs_status stop(void *ud, const hs_ckpt_tensor *t, hs_err *err)
{
    ++*(int *)ud;
    return hs_fail(err, HS_ERR_INTERRUPTED, "enough of %s", t->name);
}

static void test_visitor_stops(void **state)
{
    (void)state;
    static const char file[] = "\x50\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
                               "\"data_offsets\":[0,1]}}                            ab";
    int n = 0;
    hs_err err;
    assert_int_equal(hs_safetensors_parse(file, 8 + 0x50 + 1, stop, &n, &err), HS_ERR_INTERRUPTED);
    assert_string_equal(err.msg, "enough of a");
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_visitor_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
