/* Which kind of file it is: by its first bytes, never by its name. */
#include "formats/file.h"

#include "tools/inspect/inspect.h"

#include <string.h>

typedef enum kind { KIND_GGUF, KIND_TORCH, KIND_SAFETENSORS } kind;

static hs_status find_kind(const char *path, kind *out, uint64_t *bytes, hs_err *err)
{
    hs_map map;
    const hs_status s = hs_map_open(&map, path, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", path);
    const char *const p = (const char *)map.data;
    const size_t n = map.size;
    *bytes = n;
    hs_status st = HS_OK;
    if (n >= 4 && (!memcmp(p, "GGUF", 4) || !memcmp(p, "PWRI", 4)))
        *out = KIND_GGUF;
    else if (n >= 4 && (!memcmp(p, "PK\3\4", 4) || !memcmp(p, "\x80\x02\x8a\x0a", 4)))
        *out = KIND_TORCH;
    else if (n >= 9 && p[8] == '{')
        *out = KIND_SAFETENSORS;
    else
        st = hs_fail(err, n ? HS_ERR_FORMAT : HS_ERR_INPUT,
                     n ? "%s: byte 0: none of GGUF, PWRI, a torch zip file and safetensors"
                       : "%s: is empty",
                     path);
    hs_map_close(&map);
    return st;
}

hs_status inspect_file(const inspect_options *o, json_t **report, hs_err *err)
{
    kind k = KIND_GGUF;
    uint64_t bytes = 0;
    *report = json_object();
    if (!*report)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    json_object_set_new(*report, "file", inspect_string(o->path, strlen(o->path), 4096));
    hs_status s = find_kind(o->path, &k, &bytes, err);
    if (s != HS_OK)
        return s;
    if (k == KIND_GGUF) {
        s = inspect_gguf(o, *report, err);
    } else {
        json_object_set_new(*report, "kind",
                            json_string(k == KIND_TORCH ? "torch file" : "safetensors"));
        json_object_set_new(*report, "file_bytes", inspect_count(bytes));
        s = inspect_checkpoint(o, *report, err);
    }
    if (s == HS_OK && o->check)
        json_object_set_new(*report, "check", json_string("all data is sound"));
    return s;
}
