#include "tools/perplexity/logp.h"
#include "formats/cursor.h"

#include <math.h>
#include <string.h>

enum { header_bytes = 32 };

static const char magic[8] = "HSLOGP01";

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

hs_status hs_logp_begin(hs_out *out, const hs_logp_header *h, hs_err *err)
{
    uint8_t b[header_bytes] = {0};
    memcpy(b, magic, sizeof magic);
    put_u32(b + 8, h->n_vocab);
    put_u32(b + 12, h->n_ctx);
    put_u32(b + 16, (uint32_t)h->protocol);
    put_u32(b + 24, (uint32_t)h->n_tokens);
    put_u32(b + 28, (uint32_t)(h->n_tokens >> 32));
    return hs_out_write(out, b, sizeof b, err);
}

hs_status hs_logp_append(hs_out *out, int32_t id, const float *logp, size_t n_vocab, hs_err *err)
{
    uint8_t b[4];
    put_u32(b, (uint32_t)id);
    const hs_status s = hs_out_write(out, b, sizeof b, err);
    return s == HS_OK ? hs_out_write(out, logp, n_vocab * sizeof *logp, err) : s;
}

static hs_status check_header(const hs_logp_file *f, hs_err *err)
{
    const hs_logp_header *h = &f->header;
    uint64_t record, all;
    if (!hs_mul(h->n_vocab, 4, &record) || !hs_add(record, 4, &record) ||
        !hs_mul(record, h->n_tokens, &all) || !hs_add(all, header_bytes, &all) ||
        all != f->map.size)
        return hs_fail(err, HS_ERR_FORMAT,
                       "size: expected %llu tokens of %u log-probabilities each, got %zu bytes",
                       (unsigned long long)h->n_tokens, h->n_vocab, f->map.size);
    return HS_OK;
}

static hs_status check_same_run(const hs_logp_header *h, const hs_logp_header *want, hs_err *err)
{
    static const char *const names[] = {"once", "llama"};
    if (h->n_vocab != want->n_vocab)
        return hs_fail(err, HS_ERR_USAGE, "vocabulary: the model has %u tokens, this file %u",
                       want->n_vocab, h->n_vocab);
    if (h->protocol != want->protocol)
        return hs_fail(err, HS_ERR_USAGE, "made with --protocol %s, this run uses %s",
                       names[h->protocol], names[want->protocol]);
    if (h->n_ctx != want->n_ctx)
        return hs_fail(err, HS_ERR_USAGE, "made with -c %u, this run uses %u", h->n_ctx,
                       want->n_ctx);
    if (h->n_tokens < want->n_tokens)
        return hs_fail(err, HS_ERR_USAGE, "has %llu tokens, this run scores %llu (--chunks?)",
                       (unsigned long long)h->n_tokens, (unsigned long long)want->n_tokens);
    return HS_OK;
}

hs_status hs_logp_open(hs_logp_file *f, const char *path, const hs_logp_header *want, hs_err *err)
{
    memset(f, 0, sizeof *f);
    hs_status s = hs_map_open(&f->map, path, err);
    if (s == HS_OK) {
        hs_cursor c = {f->map.data, f->map.size, 0, false};
        const uint8_t *m = hs_cur_take(&c, sizeof magic);
        f->header.n_vocab = hs_cur_u32(&c);
        f->header.n_ctx = hs_cur_u32(&c);
        const uint32_t protocol = hs_cur_u32(&c), zero = hs_cur_u32(&c);
        f->header.protocol = (hs_ppl_protocol)protocol;
        f->header.n_tokens = hs_cur_u64(&c);
        if (c.bad || memcmp(m, magic, sizeof magic) != 0)
            s = hs_fail(err, HS_ERR_FORMAT, "at byte 0: expected %.8s and a header of %d bytes",
                        magic, (int)header_bytes);
        else if (protocol > HS_PPL_LLAMA || zero)
            s = hs_fail(err, HS_ERR_FORMAT, "at byte 16: expected protocol 0 or 1 and 0");
        else
            s = check_header(f, err);
    }
    if (s == HS_OK)
        s = check_same_run(&f->header, want, err);
    if (s != HS_OK) {
        hs_logp_close(f);
        return hs_ctx(err, s, "%s: ", path);
    }
    return HS_OK;
}

void hs_logp_close(hs_logp_file *f)
{
    hs_map_close(&f->map);
    memset(f, 0, sizeof *f);
}

bool hs_logp_compare(const hs_logp_file *f, uint64_t at, int32_t id, const float *logp,
                     hs_divergence *d)
{
    const size_t n = f->header.n_vocab;
    const uint8_t *p = f->map.data + header_bytes + at * (4 + 4 * (uint64_t)n);
    if ((int32_t)hs_get_u32(p) != id)
        return false;
    double kl = 0;
    float top = -INFINITY, top_base = -INFINITY;
    size_t top_at = 0, top_base_at = 0;
    for (size_t i = 0; i < n; i++) {
        const float base = hs_get_f32(p + 4 + 4 * i);
        if (!(base <= 1e-3f)) /* NaN too; a rounded log(1) may be a little above 0 */
            return false;
        const double pb = exp((double)base), pr = exp((double)logp[i]);
        if (pb > 0)
            kl += pb * ((double)base - (double)logp[i]);
        if (fabs(pb - pr) > d->max_error)
            d->max_error = fabs(pb - pr);
        if (base > top_base) {
            top_base = base;
            top_base_at = i;
        }
        if (logp[i] > top) {
            top = logp[i];
            top_at = i;
        }
    }
    kl = kl > 0 ? kl : 0; /* rounding */
    d->n++;
    d->kl += kl;
    d->max_kl = kl > d->max_kl ? kl : d->max_kl;
    d->same_top += top_at == top_base_at;
    return true;
}
