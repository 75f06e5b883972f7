/* Replays a fuzz target over the files named on the command line, with any compiler: the
 * corpus as a regression test.  No file at all is a failure. */
#include "formats/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    hs_map map;
    hs_err err;
    if (hs_map_open(&map, path, &err) != HS_OK) {
        fprintf(stderr, "%s: %s\n", path, err.msg);
        return 1;
    }
    /* A copy of the exact size, so that a sanitizer sees a read past the end. */
    uint8_t *p = malloc(map.size + !map.size);
    if (p) {
        if (map.size)
            memcpy(p, map.data, map.size);
        LLVMFuzzerTestOneInput(p, map.size);
    }
    hs_map_close(&map);
    free(p);
    return p ? 0 : 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (replay(argv[i]) != 0)
            return 1;
    printf("%d inputs\n", argc - 1);
    return argc > 1 ? 0 : 1;
}
