#!/usr/bin/env bash
# Installs each package alone, and uses it: the Debian packages by dpkg in an empty root and by apt in
# a fresh Debian (tests/fresh_root.sh), the tarball in a new folder, the wheel in a new environment.
#
#   tests/packages.sh DIRECTORY        where tools/package.sh has put them
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
packages=$(cd "${1:?usage: tests/packages.sh DIRECTORY}" && pwd)
work=$(mktemp -d)
server=
clean_up() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
minor=${version%.*}

say() { printf 'packages: %s\n' "$*"; }
fail() { printf 'packages: FAILED: %s\n' "$*" >&2; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }; }

# A command serves a table and fetches it: COMMAND
moves_a_table() {
  "$1" serve --listen "shm:@dipc-packages-$$" --tpch nation --scale 0.01 >"$work/ready" &
  server=$!
  for _ in $(seq 100); do
    grep -q ready "$work/ready" && break
    sleep 0.1
  done
  quietly "$1" get "shm:@dipc-packages-$$" nation --verify tpch:nation:0.01
  kill "$server"
  wait "$server" || fail "$1 serve did not end well"
  server=
}

# A program against the installed files: PREFIX LIBRARY_DIRECTORY
builds_a_program() {
  export PKG_CONFIG_PATH=$2/pkgconfig
  # shellcheck disable=SC2046 # the flags are words
  quietly cc -std=c11 "$root/cmake/consumer/consumer.c" -o "$work/program" \
    $(pkg-config --define-variable=prefix="$1" --cflags --libs dipc)
  LD_LIBRARY_PATH=$2 quietly "$work/program"
  quietly cmake -S "$root/cmake/consumer" -B "$work/consumer" "-DCMAKE_PREFIX_PATH=$1" \
    -DCONSUMER_LINKS=dipc::dipc
  quietly cmake --build "$work/consumer"
  quietly ctest --test-dir "$work/consumer" --output-on-failure
  rm -rf "$work/consumer"
}

# The units of a service: PREFIX
has_units() {
  local units=$1/lib/systemd/system
  for kind in service socket; do
    [ -f "$units/dipc@.$kind" ] || fail "$1 lacks dipc@.$kind"
  done
  if ! command -v systemd-analyze >/dev/null; then
    say "skipped: systemd-analyze is not there"
    return
  fi
  mkdir "$work/units"
  cp "$units/dipc@.socket" "$work/units"
  sed "s#^ExecStart=dipc #ExecStart=$1/bin/dipc #" "$units/dipc@.service" >"$work/units/dipc@.service"
  # A systemd before 253 warns of one line, as the unit says.
  (cd "$work/units" && systemd-analyze verify ./dipc@test.service ./dipc@test.socket) \
    >"$work/verified" 2>&1 || fail "$(cat "$work/verified")"
  if grep -v notify-reload "$work/verified"; then fail "systemd warns of the units"; fi
  rm -r "$work/units"
}

(cd "$packages" && quietly sha256sum --check --strict SHA256SUMS)

say "bills of materials"
for name in libdipc dipc; do
  quietly python3 -c 'import json, sys
bill = json.load(open(sys.argv[1]))
names = {part["name"] for part in bill["components"]}
assert bill["bomFormat"] == "CycloneDX" and {"arrow", "rustls", "libc"} <= names, names' \
    "$packages/$name-$version.cdx.json"
done

say "Debian packages: libdipc$minor, libdipc-dev, dipc-tools, libdipc$minor-dbg"
mkdir -p "$work/root/var/lib/dpkg/info" "$work/root/var/lib/dpkg/updates"
touch "$work/root/var/lib/dpkg/status" "$work/root/var/lib/dpkg/available"
for name in "libdipc$minor" libdipc-dev dipc-tools "libdipc$minor-dbg"; do
  found=$(find "$packages" -name "${name}_${version}_*.deb")
  [ -n "$found" ] || fail "there is no package $name"
  # An empty root has no libc6, so dependencies are ignored.
  quietly dpkg --root="$work/root" --force-depends --force-not-root --force-script-chrootless \
    --install "$found"
done
grep -q "^libdipc $minor libdipc$minor" "$work/root/var/lib/dpkg/info/libdipc$minor"*.shlibs ||
  fail "libdipc$minor does not say what its users depend on"
for name in "libdipc$minor" dipc-tools; do
  depends=$(dpkg-query --admindir="$work/root/var/lib/dpkg" -W -f '${Depends}' "$name")
  grep -q libc6 <<<"$depends" || fail "$name names no dependencies: $depends"
done
library=$(dirname "$(find "$work/root/usr/lib" -name libdipc.so)")
builds_a_program "$work/root/usr" "$library"
moves_a_table "$work/root/usr/bin/dipc"
has_units "$work/root/usr"
[ -f "$work/root/usr/share/man/man1/dipc-get.1" ] || fail "dipc-tools lacks manual pages"
for file in "$work/root/usr/bin/dipc" "$library/libdipc.so"; do
  size=$(stat -Lc %s "$file")
  [ "$size" -lt $((40 << 20)) ] || fail "$file has $size bytes: it is not stripped"
done
quietly dpkg --root="$work/root" --force-not-root --force-script-chrootless --purge dipc-tools libdipc-dev "libdipc$minor-dbg" "libdipc$minor"
left=$(find "$work/root" -path "$work/root/var" -prune -o ! -type d -print)
[ -z "$left" ] || fail "files are left after removal: $left"

"$root/tests/fresh_root.sh" "$packages" || fail "the Debian packages in a fresh Debian"

say "tarball"
mkdir "$work/somewhere"
tar -xzf "$(find "$packages" -name "dipc-$version-*.tar.gz")" -C "$work/somewhere" --strip-components=1
builds_a_program "$work/somewhere" "$work/somewhere/lib"
moves_a_table "$work/somewhere/bin/dipc"
has_units "$work/somewhere"

wheel=$(find "$packages" -name "libdipc-*_$(uname -m).whl")
if [ -n "$wheel" ]; then
  say "wheel"
  quietly python3 -m venv "$work/venv"
  quietly "$work/venv/bin/pip" install --no-index --no-deps --disable-pip-version-check "$wheel"
  quietly env -C "$work" -u LD_LIBRARY_PATH "$work/venv/bin/python" -c \
    'import dipc; assert dipc.library_version() == "'"$version"'"; dipc.Client().close()'
  moves_a_table "$work/venv/bin/dipc"
  # The quick start, as a reader of the page runs it; pyarrow comes from pip's registry.
  if "$work/venv/bin/pip" install --quiet --disable-pip-version-check "${wheel}[pyarrow]" 2>"$work/log"; then
    for number in 1 2; do
      awk -v section=Python -v number=$number -f "$root/tests/quick_start/program.awk" \
        "$root/docs/quick-start.md" | sed "s/@quick-start/@packages-quick-$$/" >"$work/program$number.py"
    done
    "$work/venv/bin/python" "$work/program1.py" >"$work/ready" &
    server=$!
    for _ in $(seq 100); do
      grep -q shm: "$work/ready" && break
      sleep 0.1
    done
    quietly "$work/venv/bin/python" "$work/program2.py"
    grep -qx '3 rows' "$work/log" || fail "the quick start in Python prints $(cat "$work/log")"
    kill "$server"
    wait "$server" || true
    server=
  else
    say "skipped: the quick start in Python, for pip gets no pyarrow: $(tail -1 "$work/log")"
  fi
  # The tag is true: no file asks for a newer glibc than it names.
  tag=$(sed -n 's/.*-manylinux_2_\([0-9]*\)_.*\.whl$/\1/p' <<<"$wheel")
  [ -n "$tag" ] || fail "PyPI refuses the tag of $wheel"
  for file in "$work"/venv/bin/dipc "$work"/venv/lib/python*/site-packages/dipc/lib/*; do
    needs=$(objdump -T "$file" | sed -n 's/.*(\?GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -1)
    [ -n "$needs" ] || fail "$file names no glibc"
    [ "$needs" -le "$tag" ] || fail "$file needs glibc 2.$needs, and the wheel's tag says 2.$tag"
  done
fi
# A wheel for another processor holds files for it.
for wheel in "$packages"/libdipc-*_aarch64.whl; do
  [ -e "$wheel" ] && [ "$(uname -m)" != aarch64 ] || continue
  say "wheel for aarch64"
  python3 -m zipfile -e "$wheel" "$work/aarch64"
  for file in "$work"/aarch64/dipc/lib/* "$work"/aarch64/*.data/scripts/dipc; do
    readelf -h "$file" | grep -q 'Machine: *AArch64' || fail "$file in $wheel is for another processor"
  done
done
# The archive of the sources holds this tree, and the recipes name it.
archive=$packages/libdipc-$version.tar.gz
if [ -f "$archive" ]; then
  say "archive of the sources, and recipes"
  mkdir "$work/sources"
  tar -xzf "$archive" -C "$work/sources"
  cmp "$work/sources/libdipc-$version/Cargo.lock" "$root/Cargo.lock" || fail "the archive holds another tree"
  sum=$(sha256sum "$archive" | cut -d' ' -f1)
  for recipe in conan/conandata.yml conda/recipe.yaml homebrew/libdipc.rb; do
    grep -q "$sum" "$packages/recipes/$recipe" || fail "$recipe names another archive"
  done
  grep -q "$(sha512sum "$archive" | cut -d' ' -f1)" "$packages/recipes/vcpkg/portfile.cmake" ||
    fail "the vcpkg port names another archive"
else
  say "skipped: there is no archive of the sources"
fi
say "ok"
