#!/usr/bin/env bash
# The book (docs/) with the references of all languages, into build/docs. A warning is an error, and
# so is a link that leads nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
mdbook=mdbook
[ -x .tools/bin/mdbook ] && mdbook=.tools/bin/mdbook
python=${PYTHON:-$PWD/.tools/venv/bin/python}
log=$(mktemp)
site=$(mktemp -d)
trap 'rm -rf "$log" "$site"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }

rm -rf build/docs
quietly "$mdbook" build docs
if grep -qE 'WARN|ERROR' "$log"; then cat "$log" >&2; exit 1; fi
mkdir -p build/docs/{c,cpp,go,julia,python}
cp tools/reference/reference.css build/docs

# Both from the headers alone.
doxygen docs/Doxyfile
doxygen docs/Doxyfile.cpp

# rustdoc keeps the pages of other crates that were documented before.
rm -rf target/doc
RUSTDOCFLAGS='-D warnings' quietly cargo doc --locked --package libdipc --no-deps --lib --all-features
cp -R target/doc build/docs/rust

go run tools/reference/go.go bindings/go build/docs/go/index.html

# The package is loaded, and so is the library.
quietly cargo build --locked --lib
PYTHON=$python DIPC_LIBRARY=$PWD/target/debug/libdipc.so quietly bindings/python/install.sh "$site"
PYTHONPATH=$site quietly "$python" -m pdoc --docformat restructuredtext --no-show-source \
  --output-directory build/docs/python dipc dipc.duckdb dipc.flight dipc.polars '!dipc._'

if julia=$(bindings/julia/julia.sh 2>"$log"); then
  "$julia" --startup-file=no --project=bindings/julia tools/reference/julia.jl build/docs/julia/index.html
else
  printf 'docs: the reference of Julia is left out: %s\n' "$(cat "$log")" >&2
  printf '%s\n' '<!DOCTYPE html><title>libdipc: Julia</title>' \
    '<p>This book was built without Julia. Julia shows the reference: <code>?Dipc.get</code>.</p>' \
    >build/docs/julia/index.html
fi

python3 tools/check_links.py build/docs
echo "docs: build/docs/index.html"
