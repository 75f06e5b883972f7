/* Questions about JSON output and streams, for the command-line tests.
 *
 *   json_query get FILE PATH             print the value compactly; "prompts.0.ids"
 *   json_query text FILE PATH            the bytes of a string, no newline added
 *   json_query near TOL A PATH B PATH    every [id, value] of B's list is in A's within TOL
 *   json_query chunks                    no read of stdin ends inside a UTF-8 character */
#include "runtime/hotset.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *load(const char *file, const char *path, json_t **root)
{
    json_error_t e;
    json_t *v = *root = json_load_file(file, 0, &e);
    if (!v)
        fprintf(stderr, "%s:%d: %s\n", file, e.line, e.text);
    char *copy = strdup(path), *save = NULL;
    for (char *k = strtok_r(copy, ".", &save); v && k; k = strtok_r(NULL, ".", &save))
        v = json_is_array(v) ? json_array_get(v, strtoul(k, NULL, 10)) : json_object_get(v, k);
    free(copy);
    if (*root && !v)
        fprintf(stderr, "%s: no %s\n", file, path);
    return v;
}

static int get(const char *file, const char *path)
{
    json_t *root, *v = load(file, path, &root);
    if (v) {
        json_dumpf(v, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        putchar('\n');
    }
    json_decref(root);
    return v ? 0 : 1;
}

static int near(double tolerance, const json_t *a, const json_t *b)
{
    size_t i, j;
    json_t *x, *y;
    double worst = 0;
    json_array_foreach(b, i, y)
    {
        const json_t *found = NULL;
        json_array_foreach(a, j, x)
        {
            if (json_integer_value(json_array_get(x, 0)) ==
                json_integer_value(json_array_get(y, 0)))
                found = x;
        }
        if (!found) {
            printf("id %lld is missing\n", (long long)json_integer_value(json_array_get(y, 0)));
            return 1;
        }
        const double d = fabs(json_number_value(json_array_get(found, 1)) -
                              json_number_value(json_array_get(y, 1)));
        worst = d > worst ? d : worst;
    }
    printf("%zu values, largest difference %g\n", json_array_size(b), worst);
    return json_array_size(b) && worst <= tolerance ? 0 : 1;
}

static int text(const char *file, const char *path)
{
    json_t *root, *v = load(file, path, &root);
    fwrite(json_string_value(v), 1, json_string_length(v), stdout);
    json_decref(root);
    return v ? 0 : 1;
}

enum { MOST = 1 << 20 };

static int chunks(void)
{
    char *buf = malloc(MOST);
    bool *ends = calloc(MOST + 1, sizeof *ends); /* a read ended before this byte */
    size_t n = 0, reads = 0, bad = 0;
    if (!buf || !ends)
        return 1;
    for (ssize_t k; n < MOST && (k = read(STDIN_FILENO, buf + n, MOST - n)) > 0; reads++) {
        n += (size_t)k;
        ends[n] = true;
    }
    for (size_t i = 0; i < n;) {
        const size_t k = hs_utf8_char(buf + i, n - i);
        for (size_t j = 1; j < k; j++)
            bad += ends[i + j];
        i += k ? k : 1;
    }
    free(ends);
    free(buf);
    printf("%zu reads, %zu of them ended inside a character\n", reads, bad);
    return reads && !bad ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "get"))
        return get(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "text"))
        return text(argv[2], argv[3]);
    if (argc == 2 && !strcmp(argv[1], "chunks"))
        return chunks();
    if (argc == 7 && !strcmp(argv[1], "near")) {
        json_t *ra, *rb;
        const json_t *a = load(argv[3], argv[4], &ra), *b = load(argv[5], argv[6], &rb);
        const int r = a && b ? near(strtod(argv[2], NULL), a, b) : 1;
        json_decref(ra);
        json_decref(rb);
        return r;
    }
    fprintf(stderr, "usage: json_query get|text FILE PATH | near TOL A PATH B PATH | chunks\n");
    return 98;
}
