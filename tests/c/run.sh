#!/usr/bin/env bash
# Builds and runs the C tests: as they are, under AddressSanitizer (with leaks), under valgrind.
#
#   tests/c/run.sh [plain|asan|valgrind|sample|aarch64]...     default: plain, asan and valgrind
#
# sample: a few under valgrind, of which none can meet a limit of time. tools/test-slow.sh has all.
# aarch64: for that processor, by its cross compiler and an emulator.
# DIPC_CARGO_FLAGS goes to cargo build (default: --locked --offline). A variant whose tool is
# missing is skipped with a line.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
ways=("$@")
[ ${#ways[@]} -gt 0 ] || ways=(plain asan valgrind)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
  local name=$1 only=${only:-.}
  shift
  cmake -S "$root" -B "$work/$name" -DDIPC_CARGO_PROFILE=dev -DDIPC_BUILD_COMMAND=OFF \
    "-DDIPC_CARGO_TARGET_DIR=$root/target" "-DDIPC_CARGO_FLAGS=${DIPC_CARGO_FLAGS:---locked --offline}" \
    -DDIPC_BUILD_TESTS=ON "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  cmake --build "$work/$name" --parallel "$(nproc)" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  printf 'C tests, %s\n' "$name"
  ctest --test-dir "$work/$name" --output-on-failure --no-tests=error --parallel "$(nproc)" -R "$only"
}

for way in "${ways[@]}"; do
  case $way in
    plain) run plain ;;
    asan)
      if echo 'int main(void) { return 0; }' |
        cc -x c -fsanitize=address - -o "$work/probe" 2>/dev/null && "$work/probe"; then
        ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 run asan -DDIPC_TEST_SANITIZE=address
      else
        echo "C tests, asan: left out, the compiler has no AddressSanitizer"
      fi
      ;;
    valgrind | sample)
      only=.
      [ "$way" = valgrind ] || only='^c_(basics|machines|null|pull)$'
      if command -v valgrind >/dev/null; then
        only=$only run valgrind -DDIPC_TEST_VALGRIND=ON
      else
        echo "C tests, valgrind: left out, there is no valgrind"
      fi
      ;;
    aarch64)
      run aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
        -DDIPC_CARGO_TARGET=aarch64-unknown-linux-gnu "-DDIPC_CARGO_TARGET_DIR=$root/target/aarch64"
      ;;
    *) echo "unknown way $way" >&2; exit 2 ;;
  esac
done
