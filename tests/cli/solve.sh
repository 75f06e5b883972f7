# hotset-solve: budgets to the byte, the order of the dense part, options that must change the
# answer, refusals.
. tests/cli/common.sh
needs profile solve
prog=$bin/hotset-solve
m=tests/golden/m256.gguf # 2 layers of 1536 neurons, with predictors
a=$tmp/m256.activation.gguf
head -c 2000 "$data/calibration.txt" >"$tmp/text"
"$bin/hotset-profile" -q -m "$m" -i "$tmp/text" -c 64 -o "$a" >/dev/null || not_ok "profile"

# solve BUDGET [OPTION...]: the JSON report is left in $tmp/out, the placement in $tmp/p.
solve() {
    budget=$1
    shift
    "$prog" -m "$m" -a "$a" -c 128 --vram-budget "$budget" -o "$tmp/p" -f --json "$@"
}
# num KEY [FILE]: a number at the top of the report.
num() { sed -n "s/^  \"$1\": \([-0-9.e+]*\),*\$/\1/p" "${2:-$tmp/out}"; }
# use KEY [FILE]: a line of its ledger.
use() { sed -n "/\"ledger\"/,/}/s/^    \"$1\": \([0-9]*\),*\$/\1/p" "${2:-$tmp/out}"; }
# ledger [FILE]: the sum of all lines.
ledger() { sed -n '/"ledger"/,/}/p' "${1:-$tmp/out}" | awk -F': ' '/: [0-9]/ { s += $2 } END { printf "%.0f\n", s }'; }
# neurons [FILE]: of each layer, on one line.
neurons() { sed -n 's/.*"device_neurons": \([0-9]*\).*/\1/p' "${1:-$tmp/out}" | tr '\n' ' '; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# --- budgets ----------------------------------------------------------------
check "budget 0" solve 0
has "is a plan of nothing, with a warning" 'warning: the budget is 0' "$tmp/err"
equal "objective, bound and gap are 0" "0 0 0.0" "$(num objective) $(num bound) $(num gap)"
equal "no neurons" "0 0 " "$(neurons)"
check "budget of 1 byte" solve 1
has "says why nothing fits" 'warning: nothing is placed.*working buffers.*98560 bytes, 0 are left' "$tmp/err"
equal "and uses none of it" "1 1" "$(use unused) $(ledger)"
check "budget below one group" solve 200K
has "says what a group takes" 'warning: no neurons are placed.*98560 bytes, [0-9]+ are left' "$tmp/err"

check "a budget for a part" solve 4M
cp "$tmp/out" "$tmp/part"
cp "$tmp/p" "$tmp/part.gpuidx"
equal "the ledger is the budget" 4194304 "$(ledger)"
equal "proven optimal" "$(num objective)" "$(num bound)"
has "the status says so" '"solver_status": "optimal"' "$tmp/out"
has "predictions need a machine file" '"predicted_s": null' "$tmp/out"
[ -s "$tmp/err" ] && not_ok "nothing to warn about" "$(cat "$tmp/err")" || ok "nothing to warn about"
plan=$((4194304 - $(use unused)))
check "a budget of exactly the plan" solve "$plan"
equal "leaves nothing" "0 $plan" "$(use unused) $(ledger)"
equal "and has the same neurons" "$(neurons "$tmp/part")" "$(neurons)"
check "one byte less" solve $((plan - 1))
less "$(num objective)" "$(num objective "$tmp/part")" && ok "serves less" || not_ok "serves less"
equal "the ledger is the budget" $((plan - 1)) "$(ledger)"

check "a budget for everything" solve 1G
equal "every neuron" "1536 1536 " "$(neurons)"
all=$((1073741824 - $(use unused)))
check "exactly everything" solve "$all"
equal "leaves nothing" "0 1536 1536 " "$(use unused) $(neurons)"
check "one byte less than everything" solve $((all - 1))
equal "the ledger is the budget" $((all - 1)) "$(ledger)"
case $(neurons) in "1536 1536 ") not_ok "leaves neurons on the CPU" ;; *) ok "leaves neurons on the CPU" ;; esac

# --- the dense part, in its order ---------------------------------------------
# Budgets that end with each kind of block: working buffers, then what all blocks of it take.
"$prog" -m "$m" -a "$a" -c 128 --vram-budget 200K --dry-run --json >"$tmp/dense" 2>/dev/null
sum=$(use scratch "$tmp/dense") order=
for u in attention predictor 'ffn norm' output 'kv cache' neurons; do
    sum=$((sum + $(use "$u" "$tmp/part")))
    [ "$u" != output ] || sum=$((sum + $(use scratch "$tmp/part") - $(use scratch "$tmp/dense")))
    "$prog" -m "$m" -a "$a" -c 128 --vram-budget $sum --dry-run --json >"$tmp/dense2" 2>/dev/null || not_ok "budget $sum"
    order="$order$(for w in attention predictor 'ffn norm' output 'kv cache' neurons; do
        [ "$(use "$w" "$tmp/dense2")" -eq "$(use "$w" "$tmp/part")" ] && printf '%.1s' "$w"
    done) "
done
equal "attention, predictors, norms, output, KV cache, then neurons" "a ap apf apfo apfok apfokn " "$order"
"$prog" -m "$m" -a "$a" -c 128 --vram-budget 620K --dry-run --json >"$tmp/dense" 2>/dev/null
equal "what does not fit leaves room for what comes after it" "0 2048" "$(use predictor "$tmp/dense") $(use 'ffn norm' "$tmp/dense")"
check "a longer context" solve 4M -c 256
equal "has a KV cache twice as large" $((2 * $(use 'kv cache' "$tmp/part"))) "$(use 'kv cache')"
check "KV cache in f32" solve 4M --kv-type f32
equal "is twice as large" $((2 * $(use 'kv cache' "$tmp/part"))) "$(use 'kv cache')"

# --- options that must change the answer -----------------------------------
check "groups of 256" solve 4M --group 256
for n in $(neurons); do
    [ $((n % 256)) -eq 0 ] && ok "$n is whole groups" || not_ok "$n is no whole groups of 256"
done
check "a minimum of 1500" solve 4250K --min-neurons 1500
less "$(num objective)" "$(num objective "$tmp/part")" && ok "costs something" || not_ok "costs something"
case $(neurons) in
"0 1536 " | "1536 0 ") ok "one layer has them, the other none" ;;
*) not_ok "one layer has them, the other none" "$(neurons)" ;;
esac
check "a minimum above the layer" solve 1G --min-neurons 1537
has "places nothing and says why" 'no neurons are placed.*more neurons than any layer has' "$tmp/err"

for s in exact glpk auto; do
    check "solver $s" solve 4M --solver $s
    equal "$s finds the optimum" "$(num objective "$tmp/part")" "$(num objective)"
    [ $s = auto ] || has "$s is the source" "\"source\": \"$s\"" "$tmp/out"
done
same "the same inputs give the same bytes" "$tmp/part.gpuidx" "$tmp/p"
check "hardly any time" solve 4M --time-limit 0.001
equal "is a plan all the same" 4194304 "$(ledger)"
check "a gap of 100 %" solve 4M --gap 1
check "a text report" "$prog" -m "$m" -a "$a" -c 128 --vram-budget 4M -o "$tmp/p" -f
has "shows layers" '^ +1 +[0-9]+ of 1536 .* %$' "$tmp/out"
has "shows unused memory" '^unused +[0-9]+' "$tmp/out"

# --- files --------------------------------------------------------------------
if [ -x "$bin/hotset-inspect" ]; then
    check "the placement is sound" "$bin/hotset-inspect" --check "$tmp/part.gpuidx"
fi
equal "our keys are in the file" 1 "$(grep -c 'hotset.plan.bytes' "$tmp/part.gpuidx")"
check "PowerInfer's keys only" solve 4M --plain
grep -q hotset "$tmp/p" && not_ok "nothing of ours in it" || ok "nothing of ours in it"
rm -f "$tmp/p"
check "a dry run" solve 4M --dry-run
[ -e "$tmp/p" ] && not_ok "writes nothing" || ok "writes nothing"
echo precious >"$tmp/old"
one_error "a file is not replaced unasked" 2 'old: exists; use --force' "$prog" -m "$m" -a "$a" -c 128 --vram-budget 4M -o "$tmp/old"
equal "and is untouched" precious "$(cat "$tmp/old")"
cp "$m" "$tmp/model.gguf"
one_error "the model is no output" 2 'the output is one of the inputs' "$prog" -m "$tmp/model.gguf" -a "$a" --vram-budget 4M -o "$tmp/model.gguf" -f
mkdir -p "$tmp/a b;c/'d'"
check "names with blanks, quotes and semicolons" "$prog" -m "$m" -a "$a" -c 128 --vram-budget 4M -o "$tmp/a b;c/'d'/p x.gpuidx" -q
same "the same bytes under any name" "$tmp/part.gpuidx" "$tmp/a b;c/'d'/p x.gpuidx"

# --- the machine ----------------------------------------------------------------
# A slow CPU and a device a hundred times faster, so that this small model gains by it.
machine() { printf '{"version": 1, "cpu": {"bandwidth": 1e8}, "devices": [{"bandwidth": 1e10, "sync_s": %s}]}\n' "$1"; }
machine 20e-6 >"$tmp/near"
machine 1e-3 >"$tmp/far"
machine 10 >"$tmp/moon"
printf '{"version": 1, "cpu": {"bandwidth": 1e8}}\n' >"$tmp/cpu-only"
printf '{"version": 1, "cpu": {"bandwidth": 1e8}, "devices": [{"bandwith": 1e10}]}\n' >"$tmp/typo"
# time KEY [FILE]: a number of predicted_s.
time_of() { sed -n '/"predicted_s"/,/}/'"s/^    \"$1\": \([-0-9.e+]*\),*\$/\1/p" "${2:-$tmp/out}"; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b * (1 + 1e-9)) }'; }

check "impact for a machine" solve 4M --machine "$tmp/near"
cp "$tmp/out" "$tmp/impact"
cp "$tmp/p" "$tmp/impact.gpuidx"
equal "waits are short: the same neurons" "$(neurons "$tmp/part")" "$(neurons)"
less "$(time_of with)" "$(time_of without)" && ok "is faster than without" || not_ok "is faster than without"
check "latency" solve 4M --machine "$tmp/near" --objective latency
cp "$tmp/out" "$tmp/latency"
cp "$tmp/p" "$tmp/latency.gpuidx"
equal "proven optimal" "$(num objective)" "$(num bound)"
has "the status says so" '"solver_status": "optimal"' "$tmp/out"
equal "the ledger is the budget" 4194304 "$(ledger)"
for k in without layers random greedy; do
    at_most "$(num objective)" "$(time_of $k)" && ok "no slower than $k" || not_ok "no slower than $k"
done
at_most "$(num objective)" "$(time_of with "$tmp/impact")" && ok "no slower than the impact plan" || not_ok "no slower than the impact plan"
at_most "$(time_of with)" "$(num objective)" && at_most "$(num objective)" "$(time_of with)" && ok "one prediction" || not_ok "one prediction"
check "latency by exact" solve 4M --machine "$tmp/near" --objective latency --solver exact
same "the same file" "$tmp/latency.gpuidx" "$tmp/p"
check "latency by GLPK" solve 4M --machine "$tmp/near" --objective latency --solver glpk
has "GLPK is the source" '"source": "glpk"' "$tmp/out"
awk -v a="$(num objective)" -v b="$(num objective "$tmp/latency")" 'BEGIN { exit !(a <= b * (1 + 1e-6)) }' &&
    ok "GLPK agrees" || not_ok "GLPK agrees"
check "a minimum with latency" solve 4M --machine "$tmp/near" --objective latency --min-neurons 1500
for n in $(neurons); do
    [ "$n" -eq 0 ] || [ "$n" -ge 1500 ] && ok "$n is none or enough" || not_ok "$n is none or enough"
done
check "eight tokens together" solve 4M --machine "$tmp/near" --objective latency --batch 8
less "$(time_of without)" "$(time_of without "$tmp/latency")" && ok "cost less each" || not_ok "cost less each"
# Room for 40 neurons, which do not earn a millisecond.
room=$((4194304 - $(use unused "$tmp/impact") - $(use neurons "$tmp/impact") + 40 * 1600))
check "a machine that waits a little" solve $room --group 1 --machine "$tmp/near"
case $(neurons) in "0 0 ") not_ok "takes some neurons" ;; *) ok "takes some neurons" ;; esac
check "one that waits longer" solve $room --group 1 --machine "$tmp/far"
equal "takes none" "0 0 " "$(neurons)"
check "with more room" solve 4M --machine "$tmp/far"
for n in $(neurons); do
    [ "$n" -ge 40 ] && ok "$n pay for the wait" || not_ok "$n pay for the wait"
done
check "a device on the moon" solve 4M --machine "$tmp/moon"
has "gets no neurons" 'no neurons are placed.*no layer.s neurons save as much time as waiting' "$tmp/err"
check "and by latency" solve 4M --machine "$tmp/moon" --objective latency
has "gets nothing" 'no neurons are placed.*predicts no time saved' "$tmp/err"
equal "not even dense blocks" 4194304 "$(use unused)"
check "a budget below the dense part" solve 500K --machine "$tmp/near"
has "goes to the blocks that save most" 'dense part does not fit' "$tmp/err"
with=$(time_of with)
check "the same without that choice" solve 500K --machine "$tmp/near" --objective latency
at_most "$(time_of with)" "$with" && ok "latency is no slower" || not_ok "latency is no slower"
check "everything fits" solve 1G --machine "$tmp/near" --objective latency
equal "everything is there" "1536 1536 " "$(neurons)"
check "everything fits on the moon" solve 1G --machine "$tmp/moon" --objective latency
has "says that it is slow there" 'whole model fits .* though the machine file predicts' "$tmp/err"
equal "and is there" "1536 1536 " "$(neurons)"
for f in data/machines/*.json; do
    check "$f" solve 4M --machine "$f" --objective latency
    at_most "$(time_of with)" "$(time_of without)" && ok "never slower than the CPU" || not_ok "never slower than the CPU"
done
check "a text report with a machine" "$prog" -m "$m" -a "$a" -c 128 --vram-budget 4M --machine "$tmp/near" --objective latency -o "$tmp/p" -f
for w in 'CPU only' 'whole layers' 'neurons at random' greedy 'this placement'; do
    has "has a time for $w" "$w +[0-9.]+ ms" "$tmp/out"
done
has "has bounds" '^bounds +[0-9]+ ps saved by Lagrange, [0-9]+ ps saved proven' "$tmp/out"
has "the ledger by layer and use" '^ +1 +[0-9]+ of 1536 +[0-9.]+ KiB ' "$tmp/out"
lines=$(sed -n '/"ledger_lines"/,/]/s/.*"bytes": \([0-9]*\).*/\1/p' "$tmp/latency" | awk '{ s += $1 } END { print s }')
equal "the ledger's lines add up" $((4194304 - $(use unused "$tmp/latency"))) "$lines"
if [ -x "$bin/hotset-run" ]; then
    run() { "$bin/hotset-run" -m "$m" -c 128 -p 'In the beginning' -n 12 --temp 0 --json "$@" 2>/dev/null | tr -d '\n' | sed 's/.*"tokens": *\[\([^]]*\)\].*/\1/'; }
    run --device none >"$tmp/tokens"
    for p in latency impact; do
        check "the $p plan runs" run --placement "$tmp/$p.gpuidx" --device emu
        same "with the same tokens" "$tmp/tokens" "$tmp/out"
    done
fi
[ ! -x "$bin/hotset-inspect" ] || check "the latency plan is sound" "$bin/hotset-inspect" --check "$tmp/latency.gpuidx"

# --- refusals: one line, nothing written --------------------------------------
rm -f "$tmp/no"
refuse() {
    name=$1 want=$2 regex=$3
    shift 3
    one_error "$name" "$want" "$regex" "$prog" -o "$tmp/no" "$@"
    [ -e "$tmp/no" ] && not_ok "$name: nothing is written"
    rm -f "$tmp/no"
}
refuse "no profile" 3 'none: cannot open' -m "$m" -a "$tmp/none" --vram-budget 4M
refuse "no model" 3 'none: cannot open' -m "$tmp/none" -a "$a" --vram-budget 4M
refuse "a text as profile" 3 'text: starts with bytes' -m "$m" -a "$tmp/text" --vram-budget 4M
refuse "a model as profile" 3 'm256.gguf: ' -m "$m" -a "$m" --vram-budget 4M
refuse "a profile as model" 3 'activation.gguf: ' -m "$a" -a "$a" --vram-budget 4M
refuse "a profile of another model" 3 'activation.gguf: made on another model: fingerprint [0-9a-f]{32}' \
    -m tests/golden/m256.q4_0.gguf -a "$a" --vram-budget 4M
refuse "a profile of another shape" 3 'activation.gguf: (has 2 layers, the model|layer 0 has 1536 neurons)' \
    -m tests/golden/m1.gguf -a "$a" --vram-budget 4M
refuse "no budget" 2 'expected --vram-budget' -m "$m" -a "$a"
refuse "a budget that is no size" 2 'vram-budget' -m "$m" -a "$a" --vram-budget 4X
refuse "an objective that is not there" 2 'objective' -m "$m" -a "$a" --vram-budget 4M --objective speed
refuse "latency without a machine" 2 'objective latency needs .*--machine' -m "$m" -a "$a" --vram-budget 4M --objective latency
refuse "a batch without a machine" 2 'batch needs .*--machine' -m "$m" -a "$a" --vram-budget 4M --batch 2
refuse "a machine file that is not there" 3 'none: cannot open' -m "$m" -a "$a" --vram-budget 4M --machine "$tmp/none"
refuse "a machine file with a typing error" 3 "typo: devices\\[0\\]: unknown key 'bandwith'; did you mean 'bandwidth'" -m "$m" -a "$a" --vram-budget 4M --machine "$tmp/typo"
refuse "a machine without a device" 3 'cpu-only: devices: expected at least one' -m "$m" -a "$a" --vram-budget 4M --machine "$tmp/cpu-only"
refuse "a time limit of 0" 2 'time-limit' -m "$m" -a "$a" --vram-budget 4M --time-limit 0
refuse "groups of 0" 2 'group' -m "$m" -a "$a" --vram-budget 4M --group 0
refuse "an unknown option" 2 'min-neuron' -m "$m" -a "$a" --vram-budget 4M --min-neuron 3
one_error "no output" 2 'expected -o' "$prog" -m "$m" -a "$a" --vram-budget 4M
one_error "a folder that is not there" 1 'cannot create' "$prog" -m "$m" -a "$a" --vram-budget 4M -o "$tmp/none/p"
check "help" "$prog" --help
has "names the limits" '--time-limit S' "$tmp/out"

# --- counts from elsewhere ------------------------------------------------------
check "counts out of a profile" "$bin/hotset-profile" -q -m "$m" -i "$tmp/text" -c 64 -o "$tmp/b" --export-pt "$tmp/pt"
check "and in again, without a model" "$bin/hotset-profile" -q --import-pt "$tmp/pt" -o "$tmp/import"
check "a profile without fingerprint" "$prog" -m "$m" -a "$tmp/import" -c 128 --vram-budget 4M -o "$tmp/p" -f
has "is taken with a warning" 'warning: .*import has no model fingerprint' "$tmp/err"
same "and gives the same placement" "$tmp/part.gpuidx" "$tmp/p"

# --- the demonstration model --------------------------------------------------
if [ -x "$bin/hotset-convert" ]; then
    demo_gguf
    check "the reference counts" "$bin/hotset-profile" -q -m "$tmp/kjv.gguf" --import-pt "$data/reference/activation" --positions 16384 -o "$tmp/kjv.activation.gguf"
    m=$tmp/kjv.gguf a=$tmp/kjv.activation.gguf
    last=0
    for b in 0 2M 6M 9M 1G; do
        check "the demonstration model in $b" solve $b
        less "$(num objective)" "$last" && not_ok "more memory never serves less" || ok "more memory never serves less"
        equal "proven" "$(num objective)" "$(num bound)"
        last=$(num objective)
    done
    equal "all of it" "1024 1024 1024 1024 1024 1024 " "$(neurons)"
    if [ -x "$bin/hotset-quantize" ]; then
        check "quantize" "$bin/hotset-quantize" -q "$m" "$tmp/kjv.q4_0.gguf" Q4_0
        m=$tmp/kjv.q4_0.gguf
        check "the parent's profile serves its quantized child" solve 4M
        [ -s "$tmp/err" ] && not_ok "without a warning" "$(cat "$tmp/err")" || ok "without a warning"
    fi
fi

finish
