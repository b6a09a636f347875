#!/usr/bin/env bash
# Makes the packages: Debian's, a tarball that may be unpacked anywhere, and the Python wheel.
#
#   tools/package.sh [DIRECTORY]        default: build/packages
#
# PROFILE: the cargo profile, default release. TARGET_DIR: where cargo builds, default target.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=${1:-build/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd)
profile=${PROFILE:-release}
target=${TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'package: %s\n' "$*"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

# GENERATOR PREFIX: Debian's library directory depends on the prefix.
pack() {
  quietly cmake -S "$root" -B "$work/$1" "-DDIPC_CARGO_PROFILE=$profile" \
    "-DDIPC_CARGO_TARGET_DIR=$target" "-DDIPC_CARGO_FLAGS=${DIPC_CARGO_FLAGS:---locked}" \
    "-DCMAKE_INSTALL_PREFIX=$2" "-DCPACK_PACKAGING_INSTALL_PREFIX=$3"
  quietly cmake --build "$work/$1"
  (cd "$work/$1" && quietly cpack -G "$1" -B "$work/made")
  find "$work/made" -maxdepth 1 -type f \( -name '*.deb' -o -name '*.tar.gz' \) \
    -exec mv -t "$out" {} +
}

say "building (profile $profile)"
pack DEB /usr /usr
pack TGZ /usr/local /
if [ -x bindings/python/build-wheel.sh ]; then
  DIPC_LIBRARY="$work/DEB/stage/libdipc.so" quietly bindings/python/build-wheel.sh "$out"
fi
for file in "$out"/*; do say "${file#"$root"/} ($(du -h "$file" | cut -f1))"; done
