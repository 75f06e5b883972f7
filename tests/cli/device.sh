#!/bin/sh
# The device from the command line: logits against the CPU, budgets, refusals.
. tests/cli/common.sh
needs convert profile quantize solve run
demo_gguf
check "quantize" "$bin/hotset-quantize" -q "$tmp/kjv.gguf" "$tmp/kjv.q4_0.gguf" Q4_0
head -c 20000 "$data/calibration.txt" >"$tmp/text"
check "profile" "$bin/hotset-profile" -q -m "$tmp/kjv.gguf" -i "$tmp/text" -c 256 \
    -o "$tmp/activation.gguf"
check "solve" "$bin/hotset-solve" -q -m "$tmp/kjv.q4_0.gguf" -a "$tmp/activation.gguf" \
    --vram-budget 3M -c 64 -o "$tmp/p.gpuidx"
set -- "$bin/hotset-run" -q -m "$tmp/kjv.q4_0.gguf" -c 64 -p "And it came to pass"
check "verify" "$@" --placement "$tmp/p.gpuidx" --device emu --verify 24
echo "emu against the CPU, 24 tokens: largest difference of a logit 0, 0 other choices" >"$tmp/want"
same "not a bit of difference" "$tmp/want" "$tmp/out"
check "verify, json" "$@" --placement "$tmp/p.gpuidx" --device emu --verify 3 --json
echo '{"verify":{"device":"emu","tokens":3,"largest":0.0,"position":0,"id":0,"on_device":0.0,"on_cpu":0.0,"choices":0}}' >"$tmp/want"
same "as an object" "$tmp/want" "$tmp/out"
check "a plan for two devices" "$bin/hotset-solve" -q -m "$tmp/kjv.q4_0.gguf" \
    -a "$tmp/activation.gguf" --device-memory 2M,1500K -c 64 -o "$tmp/two.gpuidx"
check "is executed" "$@" --placement "$tmp/two.gpuidx" --device emu --verify 24
echo "emu against the CPU, 24 tokens: largest difference of a logit 0, 0 other choices" >"$tmp/want"
same "without a bit of difference" "$tmp/want" "$tmp/out"
one_error "verify without a placement" 2 "nothing is on a device" "$@" --verify 3
one_error "more tokens than the context" 4 "the context holds 64" \
    "$@" --placement "$tmp/p.gpuidx" --device emu --verify 65
one_error "a budget below the plan" 4 "the placement needs [0-9]+ bytes" \
    "$@" --placement "$tmp/p.gpuidx" --device emu --vram-budget 100K -n 1
finish
