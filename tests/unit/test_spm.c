/* SentencePiece models: the bundled ones, and hand-broken protobufs with their messages. */
#include "formats/spm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define P(bytes) bytes, sizeof(bytes) - 1

static const struct {
    const char *what, *bytes;
    size_t n;
    const char *expected;
} refused[] = {
    {"empty", P(""), "empty file, expected a SentencePiece model"},
    {"broken trainer", P("\x0a\3\x0a\1a\x12\1\x18"), "byte 7: the file ends inside a field"},
    {"broken normalizer", P("\x0a\3\x0a\1a\x1a\2\x12\5"), "byte 7: the file ends inside a field"},
    {"no pieces", P("\x2a\1a"), "no pieces, expected a SentencePiece model"},
    {"endless varint", P("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
     "byte 0: the file ends inside a field"},
    {"varint of 65 bits", P("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\2"),
     "byte 0: the file ends inside a field"},
    {"length 2^63", P("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\1"),
     "byte 0: the file ends inside a field"},
    {"cut tag", P("\x80"), "byte 0: the file ends inside a field"},
    {"cut piece", P("\x0a\5\x0a\1a"), "byte 0: the file ends inside a field"},
    {"cut fixed32", P("\x15\0\0\0"), "byte 0: the file ends inside a field"},
    {"cut fixed64", P("\x11\0\0\0\0\0\0\0"), "byte 0: the file ends inside a field"},
    {"group", P("\x0b\x0c"), "byte 0: wire type 3, not a SentencePiece model"},
    {"wire type 7", P("\x0f"), "byte 0: wire type 7, not a SentencePiece model"},
    {"field 0", P("\2\1a"), "byte 0: field number 0, not a SentencePiece model"},
    {"field too large", P("\x82\x80\x80\x80\x80\1\1a"),
     "byte 0: field number 4294967296, not a SentencePiece model"},
    {"piece as varint", P("\x08\1"), "byte 2: piece field 1 has wire type 0, expected 2"},
    {"piece without text", P("\x0a\5\x15\0\0\0\0"), "byte 2: piece 0 is empty"},
    {"piece with empty text", P("\x0a\2\x0a\0"), "byte 2: piece 0 is empty"},
    {"text as varint", P("\x0a\2\x08\1"), "byte 2: piece field 1 has wire type 0, expected 2"},
    {"score as varint", P("\x0a\5\x0a\1a\x10\1"),
     "byte 2: piece field 2 has wire type 0, expected 5"},
    {"type as bytes", P("\x0a\6\x0a\1a\x1a\1b"),
     "byte 2: piece field 3 has wire type 2, expected 0"},
    {"score NaN", P("\x0a\x08\x0a\1a\x15\0\0\xc0\x7f"),
     "byte 2: the score of piece 0 is not finite"},
    {"score infinite", P("\x0a\3\x0a\1a\x0a\x08\x0a\1b\x15\0\0\x80\xff"),
     "byte 7: the score of piece 1 is not finite"},
    {"type 0", P("\x0a\5\x0a\1a\x18\0"), "byte 2: piece 0 has type 0"},
    {"type 7", P("\x0a\5\x0a\1a\x18\7"), "byte 2: piece 0 has type 7"},
    {"text past its piece", P("\x0a\3\x0a\2a\x12\1a"), "byte 2: the file ends inside a field"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        hs_spm *s = NULL;
        hs_err err = {0};
        char *copy = malloc(refused[i].n ? refused[i].n : 1);
        memcpy(copy, refused[i].bytes, refused[i].n);
        if (hs_spm_parse(&s, copy, refused[i].n, &err) != HS_ERR_FORMAT)
            fail_msg("%s: accepted", refused[i].what);
        if (strcmp(err.msg, refused[i].expected) != 0)
            fail_msg("%s: got \"%s\", expected \"%s\"", refused[i].what, err.msg,
                     refused[i].expected);
        assert_null(s);
        free(copy);
    }
}

static void test_small(void **state)
{
    (void)state;
    /* score and type in any order, the last of a repeated field wins, unknown fields skipped */
    static const char bytes[] = "\x0a\x0d\x18\6\x15\0\0\x80\xbf\x0a\1x\x0a\1a"
                                "\x12\2\x18\2\x1a\4\x18\0\x20\0\x18\7\x21\0\0\0\0\0\0\0\0"
                                "\x0a\4\x0a\2\xc3\xa9";
    hs_spm *s;
    hs_err err;
    assert_int_equal(hs_spm_parse(&s, bytes, sizeof bytes - 1, &err), HS_OK);
    assert_int_equal(s->n, 2);
    assert_true(hs_str_eq(s->piece[0], "a"));
    assert_true(s->score[0] == -1.0f);
    assert_int_equal(s->type[0], HS_TOKEN_BYTE);
    assert_true(hs_str_eq(s->piece[1], "\xc3\xa9"));
    assert_true(s->score[1] == 0.0f);
    assert_int_equal(s->type[1], HS_TOKEN_NORMAL);
    assert_false(s->unigram);
    assert_false(s->add_dummy_prefix);
    assert_false(s->rewrites);
    hs_spm_free(s);
}

static void test_too_many(void **state)
{
    (void)state;
    const size_t n = ((size_t)1 << 20) + 1;
    char *p = malloc(n * 5);
    for (size_t i = 0; i < n; i++)
        memcpy(p + 5 * i, "\x0a\3\x0a\1a", 5);
    hs_spm *s;
    hs_err err;
    assert_int_equal(hs_spm_parse(&s, p, n * 5, &err), HS_ERR_FORMAT);
    assert_string_equal(err.msg, "more than 1048576 pieces");
    assert_int_equal(hs_spm_parse(&s, p, (n - 1) * 5, &err), HS_OK);
    assert_int_equal(s->n, n - 1);
    hs_spm_free(s);
    free(p);
}

static void test_bundled(void **state)
{
    (void)state;
    hs_spm *s;
    hs_err err;
    assert_int_equal(hs_spm_open(&s, "data/kjv-relu-8m/tokenizer.model", &err), HS_OK);
    assert_int_equal(s->n, 2048);
    assert_true(hs_str_eq(s->piece[0], "<unk>"));
    assert_int_equal(s->type[0], HS_TOKEN_UNKNOWN);
    assert_true(hs_str_eq(s->piece[1], "<s>"));
    assert_int_equal(s->type[1], HS_TOKEN_CONTROL);
    assert_true(hs_str_eq(s->piece[3], "<0x00>"));
    assert_int_equal(s->type[3], HS_TOKEN_BYTE);
    assert_false(s->unigram);
    assert_true(s->add_dummy_prefix);
    assert_false(s->rewrites);
    hs_spm_free(s);
    assert_int_equal(hs_spm_open(&s, "tests/golden/hf/m1/tokenizer.model", &err), HS_OK);
    assert_int_equal(s->n, 320);
    assert_true(s->rewrites); /* NFKC */
    hs_spm_free(s);
    assert_int_equal(hs_spm_open(&s, "data/kjv-relu-8m/config.json", &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "data/kjv-relu-8m/config.json: byte 0: "));
    assert_int_equal(hs_spm_open(&s, "data/none", &err), HS_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_bundled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
