/* JSON: bounds and messages. */
#include "formats/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *text, *expected;
} refused[] = {
    {"", "line 1, column 0: '[' or '{' expected near end of file"},
    {"[]", "line 1, column 1: expected a JSON object"},
    {"3", "line 1, column 1: '[' or '{' expected near '3'"},
    {"{\"a\": 1, \"a\": 2}", "line 1, column 12: duplicate object key near '\"a\"'"},
    {"{\"a\": 1}x", "line 1, column 9: end of file expected near 'x'"},
    {"{\"a\": }", "line 1, column 7: unexpected token near '}'"},
    {"{\"a\": 99999999999999999999}",
     "line 1, column 26: too big integer near '99999999999999999999'"},
    {"{\"a\": \"b", "line 1, column 8: premature end of input near '\"b'"},
    {"{\n\"a\": \"\\u0000\"}",
     "line 2, column 13: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"\\u0000\"'"},
    {"{\"a\": \"\xff\"}", "line 1, column 7: unable to decode byte 0xff near '\"'"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *root = (json_t *)1;
        hs_err err;
        const size_t n = strlen(refused[i].text);
        char *copy = malloc(n ? n : 1); /* no NUL behind it */
        memcpy(copy, refused[i].text, n);
        assert_int_equal(hs_json_parse(&root, copy, n, &err), HS_ERR_FORMAT);
        assert_string_equal(err.msg, refused[i].expected);
        assert_null(root);
        free(copy);
    }
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * 5000 + 16];
    for (int depth = 60; depth < 5000; depth += 4900) {
        size_t n = 0;
        memcpy(text, "{\"a\":", 5);
        n = 5;
        memset(text + n, '[', (size_t)depth);
        n += (size_t)depth;
        memset(text + n, ']', (size_t)depth);
        n += (size_t)depth;
        text[n++] = '}';
        json_t *root;
        hs_err err;
        const hs_status s = hs_json_parse(&root, text, n, &err);
        if (depth <= 63) {
            assert_int_equal(s, HS_OK);
            json_decref(root);
        } else {
            assert_int_equal(s, HS_ERR_FORMAT);
            assert_string_equal(err.msg, "line 1: JSON nested deeper than 64 levels");
        }
    }
}

static void test_accepted(void **state)
{
    (void)state;
    json_t *root;
    hs_err err;
    /* brackets and quotes inside strings count for nothing */
    static const char text[] = "{\"a\\\"[[[\": [\"{{{\", 1, -2.5, true, null]}  \n";
    assert_int_equal(hs_json_parse(&root, text, sizeof text - 1, &err), HS_OK);
    assert_int_equal(json_array_size(json_object_get(root, "a\"[[[")), 5);
    json_decref(root);
    assert_int_equal(hs_json_read(&root, "data/kjv-relu-8m/config.json", &err), HS_OK);
    assert_int_equal(json_integer_value(json_object_get(root, "hidden_size")), 256);
    json_decref(root);
    assert_int_equal(hs_json_read(&root, "data/none.json", &err), HS_ERR_INPUT);
    assert_string_equal(err.msg, "data/none.json: cannot open: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
