#!/usr/bin/env bash
# The tests that take long: thread and memory sanitizers, the C tests under AddressSanitizer, loom,
# fuzzing, kills at random moments, hundreds of connections, thousands of streams, recipes of package
# managers, another processor and another C library, counts of instructions, and TPC-H on workers. Each
# step has a bound on its time; a step that cannot run here is skipped with the reason, and a failed
# step does not keep the others from running.
#
#   tools/test-slow.sh [tsan|asan|c|loom|fuzz|kills|connections|bindings|instructions|packaging|
#                       recipes|aarch64|musl|tpch ...]                                 default: all
#
# FUZZ_SECONDS     time for each fuzz target (60)
# DIPC_KILLS       kills of each kind on each transport (200)
# DIPC_TPCH_SCALE  scale factor of TPC-H (10, which takes 8 GB of disk and 16 GB of memory)
# BUILD_SECONDS    bound on each build (1800)
# CARGO_FLAGS      for cargo test, as -j2
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
lib=$(rustc --print target-libdir)
build_seconds=${BUILD_SECONDS:-1800}
failed=()
# The switches of the sanitizers are unstable; the compiler takes them from a stable toolchain with
# this. Only they get it: some packages choose other code where they see it.
unstable=(env RUSTC_BOOTSTRAP=1)

say() { printf '\ntest-slow: %s\n' "$*"; }

# Whether the toolchain carries the runtime of a sanitizer.
runtime() { compgen -G "$lib/librustc-*_rt.$1.a" >/dev/null; }

# NAME SECONDS COMMAND...: false where it fails or takes too long.
step() {
  local name=$1 seconds=$2 code=0 begun=$SECONDS
  shift 2
  say "$name"
  timeout --kill-after=30 "$seconds" "$@" || code=$?
  say "$name: status $code after $((SECONDS - begun)) s"
  [ "$code" = 0 ] || { failed+=("$name (status $code)"); return 1; }
}

# NAME BODY MESSAGE: whether the sanitizer is there and reports, shown with a program that is wrong.
# Without this a run that checks nothing looks like one that finds nothing.
reports() {
  local name=$1 body=$2 message=$3 work out code=0
  work=$(mktemp -d)
  printf '%s\n' "$body" >"$work/wrong.rs"
  "${unstable[@]}" rustc --edition 2021 -Zsanitizer="$name" -Cunsafe-allow-abi-mismatch=sanitizer \
    -o "$work/wrong" "$work/wrong.rs"
  out=$("$work/wrong" 2>&1) || code=$?
  rm -rf "$work"
  [ "$code" != 0 ] && [[ $out == *"$message"* ]]
}

# Test programs under a sanitizer: NAME SECONDS SUITES -- CARGO OPTIONS...
# Built first, so that the bound on the run is not used up by the compiler. proc-macros and build
# scripts are of the host and stay without the sanitizer, hence --target.
sanitized() {
  local name=$1 seconds=$2 suites=()
  shift 2
  while [ "$1" != -- ]; do
    suites+=("$1")
    shift
  done
  shift
  export RUSTFLAGS="-Zsanitizer=$name" CARGO_PROFILE_DEV_DEBUG=line-tables-only
  # shellcheck disable=SC2206 # CARGO_FLAGS is a list of words.
  local cargo=("${unstable[@]}" cargo test ${CARGO_FLAGS:-} --locked --target "$host" --target-dir "target/$name"
    "$@" "${suites[@]}")
  if step "$name: build" "$build_seconds" "${cargo[@]}" --no-run; then
    step "$name: run" "$seconds" "${cargo[@]}" --no-fail-fast || true
  fi
  unset RUSTFLAGS CARGO_PROFILE_DEV_DEBUG
}

# std is built with the sanitizer too (-Zbuild-std): its locks, channels and Arc synchronise in code
# that ThreadSanitizer must see, or it reports races that are none. So nothing is suppressed.
thread() {
  if ! runtime tsan; then
    say "thread: skipped, for this Rust toolchain has no ThreadSanitizer"
    return
  fi
  if [ ! -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
    say "thread: skipped, for the sources of std are missing: rustup component add rust-src"
    return
  fi
  # A report makes the program's status 66. A race is reported only while the history still has
  # the earlier of its two accesses, hence the longest. An allocation that cannot be gives NULL, as
  # it does without a sanitizer: tests ask for some. A forked child may have threads, as it may have without one.
  export TSAN_OPTIONS=history_size=7:allocator_may_return_null=1:die_after_fork=0
  # UCX writes jumps of its own over mmap and the like, where the sanitizer has put its own.
  export UCX_MEM_MMAP_HOOK_MODE=none
  if reports thread 'static mut N: u32 = 0;
    fn main() {
        let other = std::thread::spawn(|| unsafe { N += 1 });
        unsafe { N += 1 }
        other.join().unwrap();
    }' 'data race'; then
    # The suites with threads. interop has those of streams, and many more bytes.
    sanitized thread 1800 --lib --test conformance --test streams --test shm --test cuda -- -Zbuild-std
  else
    failed+=("thread: the sanitizer reports nothing")
  fi
  unset TSAN_OPTIONS UCX_MEM_MMAP_HOOK_MODE
}

# Leaks are reported too (LeakSanitizer). Left out: what only reads sources (header, exports), and
# the command (cli), whose packages take as long to build as all the rest.
address() {
  if ! runtime asan; then
    say "address: skipped, for this Rust toolchain has no AddressSanitizer"
    return
  fi
  # As for ThreadSanitizer; leaks are errors. With UCX's jumps the first call of mmap ends the process.
  export UCX_MEM_EVENTS=n UCX_MEM_MMAP_HOOK_MODE=none
  export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
  if reports address 'fn main() {
        let gone = { let b = Box::new([7_u8; 16]); &raw const *b };
        std::process::exit(i32::from(unsafe { (*gone)[3] }) - 7);
    }' 'heap-use-after-free'; then
    sanitized address 900 --lib --test conformance --test streams --test shm --test interop --test cuda --
  else
    failed+=("address: the sanitizer reports nothing")
  fi
  unset ASAN_OPTIONS UCX_MEM_EVENTS UCX_MEM_MMAP_HOOK_MODE
}

loom() {
  if ! grep -rq 'cfg(loom)' src; then
    say "loom: skipped, for no module has a loom model"
    return
  fi
  step loom 900 env RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 \
    cargo test --locked --release --target-dir target/loom --lib loom || true
}

fuzz() {
  local target seconds=${FUZZ_SECONDS:-60}
  if ! runtime asan; then
    say "fuzz: skipped, for this Rust toolchain has no AddressSanitizer"
    return
  fi
  if ! cargo fuzz --version >/dev/null 2>&1; then
    say "fuzz: skipped, for cargo-fuzz is missing: tools/setup.sh slow"
    return
  fi
  local folder
  for folder in fuzz integrations/functions/sandbox/fuzz; do
    local of=(--fuzz-dir "$folder")
    step "fuzz: build $folder" "$build_seconds" "${unstable[@]}" cargo fuzz build "${of[@]}" || continue
    for target in $(cargo fuzz list "${of[@]}"); do
      # The fuzzer writes what it finds new into the first folder, and only reads the second: the
      # committed corpus holds inputs that a person has chosen.
      mkdir -p "target/fuzz-corpus/$target"
      step "fuzz: $target" $((seconds + 120)) "${unstable[@]}" cargo fuzz run "${of[@]}" "$target" \
        "$PWD/target/fuzz-corpus/$target" "$PWD/$folder/corpus/$target" -- \
        "-max_total_time=$seconds" -rss_limit_mb=4096 -timeout=20 || true
    done
  done
}

# Whether std is there for a target; its absence is said.
has_std() {
  [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ] && return
  say "$1: skipped, for std is missing for it: rustup target add $1"
  return 1
}

# The library on another processor, in an emulator, which the kernel starts for such programs
# (binfmt_misc): tests start themselves again.
aarch64() {
  local target=aarch64-unknown-linux-gnu
  local cargo=(cargo test --locked --all-features --target "$target" --target-dir target/aarch64 --lib --test shm --test tcp)
  # What the emulator lacks: cachestat, filters of system calls, a bound on memory, congestion control.
  local without=(--skip a_hole_is_found_wherever_blocks_are --skip a_region_without_seals_is_refused
    --skip a_ring_is_a_whole_sealed_file --skip memory_is_lent_where_cachestat_is_missing
    --skip a_client_that_cannot_map_its_ring_does_without --skip sent_to_unpaced)
  has_std "$target" || return 0
  if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    say "aarch64: skipped, for the kernel starts no emulator for its programs: tools/setup.sh slow, as root"
    return 0
  fi
  export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
  step "aarch64: build" "$build_seconds" "${cargo[@]}" --no-run &&
    step "aarch64: run" 1800 "${cargo[@]}" --no-fail-fast -- "${without[@]}" || true
  step "aarch64: C tests" 1800 tests/c/run.sh aarch64 || true
  unset QEMU_LD_PREFIX CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER
}

# The library with musl, whose programs load no libraries: so without UCX.
musl() {
  local target=x86_64-unknown-linux-musl
  local cargo=(cargo test --locked --target "$target" --target-dir target/musl --lib --test conformance --test shm --test tcp)
  has_std "$target" || return 0
  if ! command -v musl-gcc >/dev/null; then
    say "musl: skipped, for there is no musl-gcc: tools/setup.sh slow"
    return 0
  fi
  step "musl: build" "$build_seconds" "${cargo[@]}" --no-run &&
    step "musl: run" 900 "${cargo[@]}" --no-fail-fast || true
}

# All queries of TPC-H on workers of this machine and of four networks, and queries that lose workers.
tpch() {
  local work cargo=(cargo test --locked --release --manifest-path integrations/Cargo.toml
    --package libdipc-datafusion)
  step "tpch: build" $((2 * build_seconds)) "${cargo[@]}" --no-run || return 0
  mkdir -p target/tpch
  local tables=(env DIPC_TPCH_SCALE="${DIPC_TPCH_SCALE:-10}" DIPC_TPCH_DIR="$PWD/target/tpch")
  step "tpch: queries on one machine" 7200 \
    "${tables[@]}" "${cargo[@]}" --test tpch -- --test-threads 1 --nocapture || true
  work=$(mktemp -d)
  # The addresses that cluster.sh gives.
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=worker \
    -addext "basicConstraints=critical,CA:FALSE" \
    -addext "subjectAltName=IP:10.77.0.11,IP:10.77.0.12,IP:10.77.0.13,IP:10.77.0.14" \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
  # shellcheck disable=SC2016 # The nodes' shells and the one beside them expand these.
  step "tpch: queries between four networks, over TLS" 7200 "${tables[@]}" \
    DIPC_TPCH_CA="$work/cert.pem" WORK="$work" examples/cluster/cluster.sh \
    'exec integrations/target/release/dipc-sql worker --listen "$ADDRESS:$PORT" --dipc "tls://$ADDRESS:7500" \
       --tls-cert "$WORK/cert.pem" --tls-key "$WORK/key.pem" --tls-ca "$WORK/cert.pem"' \
    bash -c 'DIPC_TPCH_WORKERS=http://${WORKERS// /,http://} "$@"' tpch \
    "${cargo[@]}" --test tpch -- --ignored --nocapture || true
  rm -rf "$work"
  step "tpch: queries that lose workers" 3600 env DIPC_LOST_WORKERS=100 \
    "${cargo[@]}" --test distributed -- lost_workers --nocapture || true
}

export PATH=$PWD/.tools/bin:$PATH
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(tsan asan c loom fuzz kills connections bindings instructions packaging recipes aarch64 musl tpch)
for part in "${parts[@]}"; do
  case $part in
    tsan) thread ;;
    asan) address ;;
    c) step "C tests under AddressSanitizer and valgrind" 2400 tools/with-newer-ucx.sh tests/c/run.sh asan valgrind || true ;;
    loom) loom ;;
    fuzz) fuzz ;;
    kills)
      # The seed that is printed repeats a run (DIPC_SEED).
      step kills 7200 env DIPC_KILLS="${DIPC_KILLS:-200}" \
        tools/with-newer-ucx.sh cargo test --locked --package libdipc-cli --all-features --test kills -- --nocapture || true
      ;;
    connections)
      step connections 1800 env DIPC_WHOLE=1 \
        tools/with-newer-ucx.sh cargo test --locked --workspace --all-features --test ucx --test ucx_peer --test cli || true
      step "the reference with the system's UCX" 300 \
        tools/with-newer-ucx.sh cargo test --locked --all-features --test ucx with_the_library -- --ignored || true
      step "thousands of streams" 900 env DIPC_STREAMS=10000 \
        tools/with-newer-ucx.sh cargo test --locked --all-features --test streams -- many:: sharing::no_stream || true
      ;;
    bindings)
      step "C++ headers: AddressSanitizer, clang, clang-tidy" 1800 bindings/cpp/test.sh asan clang tidy || true
      step "Go: race detector" 1800 env DIPC_GO_RACE=1 DIPC_GO_CGOCHECK=0 tools/test-bindings.sh go || true
      step "Julia: every stream file" 1800 env DIPC_TEST_FILES= tools/test-bindings.sh julia || true
      step "every language, every file" 5400 tests/matrix/test.sh --all-files --all-peers || true
      ;;
    instructions) step instructions 1800 tests/instructions/run.sh || true ;;
    packaging) step "packaging, with the library's own features" 1800 tests/packaging.sh || true ;;
    aarch64) aarch64 ;;
    musl) musl ;;
    tpch) tpch ;;
    recipes) step "packages by Conan, rattler-build and Homebrew's formula" 5400 tests/recipes.sh build || true ;;
    *)
      printf 'test-slow: unknown part %s\n' "$part" >&2
      exit 2
      ;;
  esac
done

if [ "${#failed[@]}" -gt 0 ]; then
  printf '\ntest-slow: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
say "all passed"
