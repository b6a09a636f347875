#!/usr/bin/env bash
# Runs the examples in FOLDER, and looks at what they print.
set -euo pipefail
folder=$1
expect() {
  local got
  got=$("${@:2}")
  [ "$got" = "$1" ] || { printf '%s printed "%s", not "%s"\n' "$2" "$got" "$1" >&2; exit 1; }
}

coproc SERVER { exec "$folder/example_serve" "shm:@dipc-cpp-example-$$"; }
pid=$SERVER_PID
trap 'kill "$pid" 2>/dev/null || true' EXIT
read -r uri <&"${SERVER[0]}"
expect "1000 rows, sum 1500.0" "$folder/example_fetch" "$uri" prices
expect "1000 rows" "$folder/example_no_exceptions" "$uri" prices
for example in fetch no_exceptions; do
  if text=$("$folder/example_$example" "$uri" nothing 2>&1); then exit 1; fi
  case $text in
    "DIPC_ERR_NOT_FOUND: "*nothing*) ;;
    *) printf '%s said "%s"\n' "$example" "$text" >&2; exit 1 ;;
  esac
done
kill -TERM "$pid"
wait "$pid"
trap - EXIT
expect $'1000 rows\nhello ada\nlatest: 1000 rows' "$folder/example_requests" "shm:@dipc-cpp-requests-$$"
expect $'1: today sums up to 1500.000000\n2: today sums up to 4000.000000\n2 batches, 0 bytes copied' \
  "$folder/example_put" "shm:@dipc-cpp-put-$$"
expect "3 batches sent, 4 rows back, sum 160" "$folder/example_exchange" "shm:@dipc-cpp-exchange-$$"
if [ -x "$folder/example_coroutines" ]; then
  expect '100 streams, sum 45000.0' "$folder/example_coroutines" "shm:@dipc-cpp-coroutines-$$"
fi
if [ -x "$folder/example_arrow" ]; then
  expect $'numbers: 1000 rows\nmade: 1000 rows' "$folder/example_arrow" "shm:@dipc-cpp-arrow-$$"
fi
