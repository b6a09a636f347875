#!/usr/bin/env bash
# Compiles what must not compile, and looks for the reason: misuse.sh COMPILER INCLUDE_DIR
#
# A file's first line has the flags, its second a part of what the compiler must say. Without its
# lines that end in `// misuse` it must compile: then it is they that are refused.
set -euo pipefail
folder=$(cd "$(dirname "$0")/misuse" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
for file in "$folder"/*.cpp; do
  read -ra flags < <(sed -n '1s|^// flags: *||p' "$file")
  reason=$(sed -n '2s|^// says: *||p' "$file")
  compile=("$1" -std=c++17 "-I$2" -fsyntax-only "${flags[@]}")
  if "${compile[@]}" "$file" >"$work/log" 2>&1; then
    echo "$file compiles" >&2
    exit 1
  fi
  grep -qF -- "$reason" "$work/log" || { cat "$work/log" >&2; exit 1; }
  grep -v '// misuse$' "$file" >"$work/right.cpp"
  "${compile[@]}" "$work/right.cpp" || { echo "$file does not compile without its misuse" >&2; exit 1; }
  count=$((count + 1))
done
[ "$count" -gt 0 ]
echo "$count kinds of misuse are refused"
