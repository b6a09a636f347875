#!/usr/bin/env bash
# Builds the wheel, installs it into an empty folder, and runs the package's tests from there, with
# mypy and ruff.
#
#   bindings/python/test.sh [PYTEST ARGUMENTS]
#
# PYTHON runs it (default: .tools/venv/bin/python; tools/requirements.txt says what it needs). The
# library is that of DIPC_PREFIX, an installed tree, or else of `pkg-config dipc`, or else of a debug
# build, which is made here. DIPC_GOLDEN names the folder of Arrow's golden streams.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-$root/.tools/venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'python: %s\n' "$*"; }

if [ -n "${DIPC_PREFIX:-}" ]; then
  export PKG_CONFIG_PATH=$DIPC_PREFIX/lib/pkgconfig
fi
if libdir=$(pkg-config --variable=libdir dipc 2>/dev/null); then
  library=$libdir/libdipc.so
elif [ -n "${DIPC_PREFIX:-}" ]; then
  say "DIPC_PREFIX is $DIPC_PREFIX, and pkg-config finds no dipc there" >&2
  exit 1
else
  (cd "$root" && cargo build --quiet --locked --lib)
  library=$root/target/debug/libdipc.so
fi

say "wheel, with $library"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$work/wheel" "$here" "-Cbuild-dir=$work/build" "-Ccmake.define.DIPC_LIBRARY=$library"
wheel=$(echo "$work"/wheel/*.whl)
case $wheel in
  *-py3-none-linux_*.whl) ;;
  *) say "the wheel is for one Python only: $wheel" >&2; exit 1 ;;
esac
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/site" "$wheel"

say "mypy, ruff"
(cd "$here" && "$python" -m mypy --cache-dir "$work/mypy")
(cd "$here" && "$python" -m ruff check --quiet --no-cache --config pyproject.toml . ../../tests/matrix ../matrix/python)
(cd "$here" && "$python" -m ruff format --quiet --check --no-cache --config pyproject.toml . ../../tests/matrix ../matrix/python)

say "tests"
# From elsewhere, so that nothing but the wheel is found.
cd "$work"
unset DIPC_LIBRARY
PYTHONPATH=$work/site "$python" -X dev -m pytest -q -p no:cacheprovider "$here/tests" "$@"
