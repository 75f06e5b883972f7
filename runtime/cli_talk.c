/* What a program says and hears besides its options: messages, signals, the end of stdout,
 * progress, whole texts. */
#include "runtime/cli.h"
#include "runtime/cli_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- messages ------------------------------------------------------------------------- */

/* One line, one write: file names with control bytes cannot break it up. */
static void HS_PRINTF(3, 0) say(const hs_cli *cli, const char *kind, const char *fmt, va_list ap)
{
    char line[1024];
    const int n = snprintf(line, sizeof line, "%s: %s", cli->program, kind);
    if (n < 0 || (size_t)n >= sizeof line)
        return;
    vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "%s\n", line);
}

static void HS_PRINTF(3, 4) sayf(const hs_cli *cli, const char *kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(cli, kind, fmt, ap);
    va_end(ap);
}

int hs_cli_fail(const hs_cli *cli, const hs_err *err)
{
    sayf(cli, "", "%s", err->msg);
    return hs_exit_status(err->code);
}

int hs_cli_usage(const hs_cli *cli, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(cli, "", fmt, ap);
    va_end(ap);
    return hs_exit_status(HS_ERR_USAGE);
}

void hs_cli_warn(const hs_cli *cli, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(cli, "warning: ", fmt, ap);
    va_end(ap);
}

void hs_cli_note(const hs_cli *cli, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!cli->quiet)
        say(cli, "", fmt, ap);
    va_end(ap);
}

void hs_cli_notes(const hs_cli *cli, const char *const *notes)
{
    static const char mark[] = "warning: ";
    for (; notes && *notes; notes++) {
        if (!strncmp(*notes, mark, sizeof mark - 1))
            hs_cli_warn(cli, "%s", *notes + sizeof mark - 1);
        else
            hs_cli_note(cli, "note: %s", *notes);
    }
}

void hs_cli_debug(const hs_cli *cli, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (cli->verbose)
        say(cli, "", fmt, ap);
    va_end(ap);
}

/* ---- signals -------------------------------------------------------------------------- */

/* A signal handler has no other way to tell the program. */
static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    if (interrupted) {
        signal(sig, SIG_DFL);
        raise(sig); /* blocked until the handler returns, then it kills */
    }
    interrupted = 1;
}

void hs_cli_install_signals(void)
{
    static const int caught[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction old, act = {0};
        act.sa_handler = on_signal; /* no SA_RESTART: a read of a terminal must end */
        sigemptyset(&act.sa_mask);
        /* Ignored at start (nohup, a shell's background job) stays ignored. */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(caught[i], &act, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, seen by hs_cli_finish */
    signal(SIGXFSZ, SIG_IGN); /* so is a file above its limit, seen by hs_out_write */
}

bool hs_cli_interrupted(void) { return interrupted != 0; }

/* ---- the end of stdout ---------------------------------------------------------------- */

static bool pipe_closed(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

int hs_cli_finish(const hs_cli *cli, int status)
{
    errno = 0;
    const bool failed = fflush(stdout) != 0;
    const int e = errno; /* 0 when an earlier write failed */
    if (!failed && !ferror(stdout))
        return status;
    clearerr(stdout);
    if (e != EPIPE && !pipe_closed())
        sayf(cli, "", "cannot write to stdout: %s", e ? strerror(e) : "write error");
    return status ? status : 1;
}

/* ---- progress ------------------------------------------------------------------------- */

static const double first_after_s = 2, bar_every_s = 1.0 / 6, line_every_s = 10;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void hs_progress_init(hs_progress *p, const hs_cli *cli, const char *label, const char *unit)
{
    *p = (hs_progress){.cli = cli, .label = label, .unit = unit, .started = now_s()};
    p->shown = p->started;
}

static void duration(char *buf, size_t cap, double s)
{
    const unsigned long t = s < 1e8 ? (unsigned long)(s + 0.5) : 99999999;
    if (t >= 3600)
        snprintf(buf, cap, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(buf, cap, "%lu:%02lu", t / 60, t % 60);
}

/* "1200 of 5000 tokens, 310 tokens/s, 0:12 left" */
static void describe(const hs_progress *p, double elapsed, uint64_t done, uint64_t total, char *buf,
                     size_t cap)
{
    const bool bytes = strcmp(p->unit, "B") == 0;
    const double scale = bytes ? 1.0 / (1 << 20) : 1, rate = (double)done / elapsed;
    const char *unit = bytes ? "MiB" : p->unit;
    const int digits = bytes ? 1 : 0;
    char of[32] = "", left[48] = "", eta[24];
    if (total) {
        snprintf(of, sizeof of, " of %.*f", digits, (double)total * scale);
        if (done && done <= total) {
            duration(eta, sizeof eta, (double)(total - done) / rate);
            snprintf(left, sizeof left, ", %s left", eta);
        }
    }
    snprintf(buf, cap, "%.*f%s %s, %.*f %s/s%s", digits, (double)done * scale, of, unit,
             rate * scale < 10 ? 1 : digits, rate * scale, unit, left);
}

static void draw_bar(hs_progress *p, uint64_t done, uint64_t total, const char *text)
{
    char line[256], bar[24] = "";
    if (total) {
        const unsigned cells =
            (unsigned)(20.0 * (double)(done < total ? done : total) / (double)total);
        for (unsigned i = 0; i < 20; i++)
            bar[i] = i < cells ? '#' : '.';
        bar[20] = '\0';
    }
    snprintf(line, sizeof line, "%s%s%s%s %s", p->label, total ? " [" : "", bar, total ? "]" : ":",
             text);
    struct winsize ws;
    const int wide = ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 1 ? ws.ws_col : 80;
    fprintf(stderr, "\r%.*s\033[K", wide - 1, line);
    fflush(stderr);
    p->drawn = true;
}

bool hs_progress_step(void *progress, uint64_t done, uint64_t total)
{
    hs_progress *p = progress;
    const double now = now_s(), elapsed = now - p->started;
    if (p->cli->quiet || elapsed < first_after_s || now - p->shown < bar_every_s)
        return !interrupted;
    const bool tty = isatty(STDERR_FILENO);
    if (!tty && now - p->shown < line_every_s)
        return !interrupted;
    char text[160];
    describe(p, elapsed, done, total, text, sizeof text);
    if (tty)
        draw_bar(p, done, total, text);
    else
        sayf(p->cli, "", "%s: %s", p->label, text);
    p->shown = now;
    return !interrupted;
}

void hs_progress_end(hs_progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = false;
}

/* ---- whole texts ---------------------------------------------------------------------- */

static hs_status read_fd(int fd, const char *name, char **text, size_t *n, hs_err *err)
{
    size_t cap = 1 << 16, used = 0;
    char *buf = malloc(cap);
    while (buf) {
        const ssize_t k = read(fd, buf + used, cap - used - 1);
        if (k < 0 && errno == EINTR && !interrupted)
            continue;
        if (k < 0) {
            const int e = errno;
            free(buf);
            return e == EINTR
                       ? hs_fail(err, HS_ERR_INTERRUPTED, "interrupted")
                       : hs_fail(err, HS_ERR_INPUT, "%s: cannot read: %s", name, strerror(e));
        }
        if (k == 0) {
            buf[used] = '\0';
            *text = buf;
            *n = used;
            return HS_OK;
        }
        used += (size_t)k;
        if (cap - used > 1)
            continue;
        char *more = cap <= SIZE_MAX / 2 ? realloc(buf, cap * 2) : NULL;
        if (!more)
            free(buf);
        buf = more;
        cap *= 2;
    }
    return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", name);
}

hs_status hs_read_text(const char *path, char **text, size_t *n, hs_err *err)
{
    *text = NULL;
    *n = 0;
    if (strcmp(path, "-") == 0)
        return read_fd(STDIN_FILENO, "stdin", text, n, err);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hs_fail(err, HS_ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    const hs_status s = read_fd(fd, path, text, n, err);
    close(fd);
    return s;
}
