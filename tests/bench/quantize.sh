#!/bin/sh
# Whole runs of hotset-quantize on a generated F16 Llama of 1.1 G weights, from page cache and
# without the final sync, in alternation with llama.cpp's llama-quantize, which does not sync
# either: seconds (medians of HS_BENCH_RUNS, 3), and peak memory beyond the mapped input.
# Then what each type loses, beside the reference (bench_quant error).
# Usage: tests/bench/quantize.sh BUILD        needs 5 GiB of disk
# HS_PEERS says where the peer is (tests/bench/peers); HS_PEER_GGML, a libggml-base.so, is what
# the errors are compared with.
set -eu
build=${1:?build folder}
runs=${HS_BENCH_RUNS:-3}
. tests/bench/peers
dir=$build/bench
in=$dir/quantize.gguf out=$dir/quantize-out.gguf

peer=
! peer_has llama.cpp llama-quantize || peer=$peers/llama.cpp/bin/llama-quantize

make -s BUILD="$build" "$build/gen/model" "$build/gen/measure" \
    "$build/bin/hotset-quantize" "$build/bin/hotset-convert" "$build/bench/quant"
mkdir -p "$dir"
trap 'rm -f "$in" "$out" "$dir"/quantize-*.txt' EXIT
"$build/gen/model" "$in" -e 2048 -f 5632 -l 22 -H 32 -k 4 -v 32000 -t F16 -r 0
# The peer knows no PWRI; without predictors that is GGUF under another name.
printf GGUF | dd of="$in" conv=notrunc bs=4 2>/dev/null
mapped=$(($(wc -c <"$in") / 1024))

# one NAME COMMAND...: appends "MS KIB" to NAME's file.
one() {
    name=$1
    shift
    rm -f "$out"
    "$build/gen/measure" -s "$@" >"$dir/quantize-run.txt" 2>/dev/null || {
        echo "failed: $*" >&2
        exit 1
    }
    tail -n 1 "$dir/quantize-run.txt" >>"$dir/quantize-$name.txt"
}
median() { sort -n "$dir/quantize-$1.txt" | sed -n "$((runs / 2 + 1))p"; }

echo "whole runs, 1.1 G weights of F16; memory beyond the input of $((mapped / 1024)) MiB"
printf '%-8s %7s %8s %10s %10s %8s\n' type threads ours peer times "ours MiB"
for type in Q4_0 Q8_0 Q4_K_M; do
    for threads in 1 2; do
        rm -f "$dir"/quantize-ours.txt "$dir"/quantize-peer.txt
        for _ in $(seq "$runs"); do
            one ours "$build/bin/hotset-quantize" -q --no-sync -t $threads "$in" "$out" $type
            [ -z "$peer" ] || one peer "$peer" "$in" "$out" $type $threads
        done
        {
            median ours
            [ -z "$peer" ] || median peer
        } | awk -v type=$type -v n=$threads -v mapped=$mapped '
            NR == 1 { ms = $1; mib = ($2 - mapped) / 1024 }
            NR == 2 { theirs = $1 }
            END {
                printf "%-8s %7d %7.2fs", type, n, ms / 1000
                if (theirs) printf " %9.2fs %10.2f", theirs / 1000, theirs / ms
                else printf " %10s %10s", "-", "-"
                printf " %8.0f\n", mib
            }'
    done
done
rm -f "$in" "$out"

model=${HS_BENCH_MODEL:-}
if [ -z "$model" ] && [ -d data/kjv-relu-8m ]; then
    model=$dir/quantize-kjv.gguf
    "$build/bin/hotset-convert" -q data/kjv-relu-8m --outtype f16 --force -o "$model"
fi
HS_BENCH_MODEL=$model "$build/bench/quant" error
rm -f "$dir/quantize-kjv.gguf"
