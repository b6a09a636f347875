#!/usr/bin/env bash
# What only a GPU can show: the tests of CUDA over the system's driver, and how fast tables come to
# and from a GPU, in one table. Without a GPU it says so and goes the same way over the fake driver of
# the tests, whose figures mean nothing, and ends well where everything ran.
#
#   tools/gpu-check.sh
#
# GPU                which one (0)
# DIPC_GPU_SECONDS   time for each measurement (2; over the fake driver 0.2)
# DIPC_GPU_BATCHES   batches handed over while processes are killed (1000; over the fake driver 100)
# PROFILE            what cargo builds (release; over the fake driver dev)
# CARGO_FLAGS        for cargo, as -j2
set -euo pipefail
cd "$(dirname "$0")/.."
gpu=${GPU:-0}
out=build/gpu-check
mkdir -p "$out"
read -ra cargo_flags <<<"${CARGO_FLAGS:-}"
say() { printf 'gpu-check: %s\n' "$*" >&2; }

# Whether there is a GPU is asked of the driver, as libdipc would.
if nvidia-smi --query-gpu=name --format=csv,noheader --id="$gpu" >"$out/name" 2>/dev/null; then
  driver=system
  name=$(<"$out/name")
  profile=${PROFILE:-release} seconds=${DIPC_GPU_SECONDS:-2}
  export DIPC_GPU_BATCHES=${DIPC_GPU_BATCHES:-1000}
  export DIPC_TEST_CUDA_DRIVER=system
else
  driver=fake
  name="the fake driver (its figures mean nothing)"
  profile=${PROFILE:-dev} seconds=${DIPC_GPU_SECONDS:-0.2}
  export DIPC_GPU_BATCHES=${DIPC_GPU_BATCHES:-100}
  say "no GPU here (nvidia-smi says so): over the fake driver, whose figures mean nothing"
fi
case $profile in
  release) folder=release ;;
  *) folder=debug ;;
esac
target=${CARGO_TARGET_DIR:-target}

say "building ($profile)"
cargo build "${cargo_flags[@]}" --locked --profile "$profile" --workspace --all-features --bin dipc
dipc=$target/$folder/dipc

# The tests, one after the other: they compare how much of the GPU's memory is free.
say "tests over the ${driver} driver"
status=0
cargo test "${cargo_flags[@]}" --locked --workspace --all-features --test cuda -- --test-threads=1 --nocapture \
  >"$out/tests" 2>&1 || status=$?
grep -oE 'test result:.*|skipped:.*|kills:.*' "$out/tests" || true
# What failed, and how: the end of the output is mostly tests that passed.
[ "$status" = 0 ] || {
  grep -E -A4 "^error|panicked at|\.\.\. FAILED" "$out/tests" | head -n 60 >&2 || true
  say "tests failed: $out/tests"
}

# Memory errors in the kernels and copies, where the tool is there.
sanitizer="not installed (compute-sanitizer, of the CUDA toolkit)"
if [ "$driver" = system ] && command -v compute-sanitizer >/dev/null; then
  say "compute-sanitizer"
  program=$(cargo test "${cargo_flags[@]}" --locked --workspace --all-features --test cuda --no-run 2>&1 |
    sed -n 's/.*(\(.*\/cuda-[0-9a-f]*\)).*/\1/p')
  if compute-sanitizer --tool memcheck --target-processes all --error-exitcode 99 \
    "$program" --test-threads=1 headers:: values:: >"$out/sanitizer" 2>&1; then
    sanitizer="no errors (memcheck; headers, values)"
  else
    sanitizer="errors: $out/sanitizer"
    status=1
  fi
elif [ "$driver" = fake ]; then
  sanitizer="left out without a GPU"
fi

if [ "$driver" = fake ]; then
  tests/fake_cuda/build.sh "$target/tmp/fake_cuda"
  LD_LIBRARY_PATH=$(realpath "$target/tmp/fake_cuda")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # Room for the largest batches, some of which are on their way at once.
  export LD_LIBRARY_PATH FAKE_CUDA_MEMORY=8589934592
fi
bench() { "$dipc" bench --json --seconds "${seconds}s" "$@" >>"$out/lines"; }
: >"$out/lines"
say "measuring"
place=cuda:$gpu
# A batch that is lent costs the same whatever its size; a few are enough to come round in turn.
for size in 64K 1M 16M 256M; do
  bench --op get --device "$place" --to "$place" --memory arena,heap --touch none --batch-bytes "$size" \
    --distinct 2 --window-bytes 1G
done
# The copies that cannot be left out, beside the same copy by the driver alone.
for size in 2M 32M; do
  bench --op machine --device "$place" --batch-bytes "$size"
  bench --op get --device host --to "$place" --memory arena,heap --touch none --batch-bytes "$size" --distinct 4
  bench --op get --device "$place" --to host --memory arena,heap --touch none --batch-bytes "$size" --distinct 4
done
python3 tools/gpu_table.py "$name" "$out/lines" "$out/tests" "$sanitizer" | tee "$out/table"
exit "$status"
