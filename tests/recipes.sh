#!/usr/bin/env bash
# The recipes of packaging/, by the tools of their package managers or by stand-ins for them.
#
#   tests/recipes.sh lint       reads each; seconds
#   tests/recipes.sh build      builds packages from an archive of this tree, and uses them
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
  export CONAN_HOME=$work/conan
  quietly "$tools/conan" profile detect
  for shared in False True; do
    say "Conan, shared=$shared"
    quietly "$tools/conan" create "$release/recipes/conan" --version "$version" \
      -o "libdipc/*:shared=$shared" -o "libdipc/*:with_command=$shared" \
      -c "tools.cmake.cmaketoolchain:extra_variables={'DIPC_CARGO_TARGET_DIR': '$CARGO_TARGET_DIR'}"
    grep -q "libdipc $version" "$work/log" || fail "the programs of the Conan package print no version"
  done
  rm -rf "$CONAN_HOME"
}

with_vcpkg() {
  local features
  for features in core tools; do
    say "vcpkg, libdipc[$features]"
    quietly vcpkg install "libdipc[$features]" "--overlay-ports=$release/recipes" \
      "--x-install-root=$work/vcpkg" --no-binarycaching
  done
}

build() {
  release=$work/v$version
  "$root/tools/recipes.sh" "$release" "file://$release/"
  # The packages are used, not measured, so optimising costs more time than it is worth.
  export CARGO_TARGET_DIR=$root/target/recipes CARGO_PROFILE_RELEASE_OPT_LEVEL=1
  export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=none
  export PATH=$PATH:$root/.tools/bin
  if have Conan "$tools/conan"; then with_conan; fi
  if have conda "$tools/python" && have conda cargo-bundle-licenses; then
    say "conda"
    quietly "$tools/python" "$root/tests/recipes/conda.py" build "$release/recipes/conda" "$work/conda"
    grep '^conda: ' "$work/log"
  fi
  if have Homebrew ruby; then
    say "Homebrew's formula"
    tar -xzf "$release/libdipc-$version.tar.gz" -C "$work"
    (cd "$work/libdipc-$version" && quietly ruby "$root/tests/recipes/formula.rb" \
      "$release/recipes/homebrew/libdipc.rb" "$work/homebrew")
  fi
  if have vcpkg vcpkg; then with_vcpkg; fi
}

case ${1:-} in
  lint) lint ;;
  build) build ;;
  *)
    echo "usage: $0 lint|build" >&2
    exit 2
    ;;
esac
say "ok"
