#!/usr/bin/env bash
set -euxo pipefail
cargo-bundle-licenses --format yaml --output THIRDPARTY.yml
# shellcheck disable=SC2086 # the arguments are words
cmake -S . -B build ${CMAKE_ARGS:-} -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib -DDIPC_BUILD_STATIC=OFF "-DDIPC_CARGO_TARGET=${CARGO_BUILD_TARGET:-}" \
  "-DDIPC_CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/build/cargo}"
cmake --build build
# All but the debug information.
for component in runtime dev tools; do
  cmake --install build --component "$component"
done
# Debian's copies of the licence.
rm -r "$PREFIX"/share/doc/libdipc* "$PREFIX/share/doc/dipc-tools"
