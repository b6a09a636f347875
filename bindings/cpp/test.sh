#!/usr/bin/env bash
# Builds and runs the tests and examples of the C++ headers against an installed libdipc.
#
#   bindings/cpp/test.sh [plain|asan|clang|modern|tidy]...     default: plain
#
#   plain   with the default compiler
#   asan    under AddressSanitizer, with leaks; every header alone
#   clang   compiled by clang (nothing is run)
#   modern what std::format and std::expected add, by the compiler of DIPC_MODERN_CXX
#   tidy    clang-tidy over the headers, the tests and the examples
#
# DIPC_PREFIX is where libdipc is installed; without it the working tree is built (profile dev,
# DIPC_CARGO_FLAGS) and installed into a folder of this script's. DIPC_PYTHON is a Python that has
# pyarrow, for its Arrow C++ (default: .tools/venv/bin/python). DIPC_GOLDEN may name a folder with
# Arrow's golden files. DIPC_MODERN_CXX is a compiler of C++23 with its arguments, as
# "python -m ziglang c++". A way whose tool is missing is left out and said so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ways=("$@")
[ ${#ways[@]} -gt 0 ] || ways=(plain)
out=$root/target/cpp
mkdir -p "$out"
python=${DIPC_PYTHON:-$root/.tools/venv/bin/python}

# Runs a command; its output is shown only when it fails.
quietly() {
  "$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; printf 'FAILED: %s\n' "$*" >&2; exit 1; }
}

prefix=${DIPC_PREFIX:-}
if [ -z "$prefix" ]; then
  prefix=$out/prefix
  quietly cmake -S "$root" -B "$out/libdipc" -DDIPC_CARGO_PROFILE=dev -DDIPC_BUILD_COMMAND=OFF \
    "-DDIPC_CARGO_TARGET_DIR=$root/target" "-DDIPC_CARGO_FLAGS=${DIPC_CARGO_FLAGS:---locked --offline}"
  quietly cmake --build "$out/libdipc"
  rm -rf "$prefix"
  quietly cmake --install "$out/libdipc" --prefix "$prefix"
fi

# Builds: NAME [ARGUMENTS OF CMAKE]
build() {
  rm -f "$out/$1/CMakeCache.txt" # it may name another prefix
  quietly cmake -S "$here" -B "$out/$1" "-DCMAKE_PREFIX_PATH=$prefix" "-DDIPC_PYTHON=$python" "${@:2}"
  quietly cmake --build "$out/$1" --parallel "$(nproc)"
}

# Finds the first of some programs.
first_of() {
  local name
  for name in "$@"; do command -v "$name" && return; done
  return 1
}

for way in "${ways[@]}"; do
  case $way in
    plain)
      build plain
      ctest --test-dir "$out/plain" --output-on-failure --no-tests=error --parallel "$(nproc)"
      ;;
    asan)
      build asan -DDIPC_TEST_SANITIZE=address -DDIPC_TEST_HEADERS_ALONE=ON
      # Arrow's pools of its own would hide what is written behind a buffer.
      ASAN_OPTIONS=detect_leaks=1 ARROW_DEFAULT_MEMORY_POOL=system \
        ctest --test-dir "$out/asan" --output-on-failure --no-tests=error --parallel "$(nproc)"
      ;;
    clang)
      if compiler=$(first_of clang++ clang++-{20,19,18,17,16,15,14}); then
        build clang "-DCMAKE_CXX_COMPILER=$compiler"
        echo "C++ headers: compiled by $compiler"
      else
        echo "C++ headers, clang: left out, there is no clang"
      fi
      ;;
    modern)
      if [ -n "${DIPC_MODERN_CXX:-}" ]; then
        read -ra compiler <<<"$DIPC_MODERN_CXX"
        quietly "${compiler[@]}" -std=c++23 -Wall -Wextra -Werror "-I$prefix/include" \
          "$here/tests/test_modern.cpp" "-L$prefix/lib" -ldipc "-Wl,-rpath,$prefix/lib" -o "$out/modern"
        "$out/modern"
      else
        echo "C++ headers, modern: left out, DIPC_MODERN_CXX names no compiler"
      fi
      ;;
    tidy)
      if tidy=$(first_of clang-tidy clang-tidy-{20,19,18,17,16,15,14}); then
        build plain
        find "$here/tests" "$here/examples" -maxdepth 1 -name '*.cpp' ! -name 'unit_*' -print0 |
          xargs -0 -n 1 -P 2 "$tidy" -p "$out/plain" --quiet "--config-file=$here/.clang-tidy" \
            "--header-filter=include/dipc/.*" >"$out/tidy.log" 2>"$out/tidy.err" ||
          { cat "$out/tidy.log" "$out/tidy.err" >&2; exit 1; }
        echo "C++ headers: clang-tidy has nothing to say"
      else
        echo "C++ headers, tidy: left out, there is no clang-tidy"
      fi
      ;;
    *) echo "unknown way $way" >&2; exit 2 ;;
  esac
done
