/* The share of CPU time that control groups leave this process: version 2 (cpu.max) and
 * version 1 (cpu.cfs_quota_us). */
#include "runtime/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_path = 4096 };

/* CPUs for quota of period, rounded up; 0: no limit. */
static int cpus(long quota, long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    const long n = quota / period + (quota % period != 0);
    return n < 1 << 20 ? (int)n : 0;
}

static int least(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The number in a file, or 0; "max" is none. */
static long number(const char *folder, const char *name, long *second)
{
    char path[max_path], line[64] = "", *end;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const long first = fgets(line, sizeof line, f) ? strtol(line, &end, 10) : 0;
    if (first && second)
        *second = strtol(end, NULL, 10);
    fclose(f);
    return first;
}

/* The group's own limit and those of all above it, up to `root`. */
static int walk(const char *root, const char *group, bool v2)
{
    char path[max_path];
    const size_t base = strlen(root);
    int limit = 0;
    if (snprintf(path, sizeof path, "%s%s", root, group) >= (int)sizeof path)
        return 0;
    for (;;) {
        long period = 0;
        const long quota =
            v2 ? number(path, "cpu.max", &period) : number(path, "cpu.cfs_quota_us", NULL);
        if (!v2)
            period = number(path, "cpu.cfs_period_us", NULL);
        limit = least(limit, cpus(quota, period));
        char *slash = strrchr(path, '/');
        if (strlen(path) <= base || !slash || (size_t)(slash - path) < base)
            return limit;
        *slash = '\0';
    }
}

static bool has_cpu(const char *controllers)
{
    const char *p = controllers;
    for (size_t n; *p; p += n + (p[n] == ',')) {
        n = strcspn(p, ",");
        if (n == 3 && !strncmp(p, "cpu", 3))
            return true;
    }
    return false;
}

int hs_cpu_quota(const char *groups, const char *root)
{
    FILE *f = fopen(groups, "re");
    char line[max_path], v1[max_path];
    int limit = 0;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (controllers[1] == '\0') {
            limit = least(limit, walk(root, group, true));
        } else if (has_cpu(controllers + 1) &&
                   snprintf(v1, sizeof v1, "%s/%s", root, controllers + 1) < (int)sizeof v1) {
            limit = least(limit, walk(v1, group, false));
        }
    }
    if (f)
        fclose(f);
    return limit;
}
