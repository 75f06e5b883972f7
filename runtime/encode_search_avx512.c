#include "runtime/encode.h"

#if defined(__x86_64__)
#include "runtime/encode_search.h"

hs_encode_set hs_encode_search_avx512(hs_dtype type) { return encode_search(type); }

hs_loss hs_loss_avx512(const float *before, const float *after, size_t n)
{
    return loss_in_lanes(before, after, n);
}
#endif
