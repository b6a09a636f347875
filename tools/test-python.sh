#!/usr/bin/env bash
# Runs tests/python, which talk to libdipc.so through ctypes and compare with pyarrow.
#
#   tools/test-python.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?usage: tools/test-python.sh PYTHON}
if [ ! -d tests/python ]; then
  echo 'test-python: skipped, for there is no folder tests/python'
  exit 0
fi
cargo build --quiet --locked --lib
cargo build --quiet --locked --features cli --bin dipc
DIPC_LIBRARY=$PWD/target/debug/libdipc.so DIPC_COMMAND=$PWD/target/debug/dipc \
  "$python" -m pytest -q -p no:cacheprovider tests/python
