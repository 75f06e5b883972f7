# What users of other tools reported about profiles, placements and solvers: faults that must not
# exist here. Where the test is:
#
#   device memory differs from the budget (context, cache)    here, "planned"
#   budget below the dense part stops the program             here, "dense part"; solve.sh, "budgets"
#   bytes of a neuron from the wrong side of the matrix       unit/test_neuron_bytes.c; here, "100 neurons"
#   a failed plan degrades to none without a word             solve.sh, "refusals"; here, "unreadable"
#   an empty plan looks like success                          here, "--strict"
#   missing, empty, gappy, short folders of counts            here, "four errors"
#   profile not found beside the model                        here, "two places"
#   a model that fits is not put there completely             here, "everything fits"
#   the minimum per layer changes nothing                     solve.sh, "a minimum of 1500"; unit/test_solver.c
#   layers in the order of file names (10 before 2)           here, "twelve layers"; unit/test_solver_choices.c
#   stray files in the folder of counts                       here, "stray"
#   eleven counts for twelve layers                           here, "eleven"
#   n_ff no multiple of the group; budget below a group       unit/test_solver.c, odd sizes; solve.sh
#   a large M leaks the minimum                               unit/test_solver.c, large minimum
#   a stale plan is reused for another budget or model        here, "stale"; inspect.sh
#   the stored figure is the budget, not the need             here, "exactly its need"
#   index tensors by position, ids unchecked                  unit/test_placement.c
#   names with blanks and semicolons                          solve.sh
#   sizes above 2 GiB                                         here, "large sizes"
#   code in a counts file                                     unit/test_torch_zip.c, hostile.sh
#   equal counts in any order                                 unit/test_solver.c, ties by index
#   five outcomes of GLPK; abort; no basis; sizes of zero     unit/test_solver.c: verdicts, abort, degenerate
#   time limit keeps the plan, and a generous one the optimum unit/test_solver.c, time limit
#   80 x 112 groups with a minimum of 60                      unit/test_solver.c, large minimum
#   how to limit the time                                     here, "limits"
. tests/cli/common.sh
needs profile solve
prog=$bin/hotset-solve
m=tests/golden/m256.gguf
a=$tmp/m256.activation.gguf
head -c 2000 "$data/calibration.txt" >"$tmp/text"
"$bin/hotset-profile" -q -m "$m" -i "$tmp/text" -c 64 -o "$a" >/dev/null || not_ok "profile"
solve() { "$prog" -m "$m" -a "$a" -o "$tmp/p" -f --json "$@"; }
num() { sed -n "s/^  \"$1\": \([-0-9.e+]*\),*\$/\1/p" "$tmp/out"; }
use() { sed -n "/\"ledger\"/,/}/s/^    \"$1\": \([0-9]*\),*\$/\1/p" "$tmp/out"; }
neurons() { sed -n 's/.*"device_neurons": \([0-9]*\).*/\1/p' "$tmp/out" | tr '\n' ' '; }

# --- planned: never more than the budget, for any context and cache -------------------
for ctx in 16 128 512; do
    for kv in f16 f32; do
        for budget in 700K 1500K 3M 5M; do
            check "planned: context $ctx, $kv, $budget" solve -c $ctx --kv-type $kv --vram-budget $budget
            case $budget in *K) b=$((${budget%K} * 1024)) ;; *) b=$((${budget%M} * 1048576)) ;; esac
            sum=$(sed -n '/"ledger_lines"/,/]/s/.*"bytes": \([0-9]*\).*/\1/p' "$tmp/out" | awk '{ s += $1 } END { printf "%.0f", s }')
            [ "$sum" -le $b ] && [ $((sum + $(use unused))) -eq $b ] && ok "its lines keep it" || not_ok "its lines keep it" "$sum of $b"
        done
    done
done
if [ -x "$bin/hotset-run" ]; then
    for ctx in 16 512; do
        solve -c $ctx --vram-budget 3M >"$tmp/out"
        planned=$((3145728 - $(use unused)))
        check "planned: a run in context $ctx" "$bin/hotset-run" -q -m "$m" -c $ctx --placement "$tmp/p" --device emu -p a -n 2 --temp 0 --json
        used=$(tr -d '\n' <"$tmp/out" | sed 's/.*"device": *{[^}]*"used": *\([0-9]*\).*/\1/')
        equal "takes what was planned" $planned "$used"
    done
fi

# --- dense part: one byte around it, and it runs --------------------------------------
solve -c 128 --vram-budget 1G >"$tmp/out"
all=$((1073741824 - $(use unused)))
dense=$((all - $(use neurons)))
for b in 0 1 $((dense - 1)) $dense $((dense + 1)); do
    check "dense part: $b bytes" solve -c 128 --vram-budget $b
    [ ! -x "$bin/hotset-run" ] || check "and runs" "$bin/hotset-run" -q -m "$m" -c 128 --placement "$tmp/p" --device emu -p a -n 1 --temp 0
done

# --- 100 neurons of 384 bytes in 38,400 -------------------------------------------------
if [ -x "$build/gen/model" ]; then
    for t in F16:128 Q8_0:68 Q4_0:36; do
        row=${t#*:} t=${t%:*}
        "$build/gen/model" -e 64 -f 256 -l 1 -H 1 -k 1 -v 300 -t "$t" -a 0.1 "$tmp/small.gguf" || not_ok "make a model"
        "$build/gen/counts" "$tmp/small.act" 1 256 || not_ok "make counts"
        small() { "$prog" -q -m "$tmp/small.gguf" -a "$tmp/small.act" -c 16 --group 1 -o "$tmp/p" -f --json "$@"; }
        small --vram-budget 1G >"$tmp/out" 2>/dev/null
        equal "$t: all neurons are three rows and an index entry each" $((256 * (3 * row + 4))) "$(use neurons)"
        base=$((1073741824 - $(use unused) - $(use neurons)))
        up() { echo $((($1 + 255) / 256 * 256)); }
        room=$(($(up $((100 * row))) * 3 + $(up 400)))
        check "$t: room for 100 neurons" small --vram-budget $((base + room))
        n=$(neurons)
        [ "$((n))" -ge 100 ] && [ "$((n))" -lt 108 ] && ok "$t: is for 100, and what alignment adds" || not_ok "$t: is for 100" "$n"
        [ "$t" != F16 ] || equal "F16: exactly 100 in 38,400 bytes" "38400 100" "$((room - 512)) $((n))"
    done
fi

# --- unreadable ---------------------------------------------------------------------
printf 'GGUF' >"$tmp/cut"
rm -f "$tmp/no"
one_error "unreadable: a cut profile" 3 'cut: ' "$prog" -m "$m" -a "$tmp/cut" --vram-budget 3M -o "$tmp/no"
one_error "unreadable: a folder" 3 "$(basename "$tmp"): " "$prog" -m "$m" -a "$tmp" --vram-budget 3M -o "$tmp/no"
[ -e "$tmp/no" ] && not_ok "writes nothing" || ok "writes nothing"

# --- --strict -------------------------------------------------------------------------
one_error "--strict: an empty plan" 4 '^hotset-solve: --strict: no neurons are placed on the device: .*98560 bytes' \
    "$prog" -m "$m" -a "$a" --vram-budget 200K -o "$tmp/no" --strict
[ -e "$tmp/no" ] && not_ok "writes nothing" || ok "writes nothing"
check "without it a warning" solve --vram-budget 200K
has "with the reason" 'warning: no neurons are placed on the device: .*98560 bytes' "$tmp/err"
check "--strict: a plan with neurons" solve --vram-budget 3M --strict
check "--strict: no budget asks for nothing" solve --vram-budget 0 --strict

# --- two places -------------------------------------------------------------------------
mkdir "$tmp/A" "$tmp/B"
cp "$m" "$tmp/A/m.q4_0.gguf"
cp "$a" "$tmp/B/profile"
place() { "$prog" -m "$tmp/A/m.q4_0.gguf" --vram-budget 3M -o "$tmp/p" -f --json "$@"; }
check "two places: a profile elsewhere, named" place -a "$tmp/B/profile"
cp "$tmp/p" "$tmp/named"
one_error "two places: none is there" 3 'no profile: none is given with -a, and there is no .*A/m.q4_0.activation.gguf and no .*A/m.activation.gguf$' place
cp "$a" "$tmp/A/m.activation.gguf"
check "two places: the unquantized model's" place
same "makes the same plan" "$tmp/named" "$tmp/p"
has "and is named" 'profile: .*A/m.activation.gguf' "$tmp/err"
mv "$tmp/A/m.activation.gguf" "$tmp/A/m.q4_0.activation.gguf"
check "two places: its own" place
has "and is named" 'profile: .*A/m.q4_0.activation.gguf' "$tmp/err"

# --- four errors ------------------------------------------------------------------------
import() { "$bin/hotset-profile" -q --import-pt "$1" --positions 16384 -o "$tmp/no"; }
mkdir "$tmp/void" "$tmp/gap" "$tmp/short"
cp "$data"/reference/activation/activation_*.pt "$tmp/gap"
cp "$data"/reference/activation/activation_*.pt "$tmp/short"
mv "$tmp/gap/activation_2.pt" "$tmp/kept.pt"
one_error "four errors: no folder" 3 'none: cannot open folder' import "$tmp/none"
one_error "four errors: an empty one" 3 'void: no activation_<layer>.pt' import "$tmp/void"
one_error "four errors: a layer missing" 3 'gap: activation_2.pt: layer 2 is missing' import "$tmp/gap"
"$bin/hotset-profile" -q -m "$m" --merge "$a" -o "$tmp/x" --export-pt "$tmp/other" >/dev/null 2>&1 ||
    "$bin/hotset-profile" -q --merge "$a" -o "$tmp/x" --export-pt "$tmp/other" >/dev/null 2>&1
cp "$tmp/other/activation_1.pt" "$tmp/short/activation_3.pt"
if [ -x "$bin/hotset-convert" ]; then
    demo_gguf
    one_error "four errors: a layer of another length" 3 'layer 3.*1024.*1536|layer 3.*1536.*1024' \
        "$bin/hotset-profile" -q -m "$tmp/kjv.gguf" --import-pt "$tmp/short" --positions 16384 -o "$tmp/no"
fi

# --- everything fits ----------------------------------------------------------------------
check "everything fits" solve -c 128 --vram-budget $all
equal "all neurons, dense blocks and caches" "1536 1536  0 optimal" "$(neurons) $(use unused) $(sed -n 's/.*"solver_status": "\(.*\)".*/\1/p' "$tmp/out")"
check "everything fits, with hardly any time" solve -c 128 --vram-budget $all --time-limit 0.001
equal "needs no solver" "1536 1536 " "$(neurons)"

# --- twelve layers, each with a hot neuron of its number -----------------------------------
if [ -x "$build/gen/model" ]; then
    "$build/gen/model" -e 64 -f 96 -l 12 -H 1 -k 1 -v 300 -t F32 -a 0.1 "$tmp/twelve.gguf" || not_ok "make a model"
    "$build/gen/counts" -hot "$tmp/twelve.act" 12 96 || not_ok "make counts"
    mkdir "$tmp/twelve"
    "$bin/hotset-profile" -q --merge "$tmp/twelve.act" -o "$tmp/x" -f --export-pt "$tmp/twelve.pt" >/dev/null || not_ok "export"
    echo stray >"$tmp/twelve.pt/activation_1.pt.bak"
    echo stray >"$tmp/twelve.pt/notes"
    check "stray: files beside the counts" "$bin/hotset-profile" -q --import-pt "$tmp/twelve.pt" --positions 1000000 -o "$tmp/back" -f
    twelve() { "$prog" -q -m "$tmp/twelve.gguf" -a "$tmp/back" -c 16 --group 1 -o "$tmp/p" -f --json "$@"; }
    twelve --vram-budget 1G >"$tmp/out" 2>/dev/null
    base=$((1073741824 - $(use unused) - $(use neurons)))
    check "twelve layers: room for one neuron of each" twelve --vram-budget $((base + 12 * 1024))
    equal "is one of each" "1 1 1 1 1 1 1 1 1 1 1 1 " "$(neurons)"
    dump=$(tail -c $((12 * (384 + 32))) "$tmp/p" | od -An -v -t d4 -w4 | awk 'NR { n = (NR - 1) % 104; l = int((NR - 1) / 104); if (n < 96 && $1 == 1) printf "%d:%d ", l, n }')
    equal "each its own" "0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 8:8 9:9 10:10 11:11 " "$dump"
    rm "$tmp/twelve.pt/activation_11.pt"
    check "eleven: what is left is a profile of eleven" "$bin/hotset-profile" -q --import-pt "$tmp/twelve.pt" --positions 1000000 -o "$tmp/back" -f
    one_error "eleven: which is not this model's" 3 'back: has 11 layers, the model 12' "$prog" -q -m "$tmp/twelve.gguf" -a "$tmp/back" --vram-budget 1M -o "$tmp/no"
    rm "$tmp/twelve.pt/activation_10.pt" "$tmp/twelve.pt/activation_2.pt"
    one_error "eleven: nor is a gap" 3 'twelve.pt: activation_2.pt: layer 2 is missing' "$bin/hotset-profile" -q --import-pt "$tmp/twelve.pt" --positions 1000000 -o "$tmp/no"
fi

# --- stale ----------------------------------------------------------------------------------
check "stale: a tenth" solve -c 128 --vram-budget $((all / 10))
few=$(use neurons)
check "stale: nine tenths is another plan" solve -c 128 --vram-budget $((all * 9 / 10))
[ "$(use neurons)" -gt "$few" ] && ok "with more on the device" || not_ok "with more on the device"
if [ -x "$bin/hotset-run" ] && [ -x "$bin/hotset-quantize" ]; then
    "$bin/hotset-quantize" -q "$m" "$tmp/A/m.q4_0.gguf" Q8_0 -f >/dev/null 2>&1 || not_ok "quantize"
    one_error "stale: the model was replaced under its name" 3 'made for another model' "$bin/hotset-run" -q -m "$tmp/A/m.q4_0.gguf" -c 128 --placement "$tmp/p" --device emu -p a -n 1
fi

# --- exactly its need -------------------------------------------------------------------------
solve -c 128 --vram-budget 3000000 >"$tmp/out"
need=$((3000000 - $(use unused)))
if [ -x "$bin/hotset-run" ]; then
    check "exactly its need: a smaller budget is enough" "$bin/hotset-run" -q -m "$m" -c 128 --placement "$tmp/p" --vram-budget $need --device emu -p a -n 1 --temp 0
    one_error "exactly its need: one byte less is not" 4 'budget' "$bin/hotset-run" -q -m "$m" -c 128 --placement "$tmp/p" --vram-budget $((need - 1)) --device emu -p a -n 1 --temp 0
fi

# --- large sizes, limits ------------------------------------------------------------------------
check "large sizes: 3 TiB" solve -c 128 --vram-budget 3T
equal "are taken whole" 3298534883328 $(($(use unused) + all))
check "limits: help" "$prog" --help
has "limits: the time's" '--time-limit S' "$tmp/out"
has "limits: the gap's" '--gap X' "$tmp/out"
check "limits: are echoed" solve --vram-budget 3M -v --time-limit 7 --gap 0.001
has "by -v" 'time limit 7 s, gap 0.001' "$tmp/err"
finish
