/* The vocabulary.  The one surprise: its size is the configuration's, that is the number of rows
 * of the embedding; the tokenizer's pieces are padded to it, and more pieces than rows is an
 * error, except for added tokens of a model that has no rows for them. */
#include "tools/convert/vocab.h"

#include "formats/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAD_CHARS = 24 };

static const float added_score = -1000.0f; /* what the field's converters give */

typedef struct added {
    int64_t id;
    const char *text;
    bool special;
    const char *file;
} added;

typedef struct added_list {
    added *v;
    size_t n;
} added_list;

void hs_conv_vocab_fini(hs_conv_vocab *v)
{
    free(v->piece);
    free(v->score);
    free(v->type);
    free(v->pads);
    hs_spm_free(v->spm);
    json_decref(v->added);
    json_decref(v->config);
    *v = (hs_conv_vocab){0};
}

/* NULL when the file is absent. */
static hs_status read_optional(json_t **out, const char *dir, const char *name, hs_err *err)
{
    *out = NULL;
    char *path = hs_path_join(dir, name);
    if (!path)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const hs_status s = access(path, F_OK) == 0 ? hs_json_read(out, path, err) : HS_OK;
    free(path);
    return s;
}

static hs_status open_model(hs_conv_vocab *v, const char *dir, const hs_cli *cli, hs_err *err)
{
    char *path = hs_path_join(dir, "tokenizer.model"), *other = hs_path_join(dir, "tokenizer.json");
    hs_status s = HS_OK;
    if (!path || !other)
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    else if (access(path, F_OK) != 0 && access(other, F_OK) == 0)
        s = hs_fail(
            err, HS_ERR_UNSUPPORTED,
            "%s: only a SentencePiece tokenizer.model is supported, and the folder has none",
            other);
    else
        s = hs_spm_open(&v->spm, path, err);
    if (s == HS_OK && v->spm->unigram)
        s = hs_fail(err, HS_ERR_UNSUPPORTED,
                    "%s: a unigram model; only SentencePiece BPE is supported", path);
    if (s == HS_OK && v->spm->rewrites)
        hs_cli_warn(cli,
                    "%s: normalizes text before cutting it, which we do not: some texts will "
                    "get other tokens",
                    path);
    free(path);
    free(other);
    return s;
}

/* ---- added tokens ---------------------------------------------------------------------- */

static hs_status add(added_list *l, int64_t id, const char *text, bool special, const char *file,
                     hs_err *err)
{
    if (id < 0 || !*text)
        return hs_fail(err, HS_ERR_FORMAT, "%s: added token \"%.60s\" has id %" PRId64, file, text,
                       id);
    l->v[l->n++] = (added){id, text, special, file};
    return HS_OK;
}

static int by_id(const void *a, const void *b)
{
    const added *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : strcmp(x->text, y->text);
}

/* One entry per id: both files usually list the same tokens. */
static hs_status unite(added_list *l, hs_err *err)
{
    qsort(l->v, l->n, sizeof *l->v, by_id);
    size_t k = 0;
    for (size_t i = 0; i < l->n; i++) {
        added *last = k ? &l->v[k - 1] : NULL;
        if (!last || last->id != l->v[i].id) {
            l->v[k++] = l->v[i];
            continue;
        }
        if (strcmp(last->text, l->v[i].text) != 0)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: token %" PRId64 " is \"%.60s\", and \"%.60s\" in %s", l->v[i].file,
                           last->id, l->v[i].text, last->text, last->file);
        last->special |= l->v[i].special;
    }
    l->n = k;
    return HS_OK;
}

/* added_tokens.json {text: id}, and added_tokens_decoder {"id": {content, special}} of
 * tokenizer_config.json. */
static hs_status list_added(added_list *l, const hs_conv_vocab *v, hs_err *err)
{
    json_t *decoder = json_object_get(v->config, "added_tokens_decoder");
    const char *key;
    json_t *value;
    l->v = calloc(json_object_size(v->added) + json_object_size(decoder) + 1, sizeof *l->v);
    if (!l->v)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    hs_status s = HS_OK;
    json_object_foreach(v->added, key, value)
    {
        if (s == HS_OK && !json_is_integer(value))
            s = hs_fail(err, HS_ERR_FORMAT, "added_tokens.json: \"%.60s\": expected an id", key);
        if (s == HS_OK)
            s = add(l, json_integer_value(value), key, false, "added_tokens.json", err);
    }
    json_object_foreach(decoder, key, value)
    {
        char *end;
        const long long id = strtoll(key, &end, 10);
        const char *text = json_string_value(json_object_get(value, "content"));
        if (s == HS_OK && (*end || end == key || !text))
            s = hs_fail(
                err, HS_ERR_FORMAT,
                "tokenizer_config.json: added_tokens_decoder: \"%.60s\": expected an id and "
                "an object with content",
                key);
        if (s == HS_OK)
            s = add(l, id, text, json_is_true(json_object_get(value, "special")),
                    "tokenizer_config.json", err);
    }
    return s == HS_OK ? unite(l, err) : s;
}

static void put_added(hs_conv_vocab *v, const added *a)
{
    const hs_str text = {a->text, strlen(a->text)};
    const uint32_t id = (uint32_t)a->id;
    /* Already a piece of the tokenizer: being listed again changes nothing but "special". */
    if (id < v->spm->n && hs_str_eq(v->piece[id], a->text)) {
        if (a->special && v->type[id] == HS_TOKEN_NORMAL)
            v->type[id] = HS_TOKEN_CONTROL;
        return;
    }
    v->piece[id] = text;
    v->score[id] = added_score;
    v->type[id] = a->special ? HS_TOKEN_CONTROL : HS_TOKEN_USER_DEFINED;
}

/* ---- putting it together --------------------------------------------------------------- */

/* The tokenizer's pieces, then padding; the added tokens overwrite some of it. */
static hs_status fill(hs_conv_vocab *v, hs_err *err)
{
    const uint32_t n = v->n;
    const size_t base = v->spm->n;
    v->piece = calloc(n, sizeof *v->piece);
    v->score = calloc(n, sizeof *v->score);
    v->type = calloc(n, sizeof *v->type);
    v->pads = malloc((n - base + 1) * PAD_CHARS);
    if (!v->piece || !v->score || !v->type || !v->pads)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    memcpy(v->piece, v->spm->piece, base * sizeof *v->piece);
    memcpy(v->score, v->spm->score, base * sizeof *v->score);
    memcpy(v->type, v->spm->type, base * sizeof *v->type);
    for (size_t i = base; i < n; i++) {
        char *name = v->pads + (i - base) * PAD_CHARS;
        const int k = snprintf(name, PAD_CHARS, "[PAD%zu]", i);
        v->piece[i] = (hs_str){name, (size_t)k};
        v->score[i] = added_score;
        v->type[i] = HS_TOKEN_UNUSED;
    }
    return HS_OK;
}

static hs_status merge(hs_conv_vocab *v, const char *dir, const added_list *l, const hs_cli *cli,
                       hs_err *err)
{
    uint64_t size = v->spm->n;
    for (size_t i = 0; i < l->n; i++)
        if ((uint64_t)l->v[i].id >= size)
            size = (uint64_t)l->v[i].id + 1;
    const bool drop = v->spm->n == v->n && size > v->n;
    if (!drop && size > v->n)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: the tokenizer has %" PRIu64 " tokens, config.json's vocab_size is %u",
                       dir, size, v->n);
    if (drop)
        hs_cli_warn(cli,
                    "%s: added tokens from id %u on are left out: the model has no rows for "
                    "them",
                    dir, v->n);
    const hs_status s = fill(v, err);
    if (s != HS_OK)
        return s;
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].id < v->n)
            put_added(v, &l->v[i]);
    uint32_t pads = 0;
    for (uint32_t i = 0; i < v->n; i++)
        pads += i >= v->spm->n && v->type[i] == HS_TOKEN_UNUSED;
    if (pads)
        hs_cli_note(cli, "%u of %u tokens are padding: the tokenizer has fewer", pads, v->n);
    return HS_OK;
}

static int64_t id_of(const hs_conv_vocab *v, const char *text)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (hs_str_eq(v->piece[i], text))
            return i;
    return -1;
}

/* tokenizer_config.json's tokens by text first, then config.json's ids. */
static void find_special(hs_conv_vocab *v, const hs_conv_config *c, const hs_cli *cli)
{
    for (int i = 0; i < HS_N_SPECIAL; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_token", hs_special_names[i]);
        const json_t *t = json_object_get(v->config, key);
        const char *text = json_string_value(json_is_object(t) ? json_object_get(t, "content") : t);
        v->special[i] = text ? id_of(v, text) : -1;
        if (text && v->special[i] < 0)
            hs_cli_warn(cli, "tokenizer_config.json: %s \"%.60s\" is not in the vocabulary", key,
                        text);
        if (v->special[i] < 0)
            v->special[i] = c->special[i];
        if (v->special[i] >= v->n) {
            hs_cli_warn(cli, "config.json: %s_id %" PRId64 " is outside the vocabulary of %u", key,
                        v->special[i], v->n);
            v->special[i] = -1;
        }
    }
}

static hs_status get_flag(const hs_conv_vocab *v, const char *key, int *out, hs_err *err)
{
    const json_t *t = json_object_get(v->config, key);
    *out = -1;
    if (!t || json_is_null(t))
        return HS_OK;
    if (!json_is_boolean(t))
        return hs_fail(err, HS_ERR_FORMAT, "tokenizer_config.json: %s: expected true or false",
                       key);
    *out = json_is_true(t);
    return HS_OK;
}

hs_status hs_conv_vocab_read(hs_conv_vocab *v, const char *dir, const hs_conv_config *c,
                             const hs_cli *cli, hs_err *err)
{
    *v = (hs_conv_vocab){.n = c->n_vocab};
    added_list l = {0};
    hs_status s = open_model(v, dir, cli, err);
    if (s == HS_OK)
        s = read_optional(&v->added, dir, "added_tokens.json", err);
    if (s == HS_OK)
        s = read_optional(&v->config, dir, "tokenizer_config.json", err);
    if (s == HS_OK)
        s = list_added(&l, v, err);
    if (s == HS_OK)
        s = merge(v, dir, &l, cli, err);
    free(l.v);
    if (s == HS_OK)
        find_special(v, c, cli);
    if (s == HS_OK)
        s = get_flag(v, "add_bos_token", &v->add_bos, err);
    if (s == HS_OK)
        s = get_flag(v, "add_eos_token", &v->add_eos, err);
    if (s != HS_OK)
        hs_conv_vocab_fini(v);
    return s;
}
