//! Every export is declared in its header, guarded and named by the rules of the C API, and
//! `libdipc.so` exports nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{Expr, Item, ItemFn, Stmt};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The exported functions of `src/ffi`, each with its file.
fn exports() -> Vec<(String, ItemFn)> {
    [DIPC, MACHINES].into_iter().flat_map(exports_of).collect()
}

/// A folder of exports, and the header that declares them.
type Part = (&'static str, &'static str);

const DIPC: Part = ("src/ffi", "include/dipc.h");
const MACHINES: Part = ("src/ffi/machines", "include/dipc_machines.h");

fn exports_of((folder, _): Part) -> Vec<(String, ItemFn)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let source = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for item in source.items {
            if let Item::Fn(function) = item
                && function.attrs.iter().any(|attribute| {
                    let text = quote(&attribute.meta);
                    text.contains("no_mangle") || text.contains("export_name")
                })
            {
                found.push((file.clone(), function));
            }
        }
    }
    found
}

/// Names in an attribute, enough to find `no_mangle` inside `unsafe(..)`.
fn quote(meta: &syn::Meta) -> String {
    match meta {
        syn::Meta::List(list) => format!("{:?} {}", list.path.get_ident(), list.tokens),
        other => format!("{:?}", other.path().get_ident()),
    }
}

/// Whether a statement is `export!(..)`, or a call of a guard, possibly inside `unsafe { }`.
fn is_guarded(statement: &Stmt) -> bool {
    fn is_call(expression: &Expr) -> bool {
        match expression {
            Expr::Call(call) => match call.func.as_ref() {
                Expr::Path(path) => ["guard_free", "guard_value"]
                    .iter()
                    .any(|guard| path.path.is_ident(guard)),
                _ => false,
            },
            Expr::Macro(call) => call.mac.path.is_ident("export"),
            Expr::Unsafe(block) => match block.block.stmts.as_slice() {
                [Stmt::Expr(inner, _)] => is_call(inner),
                _ => false,
            },
            _ => false,
        }
    }
    matches!(statement, Stmt::Expr(expression, _) if is_call(expression))
}

/// Promise of CONTRIBUTING: every export runs inside the guard.
#[test]
fn every_export_is_guarded() {
    let exports = exports();
    assert!(
        exports.len() > 10,
        "only {} exports were found",
        exports.len()
    );
    for (file, function) in &exports {
        let name = &function.sig.ident;
        assert!(
            name.to_string().starts_with("dipc_"),
            "{file}: {name} is not named dipc_*"
        );
        let abi = function.sig.abi.as_ref().and_then(|abi| abi.name.as_ref());
        assert_eq!(
            abi.map(syn::LitStr::value).as_deref(),
            Some("C"),
            "{file}: {name}"
        );
        let [statement] = function.block.stmts.as_slice() else {
            panic!("{file}: {name} works outside its guard")
        };
        assert!(is_guarded(statement), "{file}: {name} has no guard");
    }
}

/// Promise of `dipc.h`: the error is the last argument; a function without it returns a plain value
/// or nothing.
#[test]
fn errors_come_last() {
    for (file, function) in exports() {
        let name = &function.sig.ident;
        let arguments: Vec<_> = function
            .sig
            .inputs
            .iter()
            .map(|argument| match argument {
                syn::FnArg::Typed(typed) => match typed.pat.as_ref() {
                    syn::Pat::Ident(ident) => ident.ident.to_string(),
                    _ => panic!("{file}: {name} has an argument without a name"),
                },
                syn::FnArg::Receiver(_) => panic!("{file}: {name} takes self"),
            })
            .collect();
        if let Some(place) = arguments.iter().position(|argument| argument == "error") {
            assert_eq!(
                place,
                arguments.len() - 1,
                "{file}: {name}: error is not last"
            );
        }
        let returns_status = matches!(&function.sig.output, syn::ReturnType::Type(_, kind)
            if matches!(kind.as_ref(), syn::Type::Path(path) if path.path.is_ident("dipc_status")));
        let is_getter = name == "dipc_error_code";
        let has_error = arguments.iter().any(|argument| argument == "error");
        let frees_or_reads_errors = file == "error.rs";
        assert!(
            returns_status == has_error || is_getter || frees_or_reads_errors,
            "{file}: {name}: a dipc_status and an error argument go together"
        );
    }
}

/// The `libdipc.so` that cargo has built for this test.
fn shared_library() -> PathBuf {
    let deps = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    // Cargo puts it beside the tests; `cargo build` links it one level up too.
    let here = deps.join("libdipc.so");
    if here.exists() {
        here
    } else {
        deps.parent().unwrap().join("libdipc.so")
    }
}

fn run(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Promise of the headers: `libdipc.so` exports exactly their functions.
#[test]
fn the_library_exports_the_headers_and_nothing_else() {
    let symbols: BTreeSet<String> = run("nm", &["-D", "--defined-only"], &shared_library())
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|symbol| symbol.split('@').next().unwrap().to_owned())
        .collect();
    let declared: BTreeSet<String> = exports()
        .into_iter()
        .map(|(_, function)| function.sig.ident.to_string())
        .collect();
    assert_eq!(symbols, declared);
    for part in [DIPC, MACHINES] {
        let header = fs::read_to_string(root().join(part.1)).unwrap();
        for (_, function) in exports_of(part) {
            let name = function.sig.ident.to_string();
            assert!(
                header.contains(&format!("{name}(")),
                "{} does not declare {name}",
                part.1
            );
        }
    }
}

/// The C tests call every function of the headers with NULL.
#[test]
fn the_c_tests_give_null_to_every_function() {
    let test = fs::read_to_string(root().join("tests/c/test_null.c")).unwrap();
    for (_, function) in exports() {
        let name = function.sig.ident.to_string();
        assert!(
            test.contains(&format!("{name}(")),
            "tests/c/test_null.c does not call {name}"
        );
    }
}

/// Promise of README and of the guide: the C tests build and run their C examples.
#[test]
fn the_documents_show_the_examples_that_are_built() {
    for (page, example) in [
        ("README.md", "readme_example.c"),
        ("docs/guide/c.md", "readme_example.c"),
        ("docs/guide/c.md", "guide_serve.c"),
        ("docs/guide/c.md", "guide_put.c"),
        ("docs/guide/c.md", "guide_take.c"),
    ] {
        let source = fs::read_to_string(root().join("tests/c").join(example)).unwrap();
        let text = fs::read_to_string(root().join(page)).unwrap();
        let code = source.split_once("*/\n").unwrap().1.trim();
        assert!(
            text.contains(code),
            "{page} does not show tests/c/{example} as it is"
        );
    }
}

/// Promise of docs/flight.md: the C calls that it names exist.
#[test]
fn the_flight_page_names_calls_that_exist() {
    let headers = [DIPC, MACHINES].map(|part| fs::read_to_string(root().join(part.1)).unwrap());
    let headers = headers.concat();
    let page = fs::read_to_string(root().join("docs/flight.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let names: Vec<_> = quoted
        .filter(|text| text.to_lowercase().starts_with("dipc_"))
        .collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let is_there = match name.strip_suffix('*') {
            Some(beginning) => headers.contains(beginning),
            None => headers
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .any(|word| word == name),
        };
        assert!(is_there, "no header has {name}");
    }
}

/// Promise of docs/troubleshooting.md: its texts exist in the code.
#[test]
fn the_troubleshooting_page_quotes_texts_that_exist() {
    let mut sources = String::new();
    let mut folders = vec![root().join("src"), root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                // A text may continue on the next line of the source.
                let text = fs::read_to_string(path).unwrap();
                sources.extend(text.split("\\\n").map(str::trim_start));
            }
        }
    }
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let quoted = page.lines().filter_map(|line| line.strip_prefix("### "));
    for text in quoted.map(|line| line.trim_matches('`')) {
        assert!(sources.contains(text), "no text of the code has: {text}");
    }
}

/// Packaging promises: the SONAME contains the minor version, and the library is never unmapped.
#[test]
fn the_library_has_its_soname_and_is_never_unmapped() {
    let dynamic = run("readelf", &["-d", "-W"], &shared_library());
    let version = env!("CARGO_PKG_VERSION");
    let (minor, _) = version.rsplit_once('.').unwrap();
    assert!(
        dynamic.contains(&format!("[libdipc.so.{minor}]")),
        "{dynamic}"
    );
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(
        dynamic.contains("BIND_NOW") || dynamic.contains("NOW"),
        "{dynamic}"
    );
    assert!(
        !dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"),
        "{dynamic}"
    );
}

/// Error texts are for users and cite no rules; comments do.
#[test]
fn no_text_cites_a_rule() {
    let mut folders = vec![root().join("src")];
    let mut texts = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let source = fs::read_to_string(&path).unwrap();
                let code = source.split("#[cfg(test)]").next().unwrap();
                for line in code.lines() {
                    // Skips comments.
                    let line = line.split("// ").next().unwrap().trim_start();
                    if line.starts_with("//") {
                        continue;
                    }
                    texts += line.matches('"').count();
                    let cites = line.match_indices("rule ").any(|(at, word)| {
                        let mut name = line[at + word.len()..].chars();
                        name.next().is_some_and(|c| c.is_ascii_uppercase())
                            && name.next().is_some_and(|c| c.is_ascii_digit())
                    });
                    assert!(!cites, "{}: {line}", path.display());
                }
            }
        }
    }
    assert!(texts > 1000, "{texts}");
}
