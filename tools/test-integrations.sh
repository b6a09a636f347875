#!/usr/bin/env bash
# The tests of integrations/: of each crate, and of what other languages do with it.
#
#   tools/test-integrations.sh [adbc|datafusion|functions ...]      default: all
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$root/.tools/integrations/bin/python
read -ra flags <<<"${CARGO_FLAGS:-} --locked"
profile=debug
[[ " ${flags[*]} " != *" --release "* ]] || profile=release
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(adbc datafusion functions)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Hosts in Python, and DuckDB and Polars by the driver. With the flags of `make test` nothing is built
# twice.
adbc_in_python() {
  cargo build "${flags[@]}" --workspace --all-features --lib --bin dipc
  (cd integrations && cargo build "${flags[@]}" --package libdipc-adbc)
  PYTHON=$python DIPC_LIBRARY=$root/target/$profile/libdipc.so bindings/python/install.sh "$work/site"
  PYTHONPATH=$work/site "$python" -m pytest -q -rs integrations/adbc/tests/python
}

# libdipc_functions.so, which links with libdipc.so; `cargo test` does not make it. With the flags of
# `make test` libdipc is not built twice.
functions_library() {
  cargo build "${flags[@]}" --workspace --all-features --lib --bin dipc
  (cd integrations && cargo build "${flags[@]}" "${packages[@]}" --lib)
}

# What `make install` and `make install-functions` give.
functions_installed() {
  local cargo_profile=${profile/debug/dev}
  CARGO_FLAGS=${flags[*]/--release/} integrations/functions/c/test-install.sh "$cargo_profile" \
    "$DIPC_FUNCTIONS_MODULES" "$work/prefix"
}

functions_in_python() {
  PYTHON=$python DIPC_LIBRARY=$root/target/$profile/libdipc.so bindings/python/install.sh "$work/site"
  DIPC_FUNCTIONS_LIBRARY=$root/integrations/target/$profile/libdipc_functions.so PYTHONPATH=$work/site \
    DIPC_FUNCTIONS_PREFIX=$work/prefix \
    "$python" -m pytest -q -rs integrations/functions/tests/python
}

# Distributed SQL between network namespaces, of which one dies, by the command that the tests have built.
in_namespaces() {
  local apart=(unshare --net) tool why
  if [ "$(id -u)" -ne 0 ]; then apart+=(--user --map-root-user); fi
  for tool in ip unshare setpriv openssl; do
    command -v "$tool" >/dev/null || { printf 'skipped: examples/cluster/query.sh: no %s\n' "$tool"; return; }
  done
  why=$("${apart[@]}" true 2>&1) || { printf 'skipped: examples/cluster/query.sh: %s\n' "$why"; return; }
  PATH=$root/integrations/target/$profile:$PATH examples/cluster/query.sh 0.01
}

# The modules that the tests run. What they export is compiled for WebAssembly alone.
modules() {
  export DIPC_FUNCTIONS_MODULES=$root/integrations/target/modules
  CARGO_FLAGS=${flags[*]} tools/build-functions.sh "$DIPC_FUNCTIONS_MODULES"
  (cd integrations && cargo clippy "${flags[@]}" --package dipc-guest --lib --examples \
    --target wasm32-unknown-unknown -- -D warnings)
}

for part in "${parts[@]}"; do
  begun=$SECONDS
  printf '\ntest-integrations: %s\n' "$part"
  packages=(--package "libdipc-$part")
  if [ "$part" = functions ]; then
    modules
    packages=(--package dipc-guest --package libdipc-sandbox --package libdipc-functions
      --package libdipc-functions-c)
    functions_library
  fi
  (cd integrations && cargo clippy "${flags[@]}" "${packages[@]}" --all-targets -- -D warnings)
  (cd integrations && cargo test "${flags[@]}" "${packages[@]}")
  case $part in
    adbc) adbc_in_python ;;
    datafusion) in_namespaces ;;
    functions)
      functions_installed
      functions_in_python
      ;;
  esac
  printf 'test-integrations: %s took %s s\n' "$part" "$((SECONDS - begun))"
done
