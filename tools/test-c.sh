#!/usr/bin/env bash
# Builds the C tests against libdipc and runs them, each also under valgrind where they ask for it.
set -euo pipefail
cd "$(dirname "$0")/.."
build=target/c-tests
cmake -S . -B "$build" -G Ninja -DDIPC_BUILD_TESTS=ON -DDIPC_BUILD_COMMAND=OFF \
  -DDIPC_CARGO_PROFILE=dev "-DDIPC_CARGO_TARGET_DIR=$PWD/target" >/dev/null
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure
