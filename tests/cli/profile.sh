# hotset-profile: the reference counts, resume, merge, folders of .pt, refusals.
. tests/cli/common.sh
needs convert profile
prog=$bin/hotset-profile
valid=$data/reference/valid.txt
m=$tmp/m.gguf
"$bin/hotset-convert" -q "$data" --outtype f32 -o "$m" || not_ok "convert"
# The counts alone, 6 layers of 1024 int64: what is left of a profile after a detour over .pt files.
counts() {
    "$prog" -q -f --merge "$1" -o "$tmp/counts.sum" --export-pt "$tmp/counts" >"$tmp/out2" 2>"$tmp/err2" &&
        "$prog" -q -f --import-pt "$tmp/counts" --positions 1000000 -o "$tmp/counts.gguf" >"$tmp/out2" 2>"$tmp/err2"
    tail -c 49152 "$tmp/counts.gguf"
}
profile() { "$prog" -q -m "$m" -c 64 "$@"; }

# --- the reference: 64 chunks, too many for a build with sanitizers -------
if [ -z "${HS_SAN:-}" ]; then
    check "profile 64 chunks" "$prog" -m "$m" -i "$valid" -c 256 --chunks 64 -o "$tmp/p" --export-pt "$tmp/pt"
    has "the table has every layer" '^5 +1024 ' "$tmp/out"
    has "the table has the model" '^model +6144 .* 23$' "$tmp/out"
    check "import the reference" "$prog" -q -m "$m" --import-pt "$data/reference/activation" --positions 16384 -o "$tmp/ref"
    for f in p ref; do counts "$tmp/$f" | od -An -v -w8 -t d8 >"$tmp/$f.txt"; done
    worst=$(paste "$tmp/p.txt" "$tmp/ref.txt" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d } END { print NR, m + 0 }')
    case $worst in
    "6144 "[0-9] | "6144 1"[0-6]) ok "counts are the reference's but for 0.1 % of the positions" ;;
    *) not_ok "counts are the reference's" "neurons, largest difference: $worst" ;;
    esac
    check "import what was exported" "$prog" -q -m "$m" --import-pt "$tmp/pt" --positions 16384 -o "$tmp/p2"
    counts "$tmp/p" >"$tmp/a"
    counts "$tmp/p2" >"$tmp/b"
    same "export and import are inverse" "$tmp/a" "$tmp/b"
fi

# --- what must not change the file ----------------------------------------
check "profile 6 chunks" profile -i "$valid" --chunks 6 -o "$tmp/six" -t 1
for t in 2 3 8; do
    check "with $t threads" profile -i "$valid" --chunks 6 -o "$tmp/t" -f -t $t
    same "$t threads give the same file" "$tmp/six" "$tmp/t"
done
check "with scalar kernels" profile -i "$valid" --chunks 6 -o "$tmp/t" -f --cpu scalar
same "scalar kernels give the same file" "$tmp/six" "$tmp/t"
cp "$valid" "$tmp/valid.txt"
check "from another folder" profile -i "$tmp/valid.txt" --chunks 6 -o "$tmp/t" -f
same "no path is in the file" "$tmp/six" "$tmp/t"

# Predictors do not matter: the same counts (of another model file).
"$bin/hotset-convert" -q "$data" --predictor "$data/predictor" --outtype f32 -o "$tmp/mp.gguf" || not_ok "convert with predictors"
check "profile with predictors" "$prog" -q -m "$tmp/mp.gguf" -i "$valid" -c 64 --chunks 6 -o "$tmp/t" -f
counts "$tmp/six" >"$tmp/a"
counts "$tmp/t" >"$tmp/b"
same "predictors are ignored" "$tmp/a" "$tmp/b"

# --- resume ---------------------------------------------------------------
check "2 chunks" profile -i "$valid" --chunks 2 -o "$tmp/r"
check "resumed to 6" profile -i "$valid" --chunks 6 -o "$tmp/r" --resume
same "resumed is uninterrupted" "$tmp/six" "$tmp/r"
check "nothing left to do" profile -i "$valid" --chunks 6 -o "$tmp/r" --resume
same "and nothing changes" "$tmp/six" "$tmp/r"
check "--resume without a file starts" profile -i "$valid" --chunks 6 -o "$tmp/new" --resume
same "as a fresh run" "$tmp/six" "$tmp/new"
one_error "fewer chunks than done" 2 'holds 6 chunks, more than the 5 wanted' profile -i "$valid" --chunks 5 -o "$tmp/r" --resume
one_error "another context" 2 'made with context 64, got 32' "$prog" -q -m "$m" -c 32 -i "$valid" -o "$tmp/r" --resume
one_error "another text" 2 'text 1 was valid.txt with hash [0-9a-f]{32}, LICENSE has' profile -i LICENSE -o "$tmp/r" --resume
one_error "more texts" 2 'made from 1 texts, got 2' profile -i "$valid" LICENSE -o "$tmp/r" --resume
one_error "another model" 2 'made with model [0-9a-f]{32}, this one is [0-9a-f]{32}' "$prog" -q -m "$tmp/mp.gguf" -c 64 -i "$valid" -o "$tmp/r" --resume
one_error "without BOS" 2 'made without --no-bos' profile --no-bos -i "$valid" -o "$tmp/r" --resume
same "refusals leave the profile" "$tmp/six" "$tmp/r"

# Interrupted after at least one chunk (a background job of sh ignores SIGINT: SIGTERM it is).
stop_early() {
    "$prog" -q -m "$m" -c 64 -i "$valid" -o "$2" --autosave 0 $3 2>"$tmp/err" >"$tmp/out" &
    pid=$!
    n=0
    while [ ! -e "$2.partial" ] && [ $n -lt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    kill -"$1" $pid
    wait $pid 2>/dev/null
    code=$?
}
done_chunks() { "$prog" --show "$1" | sed -n '1s/.* in \([0-9]*\) chunks.*/\1/p'; }
stop_early TERM "$tmp/int" ""
equal "interrupted: 130" 130 $code
has "says how to go on" 'int.partial holds [0-9]+ of 380 chunks; continue with --resume' "$tmp/err"
stop_early KILL "$tmp/kill" ""
equal "what was saved is alone" "int.partial kill.partial" "$(ls -A "$tmp" | grep -E 'int|kill|hotset' | tr '\n' ' ' | sed 's/ $//')"
int=$(done_chunks "$tmp/int.partial") kill=$(done_chunks "$tmp/kill.partial")
if [ "${int:-0}" -gt 0 ] && [ "${kill:-0}" -gt 0 ]; then
    ok "both are profiles, of $int and $kill chunks"
    more=$(((int > kill ? int : kill) + 2))
    check "go on after the interruption" profile -i "$valid" --chunks $more -o "$tmp/int" --resume
    check "go on after the kill" profile -i "$valid" --chunks $more -o "$tmp/kill" --resume
    check "the same at a stretch" profile -i "$valid" --chunks $more -o "$tmp/whole"
    same "interrupted is uninterrupted" "$tmp/whole" "$tmp/int"
    same "killed is uninterrupted" "$tmp/whole" "$tmp/kill"
    equal "nothing partial is left" "int kill" "$(ls -A "$tmp" | grep -E 'int|kill|hotset' | tr '\n' ' ' | sed 's/ $//')"
    cp "$tmp/int" "$tmp/kept"
    stop_early TERM "$tmp/kept" --force
    same "an interrupted --force leaves the old profile" "$tmp/int" "$tmp/kept"
    one_error "--resume replaces no other profile" 2 'kept: exists' profile -i "$valid" --chunks $more -o "$tmp/kept" --resume
else
    not_ok "both are profiles" "chunks: $int and $kill"
fi
if command -v timeout >/dev/null; then
    timeout --preserve-status -s INT 1 "$prog" -q -m "$m" -i "$data/calibration.txt" -o "$tmp/c" --autosave 0 2>"$tmp/err" >"$tmp/out"
    equal "Ctrl-C: 130" 130 $?
fi

# --- merge ----------------------------------------------------------------
head -c 3000 "$valid" >"$tmp/A.txt"
tail -c 3001 "$valid" >"$tmp/B.txt"
check "A" profile -i "$tmp/A.txt" -o "$tmp/A"
check "B" profile -i "$tmp/B.txt" -o "$tmp/B"
check "A and B in one run" profile -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/AB"
check "merged" "$prog" --merge "$tmp/A" "$tmp/B" -o "$tmp/sum" --export-pt "$tmp/sum.pt"
same "the sum of two profiles is the profile of both texts" "$tmp/AB" "$tmp/sum"
"$prog" --show "$tmp/sum" >"$tmp/out2"
has "with their names" '^text B.txt' "$tmp/out2"
equal "six files exported" "activation_0.pt activation_1.pt activation_2.pt activation_3.pt activation_4.pt activation_5.pt" \
    "$(ls -A "$tmp/sum.pt" | tr '\n' ' ' | sed 's/ $//')"
check "a text twice" "$prog" --merge "$tmp/A" "$tmp/A" -o "$tmp/AA"
has "is worth a warning" 'A.txt is in the sum more than once' "$tmp/err"
check "part of A" profile -i "$tmp/A.txt" --chunks 2 -o "$tmp/part"
check "a sum with a part" "$prog" --merge "$tmp/part" "$tmp/B" -o "$tmp/sum2"
one_error "cannot go on" 2 'merged or imported' profile -i "$tmp/A.txt" "$tmp/B.txt" -o "$tmp/sum2" --resume
check "a profile of counts only" "$prog" -q --import-pt "$tmp/sum.pt" --positions 9999 -o "$tmp/bare"
check "adds up with one of more" "$prog" -q --merge "$tmp/A" "$tmp/bare" -o "$tmp/sum3"
has "what is lost is said" 'warning: .*bare: the sum has no ffn_active_histogram' "$tmp/err"
check "profile the other file" "$prog" -q -m "$tmp/mp.gguf" -i "$tmp/A.txt" -c 64 -o "$tmp/other"
one_error "profiles of two models" 3 'other: expected a profile of model [0-9a-f]{32}, got one of' "$prog" --merge "$tmp/A" "$tmp/other" -o "$tmp/x"

# --- summary --------------------------------------------------------------
check "--show" "$prog" --show "$tmp/six"
has "positions and chunks" '^384 positions in 6 chunks of 64, 6 layers, model [0-9a-f]{32}$' "$tmp/out"
check "--json" "$prog" --show "$tmp/six" --json
has "positions in JSON" '"tokens": 384,' "$tmp/out"
equal "seven parts in JSON" 7 "$(grep -c '"share_95"' "$tmp/out")"

# --- refusals: nothing is written -----------------------------------------
one_error "no way" 2 'needs texts \(-i\), --merge, --import-pt, --show or --machine' "$prog" -o "$tmp/x"
one_error "two ways" 2 'choose one of' "$prog" --show "$tmp/six" --merge "$tmp/A"
one_error "no output" 2 'needs an output' "$prog" -m "$m" -i "$valid"
one_error "no model" 2 'needs a model' "$prog" -i "$valid" -o "$tmp/x"
one_error "-c with --merge" 2 'is for texts' "$prog" --merge "$tmp/A" -c 64 -o "$tmp/x"
one_error "--positions with texts" 2 'is for --import-pt' profile -i "$valid" --positions 5 -o "$tmp/x"
: >"$tmp/empty.txt"
one_error "an empty text" 3 'empty.txt: needs at least 1 token, got 0' profile -i "$tmp/empty.txt" -o "$tmp/x"
one_error "an empty second text" 3 'empty.txt: needs at least 1 token' profile -i "$valid" "$tmp/empty.txt" --chunks 1 -o "$tmp/x"
one_error "a missing text" 3 'none.txt' profile -i "$tmp/none.txt" -o "$tmp/x"
one_error "a folder as text" 3 'data' profile -i data -o "$tmp/x"
one_error "a missing model" 3 'none.gguf' "$prog" -m "$tmp/none.gguf" -i "$valid" -o "$tmp/x"
one_error "a text as model" 3 'valid.txt' "$prog" -m "$valid" -i "$valid" -o "$tmp/x"
one_error "a model as profile" 3 'm.gguf: general.type' "$prog" --show "$m"
one_error "no folder for the output" 1 'none/x' profile -i "$valid" -o "$tmp/none/x"
one_error "a missing folder to import" 3 'none: cannot open folder' "$prog" --import-pt "$tmp/none" -o "$tmp/x"
mkdir "$tmp/void"
one_error "an empty folder to import" 3 'void: no activation_<layer>.pt' "$prog" --import-pt "$tmp/void" -o "$tmp/x"
cp -r "$data/reference/activation" "$tmp/five"
rm "$tmp/five/activation_2.pt"
one_error "a layer is missing" 3 'five: activation_2.pt: layer 2 is missing' "$prog" --import-pt "$tmp/five" -o "$tmp/x"
head -c 400 "$data/reference/activation/activation_2.pt" >"$tmp/five/activation_2.pt"
one_error "a layer is cut" 3 'five/activation_2.pt' "$prog" --import-pt "$tmp/five" -o "$tmp/x"
one_error "too few positions" 2 'exceeds --positions 100' "$prog" --import-pt "$data/reference/activation" --positions 100 -o "$tmp/x"
one_error "the folder of another model" 3 'layer 0: expected [0-9]+ neurons, got 1024|layers' \
    "$prog" --import-pt "$data/reference/activation" -m tests/golden/m1.gguf -o "$tmp/x"
[ ! -e "$tmp/x" ] && ok "no refusal left a file" || not_ok "no refusal left a file"

cp "$tmp/six" "$tmp/keep"
one_error "an output that exists" 2 'six: exists; use --force' profile -i "$valid" -o "$tmp/six"
one_error "the model as output" 2 'm.gguf: is an input' profile -f -i "$valid" -o "$m"
one_error "a text as output" 2 'A.txt: is an input' profile -f -i "$tmp/A.txt" -o "$tmp/A.txt"
one_error "a summand as output" 2 'six: is an input' "$prog" -f --merge "$tmp/A" "$tmp/six" -o "$tmp/six"
one_error "files in the export's way" 2 'sum.pt: holds activation files' "$prog" --merge "$tmp/A" -o "$tmp/y" --export-pt "$tmp/sum.pt"
same "the existing file is untouched" "$tmp/keep" "$tmp/six"

# A disk that is full: the limit on file size acts alike once SIGXFSZ is ignored.
small() {
    (
        trap '' XFSZ
        ulimit -f 8
        "$prog" "$@"
    )
}
one_error "no space for the profile" 4 'x: ' small -q --merge "$tmp/A" "$tmp/B" -o "$tmp/x"
one_error "no space to replace one" 4 'six: ' small -q -f --merge "$tmp/A" "$tmp/B" -o "$tmp/six"
same "which stays" "$tmp/keep" "$tmp/six"
[ ! -e "$tmp/x" ] && ok "no partial file" || not_ok "no partial file"
if [ "$(id -u)" -ne 0 ]; then
    mkdir "$tmp/ro" && chmod a-w "$tmp/ro"
    one_error "a read-only folder" 1 'ro/x' "$prog" -q --merge "$tmp/A" -o "$tmp/ro/x"
fi

finish
