# hotset-profile under mpirun: the same file as one process, errors of one rank.
. tests/cli/common.sh
needs convert profile
prog=$bin/hotset-profile
[ -z "${HS_SAN:-}" ] || { echo "MPI itself is not clean under sanitizers"; exit 77; }
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
ldd "$prog" 2>/dev/null | grep -q libmpi || { echo "built without MPI"; exit 77; }
valid=$data/reference/valid.txt
m=$tmp/m.gguf
"$bin/hotset-convert" -q "$data" --outtype f32 -o "$m" || not_ok "convert"
head -c 1500 "$valid" >"$tmp/A.txt"
tail -c 1501 "$valid" >"$tmp/B.txt"
options="-q -m $m -c 64 -t 1 --generate 3 --coactivation 16"
# A sandbox may have no other interface than the loopback one.
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
ranks() {
    local n=$1
    shift
    timeout 100 mpirun --quiet --allow-run-as-root --oversubscribe -n "$n" "$prog" "$@"
}

check "one process" "$prog" $options -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/one"
cp "$tmp/out" "$tmp/one.txt"
check "three" ranks 3 $options -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/three" --autosave 0
same "write the same file" "$tmp/one" "$tmp/three"
same "and say the same, once" "$tmp/one.txt" "$tmp/out"
[ ! -e "$tmp/three.partial" ] && ok "nothing partial is left" || not_ok "nothing partial is left"
check "three, 7 chunks" ranks 3 $options -i "$tmp/A.txt" "$tmp/B.txt" --chunks 7 -o "$tmp/part"
check "resumed by two" ranks 2 $options -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/part" --resume
same "is the same file" "$tmp/one" "$tmp/part"

# mpirun adds lines of its own; ours is one.
fails() {
    local name=$1 want=$2 regex=$3 got
    shift 3
    ranks 3 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    if [ $got -eq "$want" ] && [ "$(grep -c '^hotset-profile: ' "$tmp/err")" -eq 1 ] &&
        grep -Eq "^hotset-profile: $regex" "$tmp/err"; then
        ok "$name"
    else
        not_ok "$name" "exit $got, expected $want and one line like: $regex" "$(head -n 5 "$tmp/err")"
    fi
}
fails "a missing text" 3 '.*none.txt' $options -i "$tmp/none.txt" -o "$tmp/x"
fails "a usage error" 2 'needs an output' -m "$m" -i "$tmp/A.txt"
fails "only texts can be shared" 2 'only texts \(-i\) are shared' --merge "$tmp/one" -o "$tmp/x"
# One rank alone is given what cannot work.
cat >"$tmp/last" <<'END'
#!/bin/sh
extra=$1
shift
[ "$OMPI_COMM_WORLD_RANK" != 2 ] || set -- "$@" $extra
exec "$@"
END
chmod +x "$tmp/last"
alone() {
    timeout 100 mpirun --quiet --allow-run-as-root --oversubscribe -n 3 "$tmp/last" "$2" "$prog" $options -i "$tmp/A.txt" -o "$tmp/x" >"$tmp/out" 2>"$tmp/err" </dev/null
    equal "one rank that fails ends all" "$1" $?
    equal "with one message" 1 "$(grep -c '^hotset-profile: ' "$tmp/err")"
    has "that names the rank" "$3" "$tmp/err"
}
alone 3 "-m $tmp/none.gguf" '^hotset-profile: rank 2: .*none.gguf'
alone 2 "--cpu nonsense" '^hotset-profile: rank 2: its options are wrong'
[ ! -e "$tmp/x" ] && ok "and no file" || not_ok "and no file"
finish
