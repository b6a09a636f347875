#!/usr/bin/env bash
# Builds the wheel and installs it into a folder, for PYTHONPATH.
#
#   bindings/python/install.sh FOLDER
#
# PYTHON builds it (default: .tools/venv/bin/python; tools/requirements.txt says what it needs). The
# library inside is that of DIPC_PREFIX, an installed tree, or else of `pkg-config dipc`, or else of a
# debug build, which is made here.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-$root/.tools/venv/bin/python}
folder=${1:?usage: bindings/python/install.sh FOLDER}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { printf 'python: %s\n' "$*" >&2; exit 1; }

if [ -n "${DIPC_PREFIX:-}" ]; then
  export PKG_CONFIG_PATH=$DIPC_PREFIX/lib/pkgconfig
  pkg-config dipc || fail "DIPC_PREFIX is $DIPC_PREFIX, and pkg-config finds no dipc there"
fi
if libdir=$(pkg-config --variable=libdir dipc 2>/dev/null); then
  library=$libdir/libdipc.so
else
  (cd "$root" && cargo build --quiet --locked --lib)
  library=$root/target/debug/libdipc.so
fi

"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$work" "$here" "-Cbuild-dir=$work/build" "-Ccmake.define.DIPC_LIBRARY=$library"
wheel=$(echo "$work"/*.whl)
case $wheel in
  *-py3-none-linux_*.whl) ;;
  *) fail "the wheel is for one Python only: $wheel" ;;
esac
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$folder" "$wheel"
printf 'python: the wheel has %s\n' "$library"
