/* Compiled for test programs only, never with -fsanitize=thread itself: it takes the place of that
 * sanitizer's library (the names below are the compiler's). */
#include "runtime/cuda/emu_race.h"

#include "runtime/cuda/emu_fiber.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, TABLE = 1 << 16, WARPS = 32, LANES = 32, MAX_BLOCKS = 64 };

/* One access: set, atomic, thread, block, barriers of the block before it, the lane's clock. */
typedef struct visit {
    uint32_t block;
    uint16_t epoch, clock;
    uint16_t thread;
    bool set, atomic;
} visit;

typedef struct cell {
    uint32_t launch; /* what is older counts as empty */
    visit write, read[2];
} cell;

typedef struct page {
    uintptr_t base;
    cell *cell; /* [PAGE] */
} page;

/* Of one host thread: its launch, and the memory it has seen. */
typedef struct state {
    hs_emu_race_launch launch;
    uint32_t number, block;
    uint16_t epoch;
    /* knows[w][a][b]: the clock of lane b that lane a has met at a __syncwarp. */
    uint16_t knows[WARPS][LANES][LANES];
    uintptr_t tls[2];            /* __shared__ variables lie here */
    bool atomic, running, found; /* atomic: within one's update */
    char text[224];
    page table[TABLE];
} state;

static __thread state *now;

typedef struct block {
    const uint8_t *base;
    size_t bytes;
    uint8_t *granule; /* bytes that may be touched of each 64, or NULL: all */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block blocks[MAX_BLOCKS];

/* ---- allocations ----------------------------------------------------------------------- */

void hs_emu_race_alloc(const void *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (!blocks[i].base) {
            blocks[i] = (block){p, bytes, NULL};
            break;
        }
    pthread_mutex_unlock(&lock);
}

static block *block_of(uintptr_t at)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].base && at >= (uintptr_t)blocks[i].base - HS_EMU_RACE_GUARD &&
            at < (uintptr_t)blocks[i].base + blocks[i].bytes + HS_EMU_RACE_GUARD)
            return &blocks[i];
    return NULL;
}

void hs_emu_race_parts(const void *p)
{
    block *b = block_of((uintptr_t)p);
    if (b && !b->granule && !(b->granule = calloc(b->bytes / 64 + 1, 1)))
        abort();
}

void hs_emu_race_part(const void *p, size_t bytes)
{
    block *b = block_of((uintptr_t)p);
    if (!b || !b->granule)
        return;
    const size_t at = (size_t)((const uint8_t *)p - b->base);
    for (size_t i = 0; i < bytes; i += 64)
        b->granule[(at + i) / 64] = (uint8_t)(bytes - i < 64 ? bytes - i : 64);
}

void hs_emu_race_free(const void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (p && blocks[i].base == p) {
            free(blocks[i].granule);
            blocks[i] = (block){0};
        }
    pthread_mutex_unlock(&lock);
}

/* ---- a launch -------------------------------------------------------------------------- */

/* Thread-local variables of this program, on this thread. */
static int find_tls(struct dl_phdr_info *info, size_t size, void *ud)
{
    (void)size;
    uintptr_t *tls = ud;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            tls[0] = (uintptr_t)info->dlpi_tls_data;
            tls[1] = tls[0] + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program comes first */
}

void hs_emu_race_begin(const hs_emu_race_launch *launch)
{
    if (!now && !(now = calloc(1, sizeof *now)))
        abort();
    now->launch = *launch;
    now->number++;
    now->found = false;
    now->atomic = false;
    dl_iterate_phdr(find_tls, now->tls);
    now->running = true;
}

void hs_emu_race_block(uint32_t index)
{
    now->block = index;
    now->epoch = 0;
    memset(now->knows, 0, sizeof now->knows);
}

void hs_emu_race_barrier(void)
{
    if (++now->epoch == 0)
        abort(); /* more barriers than an access can hold */
}

/* A lane's own clock is knows[w][a][a] + 1: what it does from here on. */
void hs_emu_race_syncwarp(unsigned warp, uint32_t mask)
{
    uint16_t joined[LANES] = {0}, (*k)[LANES] = now->knows[warp % WARPS];
    for (unsigned a = 0; a < LANES; a++)
        if (mask >> a & 1) {
            if (++k[a][a] == UINT16_MAX)
                abort();
            for (unsigned b = 0; b < LANES; b++)
                joined[b] = k[a][b] > joined[b] ? k[a][b] : joined[b];
        }
    for (unsigned a = 0; a < LANES; a++)
        if (mask >> a & 1)
            memcpy(k[a], joined, sizeof joined);
}

void hs_emu_race_atomic(bool begin)
{
    if (now)
        now->atomic = begin;
}

/* The pages stay for the next launch; a host thread that ends leaves them to its program's end. */
bool hs_emu_race_end(char *text, size_t cap)
{
    now->running = false;
    if (now->found)
        snprintf(text, cap, "%s", now->text);
    return now->found;
}

/* ---- accesses -------------------------------------------------------------------------- */

static cell *cell_of(uintptr_t at)
{
    const uintptr_t base = at / PAGE * PAGE;
    for (size_t h = (base / PAGE * 0x9e3779b97f4a7c15u >> 40) % TABLE, n = 0; n < TABLE;
         h = (h + 1) % TABLE, n++) {
        page *p = &now->table[h];
        if (!p->cell) {
            p->base = base;
            p->cell = calloc(PAGE, sizeof *p->cell);
        }
        if (!p->cell)
            abort();
        if (p->base == base)
            return &p->cell[at - base];
    }
    abort();
}

static bool ordered(const visit *a, const visit *b)
{
    if (a->block != b->block)
        return false;
    if (a->thread == b->thread || a->epoch != b->epoch)
        return true;
    return a->thread / LANES == b->thread / LANES &&
           now->knows[b->thread / LANES][b->thread % LANES][a->thread % LANES] >= a->clock;
}

static void conflict(const visit *a, const visit *b, const char *where, const char *did,
                     const char *does)
{
    if (now->found || !a->set || (a->atomic && b->atomic) || ordered(a, b))
        return;
    now->found = true;
    snprintf(now->text, sizeof now->text,
             "race in %s memory: block %u thread %u %s, block %u thread %u %s, no barrier between",
             where, a->block, a->thread, did, b->block, b->thread, does);
}

static void touch(uintptr_t at, const visit *me, bool shared, bool write)
{
    const char *where = shared ? "shared" : "global";
    cell *c = cell_of(at);
    /* Another block's shared memory is another memory. */
    const bool stale =
        c->launch != now->number || (shared && ((c->write.set && c->write.block != me->block) ||
                                                (c->read[0].set && c->read[0].block != me->block)));
    if (stale)
        *c = (cell){.launch = now->number};
    conflict(&c->write, me, where, "wrote", write ? "writes" : "reads");
    if (write) {
        conflict(&c->read[0], me, where, "read", "writes");
        conflict(&c->read[1], me, where, "read", "writes");
        c->write = *me;
        if (!c->read[0].set || ordered(&c->read[0], me))
            c->read[0].set = false;
        if (!c->read[1].set || ordered(&c->read[1], me))
            c->read[1].set = false;
        return;
    }
    visit *r = c->read;
    if (!r[0].set || (ordered(&r[0], me) && r[0].thread == me->thread) ||
        (r[0].block == me->block && r[0].epoch != me->epoch))
        r[0] = *me;
    else if (!r[1].set || r[1].block == r[0].block)
        /* Two readers as far apart as possible: of two blocks, else of two warps. */
        if (!r[1].set || me->block != r[0].block || r[1].epoch != me->epoch ||
            r[1].thread / LANES == r[0].thread / LANES)
            r[1] = *me;
}

static bool inside(uintptr_t at, const void *from, const void *to)
{
    return at >= (uintptr_t)from && at < (uintptr_t)to;
}

/* The first byte of [at, at + n) that nobody may touch lies beside which memory; NULL: none. */
static const char *outside(uintptr_t at, size_t n)
{
    const hs_emu_race_launch *l = &now->launch;
    const uintptr_t s = (uintptr_t)l->shared;
    if (at >= s && at < s + l->shared_limit && at + n > s + l->shared_bytes)
        return "shared";
    const block *b = block_of(at);
    if (!b)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const uintptr_t o = at + i - (uintptr_t)b->base;
        if (at + i < (uintptr_t)b->base || o >= b->bytes ||
            (b->granule && o % 64 >= b->granule[o / 64]))
            return "global";
    }
    return NULL;
}

static void access_at(uintptr_t at, size_t n, bool write)
{
    if (!now || !now->running || now->found)
        return;
    const hs_emu_fiber *f = *now->launch.cur;
    if (!f->warp)
        return;
    for (int i = 0; i < 4; i++)
        if (inside(at, now->launch.own[i][0], now->launch.own[i][1]))
            return;
    write = write || now->atomic;
    const unsigned w = f->index / LANES;
    const visit me = {
        now->block,         now->epoch, (uint16_t)(now->knows[w][f->lane][f->lane] + 1),
        (uint16_t)f->index, true,       now->atomic};
    const char *beside = outside(at, n);
    if (beside) {
        now->found = true;
        snprintf(now->text, sizeof now->text,
                 "block %u thread %u: %s of %zu bytes out of bounds in %s memory", me.block,
                 me.thread, write ? "write" : "read", n, beside);
        return;
    }
    const uintptr_t s = (uintptr_t)now->launch.shared;
    const bool shared =
        (at >= s && at < s + now->launch.shared_limit) || (at >= now->tls[0] && at < now->tls[1]);
    for (size_t i = 0; i < n; i++)
        touch(at + i, &me, shared, write);
}

/* ---- what the compiler calls ------------------------------------------------------------ */

#define HOOK(name, write, n)           \
    void __tsan_##name(const void *p); \
    void __tsan_##name(const void *p) { access_at((uintptr_t)p, n, write); }
HOOK(read1, false, 1)
HOOK(read2, false, 2)
HOOK(read4, false, 4)
HOOK(read8, false, 8)
HOOK(read16, false, 16)
HOOK(write1, true, 1)
HOOK(write2, true, 2)
HOOK(write4, true, 4)
HOOK(write8, true, 8)
HOOK(write16, true, 16)
HOOK(unaligned_read2, false, 2)
HOOK(unaligned_read4, false, 4)
HOOK(unaligned_read8, false, 8)
HOOK(unaligned_read16, false, 16)
HOOK(unaligned_write2, true, 2)
HOOK(unaligned_write4, true, 4)
HOOK(unaligned_write8, true, 8)
HOOK(unaligned_write16, true, 16)

void __tsan_read_range(const void *p, size_t n);
void __tsan_read_range(const void *p, size_t n) { access_at((uintptr_t)p, n, false); }
void __tsan_write_range(const void *p, size_t n);
void __tsan_write_range(const void *p, size_t n) { access_at((uintptr_t)p, n, true); }
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(const void *caller);
void __tsan_func_entry(const void *caller) { (void)caller; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void *__tsan_memset(void *p, int value, size_t n);
void *__tsan_memset(void *p, int value, size_t n)
{
    access_at((uintptr_t)p, n, true);
    return memset(p, value, n);
}
void *__tsan_memcpy(void *to, const void *from, size_t n);
void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    access_at((uintptr_t)from, n, false);
    access_at((uintptr_t)to, n, true);
    return memcpy(to, from, n);
}
