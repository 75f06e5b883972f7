/* The machine file.  The one surprise: what may be a curve may also be a plain number, which is
 * a curve of one point. */
#include "formats/machine.h"

#include "formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From a floppy disk to far beyond what is sold: outside, a unit was mistaken. */
static const double least_rate = 1e3, most_rate = 1e16, most_s = 10, most_spread = 100;
static const double default_latency_s = 10e-6, default_sync_s = 20e-6, default_copy = 12e9;

void hs_machine_device_init(hs_machine_device *d)
{
    *d = (hs_machine_device){.latency_s = default_latency_s, .sync_s = default_sync_s};
    d->upload.n = d->download.n = 1;
    d->upload.point[0] = d->download.point[0] = (hs_machine_point){1, default_copy, 0};
}

void hs_machine_init(hs_machine *m)
{
    *m = (hs_machine){.n_devices = 0};
    for (size_t i = 0; i < HS_MACHINE_DEVICES; i++)
        hs_machine_device_init(&m->device[i]);
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Edits that turn a into b; words of at most 31 characters, others are far from everything. */
static size_t distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    const size_t n = strlen(a), m = strlen(b);
    size_t row[MOST];
    if (n >= MOST || m >= MOST)
        return MOST;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t swap = diagonal + (a[i - 1] != b[j - 1]);
            const size_t skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = swap < skip ? swap : skip;
        }
    }
    return row[m];
}

/* `known` ends with NULL. */
static hs_status check_keys(json_t *o, const char *where, const char *const *known, hs_err *err)
{
    if (!json_is_object(o))
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected an object", where);
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        const char *nearest = known[0];
        size_t least = SIZE_MAX;
        for (size_t i = 0; known[i] && least; i++) {
            const size_t d = distance(key, known[i]);
            if (d < least) {
                least = d;
                nearest = known[i];
            }
        }
        if (least)
            return hs_fail(err, HS_ERR_FORMAT, "%s: unknown key '%.60s'; did you mean '%s'?", where,
                           key, nearest);
    }
    return HS_OK;
}

/* ---- values: left alone when the key is missing ------------------------------------------------
 */

static hs_status get_text(json_t *o, const char *where, const char *key, char *out, hs_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        return HS_OK;
    if (!json_is_string(v) || json_string_length(v) >= HS_MACHINE_TEXT)
        return hs_fail(err, HS_ERR_FORMAT, "%s.%s: expected a text of at most %d bytes", where, key,
                       HS_MACHINE_TEXT - 1);
    memcpy(out, json_string_value(v), json_string_length(v) + 1);
    return HS_OK;
}

static hs_status get_real(json_t *o, const char *where, const char *key, double lo, double hi,
                          double *out, hs_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        return HS_OK;
    if (!json_is_number(v) || !(json_number_value(v) >= lo && json_number_value(v) <= hi))
        return hs_fail(err, HS_ERR_FORMAT, "%s.%s: expected a number from %g to %g", where, key, lo,
                       hi);
    *out = json_number_value(v);
    return HS_OK;
}

static hs_status get_size(json_t *o, const char *where, const char *key, uint64_t *out, hs_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        return HS_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >> 56)
        return hs_fail(err, HS_ERR_FORMAT, "%s.%s: expected a whole number from 0 to 2^56", where,
                       key);
    *out = (uint64_t)json_integer_value(v);
    return HS_OK;
}

static hs_status get_point(json_t *o, const char *where, const char *unit, hs_machine_point *p,
                           hs_err *err)
{
    const char *const known[] = {unit, "rate", "spread", NULL};
    *p = (hs_machine_point){0};
    hs_status s = check_keys(o, where, known, err);
    if (s == HS_OK)
        s = get_size(o, where, unit, &p->at, err);
    if (s == HS_OK)
        s = get_real(o, where, "rate", least_rate, most_rate, &p->rate, err);
    if (s == HS_OK)
        s = get_real(o, where, "spread", 0, most_spread, &p->spread, err);
    if (s == HS_OK && (!p->at || p->rate == 0))
        s = hs_fail(err, HS_ERR_FORMAT, "%s: expected \"%s\" of at least 1 and a \"rate\"", where,
                    unit);
    return s;
}

static hs_status get_curve(json_t *o, const char *where, const char *key, const char *unit,
                           hs_machine_curve *c, hs_err *err)
{
    json_t *v = json_object_get(o, key);
    if (!v)
        return HS_OK;
    if (json_is_number(v)) {
        c->n = 1;
        c->point[0] = (hs_machine_point){.at = 1};
        return get_real(o, where, key, least_rate, most_rate, &c->point[0].rate, err);
    }
    const size_t n = json_array_size(v);
    if (!n || n > HS_MACHINE_POINTS)
        return hs_fail(err, HS_ERR_FORMAT, "%s.%s: expected a number or a list of 1 to %d points",
                       where, key, HS_MACHINE_POINTS);
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < n; i++) {
        char at[96];
        snprintf(at, sizeof at, "%s.%s[%zu]", where, key, i);
        s = get_point(json_array_get(v, i), at, unit, &c->point[i], err);
        if (s == HS_OK && i && c->point[i].at <= c->point[i - 1].at)
            s = hs_fail(err, HS_ERR_FORMAT, "%s.%s: expected more than the %" PRIu64 " before it",
                        at, unit, c->point[i - 1].at);
    }
    c->n = n;
    return s;
}

static hs_status get_types(json_t *o, const char *where, hs_machine_rate *type, hs_err *err)
{
    static const char *const known[] = {"dense", "dense_spread", "sparse", "sparse_spread", NULL};
    json_t *types = json_object_get(o, "types"), *v;
    if (!types)
        return HS_OK;
    if (!json_is_object(types))
        return hs_fail(err, HS_ERR_FORMAT, "%s.types: expected an object", where);
    const char *name;
    json_object_foreach(types, name, v)
    {
        char at[96];
        const hs_dtype_info *t = hs_dtype_by_name(name);
        if (!t)
            return hs_fail(err, HS_ERR_FORMAT, "%s.types: '%.40s' is no tensor type", where, name);
        hs_machine_rate *r = &type[t->id];
        snprintf(at, sizeof at, "%s.types.%s", where, t->name);
        hs_status s = check_keys(v, at, known, err);
        if (s == HS_OK)
            s = get_real(v, at, "dense", least_rate, most_rate, &r->dense, err);
        if (s == HS_OK)
            s = get_real(v, at, "dense_spread", 0, most_spread, &r->dense_spread, err);
        if (s == HS_OK)
            s = get_real(v, at, "sparse", least_rate, most_rate, &r->sparse, err);
        if (s == HS_OK)
            s = get_real(v, at, "sparse_spread", 0, most_spread, &r->sparse_spread, err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

static hs_status get_cpu(json_t *o, hs_machine_cpu *c, hs_err *err)
{
    static const char *const known[] = {"name", "memory", "bandwidth", "types", NULL};
    hs_status s = check_keys(o, "cpu", known, err);
    if (s == HS_OK)
        s = get_text(o, "cpu", "name", c->name, err);
    if (s == HS_OK)
        s = get_size(o, "cpu", "memory", &c->memory, err);
    if (s == HS_OK)
        s = get_curve(o, "cpu", "bandwidth", "threads", &c->bandwidth, err);
    if (s == HS_OK)
        s = get_types(o, "cpu", c->type, err);
    if (s == HS_OK && !c->bandwidth.n)
        s = hs_fail(err, HS_ERR_FORMAT, "cpu.bandwidth: missing");
    return s;
}

static hs_status get_device(json_t *o, const char *where, hs_machine_device *d, hs_err *err)
{
    static const char *const known[] = {
        "name",      "memory", "context_bytes", "bandwidth", "spread", "types",
        "latency_s", "sync_s", "upload",        "download",  NULL};
    hs_status s = check_keys(o, where, known, err);
    if (s == HS_OK)
        s = get_text(o, where, "name", d->name, err);
    if (s == HS_OK)
        s = get_size(o, where, "memory", &d->memory, err);
    if (s == HS_OK)
        s = get_size(o, where, "context_bytes", &d->context_bytes, err);
    if (s == HS_OK)
        s = get_real(o, where, "bandwidth", least_rate, most_rate, &d->bandwidth, err);
    if (s == HS_OK)
        s = get_real(o, where, "spread", 0, most_spread, &d->spread, err);
    if (s == HS_OK)
        s = get_real(o, where, "latency_s", 0, most_s, &d->latency_s, err);
    if (s == HS_OK)
        s = get_real(o, where, "sync_s", 0, most_s, &d->sync_s, err);
    if (s == HS_OK)
        s = get_curve(o, where, "upload", "bytes", &d->upload, err);
    if (s == HS_OK)
        s = get_curve(o, where, "download", "bytes", &d->download, err);
    if (s == HS_OK)
        s = get_types(o, where, d->type, err);
    if (s == HS_OK && d->bandwidth == 0)
        s = hs_fail(err, HS_ERR_FORMAT, "%s.bandwidth: missing", where);
    return s;
}

static hs_status get_machine(json_t *root, hs_machine *m, hs_err *err)
{
    static const char *const known[] = {"version", "note", "cpu", "devices", NULL};
    const json_t *version = json_object_get(root, "version");
    json_t *devices = json_object_get(root, "devices");
    hs_status s = check_keys(root, "machine", known, err);
    if (s != HS_OK)
        return s;
    if (!json_is_integer(version) || json_integer_value(version) != HS_MACHINE_VERSION)
        return hs_fail(err, HS_ERR_FORMAT, "version: expected %d", HS_MACHINE_VERSION);
    if (!json_object_get(root, "cpu"))
        return hs_fail(err, HS_ERR_FORMAT, "cpu: missing");
    if (devices && (!json_is_array(devices) || json_array_size(devices) > HS_MACHINE_DEVICES))
        return hs_fail(err, HS_ERR_FORMAT, "devices: expected a list of at most %d",
                       HS_MACHINE_DEVICES);
    s = get_text(root, "machine", "note", m->note, err);
    if (s == HS_OK)
        s = get_cpu(json_object_get(root, "cpu"), &m->cpu, err);
    m->n_devices = json_array_size(devices);
    for (size_t i = 0; s == HS_OK && i < m->n_devices; i++) {
        char where[32];
        snprintf(where, sizeof where, "devices[%zu]", i);
        s = get_device(json_array_get(devices, i), where, &m->device[i], err);
    }
    return s;
}

hs_status hs_machine_parse(hs_machine *out, const void *data, size_t size, hs_err *err)
{
    json_t *root;
    hs_machine_init(out);
    hs_status s = hs_json_parse(&root, data, size, err);
    if (s == HS_OK) {
        s = get_machine(root, out, err);
        json_decref(root);
    }
    return s;
}

hs_status hs_machine_read(hs_machine *out, const char *path, hs_err *err)
{
    json_t *root;
    hs_machine_init(out);
    hs_status s = hs_json_read(&root, path, err);
    if (s == HS_OK) {
        s = get_machine(root, out, err);
        json_decref(root);
        if (s != HS_OK)
            hs_ctx(err, s, "%s: ", path);
    }
    return s;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* jansson's functions take NULL for a value that could not be made and then fail; one flag
 * gathers that. */
typedef struct builder {
    bool failed;
} builder;

static void set(builder *b, json_t *o, const char *key, json_t *v)
{
    if (json_object_set_new(o, key, v) != 0)
        b->failed = true;
}

static void set_text(builder *b, json_t *o, const char *key, const char *text)
{
    if (text[0])
        set(b, o, key, json_string(text));
}

static void set_spread(builder *b, json_t *o, const char *key, double spread)
{
    if (spread > 0)
        set(b, o, key, json_real(spread));
}

static json_t *curve_json(builder *b, const hs_machine_curve *c, const char *unit)
{
    json_t *a = json_array();
    for (size_t i = 0; i < c->n; i++) {
        json_t *p = json_object();
        set(b, p, unit, json_integer((json_int_t)c->point[i].at));
        set(b, p, "rate", json_real(c->point[i].rate));
        set_spread(b, p, "spread", c->point[i].spread);
        if (json_array_append_new(a, p) != 0)
            b->failed = true;
    }
    return a;
}

static void set_types(builder *b, json_t *o, const hs_machine_rate *type)
{
    json_t *types = json_object();
    for (uint32_t t = 0; t < HS_DTYPE_LIMIT; t++) {
        const hs_machine_rate *r = &type[t];
        if (!hs_dtype_get(t) || (r->dense == 0 && r->sparse == 0))
            continue;
        json_t *v = json_object();
        if (r->dense > 0)
            set(b, v, "dense", json_real(r->dense));
        set_spread(b, v, "dense_spread", r->dense_spread);
        if (r->sparse > 0)
            set(b, v, "sparse", json_real(r->sparse));
        set_spread(b, v, "sparse_spread", r->sparse_spread);
        set(b, types, hs_dtype_name(t), v);
    }
    if (json_object_size(types))
        set(b, o, "types", json_incref(types));
    json_decref(types);
}

static json_t *cpu_json(builder *b, const hs_machine_cpu *c)
{
    json_t *o = json_object();
    set_text(b, o, "name", c->name);
    if (c->memory)
        set(b, o, "memory", json_integer((json_int_t)c->memory));
    set(b, o, "bandwidth", curve_json(b, &c->bandwidth, "threads"));
    set_types(b, o, c->type);
    return o;
}

static json_t *device_json(builder *b, const hs_machine_device *d)
{
    json_t *o = json_object();
    set_text(b, o, "name", d->name);
    if (d->memory)
        set(b, o, "memory", json_integer((json_int_t)d->memory));
    if (d->context_bytes)
        set(b, o, "context_bytes", json_integer((json_int_t)d->context_bytes));
    set(b, o, "bandwidth", json_real(d->bandwidth));
    set_spread(b, o, "spread", d->spread);
    set(b, o, "latency_s", json_real(d->latency_s));
    set(b, o, "sync_s", json_real(d->sync_s));
    set(b, o, "upload", curve_json(b, &d->upload, "bytes"));
    set(b, o, "download", curve_json(b, &d->download, "bytes"));
    set_types(b, o, d->type);
    return o;
}

static char *dump(const hs_machine *m)
{
    builder b = {false};
    json_t *root = json_object(), *devices = json_array();
    set(&b, root, "version", json_integer(HS_MACHINE_VERSION));
    set_text(&b, root, "note", m->note);
    set(&b, root, "cpu", cpu_json(&b, &m->cpu));
    for (size_t i = 0; i < m->n_devices && i < HS_MACHINE_DEVICES; i++)
        if (json_array_append_new(devices, device_json(&b, &m->device[i])) != 0)
            b.failed = true;
    set(&b, root, "devices", devices);
    char *text = b.failed ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    return text;
}

hs_status hs_machine_write(const hs_machine *m, hs_out *out, hs_err *err)
{
    char *text = dump(m);
    if (!text)
        return hs_fail(err, HS_ERR_FAILED,
                       "machine file: a number is not finite, a text is not UTF-8, or memory ran "
                       "out");
    hs_machine *back = malloc(sizeof *back);
    hs_status s = back ? hs_machine_parse(back, text, strlen(text), err)
                       : hs_fail(err, HS_ERR_NOMEM, "machine file: out of memory");
    if (back && s != HS_OK)
        hs_ctx(err, s, "machine file: ");
    if (s == HS_OK)
        s = hs_out_write(out, text, strlen(text), err);
    if (s == HS_OK)
        s = hs_out_write(out, "\n", 1, err);
    free(back);
    free(text);
    return s;
}

/* ---- questions ------------------------------------------------------------------------------ */

double hs_machine_at(const hs_machine_curve *c, uint64_t at)
{
    if (!c->n)
        return 0;
    size_t i = 0;
    while (i < c->n && c->point[i].at < at)
        i++;
    if (i == c->n)
        return c->point[c->n - 1].rate;
    if (!i || c->point[i].at == at)
        return c->point[i].rate;
    const hs_machine_point *a = &c->point[i - 1], *b = &c->point[i];
    const double part = (double)(at - a->at) / (double)(b->at - a->at);
    return a->rate + part * (b->rate - a->rate);
}

static double fastest(const hs_machine_curve *c)
{
    double most = 0;
    for (size_t i = 0; i < c->n; i++)
        most = c->point[i].rate > most ? c->point[i].rate : most;
    return most;
}

/* A kernel that was measured in one way only is taken to do as well in the other. */
static double type_rate(const hs_machine_rate *type, uint32_t dtype, bool sparse, double bandwidth)
{
    if (dtype >= HS_DTYPE_LIMIT)
        return bandwidth;
    const double dense = type[dtype].dense, scattered = type[dtype].sparse;
    const double r = sparse ? (scattered > 0 ? scattered : dense) : (dense > 0 ? dense : scattered);
    return r > 0 ? r : bandwidth;
}

double hs_machine_cpu_rate(const hs_machine_cpu *c, uint32_t dtype, bool sparse, uint32_t threads)
{
    const double all = fastest(&c->bandwidth);
    const double r = type_rate(c->type, dtype, sparse, all);
    return threads && all > 0 ? r * hs_machine_at(&c->bandwidth, threads) / all : r;
}

double hs_machine_device_rate(const hs_machine_device *d, uint32_t dtype, bool sparse)
{
    return type_rate(d->type, dtype, sparse, d->bandwidth);
}

static double copy_s(const hs_machine_device *d, const hs_machine_curve *c, uint64_t bytes)
{
    const double rate = hs_machine_at(c, bytes);
    return d->latency_s + (rate > 0 ? (double)bytes / rate : 0);
}

double hs_machine_upload_s(const hs_machine_device *d, uint64_t bytes)
{
    return copy_s(d, &d->upload, bytes);
}

double hs_machine_download_s(const hs_machine_device *d, uint64_t bytes)
{
    return copy_s(d, &d->download, bytes);
}
