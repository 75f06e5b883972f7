# Importance matrices: hotset-profile collects them, hotset-quantize uses them.
. tests/cli/common.sh
needs convert profile quantize
prog=$bin/hotset-profile
valid=$tmp/valid.txt
head -c 2000 "$data/reference/valid.txt" >"$valid"

# --- llama-imatrix's own numbers -------------------------------------------
# It knows no ReLU Llama, so the model runs with SiLU.  The golden file is what
#   llama-imatrix -m silu.gguf -f valid.txt -c 256 -b 256 --chunks 1 --process-output -fa off
#       -ctk f32 -ctv f32 -o tests/golden/quant/imatrix.gguf
# made of the model and the text of this test.
mkdir "$tmp/silu"
for f in "$data"/*; do ln -s "$PWD/$f" "$tmp/silu/"; done
rm "$tmp/silu/config.json"
sed 's/"hidden_act": "relu"/"hidden_act": "silu"/' "$data/config.json" >"$tmp/silu/config.json"
"$bin/hotset-convert" -q "$tmp/silu" --layout dense --outtype f32 -o "$tmp/silu.gguf" || not_ok "convert"
check "collected with SiLU" "$prog" -q -m "$tmp/silu.gguf" -i "$valid" -c 256 --chunks 1 \
    -o "$tmp/p" --imatrix "$tmp/silu.im"
diff=$("$build/gen/imatrix_diff" "$tmp/silu.im" tests/golden/quant/imatrix.gguf)
equal "the tensors of llama-imatrix, exit" "0 86" "$? ${diff% *}"
equal "and its numbers within 1e-5" 1 "$(awk -v d="${diff#* }" 'BEGIN { print (d < 1e-5) }')"
for key in general.type imatrix.datasets imatrix.chunk_count imatrix.chunk_size; do
    has "key $key" "$key" "$tmp/silu.im"
done

# --- ours, sparse ------------------------------------------------------------
"$bin/hotset-convert" -q "$data" --predictor "$data/predictor" --outtype f16 -o "$tmp/m.gguf" || not_ok "convert"
collect() { "$prog" -q -m "$tmp/m.gguf" -i "$valid" -c 64 --chunks 4 "$@"; }
check "collected with ReLU" collect -o "$tmp/a" --imatrix "$tmp/a.im" -t 1
check "with 3 threads" collect -o "$tmp/b" --imatrix "$tmp/b.im" -t 3
same "threads change nothing" "$tmp/a.im" "$tmp/b.im"
check "with scalar kernels" collect -f -o "$tmp/b" --imatrix "$tmp/b.im" --cpu scalar
same "nor do kernels" "$tmp/a.im" "$tmp/b.im"
check "without an importance matrix" collect -f -o "$tmp/b"
same "the profile is the same" "$tmp/a" "$tmp/b"

# A neuron never active leaves its channel of ffn_down at 0: of 6144 some are.
"$bin/hotset-quantize" -q --dry-run --json --imatrix "$tmp/a.im" "$tmp/m.gguf" "$tmp/none" Q4_K_M \
    >"$tmp/out" 2>"$tmp/err"
has "every channel of attn_q" '"blk.0.attn_q.weight",[^}]*"importance":1\.0' "$tmp/out"
has "rows of down have nothing to weigh" '"blk.0.ffn_down_t.weight",[^}]*"importance":null' "$tmp/out"
"$bin/hotset-convert" -q "$data" --layout dense --outtype f16 -o "$tmp/dense.gguf" || not_ok "convert"
check "a dense file" "$bin/hotset-quantize" --no-sync --imatrix "$tmp/a.im" "$tmp/dense.gguf" "$tmp/q.gguf" Q4_K_M
has "part of ffn_down is covered" "blk.0.ffn_down.weight .*importance of [0-9]{3}/1024 channels" "$tmp/err"
has "all of ffn_up is" "blk.0.ffn_up.weight .*importance of 256/256 channels" "$tmp/err"
has "token_embd has none" "token_embd.weight .*no importance" "$tmp/err"
has "and that is counted" "warning: 1 of 44 quantized tensors are not in the importance matrix" "$tmp/err"

# --- it counts: other bytes, and a larger plain error, which the weights do not weigh ----------
error_of() { grep -o '"blk.0.ffn_up.weight",[^}]*"rms_error":[0-9.]*' "$1" | sed 's/.*://'; }
check "Q2_K without" "$bin/hotset-quantize" -q -f --no-sync --json "$tmp/m.gguf" "$tmp/q.gguf" Q2_K
plain=$(error_of "$tmp/out")
check "Q2_K with" "$bin/hotset-quantize" -q -f --no-sync --json --imatrix "$tmp/a.im" "$tmp/m.gguf" "$tmp/q2.gguf" Q2_K
weighed=$(error_of "$tmp/out")
equal "weights trade one error for another ($plain, $weighed)" 1 \
    "$(awk -v a="$weighed" -v b="$plain" 'BEGIN { print (b > 0 && a > b) }')"
cmp -s "$tmp/q.gguf" "$tmp/q2.gguf" && not_ok "the bytes differ" || ok "the bytes differ"
for n in 1 3; do
    check "with $n threads" "$bin/hotset-quantize" -q -f --no-sync -t $n --imatrix "$tmp/a.im" "$tmp/m.gguf" "$tmp/qn.gguf" Q2_K
    same "$n threads give the same" "$tmp/q2.gguf" "$tmp/qn.gguf"
done

# --- refusals ------------------------------------------------------------------------
one_error "it exists" 2 "a.im: exists; use --force" collect -o "$tmp/c" --imatrix "$tmp/a.im"
one_error "it is the profile" 2 "is the profile too" collect -o "$tmp/c" --imatrix "$tmp/c"
one_error "it is the model" 2 "m.gguf: is an input" collect -f -o "$tmp/c" --imatrix "$tmp/m.gguf"
one_error "without texts" 2 "--imatrix is for texts" "$prog" --show "$tmp/a" --imatrix "$tmp/c.im"
one_error "--resume" 2 "leave --resume out" collect --resume -o "$tmp/c" --imatrix "$tmp/c.im"
one_error "another model's" 3 "it is another model's" \
    "$bin/hotset-quantize" --imatrix "$tmp/a.im" tests/golden/m1.gguf "$tmp/c" Q4_0
head -c 40000 "$tmp/a.im" >"$tmp/cut.im"
one_error "cut off" 3 "cut.im: " \
    "$bin/hotset-quantize" --imatrix "$tmp/cut.im" "$tmp/m.gguf" "$tmp/c" Q4_0
[ ! -e "$tmp/c" ] && [ ! -e "$tmp/c.im" ] && ok "nothing was written" || not_ok "an output after an error"
finish
