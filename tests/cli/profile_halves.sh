# A profile of every other chapter of the calibration text plans for the chapters between: the share of activations
# that the planned neurons serve is the same within 2 points.
. tests/cli/common.sh
needs convert profile solve
[ -z "${HS_SAN:-}" ] || { echo "too long under sanitizers"; exit 77; }
prog=$bin/hotset-profile
m=$tmp/m.gguf
"$bin/hotset-convert" -q "$data" --outtype f16 -o "$m" || not_ok "convert"
# The text is in the order of its books, from Genesis to Revelation: its chapters are dealt out
# like cards, so that both halves are of the same kind.
awk -v a="$tmp/A.txt" -v b="$tmp/B.txt" '
    /^[1-3A-Z][A-Za-z ]* [0-9]+$/ { n++ }
    { print > (n % 2 ? a : b) }' "$data/calibration.txt"
for t in A B; do
    check "profile half $t" "$prog" -q -m "$m" -c 512 --chunks 40 -i "$tmp/$t.txt" -o "$tmp/$t" --report "$tmp/$t.csv"
done

# share PLAN PROFILE: of the activations of PROFILE, percent that the hottest neurons of half A
# serve, as many in each layer as PLAN says.
share() {
    sed -n 's/.*"device_neurons": *\([0-9]*\).*/\1/p' "$1" >"$tmp/k"
    sort -t, -k1,1n -k3,3nr -k2,2n "$tmp/A.csv/neurons.csv" | grep '^[0-9]' >"$tmp/ranked"
    awk -F, 'FILENAME == ARGV[1] { k[n++] = $1; next }
        FILENAME == ARGV[2] { if (at[$1]++ < k[$1 + 0]) hot[$1, $2] = 1; next }
        /^[0-9]/ { all += $3; if (($1, $2) in hot) sum += $3 }
        END { printf "%.2f", 100 * sum / all }' "$tmp/k" "$tmp/ranked" "$2"
}
for budget in 6M 8M 10M; do
    check "plan of half A for $budget" "$bin/hotset-solve" -q -m "$m" -a "$tmp/A" --vram-budget $budget -c 512 -o "$tmp/plan" -f --json
    cp "$tmp/out" "$tmp/plan.json"
    a=$(share "$tmp/plan.json" "$tmp/A.csv/neurons.csv")
    b=$(share "$tmp/plan.json" "$tmp/B.csv/neurons.csv")
    echo "# $budget: $a % of half A, $b % of half B"
    if awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; exit !(a > 5 && d < 2 && d > -2) }'; then
        ok "$budget: half A predicts half B within 2 points"
    else
        not_ok "$budget: half A predicts half B within 2 points" "$a % and $b %"
    fi
done
finish
