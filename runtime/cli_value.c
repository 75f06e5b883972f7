/* Option values: strict numbers, sizes, choices, lists. */
#include "runtime/cli.h"
#include "runtime/cli_impl.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits only; strtoull alone would take blanks, signs and wrap a minus around. */
static bool parse_u64(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (!isdigit((unsigned char)*s) || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

static bool parse_i64(const char *s, int64_t *out)
{
    const bool minus = *s == '-';
    uint64_t v;
    if (!parse_u64(s + minus, &v) || v > (uint64_t)INT64_MAX + minus)
        return false;
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static bool parse_real(const char *s, double *out)
{
    /* What strtod takes beyond a decimal number: blanks, hexadecimal, inf, nan. */
    if (!*s || strspn(s, "0123456789+-.eE") != strlen(s))
        return false;
    char *end;
    const double v = strtod(s, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool hs_parse_size(const char *s, uint64_t *out)
{
    const size_t digits = strspn(s, "0123456789");
    char number[24];
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, s, digits);
    number[digits] = '\0';
    uint64_t v;
    if (!parse_u64(number, &v))
        return false;
    s += digits;
    if (*s) {
        const char *const units = "KMGT", *u = strchr(units, toupper((unsigned char)*s));
        if (!u || (s[1] && strcmp(s + 1, "iB") != 0))
            return false;
        const unsigned shift = 10 * ((unsigned)(u - units) + 1);
        if (v > UINT64_MAX >> shift)
            return false;
        v <<= shift;
    }
    *out = v;
    return true;
}

/* A limit so large that nobody meets it says nothing. */
#define UNSTATED_MAX 1e15

static hs_status want(const hs_opt *o, const char *shown, const char *kind, const char *text,
                      hs_err *err)
{
    if (o->min != o->max && o->max >= UNSTATED_MAX)
        return hs_fail(err, HS_ERR_USAGE, "%s: expected %s of at least %.15g, got '%s'", shown,
                       kind, o->min, text);
    if (o->min != o->max)
        return hs_fail(err, HS_ERR_USAGE, "%s: expected %s from %.15g to %.15g, got '%s'", shown,
                       kind, o->min, o->max, text);
    return hs_fail(err, HS_ERR_USAGE, "%s: expected %s, got '%s'", shown, kind, text);
}

static bool in_range(const hs_opt *o, double v)
{
    return o->min == o->max || (v >= o->min && v <= o->max);
}

static hs_status store_choice(const hs_opt *o, const char *shown, const char *text, hs_err *err)
{
    const size_t n = strlen(text);
    for (const char *c = o->choices; c;) {
        const char *bar = strchr(c, '|');
        if (n == (bar ? (size_t)(bar - c) : strlen(c)) && memcmp(c, text, n) == 0 && n) {
            *(const char **)o->value = text;
            return HS_OK;
        }
        c = bar ? bar + 1 : NULL;
    }
    return hs_fail(err, HS_ERR_USAGE, "%s: expected one of %s, got '%s'", shown, o->choices, text);
}

static hs_status append(hs_strings *list, const char *text, hs_err *err)
{
    const char **v = realloc(list->v, (list->n + 1) * sizeof *v);
    if (!v)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    list->v = v;
    v[list->n++] = text;
    return HS_OK;
}

static hs_status store(const hs_opt *o, const char *shown, const char *text, hs_err *err)
{
    int64_t i;
    double d;
    const bool words =
        o->type == HS_OPT_STRING || o->type == HS_OPT_LIST || o->type == HS_OPT_FILES;
    /* A script's unset variable; only a text may be empty. */
    if (words && !*text && o->arg && strcmp(o->arg, "TEXT") != 0)
        return hs_fail(err, HS_ERR_USAGE, "%s: expected %s, got an empty argument", shown, o->arg);
    switch (o->type) {
    case HS_OPT_FLAG: *(bool *)o->value = true; return HS_OK;
    case HS_OPT_INT:
        if (!parse_i64(text, &i) || !in_range(o, (double)i))
            return want(o, shown, "a whole number", text, err);
        *(int64_t *)o->value = i;
        return HS_OK;
    case HS_OPT_UINT:
        return parse_u64(text, o->value)
                   ? HS_OK
                   : hs_fail(err, HS_ERR_USAGE,
                             "%s: expected a whole number from 0 to 18446744073709551615, got '%s'",
                             shown, text);
    case HS_OPT_REAL:
        if (!parse_real(text, &d) || !in_range(o, d))
            return want(o, shown, "a number", text, err);
        *(double *)o->value = d;
        return HS_OK;
    case HS_OPT_SIZE:
        return hs_parse_size(text, o->value)
                   ? HS_OK
                   : hs_fail(err, HS_ERR_USAGE,
                             "%s: expected a number of bytes or a size such as 512M or 20GiB, "
                             "got '%s'",
                             shown, text);
    case HS_OPT_STRING: *(const char **)o->value = text; return HS_OK;
    case HS_OPT_LIST:
    case HS_OPT_FILES: return append(o->value, text, err);
    case HS_OPT_CHOICE: return store_choice(o, shown, text, err);
    case HS_OPT_END:
    case HS_OPT_GROUP: break;
    }
    return hs_fail(err, HS_ERR_USAGE, "%s: not an option", shown);
}

hs_status hs_opt_store(const hs_opt *o, const char *shown, const char *text, hs_err *err)
{
    const hs_status s = store(o, shown, text, err);
    if (s == HS_OK && o->given)
        *o->given = true;
    return s;
}

const char *hs_format_bytes(char *buf, size_t cap, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(buf, cap, "%u B", (unsigned)bytes);
        return buf;
    }
    double v = (double)bytes / 1024;
    size_t u = 0;
    while (v >= 1023.95 && u + 1 < sizeof units / sizeof *units) { /* 1024.0 is the next unit */
        v /= 1024;
        u++;
    }
    snprintf(buf, cap, "%.1f %s", v, units[u]);
    return buf;
}
