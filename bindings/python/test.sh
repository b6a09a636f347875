#!/usr/bin/env bash
# Installs the wheel into an empty folder, and runs the package's tests from there, with mypy and ruff.
#
#   bindings/python/test.sh [PYTEST ARGUMENTS]
#
# PYTHON, DIPC_PREFIX: as for install.sh. DIPC_GOLDEN names the folder of Arrow's golden streams.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../../.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$here/install.sh" "$work/site"

cd "$here"
"$python" -m mypy --cache-dir "$work/mypy"
sources=(. ../matrix/python ../../tests/matrix)
"$python" -m ruff check --quiet --no-cache --config pyproject.toml "${sources[@]}"
"$python" -m ruff format --quiet --check --no-cache --config pyproject.toml "${sources[@]}"

# From elsewhere, so that nothing but the wheel is found.
cd "$work"
unset DIPC_LIBRARY
PYTHONPATH=$work/site "$python" -X dev -m pytest -q -p no:cacheprovider "$here/tests" "$@"
