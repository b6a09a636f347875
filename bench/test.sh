#!/usr/bin/env bash
# The tests of the benchmarks' own code, with mypy and ruff. Nothing is measured.
#
#   bench/test.sh [PYTEST ARGUMENTS]
#
# PYTHON is a Python that has what tools/requirements.txt and bench/requirements.txt say (default:
# .tools/venv/bin/python).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m mypy --strict --ignore-missing-imports --cache-dir "$work" -p bench
"$python" -m ruff check --quiet --no-cache bench
"$python" -m ruff format --quiet --check --no-cache bench
"$python" -m pytest -q -rs -p no:cacheprovider bench/tests "$@"
