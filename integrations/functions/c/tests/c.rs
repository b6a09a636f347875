//! The library as C has it: what it exports and needs, and the tests in `tests/c`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn root() -> PathBuf {
    package().join("../../..")
}

/// Where `cargo build` puts `libdipc_functions.so`, which `cargo test` alone does not make.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test
        .ancestors()
        .nth(2)
        .unwrap()
        .join("libdipc_functions.so");
    assert!(
        library.exists(),
        "cargo build --package libdipc-functions-c makes {library:?}"
    );
    library
}

fn version() -> String {
    let part = |name| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap();
    format!("{}.{}", part("MAJOR"), part("MINOR"))
}

/// What a program says, which must succeed.
fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}:\n{text}\n{errors}");
    text
}

/// Promise of the library: it exports the functions of its header and nothing else.
#[test]
fn the_library_exports_what_its_header_declares() {
    let names = run(
        "nm",
        &["-D".as_ref(), "--defined-only".as_ref(), library().as_ref()],
    );
    let exported: BTreeSet<_> = names
        .lines()
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    let header = fs::read_to_string(package().join("../include/dipc_functions.h")).unwrap();
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| line.starts_with("dipc_status ") || line.starts_with("void "))
        .map(|line| line.split_once('(').unwrap().0.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(exported, declared);
}

/// Promise of the library: libdipc.so of the same minor version is the one libdipc of the process.
#[test]
fn the_library_needs_libdipc_of_its_version() {
    let text = run("readelf", &["-d".as_ref(), library().as_ref()]);
    let names = |kind| -> Vec<_> {
        text.lines()
            .filter(|line| line.contains(kind))
            .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
            .collect()
    };
    let version = version();
    assert_eq!(
        names("(SONAME)"),
        [format!("libdipc_functions.so.{version}")]
    );
    let needed = names("(NEEDED)");
    let libdipc = format!("libdipc.so.{version}");
    assert!(needed.contains(&libdipc.as_str()), "{needed:?}");
}

/// A folder with both libraries, by every name.
fn libraries(folder: &Path) {
    let libdipc = Path::new(env!("DIPC_LIBRARY_DIR")).join("libdipc.so");
    for (file, name) in [(libdipc, "libdipc.so"), (library(), "libdipc_functions.so")] {
        let file = fs::canonicalize(file).unwrap();
        symlink(&file, folder.join(name)).unwrap();
        symlink(&file, folder.join(format!("{name}.{}", version()))).unwrap();
    }
}

/// A key, and what its owner signs: `filter.wasm`.
fn sign(folder: &Path, modules: &Path) {
    let key = SigningKey::from_bytes(&[7; 32]);
    let hash = Sha256::digest(fs::read(modules.join("filter.wasm")).unwrap());
    let signed = [b"libdipc function module 1\0".as_slice(), &hash].concat();
    fs::write(folder.join("key"), key.verifying_key().as_bytes()).unwrap();
    fs::write(folder.join("signature"), key.sign(&signed).to_bytes()).unwrap();
}

/// Modules that do what no compiler makes well: one that runs for ever, and one that takes memory
/// until it gets none.
fn write(folder: &Path) {
    let grows = "(br_if $on (i32.ne (i32.const -1) (memory.grow (i32.const 1)))) (br $out)";
    for (name, body) in [("spins", "(br $on)"), ("grows", grows)] {
        let text = format!(
            r#"(module
              (memory (export "memory") 2)
              (func (export "dipc_abi_version") (result i32) (i32.const 1))
              (func (export "dipc_alloc") (param i32 i32) (result i32) (i32.const 65536))
              (func (export "dipc_free") (param i32 i32 i32))
              (func (export "dipc_init") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 0))
              (func (export "dipc_process") (param i32) (result i32) (i32.const 0))
              (func (export "dipc_finish") (result i32)
                (block $out (loop $on {body}))
                (unreachable)))"#
        );
        let bytes = wat::parse_str(text).unwrap();
        fs::write(folder.join(format!("{name}.wasm")), bytes).unwrap();
    }
}

/// Compiles the program `tests/c/NAME.c` into a folder with [`libraries`], and runs it there.
fn run_program(name: &str, modules: &Path, folder: &Path) {
    let program = folder.join(name);
    let include = [
        root().join("include"),
        root().join("tests/c"),
        package().join("../include"),
    ];
    let sources = [
        package().join("tests/c").join(name).with_extension("c"),
        root().join("tests/c/table.c"),
    ];
    let flags = [
        "-std=c11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-Wstrict-prototypes",
        "-D_POSIX_C_SOURCE=200809L",
        "-pthread",
        "-ldipc_functions",
        "-ldipc",
        "-ldl",
    ];
    let mut arguments: Vec<&OsStr> = sources.iter().map(AsRef::as_ref).collect();
    for path in &include {
        arguments.extend(["-I".as_ref(), path.as_os_str()]);
    }
    arguments.extend([
        "-o".as_ref(),
        program.as_os_str(),
        "-L".as_ref(),
        folder.as_os_str(),
    ]);
    arguments.extend(flags.map(OsStr::new));
    run("cc", &arguments);
    let mut path = OsString::from("LD_LIBRARY_PATH=");
    path.push(folder);
    let words = [
        &path,
        program.as_os_str(),
        modules.as_ref(),
        folder.as_ref(),
    ];
    run("env", &words);
}

/// Runs a program of `tests/c` with the modules of tools/build-functions.sh, in the folder that
/// `DIPC_FUNCTIONS_MODULES` names.
fn run_with_modules(name: &str) {
    let Some(modules) = std::env::var_os("DIPC_FUNCTIONS_MODULES") else {
        return println!("skipped: DIPC_FUNCTIONS_MODULES names no folder of modules");
    };
    let folder = tempfile::tempdir().unwrap();
    let (modules, folder) = (Path::new(&modules), folder.path());
    libraries(folder);
    sign(folder, modules);
    write(folder);
    run_program(name, modules, folder);
}

/// Promises of `dipc_functions.h`, in C.
#[test]
fn programs_in_c_send_and_run_functions() {
    run_with_modules("test_functions");
}

/// Promise of dipc_functions_policy_set_limit(): each bound ends its own request, and says so.
#[test]
fn bounds_that_c_sets_end_their_requests() {
    run_with_modules("test_bounds");
}
