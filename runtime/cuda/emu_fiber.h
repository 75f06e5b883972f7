#ifndef HS_RUNTIME_CUDA_EMU_FIBER_H
#define HS_RUNTIME_CUDA_EMU_FIBER_H

/* Fibers for the CUDA emulation (emu.h): one is one GPU thread.
 *
 * A switch is a plain jump between stacks: instruction, stack and frame pointer are exchanged,
 * every other register is declared clobbered, so the compiler saves just what is live.  Floating
 * point control words are shared by all fibers.  x86-64 and aarch64 have their own few
 * instructions; elsewhere, or with HS_EMU_UCONTEXT, <ucontext.h> does it (about 100 times slower,
 * since it saves the signal mask).  AddressSanitizer is told of every switch; ThreadSanitizer of
 * those between host and device: the fibers of a stream, one after the other on one thread, are
 * one context to it (a context each would cost microseconds a switch).
 *
 * A fiber that has returned from a kernel stays in its entry loop, ready for the next block, so
 * stacks and sanitizer state are made once. */

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* HS_EMU_RACE: compiled for the detector of emu_race.h, which has the thread sanitizer's calls but
 * not its library. */
#ifndef HS_EMU_RACE
#define HS_EMU_RACE 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HS_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HS_EMU_ASAN 1
#endif
#endif
#if HS_EMU_RACE
#elif defined(__SANITIZE_THREAD__)
#define HS_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HS_EMU_TSAN 1
#endif
#endif
#ifndef HS_EMU_ASAN
#define HS_EMU_ASAN 0
#endif
#ifndef HS_EMU_TSAN
#define HS_EMU_TSAN 0
#endif

#if HS_EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if HS_EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(HS_EMU_UCONTEXT)
#define HS_EMU_UCONTEXT 1
#endif

/* Kernels keep little on the stack; instrumented frames are several times larger. */
#if HS_EMU_ASAN || HS_EMU_TSAN || HS_EMU_RACE || defined(HS_EMU_UCONTEXT)
enum { HS_EMU_STACK = 128 << 10 };
#else
enum { HS_EMU_STACK = 32 << 10 };
#endif

#ifdef HS_EMU_UCONTEXT
#include <ucontext.h>
typedef ucontext_t hs_emu_ctx;
#else
typedef struct hs_emu_ctx {
    void *pc, *sp, *fp;
} hs_emu_ctx;
#endif

struct hs_emu_warp;

typedef struct hs_emu_fiber {
    hs_emu_ctx ctx;
    struct hs_emu_warp *warp;
    unsigned index, lane; /* x + blockDim.x * (y + blockDim.y * z), and that modulo 32 */
    const void *stack;    /* lowest usable byte; of the host's stack as AddressSanitizer tells it */
    size_t stack_bytes;
    struct {
        unsigned x, y, z;
    } tid;            /* threadIdx */
    void *fake_stack; /* AddressSanitizer's */
} hs_emu_fiber;

#ifdef HS_EMU_UCONTEXT
static inline void hs_emu_jump(hs_emu_ctx *from, const hs_emu_ctx *to) { swapcontext(from, to); }
#elif defined(__x86_64__)
#ifdef __CET__
#define HS_EMU_LANDING "endbr64\n\t"
#else
#define HS_EMU_LANDING ""
#endif
#ifdef __AVX512F__
#define HS_EMU_CLOBBER_AVX512                                                                     \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",   \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", \
        "k7"
#else
#define HS_EMU_CLOBBER_AVX512
#endif
/* Nothing is pushed, so a red zone below the stack pointer survives. */
static inline __attribute__((always_inline)) void hs_emu_jump(hs_emu_ctx *from,
                                                              const hs_emu_ctx *to)
{
    __asm__ volatile("leaq 1f(%%rip), %%rax\n\t"
                     "movq %%rax, (%0)\n\t"
                     "movq %%rsp, 8(%0)\n\t"
                     "movq %%rbp, 16(%0)\n\t"
                     "movq 8(%1), %%rsp\n\t"
                     "movq 16(%1), %%rbp\n\t"
                     "jmpq *(%1)\n"
                     "1:\t" HS_EMU_LANDING
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15" HS_EMU_CLOBBER_AVX512, "cc", "memory");
}
#else
static inline __attribute__((always_inline)) void hs_emu_jump(hs_emu_ctx *from,
                                                              const hs_emu_ctx *to)
{
    register hs_emu_ctx *x0 __asm__("x0") = from;
    register const hs_emu_ctx *x1 __asm__("x1") = to;
    /* hint 36 is "bti j", a valid landing place for br where branch targets are enforced. */
    __asm__ volatile("adr x16, 1f\n\t"
                     "mov x17, sp\n\t"
                     "stp x16, x17, [%0]\n\t"
                     "str x29, [%0, #16]\n\t"
                     "ldp x16, x17, [%1]\n\t"
                     "ldr x29, [%1, #16]\n\t"
                     "mov sp, x17\n\t"
                     "br x16\n"
                     "1:\thint 36"
                     : "+r"(x0), "+r"(x1)
                     :
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
                       "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24",
                       "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
                       "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17",
                       "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
                       "v29", "v30", "v31", "cc", "memory");
}
#endif

/* Aim the fiber at the start of `entry`, which never returns, whatever it did before. */
static inline void hs_emu_fiber_aim(hs_emu_fiber *f, void (*entry)(void))
{
#if HS_EMU_ASAN
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
    f->fake_stack = NULL;
#endif
#ifdef HS_EMU_UCONTEXT
    getcontext(&f->ctx);
    f->ctx.uc_stack.ss_sp = (void *)(uintptr_t)f->stack;
    f->ctx.uc_stack.ss_size = f->stack_bytes;
    f->ctx.uc_link = NULL;
    makecontext(&f->ctx, entry, 0);
#else
    /* Stacks lie at equal distances: without an offset of their own all fibers of a warp would
     * compete for the same few cache sets. */
    uintptr_t top = (uintptr_t)f->stack + f->stack_bytes - (size_t)f->lane * 192;
    top = (top & ~(uintptr_t)63) - 64;
#ifdef __x86_64__
    top -= 8; /* as after a call; the return address is 0, where backtraces end */
    *(uintptr_t *)top = 0;
#endif
    f->ctx.pc = (void *)(uintptr_t)entry;
    f->ctx.sp = (void *)top;
    f->ctx.fp = NULL;
#endif
}

/* Stacks of n fibers, an inaccessible page below each.  NULL when memory is short. */
static inline uint8_t *hs_emu_stacks_new(size_t n, size_t *step)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t stack = (HS_EMU_STACK + page - 1) / page * page;
    *step = stack + page;
    void *p = mmap(NULL, n * *step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (mprotect((uint8_t *)p + i * *step, page, PROT_NONE) != 0) {
            munmap(p, n * *step);
            return NULL;
        }
    return (uint8_t *)p;
}

static inline void hs_emu_stacks_free(uint8_t *stacks, size_t n, size_t step)
{
#if HS_EMU_ASAN
    if (stacks)
        __asan_unpoison_memory_region(stacks, n * step);
#endif
    if (stacks)
        munmap(stacks, n * step);
}

#endif
