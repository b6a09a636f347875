#!/usr/bin/env bash
# Makes the bundle of the GPU's checks and runs them here (tools/gpu-run.sh says what they are). Without
# a GPU they go over the fake driver of the tests, whose figures mean nothing, and end well where
# everything ran.
#
#   tools/gpu-check.sh
#
# PROFILE            what cargo builds (release; over the fake driver dev)
# The variables of tools/gpu-bundle.sh and tools/gpu-run.sh
set -euo pipefail
cd "$(dirname "$0")/.."
if ! nvidia-smi --query-gpu=name --format=csv,noheader --id="${GPU:-0}" >/dev/null 2>&1; then
  echo "gpu-check: no GPU here (nvidia-smi says so): over the fake driver, whose figures mean nothing" >&2
  export PROFILE=${PROFILE:-dev}
  tests/fake_cuda/build.sh build/fake_cuda
  DIPC_FAKE_DRIVER=$(realpath build/fake_cuda)
  export DIPC_FAKE_DRIVER
fi
tools/gpu-bundle.sh build/gpu-check
exec build/gpu-check/run.sh
