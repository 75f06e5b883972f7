#ifndef HS_FORMATS_ACTIVATION_IMPL_H
#define HS_FORMATS_ACTIVATION_IMPL_H

/* What the files activation*.c share; nobody else includes this. */

#include "formats/activation.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HS_PROFILE_FILE_TYPE       "activation-profile"
#define HS_PROFILE_KEY_TYPE        "general.type"
#define HS_PROFILE_KEY_LAYERS      "hotset.profile.block_count"
#define HS_PROFILE_KEY_TOKENS      "hotset.profile.tokens"
#define HS_PROFILE_KEY_GENERATED   "hotset.profile.tokens_generated"
#define HS_PROFILE_KEY_FINGERPRINT "hotset.profile.fingerprint"
#define HS_PROFILE_KEY_SOURCE      "hotset.profile.source"
#define HS_PROFILE_KEY_CHUNKS      "hotset.profile.chunks_done"
#define HS_PROFILE_KEY_CONTEXT     "hotset.profile.context"
#define HS_PROFILE_KEY_GENERATE    "hotset.profile.generate"
#define HS_PROFILE_KEY_COMPLETE    "hotset.profile.complete"
#define HS_PROFILE_KEY_NO_BOS      "hotset.profile.no_bos"
#define HS_PROFILE_KEY_SPECIAL     "hotset.profile.special"
#define HS_PROFILE_KEY_MAGNITUDE   "hotset.profile.magnitude"
#define HS_PROFILE_KEY_LEVELS      "hotset.profile.magnitude_levels"
#define HS_PROFILE_COUNT           "ffn_active_count"
#define HS_PROFILE_TOP             "ffn_coactive_neuron"
#define HS_PROFILE_THRESHOLD       "ffn_magnitude_threshold"

/* "<hash> <name>" */
enum { HS_PROFILE_NAME_AT = HS_FINGERPRINT_CHARS + 1 };

bool hs_activation_is_hash(const char *p, size_t n);
bool hs_activation_is_name(const char *p, size_t n);
/* Everything a reader may rely on; `code` is the code of a fault. */
HS_NODISCARD hs_status hs_activation_check(const hs_activation *a, hs_status code, hs_err *err);
HS_NODISCARD hs_status hs_activation_check_stats(const hs_activation *a, hs_status code,
                                                 hs_err *err);
/* The tensor's dimensions, ne[1] is 1 where it has one; returns their number. */
uint32_t hs_activation_stat_dims(const hs_activation *a, hs_activation_stat stat, uint32_t layer,
                                 uint64_t ne[2]);
void hs_activation_stat_drop(hs_activation *a, hs_activation_stat stat);

#ifdef __cplusplus
}
#endif

#endif
