#!/usr/bin/env bash
# The command serves a table and gets it.
set -euo pipefail
address=shm:@libdipc-conda-$$
dipc serve --listen "$address" --tpch nation --scale 0.01 >ready &
server=$!
trap 'kill "$server"' EXIT
for _ in $(seq 100); do
  if grep -q ready ready; then break; fi
  sleep 0.1
done
dipc get "$address" nation --verify tpch:nation:0.01
