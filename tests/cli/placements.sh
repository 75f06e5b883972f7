#!/bin/sh
# Placements on the demonstration model: whatever is on the device, the tokens are the same.
. tests/cli/common.sh
needs convert quantize profile solve run
demo_gguf
prompt="And it came to pass in those days,"

for type in f16 q8_0 q4_0; do
    model=$tmp/kjv.$type.gguf
    if [ $type = f16 ]; then
        ln "$tmp/kjv.gguf" "$model"
    else
        check "quantize to $type" "$bin/hotset-quantize" -q "$tmp/kjv.gguf" "$model" $type
    fi
    if [ -x "$build/tests/test_split" ]; then
        check "$type: none, all, alternating, random, one neuron per layer" \
            "$build/tests/test_split" "$model"
    fi
done

head -c 20000 "$data/calibration.txt" >"$tmp/text"
check "profile" "$bin/hotset-profile" -q -m "$tmp/kjv.gguf" -i "$tmp/text" -c 256 \
    -o "$tmp/kjv.activation.gguf"
check "greedy text on the CPU" "$bin/hotset-run" -q -m "$tmp/kjv.q8_0.gguf" -p "$prompt" -n 32 \
    --temp 0 --device none
cp "$tmp/out" "$tmp/reference"
full=$(stat -c %s "$tmp/kjv.q8_0.gguf")
for tenth in 1 3 5 7 20; do
    budget=$((full * tenth / 10))
    check "solve for $tenth tenths of the model" "$bin/hotset-solve" -q -m "$tmp/kjv.q8_0.gguf" \
        -a "$tmp/kjv.activation.gguf" --vram-budget $budget -o "$tmp/$tenth.gpuidx"
    check "run it on the emulated device" "$bin/hotset-run" -q -m "$tmp/kjv.q8_0.gguf" \
        --placement "$tmp/$tenth.gpuidx" --device emu -p "$prompt" -n 32 --temp 0
    same "the same text at $tenth tenths" "$tmp/reference" "$tmp/out"
done
finish
