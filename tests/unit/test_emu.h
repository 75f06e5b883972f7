#ifndef HS_TESTS_UNIT_TEST_EMU_H
#define HS_TESTS_UNIT_TEST_EMU_H

/* Kernels of test_emu.cu, each launched once on a stream of its own.  All return the stream's
 * status. */

#include "formats/err.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = i's linear number over grid and block, each block and thread coordinate used. */
hs_status hs_test_emu_ids(uint32_t *out, unsigned gx, unsigned gy, unsigned bx, unsigned by,
                          hs_err *err);
/* out[block] = sum of in[block][n_thread] by halving in static shared memory, rounds times. */
hs_status hs_test_emu_reduce(uint32_t *out, const uint32_t *in, unsigned n_block, hs_err *err);
/* out[i] = in[n-1-i] through dynamic shared memory. */
hs_status hs_test_emu_reverse(uint32_t *out, const uint32_t *in, unsigned n, hs_err *err);
/* One warp; out[op][lane] for xor 5, down 3, up 2, idx 7, down 3 in segments of 8, ballot of odd
 * lanes, any, all. */
enum { HS_TEST_EMU_WARP_OPS = 8 };
hs_status hs_test_emu_warp(uint32_t (*out)[32], hs_err *err);
/* The half-warps of one warp do different numbers of 16-lane sums.  out[lane]. */
hs_status hs_test_emu_halves(uint32_t *out, hs_err *err);
/* n threads add 1 to sum, 2^-1 to fsum, fold their index into max and min, and count a CAS win. */
hs_status hs_test_emu_atomics(uint32_t *sum, float *fsum, uint32_t *max, uint32_t *min,
                              uint32_t *wins, unsigned n, hs_err *err);
/* A lane reads its neighbour's shared memory, with or without the __syncwarp that it needs;
 * returns the number of lanes that saw the value. */
hs_status hs_test_emu_syncwarp(uint32_t *seen, int sync, hs_err *err);
/* Uninitialised shared memory is not zero, in either of two blocks. */
hs_status hs_test_emu_uninit(uint32_t out[2], hs_err *err);

/* Planted faults. */
typedef enum hs_test_emu_fault {
    HS_TEST_EMU_EXIT,      /* odd threads return, even ones wait at __syncthreads */
    HS_TEST_EMU_TWO_LINES, /* the two halves of the block wait at different barriers */
    HS_TEST_EMU_WARP_EXIT, /* a lane of a full mask has returned before the shuffle */
    HS_TEST_EMU_WARP_LATE, /* a lane waits at __syncthreads, the others in a shuffle */
    HS_TEST_EMU_MIXED,     /* one warp, two operations */
    HS_TEST_EMU_OUTSIDE,   /* the caller is not in its own mask */
    HS_TEST_EMU_BLOCK,     /* 1025 threads */
    HS_TEST_EMU_GRID,      /* no blocks */
    HS_TEST_EMU_SHARED,    /* 48 KiB and one byte */
    HS_TEST_EMU_N_FAULT,
} hs_test_emu_fault;
/* The stream must work again after the fault is taken: *after = 42 from a good launch. */
hs_status hs_test_emu_plant(hs_test_emu_fault fault, uint32_t *after, hs_err *err);
/* Read one element past shared memory (for AddressSanitizer's death test). */
hs_status hs_test_emu_overrun(uint32_t *out, hs_err *err);

/* What the detector (runtime/cuda/emu_race.h) must find, and what it must not. */
typedef enum hs_test_emu_race {
    HS_TEST_EMU_NO_BARRIER,    /* a neighbour's shared memory, __syncthreads forgotten */
    HS_TEST_EMU_NO_SYNCWARP,   /* the same within a warp */
    HS_TEST_EMU_ONLY_SHUFFLE,  /* a shuffle in its place, which orders nothing */
    HS_TEST_EMU_HALF_SYNCWARP, /* a __syncwarp that leaves out the lane read from */
    HS_TEST_EMU_WRITE_WRITE,   /* two threads write one word of device memory */
    HS_TEST_EMU_READ_WRITE,    /* read first, overwritten by another one */
    HS_TEST_EMU_BLOCKS,        /* block 1 reads what block 0 wrote */
    HS_TEST_EMU_BYTES,         /* threads write overlapping halves of a word */
    HS_TEST_EMU_PLAIN_ATOMIC,  /* a plain read beside atomic updates */
    HS_TEST_EMU_REUSE,         /* a tile filled again while others still read it */
    HS_TEST_EMU_PAST_GLOBAL,   /* one element past an allocation */
    HS_TEST_EMU_BEFORE_GLOBAL, /* one before */
    HS_TEST_EMU_PAST_SHARED,   /* one past the dynamic shared memory asked for */
    HS_TEST_EMU_N_BAD,
    HS_TEST_EMU_GOOD_BARRIER = HS_TEST_EMU_N_BAD,
    HS_TEST_EMU_GOOD_SYNCWARP,
    HS_TEST_EMU_GOOD_CHAIN,  /* lane 0 to 1 by one __syncwarp, 1 to 2 by another one */
    HS_TEST_EMU_GOOD_ATOMIC, /* all threads of all blocks */
    HS_TEST_EMU_GOOD_BYTES,  /* neighbouring bytes */
    HS_TEST_EMU_GOOD_REUSE,
    HS_TEST_EMU_GOOD_BLOCKS,   /* all blocks use the same shared variable */
    HS_TEST_EMU_GOOD_LAUNCHES, /* what one launch wrote, the next one reads */
    HS_TEST_EMU_N_RACE,
} hs_test_emu_race;
/* False where the kernels are compiled without the detector. */
int hs_test_emu_detects(void);
hs_status hs_test_emu_race_case(hs_test_emu_race what, hs_err *err);

/* A stream used from several host threads in turn. */
typedef struct hs_test_emu_stream hs_test_emu_stream;
hs_test_emu_stream *hs_test_emu_open(void);
void hs_test_emu_close(hs_test_emu_stream *s);
/* *out += sum over 64 threads of their index, by shuffles and barriers. */
hs_status hs_test_emu_step(hs_test_emu_stream *s, uint32_t *out, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
