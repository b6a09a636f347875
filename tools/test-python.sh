#!/usr/bin/env bash
# Runs tests/python: streams through the package dipc and the command, compared with pyarrow.
#
#   tools/test-python.sh PYTHON
#
# DIPC_PREFIX is an installed tree of libdipc with the command; without it both are built.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON=${1:?usage: tools/test-python.sh PYTHON}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${DIPC_PREFIX:-}" ]; then
  cargo build --quiet --locked --lib
  cargo build --quiet --locked --package libdipc-cli
  export DIPC_LIBRARY=$PWD/target/debug/libdipc.so
fi
bindings/python/install.sh "$work"
command=${DIPC_PREFIX:+$DIPC_PREFIX/bin/dipc}
PYTHONPATH=$work DIPC_COMMAND=${command:-$PWD/target/debug/dipc} \
  "$PYTHON" -m pytest -q -rs -p no:cacheprovider -n "$(nproc)" tests/python
