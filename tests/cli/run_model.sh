#!/bin/sh
# hotset-run on the bundled model against its reference numbers, and its own promises:
# threads, batch, prompts, streams, limits, errors.
. tests/cli/common.sh
needs run convert tokenize
query=$build/gen/json_query
run=$bin/hotset-run
ref=$data/reference

for type in f32 bf16 f16; do
    check "convert to $type" "$bin/hotset-convert" -q "$data" --predictor "$data/predictor" \
        --outtype $type -o "$tmp/$type.gguf"
done
m=$tmp/f32.gguf

# prompt I: its ids, as --tokens takes them.
prompt() { "$query" get "$ref/greedy.json" "prompts.$1.ids" | tr -d '[]'; }

# near NAME TOLERANCE PATH-IN-REFERENCE: the first logits of $tmp/out against the reference.
near() {
    if said=$("$query" near "$2" "$tmp/out" logits.0 "$ref/logits.json" "$3"); then
        ok "$1: $said"
    else
        not_ok "$1" "$said"
    fi
}

# --- the reference numbers ---
for type in f32 bf16 f16; do
    tolerance=2e-3
    [ $type = f16 ] && tolerance=2e-2
    for mode in off exact; do
        for i in 0 1 2; do
            check "$type $mode $i runs" "$run" -q -m "$tmp/$type.gguf" --tokens "$(prompt $i)" -n 48 \
                --temp 0 --kv-type f32 --sparsity $mode --json --logits 40
            near "$type $mode $i, logits" $tolerance "prompts.$i.top20"
            [ $type = f16 ] && continue
            equal "$type $mode $i, tokens" "$("$query" get "$ref/greedy.json" "prompts.$i.new_ids")" \
                "$("$query" get "$tmp/out" tokens)"
        done
    done
    for i in 0 1 2; do
        check "$type predicted $i runs" "$run" -q -m "$tmp/$type.gguf" --tokens "$(prompt $i)" -n 1 \
            --temp 0 --kv-type f32 --sparsity predicted --json --logits 40
        near "$type predicted $i, logits" $tolerance "prompts.$i.predictor_top20"
    done
done

# --- nothing but speed depends on threads and batch ---
first=
for threads in 1 2 3 8; do
    "$run" -q -m "$m" --tokens "$(prompt 1)" -n 8 --temp 0 -t $threads --json --logits 2048 >"$tmp/t"
    "$query" get "$tmp/t" logits >"$tmp/logits.$threads"
    [ -n "$first" ] && same "$threads threads: the same logits" "$tmp/logits.$first" "$tmp/logits.$threads"
    first=1
done
"$query" get "$ref/greedy.json" prompts.2.ids | tr -d '[]' >"$tmp/long"
cat "$tmp/long" "$tmp/long" "$tmp/long" "$tmp/long" | tr '\n' ',' | sed 's/,$//' >"$tmp/ids"
for mode in off exact predicted; do
    for batch in 1 2 7 32 64; do
        "$run" -q -m "$m" --tokens "$(cat "$tmp/ids")" -n 4 --temp 0 --batch $batch --sparsity $mode \
            --json --logits 2048 >"$tmp/t"
        "$query" get "$tmp/t" logits >"$tmp/batch.$batch"
        [ $batch = 1 ] || same "$mode, batch $batch: the same logits" "$tmp/batch.1" "$tmp/batch.$batch"
    done
done

# --- prompts ---
text='And it came to pass in those days,'
check "--tokens as given" "$run" -q -m "$m" --tokens 5,300 -n 0 --json
equal "without BOS" "[5,300]" "$("$query" get "$tmp/out" prompt_tokens)"
equal "-n 0 generates nothing" "[]" "$("$query" get "$tmp/out" tokens)"
equal "no logits unless asked" "" "$("$query" get "$tmp/out" logits 2>/dev/null)"
equal "no device" null "$("$query" get "$tmp/out" memory.device)"
check "a text" "$run" -q -m "$m" -p "$text" -n 0 --json
equal "gets BOS" "[$(prompt 0)]" "$("$query" get "$tmp/out" prompt_tokens)"
check "--no-bos" "$run" -q -m "$m" -p "$text" -n 0 --json --no-bos
equal "has none" "[$(prompt 0 | sed 's/^1,//')]" "$("$query" get "$tmp/out" prompt_tokens)"
printf '%s' "$text" >"$tmp/text"
check "a file" "$run" -q -m "$m" -f "$tmp/text" -n 0 --json
equal "is the same" "[$(prompt 0)]" "$("$query" get "$tmp/out" prompt_tokens)"
"$run" -q -m "$m" -f - -n 0 --json <"$tmp/text" >"$tmp/out"
equal "standard input too" "[$(prompt 0)]" "$("$query" get "$tmp/out" prompt_tokens)"
check "no prompt, stdin not a terminal" "$run" -q -m "$m" -n 3 --temp 0 --json
equal "starts from BOS" "[1]" "$("$query" get "$tmp/out" prompt_tokens)"
equal "and generates" 3 "$("$query" get "$tmp/out" tokens | tr ',' '\n' | wc -l)"
check "--special" "$run" -q -m "$m" -p '</s>' --special -n 0 --json
equal "is the token" "[1,2]" "$("$query" get "$tmp/out" prompt_tokens)"
check "a literal </s>" "$run" -q -m "$m" -p '</s>' -n 0 --json
equal "is text" "[1,$("$bin/hotset-tokenize" -m "$m" -p '</s>' --ids --no-bos)]" \
    "$("$query" get "$tmp/out" prompt_tokens)"

# --- the text itself ---
check "text mode" "$run" -q -m "$m" -p "$text" -n 48 --temp 0 --kv-type f32
cp "$tmp/out" "$tmp/text.out"
"$run" -q -m "$m" -p "$text" -n 48 --temp 0 --kv-type f32 --json >"$tmp/t"
"$bin/hotset-tokenize" -m "$m" --decode "5,$("$query" get "$tmp/t" tokens | tr -d '[]')" | tail -c +2 >"$tmp/want"
echo >>"$tmp/want"
same "is exactly the tokens' bytes and a newline" "$tmp/want" "$tmp/text.out"
equal "nothing on stderr with -q" "" "$(cat "$tmp/err")"

# At this temperature all tokens are alike, so many are single bytes of characters.
wild="--temp 1000000 --top-k 0 --top-p 1 --min-p 0 --ignore-eos"
for seed in 1 2 3; do
    # shellcheck disable=SC2086
    "$run" -q -m "$m" -p "$text" -n 200 $wild -s $seed | "$query" chunks >"$tmp/chunks" &&
        ok "seed $seed: $(cat "$tmp/chunks")" ||
        not_ok "seed $seed: a character is split" "$(cat "$tmp/chunks")"
    # shellcheck disable=SC2086
    "$run" -q -m "$m" -p "$text" -n 200 $wild -s $seed >"$tmp/a"
    # shellcheck disable=SC2086
    "$run" -q -m "$m" -p "$text" -n 200 $wild -s $seed --json >"$tmp/t"
    "$bin/hotset-tokenize" -m "$m" --decode "5,$("$query" get "$tmp/t" tokens | tr -d '[]')" | tail -c +2 >"$tmp/b"
    echo >>"$tmp/b"
    same "seed $seed: exact bytes, again the same" "$tmp/b" "$tmp/a"
done
"$run" -m "$m" -n 5 >"$tmp/a" 2>"$tmp/err"
seed=$(sed -n 's/.*seed \([0-9]*\)$/\1/p' "$tmp/err")
"$run" -q -m "$m" -n 5 -s "$seed" >"$tmp/b"
same "a random seed is printed and repeats" "$tmp/a" "$tmp/b"
has "a closing summary" "generated: 5 tokens, [0-9.]+ tokens/s" "$tmp/err"
has "the share of neurons" "active neurons: [0-9.]+ %, of them on the device: 0.0 %" "$tmp/err"

# --- the end token: here " the", the second greedy one; and a model that wants no BOS ---
mkdir "$tmp/hf"
cp "$data"/*.json "$data"/*.model "$data"/*.safetensors "$tmp/hf"
sed 's/"eos_token": "[^"]*"/"eos_token": "▁the"/; s/"add_bos_token": true/"add_bos_token": false/' \
    "$data/tokenizer_config.json" >"$tmp/hf/tokenizer_config.json"
check "a model with another end" "$bin/hotset-convert" -q "$tmp/hf" --outtype f32 -o "$tmp/end.gguf"
e=$tmp/end.gguf
check "stops there" "$run" -q -m "$e" --tokens "$(prompt 0)" -n 48 --temp 0 --json --logits 1
equal "the end token is the last" "[301,261]" "$("$query" get "$tmp/out" tokens)"
equal "and not in the text" '" that"' "$("$query" get "$tmp/out" text)"
equal "one list of logits for each" 301,261 \
    "$("$query" get "$tmp/out" logits.0.0.0),$("$query" get "$tmp/out" logits.1.0.0)"
check "--ignore-eos" "$run" -q -m "$e" --tokens "$(prompt 0)" -n 20 --temp 0 --json --ignore-eos
equal "goes on" 20 "$("$query" get "$tmp/out" tokens | tr ',' '\n' | wc -l)"
equal "without the end token" "" "$("$query" get "$tmp/out" tokens | tr '[],' '\n\n\n' | grep -x 261)"
check "no BOS wanted" "$run" -q -m "$e" -p "$text" -n 0 --json
equal "none added" "[$(prompt 0 | sed 's/^1,//')]" "$("$query" get "$tmp/out" prompt_tokens)"
check "still, without a prompt" "$run" -q -m "$e" -n 0 --json
equal "BOS is the start" "[1]" "$("$query" get "$tmp/out" prompt_tokens)"
one_error "an empty prompt there" 2 "nothing to start from" "$run" -q -m "$e" -p ''

# --- limits ---
check "the context ends it" "$run" -m "$m" -p "$text" -c 16 -n 100 --temp 0 --json --ignore-eos
equal "after 7 tokens" 7 "$("$query" get "$tmp/out" tokens | tr ',' '\n' | wc -l)"
has "and says so" "context of 16 tokens is full" "$tmp/err"
check "the prompt fills it" "$run" -q -m "$m" -p "$text" -c 10 -n 100 --temp 0 --json
equal "one token is left" "[301]" "$("$query" get "$tmp/out" tokens)"
one_error "a prompt that is too long" 4 "prompt has 10 tokens, the context holds 9" \
    "$run" -q -m "$m" -p "$text" -c 9
check "-n 1" "$run" -q -m "$m" -p "$text" -n 1 --json --logits 5
equal "gives one list of logits" 1 "$("$query" get "$tmp/out" logits | tr -d ' ' | sed 's/]],/\n/g' | wc -l)"

# --- wrong use ---
one_error "no model" 2 "-m FILE" "$run" -p x
one_error "two prompts" 2 "only one of" "$run" -m "$m" -p x --tokens 1
one_error "an unknown id" 2 "id 2048.*2048 tokens" "$run" -q -m "$m" --tokens 1,2048
one_error "an id that is none" 2 "expected ids" "$run" -q -m "$m" --tokens 1,x
one_error "an empty id" 2 "expected ids" "$run" -q -m "$m" --tokens 1,
one_error "nothing to start from" 2 "nothing to start from" "$run" -q -m "$m" --no-bos
one_error "--logits without --json" 2 "needs --json" "$run" -m "$m" --logits 3
one_error "an unknown option" 2 "did you mean '--temp'" "$run" -m "$m" --tmp 1
one_error "a bad temperature" 2 "--temp" "$run" -m "$m" --temp -1
one_error "a bad mode" 2 "--sparsity" "$run" -m "$m" --sparsity some
one_error "a bad batch" 2 "--batch" "$run" -m "$m" --batch 65
one_error "a missing model" 3 "nothing.gguf: cannot open" "$run" -m "$tmp/nothing.gguf"
one_error "a missing prompt file" 3 "nothing.txt: cannot open" "$run" -q -m "$m" -f "$tmp/nothing.txt"
one_error "a missing placement" 3 "nothing.gpuidx" "$run" -q -m "$m" --placement "$tmp/nothing.gpuidx"

# --- ends ---
"$run" -q -m "$m" -n 5 >/dev/full 2>"$tmp/err"
equal "a full disk" 1 $?
for signal in 2 15; do
    "$build/gen/measure" -k $signal@2000 "$run" -q -m "$m" -c 20000 -n 19000 --ignore-eos >"$tmp/a" 2>"$tmp/err"
    equal "signal $signal" 130 $?
    equal "signal $signal: the text ends with a newline" 1 "$(tail -c 1 "$tmp/a" | wc -l)"
done
finish
