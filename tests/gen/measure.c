/* Run a command and watch it from outside, for the command-line tests.
 *
 *   measure [-m MIB] [-t MS] [-k SIGNAL@MS] [-s] COMMAND...
 *
 * -m, -t: after it ended, complain and exit 99 when its peak resident memory or its time was
 * above the limit.  -k: send the signal after so many milliseconds.  -s: print "MS KIB".
 * Otherwise the exit status is the command's, 128 + signal when one ended it.  SIGINT and
 * SIGTERM reach the command even where a shell started this with them ignored. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int usage(void)
{
    fprintf(stderr, "usage: measure [-m MIB] [-t MS] [-k SIGNAL@MS] [-s] COMMAND...\n");
    return 98;
}

static void sleep_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
    long max_mib = 0, max_ms = 0, after_ms = 0;
    int sig = 0, show = 0, c;
    while ((c = getopt(argc, argv, "+m:t:k:s")) != -1) {
        if (c == 'm')
            max_mib = strtol(optarg, NULL, 10);
        else if (c == 't')
            max_ms = strtol(optarg, NULL, 10);
        else if (c == 's')
            show = 1;
        else if (c == 'k' && strchr(optarg, '@')) {
            sig = (int)strtol(optarg, NULL, 10);
            after_ms = strtol(strchr(optarg, '@') + 1, NULL, 10);
        } else
            return usage();
    }
    if (optind >= argc)
        return usage();
    const double start = now_ms();
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        execvp(argv[optind], argv + optind);
        perror(argv[optind]);
        _exit(97);
    }
    if (pid < 0)
        return 98;
    if (sig) {
        sleep_ms(after_ms);
        kill(pid, sig); /* not reaped yet, so the number is still its own */
    }
    int status;
    struct rusage use;
    if (wait4(pid, &status, 0, &use) != pid)
        return 98;
    const double ms = now_ms() - start;
    if (show)
        printf("%.0f %ld\n", ms, use.ru_maxrss);
    if (max_mib && use.ru_maxrss > max_mib * 1024)
        return fprintf(stderr, "measure: %ld KiB resident\n", use.ru_maxrss), 99;
    if (max_ms && ms > (double)max_ms)
        return fprintf(stderr, "measure: %.0f ms\n", ms), 99;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
