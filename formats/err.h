#ifndef HS_FORMATS_ERR_H
#define HS_FORMATS_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* The project's one error type: a code for programs, a sentence for people.
 *
 * The caller owns the hs_err, usually on its stack, and may pass NULL.  The
 * function that detects a fault fills it; callers on the way up may prefix
 * context but never replace it.  Library code does not print and does not exit. */

#define HS_NODISCARD         __attribute__((warn_unused_result))
#define HS_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The exit status of each code is hs_exit_status(): design contract, one place. */
typedef enum hs_status {
    HS_OK = 0,
    HS_ERR_IO,          /* exit 1: the operating system refused; errno's text is in msg */
    HS_ERR_FAILED,      /* exit 1: the work itself failed (solver, verification) */
    HS_ERR_DEVICE,      /* exit 1: device runtime failure */
    HS_ERR_USAGE,       /* exit 2: options that contradict each other or the file */
    HS_ERR_INPUT,       /* exit 3: an input file is missing or cannot be opened */
    HS_ERR_FORMAT,      /* exit 3: input bytes break the format */
    HS_ERR_UNSUPPORTED, /* exit 3: well-formed, but not something we implement */
    HS_ERR_NOMEM,       /* exit 4: host memory */
    HS_ERR_NOSPACE,     /* exit 4: disk full, or a plan larger than the device budget */
    HS_ERR_INFEASIBLE,  /* exit 4: no placement satisfies the limits */
    HS_ERR_INTERRUPTED, /* exit 130 */
} hs_status;

typedef struct hs_err {
    hs_status code;
    char msg[508];
} hs_err;

/* Record a fault and return its code: `return hs_fail(err, HS_ERR_IO, ...)`. */
hs_status hs_fail(hs_err *err, hs_status code, const char *fmt, ...) HS_PRINTF(3, 4);

/* Prefix what the caller knows ("model.gguf: "), keeping the code. */
hs_status hs_ctx(hs_err *err, hs_status code, const char *fmt, ...) HS_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time and would take a fault's path for success. */
#define hs_fail(err, code, ...) ((void)hs_fail(err, code, __VA_ARGS__), (code))
#define hs_ctx(err, code, ...)  ((void)hs_ctx(err, code, __VA_ARGS__), (code))
#endif

/* The process exit status that stands for `code`. */
int hs_exit_status(hs_status code);

#ifdef __cplusplus
}
#endif

#endif
