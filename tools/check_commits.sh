#!/usr/bin/env bash
# Whether commits follow CONTRIBUTING.md: `area: subject`, a body that says why, and fewer than 500
# added lines, those of generated files not counted. Merges are not looked at.
#
#   tools/check_commits.sh [BASE]      commits after BASE; default: those that are not pushed yet
set -euo pipefail
cd "$(dirname "$0")/.."
most=500
generated=(':!*.lock' ':!include/dipc/dipc.h' ':!include/dipc_machines.h' ':!docs/rust-api.txt'
  ':!*.snap' ':!docs/benchmarks/*' ':!crates/ucx1-sys/src/bindings.rs')
base=${1:-@{upstream\}}
if ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null 2>&1; then
  printf 'skipped: the commits, for there is no %s\n' "$base"
  exit 0
fi

wrong=0
tell() {
  printf '%s: %s\n' "$(git log -1 --format='%h %s' "$1")" "$2" >&2
  wrong=1
}

for commit in $(git rev-list --no-merges "$base..HEAD"); do
  [[ $(git log -1 --format=%s "$commit") =~ ^[a-z0-9_,\ -]+:\ .+ ]] ||
    tell "$commit" 'the subject is not "area: imperative"'
  [ -n "$(git log -1 --format=%b "$commit" | tr -d '[:space:]')" ] ||
    tell "$commit" 'no body says why'
  added=$(git diff-tree --root -r -M --numstat "$commit" -- . "${generated[@]}" |
    awk '$1 ~ /^[0-9]+$/ { sum += $1 } END { print sum + 0 }')
  [ "$added" -lt "$most" ] || tell "$commit" "$added added lines: split it, the most is $((most - 1))"
done
exit "$wrong"
