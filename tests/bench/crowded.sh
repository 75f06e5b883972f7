#!/bin/sh
# Decoding while as many other processes as there are cores are busy, as a share of the speed
# without them: alternating rounds on the generated 1B shape, all cores.
# Usage: tests/bench/crowded.sh BUILD   (HS_BENCH_ROUNDS=3)
set -eu
build=${1:?build folder}
rounds=${HS_BENCH_ROUNDS:-3}
make -s BUILD="$build" "$build/gen/model" "$build/gen/json_query" "$build/bin/hotset-bench"
work=$(mktemp -d "$build/bench/crowded.XXXXXX")
busy=
stop() {
    # shellcheck disable=SC2086  # a list of processes
    [ -z "$busy" ] || kill $busy
    busy=
}
trap 'stop; rm -rf "$work"' EXIT INT TERM
"$build/gen/model" -e 2048 -f 8192 -l 16 -H 32 -k 8 -v 32000 -d 1 "$work/model.gguf"
decode() {
    "$build/bin/hotset-bench" -q -m "$work/model.gguf" -p 0 -n 24 -r 1 --no-probe -o json \
        >"$work/json"
    "$build/gen/json_query" get "$work/json" 0.avg_ts
}
for _ in $(seq "$rounds"); do
    idle=$(decode)
    for _ in $(seq "$(nproc)"); do
        sh -c 'while :; do :; done' &
        busy="$busy $!"
    done
    crowded=$(decode)
    stop
    echo "$idle $crowded"
done | awk '{ r = 100 * $2 / $1; printf "alone %.1f, crowded %.1f tokens/s: %.0f %%\n", $1, $2, r
              v[NR] = r }
    END { for (i = 2; i <= NR; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) {
              t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
          m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
          printf "median %.0f %%, wanted: 40 %%\n", m }'
