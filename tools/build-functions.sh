#!/usr/bin/env bash
# Builds the modules of integrations/functions: the examples, and those of the tests.
#
#   tools/build-functions.sh OUT_DIR      writes OUT_DIR/NAME.wasm, and c-NAME.wasm of those in C
#
# CARGO_FLAGS go to cargo. Rust's target wasm32-unknown-unknown, clang and lld are needed
# (tools/setup.sh integrations).
set -euo pipefail
[ $# -eq 1 ] || { printf 'usage: tools/build-functions.sh OUT_DIR\n' >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../integrations"
# Modules have a profile of their own, whatever the rest is built for.
read -ra flags <<<"${CARGO_FLAGS:-}"
for i in "${!flags[@]}"; do
  [ "${flags[i]}" != --release ] || unset "flags[i]"
done

cargo build "${flags[@]}" --package dipc-guest --examples --profile module --target wasm32-unknown-unknown
# Those with a hash in the name are the same files.
for module in target/wasm32-unknown-unknown/module/examples/*.wasm; do
  [[ ${module##*/} == *-* ]] || cp --update "$module" "$out"
done

header=functions/include/dipc_guest.h
for source in functions/examples/c/*.c; do
  module=$out/c-$(basename "$source" .c).wasm
  [ "$source" -nt "$module" ] || [ "$header" -nt "$module" ] || continue
  clang --target=wasm32 -mbulk-memory -std=c11 -Os -Wall -Wextra -Wpedantic -Werror -ffreestanding -nostdlib \
    -I functions/include -Wl,--no-entry -Wl,--strip-all -o "$module" "$source"
done
