/* Mapped inputs and atomic outputs.  The one surprise: an output is written to a file
 * without a name (O_TMPFILE) where the filesystem has that, and to a hidden sibling elsewhere. */
#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

hs_status hs_map_open(hs_map *map, const char *path, hs_err *err)
{
    *map = (hs_map){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits at a FIFO */
    if (fd < 0)
        return hs_fail(err, HS_ERR_INPUT, "cannot open: %s", strerror(errno));
    struct stat st;
    hs_status s = HS_OK;
    if (fstat(fd, &st) != 0) {
        s = hs_fail(err, HS_ERR_IO, "%s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        s = hs_fail(err, HS_ERR_INPUT,
                    S_ISDIR(st.st_mode) ? "is a directory, expected a file"
                                        : "is not a regular file");
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            s = hs_fail(err, HS_ERR_IO, "cannot map: %s", strerror(errno));
        else
            *map = (hs_map){p, (size_t)st.st_size};
    }
    close(fd);
    return s;
}

void hs_map_close(hs_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size); /* NOLINT(performance-no-int-to-ptr) */
    *map = (hs_map){0};
}

enum { OUT_BUFFER = 1 << 18 };

struct hs_out {
    char *path;
    char *temp; /* NULL while the file has no name */
    int fd;
    bool force;
    uint64_t size; /* bytes appended, the buffered ones included */
    size_t used;
    uint8_t buf[OUT_BUFFER];
};

static hs_status out_fail(const hs_out *o, hs_err *err, int e, const char *what)
{
    const bool full = e == ENOSPC || e == EDQUOT || e == EFBIG;
    return hs_fail(err, full ? HS_ERR_NOSPACE : HS_ERR_IO, "%s: %s: %s", o->path, what,
                   strerror(e));
}

static void out_free(hs_out *o)
{
    if (o->fd >= 0)
        close(o->fd);
    if (o->temp)
        unlink(o->temp);
    free(o->temp);
    free(o->path);
    free(o);
}

/* The hidden sibling's name; it carries the process id so that two runs do not meet. */
static char *temp_name(const char *path, unsigned attempt)
{
    const char *slash = strrchr(path, '/');
    const size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    const size_t n = dir + 64;
    char *t = malloc(n);
    if (t)
        snprintf(t, n, "%.*s.hotset-%ld-%u.tmp", (int)dir, path, (long)getpid(), attempt);
    return t;
}

static int open_unnamed(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -1;
    const int fd = open(dirname(copy), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    free(copy);
    return fd;
}

hs_status hs_out_open(hs_out **out, const char *path, bool force, hs_err *err)
{
    *out = NULL;
    struct stat st;
    if (lstat(path, &st) == 0) {
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            return hs_fail(err, HS_ERR_USAGE, "%s: exists and is not a regular file", path);
        if (!force)
            return hs_fail(err, HS_ERR_USAGE, "%s: exists; use --force to replace it", path);
    }
    hs_out *o = calloc(1, sizeof *o);
    if (!o)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", path);
    o->force = force;
    /* A symlink stays: what it points to is replaced. */
    char *real = realpath(path, NULL);
    o->path = real ? real : strdup(path);
    o->fd = o->path ? open_unnamed(o->path) : -1;
    for (unsigned i = 0; o->path && o->fd < 0 && i < 100; i++) {
        free(o->temp);
        o->temp = temp_name(o->path, i);
        o->fd = o->temp ? open(o->temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666) : -1;
        if (o->fd < 0 && errno != EEXIST)
            break;
    }
    if (o->fd < 0) {
        const int e = errno;
        free(o->temp); /* not ours to unlink */
        o->temp = NULL;
        const hs_status s = hs_fail(err, e == ENOSPC ? HS_ERR_NOSPACE : HS_ERR_IO,
                                    "%s: cannot create: %s", path, strerror(e));
        out_free(o);
        return s;
    }
    *out = o;
    return HS_OK;
}

static hs_status write_all(const hs_out *o, const uint8_t *p, size_t n, hs_err *err)
{
    while (n) {
        const ssize_t k = write(o->fd, p, n < (1u << 30) ? n : 1u << 30);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return out_fail(o, err, k < 0 ? errno : EIO, "write");
        p += k;
        n -= (size_t)k;
    }
    return HS_OK;
}

static hs_status out_flush(hs_out *o, hs_err *err)
{
    const size_t n = o->used;
    o->used = 0;
    return write_all(o, o->buf, n, err);
}

hs_status hs_out_write(hs_out *o, const void *data, size_t bytes, hs_err *err)
{
    o->size += bytes;
    if (bytes > OUT_BUFFER - o->used) {
        const hs_status s = out_flush(o, err);
        if (s != HS_OK)
            return s;
        if (bytes >= OUT_BUFFER)
            return write_all(o, data, bytes, err);
    }
    if (bytes)
        memcpy(o->buf + o->used, data, bytes);
    o->used += bytes;
    return HS_OK;
}

hs_status hs_out_patch(hs_out *o, uint64_t offset, const void *data, size_t bytes, hs_err *err)
{
    const hs_status s = out_flush(o, err);
    if (s != HS_OK)
        return s;
    const uint8_t *p = data;
    while (bytes) {
        const ssize_t k = pwrite(o->fd, p, bytes, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return out_fail(o, err, k < 0 ? errno : EIO, "write");
        p += k;
        offset += (uint64_t)k;
        bytes -= (size_t)k;
    }
    return HS_OK;
}

uint64_t hs_out_size(const hs_out *o) { return o->size; }

hs_status hs_out_map(hs_out *o, hs_map *map, hs_err *err)
{
    *map = (hs_map){0};
    const hs_status s = out_flush(o, err);
    if (s != HS_OK || !o->size)
        return s;
    void *p = mmap(NULL, (size_t)o->size, PROT_READ, MAP_SHARED, o->fd, 0);
    if (p == MAP_FAILED)
        return out_fail(o, err, errno, "cannot map");
    *map = (hs_map){p, (size_t)o->size};
    return HS_OK;
}

/* Give an unnamed file a name.  linkat never replaces, so it takes a hidden name first. */
static hs_status name_it(hs_out *o, hs_err *err)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", o->fd);
    for (unsigned i = 0; i < 100; i++) {
        char *t = temp_name(o->path, i);
        if (!t)
            return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", o->path);
        if (linkat(AT_FDCWD, self, AT_FDCWD, t, AT_SYMLINK_FOLLOW) == 0) {
            o->temp = t;
            return HS_OK;
        }
        const int e = errno;
        free(t);
        if (e != EEXIST)
            return out_fail(o, err, e, "cannot name");
    }
    return out_fail(o, err, EEXIST, "cannot name");
}

hs_status hs_out_commit(hs_out *o, bool sync, hs_err *err)
{
    hs_status s = out_flush(o, err);
    if (s == HS_OK && sync && fsync(o->fd) != 0)
        s = out_fail(o, err, errno, "fsync");
    if (s == HS_OK && !o->temp)
        s = name_it(o, err);
    /* Without --force a file that appeared meanwhile is not ours to replace either. */
    if (s == HS_OK &&
        (o->force ? rename(o->temp, o->path)
                  : renameat2(AT_FDCWD, o->temp, AT_FDCWD, o->path, RENAME_NOREPLACE)) != 0) {
        if (!o->force && errno == EINVAL) { /* a filesystem without RENAME_NOREPLACE */
            if (link(o->temp, o->path) != 0)
                s = out_fail(o, err, errno, "cannot rename");
        } else {
            s = out_fail(o, err, errno, "cannot rename");
        }
    } else if (s == HS_OK) {
        free(o->temp);
        o->temp = NULL;
    }
    out_free(o);
    return s;
}

void hs_out_abort(hs_out *o)
{
    if (o)
        out_free(o);
}

bool hs_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

char *hs_path_join(const char *dir, const char *name)
{
    const size_t n = strlen(dir), m = strlen(name);
    char *p = malloc(n + m + 2);
    if (!p)
        return NULL;
    snprintf(p, n + m + 2, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
    return p;
}
