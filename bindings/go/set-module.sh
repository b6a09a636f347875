#!/usr/bin/env bash
# Gives the Go module another path, where the sources have another home than go.mod says: in go.mod, in
# every import, in the modules of this tree that use it, and in the guide.
#
#   bindings/go/set-module.sh github.com/OWNER/REPOSITORY
set -euo pipefail
cd "$(dirname "$0")/../.."
home=${1:?usage: $0 github.com/OWNER/REPOSITORY}
old=$(sed -n 's/^module //p' bindings/go/go.mod)
new=${home%/}/bindings/go
grep -rlF --include=*.go --include=go.mod --include=*.md --include=*.jl --exclude-dir=target \
  "${old%/bindings/go}" bindings docs examples |
  xargs sed -i "s#${old%/bindings/go}#${new%/bindings/go}#g"
gofmt -w bindings/go bindings/matrix/go examples/flight/go
echo "the Go module is $new"
