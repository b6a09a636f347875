#!/usr/bin/env bash
# Runs tests/python: streams through the package dipc and the command, compared with pyarrow.
#
#   tools/test-python.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON=${1:?usage: tools/test-python.sh PYTHON}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --quiet --locked --lib
cargo build --quiet --locked --package libdipc-cli
DIPC_LIBRARY=$PWD/target/debug/libdipc.so bindings/python/install.sh "$work"
PYTHONPATH=$work DIPC_COMMAND=$PWD/target/debug/dipc \
  "$PYTHON" -m pytest -q -rs -p no:cacheprovider tests/python
