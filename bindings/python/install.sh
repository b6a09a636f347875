#!/usr/bin/env bash
# Builds the wheel and installs it into a folder, for PYTHONPATH.
#
#   bindings/python/install.sh FOLDER
#
# PYTHON (default: .tools/venv/bin/python), DIPC_PREFIX and DIPC_LIBRARY: as for build-wheel.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PYTHON=${PYTHON:-$here/../../.tools/venv/bin/python}
folder=${1:?usage: bindings/python/install.sh FOLDER}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$here/build-wheel.sh" "$work"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$folder" "$work"/*.whl
