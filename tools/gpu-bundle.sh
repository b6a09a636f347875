#!/usr/bin/env bash
# Makes a folder that checks libdipc on a GPU where there is no cargo, no compiler and no registry: copy
# it to a machine with a driver, and run its run.sh. It has the command, the tests of CUDA, the shared
# library, the Python package, and PyPI's UCX with its CUDA modules where .tools has it.
#
#   tools/gpu-bundle.sh FOLDER
#
# PROFILE            which profile cargo builds (release)
# CARGO_FLAGS        for cargo, as -j2
# DIPC_GOLDEN        a folder with Arrow's golden streams
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=${1:?usage: tools/gpu-bundle.sh FOLDER}
profile=${PROFILE:-release}
read -ra cargo_flags <<<"${CARGO_FLAGS:-}"
cargo_flags+=(--locked --profile "$profile" --workspace --all-features)
built=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")
say() { printf 'gpu-bundle: %s\n' "$*" >&2; }

say "building ($profile)"
cargo build "${cargo_flags[@]}" --lib --bin dipc
tests=$(cargo test "${cargo_flags[@]}" --package libdipc-cli --test cuda --no-run 2>&1 | tee /dev/stderr |
  sed -n 's/.*(\(.*\/cuda-[0-9a-f]*\)).*/\1/p')

rm -rf "$bundle"
mkdir -p "$bundle"/{bin,lib,vectors}
# Without symbols a panic still names its place.
strip -o "$bundle/bin/dipc" "$built/dipc"
strip -o "$bundle/bin/cuda-tests" "$tests"
cp tests/vectors/*.arrows "$bundle/vectors"
golden=${DIPC_GOLDEN:-../shared/golden}
if [ -d "$golden/streams" ]; then
  mkdir "$bundle/golden"
  cp -r "$golden/streams" "$bundle/golden/"
fi

DIPC_LIBRARY=$(realpath "$built/libdipc.so") bindings/python/build-wheel.sh "$bundle" >&2
python3 -m zipfile -e "$bundle"/*.whl "$bundle/python"
rm -r "$bundle"/*.whl "$bundle"/python/*.dist-info
mv "$bundle"/python/dipc/lib/libdipc.so.* "$bundle/lib/"
cp bindings/python/examples/tensors.py tools/gpu_table.py "$bundle/"
cp tools/gpu-run.sh "$bundle/run.sh"

ucx=$(find .tools/venv/lib -path '*/libucx/lib' 2>/dev/null | head -n 1)
if [ -n "$ucx" ]; then
  mkdir -p "$bundle/ucx/ucx"
  for file in "$ucx"/libuc*.so.0 "$ucx"/ucx/libuc[mt]_*.so.0; do
    strip -o "$bundle/ucx/${file#"$ucx"/}" "$file"
  done
else
  say "without UCX: libucx-cu12 is not in .tools (tools/setup.sh test)"
fi
say "$bundle: $(du -sm "$bundle" | cut -f1) MiB; run.sh runs the checks"
