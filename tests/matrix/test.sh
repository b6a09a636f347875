#!/usr/bin/env bash
# Runs the matrix: every language serves, and every language fetches.
#
#   tests/matrix/test.sh [--all-files] [PYTEST ARGUMENTS]
#
# PYTHON, DIPC_PREFIX: as for bindings/python/install.sh; without DIPC_PREFIX, DIPC_COMMAND names the
# `dipc` command. DIPC_GOLDEN names the folder of Arrow's golden streams.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PYTHON=${PYTHON:-$root/.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$root/bindings/python/install.sh" "$work/site"
cd "$work"
PYTHONPATH=$work/site "$PYTHON" -m pytest -q -p no:cacheprovider "$here" "$@"
