# For tests/cli/*.sh (shells with `local`, as dash and bash):   . tests/cli/common.sh      (first line; $1 is the build folder)
# A script runs from the repository root, works in $tmp, finds programs in $bin and ends with
# `finish`.  HS_SAN names the sanitizers of the build, if any.

set -u
build=${1:?build folder}
bin=$build/bin
data=data/kjv-relu-8m
mkdir -p "$build/tmp"
tmp=$(mktemp -d "$build/tmp/$(basename "$0" .sh).XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0

ok() {
    passed=$((passed + 1))
    echo "ok - $1"
}

# not_ok NAME [DETAIL...]
not_ok() {
    local detail
    failed=$((failed + 1))
    echo "not ok - $1"
    shift
    for detail; do printf '%s\n' "$detail" | head -n 20 | sed 's/^/#   /'; done
}

# expect STATUS NAME COMMAND...: its exit status; stdout is left in $tmp/out, stderr in $tmp/err.
expect() {
    local want=$1 name=$2 got
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    if [ $got -eq "$want" ]; then
        ok "$name"
    else
        not_ok "$name" "exit $got, expected $want: $*" "$(tail -n 5 "$tmp/err")"
        return 1
    fi
}

# check NAME COMMAND...: it exits 0.
check() {
    local name=$1
    shift
    expect 0 "$name" "$@"
}

# has NAME REGEX FILE: a line of FILE matches (grep -E).
has() {
    if grep -Eq -- "$2" "$3"; then ok "$1"; else not_ok "$1" "no line matches: $2" "$(tail -n 5 "$3")"; fi
}

# same NAME A B: equal bytes.
same() {
    local difference
    if difference=$(cmp "$2" "$3" 2>&1); then ok "$1"; else not_ok "$1" "$difference"; fi
}

# equal NAME EXPECTED GOT: equal strings.
equal() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected: $2" "got:      $3"; fi
}

# one_error NAME STATUS REGEX COMMAND...: the status, one line on stderr that matches, no stdout.
one_error() {
    local name=$1 want=$2 regex=$3 got
    shift 3
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    if [ $got -ne "$want" ] || [ "$(wc -l <"$tmp/err")" -ne 1 ] || [ -s "$tmp/out" ] ||
        ! grep -Eq -- "$regex" "$tmp/err"; then
        not_ok "$name" "exit $got, expected $want and one line like: $regex" "$(head -n 5 "$tmp/err")"
    else
        ok "$name"
    fi
}

# needs PROGRAM...: skip the script when one is not built.
needs() {
    local program
    for program; do
        [ -x "$bin/hotset-$program" ] || {
            echo "hotset-$program is not built"
            exit 77
        }
    done
}

# The demonstration model as $tmp/kjv.gguf (F16 with predictors), quietly.
demo_gguf() {
    "$bin/hotset-convert" -q "$data" --predictor "$data/predictor" --outtype f16 -o "$tmp/kjv.gguf" || {
        not_ok "convert the demonstration model"
        finish
    }
}

finish() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}
