#!/bin/sh
# Run the command-line tests: tests/cli/run.sh BUILD [NAME...]   (from the repository root)
# Every tests/cli/NAME.sh gets the build folder as $1, prints "ok" / "not ok" lines and exits
# non-zero when one failed (77: skipped).
set -u
build=${1:?build folder}
shift
[ $# -gt 0 ] || set -- $(ls tests/cli | sed -n 's/\.sh$//p' | grep -vx 'run\|common')
for name; do
    echo "${HS_TIMEOUT:-180} cli/$name ${HS_RUN:-} sh tests/cli/$name.sh $build"
done | if [ -n "${HS_LIST:-}" ]; then cat; else scripts/run-tests "$build/logs"; fi
