#ifndef HS_RUNTIME_CUDA_EMU_RACE_H
#define HS_RUNTIME_CUDA_EMU_RACE_H

/* The emulation's race and bounds detector: what compute-sanitizer finds on a GPU, found without
 * one.
 *
 * With HS_EMU_RACE the device source is compiled by -fsanitize=thread, which puts a call in front
 * of every load and store, and linked with emu_race.c, which answers those calls instead of the
 * sanitizer's library.  Per byte of device, host and shared memory it keeps the last writer and two
 * readers of the running launch.  Two accesses to a byte, one of them a write, are a race unless
 *   - they are of one thread, or both atomic,
 *   - or a __syncthreads of their block lies between them,
 *   - or a __syncwarp whose mask holds both lanes (a chain of several counts).
 * Shuffles and ballots order nothing, as CUDA's documentation says.  Blocks of a launch are never
 * ordered, whichever ran first here.  An access beside an allocation, into a part of the arena
 * that no buffer holds, or past a launch's dynamic shared memory is reported as well.
 *
 * Not seen: readers of a byte beyond two per barrier interval, when a third alone would conflict;
 * a step from one buffer of the arena into the next one that lies within the next one's bytes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hs_emu_fiber;

/* A launch begins on this host thread: `cur` leads to the running fiber (one without a warp is the
 * host).  The memory between each pair of `own` is the emulation's and not looked at. */
typedef struct hs_emu_race_launch {
    struct hs_emu_fiber *const *cur;
    const void *own[4][2];
    const uint8_t *shared; /* dynamic shared memory, and how much of its limit is granted */
    size_t shared_bytes, shared_limit;
} hs_emu_race_launch;
void hs_emu_race_begin(const hs_emu_race_launch *launch);
void hs_emu_race_block(uint32_t index);
/* Every thread of the block has met at __syncthreads. */
void hs_emu_race_barrier(void);
/* These lanes of a warp have met at __syncwarp. */
void hs_emu_race_syncwarp(unsigned warp, uint32_t mask);
/* The accesses between `true` and `false` are one atomic update. */
void hs_emu_race_atomic(bool begin);
/* The launch is over; the first finding in `text`, or false. */
bool hs_emu_race_end(char *text, size_t cap);

enum { HS_EMU_RACE_GUARD = 4096 }; /* bytes around an allocation that belong to nobody */
/* An allocation of device memory. */
void hs_emu_race_alloc(const void *p, size_t bytes);
/* From now on nothing of the allocation may be touched but what is named as its part, from a
 * multiple of 64 bytes on. */
void hs_emu_race_parts(const void *p);
void hs_emu_race_part(const void *p, size_t bytes);
void hs_emu_race_free(const void *p);

#ifdef __cplusplus
}
#endif

#endif
