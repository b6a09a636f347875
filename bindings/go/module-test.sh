#!/usr/bin/env bash
# Fetches the Go module from a tag, as `go get` does, into a new module outside of this tree, builds a
# program with it, and runs that. Git answers for the module's home with a repository made here, and
# Go's module cache for everything else, so that no network is needed.
#
#   bindings/go/module-test.sh          the environment is that of bindings/go/test.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
command -v git >/dev/null || { echo 'go/module-test.sh: skipped: git is not installed'; exit 0; }
module=$(sed -n 's/^module //p' "$here/go.mod")
# A module in a folder has the folder's path behind the repository's, and before the version in its tag.
home=${module%/bindings/go}
version=v$(pkg-config --modversion dipc)
tag=bindings/go/$version
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

# What a release has, committed and tagged.
mkdir -p "$work/home/bindings"
(cd "$here/.." && tar -c --exclude-vcs go) | tar -xC "$work/home/bindings"
cp "$root/LICENSE" "$work/home"
git=(git -C "$work/home" -c user.name=test -c user.email=test@localhost)
"${git[@]}" init -q
"${git[@]}" add -A
"${git[@]}" commit -qm release
"${git[@]}" tag "$tag"

printf '[url "file://%s"]\n\tinsteadOf = https://%s\n' "$work/home" "$home" >"$work/gitconfig"
cached=$(go env GOMODCACHE)/cache/download
export GIT_CONFIG_GLOBAL=$work/gitconfig GIT_ALLOW_PROTOCOL=file GOMODCACHE=$work/modules
export GOPROXY=file://$cached GONOPROXY=$home GONOSUMDB='*' GOWORK=off GOFLAGS='-mod=mod -trimpath'
unset GOEXPERIMENT

mkdir "$work/program"
cp "$here/examples/requests/main.go" "$work/program"
cd "$work/program"
go mod init example.com/program 2>/dev/null
go get "$module@$version" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
grep -q "$module $version" go.mod || { echo "go/module-test.sh: go.mod has no $module $version" >&2; exit 1; }
go build -o program .
said=$(./program)
[ "$(printf '%s\n' "$said" | tail -1)" = '[0 1 2]' ] || {
  printf 'go/module-test.sh: the program printed\n%s\n' "$said" >&2
  exit 1
}
echo "go get $module@$version: from the tag $tag"
