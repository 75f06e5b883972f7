#!/bin/sh
# The whole program on the 70B shape (80 layers of 28,672 neurons, Q4_0, predictors; the weights are
# a hole in the file) with lognormal counts from a seed, on one core: what hotset-solve takes from
# start to exit, what of it is solving, and the gap. Budgets are the dense part plus 5 to 50 % of
# the FFN. Usage: tests/bench/solve_70b.sh BUILD
set -eu
build=${1:?build folder}
make -s BUILD="$build" "$build/gen/model" "$build/gen/counts" >/dev/null
dir=$build/bench
model=$dir/70b.gguf counts=$dir/70b.activation.gguf out=$dir/70b.json
trap 'rm -f "$model" "$counts" "$out" "$dir/70b.gpuidx"' EXIT
"$build/gen/model" -z -e 8192 -f 28672 -l 80 -H 64 -k 8 -v 32000 -r 1024 "$model"
"$build/gen/counts" "$counts" 80 28672
one=$(command -v taskset >/dev/null && echo "taskset -c 0" || true)
num() { sed -n "s/^  \"$1\": \([-0-9.e+]*\),*\$/\1/p" "$out"; }
# run LABEL OPTION...
run() {
    label=$1
    shift
    start=$(date +%s%N)
    # shellcheck disable=SC2086  # a command and its option
    $one "$build/bin/hotset-solve" -q -m "$model" -a "$counts" -f -o "$dir/70b.gpuidx" --json "$@" >"$out" 2>/dev/null
    end=$(date +%s%N)
    printf '%-44s %8.3f s %8.3f s   %.1e\n' "$label" "$(awk -v t=$((end - start)) 'BEGIN { print t / 1e9 }')" "$(num time_s)" "$(num gap)"
}
run warm --vram-budget 0 >/dev/null # so that both files are in memory
ffn=$((80 * 28672 * (3 * 8192 / 32 * 18 + 4)))
"$build/bin/hotset-solve" -q -m "$model" -a "$counts" --dry-run --json --vram-budget 1T >"$out" 2>/dev/null
dense=$(sed -n '/"ledger"/,/}/p' "$out" | awk -F': ' '/: [0-9]/ && !/neurons|unused/ { s += $2 } END { printf "%.0f", s }')
machine=data/machines/rtx4090-ddr5.json
two=$dir/70b.machine.json
trap 'rm -f "$model" "$counts" "$out" "$dir/70b.gpuidx" "$two"' EXIT
printf '{"version": 1, "cpu": {"bandwidth": 60e9}, "devices": [{"bandwidth": 900e9}, {"bandwidth": 324e9}]}\n' >"$two"
printf '%-44s %10s %10s   %s\n' "" program solving gap
for part in 5 10 25 50; do
    budget=$((dense + ffn / 100 * part))
    for min in 0 256 2048 4096; do
        run "impact, dense + $part % of the FFN, minimum $min" --vram-budget $budget --min-neurons $min
    done
    run "latency, dense + $part %" --vram-budget $budget --machine $machine --objective latency
    run "impact, two devices, dense + $part %" --device-memory $((budget / 3 * 2)),$((budget / 3))
    run "latency, two devices, dense + $part %" --device-memory $((budget / 3 * 2)),$((budget / 3)) --machine "$two" --objective latency
done
