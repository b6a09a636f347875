#!/usr/bin/env bash
# The book (docs/) and the C reference (include/*.h), into build/docs. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
mdbook=mdbook
[ -x .tools/bin/mdbook ] && mdbook=.tools/bin/mdbook
rm -rf build/docs
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$mdbook" build docs >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
if grep -qE 'WARN|ERROR' "$log"; then cat "$log" >&2; exit 1; fi
mkdir -p build/docs/c
doxygen docs/Doxyfile
# Links between pages lead somewhere.
broken=0
while IFS=: read -r page link; do
  target=$(dirname "$page")/${link%%#*}
  case $link in http*|'#'*|mailto*) continue ;; esac
  [ -e "$target" ] || { printf 'docs: %s links to %s, which is not there\n' "$page" "$link" >&2; broken=1; }
done < <(grep -roE 'href="[^"]+"' build/docs --include='*.html' --exclude-dir=c | sed -E 's/href="([^"]*)"/\1/')
[ "$broken" = 0 ]
echo "docs: build/docs/index.html"
