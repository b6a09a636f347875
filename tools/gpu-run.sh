#!/usr/bin/env bash
# The checks of libdipc on a GPU, from a bundle (tools/gpu-bundle.sh) and nothing else: the tests of CUDA
# over the system's driver, how fast tables come to and from a GPU, and, where Python has PyTorch or
# CuPy, tensors that go from one process to another. It prints one table, and ends with 1 where anything
# failed.
#
#   run.sh [FOLDER]    FOLDER for what each part printed (results, beside this file)
#
# GPU                which one (0)
# PYTHON             which Python (python3), 3.9 or later
# DIPC_GPU_SECONDS   time for each measurement (2; over a fake driver 0.2)
# DIPC_GPU_BATCHES   batches handed over while processes are killed (1000; over a fake driver 100)
# DIPC_FAKE_DRIVER   a folder with the fake driver of the tests, in place of the system's
set -euo pipefail
bundle=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "${1:-$bundle/results}")
gpu=${GPU:-0}
python=${PYTHON:-python3}
mkdir -p "$out"
cd "$bundle"
say() { printf 'gpu-check: %s\n' "$*" >&2; }

export DIPC_TEST_BUNDLE=$bundle
if [ -n "${DIPC_FAKE_DRIVER:-}" ]; then
  driver=fake
  name="the fake driver (its figures mean nothing)"
  seconds=${DIPC_GPU_SECONDS:-0.2}
  export DIPC_GPU_BATCHES=${DIPC_GPU_BATCHES:-100}
else
  driver=system
  # Whether there is a GPU is asked of the driver, as libdipc would.
  name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader --id="$gpu") || {
    say "nvidia-smi finds no GPU $gpu here"
    exit 1
  }
  seconds=${DIPC_GPU_SECONDS:-2}
  export DIPC_GPU_BATCHES=${DIPC_GPU_BATCHES:-1000}
  export DIPC_TEST_CUDA_DRIVER=system
fi
status=0
bin/dipc info >"$out/info" 2>&1 || status=1

# One after the other: the tests compare how much of the GPU's memory is free.
say "tests over the $driver driver"
bin/cuda-tests --test-threads=1 --nocapture >"$out/tests" 2>&1 || status=$?
grep -oE 'test result:.*|skipped:.*|kills:.*' "$out/tests" || true
[ "$status" = 0 ] || {
  # The end of the output is mostly tests that passed.
  grep -E -A4 "^error|panicked at|\.\.\. FAILED" "$out/tests" | head -n 60 >&2 || true
  say "tests failed: $out/tests"
}

# Memory errors in the kernels and copies, where the tool is there.
sanitizer="not installed (compute-sanitizer, of the CUDA toolkit)"
if [ "$driver" = fake ]; then
  sanitizer="left out without a GPU"
elif command -v compute-sanitizer >/dev/null; then
  say "compute-sanitizer"
  if compute-sanitizer --tool memcheck --target-processes all --error-exitcode 99 \
    bin/cuda-tests --test-threads=1 headers:: values:: --skip a_read_that_faults >"$out/sanitizer" 2>&1; then
    sanitizer="no errors (memcheck; headers, values)"
  else
    sanitizer="errors: $out/sanitizer"
    status=1
  fi
fi

# A table of tensors, from the GPU memory of one Python process to another's.
export DIPC_LIBRARY
DIPC_LIBRARY=$(echo "$bundle"/lib/libdipc.so.*)
tensors="left out: $python has neither PyTorch nor CuPy"
if [ "$driver" = fake ]; then
  tensors="left out without a GPU"
else
  for module in torch cupy; do
    "$python" -c "import $module" 2>/dev/null || continue
    say "tensors ($module)"
    # More than one module is more than one check: each is tried.
    if told=$(PYTHONPATH=$bundle/python "$python" tensors.py check "$module" "$gpu" 2>"$out/tensors-$module"); then
      result="$module: $told"
    else
      result="$module: FAILED ($out/tensors-$module)"
      cat "$out/tensors-$module" >&2
      status=1
    fi
    case $tensors in
      left*) tensors=$result ;;
      *) tensors="$tensors; $result" ;;
    esac
  done
fi

if [ "$driver" = fake ]; then
  LD_LIBRARY_PATH=$DIPC_FAKE_DRIVER${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # Room for the largest batches, some of which are on their way at once.
  export LD_LIBRARY_PATH FAKE_CUDA_MEMORY=8589934592
fi
bench() { bin/dipc bench --json --seconds "${seconds}s" "$@" >>"$out/lines"; }
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
"$python" gpu_table.py "$name" "$out/lines" "$out/tests" "$sanitizer" "$tensors" | tee "$out/table"
exit "$status"
