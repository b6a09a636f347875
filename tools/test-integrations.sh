#!/usr/bin/env bash
# The tests of integrations/: clippy, then those of each crate.
#
#   tools/test-integrations.sh [adbc|datafusion ...]      default: all
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PYTHON=${PYTHON:-$root/.tools/venv/bin/python}
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(adbc datafusion)
cd integrations
for part in "${parts[@]}"; do
  printf '\ntest-integrations: %s\n' "$part"
  # shellcheck disable=SC2086  # CARGO_FLAGS is several words.
  cargo clippy ${CARGO_FLAGS:-} --locked --package "libdipc-$part" --all-targets -- -D warnings
  # shellcheck disable=SC2086
  cargo test ${CARGO_FLAGS:-} --locked --package "libdipc-$part"
done
