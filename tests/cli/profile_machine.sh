# hotset-profile --machine: a file that hotset-solve can use.
. tests/cli/common.sh
needs profile
prog=$bin/hotset-profile
[ -z "${HS_SAN:-}" ] || { echo "measures nothing under sanitizers"; exit 77; }
check "measure" "$prog" -q --machine -o "$tmp/machine.json" -t 2
has "the table has Q4_0" '^Q4_0 +[0-9.]+ ' "$tmp/out"
has "the file too" '"Q4_0": \{' "$tmp/machine.json"
has "with two thread counts" '"threads": 2,' "$tmp/machine.json"
one_error "an output that exists" 2 'machine.json: exists; use --force' "$prog" -q --machine -o "$tmp/machine.json"
one_error "no output" 2 'needs an output' "$prog" --machine
one_error "a model" 2 'takes no model' "$prog" --machine -m "$tmp/m" -o "$tmp/x"
finish
