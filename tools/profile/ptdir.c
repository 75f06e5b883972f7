/* activation_<layer>.pt folders.  The surprise to avoid: a folder listed by name puts layer 10
 * before layer 2, so names are only ever parsed for their number and built from it. */
#include "tools/profile/ptdir.h"

#include "formats/checkpoint.h"
#include "formats/file.h"
#include "formats/torch_zip.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A tensor of one stored element can claim any length with stride 0, so a length needs a bound
 * of its own: 64 times the widest FFN known. */
enum { MAX_FF = 1 << 22, MAX_LAYERS = 1 << 16 };

static hs_status no_memory(hs_err *err) { return hs_fail(err, HS_ERR_NOMEM, "out of memory"); }

/* The number of "activation_<number>.pt", -1 for every other name. */
static int64_t layer_number(const char *name)
{
    static const char before[] = "activation_";
    if (strncmp(name, before, sizeof before - 1) != 0)
        return -1;
    const char *digits = name + sizeof before - 1, *p = digits;
    int64_t v = 0;
    for (; *p >= '0' && *p <= '9' && v <= INT32_MAX; p++)
        v = v * 10 + (*p - '0');
    if (p == digits || (*digits == '0' && p != digits + 1) || strcmp(p, ".pt") != 0)
        return -1;
    return v;
}

static void file_name(char out[64], uint32_t layer)
{
    snprintf(out, 64, "activation_%" PRIu32 ".pt", layer);
}

static char *file_path(const char *dir, uint32_t layer)
{
    char name[64];
    file_name(name, layer);
    return hs_path_join(dir, name);
}

/* Number of layer files and the highest number among them (-1: none). */
static hs_status list(const char *dir, size_t *n, int64_t *highest, hs_err *err)
{
    *n = 0;
    *highest = -1;
    DIR *d = opendir(dir);
    if (!d)
        return hs_fail(err, HS_ERR_INPUT, "%s: cannot open folder: %s", dir, strerror(errno));
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        const int64_t l = layer_number(e->d_name);
        *n += l >= 0;
        if (l > *highest)
            *highest = l;
    }
    closedir(d);
    return HS_OK;
}

/* ---- import --------------------------------------------------------------------------- */

static hs_status check_list(const char *dir, const hs_pt_expect *x, uint32_t *n_layer, hs_err *err)
{
    size_t n;
    int64_t highest;
    const hs_status s = list(dir, &n, &highest, err);
    if (s != HS_OK)
        return s;
    if (!n)
        return hs_fail(err, HS_ERR_INPUT, "%s: no activation_<layer>.pt in this folder", dir);
    if (highest >= MAX_LAYERS)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: activation_%" PRId64 ".pt: expected layers below %d", dir, highest,
                       MAX_LAYERS);
    const uint32_t want = x->n_layer ? x->n_layer : (uint32_t)highest + 1;
    if (highest >= want)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: activation_%" PRId64 ".pt: the model has only %" PRIu32 " layers", dir,
                       highest, want);
    for (uint32_t l = 0; l < want; l++) {
        char *path = file_path(dir, l);
        if (!path)
            return no_memory(err);
        struct stat st;
        const int r = stat(path, &st), e = errno;
        free(path);
        if (r != 0 && e == ENOENT)
            return hs_fail(err, HS_ERR_INPUT,
                           "%s: activation_%" PRIu32 ".pt: layer %" PRIu32
                           " is missing, expected layers 0 to %" PRIu32,
                           dir, l, l, want - 1);
    }
    *n_layer = want;
    return HS_OK;
}

static bool is_float(hs_elem e) { return e <= HS_ELEM_BF16; }

static hs_status read_value(const hs_ckpt_tensor *t, uint64_t i, int64_t *out, hs_err *err)
{
    if (!is_float(t->elem)) {
        const hs_status s = hs_ckpt_int(t, i, out, err);
        if (s == HS_OK && *out < 0)
            return hs_fail(err, HS_ERR_FORMAT, "neuron %" PRIu64 ": count %" PRId64 " is negative",
                           i, *out);
        return s;
    }
    double v;
    const hs_status s = hs_ckpt_value(t, i, &v, err);
    if (s != HS_OK)
        return s;
    if (isnan(v))
        return hs_fail(err, HS_ERR_FORMAT, "neuron %" PRIu64 ": count is not a number (NaN)", i);
    if (v < 0)
        return hs_fail(err, HS_ERR_FORMAT, "neuron %" PRIu64 ": count %g is negative", i, v);
    /* 2^63, the first double that does not fit; infinity is above it too. */
    if (v >= 0x1p63)
        return hs_fail(err, HS_ERR_FORMAT, "neuron %" PRIu64 ": count %g is too large", i, v);
    if (v != floor(v))
        return hs_fail(err, HS_ERR_FORMAT, "neuron %" PRIu64 ": count %.9g is not a whole number",
                       i, v);
    *out = (int64_t)v;
    return HS_OK;
}

static hs_status check_tensor(const hs_checkpoint *c, hs_err *err)
{
    if (hs_checkpoint_count(c) != 1)
        return hs_fail(err, HS_ERR_FORMAT, "expected one tensor, got %zu", hs_checkpoint_count(c));
    const hs_ckpt_tensor *t = hs_checkpoint_at(c, 0);
    if (t->n_dims != 1)
        return hs_fail(err, HS_ERR_FORMAT, "expected 1 dimension, got %" PRIu32, t->n_dims);
    if (!t->shape[0] || t->shape[0] > MAX_FF)
        return hs_fail(err, HS_ERR_FORMAT, "expected 1 to %d neurons, got %" PRIu64, MAX_FF,
                       t->shape[0]);
    if (t->elem == HS_ELEM_BOOL || t->elem == HS_ELEM_I8 || t->elem == HS_ELEM_OTHER)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "expected counts as int64, int32, int16, uint8 or floating point, got %s",
                       t->elem_name);
    return HS_OK;
}

static hs_status read_layer(const hs_checkpoint *c, const hs_pt_expect *x, int64_t **count,
                            uint32_t *n_ff, hs_err *err)
{
    hs_status s = check_tensor(c, err);
    if (s != HS_OK)
        return s;
    const hs_ckpt_tensor *t = hs_checkpoint_at(c, 0);
    const uint64_t n = t->shape[0];
    if (x->n_ff && n != x->n_ff)
        return hs_fail(err, HS_ERR_FORMAT, "expected %" PRIu32 " neurons, got %" PRIu64, x->n_ff,
                       n);
    *count = malloc(n * sizeof **count);
    if (!*count)
        return no_memory(err);
    *n_ff = (uint32_t)n;
    for (uint64_t i = 0; s == HS_OK && i < n; i++)
        s = read_value(t, i, &(*count)[i], err);
    return s;
}

/* All layers of a model are equally wide, so the first one tells what the others must be. */
static hs_status read_layers(const char *dir, const hs_pt_expect *expect, uint32_t n_layer,
                             int64_t **count, uint32_t *n_ff, hs_err *err)
{
    hs_pt_expect x = *expect;
    for (uint32_t l = 0; l < n_layer; l++) {
        char *path = file_path(dir, l);
        hs_checkpoint *c = NULL;
        hs_status s = path ? hs_checkpoint_open_file(&c, path, err) : no_memory(err);
        if (s == HS_OK) {
            s = read_layer(c, &x, &count[l], &n_ff[l], err);
            if (s != HS_OK)
                (void)hs_ctx(err, s, "%s: layer %" PRIu32 ": ", path, l);
        }
        hs_checkpoint_free(c);
        free(path);
        if (s != HS_OK)
            return s;
        x.n_ff = n_ff[l];
    }
    return HS_OK;
}

static hs_status set_tokens(hs_activation *a, const char *dir, uint64_t positions, hs_err *err)
{
    int64_t most = -1;
    uint32_t at_layer = 0, at = 0;
    for (uint32_t l = 0; l < a->n_layer; l++)
        for (uint32_t i = 0; i < a->n_ff[l]; i++)
            if (a->count[l][i] > most) {
                most = a->count[l][i];
                at_layer = l;
                at = i;
            }
    if (!positions && most == 0)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: every count is 0; say with --positions how many were evaluated", dir);
    if (positions && positions < (uint64_t)most)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: activation_%" PRIu32 ".pt: layer %" PRIu32 ": neuron %" PRIu32
                       ": count %" PRId64 " exceeds --positions %" PRIu64,
                       dir, at_layer, at_layer, at, most, positions);
    a->tokens = positions ? positions : (uint64_t)most;
    return HS_OK;
}

hs_status hs_pt_import(hs_activation **out, const char *dir, const hs_pt_expect *expect,
                       hs_err *err)
{
    *out = NULL;
    uint32_t n_layer = 0;
    hs_status s = check_list(dir, expect, &n_layer, err);
    if (s != HS_OK)
        return s;
    int64_t **count = calloc(n_layer, sizeof *count);
    uint32_t *n_ff = calloc(n_layer, sizeof *n_ff);
    hs_activation *a = NULL;
    s = count && n_ff ? read_layers(dir, expect, n_layer, count, n_ff, err) : no_memory(err);
    if (s == HS_OK)
        s = hs_activation_new(&a, n_layer, n_ff, err);
    for (uint32_t l = 0; s == HS_OK && l < n_layer; l++)
        memcpy(a->count[l], count[l], n_ff[l] * sizeof **count);
    if (s == HS_OK)
        s = set_tokens(a, dir, expect->positions, err);
    for (uint32_t l = 0; count && l < n_layer; l++)
        free(count[l]);
    free(count);
    free(n_ff);
    if (s != HS_OK) {
        hs_activation_free(a);
        return s;
    }
    *out = a;
    return HS_OK;
}

/* ---- export --------------------------------------------------------------------------- */

hs_status hs_pt_export_check(const char *dir, uint32_t n_layer, bool force, hs_err *err)
{
    struct stat st;
    if (stat(dir, &st) != 0 && errno == ENOENT)
        return HS_OK;
    size_t n;
    int64_t highest;
    const hs_status s = list(dir, &n, &highest, err);
    if (s != HS_OK)
        return s;
    if (highest >= n_layer)
        return hs_fail(err, HS_ERR_USAGE,
                       "%s: activation_%" PRId64
                       ".pt is no layer of this profile and would be read with it; remove it",
                       dir, highest);
    if (n && !force)
        return hs_fail(err, HS_ERR_USAGE, "%s: holds activation files; use --force to replace them",
                       dir);
    return HS_OK;
}

static hs_status write_layer(hs_out **out, const hs_activation *a, const char *dir, uint32_t layer,
                             bool force, hs_err *err)
{
    char stem[64];
    file_name(stem, layer);
    stem[strlen(stem) - strlen(".pt")] = 0;
    char *path = file_path(dir, layer);
    if (!path)
        return no_memory(err);
    hs_status s = hs_out_open(out, path, force, err);
    free(path);
    if (s == HS_OK)
        s = hs_torch_write_i64(*out, stem, a->count[layer], a->n_ff[layer], err);
    return s;
}

hs_status hs_pt_export(const hs_activation *a, const char *dir, bool force, hs_err *err)
{
    hs_status s = hs_pt_export_check(dir, a->n_layer, force, err);
    if (s != HS_OK)
        return s;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return hs_fail(err, errno == ENOSPC ? HS_ERR_NOSPACE : HS_ERR_IO, "%s: cannot create: %s",
                       dir, strerror(errno));
    hs_out **out = calloc(a->n_layer, sizeof(hs_out *));
    if (!out)
        return no_memory(err);
    for (uint32_t l = 0; s == HS_OK && l < a->n_layer; l++)
        s = write_layer(&out[l], a, dir, l, force, err);
    uint32_t done = 0;
    while (s == HS_OK && done < a->n_layer)
        s = hs_out_commit(out[done++], true, err);
    for (uint32_t l = done; l < a->n_layer; l++)
        hs_out_abort(out[l]);
    free(out);
    return s;
}
