#!/bin/sh
# hotset-perplexity: the reference figures of the demonstration model, and what must not change
# them.  The quantized runs are held against F32 over the first chunks only, to save time; so is
# everything under a sanitizer.
. tests/cli/common.sh
needs convert quantize perplexity

text=$data/reference/valid.txt
ppl() { "$bin/hotset-perplexity" -q -i "$text" -c 256 --kv-type f32 "$@"; }
# value KEY FILE: a number of the --json object.
value() { sed -n "s/.*\"$1\": \([-+0-9.e]*\).*/\1/p" "$2"; }
# near NAME SHARE EXPECTED GOT
near() {
    if awk -v s="$2" -v a="$3" -v b="$4" 'BEGIN { d = b / a - 1; exit !(b != "" && d <= s && d >= -s) }'; then
        ok "$1"
    else
        not_ok "$1" "expected $3 within $2, got $4"
    fi
}

f32=$tmp/f32.gguf
check "convert to F32" "$bin/hotset-convert" -q "$data" --predictor "$data/predictor" \
    --outtype f32 -o "$f32" || finish
for type in Q8_0 Q4_0; do
    check "quantize to $type" "$bin/hotset-quantize" -q "$f32" "$tmp/$type.gguf" $type || finish
done

# --- the figures ---
part=24
if [ -n "${HS_SAN:-}" ]; then
    part=2
    check "F32, first chunks" ppl -m "$f32" --sparsity exact --json --chunks $part
    first=$(value perplexity "$tmp/out")
else
    check "F32 runs" ppl -m "$f32" --sparsity exact --json -v
    near "F32: perplexity of the reference" 0.001 16.38630364436411 "$(value perplexity "$tmp/out")"
    equal "F32: every token once" 23928 "$(value tokens "$tmp/out")"
    first=$(sed -n "s/.*chunk $part of 94: perplexity so far //p" "$tmp/err")
    check "predicted runs" ppl -m "$f32" --sparsity predicted --json
    near "predicted: perplexity of the reference" 0.005 16.39637463232225 "$(value perplexity "$tmp/out")"
    equal "predicted: every token once" 23928 "$(value tokens "$tmp/out")"
fi
check "Q8_0 runs" ppl -m "$tmp/Q8_0.gguf" --sparsity exact --json --chunks $part
near "Q8_0: perplexity of F32" 0.005 "$first" "$(value perplexity "$tmp/out")"
check "Q4_0 runs" ppl -m "$tmp/Q4_0.gguf" --sparsity exact --json --chunks $part
near "Q4_0: perplexity of F32" 0.06 "$first" "$(value perplexity "$tmp/out")"

# --- what must not matter ---
for model in "$f32" "$tmp/Q4_0.gguf"; do
    kind=$(basename "$model" .gguf)
    check "$kind: one thread" ppl -m "$model" --json --chunks 1 -t 1
    cp "$tmp/out" "$tmp/one"
    check "$kind: three threads" ppl -m "$model" --json --chunks 1 -t 3
    same "$kind: threads do not matter" "$tmp/one" "$tmp/out"
    check "$kind: scalar" ppl -m "$model" --json --chunks 1 --cpu scalar
    same "$kind: the CPU level does not matter" "$tmp/one" "$tmp/out"
done
check "sparsity off" ppl -m "$f32" --json --chunks 1 --sparsity off
off=$(value perplexity "$tmp/out")
check "sparsity exact" ppl -m "$f32" --json --chunks 1 --sparsity exact
near "exact is dense up to rounding" 0.000001 "$off" "$(value perplexity "$tmp/out")"

# --- the other protocol: the second half of each whole chunk ---
check "llama protocol" ppl -m "$f32" --json --protocol llama --chunks 2
equal "llama: tokens" 254 "$(value tokens "$tmp/out")"
head -c 400 "$text" >"$tmp/short.txt"
one_error "llama: a text too short" 3 'short\.txt: needs at least 512 tokens, got [0-9]+' \
    "$bin/hotset-perplexity" -q -m "$f32" -i "$tmp/short.txt" -c 256 --protocol llama
one_error "an empty text" 3 '/dev/null: needs at least 1 token, got 0' \
    "$bin/hotset-perplexity" -q -m "$f32" -i /dev/null
one_error "no text at that path" 3 'nowhere\.txt' \
    "$bin/hotset-perplexity" -q -m "$f32" -i "$tmp/nowhere.txt"
one_error "without a text" 2 '-i TEXT is missing' "$bin/hotset-perplexity" -m "$f32"
one_error "without a model" 2 '-m FILE is missing' "$bin/hotset-perplexity" -i "$text"

# --- divergence ---
base=$tmp/base.logp
check "write log-probabilities" ppl -m "$f32" --sparsity exact --chunks 2 --kl-base "$base"
equal "their size" $((32 + 510 * (4 + 4 * 2048))) "$(wc -c <"$base" | tr -d ' ')"
check "compare with itself" ppl -m "$f32" --sparsity exact --chunks 1 --kl "$base" --json
has "no divergence from itself" '"kl": \{"mean": 0\.0, "max": 0\.0, "same_top_share": 1\.0, "max_probability_error": 0\.0\}' "$tmp/out"
check "compare Q4_0" ppl -m "$tmp/Q4_0.gguf" --sparsity exact --chunks 2 --kl "$base" --json
kl=$(value mean "$tmp/out")
if awk -v k="$kl" 'BEGIN { exit !(k > 0.0001 && k < 0.2) }'; then ok "Q4_0 diverges a little"; else not_ok "Q4_0 diverges a little" "mean $kl"; fi
cp "$base" "$tmp/copy"
one_error "an existing file stays without --force" 2 'base\.logp' \
    ppl -m "$f32" --chunks 1 --kl-base "$base"
same "it is unchanged" "$tmp/copy" "$base"
one_error "an output that is an input" 2 'is also an input' \
    ppl -m "$f32" --chunks 1 --kl "$base" --kl-base "$base" --force
one_error "another context" 2 'made with -c 256, this run uses 64' \
    "$bin/hotset-perplexity" -q -m "$f32" -i "$text" -c 64 --chunks 1 --kl "$base"
head -c 100000 "$base" >"$tmp/cut.logp"
one_error "a file cut short" 3 'cut\.logp: size: expected 510 tokens' ppl -m "$f32" --chunks 1 --kl "$tmp/cut.logp"
tail -c 5000 "$text" >"$tmp/other.txt"
one_error "another text" 3 'base\.logp: token [0-9]+: expected id' \
    "$bin/hotset-perplexity" -q -m "$f32" -i "$tmp/other.txt" -c 256 --chunks 1 --kl "$base"
one_error "a text for a file" 3 'at byte 0: expected HSLOGP01' ppl -m "$f32" --chunks 1 --kl "$text"

finish
