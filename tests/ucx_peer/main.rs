//! A UCX peer without libdipc (`peer.h`), with itself: its messages arrive unchanged, so that tests
//! of libdipc can rely on it. Runs with each UCX of the machine.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod peer;
#[path = "../common/sample.rs"]
mod sample;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow::ipc::writer::StreamWriter;

use crate::peer::{Options, Outcome, Peer, Server, peers};

/// A folder for one test's files, emptied.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ucx_peer-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The project's vectors and Arrow's golden streams.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = std::env::var_os("DIPC_GOLDEN")
        .map_or_else(|| root.join("../shared/golden"), PathBuf::from)
        .join("streams");
    if !golden.is_dir() {
        println!(
            "skipped in part: no folder {}; DIPC_GOLDEN names another",
            golden.display()
        );
    }
    let mut files: Vec<_> = [root.join("tests/vectors"), golden]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "arrows" || end == "stream")
        })
        .collect();
    files.sort();
    assert!(files.len() > 30, "vectors are missing");
    files
}

/// Writes a table as `name` and returns the file.
fn write(folder: &Path, name: &str, batches: &[RecordBatch]) -> PathBuf {
    let path = folder.join(name);
    let file = fs::File::create(&path).unwrap();
    let mut writer = StreamWriter::try_new(file, &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// A table of one column, with bodies far larger than UCX sends at once, and with empty bodies.
fn large(folder: &Path) -> PathBuf {
    let batch = |rows: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    };
    write(
        folder,
        "large",
        &[0, 1, 1_000_000, 0, 2_000_000, 3].map(batch),
    )
}

/// A table with so many columns that its metadata is far larger than UCX sends at once.
fn wide(folder: &Path) -> PathBuf {
    let columns = (0..8000).map(|column| {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![column]));
        (format!("column {column}"), values)
    });
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write(folder, "wide", &[batch.clone(), batch.slice(0, 0), batch])
}

/// The configurations of the peer that must interoperate (rule R6).
const WAYS: [Options; 2] = [
    Options {
        error_mode_peer: false,
        minimal: false,
    },
    Options {
        error_mode_peer: true,
        minimal: true,
    },
];

/// Gets `file` and compares it, byte by byte.
fn arrives(server: &Server, options: Options, file: &Path, folder: &Path) -> String {
    let ticket = file.file_name().unwrap().to_str().unwrap();
    let output = folder.join(format!("{ticket}.got"));
    let outcome = server.peer().get(options, server.uris(), ticket, &output);
    let Outcome::Done(text) = outcome else {
        panic!("{ticket}: {outcome:?}")
    };
    let same = fs::read(file).unwrap() == fs::read(&output).unwrap();
    assert!(same, "{ticket} has changed on its way");
    text
}

/// Rules M1 to M6, D1 to D3, R1 to R4: all messages and bodies arrive unchanged and in order.
#[test]
fn every_file_arrives_unchanged() {
    let folder = folder("files");
    let mut files = sample::sampled(files());
    files.push(large(&folder));
    for peer in peers() {
        for options in WAYS {
            let server = Server::start(peer, options, &files);
            for file in &files {
                arrives(&server, options, file, &folder);
            }
        }
    }
}

/// Rule R1: large metadata messages arrive by rendezvous, small ones do not.
#[test]
fn large_metadata_arrives_by_rendezvous() {
    let folder = folder("wide");
    let files = [wide(&folder), large(&folder)];
    for peer in peers() {
        let server = Server::start(peer, WAYS[0], &files);
        let text = arrives(&server, WAYS[0], &files[0], &folder);
        assert_eq!(text, "4 messages, 3 bodies, 4 by rendezvous, 0 lists\n");
        let text = arrives(&server, WAYS[0], &files[1], &folder);
        assert_eq!(text, "7 messages, 6 bodies, 0 by rendezvous, 0 lists\n");
    }
}

/// Rule R2: each connection has its own worker, so that clients do not take each other's messages.
#[test]
fn clients_at_once_do_not_mix() {
    let folder = folder("clients");
    let files = [large(&folder), wide(&folder)];
    for peer in peers() {
        let server = Server::start(peer, WAYS[0], &files);
        std::thread::scope(|scope| {
            for client in 0..4 {
                let (server, file) = (&server, &files[client % 2]);
                let own = folder.join(client.to_string());
                fs::create_dir_all(&own).unwrap();
                scope.spawn(move || arrives(server, WAYS[client / 2], file, &own));
            }
        });
    }
}

/// Rule R5: an unknown ticket is silence on an open connection, and the server goes on serving.
#[test]
fn an_unknown_ticket_is_silence() {
    let folder = folder("unknown");
    let files = [large(&folder)];
    for peer in peers() {
        let server = Server::start(peer, WAYS[0], &files);
        let output = folder.join("unknown.got");
        let options = Options {
            error_mode_peer: true,
            minimal: false,
        };
        // In error mode the client would report the close by the server.
        let outcome = peer.get_within(1, options, server.uris(), "no such table", &output);
        assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
        assert!(!output.exists());
        arrives(&server, options, &files[0], &folder);
    }
}

/// Rule R6: error mode PEER reports a dead server, to a client that waits for an answer.
#[test]
fn a_dead_server_is_reported_in_error_mode_peer() {
    let folder = folder("dead");
    let files = [large(&folder)];
    let options = Options {
        error_mode_peer: true,
        minimal: false,
    };
    for peer in peers() {
        let server = Server::start(peer, options, &files);
        let uris = server.uris().clone();
        let output = folder.join("dead.got");
        let outcome = std::thread::scope(|scope| {
            let client = scope.spawn(|| peer.get(options, &uris, "no such table", &output));
            // Before or after the client connects: in both cases it must not wait for ever.
            drop(server);
            client.join().unwrap()
        });
        let Outcome::Failed(text) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(text.contains("the connection is lost"), "{text}");
    }
}

/// A file that is no stream, or is cut, is refused with its name.
#[test]
fn broken_files_are_refused() {
    let folder = folder("broken");
    let whole = fs::read(large(&folder)).unwrap();
    let cases: [(&str, &[u8], &str); 4] = [
        ("text", b"no stream, but a text", "is no Arrow IPC stream"),
        ("cut", &whole[..whole.len() / 2], "is cut"),
        ("header", &whole[..20], "is cut"),
        ("empty", b"", "does not begin with a schema"),
    ];
    for peer in peers() {
        for (name, bytes, expected) in cases {
            let path = folder.join(name);
            fs::write(&path, bytes).unwrap();
            let text = refused(peer, &path);
            assert!(text.contains(expected) && text.contains(name), "{text}");
        }
    }
}

fn refused(peer: &'static Peer, file: &Path) -> String {
    match peer.serve(WAYS[0], &[file.to_owned()]).wait() {
        Outcome::Failed(text) => text,
        other => panic!("{other:?}"),
    }
}
