#ifndef HS_FORMATS_JSON_H
#define HS_FORMATS_JSON_H

/* JSON input through jansson, bounded in size and depth, duplicate keys refused. */

#include "formats/err.h"

#include <jansson.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The root must be an object.  Messages give line and column.  The caller json_decref's. */
HS_NODISCARD hs_status hs_json_parse(json_t **out, const void *data, size_t size, hs_err *err);
/* As above from a file of at most 64 MiB; messages start with the path. */
HS_NODISCARD hs_status hs_json_read(json_t **out, const char *path, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
