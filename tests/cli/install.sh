# make install: programs, man pages, and a library that a program outside the tree can use.
. tests/cli/common.sh
needs run
root=$tmp/root
check "make install" env MAKEFLAGS="$(printf %s "${MAKEFLAGS:-}" | sed 's/-j[0-9]*//; s/--jobserver[^ ]*//')" \
    make --no-print-directory BUILD="$build" ${HS_SAN:+SAN="$HS_SAN"} DESTDIR="$root" prefix=/opt/hotset install
[ -d "$root/opt/hotset" ] || finish
for program in "$bin"/hotset-*; do
    name=$(basename "$program")
    same "$name" "$program" "$root/opt/hotset/bin/$name"
    check "$name.1" test -s "$root/opt/hotset/share/man/man1/$name.1"
done
cat >"$tmp/use.c" <<'C'
#include "runtime/hotset.h"
#include <stdio.h>
int main(int argc, char **argv)
{
    hs_err err;
    hs_model *m = NULL;
    if (argc != 2 || hs_model_load(&m, argv[1], &err) != HS_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    hs_model_info info;
    hs_model_describe(m, &info);
    printf("%s %u\n", info.arch, info.n_layer);
    hs_model_free(m);
    return 0;
}
C
pc=$root/opt/hotset/lib/pkgconfig/hotset.pc
flags=$(sed -n 's/^Cflags: //p; s/^Libs: //p' "$pc" | sed "s|/opt/hotset|$root/opt/hotset|g" | tr '\n' ' ')
check "compile against it" ${CC:-cc} -std=c11 ${HS_SAN:+-fsanitize="$HS_SAN"} -o "$tmp/use" "$tmp/use.c" $flags
demo_gguf
check "run it" "$tmp/use" "$tmp/kjv.gguf"
equal "its output" "llama 6" "$(cat "$tmp/out")"
finish
