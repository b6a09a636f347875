//! `docs/protocol.md` has each rule that the code cites, and each rule has a test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The letter and the number of a rule, as in `D3`.
fn rule(word: &str) -> Option<(char, u32)> {
    let letter = word.chars().next().filter(char::is_ascii_uppercase)?;
    let digits = &word[1..];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((letter, digits.parse().ok().filter(|_| is_number)?))
}

/// The rules that `text` cites: "rule D3", "rules M1, E1 and A8", "rules R1 to R6", and the first
/// argument of `ProtocolError::new` and `broken!`.
fn citations(text: &str) -> BTreeSet<(char, u32)> {
    let mut found = BTreeSet::new();
    let markers = ["//", "///", "//!", "*", "#", "\\"];
    let mut words = text
        .split_whitespace()
        .filter(|word| !markers.contains(word))
        .peekable();
    while let Some(word) = words.next() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        if !["rule", "Rule", "rules", "Rules"].contains(&word) {
            continue;
        }
        let mut is_range = false;
        let mut last = None;
        while let Some(next) = words.peek() {
            let bare = next.trim_end_matches(|c: char| !c.is_alphanumeric());
            match (bare, rule(bare)) {
                ("and", _) => {}
                ("to", _) if last.is_some() => is_range = true,
                (_, Some((letter, number))) => {
                    let first = match last {
                        Some((same, first)) if is_range && same == letter => first,
                        _ => number,
                    };
                    found.extend((first..=number).map(|number| (letter, number)));
                    (last, is_range) = (Some((letter, number)), false);
                    if bare.len() < next.len() && !next.ends_with(',') {
                        break;
                    }
                }
                _ => break,
            }
            words.next();
        }
    }
    for call in ["ProtocolError::new(", "broken!("] {
        for call in text.split(call).skip(1) {
            let argument = call.trim_start().strip_prefix('"');
            found.extend(argument.and_then(|text| rule(text.split_once('"')?.0)));
        }
    }
    found
}

/// The source files below `folder`.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if ["rs", "cu", "c", "h", "hpp", "py"].contains(&extension.unwrap_or_default()) {
                found.push(path);
            }
        }
    }
    found
}

/// The rules with a heading in `docs/protocol.md`.
fn published() -> BTreeSet<(char, u32)> {
    let page = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let mut published = BTreeSet::new();
    for heading in page.lines().filter_map(|line| line.strip_prefix("### ")) {
        let named = rule(heading).unwrap_or_else(|| panic!("`### {heading}` names no rule"));
        assert!(published.insert(named), "rule {heading} is there twice");
    }
    published
}

/// The comments and attributes of each test in `source`.
fn introductions(source: &str) -> Vec<String> {
    let mut tests: Vec<_> = source.split("#[test]").collect();
    tests.pop();
    let introduction = |before: &str| {
        let lines = before.trim_end().lines().rev();
        let ours = lines.take_while(|line| line.trim().starts_with(['/', '#']));
        let mut lines: Vec<_> = ours.collect();
        lines.reverse();
        lines.join("\n")
    };
    tests.into_iter().map(introduction).collect()
}

/// Promise of docs/protocol.md: each rule that a source cites has its heading there, once.
#[test]
fn each_cited_rule_is_published() {
    let published = published();
    let mut cited = BTreeMap::new();
    for path in ["src", "tests", "include"].into_iter().flat_map(sources) {
        for rule in citations(&fs::read_to_string(&path).unwrap()) {
            cited.entry(rule).or_insert_with(|| path.clone());
        }
    }
    assert!(cited.len() > 30, "only {cited:?} were found");
    for ((letter, number), path) in cited {
        assert!(
            published.contains(&(letter, number)),
            "{} cites rule {letter}{number}, which docs/protocol.md does not have",
            path.display()
        );
    }
}

/// Promise of docs/protocol.md: the comment of some test names each rule.
#[test]
fn each_published_rule_has_a_test() {
    let mut tested = BTreeSet::new();
    for path in ["src", "tests"].into_iter().flat_map(sources) {
        for introduction in introductions(&fs::read_to_string(&path).unwrap()) {
            tested.extend(citations(&introduction));
        }
    }
    let missing: Vec<_> = published().difference(&tested).copied().collect();
    assert!(missing.is_empty(), "no test names these rules: {missing:?}");
}

/// Promise of the protocol's machines: a test without a transport shows each rule that is decided
/// there.
#[test]
fn each_rule_of_the_machines_has_a_pure_test() {
    // Checksums and TLS are the transport's; middleware is the server's.
    let elsewhere = ["E8", "Q9", "Q13"].map(|name| rule(name).unwrap());
    let mut tested = BTreeSet::from(elsewhere);
    for path in sources("src/proto/tests") {
        for introduction in introductions(&fs::read_to_string(&path).unwrap()) {
            tested.extend(citations(&introduction));
        }
    }
    let of_machines = |(letter, _): &&(char, u32)| "MDFEQ".contains(*letter);
    let missing: Vec<_> = (published().difference(&tested).filter(of_machines).copied()).collect();
    assert!(
        missing.is_empty(),
        "no pure test names these rules: {missing:?}"
    );
}

/// The forms in which rules are cited.
#[test]
fn citations_are_found_in_every_form() {
    for (text, rules) in [
        ("// Rule D3: the body", "D3"),
        ("lists (rules U3 and R4).", "U3 R4"),
        ("/// Rules M1, E1 to\n/// E3: A8 is another", "M1 E1 E2 E3"),
        ("(rule F4). A7 follows", "F4"),
        ("ProtocolError::new(\n    \"D6\",\n    text)", "D6"),
        ("broken!(\"D6\", \"{text}\")", "D6"),
        ("rules of the house; D3", ""),
    ] {
        let expected = rules.split_whitespace().map(|name| rule(name).unwrap());
        assert_eq!(citations(text), expected.collect(), "{text}");
    }
}
