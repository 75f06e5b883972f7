/* A device that fails: hotset-run on the emulated device with each of its calls failing in turn,
 * or lost from some token on.  One line says so, the exit status is what the manual says, and
 * nothing hangs or, under AddressSanitizer, leaks. */
#define load load_model /* main.c has one too */
#include "tests/unit/runtime_util.h"
#undef load
int hotset_run_main(int argc, char **argv);
#define main hotset_run_main
#include "runtime/main.c"
#undef main

#include <sys/wait.h>

/* Before a call that can fail: the n-th of that name fails with `error`, or all from it on. */
static struct {
    const char *call; /* NULL: any */
    int n, error;
    bool lasting;
    int seen;
} plan;

int hs_emu_inject(const char *call) __attribute__((visibility("default")));
int hs_emu_inject(const char *call)
{
    if (!plan.error || (plan.call && strcmp(call, plan.call) != 0))
        return 0;
    plan.seen++;
    return plan.seen == plan.n || (plan.lasting && plan.seen > plan.n) ? plan.error : 0;
}

enum { OUT_OF_MEMORY = 2, LOST = 46, KERNEL_FAILURE = 719 };

static char path[] = "/tmp/hotset-test-XXXXXX";

static int run_child(int fd)
{
    char line[512], *argv[32], *rest = NULL;
    int argc = 0;
    snprintf(line, sizeof line,
             "hotset-run -q -m tests/golden/mmask.gguf --placement %s --device emu --tokens "
             "1,5,9,30,17,44,3,8,61,12 -n 12 --temp 0 -c 32 -t 2 --ignore-eos",
             path);
    for (char *w = strtok_r(line, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    argv[argc] = NULL;
    dup2(fd, 2);
    if (!freopen("/dev/null", "w", stdout))
        return 99;
    alarm(60); /* a hang ends here */
    return hotset_run_main(argc, argv);
}

/* What it said, and the exit status; -1: a signal. */
static int run_with_plan(char *said, size_t cap)
{
    int fds[2], status;
    size_t n = 0;
    ssize_t got;
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        exit(run_child(fds[1]));
    }
    close(fds[1]);
    while (n + 1 < cap && (got = read(fds[0], said + n, cap - n - 1)) > 0)
        n += (size_t)got;
    said[n] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* One line, of this program and about the device, with this in it; false when nothing failed. */
static bool may_fail(const char *what, int want, const char *text)
{
    char said[4096];
    const int status = run_with_plan(said, sizeof said);
    const char *line = strchr(said, '\n');
    if (status == 0 && !said[0])
        return false;
    if (status != want || !line || line[1] || strncmp(said, "hotset-run: ", 12) != 0 ||
        !strstr(said, "device emu: ") || !strstr(said, text))
        fail_msg("%s: exit status %d, expected %d; said \"%s\"", what, status, want, said);
    return true;
}

static void fails_cleanly(const char *what, int want, const char *text)
{
    if (!may_fail(what, want, text))
        fail_msg("%s: did not fail", what);
}

/* The plan's call fails at its 1st, 1 + step-th, … time, until a run needs no more of them. */
static void fails_everywhere(int step, const char *text)
{
    int n = 1;
    for (plan.n = 1; may_fail(plan.call ? plan.call : "any call", 1, text); n++)
        plan.n += step;
    assert_true(n > 5);
}

static void set_placement(place_kind kind, unsigned dense)
{
    hs_model *m = load_model("tests/golden/mmask.gguf");
    hs_placement *p = make_placement(m, kind, dense, 32, HS_F16);
    write_placement(p, path);
    hs_placement_free(p);
    hs_model_free(m);
}

static void nothing_fails(void **state)
{
    (void)state;
    char said[4096];
    set_placement(PLACE_ALTERNATING, DENSE_ALL);
    plan.error = 0;
    assert_int_equal(run_with_plan(said, sizeof said), 0);
    assert_string_equal(said, "");
}

static void each_start_fails(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int error, status;
        const char *text;
    } cases[] = {
        {"cudaMalloc", OUT_OF_MEMORY, 4, "the plan needs "},
        {"cudaMalloc", LOST, 1, "reserving the arena: the device is lost"},
        {"cudaHostAlloc", OUT_OF_MEMORY, 1, "reserving pinned memory: out of memory"},
        {"cudaStreamCreate", OUT_OF_MEMORY, 1, "creating a stream: out of memory"},
        {"cudaEventCreate", OUT_OF_MEMORY, 1, "creating an event: out of memory"},
        {"cudaGetDeviceCount", LOST, 1, "the device is lost"},
        {"cudaMemcpyAsync", LOST, 1, "upload: the device is lost"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plan.call = cases[i].call;
        plan.n = 1;
        plan.error = cases[i].error;
        plan.lasting = true;
        fails_cleanly(cases[i].call, cases[i].status, cases[i].text);
    }
}

static void a_call_fails_once(void **state)
{
    (void)state;
    static const char *const calls[] = {"cudaMemcpyAsync", "launch", "cudaEventSynchronize"};
    static const int step[] = {23, 13, 7};
    set_placement(PLACE_ALTERNATING, DENSE_ALL);
    for (int i = 0; i < 3; i++) {
        plan.call = calls[i];
        plan.error = KERNEL_FAILURE;
        plan.lasting = false;
        fails_everywhere(step[i], "kernel failure");
    }
}

static void a_graph_fails(void **state)
{
    (void)state;
    set_placement(PLACE_ALL, DENSE_ALL);
    plan.n = 1;
    plan.error = OUT_OF_MEMORY;
    plan.lasting = false;
    plan.call = "cudaGraphInstantiate";
    fails_cleanly(plan.call, 1, "making a graph: out of memory");
    plan.call = "cudaGraphLaunch";
    plan.n = 3;
    fails_cleanly(plan.call, 1, "launching a graph: out of memory");
}

/* From the k-th call on whatever its name, all fail: k over the whole run. */
static void the_device_is_lost(void **state)
{
    (void)state;
    static const place_kind kinds[] = {PLACE_ALL, PLACE_ALTERNATING, PLACE_ALTERNATING};
    static const unsigned dense[] = {DENSE_ALL, DENSE_ALL, DENSE_ATTN | DENSE_PREDICTOR};
    for (int i = 0; i < 3; i++) {
        set_placement(kinds[i], dense[i]);
        plan.call = NULL;
        plan.error = LOST;
        plan.lasting = true;
        fails_everywhere(31, "the device is lost");
    }
}

static int set_up(void **state)
{
    (void)state;
    temp_path(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_fails),      cmocka_unit_test(each_start_fails),
        cmocka_unit_test(a_call_fails_once),  cmocka_unit_test(a_graph_fails),
        cmocka_unit_test(the_device_is_lost),
    };
    return cmocka_run_group_tests_name("fault", tests, set_up, tear_down);
}
