#!/usr/bin/env bash
# Tests the Go package against an installed libdipc: vet, then the tests with the race detector and
# with cgo's pointer checks, then the matrix peer and the examples build, and `go get` takes the module
# from a tag (module-test.sh).
#
#   bindings/go/test.sh [go test arguments]
#
# The library is the one under DIPC_PREFIX, or the one that pkg-config knows; without either it is
# built from this tree. DIPC_TEST_SCHEME=tcp tests over another transport than shm. DIPC_GO_RACE=0
# and DIPC_GO_CGOCHECK=0 leave one run out. Arguments replace the runs by one of go test with them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

have() { command -v "$1" >/dev/null 2>&1; }
# From 1.21 on Go fetches the version that go.mod asks for by itself.
found=$(have go && go env GOVERSION | sed 's/^go//' || echo none)
if [ "$found" = none ] || [ "$(printf '1.21\n%s\n' "$found" | sort -V | head -1)" != 1.21 ]; then
  echo "Go tests: left out, Go 1.25 or later is needed and $found is installed"
  exit 0
fi

if [ -z "${DIPC_PREFIX:-}" ] && ! pkg-config --exists dipc; then
  DIPC_PREFIX=$root/target/go-prefix
  build=$root/target/go-build
  cmake -S "$root" -B "$build" -DDIPC_CARGO_PROFILE=dev "-DDIPC_CARGO_TARGET_DIR=$root/target" >/dev/null
  cmake --build "$build" >/dev/null
  cmake --install "$build" --prefix "$DIPC_PREFIX" >/dev/null
fi
if [ -n "${DIPC_PREFIX:-}" ]; then
  export PKG_CONFIG_PATH=$DIPC_PREFIX/lib/pkgconfig:$DIPC_PREFIX/lib64/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
fi
# The library may lie where the loader does not look.
library=$(pkg-config --variable=libdir dipc)
export LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CGO_ENABLED=1
# Go's build cache knows neither pkg-config's answers nor the headers: it would give back a package
# that was built with an earlier library. A macro of both sets such a package apart.
header=$(pkg-config --variable=includedir dipc)/dipc.h
tested=$({ echo "$library"; cat "$header"; } | sha256sum | cut -c 1-16)
export CGO_CPPFLAGS=-DDIPC_TESTED=$tested

cd "$here"
if [ $# -gt 0 ]; then
  exec go test "$@"
fi
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { printf 'go/test.sh: run gofmt -w on\n%s\n' "$unformatted" >&2; exit 1; }
go vet ./...
if have staticcheck; then staticcheck ./...; else echo 'go/test.sh: staticcheck is left out, for it is not installed'; fi
[ "${DIPC_GO_RACE:-1}" = 0 ] || go test -race ./...
# Checks each pointer that is stored into the memory of C.
[ "${DIPC_GO_CGOCHECK:-1}" = 0 ] || GOEXPERIMENT=cgocheck2 go test ./...
for module in bindings/matrix/go examples/flight/go; do
  (cd "$root/$module" && go vet ./... && go build -o /dev/null .)
done
"$here/module-test.sh"
