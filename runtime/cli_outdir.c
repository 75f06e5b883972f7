/* A folder beside the final one, renamed at the end.  One surprise: an old folder is exchanged
 * for the new one in one step and removed afterwards, so there is always one under the name. */
#include "runtime/cli_outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hs_outdir {
    char *path, *temp;
    char *ours;
    bool force;
};

static hs_status failed(const char *path, const char *what, hs_err *err)
{
    return hs_fail(err, errno == ENOSPC || errno == EDQUOT ? HS_ERR_NOSPACE : HS_ERR_IO,
                   "%s: cannot %s: %s", path, what, strerror(errno));
}

static bool dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* *n: its entries; *foreign: one that is no regular file. */
static hs_status look(const char *path, const char *ours, size_t *n, bool *mine, bool *foreign,
                      hs_err *err)
{
    DIR *d = opendir(path);
    if (!d)
        return hs_fail(err, HS_ERR_USAGE, "%s: exists and is no folder that can be read: %s", path,
                       strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        if (dots(e->d_name))
            continue;
        struct stat st;
        ++*n;
        *mine = *mine || strcmp(e->d_name, ours) == 0;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            *foreign = true;
    }
    closedir(d);
    return HS_OK;
}

hs_status hs_outdir_check(const char *path, const char *ours, bool force, hs_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0 && errno == ENOENT)
        return HS_OK;
    size_t n = 0;
    bool mine = false, foreign = false;
    const hs_status s = look(path, ours, &n, &mine, &foreign, err);
    if (s != HS_OK || n == 0)
        return s;
    if (!mine || foreign)
        return hs_fail(err, HS_ERR_USAGE, "%s: is not a folder that a report was written to (%s)",
                       path, foreign ? "it holds more than files" : "it has no report.html");
    if (!force)
        return hs_fail(err, HS_ERR_USAGE, "%s: exists; use --force to replace it", path);
    return HS_OK;
}

hs_status hs_outdir_open(hs_outdir **out, const char *path, const char *ours, bool force,
                         hs_err *err)
{
    *out = NULL;
    const hs_status s = hs_outdir_check(path, ours, force, err);
    if (s != HS_OK)
        return s;
    hs_outdir *d = calloc(1, sizeof *d);
    if (!d)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    d->force = force;
    d->path = strdup(path);
    d->ours = strdup(ours);
    size_t n = d->path ? strlen(d->path) : 0;
    while (n > 1 && d->path[n - 1] == '/')
        d->path[--n] = 0;
    if (!d->path || !d->ours || asprintf(&d->temp, "%s.tmp-XXXXXX", d->path) < 0) {
        d->temp = NULL;
        hs_outdir_abort(d);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    if (!mkdtemp(d->temp) || chmod(d->temp, 0777 & ~(mode_t)022) != 0) {
        const hs_status f = failed(path, "create", err);
        free(d->temp);
        d->temp = NULL;
        hs_outdir_abort(d);
        return f;
    }
    *out = d;
    return HS_OK;
}

const char *hs_outdir_path(const hs_outdir *d) { return d->temp; }

static void remove_files(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!dots(e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(path);
}

void hs_outdir_abort(hs_outdir *d)
{
    if (!d)
        return;
    if (d->temp)
        remove_files(d->temp);
    free(d->temp);
    free(d->path);
    free(d->ours);
    free(d);
}

hs_status hs_outdir_commit(hs_outdir *d, hs_err *err)
{
    hs_status s = hs_outdir_check(d->path, d->ours, d->force, err);
    if (s == HS_OK && rename(d->temp, d->path) != 0) {
        const bool there = errno == ENOTEMPTY || errno == EEXIST;
        if (!there || renameat2(AT_FDCWD, d->temp, AT_FDCWD, d->path, RENAME_EXCHANGE) != 0)
            s = failed(d->path, "replace", err);
        else
            remove_files(d->temp); /* the old one */
        if (s == HS_OK) {
            free(d->temp);
            d->temp = NULL;
        }
    } else if (s == HS_OK) {
        free(d->temp);
        d->temp = NULL;
    }
    hs_outdir_abort(d);
    return s;
}
