#!/bin/sh
# hotset beside llama.cpp (and its ik fork) on the same generated file, in alternating rounds, and
# the read bandwidth between them.
# Usage: tests/bench/peer.sh BUILD
#
#   HS_BENCH_SHAPE=1b|7b   the model (default 1b)          HS_BENCH_TYPES="Q4_0 Q8_0 F16"
#   HS_BENCH_ROUNDS=3      rounds                          HS_BENCH_THREADS="1 2"
#   HS_BENCH_PROMPT=128    tokens of the prompt            HS_BENCH_GEN=16   tokens generated
#   HS_BENCH_PEERS="llama.cpp ik_llama.cpp"               which other engines
#   HS_PEERS=DIR           where they are (tests/bench/peers)
#
# Of Q4_0, decoding with 10 and 20 % of the neurons predicted active, and exactly with 10 % active,
# is measured too, beside the dense decoding of the others.
set -eu
build=${1:?build folder}
. tests/bench/peers
rounds=${HS_BENCH_ROUNDS:-3}
types=${HS_BENCH_TYPES:-Q4_0 Q8_0 F16}
threads=${HS_BENCH_THREADS:-1 2}
prompt=${HS_BENCH_PROMPT:-128}
gen=${HS_BENCH_GEN:-16}
shape="-e 2048 -f 8192 -l 16 -H 32 -k 8"
[ "${HS_BENCH_SHAPE:-1b}" = 7b ] && shape="-e 4096 -f 11008 -l 32 -H 32 -k 32"

make -s BUILD="$build" "$build/gen/model" "$build/gen/json_query" "$build/bin/hotset-bench"
work=$(mktemp -d "$build/bench/peer.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

found=
for p in ${HS_BENCH_PEERS-llama.cpp ik_llama.cpp}; do
    ! peer_has "$p" llama-bench || found="$found $p"
done

# Lines for the record out of the JSON of both programs: TEST tokens/s, the prompt's first.
rows() { # FILE
    for i in 0 1; do
        "$build/gen/json_query" get "$1" "$i.avg_ts" | sed "s/^/$([ $i = 0 ] && echo prompt || echo decode) /"
    done
}
llama() { # ENGINE THREADS EXTRA...
    engine=$1 n=$2
    shift 2
    "$peers/$engine/bin/llama-bench" -m "$model" -t "$n" -p "$prompt" -n "$gen" -r 1 -o json "$@" \
        >"$work/llama.json" 2>"$work/llama.err" || { cat "$work/llama.err" >&2; exit 1; }
    rows "$work/llama.json"
}
ours() { # THREADS
    "$build/bin/hotset-bench" -q -m "$model" -t "$1" -p "$prompt" -n "$gen" -r 1 -o json \
        >"$work/ours.json"
    rows "$work/ours.json"
    "$build/gen/json_query" get "$work/ours.json" 1.read_share | awk '{ print "share", 100 * $1 }'
}

sparse() { # FILE THREADS MODE
    "$build/bin/hotset-bench" -q -m "$1" -t "$2" -p 0 -n "$gen" -r 1 --no-probe --sparsity "$3" \
        -o json >"$work/ours.json"
    "$build/gen/json_query" get "$work/ours.json" 0.avg_ts | sed 's/^/decode /'
}

record=$work/record
for type in $types; do
    model=$work/model.gguf
    # shellcheck disable=SC2086  # a list of options
    "$build/gen/model" $shape -v 32000 -t "$type" -d 1 "$model"
    lists=
    if [ "$type" = Q4_0 ]; then
        lists="predicted-10:predicted predicted-20:predicted exact-10:exact"
        for list in 10 20; do
            # shellcheck disable=SC2086
            "$build/gen/model" $shape -v 32000 -r 512 -p 0.$list -a 0.9 "$work/predicted-$list"
        done
        # shellcheck disable=SC2086
        "$build/gen/model" $shape -v 32000 -a 0.1 "$work/exact-10"
    fi
    for _ in $(seq "$rounds"); do
        for n in $threads; do
            for list in $lists; do
                sparse "$work/${list%:*}" "$n" "${list#*:}" |
                    sed "s/^/$type $n ${list%:*} /" >>"$record"
            done
            ours "$n" | sed "s/^/$type $n hotset /" >>"$record"
            for engine in $found; do
                llama "$engine" "$n" | sed "s/^/$type $n $engine /" >>"$record"
                [ "$engine" = llama.cpp ] ||
                    llama "$engine" "$n" -rtr 1 | sed "s/^/$type $n ik+rtr /" >>"$record"
            done
        done
    done
    rm -f "$model" "$work"/predicted-* "$work"/exact-*
done

echo "${HS_BENCH_SHAPE:-1b} shape, $rounds rounds, prompt of $prompt, $gen tokens generated; tokens/s:"
echo "median (lowest-highest)"
sort -s -k1,4 "$record" | awk '
    function flush(  i, j, t, m) {
        for (i = 2; i <= c; i++)
            for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        m = c % 2 ? v[(c + 1) / 2] : (v[c / 2] + v[c / 2 + 1]) / 2
        if (c) printf "%s %.6g %.6g %.6g\n", key, m, v[1], v[c]
        c = 0
    }
    { k = $1 " " $2 " " $3 " " $4; if (k != key) { flush(); key = k } v[++c] = $5 }
    END { flush() }' | awk '
    { type[NR] = $1; n[NR] = $2; engine[NR] = $3; test[NR] = $4; m[NR] = $5; lo[NR] = $6; hi[NR] = $7
      speed[$1, $2, $3, $4] = $5 }
    END {
        printf "| type | threads | test | engine | tokens/s | ratio |\n|---|---:|---|---|---:|---:|\n"
        for (i = 1; i <= NR; i++) {
            if (test[i] == "share") {
                printf "| %s | %s | decode | share of read bandwidth | %.0f %% |  |\n",
                    type[i], n[i], m[i]
                continue
            }
            own = speed[type[i], n[i], "hotset", test[i]]
            peer = speed[type[i], n[i], "llama.cpp", test[i]]
            ratio = ""
            if (engine[i] ~ /^(predicted|exact)/) {
                ratio = sprintf("%.2f of dense", m[i] / own)
                if (peer) ratio = ratio sprintf(", %.2f of llama.cpp", m[i] / peer)
            } else if (engine[i] != "hotset")
                ratio = sprintf("hotset is %.2f of it", own / m[i])
            printf "| %s | %s | %s | %s | %.1f (%.1f-%.1f) | %s |\n", type[i], n[i], test[i],
                engine[i], m[i], lo[i], hi[i], ratio
        }
    }'
