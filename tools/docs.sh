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
python3 tools/check_links.py build/docs
echo "docs: build/docs/index.html"
