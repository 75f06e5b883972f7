# hotset-profile --report: the folder, its files, with and without gnuplot, what it replaces.
. tests/cli/common.sh
needs convert profile
prog=$bin/hotset-profile
valid=$data/reference/valid.txt
m=$tmp/m.gguf
"$bin/hotset-convert" -q "$data" --outtype f32 -o "$m" || not_ok "convert"
head -c 1200 "$valid" >"$tmp/<b> & 'c'.txt"
tail -c 1201 "$valid" >"$tmp/B.txt"
bare() { env PATH="$tmp/nothing" "$prog" "$@"; }
files() { ls -A "$1" | tr '\n' ' ' | sed 's/ $//'; }

check "profile two texts" "$prog" -q -m "$m" -c 64 -i "$tmp/<b> & 'c'.txt" "$tmp/B.txt" -o "$tmp/p" --report "$tmp/new"
[ -s "$tmp/new/report.html" ] && ok "and report on them" || not_ok "and report on them"

# --- without gnuplot ------------------------------------------------------
check "text plots" bare --show "$tmp/p" --report "$tmp/text"
has "are announced" 'the report has plots in text: gnuplot is not installed' "$tmp/err"
has "and there" '^ 100 % \|' "$tmp/text/report.html"
has "with a bar for each layer" '^    5 .* % #+$' "$tmp/text/report.html"
csv="cumulative.csv heat.csv layers.csv neurons.csv overlap.csv"
equal "files without gnuplot" "$csv plots.gp report.html sparsity.csv" "$(files "$tmp/text")"
equal "a row for each neuron" 6145 "$(wc -l <"$tmp/text/neurons.csv")"
equal "a row for each percent" 102 "$(wc -l <"$tmp/text/cumulative.csv")"
equal "the cumulative shares end at all" "100,100,100,100,100,100,100,100" "$(tail -n 1 "$tmp/text/cumulative.csv")"
equal "histogram rows of each layer add up" "100.00 100.00 100.00 100.00 100.00 100.00" \
    "$(awk -F, 'NR > 1 { s[$1] += $3 } END { for (l = 0; l < 6; l++) printf "%s%.2f", l ? " " : "", s[l] }' "$tmp/text/sparsity.csv")"
equal "a text overlaps itself completely" "1 1" "$(awk -F, 'NR > 1 && $1 == $2 { printf "%s%s", n++ ? " " : "", $3 }' "$tmp/text/overlap.csv")"
has "names are no markup" "&lt;b> &amp; 'c'.txt" "$tmp/text/report.html"
if grep -Eq 'https?://|<script|<link' "$tmp/text/report.html"; then
    not_ok "nothing outside is needed"
else
    ok "nothing outside is needed"
fi

# --- with gnuplot ---------------------------------------------------------
if command -v gnuplot >/dev/null; then
    check "plots" "$prog" --show "$tmp/p" --report "$tmp/svg"
    equal "files with gnuplot" "cumulative.csv cumulative.svg heat.csv heat.svg layers.csv neurons.csv overlap.csv overlap.svg plots.gp report.html sparsity.csv sparsity.svg" \
        "$(files "$tmp/svg")"
    equal "four plots are embedded" 4 "$(grep -c 'src="data:image/svg+xml;base64,' "$tmp/svg/report.html")"
    sed -n 's/.*base64,\([^"]*\)".*/\1/p' "$tmp/svg/report.html" | head -n 1 | base64 -d >"$tmp/first.svg"
    same "the first one is cumulative.svg" "$tmp/svg/cumulative.svg" "$tmp/first.svg"
fi
# One that fails is as good as none.
mkdir "$tmp/broken"
printf '#!/bin/sh\nexit 3\n' >"$tmp/broken/gnuplot"
chmod +x "$tmp/broken/gnuplot"
check "a gnuplot that fails" env PATH="$(cd "$tmp/broken" && pwd):$PATH" "$prog" --show "$tmp/p" --report "$tmp/failed"
has "is told" 'plots in text: gnuplot failed' "$tmp/err"
has "and made up for" '^ 100 % \|' "$tmp/failed/report.html"

# --- what is in the way ---------------------------------------------------
one_error "a report that exists" 2 'text: exists; use --force' bare --show "$tmp/p" --report "$tmp/text"
: >"$tmp/text/mark.csv"
check "is replaced with --force" bare -q -f --show "$tmp/p" --report "$tmp/text/"
[ ! -e "$tmp/text/mark.csv" ] && ok "as a whole" || not_ok "as a whole"
mkdir "$tmp/empty" "$tmp/mine" "$tmp/deep" "$tmp/deep/sub"
check "an empty folder is no hindrance" bare -q --show "$tmp/p" --report "$tmp/empty"
: >"$tmp/mine/letter"
one_error "a folder of the user's" 2 'mine: is not a folder that a report was written to' bare -f --show "$tmp/p" --report "$tmp/mine"
: >"$tmp/deep/report.html"
one_error "a folder with a folder" 2 'deep: is not a folder that' bare -f --show "$tmp/p" --report "$tmp/deep"
one_error "a file" 2 'B.txt: exists and is no folder' bare -f --show "$tmp/p" --report "$tmp/B.txt"
one_error "is seen before any work" 2 'mine: is not' "$prog" -q -m "$m" -c 64 -i "$tmp/B.txt" -o "$tmp/x" --report "$tmp/mine"
[ ! -e "$tmp/x" ] && ok "which then is not done" || not_ok "which then is not done"
one_error "no folder to put it in" 1 'none/r: cannot create' bare --show "$tmp/p" --report "$tmp/none/r"
equal "the user's files are as they were" "letter" "$(files "$tmp/mine")"
full() {
    (
        trap '' XFSZ
        ulimit -f 8
        bare "$@"
    )
}
one_error "no space for it" 4 'cannot write' full -q -f --show "$tmp/p" --report "$tmp/text"
has "leaves the old one" '^ 100 % \|' "$tmp/text/report.html"
equal "nothing temporary is left" "" "$(ls -A "$tmp" | grep tmp-)"

# A profile of counts only has what they give.
check "counts only" "$prog" -q --import-pt "$data/reference/activation" --positions 16384 -o "$tmp/bare" --report "$tmp/b"
[ ! -e "$tmp/b/sparsity.csv" ] && [ ! -e "$tmp/b/overlap.csv" ] && ok "no histogram, no texts" || not_ok "no histogram, no texts"
finish
