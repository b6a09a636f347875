//! The threads of a process that serves. The count is taken in a process of its own, for other
//! tests have threads too.

use std::process::Command;

use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::proto::Credit;
use dipc::server::ServerOptions;

use crate::common;
use crate::common::{batch, export, export_schema, read_all};
use crate::{SHM, SUBJECTS, assert_same, client, eventually, server};

/// Batches of a table that outlasts a turn of the I/O thread, and a window.
const MANY: i64 = 600;

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// "Driver", published tickets: the I/O thread sends them, however many streams are open.
#[test]
fn published_streams_have_no_thread_of_their_own() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "threads::child_publishes", "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "run by published_streams_have_no_thread_of_their_own"]
fn child_publishes() {
    let (server, uri) = server(SHM, ServerOptions::default());
    let exported = (0..MANY).map(|index| export(&batch(index, 1))).collect();
    let published = server.publish(b"t", export_schema(&common::schema()), exported);
    published.map_err(|(error, _)| error).unwrap();
    let client = client();
    let before = threads();
    let options = GetOptions::default();
    let mut streams: Vec<_> = (0..20)
        .map(|_| client.get(&[&uri], b"t", &options, None).unwrap())
        .collect();
    assert_eq!(server.stats().streams_active, 20);
    assert_eq!(threads(), before);
    for stream in &mut streams {
        assert_eq!(read_all(stream).unwrap().len() as i64, MANY);
    }
    assert_eq!(threads(), before);
}

/// Rule E5: a published table goes on with credit, in turns, and beside others; a stream that is left
/// in the middle gives its place free.
#[test]
fn published_streams_go_on_with_credit() {
    for subject in SUBJECTS {
        let (server, uri) = server(subject, ServerOptions::default());
        let batches: Vec<_> = (0..MANY).map(|index| batch(index, 2)).collect();
        let exported = batches.iter().map(export).collect();
        let published = server.publish(b"t", export_schema(&common::schema()), exported);
        published.map_err(|(error, _)| error).unwrap();
        let client = client();
        for window in [1, 5, 1000] {
            let options = GetOptions {
                window: Credit {
                    batches: window,
                    bytes: 1 << 20,
                },
                ..subject.options()
            };
            let get = || client.get(&[&uri], b"t", &options, None).unwrap();
            let (mut left, mut read) = (get(), get());
            left.next().unwrap().unwrap();
            assert_same(&read_all(&mut read).unwrap(), &batches);
            drop(left);
            eventually("both streams are over", || {
                server.stats().streams_active == 0
            });
        }
        assert_eq!(server.stats().streams_served, 6);
    }
}
