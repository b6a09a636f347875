#!/usr/bin/env bash
# Installs the Debian packages into a Debian that has never seen libdipc, by apt with their
# dependencies, and does there what docs/quick-start.md says, with no other file of this tree.
#
#   tests/fresh_root.sh DIRECTORY        where tools/package.sh has put them
#
# Debian comes from the machine's own source of packages. Where the machine is no Debian, or the user
# not root, or debootstrap missing, it is skipped.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
packages=$(cd "${1:?usage: tests/fresh_root.sh DIRECTORY}" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
work=$(mktemp -d)
fresh=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT

say() { printf 'fresh root: %s\n' "$*"; }
skip() { say "skipped: $*"; exit 0; }
fail() { printf 'fresh root: FAILED: %s\n' "$*" >&2; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 100 "$work/log" >&2; fail "$*"; }; }

sources=/etc/apt/sources.list.d/debian.sources
if [ "$(id -u)" != 0 ]; then skip "chroot is for root"; fi
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
[ -f "$sources" ] || skip "there is no $sources"
unshare --mount --pid --net --fork true 2>/dev/null || skip "no namespaces can be made here"
mirror=$(sed -n 's/^URIs: *//p' "$sources" | head -1)
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

# Mounts and processes of the root end with the command: [OPTIONS OF UNSHARE] -- SCRIPT
inside() {
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  quietly timeout 600 unshare --mount --pid --fork --kill-child "${options[@]}" bash -c \
    'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /bin/bash -euo pipefail -c "$1"' "$fresh" "$2"
}

say "Debian $suite"
quietly debootstrap --variant=minbase "$suite" "$fresh" "$mirror"
cp /etc/resolv.conf "$fresh/etc"
mkdir "$fresh/packages" "$fresh/programs"
cp "$packages"/*_"${version}"_*.deb "$fresh/packages"

say "install"
inside -- '
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends /packages/*.deb
  apt-get install -y -qq --no-install-recommends cmake g++ gcc make man-db pkg-config'

program() { awk -v section="$1" -v number="$2" -f "$root/tests/quick_start/program.awk" "$root/docs/quick-start.md"; }
program C++ 1 >"$fresh/programs/serve.cpp"
program C++ 2 >"$fresh/programs/get.cpp"
program C 1 >"$fresh/programs/get.c"
cat >"$fresh/programs/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(programs LANGUAGES C CXX)
find_package(dipc CONFIG REQUIRED)
add_executable(get_c get.c)
target_link_libraries(get_c PRIVATE dipc::dipc)
add_executable(get_cpp get.cpp)
target_link_libraries(get_cpp PRIVATE dipc::cpp)
END
for file in serve.cpp get.cpp get.c; do
  [ -s "$fresh/programs/$file" ] || fail "docs/quick-start.md has no $file"
done

say "the quick start in C and C++, by pkg-config and by CMake"
inside --net -- '
  cd /programs
  c++ -std=c++17 -Wall -Werror serve.cpp -o serve $(pkg-config --cflags --libs dipc)
  c++ -std=c++17 -Wall -Werror get.cpp -o get_cpp $(pkg-config --cflags --libs dipc)
  cc -std=c11 -Wall -Werror get.c -o get_c $(pkg-config --cflags --libs dipc)
  cmake -S . -B build && cmake --build build
  ./serve >ready &
  until grep -q shm: ready; do sleep 0.1; done
  for get in ./get_cpp ./get_c build/get_cpp build/get_c "dipc get shm:@quick-start numbers"; do
    $get | tee got
    grep -qw "3 rows" got
  done
  kill %1'

say "the command: serve, get, put, its manual page"
inside --net -- '
  mkdir -p /programs/taken
  cd /programs
  dipc serve --listen shm:@fresh --tpch nation --scale 0.01 --accept taken >ready &
  until grep -q ready ready; do sleep 0.1; done
  dipc get shm:@fresh nation --verify tpch:nation:0.01 --output nation.parquet
  dipc put shm:@fresh countries nation.parquet
  dipc get shm:@fresh countries | grep -w "25 rows"
  kill %1
  wait %1
  man dipc-get >page
  grep -q "^NAME" page
  bash -n /usr/share/bash-completion/completions/dipc'

say "removal"
inside -- '
  apt-get purge -y -qq "libdipc*" dipc-tools
  left=$(find / -xdev -name "*dipc*" -not -path "/proc/*" -not -path "/packages/*" -not -path "/programs/*" -not -path "/var/*")
  [ -z "$left" ] || { echo "left: $left"; exit 1; }'
say "ok"
