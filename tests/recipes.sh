#!/usr/bin/env bash
# The recipes of packaging/, by the tools of their package managers or by stand-ins for them.
#
#   tests/recipes.sh lint       reads each; seconds
#   tests/recipes.sh build [conan|conda|homebrew|vcpkg ...]
#                               builds packages from an archive of this tree, and uses them
#
# Conan and rattler-build are those of .tools/recipes (tools/setup.sh slow); Ruby and vcpkg those of the
# machine. What is missing is skipped, and named.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools/recipes/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)

say() { printf 'recipes: %s\n' "$*"; }
fail() { printf 'recipes: FAILED: %s\n' "$*" >&2; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 200 "$work/log" >&2; fail "$*"; }; }
# NAME COMMAND: whether it is there; says what is skipped.
have() {
  command -v "$2" >/dev/null && return
  say "skipped: $1, for ${2##*/} is not installed"
  return 1
}

lint() {
  local linkage julia
  if have Conan "$tools/conan"; then
    CONAN_HOME=$work/conan quietly "$tools/conan" inspect "$root/packaging/conan/conanfile.py"
  fi
  if have conda "$tools/python"; then
    quietly "$tools/python" "$root/tests/recipes/conda.py" render "$root/packaging/conda"
  fi
  if have Homebrew ruby; then
    quietly ruby -w "$root/tests/recipes/formula.rb" "$root/packaging/homebrew/libdipc.rb"
  fi
  for linkage in static dynamic; do
    (cd "$work" && quietly cmake "-DPORT_DIR=$root/packaging/vcpkg" "-DLINKAGE=$linkage" \
      -P "$root/tests/recipes/portfile.cmake")
  done
  if julia=$("$root/bindings/julia/julia.sh" 2>/dev/null); then
    quietly "$julia" --startup-file=no -e \
      'Meta.parse("begin\n" * read(ARGS[1], String) * "\nend").head === :block || exit(1)' \
      "$root/bindings/julia/jll/build_tarballs.jl"
  else
    say "skipped: the JLL build file, for there is no Julia that works"
  fi
}

with_conan() {
  local shared
  have Conan "$tools/conan" || return 0
  export CONAN_HOME=$work/conan
  quietly "$tools/conan" profile detect
  for shared in False True; do
    say "Conan, shared=$shared"
    quietly "$tools/conan" create "$release/recipes/conan" --version "$version" \
      -o "libdipc/*:shared=$shared" -o "libdipc/*:with_command=$shared" \
      -c "tools.cmake.cmaketoolchain:extra_variables={'DIPC_CARGO_TARGET_DIR': {'value': '$CARGO_TARGET_DIR', 'cache': True, 'type': 'PATH', 'docstring': 'cargo'}}"
    grep -q "libdipc $version" "$work/log" || fail "the programs of the Conan package print no version"
  done
  rm -rf "$CONAN_HOME"
}

with_conda() {
  have conda "$tools/python" && have conda cargo-bundle-licenses || return 0
  say "conda"
  quietly "$tools/python" "$root/tests/recipes/conda.py" build "$release/recipes/conda" "$work/conda"
  grep '^conda: ' "$work/log"
}

# A formula is not built from its archive by itself, so it gets the folder.
with_homebrew() {
  have Homebrew ruby || return 0
  say "Homebrew's formula"
  tar -xzf "$release/libdipc-$version.tar.gz" -C "$work"
  (cd "$work/libdipc-$version" && quietly ruby "$root/tests/recipes/formula.rb" \
    "$release/recipes/homebrew/libdipc.rb" "$work/homebrew")
}

with_vcpkg() {
  local triplet features installed=$work/vcpkg
  if [ -z "${VCPKG_ROOT:-}" ]; then
    say "skipped: vcpkg, for VCPKG_ROOT is not set"
    return
  fi
  have vcpkg vcpkg || return 0
  triplet=$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')-linux
  mkdir "$work/triplets"
  printf 'include("%s/triplets/%s.cmake")\nset(VCPKG_CMAKE_CONFIGURE_OPTIONS "-DDIPC_CARGO_TARGET_DIR=%s")\n' \
    "$VCPKG_ROOT" "$triplet" "$CARGO_TARGET_DIR" >"$work/triplets/$triplet.cmake"
  for features in core tools; do
    say "vcpkg, libdipc[$features]"
    # The compiler and CMake of this machine, as everywhere here.
    quietly env VCPKG_FORCE_SYSTEM_BINARIES=1 VCPKG_DISABLE_METRICS=1 vcpkg install "libdipc[$features]" --recurse \
      "--overlay-ports=$release/recipes/vcpkg" "--overlay-triplets=$work/triplets" --triplet "$triplet" \
      --host-triplet "$triplet" "--x-install-root=$installed" "--downloads-root=$work/downloads" \
      "--x-buildtrees-root=$work/buildtrees" "--x-packages-root=$work/packages" --binarysource=clear
    if grep -i 'warning:.*libdipc' "$work/log"; then fail "vcpkg warns of the port"; fi
  done
  quietly cmake -S "$root/packaging/conan/test_package" -B "$work/vcpkg-program" \
    "-DCMAKE_PREFIX_PATH=$installed/$triplet"
  quietly cmake --build "$work/vcpkg-program"
  quietly "$work/vcpkg-program/uses_c"
  quietly "$work/vcpkg-program/uses_cpp"
  quietly "$installed/$triplet/tools/libdipc/dipc" --version
  rm -rf "$work/buildtrees" "$work/packages" "$work/downloads"
}

build() {
  release=$work/v$version
  "$root/tools/recipes.sh" "$release" "file://$release/"
  # The packages are used, not measured, so optimising costs more time than it is worth.
  export CARGO_TARGET_DIR=$root/target/recipes CARGO_PROFILE_RELEASE_OPT_LEVEL=1
  export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=none
  export PATH=$PATH:$root/.tools/bin:$tools
  local part parts=("$@")
  [ "${#parts[@]}" -gt 0 ] || parts=(conan conda homebrew vcpkg)
  for part in "${parts[@]}"; do "with_$part"; done
}

case ${1:-} in
  lint) lint ;;
  build)
    shift
    build "$@"
    ;;
  *)
    echo "usage: $0 lint|build" >&2
    exit 2
    ;;
esac
say "ok"
