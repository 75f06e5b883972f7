/* SentencePiece models: protobuf wire format, of which we need one message. */
#include "formats/spm.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = 1 << 20 };

typedef enum wire {
    WIRE_VARINT = 0,
    WIRE_I64 = 1,
    WIRE_BYTES = 2,
    WIRE_I32 = 5,
} wire;

typedef struct field {
    uint32_t number;
    wire type;
    uint64_t varint;
    const uint8_t *data; /* of WIRE_I32, WIRE_I64 and WIRE_BYTES */
    size_t n;
} field;

/* At most ten bytes; the tenth holds one bit. */
static uint64_t varint(hs_cursor *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        const uint8_t b = hs_cur_u8(c);
        if (shift == 63 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    c->bad = true;
    return 0;
}

/* `at` is where the message stands in the file, for messages. */
static hs_status next_field(hs_cursor *c, size_t at, field *f, hs_err *err)
{
    const size_t start = at + c->pos;
    const uint64_t tag = varint(c);
    *f = (field){.number = (uint32_t)(tag >> 3), .type = (wire)(tag & 7)};
    if (!c->bad && (tag >> 3 == 0 || tag >> 3 > 0x1fffffff))
        return hs_fail(err, HS_ERR_FORMAT,
                       "byte %zu: field number %" PRIu64 ", not a SentencePiece model", start,
                       tag >> 3);
    switch (f->type) {
    case WIRE_VARINT: f->varint = varint(c); break;
    case WIRE_I64: f->n = 8; break;
    case WIRE_I32: f->n = 4; break;
    case WIRE_BYTES: {
        const uint64_t n = varint(c);
        if (n > c->size - c->pos)
            c->bad = true;
        else
            f->n = (size_t)n;
        break;
    }
    default:
        if (!c->bad)
            return hs_fail(err, HS_ERR_FORMAT, "byte %zu: wire type %d, not a SentencePiece model",
                           start, (int)f->type);
    }
    if (f->type != WIRE_VARINT)
        f->data = hs_cur_take(c, f->n);
    if (c->bad)
        return hs_fail(err, HS_ERR_FORMAT, "byte %zu: the file ends inside a field", start);
    return HS_OK;
}

static hs_status expect(const field *f, wire type, size_t at, hs_err *err)
{
    if (f->type != type)
        return hs_fail(err, HS_ERR_FORMAT,
                       "byte %zu: piece field %" PRIu32 " has wire type %d, expected %d", at,
                       f->number, (int)f->type, (int)type);
    return HS_OK;
}

static hs_status read_piece(hs_spm *s, const uint8_t *data, size_t n, size_t at, hs_err *err)
{
    hs_cursor c = {.base = data, .size = n};
    hs_str piece = {0};
    float score = 0;
    uint64_t type = HS_TOKEN_NORMAL;
    while (c.pos < c.size) {
        field f;
        hs_status st = next_field(&c, at, &f, err);
        if (st == HS_OK && f.number == 1) {
            st = expect(&f, WIRE_BYTES, at, err);
            piece = (hs_str){(const char *)f.data, f.n};
        } else if (st == HS_OK && f.number == 2) {
            st = expect(&f, WIRE_I32, at, err);
            if (st == HS_OK)
                score = hs_get_f32(f.data);
        } else if (st == HS_OK && f.number == 3) {
            st = expect(&f, WIRE_VARINT, at, err);
            type = f.varint;
        }
        if (st != HS_OK)
            return st;
    }
    if (!piece.n)
        return hs_fail(err, HS_ERR_FORMAT, "byte %zu: piece %zu is empty", at, s->n);
    if (!isfinite(score))
        return hs_fail(err, HS_ERR_FORMAT, "byte %zu: the score of piece %zu is not finite", at,
                       s->n);
    if (type < HS_TOKEN_NORMAL || type > HS_TOKEN_BYTE)
        return hs_fail(err, HS_ERR_FORMAT, "byte %zu: piece %zu has type %" PRIu64, at, s->n, type);
    s->piece[s->n] = piece;
    s->score[s->n] = score;
    s->type[s->n++] = (int32_t)type;
    return HS_OK;
}

static hs_status reserve(hs_spm *s, size_t n, hs_err *err)
{
    s->piece = malloc(n * sizeof *s->piece);
    s->score = malloc(n * sizeof *s->score);
    s->type = malloc(n * sizeof *s->type);
    if (!s->piece || !s->score || !s->type)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    return HS_OK;
}

/* trainer_spec { 3: model type, 1 unigram (the default), 2 BPE… } */
static hs_status read_trainer(hs_spm *s, const uint8_t *data, size_t n, size_t at, hs_err *err)
{
    hs_cursor c = {.base = data, .size = n};
    s->unigram = true;
    while (c.pos < c.size) {
        field f;
        const hs_status st = next_field(&c, at, &f, err);
        if (st != HS_OK)
            return st;
        if (f.number == 3 && f.type == WIRE_VARINT)
            s->unigram = f.varint == 1;
    }
    return HS_OK;
}

/* normalizer_spec { 2: character map, 3: add_dummy_prefix, 4: remove_extra_whitespaces }, flags
 * that are true by default */
static hs_status read_normalizer(hs_spm *s, const uint8_t *data, size_t n, size_t at, hs_err *err)
{
    hs_cursor c = {.base = data, .size = n};
    bool map = false, trims = true;
    while (c.pos < c.size) {
        field f;
        const hs_status st = next_field(&c, at, &f, err);
        if (st != HS_OK)
            return st;
        if (f.number == 2 && f.type == WIRE_BYTES)
            map = f.n > 0;
        else if (f.number == 3 && f.type == WIRE_VARINT)
            s->add_dummy_prefix = f.varint != 0;
        else if (f.number == 4 && f.type == WIRE_VARINT)
            trims = f.varint != 0;
    }
    s->rewrites = map || trims;
    return HS_OK;
}

/* Walk the top level; with `s` the pieces are read, without they are counted. */
static hs_status walk(const uint8_t *data, size_t size, hs_spm *s, size_t *count, hs_err *err)
{
    hs_cursor c = {.base = data, .size = size};
    *count = 0;
    while (c.pos < c.size) {
        field f;
        hs_status st = next_field(&c, 0, &f, err);
        if (st == HS_OK && f.number == 1) {
            st = expect(&f, WIRE_BYTES, c.pos, err);
            if (st == HS_OK && ++*count > MAX_PIECES)
                st = hs_fail(err, HS_ERR_FORMAT, "more than %d pieces", MAX_PIECES);
            if (st == HS_OK && s)
                st = read_piece(s, f.data, f.n, c.pos - f.n, err);
        } else if (st == HS_OK && s && f.number == 2 && f.type == WIRE_BYTES) {
            st = read_trainer(s, f.data, f.n, c.pos - f.n, err);
        } else if (st == HS_OK && s && f.number == 3 && f.type == WIRE_BYTES) {
            st = read_normalizer(s, f.data, f.n, c.pos - f.n, err);
        }
        if (st != HS_OK)
            return st;
    }
    return HS_OK;
}

hs_status hs_spm_parse(hs_spm **out, const void *data, size_t size, hs_err *err)
{
    *out = NULL;
    if (!size)
        return hs_fail(err, HS_ERR_FORMAT, "empty file, expected a SentencePiece model");
    size_t n;
    hs_status st = walk(data, size, NULL, &n, err);
    if (st == HS_OK && !n)
        st = hs_fail(err, HS_ERR_FORMAT, "no pieces, expected a SentencePiece model");
    if (st != HS_OK)
        return st;
    hs_spm *s = calloc(1, sizeof *s);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    s->add_dummy_prefix = true;
    st = reserve(s, n, err);
    if (st == HS_OK)
        st = walk(data, size, s, &n, err);
    if (st == HS_OK)
        *out = s;
    else
        hs_spm_free(s);
    return st;
}

hs_status hs_spm_open(hs_spm **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_map map;
    hs_status st = hs_map_open(&map, path, err);
    if (st == HS_OK)
        st = hs_spm_parse(out, map.data, map.size, err);
    if (st == HS_OK) {
        (*out)->map = map;
        return st;
    }
    hs_map_close(&map);
    return hs_ctx(err, st, "%s: ", path);
}

void hs_spm_free(hs_spm *s)
{
    if (!s)
        return;
    free(s->piece);
    free(s->score);
    free(s->type);
    hs_map_close(&s->map);
    free(s);
}
