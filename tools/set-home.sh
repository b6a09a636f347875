#!/usr/bin/env bash
# Gives the sources another home than Cargo.toml says: in the packages, in the path of the Go module
# and every import of it, and in the documentation.
#
#   tools/set-home.sh github.com/OWNER/REPOSITORY
set -euo pipefail
cd "$(dirname "$0")/.."
home=${1:?usage: $0 github.com/OWNER/REPOSITORY}
home=${home#https://}
home=${home%/}
old=$(sed -n 's#^homepage = "https://\(.*\)"$#\1#p' Cargo.toml)
git grep -lzF "$old" | xargs -0 sed -i "s#$old#$home#g"
gofmt -w bindings/go bindings/matrix/go examples/flight/go
echo "the home is https://$home"
