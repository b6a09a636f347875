#!/usr/bin/env bash
# Installs libdipc into an empty prefix and builds cmake/consumer with it: shared and static, by
# CMake and by pkg-config, in the prefix and after the tree was moved.
#
#   tests/packaging.sh [PROFILE [TARGET_DIR]]     default: dev, target
#
# DIPC_CARGO_FLAGS goes to cargo build (default: --locked --offline).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
profile=${1:-dev}
target=${2:-$root/target}
flags=${DIPC_CARGO_FLAGS:---locked --offline}
command=${DIPC_PACKAGING_COMMAND:-OFF}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
minor=${version%.*}

say() { printf 'packaging: %s\n' "$*"; }
fail() { printf 'packaging: FAILED: %s\n' "$*" >&2; exit 1; }
# Runs a command; its output is shown only when it fails.
quietly() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }
}

say "build and install (profile $profile)"
quietly cmake -S "$root" -B "$work/build" "-DDIPC_CARGO_PROFILE=$profile" \
  "-DDIPC_CARGO_TARGET_DIR=$target" "-DDIPC_CARGO_FLAGS=$flags" "-DDIPC_BUILD_COMMAND=$command" \
  -DCMAKE_INSTALL_LIBDIR=lib
quietly cmake --build "$work/build"
prefix=$work/prefix
quietly cmake --install "$work/build" --prefix "$prefix"

say "what is installed"
expected="include/dipc.h include/dipc_machines.h lib/cmake/dipc/dipcConfig.cmake lib/cmake/dipc/dipcConfigVersion.cmake
lib/libdipc.a lib/libdipc.so lib/libdipc.so.$minor lib/libdipc.so.$version lib/.debug/libdipc.so.$version.debug
lib/pkgconfig/dipc.pc lib/pkgconfig/dipc-static.pc
share/doc/libdipc$minor-dbg/copyright share/doc/dipc-tools/copyright share/doc/libdipc-dev/copyright share/doc/libdipc$minor/copyright"
expected="$expected $(cd "$root" && echo include/dipc/*.hpp)"
[ "$command" = ON ] &&
  expected="$(printf 'share/man/man1/dipc%s.1 ' '' -{bench,describe,get,info,ls,put,serve,top})
share/bash-completion/completions/dipc share/zsh/site-functions/_dipc share/fish/vendor_completions.d/dipc.fish
bin/dipc bin/.debug/dipc.debug lib/systemd/system/dipc@.service lib/systemd/system/dipc@.socket $expected"
diff <(tr ' ' '\n' <<<"$expected" | sort) <(cd "$prefix" && find . ! -type d -printf '%P\n' | sort) ||
  fail "the install tree has other files (< expected, > installed)"
[ "$(readlink "$prefix/lib/libdipc.so")" = "libdipc.so.$minor" ] || fail "libdipc.so leads elsewhere"
[ "$(readlink "$prefix/lib/libdipc.so.$minor")" = "libdipc.so.$version" ] ||
  fail "libdipc.so.$minor leads elsewhere"
if grep -rIl "$work" "$prefix" | grep -q .; then fail "installed files name the build's paths"; fi

say "components"
quietly cmake --install "$work/build" --prefix "$work/runtime" --component runtime
[ -e "$work/runtime/lib/libdipc.so.$minor" ] || fail "component runtime lacks the library"
[ ! -e "$work/runtime/include" ] || fail "component runtime has the header"
quietly cmake --install "$work/build" --prefix "$work/runtime" --component dev
quietly cmake --install "$work/build" --prefix "$work/runtime" --component tools
quietly cmake --install "$work/build" --prefix "$work/runtime" --component debug
diff <(cd "$prefix" && find . | sort) <(cd "$work/runtime" && find . | sort) ||
  fail "runtime, dev, tools and debug together are not everything"

say "debug information is beside the library"
readelf -S "$prefix/lib/libdipc.so" | grep -q gnu_debuglink || fail "libdipc.so names no debug file"
if readelf -S "$prefix/lib/libdipc.so" | grep -q '\.debug_info'; then fail "libdipc.so is not stripped"; fi
readelf -S "$prefix/lib/.debug/libdipc.so.$version.debug" | grep -q '\.debug_info' ||
  fail "the debug file has no debug information"

# cargo rustc is for one package: with the features of a workspace it would build all else anew.
if [[ $flags != *--workspace* ]]; then
  say "the list of native libraries is rustc's"
  printed=$(cd "$root" && cargo rustc -q --profile "$profile" --target-dir "$target" $flags --lib \
    --crate-type staticlib -- --print native-static-libs 2>&1 |
    sed -n 's/^note: native-static-libs: //p')
  [ -n "$printed" ] || fail "rustc printed no list of native libraries"
  [ "$printed" = "$(cat "$root/cmake/native-libs.txt")" ] ||
    fail "cmake/native-libs.txt is not what rustc prints: $printed"
fi

# Builds the consumer with CMake: NAME PREFIX TARGET [ARGUMENTS]
with_cmake() {
  local build=$work/consumer-$1 from=$2 links=$3
  shift 3
  quietly cmake -S "$root/cmake/consumer" -B "$build" "-DCMAKE_PREFIX_PATH=$from" \
    "-DCONSUMER_LINKS=$links" "$@"
  quietly cmake --build "$build"
  quietly ctest --test-dir "$build" --output-on-failure
}

# Whether a program loads libdipc.so: PROGRAM
loads_shared() { readelf -d "$1" | grep -q "NEEDED.*libdipc.so.$minor"; }

# Builds the consumer with pkg-config: NAME PREFIX [PACKAGE]
with_pkg_config() {
  local out=$work/pkg-$1 from=$2 package=${3:-dipc}
  export PKG_CONFIG_PATH=$from/lib/pkgconfig
  [ "$(pkg-config --modversion "$package")" = "$version" ] || fail "$package.pc has another version"
  mkdir -p "$out"
  # shellcheck disable=SC2046 # the flags are words
  quietly cc -std=c11 -Wall -Wextra -Werror "$root/cmake/consumer/consumer.c" -o "$out/c" \
    $(pkg-config --cflags --libs "$package")
  # shellcheck disable=SC2046
  quietly c++ -std=c++17 -Wall -Wextra -Werror "$root/cmake/consumer/consumer.cpp" -o "$out/cpp" \
    $(pkg-config --cflags --libs "$package")
  # shellcheck disable=SC2046
  quietly c++ -std=c++17 -Wall -Wextra -Werror "$root/cmake/consumer/consumer_hpp.cpp" \
    -o "$out/hpp" $(pkg-config --cflags --libs "$package")
  LD_LIBRARY_PATH=$from/lib quietly "$out/c"
  LD_LIBRARY_PATH=$from/lib quietly "$out/cpp"
  LD_LIBRARY_PATH=$from/lib quietly "$out/hpp"
}

for place in installed moved; do
  if [ "$place" = moved ]; then
    mv "$prefix" "$work/elsewhere"
    prefix=$work/elsewhere
  fi
  say "$place: CMake, shared, static and the default"
  with_cmake "$place-shared" "$prefix" dipc::shared
  loads_shared "$work/consumer-$place-shared/consumer_c" || fail "dipc::shared was not linked"
  with_cmake "$place-static" "$prefix" dipc::static
  ! loads_shared "$work/consumer-$place-static/consumer_c" || fail "dipc::static loads libdipc.so"
  with_cmake "$place-default" "$prefix" dipc::dipc
  loads_shared "$work/consumer-$place-default/consumer_c" || fail "dipc::dipc is not dipc::shared"

  say "$place: pkg-config, shared and static"
  with_pkg_config "$place-shared" "$prefix"
  loads_shared "$work/pkg-$place-shared/c" || fail "pkg-config did not link libdipc.so"
  with_pkg_config "$place-static" "$prefix" dipc-static
  ! loads_shared "$work/pkg-$place-static/c" || fail "dipc-static.pc loads libdipc.so"
  # A program without any shared library.
  # shellcheck disable=SC2046
  quietly cc -std=c11 "$root/cmake/consumer/consumer.c" -static -o "$work/pkg-$place-static/alone" \
    $(pkg-config --cflags --libs dipc-static)
  quietly "$work/pkg-$place-static/alone"
done

say "another minor version is refused"
mkdir "$work/versions"
cat >"$work/versions/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(versions LANGUAGES C)
find_package(dipc ${WANTED} CONFIG QUIET)
file(WRITE "${CMAKE_BINARY_DIR}/found" "${dipc_FOUND}")
END
found() {
  quietly cmake -S "$work/versions" -B "$work/versions/$1" "-DCMAKE_PREFIX_PATH=$prefix" \
    "-DWANTED=$1"
  cat "$work/versions/$1/found"
}
[ "$(found "$minor")" = 1 ] || fail "find_package(dipc $minor) does not take version $version"
[ "$(found "${minor%.*}.$((${minor#*.} + 1))")" = 0 ] || fail "a later minor version is taken"

say "static only"
quietly cmake -S "$root" -B "$work/build" -DDIPC_BUILD_SHARED=OFF
quietly cmake --build "$work/build"
quietly cmake --install "$work/build" --prefix "$work/static-only"
[ -z "$(find "$work/static-only" -name '*.so*')" ] || fail "libdipc.so is installed all the same"
with_cmake static-only "$work/static-only" dipc::dipc

say "add_subdirectory (as FetchContent does)"
with_cmake subdirectory /nowhere dipc::dipc "-DCONSUMER_DIPC_SOURCE=$root" \
  "-DDIPC_CARGO_PROFILE=$profile" "-DDIPC_CARGO_TARGET_DIR=$target" "-DDIPC_CARGO_FLAGS=$flags" \
  -DDIPC_BUILD_COMMAND=OFF
say "ok"
