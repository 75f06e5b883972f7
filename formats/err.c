#include "formats/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message is one line on a terminal whatever a hostile file put into the
 * names it quotes: control bytes become '?'. */
static void one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

/* The names stand in parentheses for the analyzer's sake: err.h has macros of the same names. */
hs_status(hs_fail)(hs_err *err, hs_status code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        one_line(err->msg);
        err->code = code;
    }
    return code;
}

hs_status(hs_ctx)(hs_err *err, hs_status code, const char *fmt, ...)
{
    if (err) {
        char old[sizeof err->msg];
        memcpy(old, err->msg, sizeof old);
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof err->msg)
            snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%s", old);
        one_line(err->msg);
    }
    return code;
}

int hs_exit_status(hs_status code)
{
    switch (code) {
    case HS_OK: return 0;
    case HS_ERR_IO:
    case HS_ERR_FAILED:
    case HS_ERR_DEVICE: return 1;
    case HS_ERR_USAGE: return 2;
    case HS_ERR_INPUT:
    case HS_ERR_FORMAT:
    case HS_ERR_UNSUPPORTED: return 3;
    case HS_ERR_NOMEM:
    case HS_ERR_NOSPACE:
    case HS_ERR_INFEASIBLE: return 4;
    case HS_ERR_INTERRUPTED: return 130;
    }
    return 1;
}
