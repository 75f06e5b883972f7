/* hotset-tokenize: text to token ids and back, with nothing of a model but its vocabulary. */
#include "formats/gguf.h"
#include "runtime/cli.h"
#include "runtime/hotset.h"
#include "runtime/token.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    hs_cli cli;
    const char *model, *prompt, *file, *decode;
    bool ids_only;
} options;

typedef struct tokens {
    int32_t *id;
    size_t n;
} tokens;

/* ---- input ------------------------------------------------------------------------------ */

static hs_status encode(const options *o, const hs_vocab *v, tokens *out, hs_err *err)
{
    char *text = NULL;
    size_t n = 0;
    hs_status s = HS_OK;
    if (o->file)
        s = hs_read_text(o->file, &text, &n, err);
    else
        n = strlen(o->prompt);
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (s == HS_OK)
        s = hs_vocab_encode(v, o->file ? text : o->prompt, n, o->cli.special, &ids, &n_ids, err);
    free(text);
    if (s != HS_OK)
        return s;
    const bool bos = !o->cli.no_bos && hs_vocab_add_bos(v) && hs_vocab_bos(v) >= 0;
    out->id = calloc(n_ids + 1, sizeof *out->id);
    if (!out->id) {
        free(ids);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for %zu tokens", n_ids);
    }
    if (bos)
        out->id[out->n++] = hs_vocab_bos(v);
    if (n_ids)
        memcpy(out->id + out->n, ids, n_ids * sizeof *ids);
    out->n += n_ids;
    free(ids);
    return HS_OK;
}

/* "1,2,3", also with white space, as --ids prints them. */
static hs_status parse_ids(const char *s, const hs_vocab *v, tokens *out, hs_err *err)
{
    out->id = calloc(strlen(s) / 2 + 1, sizeof *out->id);
    if (!out->id)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory for the list of ids");
    static const char space[] = " \t\r\n";
    for (s += strspn(s, space); *s;) {
        const size_t digits = strspn(s, "0123456789");
        const unsigned long long x = digits && digits < 11 ? strtoull(s, NULL, 10) : ULLONG_MAX;
        if (!digits)
            return hs_fail(err, HS_ERR_USAGE, "--decode: expected a token id at '%.20s'", s);
        if (x >= hs_vocab_size(v))
            return hs_fail(err, HS_ERR_USAGE,
                           "--decode: token id %.*s: the vocabulary has %u tokens",
                           (int)(digits < 20 ? digits : 20), s, hs_vocab_size(v));
        out->id[out->n++] = (int32_t)x;
        s += digits;
        const size_t gap = strspn(s, space);
        s += gap;
        if (*s == ',') {
            s++;
            s += strspn(s, space);
            if (!*s)
                return hs_fail(err, HS_ERR_USAGE, "--decode: the list ends with a comma");
        } else if (*s && !gap) {
            return hs_fail(err, HS_ERR_USAGE, "--decode: expected a comma at '%.20s'", s);
        }
    }
    return HS_OK;
}

/* ---- output ----------------------------------------------------------------------------- */

/* A piece on one line: control bytes, backslashes and what is no UTF-8 as \xHH. */
static void print_piece(hs_str p)
{
    for (size_t i = 0; i < p.n;) {
        const unsigned char c = (unsigned char)p.p[i];
        const size_t k = hs_utf8_char(p.p + i, p.n - i);
        if (!k || c < 0x20 || c == 0x7f || c == '\\') {
            printf("\\x%02X", c);
            i++;
        } else {
            fwrite(p.p + i, 1, k, stdout);
            i += k;
        }
    }
}

static hs_status print_json(const tokens *t, hs_err *err)
{
    json_t *root = json_object(), *ids = json_array();
    bool ok = root && ids;
    for (size_t i = 0; ok && i < t->n; i++)
        ok = !json_array_append_new(ids, json_integer(t->id[i]));
    ok = ok && !json_object_set(root, "ids", ids) && !json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(ids);
    json_decref(root);
    return ok ? HS_OK : hs_fail(err, HS_ERR_NOMEM, "out of memory for the JSON output");
}

static hs_status print_tokens(const options *o, const hs_vocab *v, const tokens *t, hs_err *err)
{
    if (o->cli.json)
        return print_json(t, err);
    for (size_t i = 0; i < t->n; i++) {
        if (o->ids_only) {
            printf("%s%" PRId32, i ? "," : "", t->id[i]);
        } else {
            printf("%" PRId32 " '", t->id[i]);
            print_piece(hs_vocab_piece(v, t->id[i]));
            printf("'\n");
        }
    }
    if (o->ids_only)
        putchar('\n');
    return HS_OK;
}

static hs_status print_text(const options *o, const hs_vocab *v, const tokens *t, hs_err *err)
{
    char *text;
    size_t n;
    const hs_status s = hs_vocab_decode(v, t->id, t->n, &text, &n, err);
    if (s != HS_OK)
        return s;
    if (o->cli.json) {
        json_t *root = json_pack("{s:o?}", "text", json_stringn(text, n));
        const bool utf8 = root && json_is_string(json_object_get(root, "text"));
        if (utf8) {
            json_dumpf(root, stdout, JSON_COMPACT);
            putchar('\n');
        }
        json_decref(root);
        free(text);
        return utf8 ? HS_OK
                    : hs_fail(err, HS_ERR_FAILED,
                              "the text is not UTF-8 and cannot be JSON: use --decode alone");
    }
    fwrite(text, 1, n, stdout);
    free(text);
    return HS_OK;
}

/* ---- main ------------------------------------------------------------------------------- */

static hs_status run(const options *o, hs_err *err)
{
    hs_gguf *g;
    hs_vocab *v = NULL;
    tokens t = {0};
    hs_status s = hs_gguf_open(&g, o->model, err);
    if (s != HS_OK)
        return s;
    s = hs_vocab_new(&v, g, err);
    if (s != HS_OK)
        s = hs_ctx(err, s, "%s: ", o->model);
    if (s == HS_OK)
        s = o->decode ? parse_ids(o->decode, v, &t, err) : encode(o, v, &t, err);
    if (s == HS_OK)
        s = o->decode ? print_text(o, v, &t, err) : print_tokens(o, v, &t, err);
    if (s == HS_OK && !o->decode && !o->cli.json)
        hs_cli_debug(&o->cli, "%zu tokens, vocabulary of %u", t.n, hs_vocab_size(v));
    free(t.id);
    hs_vocab_free(v);
    hs_gguf_free(g);
    return s;
}

int main(int argc, char **argv)
{
    options o = {0};
    const hs_opt opts[] = {
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE",
         "GGUF or PWRI file with a vocabulary; weights are not needed"},
        {HS_OPT_STRING, "prompt", 'p', &o.prompt, "TEXT", "text to tokenize"},
        {HS_OPT_STRING, "file", 'f', &o.file, "FILE",
         "tokenize this file's bytes, unchanged; - is standard input"},
        {HS_OPT_STRING, "decode", 0, &o.decode, "IDS",
         "print the bytes that these comma-separated ids stand for, exactly"},
        {HS_OPT_FLAG, "ids", 0, &o.ids_only, NULL,
         "one line of comma-separated ids (default: a line \"id 'piece'\" per token)"},
        {.type = HS_OPT_END},
    };
    o.cli = (hs_cli){
        .program = "hotset-tokenize",
        .synopsis = "-m FILE [-p TEXT | -f FILE | --decode IDS] [--ids] [--no-bos] [--special] "
                    "[--json]",
        .summary = "Turns text into token ids as the model's tokenizer does, and ids into text. "
                   "BOS is put first when the model asks for it.",
        .example = "-m model.gguf -p 'In the beginning' --ids",
        .opts = opts,
        .has_text = true,
    };
    const int r = hs_cli_parse(&o.cli, argc, argv);
    if (r >= 0)
        return r;
    int status;
    hs_err err;
    if (!o.model)
        status = hs_cli_usage(&o.cli, "-m FILE is needed");
    else if (!o.prompt + !o.file + !o.decode != 2)
        status = hs_cli_usage(&o.cli, "give one of -p TEXT, -f FILE and --decode IDS");
    else
        status = run(&o, &err) == HS_OK ? 0 : hs_cli_fail(&o.cli, &err);
    hs_cli_fini(&o.cli);
    return hs_cli_finish(&o.cli, status);
}
