//! What cannot be done, each with its exit status and a text that says why.

use std::path::Path;

use crate::support::*;

/// Exit status 2: the command was called wrongly, and says how it is called.
#[test]
fn wrong_usage_is_status_2() {
    let at = address();
    for (args, expected) in [
        (&["get", "shm:@nobody"][..], "TICKET is missing"),
        (
            &["get", "shm:@nobody", "t", "--output", "t.csv"],
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
            &[
                "serve", "--listen", &at, "--tpch", "nation", "--device", "as-sent",
            ],
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

/// Promise of `--device`: a GPU without a driver is an error that names the library, before a server is
/// looked for or a table read.
#[test]
fn a_gpu_needs_a_driver() {
    // SAFETY: what the loader finds runs its initialisers, as in every CUDA program.
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
    // As they are sent they are on the host: there is nothing to want a driver for.
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

/// Exit status 1: files that cannot be served, before any address is taken.
#[test]
fn files_that_cannot_be_served_are_named() {
    let folder = tempfile::tempdir().unwrap();
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
        (folder.path().to_str().unwrap().to_owned(), "is a directory"),
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
    assert!(told.contains("both be the ticket \"nation\""), "{told}");
}

/// Exit status 1: what a client asks for and cannot have.
#[test]
fn fetches_that_cannot_be_are_explained() {
    let server = Server::start(&["--tpch", "nation"]);
    let told = failure(1, &["get", &server.uri, "nations"]);
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

/// A file that fails only while it is served is the client's error, with the file's name; the
/// server serves on.
#[test]
fn a_file_that_has_gone_is_the_streams_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(10));
    let server = Server::start(&[&path, "--tpch", "nation"]);
    std::fs::remove_file(&path).unwrap();
    let told = failure(1, &["get", &server.uri, "t"]);
    assert!(
        told.contains(&path) && told.contains("No such file"),
        "{told}"
    );
    assert!(run(&["get", &server.uri, "nation"]).status.success());
}

/// Promise of `info`: every transport is told, with the reason where it does not work.
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
    // A machine without UCX is told what is missing, and the rest works on.
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
