#!/usr/bin/env bash
# Counts the instructions of building and reading headers and of a step of each state machine, under
# valgrind, and compares them with figures.txt. More than 5 % above fails, and so does a case
# without a figure. Unlike times, counts do not depend on other load of the machine.
#
#   tests/instructions/run.sh                 DIPC_BLESS=1 writes figures.txt anew
#
# Counts depend on the compiler and the kind of processor. If these differ from figures.txt, nothing
# is compared, and a line says so.
#
# Builds the library with optimisation, and links the other crates from the build of `cargo test
# --workspace --all-features`.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
figures=$root/tests/instructions/figures.txt
slack=5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'instructions: %s\n' "$*"; }

version=$(rustc --version)
here="${version%% (*} $(uname -m)"
if [ -z "${DIPC_BLESS:-}" ]; then
  stored=$(sed -n 's/^# counted with //p' "$figures")
  if [ "$here" != "$stored" ]; then
    say "skipped: the figures are of $stored, and this is $here"
    exit 0
  fi
fi

# A separate folder; otherwise the next `cargo test` would link this library, whose name has no
# hash. The files of other packages are links to the same files.
target=${CARGO_TARGET_DIR:-$root/target}
own=$target/instructions
if [ ! -d "$own" ] && [ -d "$target/debug/.fingerprint" ]; then
  mkdir -p "$own.new/debug"
  cp -al "$target/debug/deps" "$own.new/debug/"
  cp -a "$target/debug/build" "$target/debug/.fingerprint" "$own.new/debug/"
  rm -rf "$own.new"/debug/deps/*dipc* "$own.new"/debug/.fingerprint/*dipc*
  mv "$own.new" "$own"
fi
# The settings are for this package only; settings of a profile would rebuild all others.
setting=profile.dev.package.libdipc
read -ra flags <<<"${DIPC_CARGO_FLAGS:---locked}"
(cd "$root" && cargo build -q "${flags[@]}" --target-dir "$own" --workspace --all-features \
  --example instructions \
  --config $setting.opt-level=3 --config $setting.debug-assertions=false \
  --config $setting.overflow-checks=false --config $setting.incremental=false \
  --config $setting.codegen-units=1 --config $setting.debug=1)

valgrind --tool=callgrind --toggle-collect=instructions::measured \
  --dump-after=instructions::measured --callgrind-out-file="$work/count" \
  "$own/debug/examples/instructions" >"$work/cases" 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }

# One file for each case, in order.
number=0
while read -r line; do
  number=$((number + 1))
  total=$(sed -n 's/^totals: //p' "$work/count.$number")
  printf '%s %s\n' $((total / ${line##* })) "${line% *}"
done <"$work/cases" >"$work/counted"
[ "$number" -gt 0 ] || { say "FAILED: nothing was counted"; exit 1; }

if [ -n "${DIPC_BLESS:-}" ]; then
  {
    echo "# Instructions for each run of a case: tests/instructions/run.sh compares, DIPC_BLESS=1 writes."
    echo "# counted with $here"
    cat "$work/counted"
  } >"$figures"
  say "wrote $number figures"
  exit 0
fi
awk -v slack="$slack" '
  /^#/ { next }
  { count = $1; sub(/^[0-9]+ /, "") }
  NR == FNR { stored[$0] = count; next }
  !($0 in stored) { printf "%s: %d, and no figure is stored\n", $0, count; bad = 1; next }
  {
    more = (count / stored[$0] - 1) * 100
    verdict = more > slack ? "  TOO MANY" : more < -slack ? "  fewer: store it" : ""
    if (more > slack) bad = 1
    printf "%-28s %9d  %+6.1f %%%s\n", $0, count, more, verdict
    delete stored[$0]
  }
  END {
    for (name in stored) { printf "%s: not counted any more\n", name; bad = 1 }
    exit bad
  }' "$figures" "$work/counted" || { say "FAILED: more than $slack % above the figures"; exit 1; }
