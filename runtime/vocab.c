/* Loads a vocabulary from tokenizer.ggml.* and turns ids back into bytes.  Everything is checked
 * here; the one surprise is that user-defined pieces are kept out of the table that merging
 * looks into: they are matched in the text first and never built. */
#include "runtime/vocab.h"

#include "formats/cursor.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."

/* ---- look-up -------------------------------------------------------------------------- */

static uint64_t hash_piece(const char *p, size_t n)
{
    uint64_t h = n * UINT64_C(0x9e3779b97f4a7c15);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    uint64_t w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 29;
}

/* The slot that holds the piece, or the empty one where it belongs. */
static hs_vocab_slot *find_slot(const hs_vocab *v, const char *p, size_t n, uint32_t *tag)
{
    const uint64_t h = hash_piece(p, n);
    *tag = (uint32_t)(h >> 32);
    for (size_t i = h & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        hs_vocab_slot *s = &v->slot[i];
        if (s->id < 0 ||
            (s->tag == *tag && v->piece[s->id].n == n && !memcmp(v->piece[s->id].p, p, n)))
            return s;
    }
}

int32_t hs_vocab_find(const hs_vocab *v, const char *p, size_t n)
{
    uint32_t tag;
    return n && n <= v->max_piece ? find_slot(v, p, n, &tag)->id : -1;
}

/* Ids are inserted in ascending order, so the first of duplicates stays. */
static void insert(hs_vocab *v, int32_t id)
{
    const hs_str s = v->piece[id];
    uint32_t tag;
    hs_vocab_slot *slot = s.n ? find_slot(v, s.p, s.n, &tag) : NULL;
    if (!slot || slot->id >= 0)
        return;
    *slot = (hs_vocab_slot){tag, id};
    if (s.n > v->max_piece)
        v->max_piece = s.n;
    for (size_t k = 1; k < s.n; k++) {
        const unsigned bit = (unsigned)(uint8_t)s.p[k - 1] << 8 | (uint8_t)s.p[k];
        v->pair[bit >> 6] |= UINT64_C(1) << (bit & 63);
    }
}

size_t hs_matcher_longest(const hs_matcher *m, const char *p, size_t n, int32_t *id)
{
    if (!m->n || !n)
        return 0;
    size_t best = 0;
    uint32_t lo = m->first[(uint8_t)p[0]], hi = m->first[(uint8_t)p[0] + 1];
    for (size_t d = 1; lo < hi; d++) {
        /* Pieces [lo, hi) start with p[0..d); the shortest come first. */
        if (m->piece[lo].n == d) {
            best = d;
            *id = m->id[lo];
            while (lo < hi && m->piece[lo].n == d)
                lo++;
        }
        if (d == n)
            break;
        const uint8_t want = (uint8_t)p[d];
        uint32_t end = hi;
        for (uint32_t a = lo; a < end;) { /* first piece with a byte >= want there */
            const uint32_t mid = a + (end - a) / 2;
            if ((uint8_t)m->piece[mid].p[d] < want)
                a = lo = mid + 1;
            else
                end = mid;
        }
        end = hi;
        for (uint32_t a = lo; a < end;) { /* first one with a byte > want */
            const uint32_t mid = a + (end - a) / 2;
            if ((uint8_t)m->piece[mid].p[d] <= want)
                a = mid + 1;
            else
                end = hi = mid;
        }
    }
    return best;
}

typedef struct match_item {
    hs_str piece;
    int32_t id;
} match_item;

static int by_bytes(const void *a, const void *b)
{
    const match_item *x = a, *y = b;
    const size_t n = x->piece.n < y->piece.n ? x->piece.n : y->piece.n;
    const int c = memcmp(x->piece.p, y->piece.p, n);
    if (c)
        return c;
    if (x->piece.n != y->piece.n)
        return x->piece.n < y->piece.n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool matcher_build(hs_matcher *m, match_item *item, size_t n)
{
    if (!n)
        return true;
    qsort(item, n, sizeof *item, by_bytes);
    m->piece = calloc(n, sizeof *m->piece);
    m->id = calloc(n, sizeof *m->id);
    if (!m->piece || !m->id)
        return false;
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        m->piece[i] = item[i].piece;
        m->id[i] = item[i].id;
        m->first[(uint8_t)item[i].piece.p[0] + 1]++;
    }
    for (int b = 0; b < 256; b++)
        m->first[b + 1] += m->first[b];
    return true;
}

/* ---- loading -------------------------------------------------------------------------- */

static hs_status no_memory(hs_err *err)
{
    return hs_fail(err, HS_ERR_NOMEM, "out of memory for the vocabulary");
}

static hs_status check_length(const hs_vocab *v, const hs_kv *kv, const char *key, hs_err *err)
{
    if (kv && kv->count != v->n)
        return hs_fail(err, HS_ERR_FORMAT, "%s has %llu entries, " KEY "tokens has %u", key,
                       (unsigned long long)kv->count, v->n);
    return HS_OK;
}

static bool is_byte_name(hs_str s, uint8_t *byte)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>')
        return false;
    unsigned x = 0;
    for (int i = 3; i < 5; i++) {
        const char c = s.p[i];
        x = x << 4;
        if (c >= '0' && c <= '9')
            x |= (unsigned)(c - '0');
        else if (c >= 'A' && c <= 'F')
            x |= (unsigned)(c - 'A' + 10);
        else if (c >= 'a' && c <= 'f')
            x |= (unsigned)(c - 'a' + 10);
        else
            return false;
    }
    *byte = (uint8_t)x;
    return true;
}

static hs_status check_model(const hs_gguf *g, hs_err *err)
{
    hs_str model = {0};
    const hs_status s = hs_gguf_str(g, KEY "model", &model, err);
    if (s != HS_OK)
        return s;
    if (!model.p)
        return hs_fail(err, HS_ERR_FORMAT, KEY "model is missing: the file has no tokenizer");
    if (!hs_str_eq(model, "llama"))
        return hs_fail(err, HS_ERR_UNSUPPORTED, "tokenizer '%.*s' is not supported yet",
                       (int)(model.n < 40 ? model.n : 40), model.p);
    return HS_OK;
}

/* Pieces and scores. */
static hs_status load_pieces(hs_vocab *v, const hs_gguf *g, hs_err *err)
{
    const hs_kv *tokens = NULL, *scores = NULL;
    hs_status s = hs_gguf_array(g, KEY "tokens", HS_KV_STRING, &tokens, err);
    if (s != HS_OK)
        return s;
    if (!tokens)
        return hs_fail(err, HS_ERR_FORMAT, KEY "tokens is missing");
    if (!tokens->count || tokens->count > INT32_MAX)
        return hs_fail(err, HS_ERR_FORMAT, KEY "tokens has %llu entries",
                       (unsigned long long)tokens->count);
    v->n = (uint32_t)tokens->count;
    s = hs_gguf_array(g, KEY "scores", HS_KV_F32, &scores, err);
    if (s == HS_OK)
        s = check_length(v, scores, KEY "scores", err);
    if (s != HS_OK)
        return s;
    v->piece = calloc(v->n, sizeof *v->piece);
    v->score = calloc(v->n, sizeof *v->score);
    v->type = calloc(v->n, 1);
    v->eog = calloc(v->n, 1);
    v->byte_of = calloc(v->n, 1);
    if (!v->piece || !v->score || !v->type || !v->eog || !v->byte_of)
        return no_memory(err);
    size_t pos = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        v->piece[i] = hs_kv_next_str(tokens, &pos);
        if (v->piece[i].n > INT32_MAX)
            return hs_fail(err, HS_ERR_FORMAT, KEY "tokens[%u] has %zu bytes", i, v->piece[i].n);
        v->score[i] = scores ? hs_get_f32(scores->raw + (size_t)i * 4) : 0;
        if (!isfinite(v->score[i]))
            return hs_fail(err, HS_ERR_FORMAT, KEY "scores[%u] is %g", i, (double)v->score[i]);
    }
    return HS_OK;
}

static hs_status special_id(const hs_vocab *v, const hs_gguf *g, const char *key, int32_t *id,
                            hs_err *err)
{
    if (!hs_gguf_find(g, key))
        return HS_OK;
    uint32_t x = 0;
    const hs_status s = hs_gguf_u32(g, key, &x, err);
    if (s != HS_OK)
        return s;
    if (x >= v->n)
        return hs_fail(err, HS_ERR_FORMAT, "%s is %u, the vocabulary has %u tokens", key, x, v->n);
    *id = (int32_t)x;
    return HS_OK;
}

/* Ids that no key names but every SentencePiece model of this kind has. */
static int32_t by_convention(const hs_vocab *v, uint32_t id, const char *name)
{
    return id < v->n && hs_str_eq(v->piece[id], name) ? (int32_t)id : -1;
}

static hs_status load_special(hs_vocab *v, const hs_gguf *g, hs_err *err)
{
    int32_t other = -1, eot = -1;
    v->unk = by_convention(v, 0, "<unk>");
    v->bos = by_convention(v, 1, "<s>");
    v->eos = by_convention(v, 2, "</s>");
    v->add_bos = v->add_space = true;
    hs_status s = special_id(v, g, KEY "bos_token_id", &v->bos, err);
    if (s == HS_OK)
        s = special_id(v, g, KEY "eos_token_id", &v->eos, err);
    if (s == HS_OK)
        s = special_id(v, g, KEY "unknown_token_id", &v->unk, err);
    if (s == HS_OK)
        s = special_id(v, g, KEY "padding_token_id", &other, err);
    if (s == HS_OK)
        s = special_id(v, g, KEY "seperator_token_id", &other, err); /* sic */
    if (s == HS_OK)
        s = special_id(v, g, KEY "eot_token_id", &eot, err);
    if (eot >= 0)
        v->eog[eot] = 1;
    if (s == HS_OK)
        s = hs_gguf_bool(g, KEY "add_bos_token", &v->add_bos, err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, KEY "add_space_prefix", &v->add_space, err);
    return s;
}

/* A file without types: what the names and the special ids tell. */
static hs_token_type guess_type(const hs_vocab *v, int32_t id)
{
    uint8_t byte;
    if (id == v->unk)
        return HS_TOKEN_UNKNOWN;
    if (id == v->bos || id == v->eos)
        return HS_TOKEN_CONTROL;
    return is_byte_name(v->piece[id], &byte) ? HS_TOKEN_BYTE : HS_TOKEN_NORMAL;
}

static hs_status load_types(hs_vocab *v, const hs_gguf *g, hs_err *err)
{
    const hs_kv *types;
    hs_status s = hs_gguf_array(g, KEY "token_type", HS_KV_I32, &types, err);
    if (s == HS_OK)
        s = check_length(v, types, KEY "token_type", err);
    if (s != HS_OK)
        return s;
    for (uint32_t i = 0; i < v->n; i++) {
        const int64_t t = types ? hs_kv_int(types, i) : (int64_t)guess_type(v, (int32_t)i);
        if (t < HS_TOKEN_NORMAL || t > HS_TOKEN_BYTE)
            return hs_fail(err, HS_ERR_FORMAT, KEY "token_type[%u] is %lld, expected 1 to 6", i,
                           (long long)t);
        v->type[i] = (uint8_t)t;
        if (t == HS_TOKEN_UNUSED)
            v->has_unused = true;
        if (t == HS_TOKEN_UNKNOWN && v->unk < 0)
            v->unk = (int32_t)i;
        if (t != HS_TOKEN_BYTE)
            continue;
        if (!is_byte_name(v->piece[i], &v->byte_of[i]))
            return hs_fail(err, HS_ERR_FORMAT,
                           KEY "tokens[%u] is '%.*s' of type byte, expected <0x00> to <0xFF>", i,
                           (int)(v->piece[i].n < 40 ? v->piece[i].n : 40), v->piece[i].p);
        if (v->byte_id[v->byte_of[i]] < 0)
            v->byte_id[v->byte_of[i]] = (int32_t)i;
    }
    return HS_OK;
}

static void mark_eog(hs_vocab *v)
{
    static const char *const name[] = {"<|eot_id|>", "<|im_end|>", "<|endoftext|>", "</s>",
                                       "<end_of_turn>"};
    if (v->eos >= 0)
        v->eog[v->eos] = 1;
    for (uint32_t i = 0; i < v->n; i++)
        for (size_t k = 0; v->type[i] == HS_TOKEN_CONTROL && k < sizeof name / sizeof *name; k++)
            if (hs_str_eq(v->piece[i], name[k]))
                v->eog[i] = 1;
}

/* A piece with U+2581 for every space; the full length is returned whatever fits. */
static size_t put_marked(hs_str s, char *out, size_t cap)
{
    size_t k = 0;
    for (size_t i = 0; i < s.n; i++) {
        const bool space = s.p[i] == ' ';
        const char *p = space ? hs_space_mark : s.p + i;
        for (size_t j = 0; j < (space ? sizeof hs_space_mark : 1); j++, k++)
            if (k < cap)
                out[k] = p[j];
    }
    return k;
}

/* User-defined pieces as the text will show them: with U+2581 for a space. */
static bool build_matchers(hs_vocab *v)
{
    size_t n_user = 0, n_special = 0, bytes = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->type[i] == HS_TOKEN_USER_DEFINED && v->piece[i].n) {
            n_user++;
            bytes += put_marked(v->piece[i], NULL, 0);
        } else if ((v->type[i] == HS_TOKEN_CONTROL || v->type[i] == HS_TOKEN_UNKNOWN) &&
                   v->piece[i].n) {
            n_special++;
        }
    }
    match_item *item = calloc(n_user + n_special + 1, sizeof *item);
    v->user_bytes = malloc(bytes + 1);
    bool ok = item && v->user_bytes;
    size_t u = 0, s = n_user, at = 0;
    for (uint32_t i = 0; ok && i < v->n; i++) {
        if (v->type[i] == HS_TOKEN_USER_DEFINED && v->piece[i].n) {
            const size_t k = put_marked(v->piece[i], v->user_bytes + at, bytes - at);
            item[u++] = (match_item){{v->user_bytes + at, k}, (int32_t)i};
            at += k;
        } else if ((v->type[i] == HS_TOKEN_CONTROL || v->type[i] == HS_TOKEN_UNKNOWN) &&
                   v->piece[i].n) {
            item[s++] = (match_item){v->piece[i], (int32_t)i};
        }
    }
    ok = ok && matcher_build(&v->user, item, n_user) &&
         matcher_build(&v->special, item + n_user, n_special);
    free(item);
    return ok;
}

static bool build_table(hs_vocab *v)
{
    size_t cap = 16;
    while (cap < (size_t)v->n * 2)
        cap *= 2;
    v->slot = malloc(cap * sizeof *v->slot);
    if (!v->slot)
        return false;
    memset(v->slot, 0xff, cap * sizeof *v->slot);
    v->slot_mask = cap - 1;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->type[i] == HS_TOKEN_NORMAL || v->type[i] == HS_TOKEN_UNUSED)
            insert(v, (int32_t)i);
    return true;
}

hs_status hs_vocab_new(hs_vocab **out, const hs_gguf *g, hs_err *err)
{
    *out = NULL;
    hs_vocab *v = calloc(1, sizeof *v);
    if (!v)
        return no_memory(err);
    for (int i = 0; i < 256; i++)
        v->byte_id[i] = -1;
    hs_status s = check_model(g, err);
    if (s == HS_OK)
        s = load_pieces(v, g, err);
    if (s == HS_OK)
        s = load_special(v, g, err);
    if (s == HS_OK)
        s = load_types(v, g, err);
    if (s == HS_OK && (!build_table(v) || !build_matchers(v)))
        s = no_memory(err);
    if (s != HS_OK) {
        hs_vocab_free(v);
        return s;
    }
    mark_eog(v);
    *out = v;
    return HS_OK;
}

void hs_vocab_free(hs_vocab *v)
{
    if (!v)
        return;
    free(v->user_bytes);
    free(v->special.id);
    free(v->special.piece);
    free(v->user.id);
    free(v->user.piece);
    free(v->slot);
    free(v->byte_of);
    free(v->eog);
    free(v->type);
    free(v->score);
    free(v->piece);
    free(v);
}

/* ---- facts ---------------------------------------------------------------------------- */

static bool in_range(const hs_vocab *v, int32_t id) { return id >= 0 && (uint32_t)id < v->n; }

uint32_t hs_vocab_size(const hs_vocab *v) { return v->n; }

int32_t hs_vocab_bos(const hs_vocab *v) { return v->bos; }

int32_t hs_vocab_eos(const hs_vocab *v) { return v->eos; }

bool hs_vocab_add_bos(const hs_vocab *v) { return v->add_bos; }

bool hs_vocab_is_eog(const hs_vocab *v, int32_t id) { return in_range(v, id) && v->eog[id]; }

hs_token_type hs_vocab_type(const hs_vocab *v, int32_t id)
{
    return in_range(v, id) ? (hs_token_type)v->type[id] : HS_TOKEN_UNKNOWN;
}

hs_str hs_vocab_piece(const hs_vocab *v, int32_t id)
{
    return in_range(v, id) ? v->piece[id] : (hs_str){"", 0};
}

/* ---- bytes ---------------------------------------------------------------------------- */

/* A piece with a space for every U+2581. */
static size_t put_text(hs_str s, char *out, size_t cap)
{
    size_t k = 0;
    for (size_t i = 0; i < s.n; k++) {
        const bool mark = s.n - i >= 3 && !memcmp(s.p + i, hs_space_mark, 3);
        if (k < cap && mark)
            out[k] = ' ';
        else if (k < cap)
            out[k] = s.p[i];
        i += mark ? 3 : 1;
    }
    return k;
}

size_t hs_vocab_bytes(const hs_vocab *v, int32_t id, char *out, size_t cap)
{
    switch (hs_vocab_type(v, id)) {
    case HS_TOKEN_CONTROL: return 0;
    case HS_TOKEN_BYTE:
        if (cap)
            out[0] = (char)v->byte_of[id];
        return 1;
    case HS_TOKEN_UNKNOWN: /* as SentencePiece shows it: U+2047 between spaces */
        return in_range(v, id) ? put_text((hs_str){" \xe2\x81\x87 ", 5}, out, cap) : 0;
    case HS_TOKEN_NORMAL:
    case HS_TOKEN_USER_DEFINED:
    case HS_TOKEN_UNUSED: return put_text(v->piece[id], out, cap);
    }
    return 0;
}

hs_status hs_vocab_decode(const hs_vocab *v, const int32_t *ids, size_t n, char **text, size_t *len,
                          hs_err *err)
{
    *text = NULL;
    *len = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!in_range(v, ids[i]))
            return hs_fail(err, HS_ERR_USAGE, "token id %d: the vocabulary has %u tokens", ids[i],
                           v->n);
        uint64_t sum;
        if (!hs_add(bytes, hs_vocab_bytes(v, ids[i], NULL, 0), &sum) || sum > PTRDIFF_MAX - 1)
            return hs_fail(err, HS_ERR_NOMEM, "out of memory for the text");
        bytes = (size_t)sum;
    }
    char *t = calloc(bytes + 1, 1);
    if (!t)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for %zu bytes of text", bytes);
    size_t at = 0;
    bool start = v->add_space;
    for (size_t i = 0; i < n; i++) {
        const size_t k = hs_vocab_bytes(v, ids[i], t + at, bytes - at);
        /* The space that encoding put before the text; a byte token's is the text's own. */
        const bool strip = start && k && t[0] == ' ' && v->type[ids[i]] != HS_TOKEN_BYTE &&
                           v->type[ids[i]] != HS_TOKEN_UNKNOWN;
        if (strip)
            memmove(t, t + 1, k - 1);
        start = start && !k;
        at += k - strip;
    }
    t[at] = 0;
    *text = t;
    *len = at;
    return HS_OK;
}
