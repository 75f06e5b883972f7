# hotset-solve --device-memory: plans for several devices.
. tests/cli/common.sh
needs profile solve
prog=$bin/hotset-solve
m=tests/golden/m256.gguf # 2 layers of 1536 neurons, with predictors
a=$tmp/m256.activation.gguf
head -c 2000 "$data/calibration.txt" >"$tmp/text"
"$bin/hotset-profile" -q -m "$m" -i "$tmp/text" -c 64 -o "$a" >/dev/null || not_ok "profile"

solve() { "$prog" -m "$m" -a "$a" -c 128 -o "$tmp/p" -f --json "$@"; }
num() { sed -n "s/^  \"$1\": \([-0-9.e+]*\),*\$/\1/p" "${2:-$tmp/out}"; }
time_of() { sed -n '/"predicted_s"/,/}/'"s/^    \"$1\": \([-0-9.e+]*\),*\$/\1/p" "${2:-$tmp/out}"; }
# of DEVICE KEY: a number of the report's list of devices.
of() { sed -n '/^  "devices"/,/^  ]/p' "$tmp/out" | awk -F': ' -v d="$1" -v k="      \"$2\"" '/"device"/ { n = $2 + 0 } $1 == k && n == d { print $2 + 0 }'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b * (1 + 1e-9)) }'; }

machine() { printf '{"version": 1, "cpu": {"bandwidth": 1e8}, "devices": [{"bandwidth": 1e10}, {"bandwidth": %s}]}\n' "$1"; }
machine 1e10 >"$tmp/alike"
machine 2e9 >"$tmp/slower"
printf '{"version": 1, "cpu": {"bandwidth": 1e8}, "devices": [{"bandwidth": 1e10}]}\n' >"$tmp/single"

# --- impact -------------------------------------------------------------------
check "two devices" solve --device-memory 2M,1M
cp "$tmp/p" "$tmp/two"
equal "the budgets are theirs" "2097152 1048576" "$(of 0 budget) $(of 1 budget)"
for d in 0 1; do
    at_most "$(of $d planned)" "$(of $d budget)" && ok "device $d keeps its budget" || not_ok "device $d keeps its budget"
    sum=$(($(of $d attention) + $(of $d predictor) + $(of $d 'ffn norm') + $(of $d output) + $(of $d 'kv cache') + $(of $d neurons) + $(of $d scratch)))
    equal "device $d: the ledger is what is planned" "$(of $d planned)" "$sum"
    [ "$(of $d neurons)" -gt 0 ] && ok "device $d has neurons" || not_ok "device $d has neurons"
done
equal "with four assignments all are tried: proven" "$(num objective) optimal" "$(num bound) $(sed -n 's/.*"solver_status": "\(.*\)".*/\1/p' "$tmp/out")"
two=$(num objective)
check "again" solve --device-memory 2M,1M
same "the same inputs give the same bytes" "$tmp/two" "$tmp/p"
[ ! -x "$bin/hotset-inspect" ] || check "the file is sound and the model's" "$bin/hotset-inspect" "$tmp/two" -m "$m" --check
check "one device of both sizes" solve --vram-budget 3M
at_most "$two" "$(num objective)" && ok "serves no less than two" || not_ok "serves no less than two"
check "the devices the other way round" solve --device-memory 1M,2M
equal "serve the same" "$two" "$(num objective)"
check "one entry" solve --device-memory 4M
cp "$tmp/p" "$tmp/one"
check "the budget of one device" solve --vram-budget 4M
same "is the same thing" "$tmp/one" "$tmp/p"
check "everything fits on two" solve --device-memory 1G,1G
equal "all of it is there" 2 "$(grep -c '"device_neurons": 1536' "$tmp/out")"
check "everything fits on the second" solve --device-memory 0,1G
equal "and goes there" "0 2" "$(of 0 planned) $(grep -c '"device": 1,*$' "$tmp/out" | awk '{ print ($1 >= 2) * 2 }')"
check "no memory anywhere" solve --device-memory 0,0
has "a warning" 'warning: the budget is 0' "$tmp/err"
check "a minimum" solve --device-memory 2M,1M --min-neurons 700
for n in $(sed -n 's/.*"device_neurons": \([0-9]*\).*/\1/p' "$tmp/out"); do
    [ "$n" -eq 0 ] || [ "$n" -ge 700 ] && ok "$n is none or enough" || not_ok "$n is none or enough"
done

# --- with a machine -------------------------------------------------------------
check "impact with a machine" solve --device-memory 2M,1M --machine "$tmp/alike"
impact=$(time_of with)
check "latency" solve --device-memory 2M,1M --machine "$tmp/alike" --objective latency
cp "$tmp/p" "$tmp/latency"
at_most "$(num objective)" "$impact" && ok "no slower than impact" || not_ok "no slower than impact"
at_most "$(num bound)" "$(num objective)" && ok "a bound" || not_ok "a bound"
at_most "$(num objective)" "$(time_of without)" && ok "faster than the CPU" || not_ok "faster than the CPU"
both=$(num objective)
[ ! -x "$bin/hotset-inspect" ] || check "its file is sound" "$bin/hotset-inspect" "$tmp/latency" -m "$m" --check
check "the second one slower" solve --device-memory 2M,1M --machine "$tmp/slower" --objective latency
at_most "$both" "$(num objective)" && ok "is no faster" || not_ok "is no faster"
check "one device with the first's memory" solve --vram-budget 2M --machine "$tmp/alike" --objective latency
at_most "$both" "$(num objective)" && ok "is no faster than two" || not_ok "is no faster than two"
check "a text report" "$prog" -m "$m" -a "$a" -c 128 --device-memory 2M,1M --machine "$tmp/alike" --objective latency -o "$tmp/p" -f
has "has a row a device" '^ +1 .* 1\.0 MiB ' "$tmp/out"
has "and layers with their device" '^ +0 +[01] +[0-9]+ of 1536' "$tmp/out"

# --- six layers: too many assignments to try all ----------------------------------
if [ -x "$bin/hotset-convert" ]; then
    demo_gguf
    "$bin/hotset-profile" -q -m "$tmp/kjv.gguf" --import-pt "$data/reference/activation" --positions 16384 -o "$tmp/kjv.activation.gguf" >/dev/null || not_ok "counts"
    kjv() { "$prog" -m "$tmp/kjv.gguf" -a "$tmp/kjv.activation.gguf" --device-memory "$@" -o "$tmp/p" -f --json; }
    for mem in 4M,4M 5M,3M 3M,3M,2M 2M,2M,2M,2M 9M,9M; do
        for how in "" "--machine $tmp/alike --objective latency"; do
            case $how$mem in ?*,*,*) continue ;; esac
            # shellcheck disable=SC2086  # a list of options
            check "the demonstration model on $mem $how" kjv $mem $how
            awk -v g="$(num gap)" 'BEGIN { exit !(g <= 0.05) }' && ok "within 5 % of the bound" || not_ok "within 5 % of the bound" "$(num gap)"
        done
    done
fi

# --- refusals ---------------------------------------------------------------------
rm -f "$tmp/no"
refuse() {
    local name=$1 want=$2 regex=$3
    shift 3
    one_error "$name" "$want" "$regex" "$prog" -m "$m" -a "$a" -o "$tmp/no" "$@"
    [ -e "$tmp/no" ] && not_ok "$name: nothing is written"
}
refuse "a budget twice" 2 'the budget is given by --vram-budget' --vram-budget 1M --device-memory 1M,1M
refuse "no size" 2 "expected sizes like 24G,12G, got 'x'" --device-memory x,1M
refuse "an empty entry" 2 'expected sizes like' --device-memory 1M,
refuse "nine devices" 2 'at most 8 devices' --device-memory 1,1,1,1,1,1,1,1,1
refuse "sizes that wrap" 2 'expected sizes like' --device-memory 17179869183G,17179869183G
refuse "PowerInfer's own file" 2 'knows one device' --device-memory 1M,1M --plain
refuse "a machine with fewer devices" 3 'single: devices: expected 2, one for each of --device-memory, got 1' --device-memory 1M,1M --machine "$tmp/single"
finish
