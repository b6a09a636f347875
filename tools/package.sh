#!/usr/bin/env bash
# Makes the packages: Debian's, a tarball that may be unpacked anywhere, the Python wheel, and the
# archive of the sources with the recipes of other package managers.
#
#   tools/package.sh [DIRECTORY]        default: build/packages
#
# PROFILE: the cargo profile, default release. TARGET_DIR: where cargo builds, default target.
# WHEELS: the processors that wheels are for, default "x86_64 aarch64".
#
# The files of the wheels are built once more, for glibc 2.28, which PyPI and pip call manylinux_2_28:
# zig (cargo-zigbuild in .tools/venv) links for an older glibc than this machine's, and for another
# processor. Without it there is one wheel, with the files of the other packages, and its tag says
# which glibc they need.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=${1:-build/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd)
profile=${PROFILE:-release}
target=${TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'package: %s\n' "$*"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }

# GENERATOR PREFIX: Debian's library directory depends on the prefix.
pack() {
  quietly cmake -S "$root" -B "$work/$1" "-DDIPC_CARGO_PROFILE=$profile" \
    "-DDIPC_CARGO_TARGET_DIR=$target" "-DDIPC_CARGO_FLAGS=${DIPC_CARGO_FLAGS:---locked}" \
    "-DCMAKE_INSTALL_PREFIX=$2" "-DCPACK_PACKAGING_INSTALL_PREFIX=$3"
  quietly cmake --build "$work/$1"
  (cd "$work/$1" && quietly cpack -G "$1" -B "$work/made")
  find "$work/made" -maxdepth 1 -type f \( -name '*.deb' -o -name '*.tar.gz' \) \
    -exec mv -t "$out" {} +
}

say "building (profile $profile)"
pack DEB /usr /usr
pack TGZ /usr/local /

# TRIPLE TARGET_DIR CARGO ARGUMENTS: a build for glibc 2.28.
tools=$root/.tools/venv/bin
zigbuild() {
  # shellcheck disable=SC2086 # the flags are words
  env CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_DEV_STRIP=symbols "PATH=$tools:$PATH" \
    cargo zigbuild --profile "$profile" --target "$1.2.28" ${DIPC_CARGO_FLAGS:---locked} --target-dir "${@:2}"
}
# PROCESSOR: the library and the command for it, and their wheel. The two get a folder each, as in
# CMakeLists.txt.
wheel() {
  local triple=$1-unknown-linux-gnu folder=$profile
  if [ "$profile" = dev ]; then folder=debug; fi
  say "building for glibc 2.28 on $1 (profile $profile)"
  quietly zigbuild "$triple" "$target/library" --lib
  quietly zigbuild "$triple" "$target" -p libdipc-cli --bin dipc
  DIPC_LIBRARY=$target/library/$triple/$folder/libdipc.so DIPC_COMMAND=$target/$triple/$folder/dipc \
    DIPC_PLATFORM=manylinux_2_28_$1 quietly bindings/python/build-wheel.sh "$out"
}
if [ -x "$tools/cargo-zigbuild" ]; then
  for processor in ${WHEELS:-x86_64 aarch64}; do
    if [ -e "$(rustc --print sysroot)/lib/rustlib/$processor-unknown-linux-gnu" ]; then
      wheel "$processor"
    else
      say "skipped: Rust has no standard library for $processor here, so there is no wheel for it"
    fi
  done
else
  say "skipped: cargo-zigbuild is not in .tools/venv, so the wheel is for this machine's glibc or later"
  DIPC_LIBRARY=$work/DEB/stage/libdipc.so DIPC_COMMAND=$work/DEB/stage/dipc \
    quietly bindings/python/build-wheel.sh "$out"
fi

# What is in the library and in the command: a bill of materials of each (CycloneDX).
if [ -x .tools/bin/cargo-cyclonedx ]; then
  quietly .tools/bin/cargo-cyclonedx cyclonedx --format json --spec-version 1.5 --override-filename sbom \
    --manifest-path crates/cli/Cargo.toml
  version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
  # The place of the tree is nobody's concern.
  sed "s#file://$root#file:///libdipc#g" sbom.json >"$out/libdipc-$version.cdx.json"
  sed "s#file://$root#file:///libdipc#g" crates/cli/sbom.json >"$out/dipc-$version.cdx.json"
  rm sbom.json crates/*/sbom.json
else
  say "skipped: cargo-cyclonedx is not in .tools, so there is no bill of materials"
fi
# The sources, and the recipes of other package managers for them.
quietly tools/recipes.sh "$out"
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS)
for file in "$out"/*; do [ -d "$file" ] || say "${file#"$root"/} ($(du -h "$file" | cut -f1))"; done
