#ifndef HS_FORMATS_FILE_H
#define HS_FORMATS_FILE_H

/* Files as we use them: inputs mapped read-only, outputs that appear under
 * their name only when complete. */

#include "formats/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A whole file, mapped read-only and private.  `data` is NULL when size is 0. */
typedef struct hs_map {
    const uint8_t *data;
    size_t size;
} hs_map;

/* Map the regular file `path`.  Messages do not name the path: the caller prefixes it. */
HS_NODISCARD hs_status hs_map_open(hs_map *map, const char *path, hs_err *err);
void hs_map_close(hs_map *map);

/* An output being written.  Nothing exists under `path` until hs_out_commit succeeds, and a
 * file that was there stays as it was; where the filesystem allows it, the unfinished file has
 * no name at all, so that even a killed process leaves nothing behind. */
typedef struct hs_out hs_out;

/* Fails with HS_ERR_USAGE when `path` exists and `force` is false, or exists and is no regular
 * file.  Messages of all hs_out functions start with the path. */
HS_NODISCARD hs_status hs_out_open(hs_out **out, const char *path, bool force, hs_err *err);
/* Append.  A full disk is HS_ERR_NOSPACE. */
HS_NODISCARD hs_status hs_out_write(hs_out *out, const void *data, size_t bytes, hs_err *err);
/* Overwrite bytes already appended. */
HS_NODISCARD hs_status hs_out_patch(hs_out *out, uint64_t offset, const void *data, size_t bytes,
                                    hs_err *err);
uint64_t hs_out_size(const hs_out *out);
/* Map what has been written so far, for verifying it before it gets its name. */
HS_NODISCARD hs_status hs_out_map(hs_out *out, hs_map *map, hs_err *err);
/* fsync (unless `sync` is false), take the final name, free `out` whether or not it works. */
HS_NODISCARD hs_status hs_out_commit(hs_out *out, bool sync, hs_err *err);
/* Drop everything written; NULL is accepted. */
void hs_out_abort(hs_out *out);

/* True when both paths exist and are the same file (links and symlinks followed). */
bool hs_same_file(const char *a, const char *b);

/* `dir` "/" `name` into a malloc'd string the caller frees; NULL when out of memory. */
char *hs_path_join(const char *dir, const char *name);

/* Called by long work, on the calling thread; returning false makes the work stop with
 * HS_ERR_INTERRUPTED and leave nothing behind.  `total` 0 means unknown. */
typedef bool (*hs_progress_fn)(void *ud, uint64_t done, uint64_t total);

#ifdef __cplusplus
}
#endif

#endif
