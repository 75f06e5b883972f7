#!/bin/sh
# hotset-inspect: every kind of file by its content, --check, what belongs to what.
. tests/cli/common.sh
needs inspect convert
query=$build/gen/json_query
ins=$bin/hotset-inspect
golden=tests/golden
demo_gguf
m=$tmp/kjv.gguf
ref_text=$data/calibration.txt

# field NAME PATH EXPECTED: a value of the JSON in $tmp/out.
field() { equal "$1" "$3" "$("$query" get "$tmp/out" "$2")"; }

check "a model" "$ins" "$m" --json
field "its kind" kind '"model, PowerInfer layout (PWRI)"'
field "its architecture" architecture '"llama"'
field "its layers" layers 6
field "its activation" activation '"relu"'
field "its predictors" predictors 6
field "its vocabulary" vocabulary 2048
field "the runtime takes it" runs_here true
field "its weights" weights 7933184
check "as text" "$ins" "$m" --kv --tensors --check
has "a summary line" '^bits per weight +16\.' "$tmp/out"
has "a tensor" 'blk\.0\.ffn_down_t\.weight +F16 +256, 1024' "$tmp/out"
has "a long array, cut" 'tokenizer.ggml.tokens +string\[2048\] .*…' "$tmp/out"
has "all data read" '^check +all data is sound' "$tmp/out"

check "a golden model" "$ins" "$golden/m1.gguf" --json
field "activation by rule" activation '"relu"'
field "where from" activation_from '"architecture and layout"'
check "block types" "$ins" "$golden/m256.q4_0.gguf" --check --json
field "their bits" types.1.bits_per_weight 4.5

check "safetensors" "$ins" "$data/model-00001-of-00002.safetensors" --tensors --check --json
field "its kind" kind '"safetensors"'
field "a shape" tensor_list.0.shape '[2048,256]'
check "a torch file" "$ins" "$data/predictor/model_0.pt" --tensors --check --json
field "its kind" kind '"torch file"'
check "a name that lies" cp "$data/predictor/model_0.pt" "$tmp/x.safetensors"
check "content decides" "$ins" "$tmp/x.safetensors" --json
field "its kind" kind '"torch file"'
check "a placement of the original" "$ins" $golden/solver/cap5000_batch256.gpuidx --check --json
field "its kind" kind '"placement (gpuidx)"'
field "its layers" layers 12
one_error "of another model" 3 "12 layers" "$ins" $golden/solver/cap5000_batch256.gpuidx -m "$m"
check "a placement for several devices" "$ins" tests/fuzz/corpus/placement/several --check --json
field "its kind" kind '"placement (several devices)"'
has "each device's part" '"on_device_1": *1' "$tmp/out"
has "and where the dense blocks are" 'attention:0 ffn-norm:1 kv-cache:0' "$tmp/out"
one_error "-m for a model" 3 "neither a profile nor a placement" "$ins" "$m" -m "$m"

if [ -x "$bin/hotset-profile" ] && [ -x "$bin/hotset-solve" ]; then
    check "make a profile" "$bin/hotset-profile" -q -m "$m" -i "$ref_text" --chunks 1 -c 64 -o "$tmp/x.profile"
    check "make a placement" "$bin/hotset-solve" -q -m "$m" -a "$tmp/x.profile" --vram-budget 3M -o "$tmp/x.gpuidx"
    check "a profile and its model" "$ins" "$tmp/x.profile" -m "$m" --check --json
    field "its kind" kind '"activation profile"'
    field "its tokens" tokens 64
    field "its source" sources.0.name '"calibration.txt"'
    check "a placement and its model" "$ins" "$tmp/x.gpuidx" -m "$m" --check --json
    field "its budget" budget_bytes 3145728
    field "whose it is" belongs_to "\"$m\""
    "$bin/hotset-convert" -q "$data" --outtype bf16 -o "$tmp/other.gguf"
    one_error "a profile of other weights" 3 "another model" "$ins" "$tmp/x.profile" -m "$tmp/other.gguf"
    one_error "a placement for other weights" 3 "x.gpuidx: " "$ins" "$tmp/x.gpuidx" -m "$tmp/other.gguf"
fi

# An F16 infinity in the first tensor.
cp "$golden/m1.gguf" "$tmp/inf.gguf"
"$ins" "$golden/m1.gguf" --tensors --json >"$tmp/out"
size=$("$query" get "$tmp/out" file_bytes)
data_bytes=0 i=0
while b=$("$query" get "$tmp/out" "tensor_list.$i.bytes" 2>/dev/null); do
    o=$("$query" get "$tmp/out" "tensor_list.$i.offset")
    [ $((o + b)) -le $data_bytes ] || data_bytes=$((o + b))
    i=$((i + 1))
done
start=$((size - (data_bytes + 31) / 32 * 32))
printf '\000\174' | dd of="$tmp/inf.gguf" bs=1 seek=$((start + 10)) conv=notrunc 2>/dev/null
check "an infinity is a value" "$ins" "$tmp/inf.gguf"
one_error "until it is looked for" 3 "inf.gguf: tensor token_embd.weight: element 5 is inf" \
    "$ins" "$tmp/inf.gguf" --check

one_error "a missing file" 3 "cannot open" "$ins" "$tmp/nothing"
one_error "a folder" 3 "directory" "$ins" "$data"
one_error "an unknown kind" 3 "none of GGUF" "$ins" "$data/config.json"
: >"$tmp/empty"
one_error "an empty file" 3 "empty" "$ins" "$tmp/empty"
one_error "no file" 2 "missing argument" "$ins"
one_error "two files" 2 "surplus" "$ins" "$m" "$m"
head -c 1000 "$m" >"$tmp/short.gguf"
one_error "a cut file" 3 "short.gguf: " "$ins" "$tmp/short.gguf"
finish
