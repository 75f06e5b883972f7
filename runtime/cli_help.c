/* --help and --version.  Text is filled to 80 columns; a bracketed group of the synopsis is
 * never broken. */
#include "runtime/cli.h"
#include "runtime/cli_impl.h"
#include "runtime/cpu.h"
#include "runtime/device.h"
#include "runtime/hotset.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 80, HELP_COLUMN = 28 };

/* Columns of a UTF-8 string: its bytes without continuation bytes. */
static int columns(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xc0) != 0x80;
    return c;
}

/* Length of the next piece: up to a space outside brackets, in a command line also outside
 * quotes. */
static size_t piece(const char *s, bool command)
{
    size_t n = 0;
    int depth = 0;
    bool quoted = false;
    for (; s[n] && (s[n] != ' ' || depth > 0 || quoted); n++) {
        depth += s[n] == '[';
        depth -= s[n] == ']';
        quoted ^= command && s[n] == '\'';
    }
    return n;
}

/* Print words from column `at`, continuing lines at `indent`; ends the line.  Lines of a
 * command end with the backslash a shell needs. */
static void fill(const char *s, int at, int indent, bool command)
{
    const int right = command ? COLUMNS - 2 : COLUMNS;
    bool first = true;
    while (*s) {
        const size_t n = piece(s, command);
        const int width = columns(s, n);
        if (!first && at + 1 + width > right) {
            printf("%s\n%*s", command ? " \\" : "", indent, "");
            at = indent;
        } else if (!first) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)n, s);
        at += width;
        first = false;
        s += n;
        s += strspn(s, " ");
    }
    putchar('\n');
}

static void print_option(const hs_opt *o)
{
    char head[160], text[600];
    const char *arg = o->arg ? o->arg : o->choices;
    const bool many = o->type == HS_OPT_FILES || o->type == HS_OPT_LIST;
    int at = o->letter ? snprintf(head, sizeof head, "  -%c, --%s", o->letter, o->name)
                       : snprintf(head, sizeof head, "      --%s", o->name);
    if (o->type != HS_OPT_FLAG && at > 0 && (size_t)at < sizeof head)
        snprintf(head + at, sizeof head - (size_t)at, " %s%s", arg ? arg : "VALUE",
                 many && !strchr(arg ? arg : "", '.') ? "..." : "");
    /* The choices stand in the text when the option line does not list them. */
    if (o->choices && o->arg && strcmp(o->arg, o->choices) != 0)
        snprintf(text, sizeof text, "%s [%s]", o->help ? o->help : "", o->choices);
    else
        snprintf(text, sizeof text, "%s", o->help ? o->help : "");
    at = columns(head, strlen(head));
    printf("%s", head);
    if (at + 2 > HELP_COLUMN)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - at, "");
    fill(text, HELP_COLUMN, HELP_COLUMN, false);
}

void hs_cli_print_help(const hs_cli *cli, const hs_opt *opts)
{
    const int at = printf("Usage: %s ", cli->program);
    fill(cli->synopsis, at, at, false);
    putchar('\n');
    fill(cli->summary, 0, 0, false);
    if (opts->type != HS_OPT_GROUP)
        printf("\nOptions:\n");
    for (; opts->type != HS_OPT_END; opts++) {
        if (opts->type == HS_OPT_GROUP)
            printf("\n%s:\n", opts->help);
        else
            print_option(opts);
    }
    if (cli->example) {
        printf("\nExample:\n  %s ", cli->program);
        fill(cli->example, (int)strlen(cli->program) + 3, 6, true);
    }
}

void hs_cli_print_version(const hs_cli *cli)
{
#if defined(__clang__)
    const char *compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
    const char *compiler = "gcc " __VERSION__;
#else
    const char *compiler = "unknown";
#endif
    printf("%s %s\ncompiler: %s\ncpu: %s\ncuda: %s\n", cli->program, HS_VERSION, compiler,
           hs_cpu_name(hs_cpu_detect()), hs_device_cuda() ? "yes" : "no");
}
