#ifndef HS_RUNTIME_CLI_PAGE_H
#define HS_RUNTIME_CLI_PAGE_H

/* What the reports of programs share: one HTML page that needs nothing else, the files beside it,
 * and plots that gnuplot draws from CSV files, where there is a gnuplot. */

#include "formats/err.h"

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A new file of the folder being written; messages name it. */
HS_NODISCARD hs_status hs_page_file(FILE **f, const char *dir, const char *name, hs_err *err);
HS_NODISCARD hs_status hs_page_close(FILE *f, const char *dir, const char *name, hs_err *err);

/* The page up to and with its heading; its end. */
void hs_page_begin(FILE *f, const char *title);
void hs_page_end(FILE *f);
/* Text that is not ours: nothing in it is markup, and bytes that are no text are shown as ?. */
void hs_page_text(FILE *f, const char *s);
/* The SVG file `name` of the folder, embedded. */
HS_NODISCARD hs_status hs_page_plot(FILE *f, const char *dir, const char *name, const char *alt,
                                    hs_err *err);

/* The script of plots, plots.gp, is a file like others: its begin, then for every plot its
 * output NAME.svg and size, which the caller's `plot` follows. */
#define HS_PAGE_SCRIPT "plots.gp"
void hs_page_script(FILE *f);
void hs_page_script_plot(FILE *f, const char *name, const char *title, int height);
/* Has gnuplot run the script, which must leave NAME.svg for all n names; false when there is no
 * gnuplot or it failed, with the reason in `why`. */
bool hs_page_draw(const char *dir, const char *const *name, size_t n, hs_err *why);

#ifdef __cplusplus
}
#endif

#endif
