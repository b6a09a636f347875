#!/usr/bin/env bash
# A TPC-H table served by one process and fetched by another, over shared memory.
#
#   tools/demo.sh PATH-OF-DIPC        SCALE: the table's scale factor, TABLE: its name
set -euo pipefail

dipc=${1:?usage: tools/demo.sh PATH-OF-DIPC}
scale=${SCALE:-0.2}
table=${TABLE:-lineitem}
work=$(mktemp -d)
server=

# Whatever ends this script ends its server, and no other.
clean_up() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$server" ] || wait "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

show() { printf '\n$ %s\n' "$*"; }

serve=(serve --listen "shm:@dipc-demo-$$" --tpch "$table" --scale "$scale" --arena --log info)
show "dipc ${serve[*]} &"
mkfifo "$work/stdout"
"$dipc" "${serve[@]}" >"$work/stdout" 2>"$work/stderr" &
server=$!
# The first line comes once the table is in memory; end of file instead means that it failed.
if ! read -r word uri <"$work/stdout" || [ "$word" != ready ]; then
  cat "$work/stderr" >&2
  echo 'demo: the server did not start' >&2
  exit 1
fi
cat "$work/stderr"
echo "ready $uri"

show "dipc get '$uri' $table"
"$dipc" get "$uri" "$table"

show "dipc get '$uri' $table --head 3 --checksum --verify tpch:$table:$scale"
"$dipc" get "$uri" "$table" --head 3 --checksum --verify "tpch:$table:$scale"

# What the server itself counted: bytes lent where they lay, and bytes copied.
show "kill %1"
lines=$(wc -l <"$work/stderr")
kill "$server"
wait "$server"
server=
tail -n "+$((lines + 1))" "$work/stderr"
