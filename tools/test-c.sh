#!/usr/bin/env bash
# Builds the C tests against libdipc and runs them.
#
#   tools/test-c.sh [plain|valgrind|address ...]     default: plain valgrind
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || set -- plain valgrind
for how in "$@"; do
  case $how in
    plain) options=() ;;
    valgrind) options=(-DDIPC_TEST_VALGRIND=ON) ;;
    address) options=(-DDIPC_TEST_SANITIZE=address) ;;
    *) echo "test-c: unknown way $how" >&2; exit 2 ;;
  esac
  build=target/c-tests/$how
  cmake -S . -B "$build" -G Ninja -DDIPC_BUILD_TESTS=ON -DDIPC_BUILD_COMMAND=OFF \
    -DDIPC_CARGO_PROFILE=dev "-DDIPC_CARGO_TARGET_DIR=$PWD/target" "${options[@]}" >/dev/null
  cmake --build "$build"
  ctest --test-dir "$build" --output-on-failure
done
