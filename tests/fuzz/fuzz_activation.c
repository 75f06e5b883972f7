/* Any bytes as an activation profile: whatever is accepted keeps the header's promises. */
#include "formats/activation.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(hs_activation *a)
{
    if (!a->n_layer || !a->tokens || !a->n_ctx != !a->chunks_done)
        abort();
    for (uint32_t l = 0; l < a->n_layer; l++)
        for (uint32_t i = 0; i < a->n_ff[l]; i++)
            if (a->count[l][i] < 0 || (uint64_t)a->count[l][i] > a->tokens)
                abort();
    for (size_t i = 0; i < a->n_source; i++)
        if (strlen(a->source[i].hash) != HS_FINGERPRINT_CHARS ||
            strnlen(a->source[i].name, sizeof a->source[i].name) == sizeof a->source[i].name)
            abort();
    const uint64_t before = a->tokens;
    if (hs_activation_add(a, a, NULL) == HS_OK && a->tokens != 2 * before)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hs_gguf *g;
    hs_err err;
    if (hs_gguf_parse(&g, data, size, &err) != HS_OK)
        return 0;
    hs_activation *a;
    const hs_status s = hs_activation_parse(&a, g, &err);
    hs_gguf_free(g);
    if (s == HS_OK)
        use(a);
    else if (!err.msg[0])
        abort();
    if (s == HS_OK)
        hs_activation_free(a);
    return 0;
}
