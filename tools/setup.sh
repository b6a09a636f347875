#!/usr/bin/env bash
# Installs what is missing to build and test libdipc on Debian and its like. Says nothing and
# changes nothing where nothing is missing.
#
#   tools/setup.sh build|test|lint|slow|integrations|docs|package|bench    (or --bench, and so on)
#
# Programs come from apt (as root, or through sudo), Python packages into .tools/venv.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:$HOME/.cargo/bin
purpose=${1:-test}
purpose=${purpose#--}

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

apt_install() {
  have apt-get || fail "please install: $* (only apt is known here)"
  local root=()
  if [ "$(id -u)" != 0 ]; then
    have sudo || fail "please install, as root: apt-get install $*"
    root=(sudo)
  fi
  say "installing $*"
  # The lists of a fresh machine are empty or old.
  "${root[@]}" apt-get update -qq >&2
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# SUITE: another Debian's packages, ranked so low that only what is asked for by suite is taken.
add_suite() {
  have apt-get && [ "$(id -u)" = 0 ] && [ -f /etc/apt/sources.list.d/debian.sources ] || return 1
  # The first paragraph is the distribution's, the second its security updates.
  sed "/^\$/,\$d; s/^Suites:.*/Suites: $1/" /etc/apt/sources.list.d/debian.sources \
    >"/etc/apt/sources.list.d/libdipc-$1.sources"
  printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n' "$1" >"/etc/apt/preferences.d/libdipc-$1"
  apt-get update -qq >&2
}

# Each program and the package it comes in.
programs=(cc:build-essential make:build-essential cmake:cmake pkg-config:pkg-config)
case $purpose in
  build) ;;
  # Functions in C are built by clang, for WebAssembly.
  integrations) programs+=(clang:clang wasm-ld:lld) ;;
  test) programs+=(c++:build-essential ninja:ninja-build valgrind:valgrind readelf:binutils
    python3:python3 go:golang-go) ;;
  lint) programs+=(shellcheck:shellcheck git:git doxygen:doxygen python3:python3) ;;
  # For another processor and another C library.
  slow) programs+=(c++:build-essential ninja:ninja-build clang-tidy:clang-tidy ruby:ruby musl-gcc:musl-tools
    aarch64-linux-gnu-gcc:crossbuild-essential-arm64 qemu-aarch64:qemu-user-binfmt) ;;
  docs) programs+=(c++:build-essential doxygen:doxygen python3:python3 go:golang-go) ;;
  package) programs+=(c++:build-essential dpkg-shlibdeps:dpkg-dev python3:python3) ;;
  # ucx-utils has the programs of the same UCX that libdipc loads.
  bench) programs+=(python3:python3 iperf3:iperf3 ucx_perftest:ucx-utils) ;;
  *) fail "unknown purpose $purpose: build, test, lint, slow, integrations, docs, package or bench" ;;
esac
missing=()
for entry in "${programs[@]}"; do
  have "${entry%%:*}" || missing+=("${entry#*:}")
done
# GoogleTest is a library: the tests of the C++ headers need it.
if [ "$purpose" = test ] && [ ! -e /usr/include/gtest/gtest.h ]; then
  missing+=(libgtest-dev)
fi
# Packages are tried in a fresh Debian. The program lies where only root looks.
if [ "$purpose" = package ] && [ ! -x /usr/sbin/debootstrap ]; then
  missing+=(debootstrap)
fi
# UCX is loaded when it is needed; its tests and the benchmarks, and their peers in C, need it.
case $purpose in
  test | bench) pkg-config --exists ucx 2>/dev/null || missing+=(libucx-dev) ;;
esac
if [ "${#missing[@]}" -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  apt_install "${missing[@]}"
fi

# Julia 1.5.3 is Debian 11's, and Debian 12 has none. On a later Debian it crashes where it makes a
# stack trace, for libunwind has changed since. So Julia is unpacked into .tools, with Debian 11's
# libunwind beside it, and nothing is installed into the system; .tools/bin/julia runs it. Where any of
# it fails the Julia package is left out of tests and docs, which say so.
install_julia() {
  bindings/julia/julia.sh >/dev/null 2>&1 && return
  local folder=$PWD/.tools/julia scratch libraries link package
  say "unpacking Julia 1.5.3 of Debian 11 into .tools"
  add_suite bullseye || return 1
  scratch=$(mktemp -d)
  chmod 755 "$scratch"
  mkdir "$scratch/partial"
  # Julia, whether or not it is installed, and what it needs and the system lacks.
  apt-get install -y -qq --no-install-recommends --reinstall --download-only \
    -o Dir::Cache::archives="$scratch" julia julia-common libjulia1 >/dev/null 2>&1 || return 1
  (cd "$scratch" && apt-get download -qq libunwind8/bullseye >/dev/null 2>&1) || return 1
  rm -rf "$folder"
  mkdir -p "$folder" .tools/bin
  for package in "$scratch"/*.deb; do
    dpkg -x "$package" "$folder"
  done
  rm -r "$scratch"
  libraries=$(dirname "$(find "$folder" -name libunwind.so.8)")
  # Julia names libraries by links beside its own; those that the system has are there.
  for link in "$libraries"/julia/*; do
    [ -e "$link" ] || ln -sf "${libraries#"$folder"}/$(basename "$(readlink "$link")")" "$link"
  done
  cat >.tools/bin/julia <<END
#!/bin/sh
LD_LIBRARY_PATH=$libraries:$libraries/julia\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec $folder/usr/bin/julia "\$@"
END
  chmod +x .tools/bin/julia
  bindings/julia/julia.sh >/dev/null && say "Julia is .tools/bin/julia"
}

# Before version 8.2 the emulator ignores MAP_POPULATE, so the memory that a server lends looks sparse;
# Debian 12 has a newer one in its backports.
install_emulator() {
  local binaries=/proc/sys/fs/binfmt_misc version
  [ "$(id -u)" = 0 ] || [ -e "$binaries/qemu-aarch64" ] || return 1
  version=$(qemu-aarch64 --version | sed -n 's/^qemu-aarch64 version \([0-9.]*\).*/\1/p')
  if [ "$(printf '8.2\n%s\n' "$version" | sort -V | head -n 1)" != 8.2 ]; then
    say "installing the emulator of bookworm-backports"
    add_suite bookworm-backports || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -t bookworm-backports qemu-user-binfmt >/dev/null || return 1
    # It lies elsewhere than the one that the kernel knows.
    [ ! -e "$binaries/qemu-aarch64" ] || echo -1 >"$binaries/qemu-aarch64"
  fi
  [ ! -e "$binaries/qemu-aarch64" ] || return 0
  # As systemd does where it runs: the kernel starts the emulator for programs of that processor.
  [ -e "$binaries/register" ] || mount -t binfmt_misc binfmt_misc "$binaries" || return 1
  cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$binaries/register"
}
case $purpose in
  test | docs)
    install_julia || say "no Julia could be installed: its package is left out"
    ;;
esac

# Rust: the version that Cargo.toml asks for, or a later one.
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
how="install it with rustup (rustup toolchain install stable); the cargo of Debian 12 is too old"
have cargo || fail "Rust $wanted or later is missing: $how"
found=$(cargo --version | awk '{ print $2 }')
[ "$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -1)" = "$wanted" ] ||
  fail "Rust $wanted or later is needed and $found is installed: $how"

component() {
  cargo "$1" --version >/dev/null 2>&1 && return
  have rustup || fail "cargo $1 is missing: install the Rust component $2"
  say "installing the Rust component $2"
  rustup --quiet component add "$2"
}

# What the list $1 names, into .tools/$3 (default: venv); the copy $2 says that it is there.
python_packages() {
  local venv=.tools/${3:-venv}
  if cmp -s "$1" "$2"; then return; fi
  say "installing Python packages into $venv"
  mkdir -p .tools
  # Debian's python3 comes without what makes environments.
  if [ ! -x "$venv/bin/python" ] && ! python3 -m venv "$venv" >/dev/null 2>&1; then
    rm -rf "$venv"
    apt_install python3-venv
    /usr/bin/python3 -m venv "$venv"
  fi
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$1"
  cp "$1" "$2"
}

case $purpose in
  lint)
    component fmt rustfmt
    component clippy clippy
    ;;
  test)
    # Whoever has changed the list gets it installed anew.
    cmp -s tools/requirements.txt .tools/venv/installed || rm -rf .tools/venv
    python_packages tools/requirements.txt .tools/venv/installed
    python_packages bench/requirements.txt .tools/venv/installed-bench
    ;;
  package)
    python_packages tools/requirements-package.txt .tools/venv/installed-package
    if [ ! -x .tools/bin/cargo-cyclonedx ]; then
      say "installing cargo-cyclonedx into .tools"
      cargo install --quiet --locked --root .tools cargo-cyclonedx
    fi
    if have rustup; then rustup --quiet target add aarch64-unknown-linux-gnu; fi
    ;;
  integrations)
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
      have rustup || fail "Rust has no target wasm32-unknown-unknown: install its standard library"
      say "installing Rust's target wasm32-unknown-unknown"
      rustup --quiet target add wasm32-unknown-unknown
    fi
    python_packages integrations/requirements.txt .tools/integrations/installed integrations
    ;;
  bench)
    python_packages bench/requirements.txt .tools/venv/installed-bench
    ;;
  docs)
    python_packages tools/requirements-docs.txt .tools/venv/installed-docs
    if ! have mdbook && [ ! -x .tools/bin/mdbook ]; then
      say "installing mdbook into .tools"
      cargo install --quiet --locked --root .tools mdbook
    fi
    ;;
  slow)
    # ThreadSanitizer must see into std, which is built from source for it. Without rustup the test
    # is skipped and says so.
    sources=$(rustc --print sysroot)/lib/rustlib/src/rust/library
    if [ ! -d "$sources" ] && have rustup; then
      say "installing the Rust component rust-src"
      rustup --quiet component add rust-src
    fi
    if have rustup; then
      rustup --quiet target add aarch64-unknown-linux-gnu x86_64-unknown-linux-musl
    fi
    install_emulator || say "the kernel starts no emulator for aarch64: its tests will be skipped"
    if [ -d fuzz ] && [ ! -x .tools/bin/cargo-fuzz ]; then
      say "installing cargo-fuzz into .tools"
      cargo install --quiet --locked --root .tools cargo-fuzz
    fi
    ;;
esac
