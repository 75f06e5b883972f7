/* Builds values of the report and renders it as text. */
#include "runtime/cli.h"
#include "runtime/hotset.h"
#include "tools/inspect/inspect.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 16, CELL = 512, SHOWN = 64 };

/* ---- values ------------------------------------------------------------------------------ */

json_t *inspect_string(const char *p, size_t n, size_t max)
{
    const size_t end = n < max ? n : max;
    char *t = malloc(end * 3 + 4);
    if (!t)
        return NULL;
    size_t k = 0;
    for (size_t i = 0; i < end;) {
        const size_t c = hs_utf8_char(p + i, n - i);
        memcpy(t + k, c ? p + i : "\xef\xbf\xbd", c ? c : 3);
        k += c ? c : 3;
        i += c ? c : 1;
    }
    if (end < n) {
        static const char ellipsis[3] = {'\xe2', '\x80', '\xa6'};
        memcpy(t + k, ellipsis, sizeof ellipsis);
        k += sizeof ellipsis;
    }
    json_t *s = json_stringn(t, k);
    free(t);
    return s;
}

json_t *inspect_number(double v)
{
    if (isfinite(v))
        return json_real(v);
    return json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

json_t *inspect_count(uint64_t v)
{
    if (v <= INT64_MAX)
        return json_integer((json_int_t)v);
    char s[24];
    snprintf(s, sizeof s, "%llu", (unsigned long long)v);
    return json_string(s);
}

void inspect_warn(json_t *report, const char *fmt, ...)
{
    char s[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    json_t *list = json_object_get(report, "warnings");
    if (!list) {
        list = json_array();
        json_object_set_new(report, "warnings", list);
    }
    json_array_append_new(list, inspect_string(s, strlen(s), sizeof s));
}

/* ---- text -------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* One line: control bytes as \xHH, cut at `max` bytes (at a character). */
static void put_text(char *out, size_t cap, const char *s, size_t max)
{
    size_t k = 0;
    for (size_t i = 0; s[i];) {
        const unsigned char c = (unsigned char)s[i];
        const size_t n = hs_utf8_char(s + i, strlen(s + i));
        if (i >= max || k + 8 > cap) {
            k += (size_t)snprintf(out + k, cap - k, "\xe2\x80\xa6");
            break;
        }
        if (c < 0x20 || c == 0x7f || !n) {
            k += (size_t)snprintf(out + k, cap - k, "\\x%02X", c);
            i++;
        } else {
            memcpy(out + k, s + i, n);
            k += n;
            i += n;
        }
    }
    out[k] = 0;
}

static void put_value(char *out, size_t cap, const char *key, const json_t *v);

static void put_list(char *out, size_t cap, const char *key, const json_t *list)
{
    size_t k = 0, i;
    json_t *v;
    out[0] = 0;
    json_array_foreach(list, i, v)
    {
        char one[96];
        put_value(one, sizeof one, key, v);
        if (k + strlen(one) + 8 > cap)
            break;
        k += (size_t)snprintf(out + k, cap - k, "%s%s", i ? ", " : "", one);
    }
}

static void put_value(char *out, size_t cap, const char *key, const json_t *v)
{
    char b[24];
    out[0] = 0;
    if (json_is_string(v))
        put_text(out, cap, json_string_value(v), SHOWN);
    else if (json_is_boolean(v))
        snprintf(out, cap, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_null(v))
        snprintf(out, cap, "none");
    else if (json_is_array(v))
        put_list(out, cap, key, v);
    else if (json_is_integer(v) && ends_with(key, "bytes"))
        snprintf(out, cap, "%s", hs_format_bytes(b, sizeof b, (uint64_t)json_integer_value(v)));
    else if (json_is_integer(v))
        snprintf(out, cap, "%lld", (long long)json_integer_value(v));
    else if (ends_with(key, "share"))
        snprintf(out, cap, "%.2f %%", 100 * json_real_value(v));
    else
        snprintf(out, cap, "%.6g", json_real_value(v));
}

static size_t columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void print_title(const char *key)
{
    for (; *key; key++)
        putchar(*key == '_' ? ' ' : *key);
}

static void print_cell(const char *s, size_t width, bool right, bool last)
{
    const size_t n = columns(s), pad = n < width ? width - n : 0;
    if (right)
        printf("%*s%s", (int)pad, "", s);
    else
        printf("%s%*s", s, last ? 0 : (int)pad, "");
}

/* Rows are objects with the keys of the first one. */
static void print_table(const char *title, const json_t *rows)
{
    const char *key[MAX_COLUMNS];
    size_t width[MAX_COLUMNS], n = 0, i;
    bool right[MAX_COLUMNS];
    char cell[CELL];
    const char *k;
    json_t *v, *row, *first = json_array_get(rows, 0);
    json_object_foreach(first, k, v)
    {
        if (n == MAX_COLUMNS)
            break;
        key[n] = k;
        width[n] = strlen(k);
        right[n++] = json_is_number(v) || json_is_null(v);
    }
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            put_value(cell, sizeof cell, key[c], json_object_get(row, key[c]));
            const size_t w = columns(cell);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    putchar('\n');
    print_title(title);
    printf("\n");
    for (size_t c = 0; c < n; c++) {
        char name[CELL];
        snprintf(name, sizeof name, "%s", key[c]);
        for (char *p = name; *p; p++)
            if (*p == '_')
                *p = ' ';
        printf("  ");
        print_cell(name, width[c], right[c], c + 1 == n);
    }
    putchar('\n');
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            put_value(cell, sizeof cell, key[c], json_object_get(row, key[c]));
            printf("  ");
            print_cell(cell, width[c], right[c], c + 1 == n);
        }
        putchar('\n');
    }
}

static bool is_table(const json_t *v)
{
    return json_is_array(v) && json_is_object(json_array_get(v, 0));
}

void inspect_print(json_t *report)
{
    const char *key;
    json_t *v;
    char text[4096];
    json_object_foreach(report, key, v)
    {
        if (is_table(v) || !strcmp(key, "warnings"))
            continue;
        if (json_is_array(v) && !json_array_size(v))
            continue;
        if (json_is_string(v))
            put_text(text, sizeof text, json_string_value(v), sizeof text - 16);
        else
            put_value(text, sizeof text, key, v);
        print_title(key);
        printf("%*s%s\n", columns(key) < 22 ? (int)(22 - columns(key)) : 1, "", text);
    }
    json_object_foreach(report, key, v)
    {
        if (is_table(v))
            print_table(key, v);
    }
}
