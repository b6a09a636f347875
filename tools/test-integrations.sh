#!/usr/bin/env bash
# The tests of integrations/: of each crate, and of what other languages do with it.
#
#   tools/test-integrations.sh [adbc|datafusion ...]      default: all
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$root/.tools/integrations/bin/python
read -ra flags <<<"${CARGO_FLAGS:-} --locked"
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(adbc datafusion)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Hosts in Python, and DuckDB and Polars by the driver. With the flags of `make test` nothing is built
# twice.
adbc_in_python() {
  cargo build "${flags[@]}" --workspace --all-features --lib --bin dipc
  (cd integrations && cargo build "${flags[@]}" --package libdipc-adbc)
  PYTHON=$python DIPC_LIBRARY=$root/target/debug/libdipc.so bindings/python/install.sh "$work/site"
  PYTHONPATH=$work/site "$python" -m pytest -q -rs integrations/adbc/tests/python
}

for part in "${parts[@]}"; do
  begun=$SECONDS
  printf '\ntest-integrations: %s\n' "$part"
  (cd integrations && cargo clippy "${flags[@]}" --package "libdipc-$part" --all-targets -- -D warnings)
  (cd integrations && cargo test "${flags[@]}" --package "libdipc-$part")
  case $part in adbc) adbc_in_python ;; esac
  printf 'test-integrations: %s took %s s\n' "$part" "$((SECONDS - begun))"
done
