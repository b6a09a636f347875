//! The headers of `include` are cbindgen's output for `src/ffi`, and compile as C and C++. So does
//! that of `integrations/functions/c`, which is no part of this workspace but of its C API.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A generated header: its name, its folder, its configuration, and the folder of its source.
struct Header {
    name: &'static str,
    folder: &'static str,
    config: &'static str,
    source: &'static str,
}

const HEADERS: [Header; 3] = [
    Header {
        name: "dipc.h",
        folder: "include",
        config: "cbindgen.toml",
        source: "src/ffi",
    },
    Header {
        name: "dipc_machines.h",
        folder: "include",
        config: "cbindgen.machines.toml",
        source: "src/ffi/machines",
    },
    Header {
        name: "dipc_functions.h",
        folder: "integrations/functions/include",
        config: "integrations/functions/c/cbindgen.toml",
        source: FUNCTIONS,
    },
];

const FUNCTIONS: &str = "integrations/functions/c/src";

impl Header {
    fn path(&self) -> PathBuf {
        root().join(self.folder).join(self.name)
    }

    /// The header of the current source.
    fn generated(&self) -> String {
        let config = cbindgen::Config::from_file(root().join(self.config)).unwrap();
        let mut builder = cbindgen::Builder::new().with_config(config);
        let mut sources: Vec<_> = fs::read_dir(root().join(self.source))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            // The `mod` lines of the first two would add every file twice. The third has functions
            // of another library.
            .filter(|path| {
                !["mod.rs", "lib.rs", "sys.rs"]
                    .iter()
                    .any(|name| path.ends_with(name))
            })
            .collect();
        sources.sort();
        // Basic types come first, so that the header reads top-down.
        let order = [
            "status",
            "error",
            "library",
            "transport",
            "foreign",
            "log",
            "cancel",
        ]
        .map(|name| format!("{name}.rs"));
        sources.sort_by_key(|path| {
            order
                .iter()
                .position(|name| path.ends_with(name))
                .unwrap_or(order.len())
        });
        for source in sources {
            builder = builder.with_src(source);
        }
        let mut text = Vec::new();
        builder.generate().unwrap().write(&mut text);
        without_safety(&String::from_utf8(text).unwrap())
    }
}

/// Removes the `# Safety` sections, which are for Rust.
fn without_safety(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut skipping = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed == "* # Safety" {
            skipping = true;
            while lines.last().is_some_and(|last| last.trim() == "*") {
                lines.pop();
            }
        }
        if trimmed == "*/" {
            skipping = false;
        }
        if !skipping {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

/// Promise of CONTRIBUTING: the committed headers are the generated ones. `DIPC_BLESS=1` rewrites
/// them.
#[test]
fn the_committed_headers_are_the_generated_ones() {
    for header in HEADERS {
        let name = header.name;
        let generated = header.generated();
        if std::env::var_os("DIPC_BLESS").is_some() {
            fs::write(header.path(), &generated).unwrap();
        }
        let committed = fs::read_to_string(header.path()).unwrap_or_default();
        let difference = committed
            .lines()
            .zip(generated.lines())
            .enumerate()
            .find(|(_, (old, new))| old != new);
        if let Some((line, (old, new))) = difference {
            panic!(
                "{name} is not what {} gives; run `DIPC_BLESS=1 cargo test --test header`\n\
                 line {}\ncommitted: {old}\ngenerated: {new}",
                header.source,
                line + 1
            );
        }
        assert_eq!(
            committed.len(),
            generated.len(),
            "{name} has another length"
        );
    }
}

/// Promise of `dipc.h`: every function has one documentation, with each parameter and the result.
#[test]
fn every_function_is_documented_once() {
    let mut functions = std::collections::HashSet::new();
    let text = HEADERS.map(|header| header.generated()).concat();
    for piece in text.split("/**").skip(1) {
        let Some((doc, rest)) = piece.split_once("*/") else {
            continue;
        };
        let declaration = rest.split(';').next().unwrap_or_default().trim();
        let Some((head, tail)) = declaration.split_once('(') else {
            continue;
        };
        let name = head.rsplit([' ', '*']).next().unwrap_or_default();
        if declaration.contains("typedef") || !name.starts_with("dipc_") {
            continue;
        }
        assert!(
            functions.insert(name.to_owned()),
            "{name} is declared twice"
        );
        let arguments = tail.rsplit_once(')').unwrap().0;
        for argument in arguments.split(',').filter(|argument| *argument != "void") {
            let argument = argument.trim().rsplit([' ', '*']).next().unwrap();
            let documented = doc.contains(&format!("@param {argument} "));
            assert!(documented, "{name}: {argument} is not documented");
        }
        assert_eq!(
            doc.contains("@return"),
            !head.starts_with("void "),
            "{name}: @return"
        );
    }
    assert!(functions.len() > 100, "only {functions:?} were found");
}

/// Runs a compiler over `source`, with every warning an error.
fn compiles(compiler: &str, arguments: &[&str], extension: &str, source: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("probe.{extension}"));
    fs::write(&file, source).unwrap();
    let output = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
        .args(HEADERS.map(|header| format!("-I{}", root().join(header.folder).display())))
        .arg(&file)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}:\n{text}");
}

/// Promise of the headers: each compiles alone, included twice, as C11 and C++17, and beside another
/// header with Arrow's structs.
#[test]
fn the_headers_compile_alone_and_twice() {
    let alone = "#include \"dipc.h\"\n";
    let twice = "#include \"dipc.h\"\n#include \"dipc.h\"\n";
    let beside = "#include <stdint.h>\n\
                  #define ARROW_C_DATA_INTERFACE\n\
                  struct ArrowSchema { const char *format; };\n\
                  struct ArrowArray { int64_t length; };\n\
                  #include \"dipc.h\"\n";
    for source in [alone, twice, beside] {
        for header in HEADERS {
            let source = source.replace("dipc.h", header.name);
            compiles("cc", &["-std=c11", "-Wstrict-prototypes"], "c", &source);
            compiles("c++", &["-std=c++17"], "cpp", &source);
        }
    }
}

/// Promise of `dipc.h`: Arrow's structs have the library's layout.
#[test]
fn arrow_structs_have_the_same_layout() {
    let source = "#include \"dipc.h\"\n\
        _Static_assert(sizeof(struct ArrowSchema) == 72, \"ArrowSchema\");\n\
        _Static_assert(sizeof(struct ArrowArray) == 80, \"ArrowArray\");\n\
        _Static_assert(sizeof(struct ArrowDeviceArray) == 128, \"ArrowDeviceArray\");\n\
        _Static_assert(offsetof(struct ArrowDeviceArray, sync_event) == 96, \"sync_event\");\n\
        _Static_assert(sizeof(struct ArrowArrayStream) == 40, \"ArrowArrayStream\");\n\
        _Static_assert(sizeof(struct ArrowDeviceArrayStream) == 48, \"ArrowDeviceArrayStream\");\n";
    compiles("cc", &["-std=c11"], "c", source);
}

/// Promise of `sys.rs` of `integrations/functions/c`: its functions and numbers are those of `dipc.h`.
/// A compiler of C sees both declarations of each.
#[test]
fn declarations_of_libdipc_are_those_of_its_header() {
    let source = fs::read_to_string(root().join(FUNCTIONS).join("sys.rs")).unwrap();
    let (rest, block) = source.split_once("unsafe extern \"C\" {\n").unwrap();
    let block = block.strip_suffix("\n}\n").unwrap();
    let exports = block
        .replace(
            "    pub fn ",
            "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn ",
        )
        .replace("dipc_status;", "dipc_status {}")
        .replace("i32;", "i32 {}")
        .replace("usize;", "usize {}")
        .replace("c_char;", "c_char {}")
        .replace("bool;", "bool {}")
        .replace("u64;", "u64 {}")
        .replace(");", ") {}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sys.rs");
    fs::write(&file, exports).unwrap();
    let config = cbindgen::Config {
        header: None,
        ..cbindgen::Config::from_file(root().join("integrations/functions/c/cbindgen.toml"))
            .unwrap()
    };
    let builder = cbindgen::Builder::new().with_config(config).with_src(&file);
    let mut declarations = Vec::new();
    builder.generate().unwrap().write(&mut declarations);
    let declarations = String::from_utf8(declarations).unwrap();
    let count = declarations.matches(");").count();
    assert_eq!(count, block.matches("pub fn ").count(), "{declarations}");

    let mut probe = declarations;
    for line in rest.lines().filter(|line| line.starts_with("pub const ")) {
        let (name, value) = line["pub const ".len()..].split_once(':').unwrap();
        let value = value.split_once("= ").unwrap().1.trim_end_matches(';');
        let value = value.replace("u64::MAX", "UINT64_MAX");
        probe += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    for (name, size) in [("ArrowDeviceArray", 128), ("ArrowDeviceArrayStream", 48)] {
        probe += &format!("_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");\n");
    }
    compiles("cc", &["-std=c11"], "c", &probe);
}
