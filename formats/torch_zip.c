/* torch.save's zip: libarchive finds, inflates and checks the members, the pickle interpreter
 * reads data.pkl.  The one surprise: libarchive hands out pointers into our own mapping for
 * stored members, which is all that torch writes, so nothing is copied. */
#include "formats/torch_zip.h"

#include "formats/cursor.h"
#include "formats/pickle.h"

#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 1 << 18, MAX_NAME = 4096 };

typedef struct member {
    char *name;
    const uint8_t *data; /* into the archive, or `own` */
    size_t size;
    uint8_t *own;
} member;

struct hs_torch_zip {
    const uint8_t *base;
    size_t size;
    member *member; /* sorted by name once all are read */
    size_t n, cap;
    size_t prefix; /* length of the common directory, its slash included */
    uint64_t total, bound;
};

void hs_torch_zip_free(hs_torch_zip *z)
{
    if (!z)
        return;
    for (size_t i = 0; i < z->n; i++) {
        free(z->member[i].name);
        free(z->member[i].own);
    }
    free(z->member);
    free(z);
}

static bool name_is_safe(const char *name)
{
    if (!*name || *name == '/' || strlen(name) >= MAX_NAME)
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
            return false;
    }
    return true;
}

static hs_status archive_fail(struct archive *a, const char *name, hs_err *err)
{
    const char *why = archive_error_string(a);
    return hs_fail(err, HS_ERR_FORMAT, "%.200s%s%s", name ? name : "", name ? ": " : "",
                   why ? why : "damaged zip archive");
}

/* Add a block to the member: borrowed while all blocks lie one after another in the archive. */
static hs_status add_block(hs_torch_zip *z, member *m, size_t *cap, const uint8_t *p, size_t n,
                           hs_err *err)
{
    z->total += n;
    if (z->total > z->bound)
        return hs_fail(err, HS_ERR_FORMAT,
                       "the members unpack to more than %" PRIu64 " bytes, 16 times the file",
                       z->bound);
    const bool inside = (uintptr_t)p >= (uintptr_t)z->base &&
                        (uintptr_t)p - (uintptr_t)z->base <= z->size &&
                        n <= z->size - ((uintptr_t)p - (uintptr_t)z->base);
    if (inside && !m->own && (!m->size || m->data + m->size == p)) {
        if (!m->size)
            m->data = p;
        m->size += n;
        return HS_OK;
    }
    if (n > *cap - (m->own ? m->size : 0) || !m->own) {
        const size_t want = m->size + n > 2 * *cap ? m->size + n : 2 * *cap;
        uint8_t *q = realloc(m->own, want);
        if (!q)
            return hs_fail(err, HS_ERR_NOMEM, "%.200s: out of memory", m->name);
        if (!m->own && m->size)
            memcpy(q, m->data, m->size);
        m->data = m->own = q;
        *cap = want;
    }
    memcpy(m->own + m->size, p, n);
    m->size += n;
    return HS_OK;
}

static hs_status read_member(hs_torch_zip *z, struct archive *a, struct archive_entry *e,
                             hs_err *err)
{
    const char *name = archive_entry_pathname(e);
    if (!name || !name_is_safe(name))
        return hs_fail(err, HS_ERR_FORMAT, "member %zu: unsafe name \"%.200s\"", z->n,
                       name ? name : "?");
    if (archive_entry_is_encrypted(e))
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%.200s: encrypted member", name);
    if (archive_entry_filetype(e) == AE_IFDIR)
        return HS_OK;
    if (archive_entry_filetype(e) != AE_IFREG)
        return hs_fail(err, HS_ERR_FORMAT, "%.200s: is not a regular file", name);
    if (z->n == z->cap) {
        const size_t cap = z->cap ? 2 * z->cap : 64;
        member *p = z->n < MAX_MEMBERS ? realloc(z->member, cap * sizeof *p) : NULL;
        if (!p)
            return hs_fail(err, z->n < MAX_MEMBERS ? HS_ERR_NOMEM : HS_ERR_FORMAT,
                           "more members than we can hold");
        z->member = p;
        z->cap = cap;
    }
    member *m = &z->member[z->n];
    *m = (member){.name = strdup(name), .data = z->base};
    if (!m->name)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    z->n++;
    size_t cap = 0;
    for (;;) {
        const void *p = NULL;
        size_t n = 0;
        la_int64_t at = 0;
        const int r = archive_read_data_block(a, &p, &n, &at);
        if (r == ARCHIVE_EOF)
            return HS_OK;
        if (r != ARCHIVE_OK)
            return archive_fail(a, m->name, err);
        if (at < 0 || (uint64_t)at != m->size)
            return hs_fail(err, HS_ERR_FORMAT, "%.200s: data out of order", m->name);
        const hs_status s = n ? add_block(z, m, &cap, p, n, err) : HS_OK;
        if (s != HS_OK)
            return s;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

static hs_status read_members(hs_torch_zip *z, hs_err *err)
{
    struct archive *a = archive_read_new();
    if (!a || archive_read_support_format_zip_seekable(a) != ARCHIVE_OK) {
        archive_read_free(a);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    hs_status s = HS_OK;
    if (archive_read_open_memory(a, z->base, z->size) != ARCHIVE_OK)
        s = archive_fail(a, NULL, err);
    while (s == HS_OK) {
        struct archive_entry *e;
        const int r = archive_read_next_header(a, &e);
        if (r == ARCHIVE_EOF)
            break;
        s = r == ARCHIVE_OK ? read_member(z, a, e, err) : archive_fail(a, NULL, err);
    }
    archive_read_free(a);
    return s;
}

/* libarchive converts names to the thread's locale and loses those that do not fit. */
static hs_status read_members_utf8(hs_torch_zip *z, hs_err *err)
{
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    const locale_t old = utf8 ? uselocale(utf8) : (locale_t)0;
    const hs_status s = read_members(z, err);
    if (utf8) {
        uselocale(old);
        freelocale(utf8);
    }
    return s;
}

static const member *find(const hs_torch_zip *z, const char *dir, size_t n_dir, const char *name)
{
    char full[MAX_NAME + 128];
    snprintf(full, sizeof full, "%.*s%s", (int)n_dir, dir, name);
    const member key = {.name = full};
    return bsearch(&key, z->member, z->n, sizeof key, by_name);
}

/* The member data.pkl in whatever directory; there is one. */
static hs_status find_program(hs_torch_zip *z, const member **out, hs_err *err)
{
    static const char pkl[] = "data.pkl";
    *out = NULL;
    for (size_t i = 0; i < z->n; i++) {
        const char *slash = strrchr(z->member[i].name, '/');
        if (strcmp(slash ? slash + 1 : z->member[i].name, pkl) != 0)
            continue;
        if (*out)
            return hs_fail(err, HS_ERR_FORMAT, "two members named data.pkl");
        *out = &z->member[i];
    }
    if (!*out)
        return hs_fail(err, HS_ERR_FORMAT, "a zip archive without data.pkl: not a torch file");
    z->prefix = strlen((*out)->name) - (sizeof pkl - 1);
    return HS_OK;
}

static hs_status check_members(const hs_torch_zip *z, const char *dir, hs_err *err)
{
    for (size_t i = 1; i < z->n; i++)
        if (strcmp(z->member[i - 1].name, z->member[i].name) == 0)
            return hs_fail(err, HS_ERR_FORMAT, "two members named %.200s", z->member[i].name);
    const member *order = find(z, dir, z->prefix, "byteorder");
    if (order && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "byteorder is \"%.*s\", only \"little\" is supported",
                       (int)(order->size < 16 ? order->size : 16), (const char *)order->data);
    return HS_OK;
}

typedef struct lookup {
    const hs_torch_zip *zip;
    const char *dir;
} lookup;

static hs_status storage(void *ud, const char *key, const uint8_t **data, size_t *bytes,
                         hs_err *err)
{
    const lookup *l = ud;
    char name[128];
    snprintf(name, sizeof name, "data/%.64s", key);
    const member *m = find(l->zip, l->dir, l->zip->prefix, name);
    if (!m)
        return hs_fail(err, HS_ERR_FORMAT, "storage %s: the archive has no member %.200s%s", key,
                       l->dir, name);
    *data = m->data;
    *bytes = m->size;
    return HS_OK;
}

/* What a file that is no zip probably is. */
static hs_status check_magic(const uint8_t *p, size_t n, hs_err *err)
{
    /* protocol 2, LONG1 of 10 bytes: torch's magic number before 1.6 */
    static const uint8_t legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46};
    if (n >= sizeof legacy && memcmp(p, legacy, sizeof legacy) == 0)
        return hs_fail(
            err, HS_ERR_UNSUPPORTED,
            "a torch file in the format of before torch 1.6; load it with torch and save "
            "it again, as zip or as safetensors");
    if (n >= 2 && p[0] == 0x80 && p[1] <= 5)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "a bare pickle, not a torch zip file; save its tensors with torch.save");
    if (n < 4 || memcmp(p, "PK\3\4", 4) != 0)
        return hs_fail(err, HS_ERR_FORMAT, "not a torch zip file (it does not start with PK)");
    return HS_OK;
}

hs_status hs_torch_zip_parse(hs_torch_zip **out, const void *data, size_t size, hs_ckpt_visit visit,
                             void *ud, hs_err *err)
{
    *out = NULL;
    hs_status s = check_magic(data, size, err);
    if (s != HS_OK)
        return s;
    hs_torch_zip *z = calloc(1, sizeof *z);
    if (!z)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    z->base = data;
    z->size = size;
    /* Deflate reaches a factor of 1000; real weights do not reach 2. */
    z->bound = (uint64_t)size * 16 + (1 << 20);
    const member *pkl = NULL;
    s = read_members_utf8(z, err);
    if (s == HS_OK && z->n)
        qsort(z->member, z->n, sizeof *z->member, by_name);
    if (s == HS_OK)
        s = find_program(z, &pkl, err);
    if (s == HS_OK)
        s = check_members(z, pkl->name, err);
    if (s == HS_OK) {
        char dir[MAX_NAME];
        snprintf(dir, sizeof dir, "%.*s", (int)z->prefix, pkl->name);
        lookup l = {z, dir};
        s = hs_pickle_tensors(pkl->data, pkl->size, storage, &l, visit, ud, err);
        if (s != HS_OK && err && strncmp(err->msg, "byte ", 5) == 0)
            s = hs_ctx(err, s, "data.pkl: ");
    }
    if (s == HS_OK)
        *out = z;
    else
        hs_torch_zip_free(z);
    return s;
}
