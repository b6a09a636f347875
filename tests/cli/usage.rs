//! Errors of usage, with their exit status and text.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::support::*;

/// Exit status 2: a wrong command line, with a text that shows the right one.
#[test]
fn wrong_usage_is_status_2() {
    let at = address();
    for (args, expected) in [
        (&["get", "shm:@nobody"][..], "TICKET is missing"),
        (
            &["get", "shm:@nobody", "t", "--output", "t.txt"],
            ".parquet",
        ),
        (
            &["get", "shm:@nobody", "t", "--timeout", "soon"],
            "is not a",
        ),
        (
            &["get", "shm:@nobody", "t", "--head", "1", "--json"],
            "cannot be used with",
        ),
        (&["serve", "--listen", &at], "nothing to serve"),
        (&["serve", "t.parquet"], "--listen"),
        (
            &["serve", "--listen", &at, "--tpch", "nations"],
            "possible values",
        ),
        (
            &["serve", "--listen", &at, "--tpch", "nation", "--scale", "0"],
            "above 0",
        ),
        (
            &["serve", "--listen", &at, "=t.parquet"],
            "is not NAME=FILE",
        ),
        (
            &["get", "shm:@nobody", "t", "--device", "cuda:x"],
            "cuda:N or as-sent",
        ),
        (
            &["get", "grpc://127.0.0.1:1", "t", "--device", "cuda:0"],
            "come to the host",
        ),
        (
            &["serve", "--listen", &at, NATION, "--device", "as-sent"],
            "--device cuda:N",
        ),
        (&["fetch"], "unrecognized subcommand"),
    ] {
        let told = failure(2, args);
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(
        text(&run(&["--version"]).stdout).trim(),
        concat!("dipc ", env!("CARGO_PKG_VERSION"))
    );
}

/// Promise of `--device`: a GPU without a driver is an error that names the library, before
/// connecting or reading.
#[test]
fn a_gpu_needs_a_driver() {
    // SAFETY: the loaded library runs its initialisers, as in every CUDA program.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    if !driver.is_null() {
        eprintln!("skipped: this machine has a CUDA driver");
        return;
    }
    let at = address();
    for args in [
        &[
            "get",
            "shm:@nobody",
            "t",
            "--device",
            "cuda:0",
            "--verify",
            "/nonexistent",
        ][..],
        &[
            "serve",
            "--listen",
            &at,
            "/nonexistent",
            "--device",
            "cuda:0",
        ],
    ] {
        let told = failure(1, args);
        assert!(told.contains("libcuda.so.1"), "{told}");
        assert!(told.contains("arrays on cuda:0 are wanted"), "{told}");
    }
    // As sent they are on the host, so no driver is needed.
    let server = Server::start(&["--tpch", "nation", "--scale", "0.01"]);
    for device in ["host", "as-sent"] {
        let report = json(&[
            "get",
            &server.uri,
            "nation",
            "--json",
            "--device",
            device,
            "--verify",
            "tpch:nation:0.01",
        ]);
        assert_eq!(report["device"], "host");
        assert_eq!(report["bytes_staged"], 0);
        assert_eq!(report["bytes_copied_on_device"], 0);
    }
}

/// Exit status 1: files that cannot be served, before the server listens.
#[test]
fn files_that_cannot_be_served_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = path_in(&folder, name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let cut = {
        let path = path_in(&folder, "cut.arrow");
        write_arrow(Path::new(&path), &table(1000));
        let bytes = std::fs::read(&path).unwrap();
        file("cut.arrow", &bytes[..bytes.len() / 2])
    };
    let at = address();
    for (path, expected) in [
        (file("table.csv", b"a,b\n1,2\n"), "text (CSV or JSON?)"),
        (file("nothing.parquet", b""), "is empty"),
        (path_in(&folder, "missing.parquet"), "No such file"),
        (
            empty.path().to_str().unwrap().to_owned(),
            "is a directory without",
        ),
        (cut, "cannot be read"),
    ] {
        let told = failure(1, &["serve", "--listen", &at, &path]);
        assert!(told.contains(expected) && told.contains(&path), "{told}");
    }
    let told = failure(
        1,
        &[
            "serve", "--listen", &at, "--tpch", "nation", "--tpch", "nation",
        ],
    );
    assert!(told.contains("tpch:nation:1 is given twice"), "{told}");
}

/// Exit status 1: requests that cannot succeed.
#[test]
fn fetches_that_cannot_be_are_explained() {
    let server = Server::start(&[NATION]);
    let told = failure(1, &["get", &server.uri, "nations"]);
    assert!(told.contains("`dipc ls URI` lists its tickets"), "{told}");
    assert!(told.contains("nations"), "{told}");
    let nobody = address();
    let told = failure(1, &["get", &nobody, "nation"]);
    assert!(told.contains(nobody.trim_start_matches("shm:")), "{told}");
    let told = failure(1, &["get", "gopher://somewhere", "nation"]);
    assert!(told.contains("gopher"), "{told}");
    failure(1, &["get", "not a uri", "nation"]);
    let told = failure(
        1,
        &["get", &server.uri, "nation", "--verify", "/nonexistent"],
    );
    assert!(told.contains("cannot open /nonexistent"), "{told}");
    let told = failure(
        1,
        &[
            "get",
            &server.uri,
            "nation",
            "--output",
            "/nonexistent/t.arrow",
        ],
    );
    assert!(told.contains("cannot write in /nonexistent"), "{told}");
}

/// A file that fails only during a stream is the client's error, which names the ticket and not the
/// server's path; the server serves on.
#[test]
fn a_file_that_has_gone_is_the_streams_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(10));
    let server = Server::start(&[&path, NATION]);
    std::fs::remove_file(&path).unwrap();
    let told = failure(1, &["get", &server.uri, "t"]);
    assert!(
        told.contains("\"t\"") && told.contains("No such file") && !told.contains(&path),
        "{told}"
    );
    assert!(run(&["get", &server.uri, "nation"]).status.success());
}

/// Promise of `info`: every transport is listed, with a reason if it does not work.
#[test]
fn info_says_what_works_and_why_not() {
    let info = json(&["info", "--json"]);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    let transports = info["transports"].as_array().unwrap();
    let named = |name: &str| transports.iter().find(|part| part["name"] == name).unwrap();
    assert_eq!(named("shm")["available"], true);
    assert_eq!(named("tcp")["available"], true);
    if named("ucx")["available"] == true {
        let details = &named("ucx")["details"];
        assert!(details.to_string().contains("1."), "{details}");
    } else {
        let reason = named("ucx")["reason"].as_str().unwrap();
        assert!(reason.contains("libucp"), "{reason}");
    }
    // Without UCX the missing part is named, and the rest works.
    let output = dipc()
        .args(["info", "--json"])
        .env("DIPC_UCX_LIBRARY", "/nowhere/libucp.so.0")
        .output()
        .unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let transports = info["transports"].as_array().unwrap();
    let ucx = transports
        .iter()
        .find(|part| part["name"] == "ucx")
        .unwrap();
    assert_eq!(ucx["available"], false);
    let reason = ucx["reason"].as_str().unwrap();
    assert!(reason.contains("/nowhere/libucp.so.0"), "{reason}");
    let shown = text(&run(&["info"]).stdout);
    assert!(shown.contains("transport shm  works"), "{shown}");
    assert!(shown.contains("device    cpu  works"), "{shown}");
}

/// Promise of the help: a number or time that must not be 0 is refused, with the least value in the
/// text; the help explains every other 0.
#[test]
fn zeros_are_refused_or_mean_something() {
    let at = address();
    let serve = ["serve", "--listen", &at, NATION];
    for (option, least) in [
        ("--max-streams", "the least is 1"),
        ("--max-providers", "the least is 1"),
        ("--batch-rows", "the least is 1"),
        ("--scale", "above 0"),
        ("--max-message", "the least is 64K"),
    ] {
        let told = failure(2, &[&serve[..], &[option, "0"]].concat());
        assert!(told.contains(option) && told.contains(least), "{told}");
    }
    let get = ["get", &at, "nation"];
    for (option, least) in [
        ("--timeout", "the least is 1us"),
        ("--connections", "1..=64"),
        ("--max-message", "the least is 64K"),
    ] {
        for zero in ["0", "0s", "0.0ms", "1e-20"] {
            if option == "--timeout" || zero == "0" {
                let told = failure(2, &[&get[..], &[option, zero]].concat());
                assert!(told.contains(option), "{told}");
                assert!(told.contains(least) || zero == "1e-20", "{told}");
            }
        }
    }
    let zeros = ["--spin", "0", "--drain", "0", "--max-memory", "0"];
    let server = Server::start(&[&[NATION], &zeros[..]].concat());
    for zeros in [
        &["--head", "0"][..],
        &["--spin", "0", "--max-message", "64K"],
    ] {
        let output = run(&[&["get", &server.uri, "nation"], zeros].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let serve = text(&run(&["serve", "--help"]).stdout);
    let get = text(&run(&["get", "--help"]).stdout);
    for (help, options) in [
        (serve, &["--spin", "--drain", "--max-memory"][..]),
        (get, &["--spin", "--head"]),
    ] {
        for option in options {
            let at = help.find(option).unwrap();
            let rest = &help[at..];
            let end = rest[2..]
                .find("\n      --")
                .map_or(rest.len(), |end| end + 2);
            assert!(rest[..end].contains("0: "), "{option}");
        }
    }
}

/// Promise of the help: `--head` and `--json` conflict, and the help of both says so.
#[test]
fn a_conflict_is_in_the_help() {
    let help = text(&run(&["get", "--help"]).stdout);
    assert!(
        help.contains("not with --json") && help.contains("not with --head"),
        "{help}"
    );
}

/// Promise of `serve`: an address that is given twice is an error, and no `ready` precedes it.
#[test]
fn an_address_given_twice_is_said() {
    let at = address();
    for second in [at.clone(), format!("{at}?free_data=5")] {
        let args = ["serve", "--listen", &at, "--listen", &second, NATION];
        let output = run(&args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(
            told.contains("twice") || told.contains("are one address"),
            "{told}"
        );
        assert_eq!(text(&output.stdout), "");
    }
    // An unusable address is an error before any `ready`.
    let server = Server::start(&[NATION]);
    let args = ["serve", "--listen", &at, "--listen", &server.uri, NATION];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
}

/// Promise of `serve`: a ready server can be reached. Too few descriptors are an error at once.
#[test]
fn too_few_descriptors_are_said_at_the_start() {
    let (mut refused, mut ready) = (0, 0);
    for any in ["shm:@", "tcp://127.0.0.1:0"] {
        for limit in (8..40).step_by(8) {
            let place = if any == "shm:@" {
                address()
            } else {
                any.to_owned()
            };
            let mut child = std::process::Command::new("sh")
                .args(["-c", r#"ulimit -n "$0"; exec "$@""#])
                .arg(limit.to_string())
                .arg(env!("CARGO_BIN_EXE_dipc"))
                .args(["serve", "--listen", &place, NATION])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let stdout = child.stdout.as_mut().unwrap();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            if let Some(uri) = line.trim_end().strip_prefix("ready ") {
                ready += 1;
                let output = run(&["get", uri, "nation", "--timeout", "60s"]);
                assert!(output.status.success(), "{limit}: {}", text(&output.stderr));
                signal(&child, rustix::process::Signal::TERM);
                child.wait().unwrap();
            } else {
                refused += 1;
                let output = child.wait_with_output().unwrap();
                let told = text(&output.stderr);
                assert_eq!(
                    (output.status.code(), line.as_str()),
                    (Some(1), ""),
                    "{told}"
                );
                assert!(told.contains("ulimit -n"), "{limit}: {told}");
            }
        }
    }
    assert!(refused > 0 && ready > 0, "{refused} {ready}");
}

/// Promise of `serve`: a file that cannot be sent, or is cut, is refused at the start.
#[test]
fn files_that_cannot_be_sent_are_refused_at_the_start() {
    use arrow::array::{ArrayRef, Int8Array, ListArray, RecordBatch, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use std::sync::Arc;

    let folder = tempfile::tempdir().unwrap();
    let nested = |depth: usize, in_lists: bool| {
        let mut array: ArrayRef = Arc::new(Int8Array::from(vec![1]));
        for _ in 1..depth {
            let field = Arc::new(Field::new("f", array.data_type().clone(), true));
            array = match in_lists {
                true => Arc::new(ListArray::new(
                    field,
                    OffsetBuffer::from_lengths([1]),
                    array,
                    None,
                )),
                false => Arc::new(StructArray::from(vec![(field, array)])),
            };
        }
        RecordBatch::try_from_iter([("f", array)]).unwrap()
    };
    let refused = |path: &str, said: &str| {
        let output = run(&["serve", "--listen", &address(), path]);
        let told = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(1), ""),
            "{told}"
        );
        assert!(told.contains(said) && told.contains(path), "{told}");
    };
    let path = path_in(&folder, "t");
    for in_lists in [true, false] {
        for write in [write_stream, write_arrow, write_parquet] {
            write(Path::new(&path), &nested(60, in_lists));
            let server = Server::start(&[&path]);
            let report = json(&["get", &server.uri, "t", "--json", "--verify", &path]);
            assert_eq!(report["verified"]["equal"], true);
            for depth in [61, 64] {
                write(Path::new(&path), &nested(depth, in_lists));
                refused(&path, "fields nest deeper than 60 levels");
            }
        }
    }
    write_stream(Path::new(&path), &table(1000));
    let whole = std::fs::read(&path).unwrap();
    for cut in [whole.len() - 20, whole.len() / 2] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        refused(&path, "cut off");
    }
    std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    refused(&path, "4 bytes follow");
}

/// Promise of `--arena`: its errors name the option or limit that causes them, and no other.
#[test]
fn a_full_arena_names_its_limit() {
    let table = ["--tpch", "lineitem", "--scale", "0.01", "--arena"];
    let at = address();
    let serve = [&["serve", "--listen", &at], &table[..]].concat();
    let told = failure(1, &[&serve[..], &["--max-memory", "1M"]].concat());
    assert!(told.contains("raise it, or leave out --arena"), "{told}");
    assert!(
        told.contains("--max-memory") && !told.contains("release"),
        "{told}"
    );
    let limited = std::process::Command::new("sh")
        .args([
            "-c",
            r#"ulimit -f 100; exec "$0" "$@""#,
            env!("CARGO_BIN_EXE_dipc"),
        ])
        .args(&serve)
        .output()
        .unwrap();
    let told = text(&limited.stderr);
    assert!(
        told.contains("ulimit -f") && !told.contains("--max-memory"),
        "{told}"
    );
}

/// An address of Flight where libdipc's is meant, and the reverse, is told from a wrong one.
#[test]
fn addresses_of_the_wrong_kind_are_named() {
    for (option, address, expected) in [
        ("--flight", "shm:@x", "addresses of libdipc go to --listen"),
        (
            "--flight",
            "tcp://127.0.0.1:0",
            "addresses of libdipc go to --listen",
        ),
        ("--flight", "grpc://127.0.0.1:0", "HOST:PORT (127.0.0.1:0)"),
        (
            "--listen",
            "grpc://127.0.0.1:0",
            "give HOST:PORT to --flight",
        ),
    ] {
        let told = failure(1, &["serve", option, address, NATION]);
        assert!(told.contains(expected), "{told}");
    }
}

/// Promise of the packages: each subcommand has a manual page, and three shells complete the
/// command.
#[test]
fn manual_pages_and_completions_are_the_commands_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder_text = folder.path().to_str().unwrap();
    assert!(run(&["documents", folder_text]).status.success());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let own = [
        "serve", "get", "put", "ls", "describe", "top", "bench", "info",
    ];
    let page = read("man1/dipc.1");
    for name in own {
        assert!(page.contains(&format!("dipc\\-{name}(1)")), "{name}");
        assert!(read(&format!("man1/dipc-{name}.1")).contains("NAME"));
    }
    assert!(read("man1/dipc-get.1").contains("\\-\\-head"));
    for shell in ["dipc.bash", "_dipc", "dipc.fish"] {
        let completions = read(&format!("completions/{shell}"));
        assert!(completions.contains("describe"), "{shell}");
    }
    // A packager's mistake is said.
    let told = failure(1, &["documents", "/proc/nowhere"]);
    assert!(told.contains("/proc/nowhere"), "{told}");
}
