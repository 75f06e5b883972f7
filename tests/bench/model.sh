#!/bin/sh
# hotset-bench on a generated model of the 1B shape: Q4_0, 10 % of the neurons predicted active.
# Usage: tests/bench/model.sh BUILD   (HS_BENCH_SHAPE=7b for the 7B shape: 4 GiB of disk)
set -eu
build=${1:?build folder}
shape="-e 2048 -f 8192 -l 16 -H 32 -k 8 -r 512"
[ "${HS_BENCH_SHAPE:-1b}" = 7b ] && shape="-e 4096 -f 11008 -l 32 -H 32 -k 32 -r 1024"
make -s BUILD="$build" "$build/gen/model"
model=$build/bench/model.gguf
trap 'rm -f "$model"' EXIT
# shellcheck disable=SC2086  # a list of options
"$build/gen/model" $shape -v 32000 -p 0.1 -a 0.9 "$model"
"$build/bin/hotset-bench" -q -m "$model" -p 32 -n 8 -r 3 --sparsity off,predicted
