/* Predictors.  The one surprise: the layer is the number in a file's base name and nothing else,
 * so that neither the folder's name nor the order of its entries can matter. */
#include "tools/convert/predictor.h"

#include "formats/file.h"
#include "formats/json.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void hs_conv_predictor_fini(hs_conv_predictor *p)
{
    for (size_t i = 0; i < p->n_file; i++)
        hs_checkpoint_free(p->file[i]);
    free(p->file);
    free(p->fc1);
    free(p->fc2);
    *p = (hs_conv_predictor){0};
}

static hs_status add_file(hs_conv_predictor *p, const char *path, hs_checkpoint **out, hs_err *err)
{
    hs_checkpoint **v = realloc(p->file, (p->n_file + 1) * sizeof(hs_checkpoint *));
    if (!v)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    p->file = v;
    const hs_status s = hs_checkpoint_open_file(out, path, err);
    if (s == HS_OK)
        v[p->n_file++] = *out;
    return s;
}

static hs_status set(hs_conv_predictor *p, const hs_ckpt_tensor *t, uint64_t layer,
                     const char *name, hs_err *err)
{
    const bool one = strcmp(name, "fc1.weight") == 0;
    if (!one && strcmp(name, "fc2.weight") != 0)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: unexpected tensor %.100s (a predictor is fc1.weight and fc2.weight)",
                       t->file, t->name);
    if (layer >= p->n_layer)
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: a predictor of layer %" PRIu64 ", but the model has %u layers", t->file,
                       layer, p->n_layer);
    const hs_ckpt_tensor **slot = one ? &p->fc1[layer] : &p->fc2[layer];
    if (*slot)
        return hs_fail(err, HS_ERR_FORMAT, "%s: %s of layer %" PRIu64 " is also in %s", t->file,
                       name, layer, (*slot)->file);
    *slot = t;
    return HS_OK;
}

/* ---- a file per layer ------------------------------------------------------------------ */

/* "model_12.pt" and "model_12.safetensors" are layer 12. */
static bool layer_of(const char *name, uint64_t *layer)
{
    static const char prefix[] = "model_";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *p = name + sizeof prefix - 1;
    const size_t digits = strspn(p, "0123456789");
    if (!digits || digits > 9 ||
        (strcmp(p + digits, ".pt") != 0 && strcmp(p + digits, ".safetensors") != 0))
        return false;
    *layer = strtoull(p, NULL, 10);
    return true;
}

static hs_status read_layer(hs_conv_predictor *p, const char *path, uint64_t layer, hs_err *err)
{
    hs_checkpoint *c;
    hs_status s = add_file(p, path, &c, err);
    for (size_t i = 0; s == HS_OK && i < hs_checkpoint_count(c); i++)
        s = set(p, hs_checkpoint_at(c, i), layer, hs_checkpoint_at(c, i)->name, err);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the folder's predictor files, sorted. */
static hs_status list_folder(const char *dir, char ***names, size_t *n_names, hs_err *err)
{
    *names = NULL;
    *n_names = 0;
    DIR *d = opendir(dir);
    if (!d)
        return hs_fail(err, HS_ERR_INPUT, "%s: cannot open: %s", dir, strerror(errno));
    hs_status s = HS_OK;
    const struct dirent *e;
    uint64_t layer;
    while (s == HS_OK && (e = readdir(d))) {
        if (!layer_of(e->d_name, &layer))
            continue;
        char **v = realloc(*names, (*n_names + 1) * sizeof *v);
        if (v)
            *names = v;
        if (!v || !(v[*n_names] = strdup(e->d_name)))
            s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
        else
            ++*n_names;
    }
    closedir(d);
    if (*n_names)
        qsort(*names, *n_names, sizeof **names, by_name);
    return s;
}

static hs_status read_folder(hs_conv_predictor *p, const char *dir, size_t *found, hs_err *err)
{
    char **names;
    hs_status s = list_folder(dir, &names, found, err);
    for (size_t i = 0; s == HS_OK && i < *found; i++) {
        uint64_t layer = 0;
        (void)layer_of(names[i], &layer);
        char *path = hs_path_join(dir, names[i]);
        s = path ? read_layer(p, path, layer, err) : hs_fail(err, HS_ERR_NOMEM, "out of memory");
        free(path);
    }
    for (size_t i = 0; i < *found; i++)
        free(names[i]);
    free(names);
    return s;
}

/* ---- one file for all ------------------------------------------------------------------ */

/* "blk.3.fc1.weight", "model.layers.3.fc1.weight", "3.fc1.weight": the last number before fc. */
static hs_status read_whole(hs_conv_predictor *p, const char *path, hs_err *err)
{
    hs_checkpoint *c;
    hs_status s = add_file(p, path, &c, err);
    for (size_t i = 0; s == HS_OK && i < hs_checkpoint_count(c); i++) {
        const hs_ckpt_tensor *t = hs_checkpoint_at(c, i);
        const char *fc = strstr(t->name, ".fc"), *d = fc;
        while (d && d > t->name && d[-1] >= '0' && d[-1] <= '9')
            d--;
        if (!fc || d == fc || fc - d > 9 || (d > t->name && d[-1] != '.'))
            s = hs_fail(err, HS_ERR_FORMAT,
                        "%s: unexpected tensor %.100s (expected names like blk.0.fc1.weight)", path,
                        t->name);
        else
            s = set(p, t, strtoull(d, NULL, 10), fc + 1, err);
    }
    return s;
}

/* ---- checks ---------------------------------------------------------------------------- */

static hs_status check_shape(const hs_ckpt_tensor *t, const char *name, uint64_t rows,
                             uint64_t cols, hs_err *err)
{
    const bool ok = t->n_dims == 2 && t->shape[0] && (!rows || t->shape[0] == rows) &&
                    t->shape[1] == cols && t->shape[0] <= 1 << 24;
    if (ok)
        return HS_OK;
    char want[32] = "R";
    if (rows)
        snprintf(want, sizeof want, "%" PRIu64, rows);
    return hs_fail(err, HS_ERR_FORMAT,
                   "%s: %s: expected shape [%s, %" PRIu64 "], got %u dimensions "
                   "[%" PRIu64 ", %" PRIu64 "]",
                   t->file, name, want, cols, t->n_dims, t->n_dims > 0 ? t->shape[0] : 0,
                   t->n_dims > 1 ? t->shape[1] : 0);
}

static hs_status check_layers(const hs_conv_predictor *p, const char *path, const hs_conv_config *c,
                              hs_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_ckpt_tensor *one = p->fc1[l], *two = p->fc2[l];
        if (!one && !two)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: no predictor of layer %u (model_%u.pt or "
                           "model_%u.safetensors); the model has %u layers",
                           path, l, l, l, p->n_layer);
        if (!one)
            return hs_fail(err, HS_ERR_FORMAT, "%s: fc1.weight of layer %u is missing", two->file,
                           l);
        if (!two)
            return hs_fail(err, HS_ERR_FORMAT, "%s: fc2.weight of layer %u is missing", one->file,
                           l);
        hs_status s = check_shape(one, "fc1.weight", 0, c->n_embd, err);
        if (s == HS_OK)
            s = check_shape(two, "fc2.weight", c->n_ff, one->shape[0], err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status read_config(hs_conv_predictor *p, const char *dir, hs_err *err)
{
    char *path = hs_path_join(dir, "config.json");
    if (!path)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    json_t *root = NULL;
    hs_status s = access(path, F_OK) == 0 ? hs_json_read(&root, path, err) : HS_OK;
    const json_t *t = json_object_get(root, "sparse_threshold");
    if (s == HS_OK && t && !json_is_null(t)) {
        p->threshold = (float)json_number_value(t);
        p->has_threshold = true;
        if (!json_is_number(t) || !isfinite(p->threshold))
            s = hs_fail(err, HS_ERR_FORMAT, "%s: sparse_threshold: expected a number", path);
    }
    json_decref(root);
    free(path);
    return s;
}

/* A folder without a file per layer may hold one for all, under the usual name. */
static hs_status read_any(hs_conv_predictor *p, const char *path, hs_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return hs_fail(err, HS_ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return read_whole(p, path, err);
    size_t found;
    hs_status s = read_folder(p, path, &found, err);
    if (s != HS_OK || found)
        return s == HS_OK ? read_config(p, path, err) : s;
    char *whole = hs_path_join(path, "model.safetensors");
    if (!whole)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (access(whole, F_OK) != 0)
        s = hs_fail(err, HS_ERR_INPUT,
                    "%s: no predictors (expected model_<layer>.pt, model_<layer>.safetensors, or "
                    "model.safetensors with all layers)",
                    path);
    else
        s = read_whole(p, whole, err);
    free(whole);
    return s == HS_OK ? read_config(p, path, err) : s;
}

hs_status hs_conv_predictor_open(hs_conv_predictor *p, const char *path, const hs_conv_config *c,
                                 hs_err *err)
{
    *p = (hs_conv_predictor){.n_layer = c->n_layer};
    p->fc1 = calloc(c->n_layer, sizeof(const hs_ckpt_tensor *));
    p->fc2 = calloc(c->n_layer, sizeof(const hs_ckpt_tensor *));
    hs_status s =
        p->fc1 && p->fc2 ? read_any(p, path, err) : hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (s == HS_OK)
        s = check_layers(p, path, c, err);
    if (s != HS_OK)
        hs_conv_predictor_fini(p);
    return s;
}
