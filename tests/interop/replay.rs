//! Serves files message by message, as other implementations wrote them. So data that libdipc's
//! server never sends is read too: other padding, old versions, compression, shared dictionaries.

use arrow::array::RecordBatch;
use dipc::arrow::decode::Level;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::Status;
use dipc::proto::Credit;

use crate::common::import;
use crate::files::{File, golden, vectors};
use crate::peer::{Manner, Peer};

fn replayed_equal(files: &[File]) {
    for file in files {
        let (schema, expected) = file.read();
        for (manner, level) in Manner::ALL
            .into_iter()
            .flat_map(|manner| [(manner, Level::Structure), (manner, Level::Full)])
        {
            let what = format!("{}, {manner:?}, {level:?}", file.name);
            let peer = Peer::start(file.messages(), manner);
            let options = GetOptions {
                level: Some(level),
                // The peer counts no credit (rule E5), so the window covers the longest file.
                window: Credit {
                    batches: 1000,
                    bytes: 1 << 30,
                },
                ..Default::default()
            };
            // A new client each time: the peer waits for the end of the client's connection.
            let client = Client::new(ClientOptions::default()).unwrap();
            let mut stream = client
                .get(&[peer.uri()], b"any", &options, None)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let received = stream.schema().unwrap();
            let mut batches: Vec<RecordBatch> = Vec::new();
            let end = loop {
                match stream.next() {
                    Ok(Some(array)) => batches.push(import(array, &received)),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            // Rule A4: compressed bodies are never lent.
            let compressed = ["lz4.arrows", "zstd.arrows"].contains(&file.name.as_str());
            if compressed && manner == Manner::Lent {
                let error = end.expect("compressed memory was taken");
                assert_eq!(error.status(), Status::Protocol, "{what}: {error}");
                assert!(error.text().contains("compressed"), "{what}: {error}");
                continue;
            }
            assert_eq!(end, None, "{what}");
            assert_eq!(batches.len(), expected.len(), "{what}");
            for (number, (one, other)) in batches.iter().zip(&expected).enumerate() {
                assert_eq!(one.schema(), schema, "{what}");
                assert_eq!(one, other, "{what}, batch {number}");
            }
        }
    }
}

/// Rules A2, A4, A6, M2, D1, D3, D4: files of other writers are read like by arrow-rs.
#[test]
fn vectors_are_read_as_written() {
    replayed_equal(&vectors());
}

/// Rules A2, A6, M2, D1, D3, D4: the streams of Arrow's integration tests.
#[test]
fn golden_streams_are_read_as_written() {
    replayed_equal(&golden("streams"));
}
