#!/bin/sh
# hotset-tokenize: the reference cases, both directions, plain text, errors.
. tests/cli/common.sh
needs tokenize convert
query=$build/gen/json_query
tok=$bin/hotset-tokenize
ref=$data/reference

check "convert the vocabulary alone" "$bin/hotset-convert" -q "$data" --vocab-only -o "$tmp/v.gguf"
v=$tmp/v.gguf

n=0 wrong=0
while "$query" text "$ref/tokenizer_cases.json" "cases.$n.text" >"$tmp/text" 2>/dev/null; do
    want=$("$query" get "$ref/tokenizer_cases.json" "cases.$n.ids")
    got=$("$tok" -q -m "$v" --no-bos --json -f "$tmp/text")
    [ "$got" = "{\"ids\":$want}" ] || {
        wrong=$((wrong + 1))
        echo "# case $n: $got, expected $want"
    }
    n=$((n + 1))
done
equal "sixty cases" 60 "$n"
equal "cases with other ids" 0 "$wrong"

for i in 0 1 2; do
    "$query" text "$ref/greedy.json" "prompts.$i.prompt" >"$tmp/text"
    equal "prompt $i with BOS" "{\"ids\":$("$query" get "$ref/greedy.json" "prompts.$i.ids")}" \
        "$("$tok" -q -m "$v" -f "$tmp/text" --json)"
done

check "tokenize a file" "$tok" -q -m "$v" -f "$ref/valid.txt" --ids
equal "its tokens, with BOS" 23929 "$(tr ',' '\n' <"$tmp/out" | wc -l)"
check "decode them" "$tok" -q -m "$v" --decode "$(cat "$tmp/out")"
same "the same bytes" "$ref/valid.txt" "$tmp/out"

printf 'no newline \377\376 \000 \303' >"$tmp/bytes"
"$tok" -q -m "$v" -f "$tmp/bytes" --ids >"$tmp/ids"
check "decode what is no UTF-8" "$tok" -q -m "$v" --decode "$(cat "$tmp/ids")"
same "any bytes come back" "$tmp/bytes" "$tmp/out"
"$tok" -q -m "$v" -f - --ids <"$tmp/bytes" >"$tmp/ids2"
same "from standard input" "$tmp/ids" "$tmp/ids2"

: >"$tmp/empty"
check "an empty file" "$tok" -q -m "$v" -f "$tmp/empty" --ids --no-bos
equal "has no tokens" "" "$(cat "$tmp/out")"
printf '\357\273\277a\r\n' >"$tmp/bom"
equal "BOM, CR and newline stay" "1976,242,190,194,1980,16,13" \
    "$("$tok" -q -m "$v" -f "$tmp/bom" --ids --no-bos)"

equal "a literal </s> is text" '{"ids":[1976,63,50,1983,65]}' \
    "$("$tok" -q -m "$v" -p '</s>' --json --no-bos)"
equal "with --special a token" '{"ids":[1,262,2]}' "$("$tok" -q -m "$v" -p 'a</s>' --json --special)"
equal "one token a line" "1 '<s>'
261 '▁the'" "$("$tok" -q -m "$v" -p the)"

one_error "no model" 2 "-m FILE" "$tok" -p x
one_error "two texts" 2 "one of" "$tok" -m "$v" -p x -f y
one_error "no text" 2 "one of" "$tok" -m "$v"
one_error "an unknown id" 2 "2048.*2048 tokens" "$tok" -m "$v" --decode 2048
one_error "a list that is none" 2 "expected a token id" "$tok" -m "$v" --decode 1,,2
one_error "an open list" 2 "comma" "$tok" -m "$v" --decode 1,
one_error "an unknown option" 2 "did you mean '--decode'" "$tok" -m "$v" --decod 1
one_error "a missing file" 3 "nothing.gguf: cannot open" "$tok" -m "$tmp/nothing.gguf" -p x
one_error "a missing text" 3 "nothing.txt: cannot open" "$tok" -m "$v" -f "$tmp/nothing.txt"
one_error "another kind of file" 3 "config.json" "$tok" -m "$data/config.json" -p x
"$tok" -m "$v" -p x >/dev/full 2>"$tmp/err"
equal "a full disk" 1 $?
finish
