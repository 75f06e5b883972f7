/* The option parser.  One table drives parsing, --help and the man page's check.  The one
 * surprise: an option's value is the next argument whatever it looks like, as with getopt, so
 * that negative numbers and file names with a leading dash need no ceremony. */
#include "runtime/cli.h"
#include "runtime/cli_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 64, MAX_COMMON = 16, MAX_THREADS = 1024 };

typedef struct parser {
    hs_cli *cli;
    hs_opt *opts; /* the program's table and the common options */
    bool help, version;
    int argc, at; /* at: the next argument to look at */
    char **argv;
    hs_err err;
} parser;

/* ---- the table ------------------------------------------------------------------------ */

static const hs_opt *find_long(const hs_opt *opts, const char *name)
{
    for (; opts->type != HS_OPT_END; opts++)
        if (opts->type != HS_OPT_GROUP && opts->name && strcmp(opts->name, name) == 0)
            return opts;
    return NULL;
}

static const hs_opt *find_short(const hs_opt *opts, int letter)
{
    for (; opts->type != HS_OPT_END; opts++)
        if (opts->type != HS_OPT_GROUP && opts->letter && opts->letter == letter)
            return opts;
    return NULL;
}

/* A common option yields to the program's own of the same name (bench's --threads is a list),
 * and loses its letter when the program uses that (-f FILE). */
static void add_common(hs_opt *opts, size_t *n, hs_opt o)
{
    if (find_long(opts, o.name))
        return;
    if (find_short(opts, o.letter))
        o.letter = 0;
    opts[(*n)++] = o;
    opts[*n] = (hs_opt){.type = HS_OPT_END};
}

static bool build_table(parser *p)
{
    hs_cli *c = p->cli;
    size_t n = 0;
    while (c->opts[n].type != HS_OPT_END)
        n++;
    p->opts = calloc(n + MAX_COMMON, sizeof *p->opts);
    if (!p->opts)
        return false;
    memcpy(p->opts, c->opts, n * sizeof *p->opts);
    p->opts[n++] = (hs_opt){.type = HS_OPT_GROUP, .help = "Common options"};
    p->opts[n] = (hs_opt){.type = HS_OPT_END};
#define ADD(...) add_common(p->opts, &n, (hs_opt){__VA_ARGS__})
    ADD(HS_OPT_INT, "threads", 't', &c->threads, "N",
        "worker threads (default: every CPU this process may use)", 1, MAX_THREADS);
    if (c->has_model)
        ADD(HS_OPT_CHOICE, "cpu", 0, &c->cpu, "LEVEL",
            "instruction set to use (default: the best this machine has)", 0, 0,
            "scalar|avx2|avx512|neon");
    if (c->has_text) {
        ADD(HS_OPT_FLAG, "no-bos", 0, &c->no_bos, NULL,
            "do not start the text with BOS (default: as the model says)");
        ADD(HS_OPT_FLAG, "special", 0, &c->special, NULL,
            "recognise special tokens written in the text (default: plain text)");
    }
    if (c->has_output)
        ADD(HS_OPT_FLAG, "force", 'f', &c->force, NULL,
            "replace an output that exists (default: refuse)");
    ADD(HS_OPT_FLAG, "json", 0, &c->json, NULL, "one JSON object on stdout instead of text");
    ADD(HS_OPT_FLAG, "quiet", 'q', &c->quiet, NULL, "no talk and no progress on stderr");
    ADD(HS_OPT_FLAG, "verbose", 'v', &c->verbose, NULL, "say more on stderr");
    ADD(HS_OPT_FLAG, "version", 0, &p->version, NULL,
        "print version, compiler, CPU level and CUDA support, then exit");
    ADD(HS_OPT_FLAG, "help", 'h', &p->help, NULL, "print this text, then exit");
#undef ADD
    return true;
}

/* ---- the nearest match ---------------------------------------------------------------- */

/* Levenshtein distance; both shorter than NAME_MAX_LEN. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN];
    const size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t swap = diagonal + (a[i] != b[j]);
            const size_t edit = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = swap < edit ? swap : edit;
        }
    }
    return row[n];
}

/* A name that starts with the other (--temperature, --temp) is as near as one wrong letter. */
static size_t nearness(const char *typed, const char *name)
{
    const size_t a = strlen(typed), b = strlen(name), shorter = a < b ? a : b;
    if (shorter >= 3 && strncmp(typed, name, shorter) == 0)
        return 1;
    return distance(typed, name);
}

static const char *nearest(const hs_opt *opts, const char *typed)
{
    if (strlen(typed) >= NAME_MAX_LEN)
        return NULL;
    const char *best = NULL;
    size_t least = strlen(typed) / 3 + 2; /* more errors than this is another word */
    for (; opts->type != HS_OPT_END; opts++) {
        if (opts->type == HS_OPT_GROUP || !opts->name || strlen(opts->name) >= NAME_MAX_LEN)
            continue;
        const size_t d = nearness(typed, opts->name);
        if (d < least) {
            least = d;
            best = opts->name;
        }
    }
    return best;
}

static hs_status unknown(parser *p, const char *shown, const char *name)
{
    const char *guess = nearest(p->opts, name);
    if (guess)
        return hs_fail(&p->err, HS_ERR_USAGE, "unknown option '%s'; did you mean '--%s'?", shown,
                       guess);
    return hs_fail(&p->err, HS_ERR_USAGE, "unknown option '%s'; see --help", shown);
}

/* ---- arguments ------------------------------------------------------------------------ */

static bool looks_like_option(const char *s) { return s[0] == '-' && s[1] != '\0'; }

static hs_status take_value(parser *p, const hs_opt *o, const char *shown, const char *attached)
{
    if (attached)
        return hs_opt_store(o, shown, attached, &p->err);
    if (p->at >= p->argc)
        return hs_fail(&p->err, HS_ERR_USAGE, "option '%s' needs a value: %s", shown,
                       o->arg       ? o->arg
                       : o->choices ? o->choices
                                    : "VALUE");
    hs_status s = hs_opt_store(o, shown, p->argv[p->at++], &p->err);
    while (s == HS_OK && o->type == HS_OPT_FILES && p->at < p->argc &&
           !looks_like_option(p->argv[p->at]))
        s = hs_opt_store(o, shown, p->argv[p->at++], &p->err);
    return s;
}

static hs_status parse_long(parser *p, const char *arg)
{
    const char *text = arg + 2, *eq = strchr(text, '=');
    const size_t n = eq ? (size_t)(eq - text) : strlen(text);
    char name[256], shown[260];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    snprintf(shown, sizeof shown, "--%s", name);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
    const hs_opt *o = n < sizeof name ? find_long(p->opts, name) : NULL;
    if (!o)
        return unknown(p, shown, name);
    if (o->type != HS_OPT_FLAG)
        return take_value(p, o, shown, eq ? eq + 1 : NULL);
    if (eq)
        return hs_fail(&p->err, HS_ERR_USAGE, "option '%s' takes no value", shown);
    return hs_opt_store(o, shown, NULL, &p->err);
}

/* -q, -qv, -n 5, -n5 */
static hs_status parse_short(parser *p, const char *arg)
{
    if (arg[2] && find_long(p->opts, arg + 1)) /* -model would be -m odel */
        return unknown(p, arg, arg + 1);
    for (const char *c = arg + 1; *c; c++) {
        const char shown[3] = {'-', *c, '\0'};
        const hs_opt *o = find_short(p->opts, (unsigned char)*c);
        if (!o)
            return unknown(p, arg[2] ? arg : shown, arg + 1);
        if (o->type != HS_OPT_FLAG)
            return take_value(p, o, shown, c[1] ? c + 1 : NULL);
        const hs_status s = hs_opt_store(o, shown, NULL, &p->err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status parse_all(parser *p)
{
    hs_cli *c = p->cli;
    bool ended = false;
    while (p->at < p->argc && !p->help && !p->version) {
        const char *arg = p->argv[p->at++];
        hs_status s = HS_OK;
        if (ended || !looks_like_option(arg)) {
            if (c->n_operands == c->max_operands)
                return hs_fail(&p->err, HS_ERR_USAGE, "surplus argument '%s'; see --help", arg);
            if (!*arg)
                return hs_fail(&p->err, HS_ERR_USAGE, "an operand is empty; see --help");
            c->operands[c->n_operands++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            ended = true;
        } else {
            s = arg[1] == '-' ? parse_long(p, arg) : parse_short(p, arg);
        }
        if (s != HS_OK)
            return s;
    }
    if (!p->help && !p->version && c->n_operands < c->min_operands)
        return hs_fail(&p->err, HS_ERR_USAGE, "missing argument; usage: %s %s", c->program,
                       c->synopsis);
    return HS_OK;
}

static void drop_lists(const hs_opt *opts)
{
    for (; opts->type != HS_OPT_END; opts++) {
        if (opts->type == HS_OPT_LIST || opts->type == HS_OPT_FILES) {
            hs_strings *list = opts->value;
            free(list->v);
            *list = (hs_strings){0};
        }
    }
}

int hs_cli_parse(hs_cli *cli, int argc, char **argv)
{
    parser p = {.cli = cli, .argc = argc, .argv = argv, .at = 1};
    hs_cli_install_signals();
    cli->n_operands = 0;
    cli->operands = calloc((size_t)cli->max_operands + 1, sizeof *cli->operands);
    hs_status s = HS_OK;
    if (!cli->operands || !build_table(&p))
        s = hs_fail(&p.err, HS_ERR_NOMEM, "out of memory");
    else
        s = parse_all(&p);
    int result = -1;
    if (s != HS_OK) {
        result = hs_cli_fail(cli, &p.err);
    } else if (p.help || p.version) {
        if (p.help)
            hs_cli_print_help(cli, p.opts);
        else
            hs_cli_print_version(cli);
        result = hs_cli_finish(cli, 0);
    }
    if (result != -1) {
        drop_lists(cli->opts);
        hs_cli_fini(cli);
    }
    free(p.opts);
    return result;
}

void hs_cli_fini(hs_cli *cli)
{
    free(cli->operands);
    cli->operands = NULL;
    cli->n_operands = 0;
}
