# An output appears under its name when it is complete and not before: interrupted, killed, disk
# full, folder read-only.  A file that was there stays.
. tests/cli/common.sh
needs convert quantize profile
measure=$build/gen/measure
mkdir "$tmp/ref"
convert() { "$bin/hotset-convert" -q "$data" --predictor "$data/predictor" --outtype f32 "$@"; }
f32=$tmp/ref/f32.gguf
check "convert" convert -o "$f32"
check "quantize" "$bin/hotset-quantize" -q "$f32" "$tmp/ref/quantize" Q4_0
cp "$f32" "$tmp/ref/convert"
head -c 5000 "$data/calibration.txt" >"$tmp/text"
profile_args="-q -m $f32 -i $tmp/text -c 256"
check "profile" "$bin/hotset-profile" $profile_args -o "$tmp/ref/profile"

# start WHAT MEASURE-OPTIONS OUTPUT [--force]: run it under measure.
start() {
    local what=$1 options=$2 output=$3
    shift 3
    case $what in
    convert) "$measure" $options "$bin/hotset-convert" -q "$data" --predictor "$data/predictor" --outtype f32 -o "$output" "$@" ;;
    quantize) "$measure" $options "$bin/hotset-quantize" -q "$f32" "$output" Q4_0 "$@" ;;
    profile) "$measure" $options "$bin/hotset-profile" $profile_args -o "$output" "$@" ;;
    esac >"$tmp/out" 2>"$tmp/err"
}

# The output in $tmp/d is one of the two complete files named, or absent for "none".
whole() {
    if [ -e "$3" ]; then
        cmp -s "$3" "$1" || cmp -s "$3" "$2"
    else
        [ "$1" = none ]
    fi
}

echo "an older file" >"$tmp/old"
for what in convert quantize profile; do
    mkdir "$tmp/d"
    start $what -s "$tmp/d/x" || not_ok "$what under measure"
    ms=$(tail -n 1 "$tmp/out" | cut -d' ' -f1)
    stopped=0 killed=0
    for sig in 2 15 9; do
        for part in 2 5 8; do
            at=$((ms * part / 10))
            rm -rf "$tmp/d" && mkdir "$tmp/d"
            start $what "-k $sig@$at" "$tmp/d/x"
            rc=$?
            case $rc in 130) stopped=$((stopped + 1)) ;; 137) killed=$((killed + 1)) ;; esac
            whole none "$tmp/ref/$what" "$tmp/d/x" || not_ok "$what, signal $sig at $at ms: a partial file"
            [ $rc -ne 0 ] || [ -e "$tmp/d/x" ] || not_ok "$what: exit 0 without a file"
            if [ $sig -ne 9 ]; then
                [ $rc -eq 0 ] || [ $rc -eq 130 ] || not_ok "$what, signal $sig at $at ms: exit $rc" "$(cat "$tmp/err")"
                # What profile counted so far may be kept for --resume; nothing else may be left.
                [ -z "$(ls -A "$tmp/d" | grep -vx 'x\|x.partial')" ] || not_ok "$what, signal $sig: left $(ls -A "$tmp/d")"
            fi
            cp "$tmp/old" "$tmp/d/x"
            start $what "-k $sig@$at" "$tmp/d/x" --force
            whole "$tmp/old" "$tmp/ref/$what" "$tmp/d/x" || not_ok "$what --force, signal $sig at $at ms: the old file is harmed"
        done
    done
    rm -rf "$tmp/d"
    [ $stopped -gt 0 ] && ok "$what interrupted ($stopped times)" || not_ok "$what was never interrupted in time ($ms ms)"
    [ $killed -gt 0 ] && ok "$what killed ($killed times)" || not_ok "$what was never killed in time ($ms ms)"
done

# no_room NAME STATUS FOLDER: each program fails with one line naming the output.
no_room() {
    local what rc
    for what in convert quantize profile; do
        start $what "" "$3/x"
        rc=$?
        if [ $rc -ne "$2" ] || [ -e "$3/x" ] || [ "$(wc -l <"$tmp/err")" -ne 1 ] || ! grep -qF "$3/x" "$tmp/err"; then
            not_ok "$what, $1" "exit $rc, expected $2" "$(head -n 3 "$tmp/err")"
        else
            ok "$what, $1"
        fi
        [ -z "$(ls -A "$3" 2>/dev/null | grep hotset)" ] || not_ok "$what, $1: left $(ls -A "$3")"
    done
}

# A limit on file sizes (blocks of 512 bytes) behaves as a full disk and needs no privilege.
mkdir "$tmp/limited"
(
    passed=0 failed=0
    ulimit -f 8
    no_room "file size limited" 4 "$tmp/limited"
    [ $failed -eq 0 ]
) && ok "a full disk (by limit)" || not_ok "a full disk (by limit)"

mkdir "$tmp/tiny"
if mount -t tmpfs -o size=16k hotset-test "$tmp/tiny" 2>/dev/null; then
    no_room "disk full" 4 "$tmp/tiny"
    umount "$tmp/tiny"
else
    echo "# no right to mount a tmpfs: only the limit was tested"
fi

# Root may write anywhere but to a file system that takes no files.
mkdir "$tmp/ro" && chmod 555 "$tmp/ro"
ro=$tmp/ro
touch "$ro/probe" 2>/dev/null && ro=/sys
no_room "read-only folder" 1 "$ro"

echo keep >"$tmp/kept"
for what in convert quantize profile; do
    start $what "" "$tmp/kept"
    equal "$what refuses to replace without --force" 2 $?
done
equal "the file is kept" keep "$(cat "$tmp/kept")"
one_error "quantize: input is output" 2 "is the input" "$bin/hotset-quantize" "$f32" "$f32" Q8_0 --force
finish
