//! The reference's behaviour (rules R1 to R6), by a peer that shares none of our code, in both
//! directions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use dipc::cancel::Cancel;
use dipc::client::{Client, GetOptions, PutOptions};
use dipc::device::DeviceKind;
use dipc::error::Status;
use dipc::log::{LogRecord, Sink};
use dipc::proto::Role;
use dipc::server::ServerOptions;
use dipc::transport::BodyPolicy;

use crate::common::sample::sampled;
use crate::common::{self, batch, export, export_schema, read_all};
use crate::peer::{Options, Outcome, Peer, Server, peers};
use crate::{LIBRARY, Other, client, eventually, role, serving, until_told, works};

/// Every way to run the peer that must interoperate (rule R6).
pub const WAYS: [Options; 2] = [
    Options {
        error_mode_peer: false,
        minimal: false,
    },
    Options {
        error_mode_peer: true,
        minimal: true,
    },
];

/// The peer that uses the same UCX as this process.
pub fn peer() -> Option<&'static Peer> {
    if !works() {
        return None;
    }
    let wheel = std::env::var_os(LIBRARY).is_some();
    let found = peers().iter().find(|peer| peer.is_from_wheel() == wheel);
    if found.is_none() {
        println!("skipped: no headers for the UCX that is used here");
    }
    found
}

pub fn folder(name: &str) -> PathBuf {
    let name = format!("ucx-{name}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The project's vectors, Arrow's golden streams, and a large table.
fn files(folder: &Path) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = std::env::var_os("DIPC_GOLDEN")
        .map_or_else(|| root.join("../shared/golden"), PathBuf::from)
        .join("streams");
    if !golden.is_dir() {
        println!("skipped in part: no folder {}", golden.display());
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
    let mut files = sampled(files);
    files.push(large(folder));
    files
}

/// Bodies far larger than what UCX sends at once, and empty ones.
fn large(folder: &Path) -> PathBuf {
    let batch = |rows: i64| {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    };
    let path = folder.join("large");
    let batches = [0, 1, 1_000_000, 0, 2_000_000, 3].map(batch);
    let mut writer =
        StreamWriter::try_new(File::create(&path).unwrap(), &batches[0].schema()).unwrap();
    for batch in &batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn read(path: &Path) -> (SchemaRef, Vec<RecordBatch>) {
    let reader = StreamReader::try_new(File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batches =
        reader.map(|batch| batch.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    (schema, batches.collect())
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Our server with the reference's client: every table arrives.
#[test]
fn a_server_of_ours_serves_the_peer() {
    let Some(peer) = peer() else { return };
    let folder = folder("serving");
    let (server, _) = serving();
    let mut tables = Vec::new();
    for file in files(&folder) {
        let (schema, batches) = read(&file);
        let arrays = batches.iter().map(export).collect();
        server
            .publish(name(&file).as_bytes(), export_schema(&schema), arrays)
            .map_err(|(error, _)| error)
            .unwrap();
        tables.push((file, schema, batches));
    }
    let uris = [Role::Metadata, Role::Data].map(|role| server.location(role).unwrap());
    for options in WAYS {
        for (file, schema, batches) in &tables {
            let output = folder.join("got");
            let outcome = peer.get(options, &uris, name(file), &output);
            assert!(
                matches!(outcome, Outcome::Done(_)),
                "{}: {outcome:?}",
                name(file)
            );
            let (got_schema, got) = read(&output);
            assert_eq!(&got_schema, schema, "{}", name(file));
            assert!(&got == batches, "{} has changed on its way", name(file));
        }
    }
    eventually("the peer's connections are gone", || {
        server.stats().connections == 0
    });
}

/// Rule E5: more than is queued at once, in bodies of many buffers over shared memory, where the
/// peer fetches nothing by itself and the sends end in whatever call lets UCX go on.
#[test]
fn a_server_of_ours_serves_more_than_is_queued_at_once() {
    let Some(peer) = peer() else { return };
    let folder = folder("more");
    let mut options = crate::options();
    for (key, value) in [("ucx.TLS", "posix,cma,tcp"), ("ucx.error_handling", "none")] {
        options.link.settings.set(key, value).unwrap();
    }
    let server = crate::ServerHandle::new(options).unwrap();
    server.listen("ucx://127.0.0.1:0").unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..500_000));
    let columns = ["a", "b", "c", "d"].map(|name| (name, Arc::clone(&column)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let batches = vec![batch; 12];
    let arrays = batches.iter().map(export).collect();
    server
        .publish(b"more", export_schema(&batches[0].schema()), arrays)
        .map_err(|(error, _)| error)
        .unwrap();
    let uris = [Role::Metadata, Role::Data].map(|role| server.location(role).unwrap());
    let output = folder.join("got");
    let outcome = peer.get(WAYS[0], &uris, "more", &output);
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert!(read(&output).1 == batches, "it has changed on its way");
}

/// Rules D4, U2, F1: a baseline peer reads what a server of ours that lends always lends it, with
/// the key in the URI, and gives it back; from every other server it gets all bodies packed.
#[test]
fn a_server_of_ours_lends_to_the_peer() {
    let Some(peer) = peer() else { return };
    let folder = folder("lending");
    let table = large(&folder);
    let (schema, batches) = read(&table);
    for (body, lists) in [(BodyPolicy::Lent, 4), (BodyPolicy::Auto, 0)] {
        let server = crate::ServerHandle::new(ServerOptions {
            body,
            ..crate::options()
        })
        .unwrap();
        server.listen("ucx://127.0.0.1:0").unwrap();
        let arrays = batches.iter().map(export).collect();
        server
            .publish(b"t", export_schema(&schema), arrays)
            .map_err(|(error, _)| error)
            .unwrap();
        let uris = [Role::Metadata, Role::Data].map(|role| server.location(role).unwrap());
        let output = folder.join("got");
        // The other way has not the feature that reading needs.
        let outcome = peer.get(WAYS[0], &uris, "t", &output);
        let Outcome::Done(text) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(text.ends_with(&format!(", {lists} lists\n")), "{text}");
        let (_, got) = read(&output);
        assert!(got == batches, "it has changed on its way");
        // Empty bodies are sent, and lend nothing. What is sent is copied at most once: into one
        // piece, where UCX has only tcp.
        let (copied, sent) = (server.stats().bytes_copied, server.stats().bytes_sent);
        assert!(if lists > 0 {
            copied > 0
        } else {
            copied <= sent
        });
        eventually("everything is given back", || {
            server.stats().lent_outstanding == 0
        });
    }
}

/// Our client with the reference's server: every table arrives, over its two connections.
#[test]
fn a_client_of_ours_gets_from_the_peer() {
    let Some(peer) = peer() else { return };
    let folder = folder("getting");
    let files = files(&folder);
    for options in WAYS {
        let server = Server::start(peer, options, &files);
        let uris: Vec<_> = server.uris().iter().map(String::as_str).collect();
        let client = client();
        for file in &files {
            let mut stream = client
                .get(&uris, name(file).as_bytes(), &GetOptions::default(), None)
                .unwrap_or_else(|error| panic!("{}: {error}", name(file)));
            let got =
                read_all(&mut stream).unwrap_or_else(|error| panic!("{}: {error}", name(file)));
            assert!(got == read(file).1, "{} has changed on its way", name(file));
        }
    }
}

/// Rule R5: silence for an unknown ticket ends with a timeout of ours, and a text that says what
/// silence usually means.
#[test]
fn silence_ends_with_a_timeout() {
    let Some(peer) = peer() else { return };
    let folder = folder("silence");
    let server = Server::start(peer, WAYS[0], &[large(&folder)]);
    let uris: Vec<_> = server.uris().iter().map(String::as_str).collect();
    let options = GetOptions {
        stall_timeout: Some(Duration::from_millis(200)),
        ..GetOptions::default()
    };
    let error = client()
        .get(&uris, b"no such table", &options, None)
        .map(drop)
        .unwrap_err();
    assert_eq!(error.status(), Status::Timeout, "{error}");
    assert!(error.text().contains("ticket"), "{error}");
}

/// Rule E1: a bare address may be a baseline server's, which UCX ends at the first active message
/// of an id that it does not know. A client that asks there, and gives up, does it no harm.
#[test]
fn a_bare_address_does_no_harm_to_the_peer() {
    let Some(peer) = peer() else { return };
    let folder = folder("bare");
    let table = large(&folder);
    let server = Server::start(peer, WAYS[0], std::slice::from_ref(&table));
    let uris: Vec<_> = server.uris().iter().map(String::as_str).collect();
    let bare = uris[0].split('?').next().unwrap();
    let impatient = GetOptions {
        stall_timeout: Some(Duration::from_millis(300)),
        ..GetOptions::default()
    };
    for _ in 0..3 {
        let client = client();
        let asked = client.get(&[bare], name(&table).as_bytes(), &impatient, None);
        let error = asked.map(drop).unwrap_err();
        assert_eq!(error.status(), Status::Timeout, "{error}");
        let cancel = Cancel::new().unwrap();
        let asked = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                client.get(
                    &[bare],
                    name(&table).as_bytes(),
                    &GetOptions::default(),
                    Some(&cancel),
                )
            });
            thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            asked.join().unwrap()
        });
        assert_eq!(asked.map(drop).unwrap_err().status(), Status::Cancelled);
        put_in_vain(&client, bare);
        let checked = GetOptions {
            checksums: true,
            ..GetOptions::default()
        };
        let asked = client.get(&[bare], name(&table).as_bytes(), &checked, None);
        let error = asked.map(drop).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        assert!(error.text().contains("`dipc=1`"), "{error}");
    }
    let mut stream = client()
        .get(&uris, name(&table).as_bytes(), &GetOptions::default(), None)
        .unwrap();
    assert!(read_all(&mut stream).unwrap() == read(&table).1);
}

/// Asks to put a table, and gives up.
fn put_in_vain(client: &Client, uri: &str) {
    let options = PutOptions {
        connect_timeout: Duration::from_millis(300),
        ..PutOptions::default()
    };
    let described = (&export_schema(&common::schema()), DeviceKind::CPU.0);
    let asked = client.put(&[uri], b"t", described, &options, None);
    let error = asked.map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Timeout, "{error}");
}

/// Writes each event to the standard error output.
struct Printed;

impl Sink for Printed {
    fn log(&self, record: &LogRecord) {
        eprintln!("{}", record.text);
    }
}

/// A baseline client that has what it asked for, and leaves, is nothing to be warned of.
#[test]
fn nobody_is_warned_of_a_peer_that_leaves() {
    const TEST: &str = "reference::nobody_is_warned_of_a_peer_that_leaves";
    if role().is_some() {
        dipc::log::set(tracing_core::Level::WARN, Some(Printed))
            .map_err(|(error, _)| error)
            .unwrap();
        let (server, _) = serving();
        let arrays = (0..3).map(|n| export(&batch(n, 100_000))).collect();
        let published = server.publish(b"t", export_schema(&common::schema()), arrays);
        published.map_err(|(error, _)| error).unwrap();
        for role in [Role::Metadata, Role::Data] {
            println!("at={}", server.location(role).unwrap());
        }
        until_told();
        drop(server);
        let silenced = dipc::log::set(tracing_core::Level::WARN, None::<Printed>);
        silenced.map_err(|(error, _)| error).unwrap();
        return;
    }
    let Some(peer) = peer() else { return };
    let folder = folder("leaving");
    let mut server = Other::start(TEST, "server", "-");
    let uris = [server.line("at="), server.line("at=")];
    for options in WAYS {
        for _ in 0..3 {
            let outcome = peer.get(options, &uris, "t", &folder.join("got"));
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        }
    }
    let warned = server.ends();
    // An old UCX is worth a warning, peers that leave are not.
    let mut warnings = warned.lines();
    assert!(
        warnings.all(|line| line.contains("ucx.library")),
        "{warned}"
    );
}

/// Rule U3: such a server has two URIs. With one of them, or with the two swapped, the wait for the
/// first body ends as well as that for the schema, and the text names the cause.
#[test]
fn one_uri_of_two_and_swapped_ones_are_said() {
    let Some(peer) = peer() else { return };
    let folder = folder("roles");
    let file = large(&folder);
    let server = Server::start(peer, WAYS[0], std::slice::from_ref(&file));
    let [metadata, data] = server.uris().each_ref().map(String::as_str);
    let options = GetOptions {
        stall_timeout: Some(Duration::from_millis(500)),
        ..GetOptions::default()
    };
    for (uris, cause) in [
        (&[metadata][..], "give both of its URIs"),
        (&[data], "give both of its URIs"),
        (&[data, metadata], "swapped"),
    ] {
        let got = client().get(uris, name(&file).as_bytes(), &options, None);
        let error = got
            .and_then(|mut stream| read_all(&mut stream).map(drop))
            .unwrap_err();
        assert_eq!(error.status(), Status::Timeout, "{error}");
        assert!(error.text().contains(cause), "{error}");
    }
}
