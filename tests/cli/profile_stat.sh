# hotset-profile: statistics beside the counts, models without zeros.
. tests/cli/common.sh
needs convert profile inspect
prog=$bin/hotset-profile
valid=$data/reference/valid.txt
m=$tmp/m.gguf
"$bin/hotset-convert" -q "$data" --outtype f32 -o "$m" || not_ok "convert"
profile() { "$prog" -q -m "$m" -c 64 "$@"; }
head -c 1500 "$valid" >"$tmp/A.txt"
tail -c 1501 "$valid" >"$tmp/B.txt"
check "profile A" profile -i "$tmp/A.txt" -o "$tmp/A"

# --- generated tokens, pairs, strength ------------------------------------
more() { profile --generate 6 --coactivation 32 "$@"; }
check "with generated tokens and pairs: A" more -i "$tmp/A.txt" -o "$tmp/gA"
check "B" more -i "$tmp/B.txt" -o "$tmp/gB"
check "both" more -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/gAB" -t 1
has "generated positions are told" '^[0-9]+ of the positions were generated' "$tmp/out"
check "their sum" "$prog" -q --merge "$tmp/gA" "$tmp/gB" -o "$tmp/gsum"
same "is the profile of both, all statistics included" "$tmp/gAB" "$tmp/gsum"
check "9 chunks of both" more -i "$tmp/A.txt" "$tmp/B.txt" --chunks 9 -o "$tmp/gR"
check "resumed to the end" more -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/gR" --resume -t 2
same "is the profile of both too" "$tmp/gAB" "$tmp/gR"
check "the same with scalar kernels" more -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/t" -f --cpu scalar
same "gives the same file" "$tmp/gAB" "$tmp/t"
one_error "resumed without pairs" 2 'made with --coactivation 32, got 0' profile --generate 6 -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/gR" --resume
one_error "resumed with more tokens" 2 'made with --generate 6, got 7' profile --generate 7 --coactivation 32 -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/gR" --resume
check "the file is sound" "$bin/hotset-inspect" --check "$tmp/gAB"

# --- a model without zeros ------------------------------------------------
mkdir "$tmp/silu"
cp "$data"/* "$tmp/silu/" 2>/dev/null
sed 's/"hidden_act": "relu"/"hidden_act": "silu"/' "$data/config.json" >"$tmp/silu/config.json"
check "convert as SiLU" "$bin/hotset-convert" -q "$tmp/silu" --outtype bf16 -o "$tmp/silu.gguf"
silu() { "$prog" -m "$tmp/silu.gguf" -c 64 --magnitude 70 --coactivation 16 "$@"; }
check "SiLU: A" silu -i "$tmp/A.txt" -o "$tmp/sA"
has "says what counts" 'silu is never zero: what counts as active is the strongest 30 %' "$tmp/err"
# 30 % of the pilot text's activations reach the threshold; other texts are not far from that.
active=$(awk '$1 == "model" { print int($3); exit }' "$tmp/out")
[ "$active" -ge 20 ] && [ "$active" -le 40 ] && ok "about 30 % are active" || not_ok "about 30 % are active" "got $active %"
has "and what each level would buy" '^5 +95% ' "$tmp/out"
check "B" silu -q -i "$tmp/B.txt" -o "$tmp/sB"
check "both" silu -q -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/sAB"
check "their sum" "$prog" -q --merge "$tmp/sA" "$tmp/sB" -o "$tmp/ssum"
same "is the profile of both: thresholds are the model's, not the text's" "$tmp/sAB" "$tmp/ssum"
check "at another level" "$prog" -q -m "$tmp/silu.gguf" -c 64 -i "$tmp/B.txt" -o "$tmp/s50" --json
equal "30 levels in JSON" 30 "$(grep -c '"squares_share"' "$tmp/out")"
one_error "two levels do not add up" 3 's50: hotset.profile.magnitude: expected 70, got 50' "$prog" --merge "$tmp/sA" "$tmp/s50" -o "$tmp/x"
one_error "--magnitude of a ReLU model" 2 'is for activations that are never zero, its relu is' profile --magnitude 90 -i "$valid" -o "$tmp/x"
one_error "--generate with --merge" 2 '--generate is for texts' "$prog" --merge "$tmp/A" --generate 2 -o "$tmp/x"

finish
