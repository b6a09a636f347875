//! `docs/security.md` names a test for each promise and each limit, and options that exist.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The file and the function of each test that is named, as in `tests/a.rs::b`.
fn tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    quoted(text).filter_map(|quoted| {
        let (file, function) = quoted.split_once("::")?;
        (file.ends_with(".rs") || file.ends_with(".py")).then_some((file, function))
    })
}

/// Whether a source has a test of this name.
fn has_test(source: &str, function: &str) -> bool {
    let python = format!("def {function}(");
    if source
        .lines()
        .any(|line| line.trim_start().starts_with(&python))
    {
        return true;
    }
    let ours = format!("fn {function}(");
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        match line {
            "#[test]" => is_test = true,
            // Further attributes.
            _ if line.starts_with("#[") || line.ends_with(")]") => {}
            _ if line.starts_with(&ours) && is_test => return true,
            _ => is_test = false,
        }
    }
    false
}

/// The rows of each table, as cells, with the head of the table.
fn tables(page: &str) -> Vec<Vec<Vec<&str>>> {
    let mut tables: Vec<Vec<Vec<&str>>> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        let Some(row) = line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
        else {
            is_inside = false;
            continue;
        };
        let cells = row.split('|').map(str::trim).collect();
        if is_inside {
            tables.last_mut().unwrap().push(cells);
        } else {
            tables.push(vec![cells]);
            is_inside = true;
        }
    }
    tables
}

/// Promise of docs/security.md: each test that it names exists.
#[test]
fn each_named_test_exists() {
    let page = read("docs/security.md");
    let named: BTreeSet<_> = tests(&page).collect();
    assert!(named.len() > 80, "only {} tests are named", named.len());
    for (file, function) in named {
        assert!(
            has_test(&read(file), function),
            "docs/security.md names {file}::{function}, which is no test"
        );
    }
}

/// Promise of docs/security.md: a test shows each promise and each limit.
#[test]
fn each_row_of_a_promise_names_a_test() {
    let page = read("docs/security.md");
    let mut rows = 0;
    for table in tables(&page) {
        if table[0].last() != Some(&"Test") {
            continue;
        }
        for row in &table[2..] {
            let cell = row.last().unwrap();
            assert_eq!(row.len(), table[0].len(), "{row:?}");
            assert!(tests(cell).next().is_some(), "no test shows {:?}", row[0]);
            rows += 1;
        }
    }
    assert!(rows > 70, "only {rows} rows were found");
}

/// Promise of docs/security.md, "Limits": the options that it names are those of the C API and of
/// the command.
#[test]
fn each_named_option_exists() {
    let page = read("docs/security.md");
    let header = read("include/dipc.h");
    let command: String = ["serve", "get", "put"]
        .map(|name| read(&format!("crates/cli/src/{name}/mod.rs")))
        .concat();
    let mut options = 0;
    for table in tables(&page) {
        let Some(place) = table[0].iter().position(|cell| *cell == "Option") else {
            continue;
        };
        for option in table[2..].iter().flat_map(|row| quoted(row[place])) {
            options += 1;
            let is_there = match option.strip_prefix("--") {
                Some(name) => command.contains(&name.replace('-', "_")),
                None => header.contains(&format!("_options_set_{option}(")),
            };
            assert!(is_there, "there is no option {option}");
        }
    }
    assert!(options > 15, "only {options} options were found");
    for option in ["message_limit_bytes", "put_message_limit_bytes"] {
        assert!(page.contains(&format!("`{option}`")));
        assert!(header.contains(&format!("_options_set_{option}(")));
    }
}

/// What counts as a test.
#[test]
fn a_function_that_is_no_test_is_found_out() {
    let source = "#[test]\n#[ignore]\nfn one() {}\nfn helper() {}\n// #[test]\nfn two() {}\n";
    assert!(has_test(source, "one"));
    assert!(!has_test(source, "helper") && !has_test(source, "two") && !has_test(source, "on"));
    assert!(has_test("    def test_it(server):\n", "test_it"));
    let named: Vec<_> = tests("a `b.rs::c`, `x::y` and `d.py::e`").collect();
    assert_eq!(named, [("b.rs", "c"), ("d.py", "e")]);
}
