#ifndef HS_TOOLS_INSPECT_H
#define HS_TOOLS_INSPECT_H

/* What a file holds, gathered as one JSON object per kind of file; the text output is a rendering
 * of the same object, so both always agree.
 *
 * Conventions of the object: a key ending in "bytes" is a size, one ending in "share" a fraction;
 * an array of objects is a table. */

#include "formats/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inspect_options {
    const char *path;
    const char *model; /* that a profile or placement should belong to; or NULL */
    bool tensors, kv, check;
} inspect_options;

/* Everything about the file, by its content.  On failure *report may still hold what could be
 * read; the caller json_decref's it in any case.  Warnings are in its "warnings" array. */
HS_NODISCARD hs_status inspect_file(const inspect_options *o, json_t **report, hs_err *err);
HS_NODISCARD hs_status inspect_gguf(const inspect_options *o, json_t *report, hs_err *err);
HS_NODISCARD hs_status inspect_checkpoint(const inspect_options *o, json_t *report, hs_err *err);

/* Text of the report to stdout. */
void inspect_print(json_t *report);

/* A string from a file: invalid UTF-8 becomes U+FFFD, the rest after `max` bytes is cut. */
json_t *inspect_string(const char *p, size_t n, size_t max);
/* A JSON number; what JSON has no number for becomes a string. */
json_t *inspect_number(double v);
json_t *inspect_count(uint64_t v);
/* Add a sentence to "warnings". */
void inspect_warn(json_t *report, const char *fmt, ...) HS_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
