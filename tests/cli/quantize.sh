# hotset-quantize: options, errors and exit codes, and files that can be compared.
. tests/cli/common.sh
needs quantize run
quantize=$bin/hotset-quantize
golden=tests/golden
m=$golden/m256.gguf
fast() { "$quantize" -q --no-sync "$@"; }

check "help" "$quantize" --help
has "help shows an example" "hotset-quantize model.gguf model.q4_0.gguf Q4_0" "$tmp/out"
has "help shows the default of predictors" "default: Q8_0" "$tmp/out"
check "version" "$quantize" --version
has "version names the program" "^hotset-quantize " "$tmp/out"

# --- wrong use: status 2 and one line -----------------------------------------
one_error "no operand" 2 "" "$quantize"
one_error "two operands" 2 "" "$quantize" "$m" "$tmp/x.gguf"
one_error "four operands" 2 "8" "$quantize" "$m" "$tmp/x.gguf" Q4_0 8
one_error "unknown option" 2 "did you mean '--pure'" "$quantize" --purr "$m" "$tmp/x.gguf" Q4_0
one_error "unknown type" 2 "'Q4_K_L' is not a type; types are .*Q2_K COPY" \
    "$quantize" "$m" "$tmp/x.gguf" Q4_K_L
one_error "operands in another order" 2 "third argument '$tmp/x.gguf' is not a type.*as in: hotset" \
    "$quantize" Q4_0 "$m" "$tmp/x.gguf"
one_error "a mixture is no type of tensors" 2 "'Q4_K_M' is not a type of tensors; those are " \
    "$quantize" --tensor-type up=Q4_K_M "$m" "$tmp/x.gguf" Q4_0
one_error "compatibility and a type without known bytes" 2 "its bytes of Q4_K_M are not known" \
    "$quantize" --compat powerinfer "$m" "$tmp/x.gguf" Q4_K_M
one_error "compatibility and importances" 2 "fixes all types" \
    "$quantize" --compat powerinfer --imatrix x "$m" "$tmp/x.gguf" Q4_0
one_error "no importance matrix there" 3 "none: cannot open" \
    "$quantize" --imatrix "$tmp/none" "$m" "$tmp/x.gguf" Q4_0
one_error "a model as importance matrix" 3 "m256.gguf: is no importance matrix" \
    "$quantize" --imatrix "$m" "$m" "$tmp/x.gguf" Q4_0
one_error "type of an option" 2 "--predictor-type: 'Q9' is not a type" \
    "$quantize" --predictor-type Q9 "$m" "$tmp/x.gguf" Q4_0
one_error "rule without a type" 2 "--tensor-type 'ffn': expected REGEX=TYPE" \
    "$quantize" --tensor-type ffn "$m" "$tmp/x.gguf" Q4_0
one_error "rule with a bad expression" 2 "--tensor-type '\(=F16'" \
    "$quantize" --tensor-type '(=F16' "$m" "$tmp/x.gguf" Q4_0
one_error "rule that matches nothing" 2 "--tensor-type 'nothing=F16' matches no weight matrix" \
    "$quantize" --tensor-type nothing=F16 "$m" "$tmp/x.gguf" Q4_0
one_error "rule that matches a norm only" 2 "matches no weight matrix" \
    "$quantize" --tensor-type 'ffn_norm=F16' "$m" "$tmp/x.gguf" Q4_0
one_error "unknown compatibility" 2 "powerinfer" "$quantize" --compat llama "$m" "$tmp/x.gguf" Q4_0
one_error "compatibility and own types" 2 "fixes all types" \
    "$quantize" --compat powerinfer --predictor-type F16 "$m" "$tmp/x.gguf" Q4_0
one_error "compatibility and BF16" 2 "no type BF16" \
    "$quantize" --compat powerinfer "$m" "$tmp/x.gguf" BF16
one_error "quantized input" 2 "m256.q4_0.gguf: token_embd.weight: is Q4_0 already" \
    "$quantize" "$golden/m256.q4_0.gguf" "$tmp/x.gguf" Q8_0

# --- bad input: status 3 ------------------------------------------------------
one_error "missing input" 3 "none.gguf: cannot open" "$quantize" "$tmp/none.gguf" "$tmp/x.gguf" Q4_0
one_error "a folder as input" 3 "is a directory" "$quantize" tests "$tmp/x.gguf" Q4_0
one_error "a text as input" 3 "Makefile: starts with bytes" "$quantize" Makefile "$tmp/x.gguf" Q4_0
hostile=0
for f in tests/fuzz/corpus/gguf/*; do
    case $f in */ok-*) continue ;; esac
    timeout 5 "$quantize" "$f" "$tmp/x.gguf" Q4_0 >"$tmp/out" 2>"$tmp/err"
    status=$?
    if [ $status -ne 3 ] || [ "$(wc -l <"$tmp/err")" -ne 1 ] || [ -s "$tmp/out" ] ||
        ! grep -Fq "$f: " "$tmp/err"; then
        not_ok "malformed $f" "exit $status" "$(cat "$tmp/err")"
    fi
    hostile=$((hostile + 1))
done
[ $hostile -gt 90 ] && ok "$hostile malformed files: status 3, one line with the name"
# By name: what let a quantizer of others write the heap into its output, and its relatives.
refuse() { one_error "$1" 3 "$2" "$quantize" "$3" "$tmp/x.gguf" Q8_0; }
gguf=tests/fuzz/corpus/gguf
head -c 3000000 "$m" >"$tmp/cut.gguf"
refuse "truncated input" "cut.gguf: .*byte" "$tmp/cut.gguf"
refuse "data beyond the end of the file" "past-the-end: " $gguf/past-the-end
refuse "one byte is missing" "one-byte-is-missing: " $gguf/one-byte-is-missing
refuse "an offset that wraps" "offset-wraps: " $gguf/offset-wraps
refuse "a size that wraps" "bytes-wrap: " $gguf/bytes-wrap
refuse "a size of blocks that wraps" "Q4-0-bytes-wrap-to-2: " $gguf/Q4-0-bytes-wrap-to-2
refuse "dimensions whose product wraps" "product-wraps-to-0: " $gguf/product-wraps-to-0
rm "$tmp/cut.gguf"
for f in tests/fuzz/corpus/gguf/ok-*; do
    check "valid $(basename "$f")" fast "$f" "$tmp/ok.gguf" COPY
    rm -f "$tmp/ok.gguf"
done

# the last element of the last tensor becomes NaN
cp "$m" "$tmp/nan.gguf" && chmod u+w "$tmp/nan.gguf"
printf '\000\176' | dd of="$tmp/nan.gguf" bs=1 seek=$(($(wc -c <"$m") - 2)) conv=notrunc 2>/dev/null
one_error "NaN" 3 "nan.gguf: blk.1.fc2.weight: element 63 of row 1535 is NaN" \
    "$quantize" -q "$tmp/nan.gguf" "$tmp/x.gguf" Q4_0
one_error "NaN in a copy" 3 "blk.1.fc2.weight: element 63 of row 1535 is NaN" \
    "$quantize" -q "$tmp/nan.gguf" "$tmp/x.gguf" COPY
printf '\000\374' | dd of="$tmp/nan.gguf" bs=1 seek=$(($(wc -c <"$m") - 2)) conv=notrunc 2>/dev/null
one_error "infinity" 3 "blk.1.fc2.weight: element 63 of row 1535 is -infinite" \
    "$quantize" -q "$tmp/nan.gguf" "$tmp/x.gguf" Q8_0
equal "no output after any error" "" "$(ls "$tmp" | grep -v '^out$\|^err$\|^nan.gguf$')"

# --- the input is never the output --------------------------------------------
cp "$m" "$tmp/in.gguf" && chmod u+w "$tmp/in.gguf"
ln "$tmp/in.gguf" "$tmp/hard.gguf"
ln -s in.gguf "$tmp/soft.gguf"
for out in "$tmp/in.gguf" "$tmp/./in.gguf" "$tmp/hard.gguf" "$tmp/soft.gguf"; do
    one_error "input as output: $(basename "$out")" 2 "is the input too" \
        "$quantize" --force "$tmp/in.gguf" "$out" Q4_0
done
same "the input is as it was" "$m" "$tmp/in.gguf"

# --- outputs --------------------------------------------------------------------
check "PowerInfer's Q4_0" "$quantize" --compat powerinfer "$m" "$tmp/pi.gguf" Q4_0
same "its bytes" "$golden/m256.q4_0.gguf" "$tmp/pi.gguf"
has "a line per tensor" "\[ 21/25\] output.weight .*F16 -> Q6_K" "$tmp/err"
has "a norm is kept" "blk.1.ffn_norm.weight .* F32 kept" "$tmp/err"
has "the result" "pi.gguf: 6.0 MiB -> 1.7 MiB, 4.56 bits per weight; 5 F32, 19 Q4_0, 1 Q6_K" "$tmp/out"
one_error "an output that exists" 2 "pi.gguf: exists; use --force" \
    fast "$m" "$tmp/pi.gguf" Q8_0
same "it is untouched" "$golden/m256.q4_0.gguf" "$tmp/pi.gguf"
check "--force replaces it" fast --force "$m" "$tmp/pi.gguf" Q8_0
check "options before, between and after operands" \
    "$quantize" -q -t 1 "$m" --no-sync "$tmp/pi2.gguf" Q8_0 --json
same "give the same" "$tmp/pi.gguf" "$tmp/pi2.gguf"
check "COPY" fast "$m" "$tmp/copy.gguf" COPY
same "is a copy" "$m" "$tmp/copy.gguf"
for t in Q4_0 Q6_K Q4_K_M Q2_K F32; do
    for n in 1 2 3 8; do
        check "$t with $n threads" fast -t $n "$m" "$tmp/$t.$n.gguf" $t
    done
    for n in 2 3 8; do
        same "$t: 1 and $n threads" "$tmp/$t.1.gguf" "$tmp/$t.$n.gguf"
    done
done
check "F32 of F16, and back" fast "$tmp/F32.1.gguf" "$tmp/back.gguf" Q4_0 --compat powerinfer
same "loses nothing" "$golden/m256.q4_0.gguf" "$tmp/back.gguf"

check "requantized when allowed" \
    fast --allow-requantize "$golden/m256.q4_0.gguf" "$tmp/re.gguf" Q8_0
check "one rule for each tensor, the first wins" fast --json --no-sync \
    --tensor-type 'blk\.0\.ffn_up=Q8_0' --tensor-type 'ffn_(up|gate)=Q5_0' "$m" "$tmp/r.gguf" Q4_0
has "the first" '"blk.0.ffn_up.weight","shape":\[256,1536\],"type_before":"F16","type_after":"Q8_0"' \
    "$tmp/out"
has "the second" '"blk.1.ffn_up.weight",[^}]*"type_after":"Q5_0"' "$tmp/out"
has "neither" '"blk.1.ffn_down_t.weight",[^}]*"type_after":"Q4_0"' "$tmp/out"
has "no importance" '"blk.1.ffn_down_t.weight",[^}]*"importance":null' "$tmp/out"
has "error of Q4_0" '"blk.1.ffn_down_t.weight",[^}]*"rms_error":0\.08' "$tmp/out"
has "predictors" '"blk.1.fc2.weight",[^}]*"type_after":"Q8_0"' "$tmp/out"

# rows of 128 do not divide into Q6_K's 256, rows of 16 into no block
check "fallback" "$quantize" "$golden/m1.gguf" "$tmp/fall.gguf" Q6_K
has "of each tensor" "warning: blk.0.ffn_up.weight: row length 128 is not a multiple of 256, the block of Q6_K; it becomes Q8_0" \
    "$tmp/err"
has "of all" "warning: 22 of 36 tensors, .* are not of the type asked for" "$tmp/err"
has "of the head" "output.weight: row length 128 does not divide by 256, so the head is Q8_0" "$tmp/err"
one_error "--no-fallback" 1 "m1.gguf: token_embd.weight: row length 128 is not a multiple of 256.*--no-fallback" \
    "$quantize" --no-fallback "$golden/m1.gguf" "$tmp/none.gguf" Q6_K

# every type runs in every mode, on the CPU and on the device, and gives one text in all
head -c 300 data/kjv-relu-8m/calibration.txt >"$tmp/text"
if [ -x "$bin/hotset-profile" ] && [ -x "$bin/hotset-solve" ]; then
    check "a profile" "$bin/hotset-profile" -q -c 64 -m "$m" -i "$tmp/text" -o "$tmp/profile.gguf"
    modes="off exact device"
else
    modes="off exact"
fi
for t in Q4_1 Q5_1 Q2_K Q3_K_S Q4_K_M Q5_K_S IQ4_NL IQ4_XS; do
    check "$t" fast --force --pure "$m" "$tmp/t.gguf" $t
    want=
    for mode in $modes; do
        case $mode in
        off) set -- --sparsity off ;;
        exact) set -- --sparsity exact ;;
        device)
            check "a placement for $t" "$bin/hotset-solve" -q --force -m "$tmp/t.gguf" \
                -a "$tmp/profile.gguf" --vram-budget 1M -c 64 -o "$tmp/t.gpuidx"
            set -- --sparsity exact --device emu --placement "$tmp/t.gpuidx"
            ;;
        esac
        got=$("$bin/hotset-run" -q -m "$tmp/t.gguf" -c 64 --tokens 1,5,9,2 -n 8 --temp 0 --json "$@" \
            2>"$tmp/err" | grep -o '"tokens":\[[0-9,]*\]')
        [ -n "$want" ] || want=${got:-no tokens}
        equal "$t runs: $mode" "$want" "$got"
    done
done
rm -f "$tmp"/t.* "$tmp/profile.gguf" "$tmp/text"

check "Q4_0" fast "$m" "$tmp/real.gguf" Q4_0
check "--dry-run" "$quantize" --dry-run --json "$m" "$tmp/none.gguf" Q4_0
has "says the size beforehand" "\"file_bytes_after\":$(wc -c <"$tmp/real.gguf")," "$tmp/out"
[ ! -e "$tmp/none.gguf" ] && ok "--dry-run and --no-fallback write nothing" || not_ok "an output of nothing"

mkdir "$tmp/a b;c" && cp "$m" "$tmp/a b;c/\$(x) 'y'.gguf"
check "odd paths" fast "$tmp/a b;c/\$(x) 'y'.gguf" "$tmp/a b;c/ä.gguf" Q8_0
same "the same bytes" "$tmp/pi.gguf" "$tmp/a b;c/ä.gguf"

# --- no room, no permission, no time --------------------------------------------
fast "$m" "$tmp/full.gguf" Q8_0 >/dev/full 2>"$tmp/err"
equal "a full stdout is status 1" 1 $?
mkdir "$tmp/small"
if mount -t tmpfs -o size=64k tmpfs "$tmp/small" 2>/dev/null; then
    trap 'umount "$tmp/small"; rm -rf "$tmp"' EXIT
    one_error "disk full" 4 "small/x.gguf: write: No space left" \
        fast "$m" "$tmp/small/x.gguf" Q4_0
    echo precious >"$tmp/small/y.gguf"
    one_error "disk full, --force" 4 "No space left" \
        fast --force "$m" "$tmp/small/y.gguf" Q4_0
    equal "nothing is left, what was there stays" "y.gguf precious" \
        "$(ls -A "$tmp/small") $(cat "$tmp/small/y.gguf")"
    umount "$tmp/small"
    trap 'rm -rf "$tmp"' EXIT
else
    echo "skipped: disk full (mount is not permitted)"
fi
# A signal in the middle: the shortest pause that meets the program at work.
for signal in TERM KILL; do
    for pause in 0.2 0.1 0.05 0.02 0; do
        "$quantize" -q -t 1 "$tmp/F32.1.gguf" "$tmp/cut.gguf" Q6_K --pure 2>"$tmp/err" >"$tmp/out" &
        sleep $pause
        kill -$signal $! 2>/dev/null
        wait $! 2>/dev/null
        status=$?
        [ $status -ne 0 ] && break
        rm -f "$tmp/cut.gguf"
    done
    equal "SIG$signal in the middle" "$([ $signal = TERM ] && echo 130 || echo 137)" $status
    equal "leaves nothing" "" "$(ls -A "$tmp" | grep 'cut\|hotset-')"
done
one_error "a folder that is not there" 1 "none/x.gguf: cannot create" \
    fast "$m" "$tmp/none/x.gguf" Q4_0
one_error "a folder as output" 2 "exists and is not a regular file" \
    fast "$m" "$tmp/small" Q4_0

finish
