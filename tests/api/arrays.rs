//! Tables as arrays: their metadata, their place, and messages from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array as _, RecordBatch};
use arrow::ipc::writer::StreamWriter;
use dipc::ipc::{Body, Decoder, Header};
use dipc::{
    Arena, Batches, Client, DeviceKind, Error, Provider, PutOptions, Request, Result, Role, Server,
    Status, Target, Uri,
};

use crate::{batch, schema, table};

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Batches of which the first two have metadata.
fn annotated() -> Vec<(RecordBatch, Vec<(String, String)>)> {
    let metadata = [
        vec![pair("k", "1"), pair("k", "2")],
        vec![pair("", "x")],
        Vec::new(),
    ];
    table(3).into_iter().zip(metadata).collect()
}

fn batches() -> Batches {
    Batches::with_metadata(schema(), annotated().into_iter().map(Ok::<_, Error>))
}

/// Promise of `Batches::with_metadata` and `Reader::into_batches`: each batch keeps its custom
/// metadata, also where a server sends on the table of another, and where an arena has it.
#[test]
fn batches_keep_their_metadata_on_the_way() {
    let (first, second) = (Server::new().unwrap(), Server::new().unwrap());
    let client = Client::new().unwrap();
    let arena = Arena::host().unwrap();
    let moved = batches().moved_into(&arena).unwrap();
    assert_eq!(first.load("t", moved).unwrap(), 3);
    let uri = first.listen("tcp://127.0.0.1:0").unwrap();
    let relayed = client.get(&uri, "t").unwrap().into_batches();
    second.load("t", relayed).unwrap();
    let uri = second.listen("tcp://127.0.0.1:0").unwrap();
    let mut reader = client.get(&uri, "t").unwrap();
    assert_eq!(reader.device(), DeviceKind::CPU);
    for (batch, metadata) in annotated() {
        let array = reader.next_array().unwrap().unwrap();
        assert_eq!(array.metadata(), metadata);
        assert_eq!(reader.batch_metadata(), metadata);
        assert_eq!((array.num_rows(), array.device()), (1000, DeviceKind::CPU));
        array.wait().unwrap();
        assert_eq!(array.into_batch().unwrap(), batch);
    }
    assert!(reader.next_array().unwrap().is_none());
    assert!(reader.next_batch().unwrap().is_none());
}

/// Promise of `Batches::moved_into`: a table in an arena is lent over shm where it lies.
#[test]
fn tables_in_an_arena_are_lent() {
    let server = Server::new().unwrap();
    let arena = Arena::host().unwrap();
    server
        .load("t", batches().moved_into(&arena).unwrap())
        .unwrap();
    let uri = server.listen(&format!("shm:@dipc-api-lent-{}", std::process::id()));
    let mut reader = Client::new().unwrap().get(uri.unwrap(), "t").unwrap();
    while reader.next_batch().unwrap().is_some() {}
    let stats = reader.stats();
    assert!(stats.bytes_lent > 0 && stats.bytes_copied == 0, "{stats:?}");
}

/// Promise of `Target`: a machine without the GPU says so before a table is read.
#[test]
fn a_gpu_that_is_not_there_is_refused() {
    let error = batches().moved_to(Target::Cuda(4096)).err().unwrap();
    let known = [Status::Unsupported, Status::InvalidArgument];
    assert!(known.contains(&error.status()), "{error}");
    assert!(batches().moved_to(Target::Host).is_ok());
}

/// Takes tables of two columns, and counts their rows.
#[derive(Default)]
struct Counting(Arc<AtomicU64>);

impl Provider for Counting {
    fn get(&self, _: &Request<'_>) -> Result<Batches> {
        Err(Error::unsupported("this server gives no tables"))
    }

    fn take_put(&self, request: &Request<'_>) -> Result<()> {
        let columns = request.table_schema()?.fields().len();
        if columns != 2 {
            return Err(Error::invalid_argument(format!("{columns} columns")));
        }
        let mut table = request.take_table()?;
        while let Some(batch) = table.next_batch()? {
            self.0.fetch_add(batch.num_rows() as u64, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Promise of `Provider::take_put`: a refusal by the schema comes before the client sends batches.
#[test]
fn a_put_is_refused_by_its_schema() {
    let counted = Arc::default();
    let server = Server::new().unwrap();
    server.handler(Counting(Arc::clone(&counted))).unwrap();
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    let client = Client::new().unwrap();
    let narrow = batch(0, 1).project(&[0]).unwrap().schema();
    let refused = client.start_put(&uri, "t", &narrow, &PutOptions::new());
    let error = refused.err().unwrap();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.text().contains("1 columns"), "{error}");
    assert_eq!(client.put(&uri, "t", batches()).unwrap(), 3);
    assert_eq!(counted.load(Ordering::SeqCst), 3000);
}

/// Promise of `Server::is_ready`, `uris_of` and `downgrade`.
#[test]
fn a_server_tells_its_state() {
    let server = Server::new().unwrap();
    assert!(!server.is_ready());
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    assert!(server.is_ready());
    assert_eq!(server.uris_of(Role::Both), [uri.as_str()]);
    for role in [Role::Metadata, Role::Data] {
        let uris = server.uris_of(role);
        let [uri] = uris.as_slice() else {
            panic!("{uris:?}")
        };
        let parsed = Uri::parse(uri).unwrap();
        assert_eq!((parsed.scheme(), parsed.role()), ("tcp", Some(role)));
        assert!(parsed.is_libdipc());
    }
    assert!(server.stats_text().contains("dipc_connections"));
    server.drain(&[]).unwrap();
    assert!(!server.is_ready());
    let weak = server.downgrade();
    assert!(weak.upgrade().is_some());
    drop(server);
    assert!(weak.upgrade().is_none());
}

/// Promise of `Uri`: what is no URI is refused, an unknown scheme is named, and the place can be
/// another.
#[test]
fn uris_are_read() {
    for wrong in ["", "shm:relative", "tcp://host"] {
        let error = Uri::parse(wrong).unwrap_err();
        assert_eq!(error.status(), Status::InvalidUri, "{wrong:?}");
    }
    let unknown = Uri::parse("quic://host:1").unwrap();
    assert_eq!(
        unknown.ensure_usable().unwrap_err().status(),
        Status::Unsupported
    );
    let everywhere = Uri::parse("tcp://0.0.0.0:6").unwrap();
    assert_eq!(everywhere.address(), "0.0.0.0:6");
    everywhere.ensure_usable().unwrap();
    assert!(
        everywhere
            .at("10.0.0.1:6")
            .to_string()
            .starts_with("tcp://10.0.0.1:6")
    );
}

/// The messages of an Arrow stream: header and body of each.
fn messages(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let Some((length, behind)) = rest.get(4..).and_then(<[u8]>::split_first_chunk) {
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            break;
        }
        let (header, behind) = behind.split_at(length);
        let body = Header::parse(header).unwrap().body_len();
        let (body, behind) = behind.split_at(usize::try_from(body).unwrap());
        found.push((header.to_vec(), body.to_vec()));
        rest = behind;
    }
    found
}

fn decode(messages: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<RecordBatch>> {
    let mut messages = messages.iter();
    let first = Header::parse(&messages.next().unwrap().0)?;
    let mut decoder = Decoder::new(&first, None)?;
    let mut batches = Vec::new();
    for (header, body) in messages {
        let header = Header::parse(header)?;
        let body = Body::copy_of(&header, body)?;
        batches.extend(decoder.decode(&header, &body)?.map(|(batch, _)| batch));
    }
    Ok(batches)
}

/// Promise of `dipc::ipc`: the messages of the `arrow` crate's writer are read; those that are
/// damaged at any byte end in an error or a table of sound values, and cut bodies in an error.
#[test]
fn messages_from_elsewhere_are_checked() {
    let mut writer = StreamWriter::try_new(Vec::new(), &schema()).unwrap();
    let tables = [batch(0, 10), batch(10, 5)];
    tables.iter().for_each(|batch| writer.write(batch).unwrap());
    let whole = messages(&writer.into_inner().unwrap());
    assert_eq!(decode(&whole).unwrap(), tables);
    for message in 0..whole.len() {
        for at in 0..whole[message].0.len() {
            let mut damaged = whole.clone();
            damaged[message].0[at] ^= 0x55;
            for batch in decode(&damaged).into_iter().flatten() {
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
    }
    let mut cut = whole;
    cut[1].1.pop();
    assert_eq!(decode(&cut).unwrap_err().status(), Status::Protocol);
}
