/* The option parser, help, messages, progress, signals and whole texts. */
#include "runtime/cli.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Everything a table can hold, and what the last parse did to it. */
typedef struct fixture {
    bool flag, given;
    int64_t count, free_int;
    uint64_t seed, size;
    double real;
    const char *text, *kind;
    hs_strings list, files;
    hs_opt opts[20];
    hs_cli cli;
    char out[8192], err[4096]; /* what it printed */
    int status;
} fixture;

static void set_up(fixture *f)
{
    *f = (fixture){.count = -1, .kind = "auto"};
    const hs_opt opts[] = {
        {HS_OPT_GROUP, .help = "Input"},
        {HS_OPT_STRING, "model", 'm', &f->text, "FILE", "the model"},
        {HS_OPT_FILES, "input", 'i', &f->files, "TEXT...", "texts"},
        {HS_OPT_LIST, "tensor-type", 0, &f->list, "REGEX=T", "type of some tensors"},
        {HS_OPT_GROUP, .help = "Numbers"},
        {HS_OPT_INT, "n-predict", 'n', &f->count, "N", "tokens (default: 128)", 0, 1000,
         .given = &f->given},
        {HS_OPT_INT, "many", 0, &f->free_int, "N", "no upper limit to speak of", 1, 1e15},
        {HS_OPT_INT, "offset", 0, &f->free_int, "N", "any number"},
        {HS_OPT_UINT, "seed", 's', &f->seed, "N", "seed (default: random)"},
        {HS_OPT_REAL, "temp", 0, &f->real, "X", "temperature (default: 0.8)", 0, 100},
        {HS_OPT_SIZE, "vram-budget", 0, &f->size, "SIZE", "device memory"},
        {HS_OPT_CHOICE, "device", 0, &f->kind, NULL, "where it runs", 0, 0, "auto|none|emu"},
        {HS_OPT_FLAG, "dry-run", 0, &f->flag, NULL, "write nothing"},
        {HS_OPT_END},
    };
    memcpy(f->opts, opts, sizeof opts);
    f->cli = (hs_cli){.program = "hotset-test",
                      .synopsis = "-m M.gguf [OPTIONS] FILE",
                      .summary = "Tests the options.",
                      .example = "-m model.gguf -n 5 out",
                      .opts = f->opts,
                      .max_operands = 2};
}

static void slurp(FILE *from, char *to, size_t cap)
{
    rewind(from);
    to[fread(to, 1, cap - 1, from)] = '\0';
    fclose(from);
}

typedef struct capture {
    FILE *out, *err;
    int saved_out, saved_err;
} capture;

static capture capture_begin(void)
{
    capture c = {tmpfile(), tmpfile(), dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    assert_non_null(c.out);
    assert_non_null(c.err);
    fflush(stdout);
    dup2(fileno(c.out), STDOUT_FILENO);
    dup2(fileno(c.err), STDERR_FILENO);
    return c;
}

static void capture_end(capture *c, fixture *f)
{
    fflush(stdout);
    dup2(c->saved_out, STDOUT_FILENO);
    dup2(c->saved_err, STDERR_FILENO);
    close(c->saved_out);
    close(c->saved_err);
    slurp(c->out, f->out, sizeof f->out);
    slurp(c->err, f->err, sizeof f->err);
}

/* Parse a command line of blank-separated words. */
static void parse(fixture *f, const char *line)
{
    static char copy[512]; /* the parsed strings point into it */
    char *argv[32] = {f->cli.program ? (char *)(uintptr_t)f->cli.program : NULL};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w && argc < 31; w = strtok(NULL, " "))
        argv[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
    capture c = capture_begin();
    f->status = hs_cli_parse(&f->cli, argc, argv);
    capture_end(&c, f);
}

static void tear_down(fixture *f)
{
    hs_cli_fini(&f->cli);
    free(f->list.v);
    free(f->files.v);
}

static void test_values(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    parse(&f, "a -m x.gguf --n-predict=7 --offset -3 -s18446744073709551615 --temp 1e-1 "
              "--vram_budget 3MiB --device none --dry-run --tensor-type a=q --tensor-type b=r "
              "-t2 -qv --json b");
    assert_string_equal(f.err, "");
    assert_int_equal(f.status, -1);
    assert_string_equal(f.text, "x.gguf");
    assert_true(f.count == 7 && f.free_int == -3 && f.seed == UINT64_MAX);
    assert_true(f.real == 0.1 && f.size == 3 << 20);
    assert_string_equal(f.kind, "none");
    assert_true(f.flag && f.given && f.cli.quiet && f.cli.verbose && f.cli.json);
    assert_int_equal(f.cli.threads, 2);
    assert_int_equal(f.list.n, 2);
    assert_string_equal(f.list.v[1], "b=r");
    assert_int_equal(f.cli.n_operands, 2);
    assert_string_equal(f.cli.operands[0], "a");
    assert_string_equal(f.cli.operands[1], "b");
    tear_down(&f);
}

static void test_files_and_operands(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    parse(&f, "-i a b - -m -odd --input=c d -- -m -i");
    assert_string_equal(f.err, "hotset-test: surplus argument '-i'; see --help\n");
    assert_int_equal(f.status, 2);
    assert_null(f.files.v); /* a failed parse leaves nothing to free */
    tear_down(&f);

    set_up(&f);
    parse(&f, "-i a b - -m -odd --input=c d -- -m");
    assert_string_equal(f.err, "");
    assert_int_equal(f.files.n, 4);
    assert_string_equal(f.files.v[1], "b");
    assert_string_equal(f.files.v[2], "-");
    assert_string_equal(f.files.v[3], "c");
    assert_string_equal(f.text, "-odd");
    assert_int_equal(f.cli.n_operands, 2);
    assert_string_equal(f.cli.operands[0], "d");
    assert_string_equal(f.cli.operands[1], "-m");
    tear_down(&f);
}

static void test_usage_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--modle x", "unknown option '--modle'; did you mean '--model'?"},
        {"--temperature 1", "unknown option '--temperature'; did you mean '--temp'?"},
        {"--vram-bugdet=1", "unknown option '--vram-bugdet'; did you mean '--vram-budget'?"},
        {"--n_predcit 1", "unknown option '--n_predcit'; did you mean '--n-predict'?"},
        {"--xyzzy", "unknown option '--xyzzy'; see --help"},
        {"-model x", "unknown option '-model'; did you mean '--model'?"},
        {"-z", "unknown option '-z'; see --help"},
        {"-m", "option '-m' needs a value: FILE"},
        {"--device", "option '--device' needs a value: auto|none|emu"},
        {"--device gpu", "--device: expected one of auto|none|emu, got 'gpu'"},
        {"--device au", "--device: expected one of auto|none|emu, got 'au'"},
        {"--device=", "--device: expected one of auto|none|emu, got ''"},
        {"--dry-run=1", "option '--dry-run' takes no value"},
        {"-n 1001", "-n: expected a whole number from 0 to 1000, got '1001'"},
        {"-n -1", "-n: expected a whole number from 0 to 1000, got '-1'"},
        {"-n 1x", "-n: expected a whole number from 0 to 1000, got '1x'"},
        {"-n 0x10", "-n: expected a whole number from 0 to 1000, got '0x10'"},
        {"--n-predict=", "--n-predict: expected a whole number from 0 to 1000, got ''"},
        {"-n 99999999999999999999",
         "-n: expected a whole number from 0 to 1000, got '99999999999999999999'"},
        {"--offset 9223372036854775808",
         "--offset: expected a whole number, got '9223372036854775808'"},
        {"--offset +1", "--offset: expected a whole number, got '+1'"},
        {"-s -1", "-s: expected a whole number from 0 to 18446744073709551615, got '-1'"},
        {"--temp inf", "--temp: expected a number from 0 to 100, got 'inf'"},
        {"--temp nan", "--temp: expected a number from 0 to 100, got 'nan'"},
        {"--temp 1e999", "--temp: expected a number from 0 to 100, got '1e999'"},
        {"--temp 0x1", "--temp: expected a number from 0 to 100, got '0x1'"},
        {"--temp 1,5", "--temp: expected a number from 0 to 100, got '1,5'"},
        {"--vram-budget 1.5G", "--vram-budget: expected a number of bytes or a size such as 512M "
                               "or 20GiB, got '1.5G'"},
        {"--model=", "--model: expected FILE, got an empty argument"},
        {"-m ''", "-m: expected FILE, got an empty argument"},
        {"-i a '' b", "-i: expected TEXT..., got an empty argument"},
        {"a ''", "an operand is empty; see --help"},
        {"--many 0", "--many: expected a whole number of at least 1, got '0'"},
        {"-t 0", "-t: expected a whole number from 1 to 1024, got '0'"},
        {"a b c", "surplus argument 'c'; see --help"},
        {"--force", "unknown option '--force'; see --help"}, /* has_output is not set */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        set_up(&f);
        parse(&f, cases[i].line);
        char want[512];
        snprintf(want, sizeof want, "hotset-test: %s\n", cases[i].message);
        assert_string_equal(f.err, want);
        assert_string_equal(f.out, "");
        assert_int_equal(f.status, 2);
        tear_down(&f);
    }
}

static void test_missing_operand(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.cli.min_operands = 1;
    parse(&f, "-m x");
    assert_string_equal(f.err, "hotset-test: missing argument; usage: hotset-test -m M.gguf "
                               "[OPTIONS] FILE\n");
    assert_int_equal(f.status, 2);
    parse(&f, "--help");
    assert_int_equal(f.status, 0);
    tear_down(&f);
}

static void test_common_options_yield(void **state)
{
    (void)state;
    const char *threads = NULL, *file = NULL;
    const hs_opt opts[] = {
        {HS_OPT_STRING, "threads", 't', &threads, "LIST", "thread counts"},
        {HS_OPT_STRING, "file", 'f', &file, "FILE", "prompt"},
        {HS_OPT_END},
    };
    fixture f;
    set_up(&f);
    f.cli.opts = opts;
    f.cli.has_output = f.cli.has_text = f.cli.has_model = true;
    parse(&f, "-t 1,2 -f p.txt --force --no-bos --special --cpu scalar");
    assert_string_equal(f.err, "");
    assert_string_equal(threads, "1,2");
    assert_string_equal(file, "p.txt");
    assert_true(f.cli.force && f.cli.no_bos && f.cli.special);
    assert_string_equal(f.cli.cpu, "scalar");
    assert_int_equal(f.cli.threads, 0);
    tear_down(&f);
}

static void test_help(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    f.opts[1].help = "a help text that goes on for so long that it needs a second line, and "
                     "with \xe2\x80\xa6 in it, and then a third one";
    f.cli.example =
        "-m model.gguf --vram-budget 8G --list a,b,c,d --text 0123456789 -p 'In the beginning'";
    parse(&f, "-m x --help --nonsense");
    assert_int_equal(f.status, 0);
    assert_string_equal(f.err, "");
    static const char *const parts[] = {
        "Usage: hotset-test -m M.gguf [OPTIONS] FILE\n\nTests the options.\n\nInput:\n",
        "\n  -m, --model FILE          a help text",
        "\n      --tensor-type REGEX=T...\n                            type of some tensors\n",
        "\nNumbers:\n  -n, --n-predict N         tokens (default: 128)\n",
        "\n      --device auto|none|emu\n                            where it runs\n",
        "\nCommon options:\n",
        "\n  -h, --help ",
        "  hotset-test -m model.gguf --vram-budget 8G --list a,b,c,d --text 0123456789 \\\n",
        "      -p 'In the beginning'\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(f.out, parts[i]))
            fail_msg("not in --help: %s\n%s", parts[i], f.out);
    for (char *line = strtok(f.out, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 82); /* 80 columns; the ellipsis has two bytes more */
    tear_down(&f);
}

static void test_version(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    parse(&f, "--version");
    assert_int_equal(f.status, 0);
    assert_non_null(strstr(f.out, "hotset-test 0."));
    assert_non_null(strstr(f.out, "\ncompiler: "));
    assert_non_null(strstr(f.out, "\ncpu: "));
    assert_true(strstr(f.out, "\ncuda: yes\n") || strstr(f.out, "\ncuda: no\n"));
    tear_down(&f);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        uint64_t bytes;
    } cases[] = {
        {"0", true, 0},
        {"1048576", true, 1 << 20},
        {"512K", true, 512 << 10},
        {"4MiB", true, 4 << 20},
        {"12G", true, (uint64_t)12 << 30},
        {"2T", true, (uint64_t)2 << 40},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"17592186044416M", false, 0},
        {"16777215T", true, (uint64_t)16777215 << 40},
        {"", false, 0},
        {"K", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1KB", false, 0},
        {"1Ki", false, 0},
        {"1KiBx", false, 0},
        {"1P", false, 0},
        {"0x10", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t v = 0;
        if (hs_parse_size(cases[i].text, &v) != cases[i].good || v != cases[i].bytes)
            fail_msg("size '%s' gave %llu", cases[i].text, (unsigned long long)v);
    }
}

static void test_format_bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},           {1023, "1023 B"},       {1024, "1.0 KiB"},        {1536, "1.5 KiB"},
        {1048575, "1.0 MiB"}, {18140364, "17.3 MiB"}, {UINT64_MAX, "16.0 EiB"},
    };
    char buf[24];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(hs_format_bytes(buf, sizeof buf, cases[i].bytes), cases[i].text);
}

static void test_messages(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    hs_err err;
    hs_fail(&err, HS_ERR_FORMAT, "m.gguf: broken\nname");
    capture c = capture_begin();
    const int failed = hs_cli_fail(&f.cli, &err);
    const int usage = hs_cli_usage(&f.cli, "needs %s", "-m");
    hs_cli_warn(&f.cli, "odd \x1b[31m file");
    hs_cli_note(&f.cli, "note %d", 1);
    hs_cli_debug(&f.cli, "hidden");
    f.cli.quiet = f.cli.verbose = true;
    hs_cli_note(&f.cli, "hidden");
    hs_cli_warn(&f.cli, "still");
    hs_cli_debug(&f.cli, "detail");
    capture_end(&c, &f);
    assert_int_equal(failed, 3);
    assert_int_equal(usage, 2);
    assert_string_equal(f.out, "");
    assert_string_equal(f.err, "hotset-test: m.gguf: broken?name\n"
                               "hotset-test: needs -m\n"
                               "hotset-test: warning: odd ?[31m file\n"
                               "hotset-test: note 1\n"
                               "hotset-test: warning: still\n"
                               "hotset-test: detail\n");
}

static void test_read_text(void **state)
{
    (void)state;
    char *text;
    size_t n;
    hs_err err;
    char path[] = "/tmp/test_cli.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char bytes[] = "\xef\xbb\xbf one\r\n\0two\n";
    assert_int_equal(write(fd, bytes, sizeof bytes), (int)sizeof bytes);
    assert_int_equal(hs_read_text(path, &text, &n, &err), HS_OK);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(text, bytes, n);
    assert_int_equal(text[n], 0);
    free(text);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(hs_read_text(path, &text, &n, &err), HS_OK);
    assert_true(n == 0 && text && !text[0]);
    free(text);
    assert_int_equal(ftruncate(fd, 200000), 0);
    assert_int_equal(hs_read_text(path, &text, &n, &err), HS_OK);
    assert_int_equal(n, 200000);
    free(text);
    close(fd);
    unlink(path);
    assert_int_equal(hs_read_text(path, &text, &n, &err), HS_ERR_INPUT);
    assert_non_null(strstr(err.msg, "cannot open: No such file"));
    assert_memory_equal(err.msg, path, strlen(path));
    assert_int_equal(hs_read_text("/", &text, &n, &err), HS_ERR_INPUT);
    assert_null(text);
}

/* In a child: its exit status, or minus the signal that killed it. */
static int in_child(int (*run)(void *), void *ud)
{
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(run(ud));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int interrupted_once(void *ud)
{
    (void)ud;
    static fixture f;
    set_up(&f);
    signal(SIGINT, SIG_DFL);
    parse(&f, "a");
    hs_progress p;
    hs_progress_init(&p, &f.cli, "working", "tokens");
    if (hs_cli_interrupted() || !hs_progress_step(&p, 1, 2))
        return 1;
    raise(SIGINT);
    if (!hs_cli_interrupted() || hs_progress_step(&p, 2, 2))
        return 2;
    tear_down(&f);
    return 42;
}

static int interrupted_twice(void *ud)
{
    (void)interrupted_once(ud);
    raise(SIGTERM); /* any of the two counts as the second */
    return 3;
}

static int ignored_signal(void *ud)
{
    (void)ud;
    static fixture f;
    set_up(&f);
    signal(SIGINT, SIG_IGN);
    parse(&f, "a");
    raise(SIGINT);
    return hs_cli_interrupted() ? 1 : 42;
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(in_child(interrupted_once, NULL), 42);
    assert_int_equal(in_child(interrupted_twice, NULL), -SIGTERM);
    assert_int_equal(in_child(ignored_signal, NULL), 42);
}

/* stdout is a pipe without a reader, or a full device; ud says which. */
static int write_to_broken_stdout(void *ud)
{
    static fixture f;
    set_up(&f);
    parse(&f, "a");
    int ends[2];
    if (pipe(ends) != 0)
        return 1;
    close(ends[0]);
    FILE *err = tmpfile();
    FILE *full = fopen("/dev/full", "w");
    if (!err || !full)
        return 2;
    dup2(ud ? fileno(full) : ends[1], STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    for (int i = 0; i < 10000; i++)
        puts("some text that fills the buffer");
    const int status = hs_cli_finish(&f.cli, 0);
    slurp(err, f.err, sizeof f.err);
    return status * 10 + (f.err[0] != '\0');
}

static void test_broken_stdout(void **state)
{
    (void)state;
    assert_int_equal(in_child(write_to_broken_stdout, NULL), 10); /* silently exit 1 */
    int full = 1;
    assert_int_equal(in_child(write_to_broken_stdout, &full), 11);
}

static void test_progress_without_terminal(void **state)
{
    (void)state;
    fixture f;
    set_up(&f);
    hs_progress p;
    capture c = capture_begin();
    hs_progress_init(&p, &f.cli, "profiling", "tokens");
    hs_progress_step(&p, 1, 100);
    p.started -= 20;
    p.shown -= 20;
    hs_progress_step(&p, 40, 100);
    hs_progress_step(&p, 41, 100); /* within 10 s of the last line */
    hs_progress_end(&p);
    f.cli.quiet = true;
    p.shown -= 20;
    hs_progress_step(&p, 50, 100);
    f.cli.quiet = false;
    hs_progress_init(&p, &f.cli, "copying", "B");
    p.started -= 10;
    p.shown -= 10;
    hs_progress_step(&p, 30 << 20, 0);
    capture_end(&c, &f);
    assert_string_equal(f.out, "");
    assert_string_equal(f.err, "hotset-test: profiling: 40 of 100 tokens, 2.0 tokens/s, 0:30 left\n"
                               "hotset-test: copying: 30.0 MiB, 3.0 MiB/s\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_files_and_operands),
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_missing_operand),
        cmocka_unit_test(test_common_options_yield),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_format_bytes),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_read_text),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_broken_stdout),
        cmocka_unit_test(test_progress_without_terminal),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
