/* Pages and plots.  The one surprise: gnuplot is a program of its own, started without a shell, in
 * the report's folder, on a script that holds no text from outside. */
#include "runtime/cli_page.h"

#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

/* ---- files ----------------------------------------------------------------------------- */

static hs_status failed(const char *dir, const char *name, hs_err *err)
{
    return hs_fail(err, errno == ENOSPC || errno == EFBIG ? HS_ERR_NOSPACE : HS_ERR_IO,
                   "%s/%s: cannot write: %s", dir, name, strerror(errno));
}

hs_status hs_page_file(FILE **f, const char *dir, const char *name, hs_err *err)
{
    char *path = hs_path_join(dir, name);
    if (!path)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    *f = fopen(path, "wxe");
    free(path);
    return *f ? HS_OK : failed(dir, name, err);
}

hs_status hs_page_close(FILE *f, const char *dir, const char *name, hs_err *err)
{
    errno = 0;
    const bool bad = ferror(f);
    if (fclose(f) != 0 || bad)
        return failed(dir, name, err);
    return HS_OK;
}

/* ---- the page -------------------------------------------------------------------------- */

void hs_page_begin(FILE *f, const char *title)
{
    fprintf(f,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<title>%s</title>\n<style>\n"
            "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\n"
            "table{border-collapse:collapse;margin:1em 0}\n"
            "th,td{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}\n"
            "th{border-bottom:1px solid #444}td.l,th.l{text-align:left}\n"
            "img{max-width:100%%}pre{font-size:12px;line-height:1.15;overflow-x:auto}\n"
            "p.note{color:#444}\n</style></head><body>\n<h1>%s</h1>\n",
            title, title);
}

void hs_page_end(FILE *f)
{
    fputs("<p class=\"note\">The data of the plots is in the CSV files beside this report.</p>\n"
          "</body></html>\n",
          f);
}

void hs_page_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '<')
            fputs("&lt;", f);
        else if (c == '&')
            fputs("&amp;", f);
        else if (c == '"')
            fputs("&quot;", f);
        else
            fputc(c < 0x20 || c >= 0x7f ? '?' : c, f);
    }
}

static void put_base64(FILE *f, const uint8_t *p, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t k = n - i < 3 ? n - i : 3;
        const uint32_t v =
            (uint32_t)p[i] << 16 | (k > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (k > 2 ? p[i + 2] : 0);
        fputc(digit[v >> 18 & 63], f);
        fputc(digit[v >> 12 & 63], f);
        fputc(k > 1 ? digit[v >> 6 & 63] : '=', f);
        fputc(k > 2 ? digit[v & 63] : '=', f);
    }
}

hs_status hs_page_plot(FILE *f, const char *dir, const char *name, const char *alt, hs_err *err)
{
    char *path = hs_path_join(dir, name);
    hs_map map;
    if (!path)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const hs_status s = hs_map_open(&map, path, err);
    if (s != HS_OK) {
        (void)hs_ctx(err, s, "%s: ", path);
        free(path);
        return s;
    }
    free(path);
    fprintf(f, "<p><img alt=\"%s\" src=\"data:image/svg+xml;base64,", alt);
    put_base64(f, map.data, map.size);
    fputs("\"></p>\n", f);
    hs_map_close(&map);
    return HS_OK;
}

/* ---- the script ------------------------------------------------------------------------ */

void hs_page_script(FILE *f)
{
    fputs("# The report's plots, from its CSV files: gnuplot " HS_PAGE_SCRIPT "\n"
          "set datafile separator ','\nset datafile columnheaders\nset encoding utf8\n"
          "set tics out nomirror\n",
          f);
}

void hs_page_script_plot(FILE *f, const char *name, const char *title, int height)
{
    fprintf(f,
            "\nset output '%s.svg'\n"
            "set term svg size 860,%d font 'sans-serif,13' background rgb 'white'\n"
            "set title \"%s\"\n",
            name, height, title);
}

/* ---- running it ------------------------------------------------------------------------ */

static void be_gnuplot(const char *dir)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || chdir(dir) != 0)
        _exit(126);
    /* -d: no start-up files of the user's. */
    execlp("gnuplot", "gnuplot", "-d", HS_PAGE_SCRIPT, (char *)NULL);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Its exit status; -1 when it did not end by itself in time. */
static int wait_for(pid_t pid)
{
    int status = 0;
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (got < 0 && errno != EINTR)
            return -1;
        const struct timespec nap = {0, 10000000};
        nanosleep(&nap, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

static bool has_plot(const char *dir, const char *name)
{
    char file[64];
    struct stat st;
    snprintf(file, sizeof file, "%s.svg", name);
    char *path = hs_path_join(dir, file);
    const bool there = path && stat(path, &st) == 0 && st.st_size > 0;
    free(path);
    return there;
}

bool hs_page_draw(const char *dir, const char *const *name, size_t n, hs_err *why)
{
    const pid_t pid = fork();
    if (pid == 0)
        be_gnuplot(dir);
    const int status = pid < 0 ? 126 : wait_for(pid);
    bool drawn = status == 0;
    for (size_t i = 0; i < n; i++)
        drawn = drawn && has_plot(dir, name[i]);
    if (!drawn)
        hs_fail(why, HS_ERR_FAILED, status == 127 ? "gnuplot is not installed" : "gnuplot failed");
    return drawn;
}
