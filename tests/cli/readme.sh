# The commands of README.md's pipeline work as they stand there.
. tests/cli/common.sh
needs convert quantize profile solve run perplexity inspect tokenize
root=$PWD
sed -n '/^With the bundled model/,/^|/s/^    //p' README.md | sed "s|\$PWD/build/bin|$root/${bin#"$root"/}|" >"$tmp/commands"
has "the README has the whole pipeline" '^hotset-run .*--placement' "$tmp/commands"
grep '^export\|^D=' "$tmp/commands" >"$tmp/setting"
ln -s "$root/data" "$tmp/data"
while read -r line; do
    check "$line" sh -c "cd '$tmp' && . ./setting && $line"
done <<LIST
$(grep -v '^export\|^D=' "$tmp/commands")
LIST
for f in kjv.gguf kjv.q4_0.gguf kjv.activation.gguf kjv.gpuidx; do check "$f" test -s "$tmp/$f"; done
finish
