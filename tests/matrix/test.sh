#!/usr/bin/env bash
# Runs the matrix: every language as server with every language as client.
#
#   tests/matrix/test.sh [--all-files] [PYTEST ARGUMENTS]
#
# DIPC_PREFIX is an installed tree of libdipc with the command; without it the debug build is
# installed. PYTHON is a Python with the packages of tools/requirements.txt (default:
# .tools/venv/bin/python). DIPC_GOLDEN names the folder of Arrow's golden streams.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PYTHON=${PYTHON:-$root/.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "${DIPC_PREFIX:-}" ]; then
  export DIPC_PREFIX=$root/target/matrix/prefix
  # One folder for all runs, so that programs that contain its path need no rebuild.
  cmake -S "$root" -B "$work/build" -DDIPC_CARGO_PROFILE=dev "-DDIPC_CARGO_TARGET_DIR=$root/target" \
    -DCMAKE_INSTALL_LIBDIR=lib >"$work/log" && cmake --build "$work/build" >>"$work/log" &&
    cmake --install "$work/build" --prefix "$DIPC_PREFIX" >>"$work/log" || { cat "$work/log" >&2; exit 1; }
fi
"$root/bindings/python/install.sh" "$work/site"
cd "$work"
PYTHONPATH=$work/site "$PYTHON" -m pytest -q -rs -p no:cacheprovider -n "$(nproc)" "$here" "$@"
