#ifndef HS_RUNTIME_CLI_H
#define HS_RUNTIME_CLI_H

/* What every program shares: options, help, errors, progress, interruption.  Linked into the
 * programs, not into the library. */

#include "formats/err.h"
#include "formats/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hs_opt_type {
    HS_OPT_END,    /* terminates a table */
    HS_OPT_GROUP,  /* a heading in --help: only `help` is used */
    HS_OPT_FLAG,   /* bool *: set to true */
    HS_OPT_INT,    /* int64_t *, range [min, max] */
    HS_OPT_UINT,   /* uint64_t *, any 64-bit value (seeds) */
    HS_OPT_REAL,   /* double *, finite, range [min, max] */
    HS_OPT_SIZE,   /* uint64_t *: bytes, or K M G T (binary) with optional iB */
    HS_OPT_STRING, /* const char ** */
    HS_OPT_LIST,   /* hs_strings *: repeatable, collects */
    HS_OPT_FILES,  /* hs_strings *: takes this and every following argument up to the next
                      option ("-i a.txt b.txt -o x") */
    HS_OPT_CHOICE, /* const char **: one of `choices`, "a|b|c" */
} hs_opt_type;

typedef struct hs_strings {
    const char **v; /* owned; the strings are argv's */
    size_t n;
} hs_strings;

typedef struct hs_opt {
    hs_opt_type type;
    const char *name; /* long name, without dashes */
    int letter;       /* short form, or 0 */
    void *value;
    const char *arg;  /* "FILE", "N"; NULL for flags */
    const char *help; /* one line; state the default */
    double min, max;  /* min == max: unbounded */
    const char *choices;
    bool *given; /* optional: set to true when the option appears */
} hs_opt;

/* A program's face.  Common options (-h --help --version -q -v -t --threads --json, and those
 * asked for by the flags) are appended to `opts` by the parser. */
typedef struct hs_cli {
    const char *program;  /* "hotset-solve" */
    const char *synopsis; /* without the program's name */
    const char *summary;  /* one or two sentences */
    const char *example;  /* one command line, without the program's name */
    const hs_opt *opts;   /* ends with HS_OPT_END */
    int min_operands, max_operands;
    bool has_model;  /* adds --cpu LEVEL */
    bool has_text;   /* adds --no-bos and --special */
    bool has_output; /* adds --force (and -f unless a table entry uses the letter) */
    /* Filled by hs_cli_parse: */
    bool quiet, verbose, json, no_bos, special, force;
    int64_t threads;       /* 0: default */
    const char *cpu;       /* NULL: best */
    const char **operands; /* owned */
    int n_operands;
} hs_cli;

/* Parse; options may stand before, between and after operands, "--" ends them.  Returns -1 to
 * go on, else the status main returns (help and version print and give 0; an unknown option,
 * missing value or surplus argument prints one line with the nearest match and gives 2; lists
 * collected so far are freed then).  An option's value is the next argument whatever it looks
 * like; a table entry of the same name or letter takes the place of a common option.
 * Also installs the SIGINT / SIGTERM handler that hs_cli_interrupted reports. */
int hs_cli_parse(hs_cli *cli, int argc, char **argv);
void hs_cli_fini(hs_cli *cli);

/* "hotset-x: message" on stderr; returns the exit status of err->code. */
int hs_cli_fail(const hs_cli *cli, const hs_err *err);
/* A usage error found after parsing; returns 2. */
int hs_cli_usage(const hs_cli *cli, const char *fmt, ...) HS_PRINTF(2, 3);
/* "hotset-x: warning: …"; printed even with --quiet. */
void hs_cli_warn(const hs_cli *cli, const char *fmt, ...) HS_PRINTF(2, 3);
/* A line of talk on stderr; not with --quiet. */
void hs_cli_note(const hs_cli *cli, const char *fmt, ...) HS_PRINTF(2, 3);
/* What a session has to say (hs_session_info.notes): notes, and warnings where it says so. */
void hs_cli_notes(const hs_cli *cli, const char *const *notes);
/* Only with --verbose. */
void hs_cli_debug(const hs_cli *cli, const char *fmt, ...) HS_PRINTF(2, 3);

/* True once SIGINT or SIGTERM arrived; the second one kills. */
bool hs_cli_interrupted(void);

/* Flush stdout and check that everything was written (a full disk or closed pipe is exit 1):
 * the last call of every main, `status` is returned when all is well. */
int hs_cli_finish(const hs_cli *cli, int status);

/* Progress on stderr: a bar with rate and ETA at most 6 times a second when stderr is a
 * terminal, a line every 10 s otherwise, nothing before 2 s or with --quiet.  hs_progress_step
 * is an hs_progress_fn (ud is the hs_progress) and returns false once interrupted. */
typedef struct hs_progress {
    const hs_cli *cli;
    const char *label;     /* "profiling" */
    const char *unit;      /* "tokens", "B" (bytes are shown in MiB) */
    double started, shown; /* seconds */
    bool drawn;
} hs_progress;
void hs_progress_init(hs_progress *p, const hs_cli *cli, const char *label, const char *unit);
bool hs_progress_step(void *progress, uint64_t done, uint64_t total);
void hs_progress_end(hs_progress *p);

/* Bytes as "17.3 MiB" into buf (at least 24 bytes); returns buf. */
const char *hs_format_bytes(char *buf, size_t cap, uint64_t bytes);
/* "12G", "1048576", "4MiB"; false when it is none. */
bool hs_parse_size(const char *s, uint64_t *out);
/* A whole file, bytes unchanged, as a malloc'd buffer (NUL after the end); "-" is stdin.
 * Messages start with the path. */
HS_NODISCARD hs_status hs_read_text(const char *path, char **text, size_t *n, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
