//! Every file through a server and a client, over shm and tcp, with every kind of body, in every
//! direction.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use dipc::arrow::Compression;
use dipc::arrow::decode::Level;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::proto::{Role, Uri};
use dipc::server::{ServerHandle, ServerOptions, ServerRequest, TakeOptions};
use dipc::transport::{self, AccessOptions, BodyPolicy, LendingOptions, LinkOptions};

use crate::common::{FnProvider, import, stream_of};
use crate::files::{File, golden, vectors};
use crate::sending::all_are_sent;

/// A table, as arrow-rs reads it.
pub struct Table {
    pub name: String,
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Table {
    fn of(file: &File) -> Self {
        let (schema, batches) = file.read();
        Self {
            name: file.name.clone(),
            schema,
            batches,
        }
    }

    /// Rule A7: parts of the batches that begin and end inside a byte of a bitmap.
    fn slices(&self) -> Self {
        let batches = self
            .batches
            .iter()
            .filter(|batch| batch.num_rows() > 3)
            .flat_map(|batch| {
                let rows = batch.num_rows();
                [
                    batch.slice(3, rows - 3),
                    batch.slice(1, rows - 2),
                    batch.slice(rows / 2, 1),
                    batch.slice(rows, 0),
                ]
            })
            .collect();
        Self {
            name: format!("{} in slices", self.name),
            schema: SchemaRef::clone(&self.schema),
            batches,
        }
    }
}

/// A configuration of streams.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    scheme: &'static str,
    /// Sockets for one stream.
    pub connections: u16,
    pub body: BodyPolicy,
    /// Whether bodies are lent.
    pub lends: bool,
}

const SHM: Way = Way {
    scheme: "shm",
    connections: 1,
    body: BodyPolicy::Auto,
    lends: true,
};

const TCP: Way = Way {
    scheme: "tcp",
    lends: false,
    ..SHM
};

const WAYS: [Way; 5] = [
    SHM,
    Way {
        body: BodyPolicy::Packed,
        lends: false,
        ..SHM
    },
    TCP,
    Way {
        connections: 3,
        ..TCP
    },
    Way {
        scheme: "ucx",
        ..TCP
    },
];

/// The ways of this machine.
fn ways() -> impl Iterator<Item = Way> {
    WAYS.into_iter().filter(|way| {
        let transport = transport::by_scheme(way.scheme).unwrap();
        transport
            .available()
            .inspect_err(|error| println!("skipped: {}: {error}", way.scheme))
            .is_ok()
    })
}

/// A server that listens.
pub fn start(way: Way, compression: Option<Compression>, take: TakeOptions) -> ServerHandle {
    let options = ServerOptions {
        body: way.body,
        compression,
        take,
        link: LinkOptions {
            lending: LendingOptions {
                // Otherwise such small tables are never lent.
                inline_bytes: 0,
                ..LendingOptions::default()
            },
            access: AccessOptions {
                trusted_network: true,
                ..AccessOptions::default()
            },
            ..Default::default()
        },
        ..Default::default()
    };
    let server = ServerHandle::new(options).unwrap();
    let address = match way.scheme {
        "tcp" | "ucx" => format!("{}://127.0.0.1:0", way.scheme),
        scheme => format!("{scheme}:@{}", crate::name()),
    };
    server.listen(&address).unwrap();
    server
}

/// A server of these tables, whose tickets are their names.
fn serve(tables: &[Table], way: Way, compression: Option<Compression>) -> ServerHandle {
    let server = start(way, compression, TakeOptions::default());
    for table in tables {
        let (schema, batches) = (SchemaRef::clone(&table.schema), table.batches.clone());
        let provider = FnProvider(move |_: &ServerRequest| {
            let batches = batches.clone().into_iter().map(Ok);
            Ok(stream_of(SchemaRef::clone(&schema), batches))
        });
        server
            .serve(table.name.as_bytes(), Box::new(provider))
            .map_err(|(error, _)| error)
            .unwrap();
    }
    server
}

/// Compares a received batch with the one that was sent.
pub fn assert_arrived(batch: &RecordBatch, table: &Table, number: usize, what: &str) {
    let name = &table.name;
    // The data of an honest peer is valid at each level.
    for column in batch.columns() {
        column
            .to_data()
            .validate_full()
            .unwrap_or_else(|error| panic!("{name}, {what}, batch {number}: {error}"));
    }
    assert_eq!(batch.schema(), table.schema, "{name}, {what}");
    let sent = table.batches.get(number);
    assert_eq!(Some(batch), sent, "{name}, {what}, batch {number}");
}

/// Gets a table and compares it.
fn arrives_equal(
    client: &Client,
    uris: &[&str],
    table: &Table,
    way: Way,
    level: Level,
    what: &str,
) -> u64 {
    let name = &table.name;
    let options = GetOptions {
        level: Some(level),
        connections: way.connections,
        ..Default::default()
    };
    let mut stream = client
        .get(uris, name.as_bytes(), &options, None)
        .unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
    let schema = stream.schema().unwrap();
    let mut received = 0;
    while let Some(array) = stream
        .next()
        .unwrap_or_else(|error| panic!("{name}, {what}, batch {received}: {error}"))
    {
        assert_arrived(&import(array, &schema), table, received, what);
        received += 1;
    }
    assert_eq!(received, table.batches.len(), "{name}, {what}");
    stream.stats().bytes_lent
}

/// Serves tables in every configuration, and gets each over one connection and over two, at both
/// levels. Then sends each the other way.
fn all_cross(tables: &[Table]) {
    for way in ways() {
        let server = serve(tables, way, None);
        let [both, metadata, data] = [Role::Both, Role::Metadata, Role::Data]
            .map(|role| server.location(role).expect("it listens"));
        let client = Client::new(ClientOptions::default()).unwrap();
        let mut lent = 0;
        for table in tables {
            for uris in [vec![both.as_str()], vec![&metadata, &data]] {
                for level in [Level::Structure, Level::Full] {
                    let what = format!("{way:?}, {} URIs, {level:?}", uris.len());
                    lent += arrives_equal(&client, &uris, table, way, level, &what);
                }
            }
        }
        // Rules D3, D4: the tested kind of body is the requested kind.
        assert_eq!(lent > 0, way.lends, "{lent} bytes lent");
        all_are_sent(tables, way, None);
    }
}

/// Rule A4: bodies that libdipc's server compressed are read, and travel packed.
#[test]
fn compressed_vectors_arrive_equal() {
    let tables: Vec<_> = vectors().iter().map(Table::of).collect();
    for compression in [Compression::Lz4Frame, Compression::Zstd] {
        let server = serve(&tables, SHM, Some(compression));
        let uri = server.location(Role::Both).expect("it listens");
        let client = Client::new(ClientOptions::default()).unwrap();
        for table in &tables {
            for level in [Level::Structure, Level::Full] {
                let what = format!("{compression:?}, {level:?}");
                let lent = arrives_equal(&client, &[&uri], table, SHM, level, &what);
                assert_eq!(lent, 0, "{}, {what}", table.name);
            }
        }
        all_are_sent(&tables, SHM, Some(compression));
    }
}

/// Rules E1, M1: a client without the extension gets every type and shape too.
#[test]
fn vectors_arrive_equal_at_a_baseline_client() {
    let tables: Vec<_> = vectors().iter().map(Table::of).collect();
    let server = serve(&tables, SHM, None);
    let mut uri = Uri::parse(&server.location(Role::Both).expect("it listens")).unwrap();
    uri.extension = false;
    let uri = uri.to_string();
    assert!(!uri.contains("dipc=1"), "{uri}");
    let client = Client::new(ClientOptions::default()).unwrap();
    for table in &tables {
        for level in [Level::Structure, Level::Full] {
            let what = format!("baseline, {level:?}");
            let lent = arrives_equal(&client, &[&uri], table, SHM, level, &what);
            assert_eq!(lent, 0, "{}, {what}", table.name);
        }
    }
}

/// Rules A2, A5, A7, D3, D4, U3, A8, Q3, Q5: every type and shape arrives equal.
#[test]
fn vectors_arrive_equal() {
    all_cross(&vectors().iter().map(Table::of).collect::<Vec<_>>());
}

/// Rule A7: slices of every type and shape arrive equal.
#[test]
fn slices_of_vectors_arrive_equal() {
    let tables: Vec<_> = vectors()
        .iter()
        .map(|file| Table::of(file).slices())
        .filter(|table| !table.batches.is_empty())
        .collect();
    all_cross(&tables);
}

/// Rules A2, A5: the streams of Arrow's integration tests arrive equal, whole and in slices.
#[test]
fn golden_streams_arrive_equal() {
    let files = golden("streams");
    if files.is_empty() {
        return;
    }
    let tables: Vec<_> = files
        .iter()
        .map(Table::of)
        .flat_map(|table| [table.slices(), table])
        .filter(|table| !table.name.ends_with("slices") || !table.batches.is_empty())
        .collect();
    all_cross(&tables);
}
