/* SentencePiece BPE with byte fallback.
 *
 * The text becomes symbols (characters, bytes that are none, user-defined pieces); the adjacent
 * pair whose concatenation has the highest score merges, the leftmost on ties, until none is
 * left.  A text of megabytes is never one problem: where no piece contains two adjacent bytes
 * the text is cut (vocab.h, `pair`), and each part is merged alone with the same result. */
#include "runtime/token.h"

#include "formats/cursor.h"
#include "runtime/hotset.h"
#include "runtime/vocab.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ---------------------------------------------------------------------------- */

/* Bytes that a character starting with `lead` has; 0 when none can. */
static size_t utf8_length(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Whether `c` may be byte `i` (1..3) of a character starting with `lead`: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
static bool utf8_continues(uint8_t lead, size_t i, uint8_t c)
{
    uint8_t lo = 0x80, hi = 0xbf;
    if (i == 1) {
        if (lead == 0xe0)
            lo = 0xa0;
        else if (lead == 0xed)
            hi = 0x9f;
        else if (lead == 0xf0)
            lo = 0x90;
        else if (lead == 0xf4)
            hi = 0x8f;
    }
    return c >= lo && c <= hi;
}

/* Bytes of the character at p, 1 for a byte that starts none; *cut when it only lacks its end. */
static size_t utf8_next(const char *p, size_t n, bool *cut)
{
    const uint8_t lead = (uint8_t)p[0];
    const size_t want = utf8_length(lead);
    size_t i = 1;
    *cut = false;
    while (i < want && i < n && utf8_continues(lead, i, (uint8_t)p[i]))
        i++;
    if (i >= want)
        return want ? want : 1;
    *cut = i == n;
    return 1;
}

size_t hs_utf8_char(const char *p, size_t n)
{
    bool cut;
    const size_t k = utf8_next(p, n, &cut);
    return k > 1 || (uint8_t)p[0] < 0x80 ? k : 0;
}

size_t hs_utf8_complete(const char *p, size_t n)
{
    for (size_t back = n < 3 ? n : 3; back > 0; back--) {
        bool cut;
        const size_t k = utf8_next(p + n - back, back, &cut);
        if (cut)
            return n - back;
        if (k > 1)
            back -= k - 1;
    }
    return n;
}

/* ---- output --------------------------------------------------------------------------- */

typedef struct symbol {
    int32_t prev, next; /* -1: none */
    uint32_t at, n;     /* bytes of the part; n 0: merged into another one */
} symbol;

typedef struct pair {
    float score;
    int32_t left, right;
    uint32_t n; /* bytes of both; stale once they differ */
} pair;

typedef struct encoder {
    const hs_vocab *v;
    hs_err *err;
    int32_t *ids;
    size_t n_ids, cap_ids;
    bool last_unk; /* neighbouring unknowns are one token */
    symbol *sym;
    size_t n_sym, cap_sym;
    pair *heap;
    size_t n_heap, cap_heap;
    uint32_t *split; /* [n_vocab] bytes of the left half of an unused piece; 0: none */
    hs_str *todo;    /* pieces still to be split */
    size_t cap_todo;
} encoder;

static hs_status no_memory(encoder *e)
{
    return hs_fail(e->err, HS_ERR_NOMEM, "out of memory for the tokens of the text");
}

/* Room for one more. */
static bool grow(void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    const size_t want = *cap ? *cap * 2 : 256;
    uint64_t bytes;
    if (!hs_mul(want, size, &bytes) || bytes > PTRDIFF_MAX)
        return false;
    void *old;
    memcpy(&old, array, sizeof old);
    void *p = realloc(old, (size_t)bytes);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = want;
    return true;
}

static hs_status push_id(encoder *e, int32_t id)
{
    if (e->n_ids == INT32_MAX)
        return hs_fail(e->err, HS_ERR_UNSUPPORTED, "the text has more than %d tokens", INT32_MAX);
    if (!grow(&e->ids, e->n_ids, &e->cap_ids, sizeof *e->ids))
        return no_memory(e);
    e->ids[e->n_ids++] = id;
    e->last_unk = false;
    return HS_OK;
}

static hs_status push_bytes(encoder *e, hs_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const uint8_t c = (uint8_t)s.p[i];
        hs_status st = HS_OK;
        if (e->v->byte_id[c] >= 0) {
            st = push_id(e, e->v->byte_id[c]);
        } else if (e->v->unk < 0) {
            st =
                hs_fail(e->err, HS_ERR_FORMAT,
                        "the vocabulary has no token for byte 0x%02X and none for unknown text", c);
        } else if (!e->last_unk) {
            st = push_id(e, e->v->unk);
            e->last_unk = true;
        }
        if (st != HS_OK)
            return st;
    }
    return HS_OK;
}

/* One final symbol.  A merged piece of type unused is taken apart again, as it was put together,
 * until the parts are usable. */
static hs_status push_piece(encoder *e, hs_str s)
{
    size_t n = 0;
    for (;;) {
        const int32_t id = hs_vocab_find(e->v, s.p, s.n);
        const bool unused = id >= 0 && e->v->type[id] == HS_TOKEN_UNUSED;
        if (unused && e->split && e->split[id]) {
            if (!grow(&e->todo, n, &e->cap_todo, sizeof *e->todo))
                return no_memory(e);
            const size_t k = e->split[id];
            e->todo[n++] = (hs_str){s.p + k, s.n - k};
            s.n = k;
            continue;
        }
        const hs_status st = id >= 0 && !unused ? push_id(e, id) : push_bytes(e, s);
        if (st != HS_OK || !n)
            return st;
        s = e->todo[--n];
    }
}

/* ---- merging -------------------------------------------------------------------------- */

static bool before(pair a, pair b)
{
    return a.score > b.score || (a.score == b.score && a.left < b.left);
}

static hs_status heap_push(encoder *e, pair x)
{
    if (!grow(&e->heap, e->n_heap, &e->cap_heap, sizeof *e->heap))
        return no_memory(e);
    size_t i = e->n_heap++;
    for (; i && before(x, e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = x;
    return HS_OK;
}

static pair heap_pop(encoder *e)
{
    const pair top = e->heap[0], x = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < e->n_heap; i = c) {
        if (c + 1 < e->n_heap && before(e->heap[c + 1], e->heap[c]))
            c++;
        if (!before(e->heap[c], x))
            break;
        e->heap[i] = e->heap[c];
    }
    e->heap[i] = x;
    return top;
}

static hs_status try_pair(encoder *e, const char *part, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return HS_OK;
    const symbol *l = &e->sym[left], *r = &e->sym[right];
    if (!hs_vocab_joins(e->v, part[r->at - 1], part[r->at]))
        return HS_OK;
    const size_t n = (size_t)l->n + r->n;
    const int32_t id = hs_vocab_find(e->v, part + l->at, n);
    if (id < 0)
        return HS_OK;
    if (e->v->type[id] == HS_TOKEN_UNUSED)
        e->split[id] = l->n; /* there when any piece is unused */
    return heap_push(e, (pair){e->v->score[id], left, right, (uint32_t)n});
}

/* Merge the symbols of one part and write what is left of them. */
static hs_status merge_part(encoder *e, const char *part)
{
    hs_status s = HS_OK;
    e->n_heap = 0;
    for (size_t i = 1; s == HS_OK && i < e->n_sym; i++)
        s = try_pair(e, part, (int32_t)i - 1, (int32_t)i);
    while (s == HS_OK && e->n_heap) {
        const pair top = heap_pop(e);
        symbol *l = &e->sym[top.left], *r = &e->sym[top.right];
        if (!l->n || !r->n || l->n + r->n != top.n)
            continue;
        l->n += r->n;
        r->n = 0;
        l->next = r->next;
        if (l->next >= 0)
            e->sym[l->next].prev = top.left;
        s = try_pair(e, part, l->prev, top.left);
        if (s == HS_OK)
            s = try_pair(e, part, top.left, l->next);
    }
    for (int32_t i = e->n_sym ? 0 : -1; s == HS_OK && i >= 0; i = e->sym[i].next)
        s = push_piece(e, (hs_str){part + e->sym[i].at, e->sym[i].n});
    return s;
}

/* Text in which every space is U+2581 already. */
static hs_status encode_marked(encoder *e, const char *p, size_t n)
{
    size_t start = 0, at = 0;
    hs_status s = HS_OK;
    e->n_sym = 0;
    while (s == HS_OK && at < n) {
        int32_t user = -1;
        const size_t skip = hs_matcher_longest(&e->v->user, p + at, n - at, &user);
        if (e->n_sym && (skip || !hs_vocab_joins(e->v, p[at - 1], p[at]))) {
            s = merge_part(e, p + start);
            e->n_sym = 0;
            if (s != HS_OK)
                break;
        }
        if (skip) {
            s = push_id(e, user);
            at += skip;
            continue;
        }
        if (!e->n_sym)
            start = at;
        if (at - start > INT32_MAX - 4)
            return hs_fail(e->err, HS_ERR_UNSUPPORTED, "the text is too long to tokenize");
        bool cut;
        const size_t k = utf8_next(p + at, n - at, &cut);
        if (!grow(&e->sym, e->n_sym, &e->cap_sym, sizeof *e->sym))
            return no_memory(e);
        const int32_t i = (int32_t)e->n_sym++;
        e->sym[i] = (symbol){i - 1, -1, (uint32_t)(at - start), (uint32_t)k};
        if (i)
            e->sym[i - 1].next = i;
        at += k;
    }
    return s == HS_OK && e->n_sym ? merge_part(e, p + start) : s;
}

static hs_status encode_fragment(encoder *e, const char *p, size_t n, bool prefix)
{
    size_t spaces = prefix, k = 0;
    for (size_t i = 0; i < n; i++)
        spaces += p[i] == ' ';
    char *t = malloc(n + 3 * spaces + 1);
    if (!t)
        return no_memory(e);
    if (prefix) {
        memcpy(t, hs_space_mark, sizeof hs_space_mark);
        k = 3;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] == ' ') {
            memcpy(t + k, hs_space_mark, sizeof hs_space_mark);
            k += 3;
        } else {
            t[k++] = p[i];
        }
    }
    const hs_status s = encode_marked(e, t, k);
    free(t);
    return s;
}

/* Special tokens cut the text; only text that starts it gets the leading space. */
static hs_status encode_special(encoder *e, const char *p, size_t n)
{
    hs_status s = HS_OK;
    size_t from = 0;
    for (size_t at = 0; s == HS_OK && at < n;) {
        int32_t id = -1;
        const size_t k = hs_matcher_longest(&e->v->special, p + at, n - at, &id);
        if (!k) {
            at++;
            continue;
        }
        if (at > from)
            s = encode_fragment(e, p + from, at - from, !from && e->v->add_space);
        if (s == HS_OK)
            s = push_id(e, id);
        at += k;
        from = at;
    }
    if (s == HS_OK && from < n)
        s = encode_fragment(e, p + from, n - from, !from && e->v->add_space);
    return s;
}

hs_status hs_vocab_encode(const hs_vocab *v, const char *text, size_t n, bool special,
                          int32_t **ids, size_t *n_ids, hs_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    if (!n)
        return HS_OK;
    if (n > INT32_MAX)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "the text has %zu bytes, at most %d can be tokenized", n, INT32_MAX);
    encoder e = {.v = v, .err = err};
    hs_status s = HS_OK;
    if (v->has_unused && !(e.split = calloc(v->n, sizeof *e.split)))
        s = no_memory(&e);
    if (s == HS_OK)
        s = special ? encode_special(&e, text, n) : encode_fragment(&e, text, n, v->add_space);
    free(e.todo);
    free(e.split);
    free(e.heap);
    free(e.sym);
    if (s != HS_OK) {
        free(e.ids);
        return s;
    }
    *ids = e.ids;
    *n_ids = e.n_ids;
    return HS_OK;
}
