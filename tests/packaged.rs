//! `Cargo.toml` is the one place of the version, the home and the contact. What cannot read them
//! there repeats them, and these tests compare.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs;
use std::path::Path;

fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A value of `[workspace.package]`.
fn package(key: &str) -> String {
    let cargo = text("Cargo.toml");
    let section = cargo.split("[workspace.package]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let value = section
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key} = ")));
    let value = value.unwrap_or_else(|| panic!("[workspace.package] has no {key}"));
    value.trim_matches(['[', ']', '"']).to_owned()
}

/// Each file has each of its lines: two spaces stand before a line, and no space before a file.
fn has_lines(expected: &str) {
    let mut lines = String::new();
    let mut file = "";
    for line in expected.lines().filter(|line| !line.is_empty()) {
        let Some(line) = line.strip_prefix("  ") else {
            file = line;
            lines = text(file);
            continue;
        };
        assert!(
            lines.lines().any(|found| found.trim() == line),
            "{file} has no line {line}"
        );
    }
}

/// Promise: what repeats the version, the home and the contact of the workspace has the same ones.
#[test]
fn packages_are_of_the_workspace() {
    let (version, home, contact) = (package("version"), package("homepage"), package("authors"));
    assert_eq!(package("repository"), home);
    let archive = format!("{home}/releases/download/v{version}/libdipc-{version}.tar.gz");
    let address = home.strip_prefix("https://").unwrap();
    let (name, email) = contact.split_once(" <").unwrap();
    let email = email.strip_suffix('>').unwrap();
    let minor = version.rsplit_once('.').unwrap().0;
    has_lines(&format!(
        r#"
Cargo.toml
  libdipc = {{ path = ".", version = "={version}" }}
  ucx1-sys = {{ path = "crates/ucx1-sys", version = "={version}", package = "libdipc-ucx-sys" }}
SECURITY.md
  <{home}/security/advisories/new>. Only the maintainers read it. Do not
  | {minor}.x | yes |
bindings/go/go.mod
  module {address}/bindings/go
bindings/julia/Project.toml
  authors = ["{contact}"]
  version = "{version}"
bindings/julia/jll/build_tarballs.jl
  version = v"{version}"
  GitSource(get(ENV, "LIBDIPC_SOURCE", "{home}.git"),
bindings/python/pyproject.toml
  authors = [{{ name = "{name}", email = "{email}" }}]
  Homepage = "{home}"
cmake/consumer/CMakeLists.txt
  find_package(dipc {minor} CONFIG REQUIRED)
docs/guide/go.md
  go get {address}/bindings/go@v{version}
docs/security.md
  <{home}/security/advisories/new>. `SECURITY.md` of the repository says
packaging/conan/conandata.yml
  "{version}":
  url: "{archive}"
packaging/conan/conanfile.py
  homepage = "{home}"
packaging/conda/recipe.yaml
  version: "{version}"
  url: {home}/releases/download/v${{{{ version }}}}/libdipc-${{{{ version }}}}.tar.gz
  homepage: {home}
packaging/homebrew/libdipc.rb
  homepage "{home}"
  url "{archive}"
packaging/vcpkg/portfile.cmake
  URLS "{home}/releases/download/v${{VERSION}}/libdipc-${{VERSION}}.tar.gz"
packaging/vcpkg/vcpkg.json
  "version": "{version}",
  "homepage": "{home}",
"#
    ));
    for (file, before) in [("CHANGELOG.md", "## "), ("README.md", "Version ")] {
        let text = text(file);
        let line = text.lines().find(|line| line.starts_with(before));
        assert!(
            line.is_some_and(|line| line.contains(&version)),
            "{file}: {line:?}"
        );
    }
}
