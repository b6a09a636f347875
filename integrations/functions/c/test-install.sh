#!/usr/bin/env bash
# Installs libdipc and libdipc_functions, as cargo has built both already, moves the tree to PREFIX,
# and builds cmake/consumer with it, by CMake and by pkg-config.
#
#   integrations/functions/c/test-install.sh PROFILE MODULES PREFIX
#
# MODULES is a folder of tools/build-functions.sh; PREFIX must not be there.
# CARGO_FLAGS goes to cargo build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
profile=$1
modules=$2
prefix=$3
folder=$profile
[ "$profile" != dev ] || folder=debug
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'test-install: %s\n' "$*"; }
fail() { printf 'test-install: FAILED: %s\n' "$*" >&2; exit 1; }
# Runs a command; its output is shown only when it fails.
quietly() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }
}

# install NAME SOURCE [ARGUMENTS OF CMAKE]
install() {
  local name=$1 source=$2
  shift 2
  say "build and install $name (profile $profile)"
  quietly cmake -S "$source" -B "$work/$name" "-DDIPC_CARGO_PROFILE=$profile" -DCMAKE_INSTALL_LIBDIR=lib "$@"
  quietly cmake --build "$work/$name"
  quietly cmake --install "$work/$name" --prefix "$work/prefix"
}
# What the tests of cargo have: nothing is built twice.
install dipc "$root" "-DDIPC_CARGO_TARGET_DIR=$root/target" -DDIPC_BUILD_STATIC=OFF -DDIPC_BUILD_COMMAND=OFF \
  -DDIPC_SPLIT_DEBUG=OFF   "-DDIPC_CARGO_FLAGS=${CARGO_FLAGS:-} --workspace --all-features"
find "$work/prefix" ! -type d -printf '%P\n' | sort >"$work/before"
install functions "$here" "-DCMAKE_PREFIX_PATH=$work/prefix" "-DDIPC_LIBRARY_DIR=$root/target/$folder" \
  "-DDIPC_CARGO_TARGET_DIR=$root/integrations/target" "-DDIPC_CARGO_FLAGS=${CARGO_FLAGS:-}"

say "what is installed"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/integrations/Cargo.toml" | head -1)
minor=${version%.*}
expected="include/dipc_functions.h include/dipc_guest.h
lib/cmake/dipc_functions/dipc_functionsConfig.cmake lib/cmake/dipc_functions/dipc_functionsConfigVersion.cmake
lib/libdipc_functions.so lib/libdipc_functions.so.$minor lib/libdipc_functions.so.$version
lib/pkgconfig/dipc-functions.pc"
diff <(tr ' ' '\n' <<<"$expected" | sort) \
  <(find "$work/prefix" ! -type d -printf '%P\n' | sort | comm -13 "$work/before" -) ||
  fail "other files were installed (< expected, > installed)"
mv "$work/prefix" "$prefix"
if grep -rIl "$work" "$prefix" | grep -q .; then fail "installed files name the build's paths"; fi

address=shm:@dipc-functions-consumer-$$
run() { [ "$("$@" "$address" "$modules/words.wasm")" = maerts ] || fail "$* says something else"; }

say "CMake"
quietly cmake -S "$here/cmake/consumer" -B "$work/consumer" "-Ddipc_functions_DIR=$prefix/lib/cmake/dipc_functions"
quietly cmake --build "$work/consumer"
run "$work/consumer/consumer_c"
run "$work/consumer/consumer_cpp"

say "pkg-config"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[ "$(pkg-config --modversion dipc-functions)" = "$version" ] || fail "dipc-functions.pc has another version"
# shellcheck disable=SC2046 # the flags are words
quietly cc -std=c11 -Wall -Wextra -Werror "$here/cmake/consumer/consumer.c" -o "$work/c" \
  $(pkg-config --cflags --libs dipc-functions)
run env "LD_LIBRARY_PATH=$prefix/lib" "$work/c"
# shellcheck disable=SC2046
quietly c++ -std=c++17 -Wall -Wextra -Werror "$here/cmake/consumer/consumer.cpp" -o "$work/cpp" \
  $(pkg-config --cflags --libs dipc-functions)
run env "LD_LIBRARY_PATH=$prefix/lib" "$work/cpp"
say "ok"
