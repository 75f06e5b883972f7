# hotset-convert from the command line: what it writes, refuses, leaves alone and leaves behind.
. tests/cli/common.sh
needs convert
convert=$bin/hotset-convert
out=$tmp/out.gguf

# nothing NAME: no output, and no temporary beside it.
nothing() {
    if [ -e "$out" ] || [ -n "$(find "$tmp" -name '.hotset-*')" ]; then
        not_ok "$1: nothing is left behind" "$(ls -a "$tmp")"
        rm -f "$out"
    else
        ok "$1: nothing is left behind"
    fi
}

# --- what it writes
check "the golden checkpoint converts" \
    "$convert" -q tests/golden/hf/m1 --predictor tests/golden/hf/m1_pred --outtype f16 -o "$out"
equal "it has the PWRI magic" PWRI "$(head -c 4 "$out")"
check "a second run" \
    "$convert" -q tests/golden/hf/m1 --predictor tests/golden/hf/m1_pred --outtype f16 -o "$tmp/again.gguf"
same "gives the same bytes" "$out" "$tmp/again.gguf"
rm -f "$out" "$tmp/again.gguf"
check "without --quiet" "$convert" tests/golden/hf/m1 --predictor tests/golden/hf/m1_pred -o "$out"
has "a missing hidden_act is said" 'does not name its activation .*relu' "$tmp/err"
has "and what was written" 'wrote .*powerinfer, llama F16, 36 tensors' "$tmp/err"
rm -f "$out"
for type in f32 f16 bf16 q8_0; do
    check "kjv-relu-8m as $type" "$convert" -q "$data" --predictor "$data/predictor" --outtype $type -o "$out" -f
done
check "dense layout" "$convert" -q "$data" --layout dense -o "$out" -f
equal "it has the GGUF magic" GGUF "$(head -c 4 "$out")"
check "--json" "$convert" -q "$data" -o "$out" --force --json
has "names the layout" '"layout":"powerinfer"' "$tmp/out"
has "names the type" '"type":"BF16"' "$tmp/out"
has "counts the tensors" '"tensors":57' "$tmp/out"
equal "and the bytes" "$(wc -c <"$out")" "$(sed 's/.*"bytes":\([0-9]*\).*/\1/' "$tmp/out")"
rm -f "$out"
check "--dry-run needs no output" "$convert" -q "$data" --predictor "$data/predictor" --dry-run
equal "and lists every tensor" 69 "$(wc -l <"$tmp/out")"
has "with types and shape" '^model.layers.0.mlp.down_proj.weight -> blk.0.ffn_down_t.weight \(transposed\)  BF16 -> BF16  \{256, 1024\}$' "$tmp/out"
check "--dry-run with an output" "$convert" -q "$data" --dry-run -o "$out"
nothing "--dry-run"
check "--vocab-only" "$convert" -q "$data" --vocab-only -o "$out"
if [ -x "$bin/hotset-tokenize" ]; then
    check "its vocabulary tokenizes" "$bin/hotset-tokenize" -m "$out" -p 'And God said' --ids
    has "as the model does" '^1,[0-9,]+$' "$tmp/out"
fi
rm -f "$out"
check "a name with spaces and more" "$convert" -q "$data" -o "$tmp/a \$(b) 'c';d.gguf"
[ -f "$tmp/a \$(b) 'c';d.gguf" ] && ok "is just a name" || not_ok "is just a name"

# --- usage
one_error "no operand" 2 'MODEL_DIR|operand|argument' "$convert" -o "$out"
one_error "no output" 2 '-o FILE is needed' "$convert" "$data"
one_error "unknown type" 2 'outtype' "$convert" "$data" -o "$out" --outtype q9
one_error "threshold without predictor" 2 'sparse-threshold needs --predictor' \
    "$convert" "$data" -o "$out" --sparse-threshold 1
one_error "threshold no number" 2 'sparse-threshold' \
    "$convert" "$data" -o "$out" --predictor "$data/predictor" --sparse-threshold nan
nothing "usage errors"

# --- existing outputs
echo precious >"$out"
one_error "an existing output needs --force" 2 'exists; use --force' "$convert" -q "$data" -o "$out"
equal "and stays as it was" precious "$(cat "$out")"
one_error "a folder as output" 2 'not a regular file' "$convert" -q "$data" -f -o "$tmp"
one_error "a missing folder" 1 'cannot create' "$convert" -q "$data" -o "$tmp/none/x.gguf"
rm -f "$out"

# --- a copy of the model that can be broken
fresh() {
    rm -rf "$tmp/m"
    mkdir "$tmp/m"
    for f in config.json tokenizer.model tokenizer_config.json model.safetensors.index.json \
        model-00001-of-00002.safetensors model-00002-of-00002.safetensors predictor; do
        ln -s "$PWD/$data/$f" "$tmp/m/$f"
    done
}
# broken NAME REGEX: exit 3, one line, quickly, in little memory, nothing left.
broken() {
    one_error "$1" 3 "$2" timeout 20 "$convert" -q "$tmp/m" --predictor "$tmp/m/predictor" -o "$out"
    [ ! -e "$out" ] || nothing "$1"
}
fresh
rm "$tmp/m/model-00002-of-00002.safetensors"
broken "missing shard" 'index.json: 1 of 2 shards are missing .*model-00002-of-00002.safetensors \([0-9]+ tensors\)'
fresh
rm "$tmp/m/model-00002-of-00002.safetensors"
head -c 1000000 "$data/model-00002-of-00002.safetensors" >"$tmp/m/model-00002-of-00002.safetensors"
broken "cut shard" 'model-00002-of-00002.safetensors: model.* reach past the end: the file has [0-9]+ data bytes'
for n in 0 1 7 8 9 100; do
    rm "$tmp/m/model-00002-of-00002.safetensors"
    head -c $n "$data/model-00002-of-00002.safetensors" >"$tmp/m/model-00002-of-00002.safetensors"
    broken "shard of $n bytes" 'model-00002-of-00002.safetensors: '
done
rm "$tmp/m/model-00002-of-00002.safetensors"
printf '\377\377\377\377\377\377\377\177{}' >"$tmp/m/model-00002-of-00002.safetensors"
broken "header length 2^63" 'header length 9223372036854775807 is above'
rm -f "$tmp/m"/model*
broken "no weights" 'no weights: expected model.safetensors'
printf 'PK\003\004 but no zip' >"$tmp/m/pytorch_model.bin"
broken "broken zip" 'pytorch_model.bin: '
cp tests/golden/pt/legacy.pt "$tmp/m/pytorch_model.bin"
chmod u+w "$tmp/m/pytorch_model.bin"
broken "legacy torch file" 'pytorch_model.bin: a torch file in the format of before torch 1.6'
for f in tests/fuzz/corpus/pickle/* tests/fuzz/corpus/safetensors/*; do
    cp -f "$f" "$tmp/m/pytorch_model.bin"
    broken "$(basename "$f") as weights" "^hotset-convert: .*$tmp/m"
done
fresh
rm "$tmp/m/tokenizer.model"
: >"$tmp/m/tokenizer.model"
broken "empty tokenizer" 'tokenizer.model: empty file'
for f in tests/fuzz/corpus/spm/*; do
    cp -f "$f" "$tmp/m/tokenizer.model"
    [ "$(basename "$f")" = small ] || broken "$(basename "$f") as tokenizer" 'tokenizer.model: '
done
rm "$tmp/m/tokenizer.model"
: >"$tmp/m/tokenizer.json"
broken "only tokenizer.json" 'tokenizer.json: only a SentencePiece tokenizer.model is supported'
fresh
for text in '' '{' '[]' '{"architectures":["MixtralForCausalLM"]}' '{"a":1,"a":2}'; do
    rm -f "$tmp/m/config.json"
    printf '%s' "$text" >"$tmp/m/config.json"
    broken "config.json '$text'" 'config.json: '
done
fresh
rm "$tmp/m/predictor"
mkdir "$tmp/m/predictor"
broken "no predictors" 'predictor: no predictors'
for l in 0 1 2 3 4; do ln -s "$PWD/$data/predictor/model_$l.pt" "$tmp/m/predictor/"; done
broken "a layer without predictor" 'predictor: no predictor of layer 5'
cp tests/golden/pt/model_0.pt "$tmp/m/predictor/model_5.pt"
broken "predictor of another shape" 'model_5.pt: fc1.weight: expected shape \[R, 256\]'
rm -f "$tmp/m/predictor/model_5.pt"
printf 'junk' >"$tmp/m/predictor/model_5.pt"
broken "predictor that is no file of tensors" 'model_5.pt: '
nothing "hostile inputs"
one_error "a file instead of a folder" 3 'config.json: ' "$convert" "$data/config.json" -o "$out"
one_error "an input as output" 2 'is an input' "$convert" -q "$data" -f -o "$data/config.json"

# --- memory: a small hostile file costs little
fresh
rm -f "$tmp/m"/model*
cp tests/golden/pt/sd.pt "$tmp/m/pytorch_model.bin"
if [ -z "${HS_SAN:-}" ]; then
    (ulimit -v 262144; "$convert" -q "$tmp/m" -o "$out") >"$tmp/out" 2>"$tmp/err"
    equal "a hostile file under a small address space" 3 $?
fi

# --- the disk
# A limit on file size stands in for a full disk where nothing may be mounted.
limited() {
    (
        trap '' XFSZ
        ulimit -f 2000
        exec "$@"
    )
}
one_error "no room" 4 'out.gguf: write: ' limited "$convert" -q "$data" -o "$out"
nothing "no room"
mkdir "$tmp/ro" "$tmp/full"
if [ "$(id -u)" -ne 0 ]; then
    chmod a-w "$tmp/ro"
    one_error "read-only folder" 1 'cannot create' "$convert" -q "$data" -o "$tmp/ro/x.gguf"
fi
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=4m tmpfs "$tmp/full" 2>/dev/null; then
    echo precious >"$tmp/full/out.gguf"
    one_error "disk full" 4 'out.gguf: .*No space left' "$convert" -q "$data" -f -o "$tmp/full/out.gguf"
    equal "the old file is still there" precious "$(cat "$tmp/full/out.gguf")"
    equal "and nothing else" out.gguf "$(ls -A "$tmp/full")"
    umount "$tmp/full"
fi

# --- interruption: whatever the moment, no file or the whole one
check "the whole one" "$convert" -q "$data" --outtype f32 -o "$tmp/whole.gguf"
for signal in TERM KILL; do
    for delay in 0.005 0.01 0.02 0.03; do
        "$convert" -q "$data" --outtype f32 -o "$out" 2>/dev/null &
        pid=$!
        sleep $delay
        kill -$signal $pid 2>/dev/null
        wait $pid 2>/dev/null
        if [ ! -e "$out" ] || cmp -s "$out" "$tmp/whole.gguf"; then
            ok "SIG$signal after $delay s"
        else
            not_ok "SIG$signal after $delay s" "a partial $out"
        fi
        rm -f "$out"
    done
done

finish
