#!/usr/bin/env bash
# The tests of the bindings, all against one installed tree of the debug build; then every language
# serves every other.
#
#   tools/test-bindings.sh [install|cpp|go|julia|python|quick-start|streams|matrix ...]   default: all
#
# The tree is made in target/prefix, unless DIPC_PREFIX names one. install: no more than that.
# A language that is not installed is left out and said so. The slow ways (sanitizers, the
# whole matrix) are in tools/test-slow.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PYTHON=${PYTHON:-$root/.tools/venv/bin/python}
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(cpp go julia python quick-start streams matrix)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }
if [ -z "${DIPC_PREFIX:-}" ]; then
  export DIPC_PREFIX=$root/target/prefix
  quietly cmake -S . -B target/prefix-build -DDIPC_CARGO_PROFILE=dev "-DDIPC_CARGO_TARGET_DIR=$root/target" \
    "-DDIPC_CARGO_FLAGS=${DIPC_CARGO_FLAGS:---locked}" -DCMAKE_INSTALL_LIBDIR=lib
  quietly cmake --build target/prefix-build
  rm -rf "$DIPC_PREFIX"
  quietly cmake --install target/prefix-build --prefix "$DIPC_PREFIX"
fi

for part in "${parts[@]}"; do
  begun=$SECONDS
  printf '\ntest-bindings: %s\n' "$part"
  case $part in
    install) ;;
    cpp) bindings/cpp/test.sh ;;
    # With the race detector: tools/test-slow.sh.
    go) DIPC_GO_RACE=${DIPC_GO_RACE:-0} bindings/go/test.sh ;;
    # The repository's own stream files, which have every type; Arrow's: tools/test-slow.sh.
    julia) DIPC_TEST_FILES=${DIPC_TEST_FILES-.arrows} bindings/julia/test.sh ;;
    python) bindings/python/test.sh ;;
    # docs/quick-start.md, in every language.
    quick-start)
      site=$(mktemp -d)
      quietly bindings/python/install.sh "$site"
      DIPC_PYTHON_PACKAGE=$site "$PYTHON" -m pytest -q -rs tests/quick_start
      rm -rf "$site"
      ;;
    streams) tools/test-python.sh "$PYTHON" ;;
    # Every pair over shared memory; over the others, what a table holds, with Python at one end.
    # Julia, which takes seconds to start, over shared memory alone. tools/test-slow.sh has all.
    matrix) tests/matrix/test.sh -k "(not julia and shm) or (not julia and not shm and python and test_content) \
      or (julia and shm and (test_content or at_once))" ;;
    *)
      printf 'test-bindings: unknown part %s\n' "$part" >&2
      exit 2
      ;;
  esac
  printf 'test-bindings: %s took %s s\n' "$part" "$((SECONDS - begun))"
done
