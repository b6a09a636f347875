#!/usr/bin/env bash
# Runs the tests of the Julia package. The library is found by DIPC_PREFIX (an install tree), by
# `pkg-config dipc`, or built here.
#
#   bindings/julia/test.sh [PART...]
#
# Without a Julia that works it skips, says why, and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! julia=$(bindings/julia/julia.sh); then
  echo 'julia: skipped, for there is no Julia that works (see above)'
  exit 0
fi

if [ -z "${DIPC_PREFIX:-}" ] && [ -z "${DIPC_LIBRARY:-}" ]; then
  if prefix=$(pkg-config --variable=prefix dipc 2>/dev/null); then
    export DIPC_PREFIX=$prefix
  else
    cargo build --quiet --locked --lib
    cargo build --quiet --locked --package libdipc-cli
    export DIPC_LIBRARY=$PWD/target/debug/libdipc.so DIPC_COMMAND=$PWD/target/debug/dipc
  fi
fi
[ -n "${DIPC_COMMAND:-}" ] || [ -x "${DIPC_PREFIX:-}/bin/dipc" ] ||
  echo 'julia: the comparison with the dipc command is skipped, for DIPC_PREFIX has none'

run() {
  "$julia" --startup-file=no "${@:1:2}" --project=bindings/julia bindings/julia/test/runtests.jl "${@:3}"
}
if [ $# -gt 0 ]; then
  run -O1 --compile=yes "$@"
  exit
fi
# Compiled into the cache once, before two at once would both do so.
"$julia" --startup-file=no --project=bindings/julia -e 'import Dipc'
# The stream files are of hundreds of types with a few values each: that is for the interpreter. The
# two need no more than a processor each.
streams=$(mktemp)
trap 'rm -f "$streams"' EXIT
run -O0 --compile=min streams >"$streams" 2>&1 &
run -O1 --compile=yes library values serving options publish requests selecting authorizing put exchange log loops ending memory tables examples &&
  passed=1 || passed=0
wait $! || passed=0
cat "$streams"
[ "$passed" = 1 ]
