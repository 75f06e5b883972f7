/* JSON through jansson.  The one surprise: jansson's own depth limit is 2048 and it recurses, so
 * the depth is checked before it sees a byte. */
#include "formats/json.h"

#include "formats/file.h"

#include <stdbool.h>

enum { MAX_DEPTH = 64 };
#define MAX_FILE ((size_t)64 << 20)

/* Brackets outside strings; what is no JSON at all is left to the parser. */
static hs_status check_depth(const char *p, size_t n, hs_err *err)
{
    int depth = 0;
    bool string = false;
    size_t line = 1;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        line += c == '\n';
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return hs_fail(err, HS_ERR_FORMAT, "line %zu: JSON nested deeper than %d levels",
                               line, MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return HS_OK;
}

hs_status hs_json_parse(json_t **out, const void *data, size_t size, hs_err *err)
{
    *out = NULL;
    const hs_status s = check_depth(data, size, err);
    if (s != HS_OK)
        return s;
    json_error_t je;
    json_t *root = json_loadb(size ? data : "", size, JSON_REJECT_DUPLICATES, &je);
    if (!root && json_error_code(&je) == json_error_out_of_memory)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (!root)
        return hs_fail(err, HS_ERR_FORMAT, "line %d, column %d: %s", je.line, je.column, je.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return hs_fail(err, HS_ERR_FORMAT, "line 1, column 1: expected a JSON object");
    }
    *out = root;
    return HS_OK;
}

hs_status hs_json_read(json_t **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_map map;
    hs_status s = hs_map_open(&map, path, err);
    if (s == HS_OK && map.size > MAX_FILE)
        s = hs_fail(err, HS_ERR_FORMAT, "%zu bytes of JSON, at most %zu are accepted", map.size,
                    MAX_FILE);
    if (s == HS_OK)
        s = hs_json_parse(out, map.data, map.size, err);
    hs_map_close(&map);
    return s == HS_OK ? s : hs_ctx(err, s, "%s: ", path);
}
