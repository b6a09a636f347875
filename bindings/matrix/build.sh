#!/usr/bin/env bash
# Builds the matrix programs of C and C++: OUT/peer-c and OUT/peer-cpp.
#
#   bindings/matrix/build.sh [OUT]      default: .tools/matrix
#
# DIPC_PREFIX is where libdipc is installed, DIPC_PYTHON a Python that has pyarrow (default:
# .tools/venv/bin/python).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/.tools/matrix}
: "${DIPC_PREFIX:?must name the install tree of libdipc}"
python=${DIPC_PYTHON:-$root/.tools/venv/bin/python}

mkdir -p "$out"
log=$out/build.log
{ cmake -S "$root/bindings/matrix" -B "$out/build" "-DCMAKE_PREFIX_PATH=$DIPC_PREFIX" \
    "-DDIPC_PYTHON=$python" && cmake --build "$out/build"; } >"$log" 2>&1 ||
  { cat "$log" >&2; exit 1; }
ln -sf build/peer-c build/peer-cpp "$out/"
