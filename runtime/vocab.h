#ifndef HS_RUNTIME_VOCAB_H
#define HS_RUNTIME_VOCAB_H

/* What vocab.c loads and token.c tokenizes with; everyone else sees token.h. */

#include "runtime/token.h"

/* SentencePiece writes a space as U+2581. */
static const char hs_space_mark[3] = {'\xe2', '\x96', '\x81'};

/* Pieces matched in the text before anything is merged, sorted by bytes. */
typedef struct hs_matcher {
    size_t n;
    hs_str *piece;       /* [n] */
    int32_t *id;         /* [n] */
    uint32_t first[257]; /* pieces starting with byte b: first[b]..first[b + 1) */
} hs_matcher;

typedef struct hs_vocab_slot {
    uint32_t tag; /* upper half of the hash */
    int32_t id;   /* -1: empty */
} hs_vocab_slot;

struct hs_vocab {
    uint32_t n;
    hs_str *piece;         /* [n], borrowed from the file */
    float *score;          /* [n], finite */
    uint8_t *type;         /* [n], an hs_token_type */
    uint8_t *eog;          /* [n], 0 or 1 */
    int32_t bos, eos, unk; /* -1: none */
    bool add_bos, add_space;
    int32_t byte_id[256]; /* -1: none */
    uint8_t *byte_of;     /* [n], of byte tokens */
    /* Pieces that merging may build (normal and unused ones). */
    hs_vocab_slot *slot; /* [slot_mask + 1] */
    size_t slot_mask;
    size_t max_piece; /* longest of them, bytes */
    bool has_unused;
    /* Bit x * 256 + y: byte y follows byte x inside such a piece.  Where it is clear no merge can
     * cross, so the text falls into independent parts. */
    uint64_t pair[1024];
    hs_matcher user;    /* user-defined pieces, spaces written as U+2581 */
    hs_matcher special; /* control and unknown pieces, as stored */
    char *user_bytes;   /* what `user` points into */
};

/* Id of a normal or unused piece, the lowest one of duplicates; -1: there is none. */
int32_t hs_vocab_find(const hs_vocab *v, const char *p, size_t n);
/* Length of the longest piece at the start of p[0..n), its id in *id; 0: none. */
size_t hs_matcher_longest(const hs_matcher *m, const char *p, size_t n, int32_t *id);

static inline bool hs_vocab_joins(const hs_vocab *v, char x, char y)
{
    const unsigned i = (unsigned)(uint8_t)x << 8 | (uint8_t)y;
    return v->pair[i >> 6] >> (i & 63) & 1;
}

#endif
