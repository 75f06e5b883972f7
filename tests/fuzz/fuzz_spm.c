/* SentencePiece models: every accepted piece is read. */
#include "formats/spm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    volatile char sink = 0;
    hs_spm *s = NULL;
    hs_err err;
    if (hs_spm_parse(&s, data, size, &err) != HS_OK)
        return 0;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->piece[i].n; k++)
            sink = s->piece[i].p[k];
    hs_spm_free(s);
    return sink & 0;
}
