# What all programs share: help, version, errors, exit codes, closed pipes.
. tests/cli/common.sh
needs run tokenize inspect

for program in "$bin"/hotset-*; do
    name=$(basename "$program")
    check "$name --help" "$program" --help
    has "$name --help: usage" "^Usage: $name " "$tmp/out"
    has "$name --help: an example" "^Example:" "$tmp/out"
    equal "$name --help: 80 columns" "" "$(grep -E '^.{81}' "$tmp/out")"
    equal "$name --help: nothing on stderr" "" "$(cat "$tmp/err")"
    check "$name --version" "$program" --version
    for word in "$name 0" "compiler: " "cpu: " "cuda: "; do has "$name --version: $word" "^$word" "$tmp/out"; done
    one_error "$name: unknown option" 2 "^$name: unknown option '--verbsoe'; did you mean '--verbose'\\?\$" "$program" --verbsoe
    # Bench has a list of thread counts, read together with the model.
    [ "$name" = hotset-bench ] ||
        one_error "$name: bad number" 2 "^$name: --threads: " "$program" --threads=x1
    "$program" --help | head -c 10 >/dev/null || not_ok "$name: a closed pipe"
done

# A pipe that is closed early: exit 1 without a word; a full disk: exit 1 with one.
demo_gguf
("$bin/hotset-inspect" --tensors "$tmp/kjv.gguf" 2>"$tmp/err"; echo $? >"$tmp/rc") | true
sleep 0.2
case $(cat "$tmp/rc") in 0 | 1) ok "closed pipe" ;; *) not_ok "closed pipe: exit $(cat "$tmp/rc")" ;; esac
equal "closed pipe: silent" "" "$(cat "$tmp/err")"
"$bin/hotset-inspect" "$tmp/kjv.gguf" >/dev/full 2>"$tmp/err"
equal "full device: exit 1" 1 $?
has "full device: says so" "stdout: No space left" "$tmp/err"

one_error "missing file" 3 "nonesuch.gguf: cannot open" "$bin/hotset-run" -m "$tmp/nonesuch.gguf" -p a
one_error "a folder" 3 "directory" "$bin/hotset-run" -m "$tmp" -p a
# Names with anything in them.
odd="$tmp/a b;\$(touch oops)'\"
x.gguf"
cp "$tmp/kjv.gguf" "$odd"
check "odd file name" "$bin/hotset-tokenize" -m "$odd" -p a
(cd "$tmp" && cp kjv.gguf ./-m && exec "$OLDPWD/$bin/hotset-tokenize" -m -m -p a) >"$tmp/out" 2>&1 &&
    ok "a file named -m" || not_ok "a file named -m" "$(cat "$tmp/out")"
head -c 100 "$odd" >"$odd.cut"
one_error "odd file name in an error" 3 "x.gguf.cut: " "$bin/hotset-tokenize" -m "$odd.cut" -p a
finish
