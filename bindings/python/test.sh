#!/usr/bin/env bash
# Installs the wheel into an empty folder, and runs the package's tests from there, with mypy,
# pyright and ruff, where they are.
#
#   bindings/python/test.sh [PYTEST ARGUMENTS]
#
# PYTHON, DIPC_PREFIX: as for install.sh. DIPC_GOLDEN names the folder of Arrow's golden streams.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../../.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

"$here/install.sh" "$work/site"
# pyright looks for packages as this program does.
interpreter=$work/python
printf '#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n' "$work/site" "$python" >"$interpreter"
chmod +x "$interpreter"

# Whether a tool is there; its absence is said.
have() {
  "$python" -m "$1" --version >/dev/null 2>&1 && return
  printf 'python: skipped: %s is not installed, and so its check\n' "$1"
  return 1
}

cd "$here"
# The package, and a program that uses the one installed.
if have mypy; then
  "$python" -m mypy --cache-dir "$work/mypy"
  MYPYPATH=$work/site "$python" -m mypy --cache-dir "$work/mypy-usage" tests/typing/usage.py
fi
# It fetches itself from the npm registry once.
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1
if have pyright; then
  quietly "$python" -m pyright --pythonpath "$interpreter" -p tests/typing
  PYTHONPATH=$work/site quietly "$python" -m pyright --pythonpath "$interpreter" --verifytypes dipc --ignoreexternal
fi
sources=(. ../matrix/python ../../tests/matrix)
if have ruff; then
  "$python" -m ruff check --quiet --no-cache --config pyproject.toml "${sources[@]}"
  "$python" -m ruff format --quiet --check --no-cache --config pyproject.toml "${sources[@]}"
fi

# From elsewhere, so that nothing but the wheel is found.
cd "$work"
unset DIPC_LIBRARY
PYTHONPATH=$work/site "$python" -X dev -m pytest -q -rs -p no:cacheprovider "$here/tests" "$@"
