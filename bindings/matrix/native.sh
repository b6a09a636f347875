#!/usr/bin/env bash
# Runs the matrix program of C or of C++, and builds it first where its sources have changed.
#
#   bindings/matrix/native.sh c|cpp serve|get|cancel|put|exchange ...
#
# DIPC_PREFIX is where libdipc is installed (default: as CMake finds it), DIPC_PYTHON a Python that
# has pyarrow, whose Arrow C++ is used (default: .tools/venv/bin/python).
set -euo pipefail
language=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/target/matrix/native
program=$out/peer-$language

# Exits with 77 where libdipc or Arrow C++ is not there, and with 1 where the programs are wrong.
build() {
  rm -f "$out/CMakeCache.txt" # it may name another prefix
  cmake -S "$here" -B "$out" "-DCMAKE_PREFIX_PATH=${DIPC_PREFIX:-}" \
    "-DDIPC_PYTHON=${DIPC_PYTHON:-$root/.tools/venv/bin/python}" >"$out/log" 2>&1 ||
    { cat "$out/log" >&2; exit 77; }
  cmake --build "$out" --target "peer-$language" >"$out/log" 2>&1 ||
    { cat "$out/log" >&2; exit 1; }
}

stale() {
  [ ! -x "$program" ] || [ -n "$(find "$here" "$root/include" -newer "$program" \
    -name '*.[ch]*' -print -quit)" ] || ! grep -qsxF "${DIPC_PREFIX:-}" "$program.prefix"
}

if stale; then
  mkdir -p "$out"
  # Several may be started at once: one builds, the others wait and find it done.
  exec 9>"$out/lock"
  flock 9
  if stale; then
    build
    touch "$program"
    printf '%s\n' "${DIPC_PREFIX:-}" >"$program.prefix"
  fi
  exec 9>&-
fi
exec "$program" "$@"
