#!/usr/bin/env bash
# Makes the archive of the sources, and the recipes of packaging/ for it, with its checksums.
#
#   tools/recipes.sh FOLDER [BASE]
#
# FOLDER gets libdipc-VERSION.tar.gz, of this tree without what git ignores, and `recipes`. BASE is
# the URL of the folder where the archive is, with a slash at its end; without it the recipes name a
# release of the home.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:?usage: $0 FOLDER [BASE]}"
folder=$(cd "$1" && pwd)
base=${2:-}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
name=libdipc-$version

git rev-parse --git-dir >/dev/null 2>&1 || { echo "recipes: skipped: this tree is not git's"; exit 0; }
commit=$(git rev-parse HEAD)
# An index beside git's own takes the tree; the times of its files are those of the commit.
index=$(mktemp -d)
trap 'rm -rf "$index"' EXIT
tree=$(export GIT_INDEX_FILE=$index/index && git read-tree HEAD && git add -A && git write-tree)
date=$(git show -s --format=%cI HEAD)
archived=$(GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git -c user.name=libdipc -c user.email=libdipc@localhost \
  commit-tree -m archive "$tree")
git archive --format=tar --prefix="$name/" "$archived" | gzip -9n >"$folder/$name.tar.gz"
sha256=$(sha256sum "$folder/$name.tar.gz" | cut -d' ' -f1)
sha512=$(sha512sum "$folder/$name.tar.gz" | cut -d' ' -f1)

rm -rf "$folder/recipes"
mkdir "$folder/recipes"
cp -R packaging/conda packaging/conan packaging/homebrew packaging/vcpkg "$folder/recipes"
cp -R bindings/julia/jll "$folder/recipes/jll"
grep -rlZ . "$folder/recipes" | xargs -0 sed -i \
  -e "s/0\{64\}/$sha256/" -e "s/SHA512 0$/SHA512 $sha512/" -e "s/\"0\{40\}\"/\"$commit\"/"
if [ -n "$base" ]; then
  grep -rlZ . "$folder/recipes" | xargs -0 sed -i "s#https://[^ \"]*/releases/download/v[^/]*/#$base#"
fi
