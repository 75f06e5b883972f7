# Every malformed file through every program that reads its format: exit 3, one line on stderr
# that names the file and the place, under a second and 64 MiB, nothing left behind.
. tests/cli/common.sh
needs convert quantize tokenize inspect run perplexity bench

# Sanitizers need more of both.
limits="-m 64 -t 1000"
[ -z "${HS_SAN:-}" ] || limits="-t 20000"
h=$tmp/h
check "generate the files" "$build/gen/hostile" "$h"
valid=$h/valid
o=$tmp/o
printf 'a b a' >"$tmp/text"

# reject FILE COMMAND...
reject() {
    local file=$1 got name
    shift
    rm -rf "$o"
    mkdir "$o"
    "$build/gen/measure" $limits "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    name="$(basename "$1") ${file#"$h"/}"
    if [ $got -ne 3 ]; then
        not_ok "$name" "exit $got: $*" "$(head -n 4 "$tmp/err")"
    elif [ "$(wc -l <"$tmp/err")" -ne 1 ]; then
        not_ok "$name" "not one line: $*" "$(head -n 4 "$tmp/err")"
    elif ! grep -qF "$file" "$tmp/err"; then
        not_ok "$name" "does not name the file: $*" "$(cat "$tmp/err")"
    elif [ -n "$(ls -A "$o")" ]; then
        not_ok "$name" "left $(ls -A "$o")"
    elif [ -s "$tmp/out" ]; then
        not_ok "$name" "wrote to stdout"
    else
        ok "$name"
    fi
}

# Programs on a model file; those that need a library may not be built.
tokenize() { $1 "$2" "$bin/hotset-tokenize" -m "$2" -p "a b"; }
inspect() { $1 "$2" "$bin/hotset-inspect" "$2"; }
quantize() { $1 "$2" "$bin/hotset-quantize" "$2" "$o/x.gguf" Q8_0; }
run() { $1 "$2" "$bin/hotset-run" -m "$2" -p "a b" -n 1 --temp 0; }
perplexity() { $1 "$2" "$bin/hotset-perplexity" -m "$2" -i "$tmp/text" -c 8; }
bench() { $1 "$2" "$bin/hotset-bench" -m "$2" -p 2 -n 0 -r 1 --no-probe --no-warmup; }
profile() {
    [ ! -x "$bin/hotset-profile" ] || $1 "$2" "$bin/hotset-profile" -m "$2" -i "$tmp/text" -c 8 -o "$o/x.gguf"
}
solve() {
    [ ! -x "$bin/hotset-solve" ] || $1 "$2" "$bin/hotset-solve" -m "$2" -a "$valid/x.activation.gguf" \
        --vram-budget 64K -c 8 -o "$o/x.gpuidx"
}

# The files that the broken ones are made from are good: a rejection has one reason.
accept() {
    shift
    rm -rf "$o"
    mkdir "$o"
    check "$(basename "$1") accepts the valid file" "$@"
}
for p in tokenize inspect quantize run bench perplexity profile solve; do $p accept "$valid/model.gguf"; done
accept x "$bin/hotset-run" -m "$valid/model.gguf" --placement "$valid/x.gpuidx" --device emu -p a -n 1 -c 8
accept x "$bin/hotset-inspect" "$valid/x.gpuidx"
accept x "$bin/hotset-inspect" "$valid/x.activation.gguf"
accept x "$bin/hotset-inspect" "$valid/hf/model.safetensors"
accept x "$bin/hotset-convert" "$valid/hf" -o "$o/x.gguf"

for f in "$h"/container/*; do
    for p in tokenize inspect quantize run bench perplexity profile solve; do $p reject "$f"; done
done
for f in "$h"/model/*; do
    for p in run bench perplexity profile solve; do $p reject "$f"; done
    # To inspect, a model that does not run here is a file like any other.
    case $f in */architecture-* | */layers-1-of-2.* | */tensor-is-i32.*) ;; *) inspect reject "$f" ;; esac
done
# Found while the model runs.
for f in "$h"/weights/*; do
    reject "$f" "$bin/hotset-run" -q -m "$f" -p "a b" -n 1 --temp 0
    cp "$tmp/err" "$tmp/why"
    check "names the tensor" grep -q "tensor $(basename "$f" | cut -d- -f1).weight has" "$tmp/why"
    reject "$f" "$bin/hotset-perplexity" -q -m "$f" -i "$tmp/text" -c 8
    reject "$f" "$bin/hotset-quantize" -q "$f" "$o/x.gguf" Q8_0
done
# Quantizing and tokenizing read less of a model; what they read they check.
for f in "$h"/model/tokens-* "$h"/model/score* "$h"/model/token-types-* "$h"/model/bos-*; do
    tokenize reject "$f"
done
for f in "$h"/placement/*; do
    reject "$f" "$bin/hotset-run" -m "$valid/model.gguf" --placement "$f" --device emu -p a -n 1 -c 8
    case $f in */model-*) continue ;; esac
    reject "$f" "$bin/hotset-inspect" "$f"
done
for f in "$h"/profile/*; do
    [ ! -x "$bin/hotset-solve" ] ||
        reject "$f" "$bin/hotset-solve" -m "$valid/model.gguf" -a "$f" --vram-budget 64K -c 8 -o "$o/x.gpuidx"
    # A container that does not say it is a profile is just a GGUF file to inspect.
    case $f in */kind-* | */model-*) ;; *) reject "$f" "$bin/hotset-inspect" "$f" ;; esac
    [ -x "$bin/hotset-profile" ] || continue
    case $f in */model-*) ;; *) reject "$f" "$bin/hotset-profile" --show "$f" ;; esac
    case $f in */model-is-another.*) continue ;; esac # the valid one does not say whose it is
    reject "$f" "$bin/hotset-profile" --merge "$valid/x.activation.gguf" "$f" -o "$o/x.gguf"
done
for f in "$h"/hf/*; do
    reject "$f" "$bin/hotset-convert" "$f" -o "$o/x.gguf"
done
for f in "$h"/hf/header-* "$h"/hf/offsets-* "$h"/hf/shape-* "$h"/hf/dtype-[fu]* "$h"/hf/data-* "$h"/hf/name-*; do
    case $f in */dtype-f8 | */dtype-unknown) continue ;; esac # shown, only nothing we convert
    reject "$f/model.safetensors" "$bin/hotset-inspect" "$f/model.safetensors"
done

# Predictors and tokenizers: cut, foreign, empty.
pt=$data/predictor/model_0.pt
mkdir "$tmp/pred" "$tmp/tok"
for how in empty text cut-half cut-directory; do
    cp "$data"/predictor/* "$tmp/pred"
    cp "$data"/*.json "$data"/*.safetensors "$tmp/tok"
    case $how in
    empty) : >"$tmp/pred/model_3.pt" && : >"$tmp/tok/tokenizer.model" ;;
    text) echo "no model at all" | tee "$tmp/pred/model_3.pt" >"$tmp/tok/tokenizer.model" ;;
    cut-half) head -c 160000 $pt >"$tmp/pred/model_3.pt" && head -c 15000 "$data/tokenizer.model" >"$tmp/tok/tokenizer.model" ;;
    cut-directory) head -c -30 $pt >"$tmp/pred/model_3.pt" && head -c -3 "$data/tokenizer.model" >"$tmp/tok/tokenizer.model" ;;
    esac
    reject "$tmp/pred/model_3.pt" "$bin/hotset-convert" "$data" --predictor "$tmp/pred" -o "$o/x.gguf"
    reject "$tmp/pred/model_3.pt" "$bin/hotset-inspect" "$tmp/pred/model_3.pt"
    reject "$tmp/tok" "$bin/hotset-convert" "$tmp/tok" -o "$o/x.gguf"
done

# Files of ours that are no models.
for f in "$valid/x.gpuidx" "$valid/x.activation.gguf"; do
    for p in tokenize quantize run bench perplexity profile solve; do $p reject "$f"; done
done

# Nobody waits at a FIFO, whatever it stands for.
fifo=$tmp/fifo
mkfifo "$fifo"
for p in tokenize inspect quantize run bench perplexity profile solve; do $p reject "$fifo"; done
reject "$fifo" "$bin/hotset-run" -m "$valid/model.gguf" --placement "$fifo" --device emu -p a -n 1 -c 8
reject "$fifo" "$bin/hotset-quantize" "$valid/model.gguf" "$o/x.gguf" Q8_0 --imatrix "$fifo"
if [ -x "$bin/hotset-profile" ]; then
    reject "$fifo" "$bin/hotset-profile" --show "$fifo"
    reject "$fifo" "$bin/hotset-profile" --merge "$valid/x.activation.gguf" "$fifo" -o "$o/x.gguf"
fi
if [ -x "$bin/hotset-solve" ]; then
    reject "$fifo" "$bin/hotset-solve" -m "$valid/model.gguf" -a "$fifo" --vram-budget 64K -c 8 -o "$o/x.gpuidx"
    reject "$fifo" "$bin/hotset-solve" -m "$valid/model.gguf" -a "$valid/x.activation.gguf" --vram-budget 64K \
        -c 8 --machine "$fifo" --objective latency -o "$o/x.gpuidx"
fi
for name in config.json tokenizer.model model-00001-of-00002.safetensors model.safetensors.index.json; do
    cp "$data"/*.json "$data"/*.safetensors "$data/tokenizer.model" "$tmp/tok"
    rm "$tmp/tok/$name"
    mkfifo "$tmp/tok/$name"
    reject "$tmp/tok" "$bin/hotset-convert" "$tmp/tok" -o "$o/x.gguf"
    rm "$tmp/tok/$name"
done
rm -f "$tmp/pred/model_3.pt"
mkfifo "$tmp/pred/model_3.pt"
reject "$tmp/pred/model_3.pt" "$bin/hotset-convert" "$data" --predictor "$tmp/pred" -o "$o/x.gguf"
rm -f "$tmp/pred/model_3.pt"
reject "$tmp/pred" "$bin/hotset-convert" "$data" --predictor "$tmp/pred" -o "$o/x.gguf"
finish
