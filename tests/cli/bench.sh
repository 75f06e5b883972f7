#!/bin/sh
# hotset-bench: rows, formats and what it refuses, on a small generated model.  Speed is not tested.
. tests/cli/common.sh
needs bench

bench=$bin/hotset-bench
m=$tmp/m.gguf
check "a model" "$build/gen/model" -r 128 -p 0.25 -a 0.9 "$m" || finish

check "a table" "$bench" -q -m "$m" -p 8 -n 4 -t 1,2 --sparsity off,auto -r 2
equal "a row for every test" 8 "$(grep -c '^| llama' "$tmp/out")"
has "the base has no ratio" '\| off .* \| tg4 .* - \|$|\| off .*tg4 .*- \|$' "$tmp/out"
has "the others have" '\| auto .*tg4 .* [0-9.]+ \([0-9.]+–[0-9.]+\) \|$' "$tmp/out"

check "csv" "$bench" -q -m "$m" -p 8 -n 4 -t 1 -r 1 -o csv
equal "csv: head and rows" 3 "$(wc -l <"$tmp/out")"
equal "csv: as many fields in all" 1 "$(awk -F, '{ print NF }' "$tmp/out" | sort -u | wc -l)"

check "jsonl" "$bench" -q -m "$m" -p 4-16*2 -n 0 -t 1 -r 1 --no-probe --no-warmup -o jsonl
equal "a range" "4 8 16 " "$(sed 's/.*"n_prompt": \([0-9]*\).*/\1/' "$tmp/out" | tr '\n' ' ')"

check "json" "$bench" -q -m "$m" "$m" -p 0 -n 8 -t 1 -r 3 --json
equal "json: an object for every model" 2 "$(grep -c n_gen "$tmp/out")"
has "json: samples" '"samples_ts": \[[0-9.]+, [0-9.]+, [0-9.]+\]' "$tmp/out"
share=$(sed -n 's/.*"predicted_share": \([0-9.]*\).*/\1/p' "$tmp/out" | head -n 1)
has "the model's share of predicted neurons" '^0\.(1[89]|2[0-9]|3[0-2])' - <<EOF
$share
EOF

one_error "no model" 2 "-m FILE" "$bench" -q
one_error "no list" 2 "-p: expected" "$bench" -m "$m" -p 1,,2
one_error "a range downwards" 2 "-n: expected" "$bench" -m "$m" -n 4-2
one_error "no threads" 2 "-t: expected" "$bench" -m "$m" -t 0
one_error "no such mode" 2 "--sparsity: expected" "$bench" -m "$m" --sparsity off,some
expect 3 "no such file" "$bench" -q -m "$tmp/nothing.gguf"
finish
