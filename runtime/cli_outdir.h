#ifndef HS_RUNTIME_CLI_OUTDIR_H
#define HS_RUNTIME_CLI_OUTDIR_H

/* A folder that appears under its name when everything in it is written. */

#include "formats/file.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_outdir hs_outdir;

/* `ours` is a file that tells a folder of ours from another: only such a one, with nothing in it
 * but regular files, is replaced, and only with `force`.  An empty folder is in nobody's way. */
HS_NODISCARD hs_status hs_outdir_check(const char *path, const char *ours, bool force, hs_err *err);
HS_NODISCARD hs_status hs_outdir_open(hs_outdir **out, const char *path, const char *ours,
                                      bool force, hs_err *err);
/* Where the files are to be written meanwhile. */
const char *hs_outdir_path(const hs_outdir *d);
/* Give it its name; frees `d` whether or not it works. */
HS_NODISCARD hs_status hs_outdir_commit(hs_outdir *d, hs_err *err);
/* Drop everything written; NULL is accepted. */
void hs_outdir_abort(hs_outdir *d);

#ifdef __cplusplus
}
#endif

#endif
