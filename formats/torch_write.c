/* One int64 tensor as torch.save writes it, byte for byte what torch 1.13 gives: a zip whose
 * sizes and checksums stand behind the data, whose data starts at multiples of 64, and which
 * always ends with ZIP64 records. */
#include "formats/torch_zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    DATA_ALIGN = 64,
    MAX_STEM = 1024,
    MAX_NAME = MAX_STEM + 16,
    CHUNK = 512, /* elements converted at a time */
};
/* UTF-8 names, sizes in a descriptor behind the data. */
#define FLAGS UINT16_C(0x0808)
/* Beyond this torch would need ZIP64 sizes. */
#define MAX_ELEMS UINT64_C(0x1fffff00)

typedef struct record {
    char name[MAX_NAME];
    uint32_t crc, size, offset;
} record;

typedef struct packer {
    hs_out *out;
    uint64_t start; /* of the archive within the output */
    record rec[3];
    int n;
    hs_err *err;
} packer;

typedef struct bytes {
    uint8_t p[256];
    size_t n;
} bytes;

static void put(bytes *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++, v >>= 8)
        b->p[b->n++] = (uint8_t)v;
}

static hs_status emit(packer *z, const void *p, size_t n)
{
    return hs_out_write(z->out, p, n, z->err);
}

static uint64_t position(const packer *z) { return hs_out_size(z->out) - z->start; }

static hs_status begin(packer *z, const char *stem, const char *name)
{
    record *r = &z->rec[z->n];
    snprintf(r->name, sizeof r->name, "%s/%s", stem, name);
    r->offset = (uint32_t)position(z);
    r->crc = (uint32_t)crc32(0, NULL, 0);
    const size_t len = strlen(r->name);
    /* The extra field: id "FB", its length, and as many Z as bring the data to the boundary. */
    const size_t pad = (DATA_ALIGN - (r->offset + LOCAL_BYTES + len + 4) % DATA_ALIGN) % DATA_ALIGN;
    bytes b = {.n = 0};
    put(&b, 0x04034b50, 4);
    put(&b, 0, 2);
    put(&b, FLAGS, 2);
    put(&b, 0, 2 + 4 + 4 + 4 + 4); /* stored, no date, sizes later */
    put(&b, len, 2);
    put(&b, pad + 4, 2);
    hs_status s = emit(z, b.p, b.n);
    if (s == HS_OK)
        s = emit(z, r->name, len);
    b.n = 0;
    put(&b, 0x4246, 2);
    put(&b, pad, 2);
    memset(b.p + b.n, 'Z', pad);
    return s == HS_OK ? emit(z, b.p, b.n + pad) : s;
}

static hs_status data(packer *z, const void *p, size_t n)
{
    record *r = &z->rec[z->n];
    r->crc = (uint32_t)crc32(r->crc, p, (uInt)n);
    r->size += (uint32_t)n;
    return emit(z, p, n);
}

static hs_status end(packer *z)
{
    const record *r = &z->rec[z->n++];
    bytes b = {.n = 0};
    put(&b, 0x08074b50, 4);
    put(&b, r->crc, 4);
    put(&b, r->size, 4);
    put(&b, r->size, 4);
    return emit(z, b.p, b.n);
}

static hs_status directory(packer *z)
{
    const uint64_t start = position(z);
    hs_status s = HS_OK;
    bytes b;
    for (int i = 0; i < z->n && s == HS_OK; i++) {
        const record *r = &z->rec[i];
        b.n = 0;
        put(&b, 0x02014b50, 4);
        put(&b, 0, 2 + 2);
        put(&b, FLAGS, 2);
        put(&b, 0, 2 + 4);
        put(&b, r->crc, 4);
        put(&b, r->size, 4);
        put(&b, r->size, 4);
        put(&b, strlen(r->name), 2);
        put(&b, 0, 2 + 2 + 2 + 2 + 4);
        put(&b, r->offset, 4);
        s = emit(z, b.p, b.n);
        if (s == HS_OK)
            s = emit(z, r->name, strlen(r->name));
    }
    const uint64_t stop = position(z);
    b.n = 0;
    put(&b, 0x06064b50, 4); /* ZIP64 end record, its size without these 12 bytes */
    put(&b, 44, 8);
    put(&b, 0x031e, 2);
    put(&b, 45, 2);
    put(&b, 0, 4 + 4);
    put(&b, (uint64_t)z->n, 8);
    put(&b, (uint64_t)z->n, 8);
    put(&b, stop - start, 8);
    put(&b, start, 8);
    put(&b, 0x07064b50, 4); /* its locator */
    put(&b, 0, 4);
    put(&b, stop, 8);
    put(&b, 1, 4);
    put(&b, 0x06054b50, 4); /* the classic end record */
    put(&b, 0, 2 + 2);
    put(&b, (uint64_t)z->n, 2);
    put(&b, (uint64_t)z->n, 2);
    put(&b, stop - start, 4);
    put(&b, start, 4);
    put(&b, 0, 2);
    return s == HS_OK ? emit(z, b.p, b.n) : s;
}

static void text(bytes *b, const char *s)
{
    memcpy(b->p + b->n, s, strlen(s));
    b->n += strlen(s);
}

static void unicode(bytes *b, const char *s, uint64_t memo)
{
    put(b, 'X', 1);
    put(b, strlen(s), 4);
    text(b, s);
    put(b, 'q', 1);
    put(b, memo, 1);
}

/* The shortest opcode that holds v, as Python's pickler chooses. */
static void integer(bytes *b, uint64_t v)
{
    const bool one = v < 256, two = v < 65536;
    put(b, (uint64_t)(one ? 'K' : two ? 'M' : 'J'), 1);
    put(b, v, one ? 1 : two ? 2 : 4);
}

/* powerinfer-format.md 3.3 */
static void program(bytes *b, uint64_t n)
{
    text(b, "\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v2\n");
    put(b, 'q', 2); /* BINPUT 0 */
    text(b, "((");
    unicode(b, "storage", 1);
    text(b, "ctorch\nLongStorage\nq\x02");
    unicode(b, "0", 3);
    unicode(b, "cpu", 4);
    integer(b, n);
    text(b, "tq\x05Q");
    integer(b, 0);
    integer(b, n);
    text(b, "\x85q\x06");
    integer(b, 1);
    text(b, "\x85q\x07\x89"
            "ccollections\nOrderedDict\nq\x08)Rq\x09tq\x0aRq\x0b.");
}

static hs_status values(packer *z, const int64_t *v, uint64_t n)
{
    uint8_t le[8 * CHUNK];
    for (uint64_t i = 0; i < n;) {
        size_t used = 0;
        for (; i < n && used < sizeof le; i++)
            for (int k = 0; k < 8; k++)
                le[used++] = (uint8_t)((uint64_t)v[i] >> (8 * k));
        const hs_status s = data(z, le, used);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

hs_status hs_torch_write_i64(hs_out *out, const char *stem, const int64_t *v, uint64_t n,
                             hs_err *err)
{
    if (n > MAX_ELEMS || strlen(stem) > MAX_STEM || !*stem)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "%.60s.pt: %" PRIu64 " elements under this name do not fit the format", stem,
                       n);
    packer *z = calloc(1, sizeof *z);
    if (!z)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    z->out = out;
    z->start = hs_out_size(out);
    z->err = err;
    bytes pkl = {.n = 0};
    program(&pkl, n);
    hs_status s = begin(z, stem, "data.pkl");
    if (s == HS_OK)
        s = data(z, pkl.p, pkl.n);
    if (s == HS_OK)
        s = end(z);
    if (s == HS_OK)
        s = begin(z, stem, "data/0");
    if (s == HS_OK)
        s = values(z, v, n);
    if (s == HS_OK)
        s = end(z);
    if (s == HS_OK)
        s = begin(z, stem, "version");
    if (s == HS_OK)
        s = data(z, "3\n", 2);
    if (s == HS_OK)
        s = end(z);
    if (s == HS_OK)
        s = directory(z);
    free(z);
    return s;
}
