#!/usr/bin/env bash
# The tests that take long: memory and thread sanitizers, loom, fuzzing. Each has a bound on its
# time; what cannot run here is skipped with the reason.
#
#   tools/test-slow.sh [asan|tsan|c|loom|fuzz ...]      default: all
#
# FUZZ_SECONDS: time for each fuzz target.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
host=$(rustc -vV | sed -n 's/^host: //p')
lib=$(rustc --print target-libdir)
failed=()

say() { printf '\ntest-slow: %s\n' "$*"; }

# Whether the toolchain carries the runtime of a sanitizer.
runtime() { compgen -G "$lib/librustc-*_rt.$1.a" >/dev/null; }

# NAME SECONDS COMMAND...: the others run also where this one fails.
step() {
  local name=$1 seconds=$2 code=0
  shift 2
  say "$name"
  timeout --kill-after=30 "$seconds" "$@" || code=$?
  [ "$code" = 0 ] || failed+=("$name (status $code)")
}

# Tests under a sanitizer: NAME RUNTIME FLAGS...
sanitized() {
  local name=$1 short=$2
  shift 2
  if ! runtime "$short"; then
    say "$name: skipped, for this Rust toolchain has no runtime for it"
    return
  fi
  # The switches are unstable; the compiler takes them from a stable toolchain with this variable.
  # proc-macros and build scripts are of the host and stay without, hence --target.
  step "$name" 3600 env RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=${name} $*" \
    ASAN_OPTIONS=detect_leaks=1 \
    TSAN_OPTIONS="suppressions=$root/tools/tsan.supp halt_on_error=1" \
    cargo test --locked --features cli --target "$host" --target-dir "target/$short" --lib \
    --test '*'
}

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(asan tsan c loom fuzz)
for part in "${parts[@]}"; do
  case $part in
    asan) sanitized address asan ;;
    # std is not instrumented: the fences in it are replaced or suppressed in tools/tsan.supp.
    tsan) sanitized thread tsan -Cunsafe-allow-abi-mismatch=sanitizer ;;
    c) step "C tests under AddressSanitizer" 1800 tests/c/run.sh asan ;;
    loom)
      if grep -rq 'cfg(loom)' src; then
        step loom 1800 env RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 \
          cargo test --locked --release --target-dir target/loom --lib loom
      else
        say "loom: skipped, for no module has a loom model"
      fi
      ;;
    fuzz)
      if [ ! -d fuzz ]; then
        say "fuzz: skipped, for there is no folder fuzz"
        continue
      fi
      if ! runtime asan; then
        say "fuzz: skipped, for this Rust toolchain has no AddressSanitizer"
        continue
      fi
      export PATH=$PWD/.tools/bin:$PATH RUSTC_BOOTSTRAP=1
      for target in $(cargo fuzz list); do
        step "fuzz $target" 1800 cargo fuzz run "$target" -- \
          "-max_total_time=${FUZZ_SECONDS:-60}" -rss_limit_mb=4096
      done
      ;;
    *)
      printf 'test-slow: unknown part %s\n' "$part" >&2
      exit 2
      ;;
  esac
done

if [ "${#failed[@]}" -gt 0 ]; then
  say "FAILED: ${failed[*]}"
  exit 1
fi
say "all passed"
