# hotset-solve --report: the folder, with and without gnuplot, and what it says.
. tests/cli/common.sh
needs profile solve
prog=$bin/hotset-solve
m=tests/golden/m256.gguf
a=$tmp/m256.activation.gguf
head -c 2000 "$data/calibration.txt" >"$tmp/text"
"$bin/hotset-profile" -q -m "$m" -i "$tmp/text" -c 64 -o "$a" >/dev/null || not_ok "profile"
printf '{"version": 1, "cpu": {"name": "a <b>", "bandwidth": 1e8}, "devices": [{"bandwidth": 1e10}, {"bandwidth": 5e9}]}\n' >"$tmp/machine"
files() { ls -A "$1" | tr '\n' ' ' | sed 's/ $//'; }
solve() { "$prog" -m "$m" -a "$a" -c 128 --dry-run "$@"; }
bare() { env PATH="$tmp/nothing" "$prog" -m "$m" -a "$a" -c 128 --dry-run "$@"; }

check "without gnuplot and machine" bare --vram-budget 4M --report "$tmp/plain"
has "plots in text are announced" 'the report has plots in text: gnuplot is not installed' "$tmp/err"
equal "its files" "layers.csv ledger.csv plan.json plots.gp report.html" "$(files "$tmp/plain")"
has "a bar for each layer" '^    1 +[0-9.]+ % #+$' "$tmp/plain/report.html"
bytes=$(awk -F, 'NR > 1 { s += $4 } END { print s }' "$tmp/plain/ledger.csv")
equal "the ledger adds up" "$((4194304 - $(sed -n 's/.*"unused": \([0-9]*\).*/\1/p' "$tmp/plain/plan.json")))" "$bytes"
check "the same as JSON" solve --vram-budget 4M --json
grep -v time_s "$tmp/out" >"$tmp/a.json"
grep -v time_s "$tmp/plain/plan.json" >"$tmp/b.json"
same "is plan.json" "$tmp/a.json" "$tmp/b.json"

check "latency with a machine" bare --vram-budget 4M --machine "$tmp/machine" --objective latency --report "$tmp/text2"
equal "its files" "layers.csv ledger.csv plan.json plots.gp report.html times.csv" "$(files "$tmp/text2")"
equal "a time for every plan" 7 "$(wc -l <"$tmp/text2/times.csv")"
for w in 'CPU only' 'whole layers' 'neurons at random' greedy 'impact plan' 'this placement'; do
    has "$w" "^$w,[0-9.]+,[0-9.]+\$" "$tmp/text2/times.csv"
done
# The acceptance line of the latency objective, on what is drawn by lot.
awk -F, 'NR > 1 { t[$1] = $3 } END { b = t["impact plan"]; if (t["whole layers"] < b) b = t["whole layers"];
    if (t["neurons at random"] < b) b = t["neurons at random"]; exit !(t["this placement"] <= 1.005 * b && b > 0) }' "$tmp/text2/times.csv" &&
    ok "drawn by lot, the plan is within 0.5 % of the best of the others" || not_ok "drawn by lot" "$(cat "$tmp/text2/times.csv")"
awk -F, '$1 == "this placement" { d = $3 / $2 - 1; exit !(d < 0.1 && d > -0.1) }' "$tmp/text2/times.csv" && ok "and near its prediction" || not_ok "and near its prediction"
has "names are no markup" 'a &lt;b> \+ device' "$tmp/text2/report.html"
if grep -Eq 'https?://|<script|<link' "$tmp/text2/report.html"; then not_ok "nothing outside is needed"; else ok "nothing outside is needed"; fi
check "again" bare --vram-budget 4M --machine "$tmp/machine" --objective latency --report "$tmp/again"
for f in layers.csv ledger.csv times.csv plots.gp; do same "the same $f" "$tmp/text2/$f" "$tmp/again/$f"; done

check "two devices" bare --device-memory 3M,2M --machine "$tmp/machine" --objective latency --report "$tmp/two"
has "a row a device" 'device 1</td>' "$tmp/two/report.html"
equal "no impact plan to compare" 6 "$(wc -l <"$tmp/two/times.csv")"
awk -F, '$1 == "this placement" { d = $3 / $2 - 1; exit !(d < 0.1 && d > -0.1) }' "$tmp/two/times.csv" && ok "near its prediction" || not_ok "near its prediction"

if command -v gnuplot >/dev/null; then
    check "with gnuplot" solve --vram-budget 4M --machine "$tmp/machine" --report "$tmp/svg"
    equal "its files" "layers.csv layers.svg ledger.csv plan.json plots.gp report.html times.csv times.svg" "$(files "$tmp/svg")"
    equal "two plots are embedded" 2 "$(grep -c 'src="data:image/svg+xml;base64,' "$tmp/svg/report.html")"
fi
one_error "a report that exists" 2 'plain: exists; use --force' bare --vram-budget 4M --report "$tmp/plain"
check "is replaced with --force" bare -q -f --vram-budget 4M --report "$tmp/plain"
mkdir "$tmp/mine" && : >"$tmp/mine/letter"
one_error "a folder of the user's is not" 2 'mine: is not a folder that a report' bare -f --vram-budget 4M --report "$tmp/mine"
rm -f "$tmp/p"
one_error "and nothing else is done" 2 'mine: is not' "$prog" -m "$m" -a "$a" --vram-budget 4M -o "$tmp/p" --report "$tmp/mine"
[ -e "$tmp/p" ] && not_ok "no placement" || ok "no placement"
finish
