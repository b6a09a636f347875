//! Every file from a client to a server by put, and both ways by exchange.

use std::sync::mpsc::{Receiver, Sender, channel};

use arrow::array::RecordBatch;
use dipc::arrow::decode::Level;
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{Compression, OwnedDeviceStream};
use dipc::client::{Client, ClientOptions, GetOptions, Put, PutOptions, Stream};
use dipc::error::{Error, Result};
use dipc::proto::Role;
use dipc::server::{HostProvider, ServerHandle, ServerRequest, TakeOptions};
use dipc::transport::BodyPolicy;

use crate::common::{export, export_schema, import};
use crate::crossing::{Table, Way, assert_arrived, start};

/// What a host took, and how many bytes were lent for it.
type Taken = (Vec<RecordBatch>, u64);

/// Takes tables, and sends the table of an exchange back as it comes: arrays that were received are
/// sent like any others.
struct Echo(Sender<Taken>);

impl HostProvider for Echo {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(request.source()?)))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        let mut source = request.source()?;
        let schema = source.schema()?;
        let mut batches = Vec::new();
        while let Some(array) = source.next()? {
            batches.push(import(array, &schema));
        }
        let taken = (batches, source.stats().bytes_lent);
        self.0
            .send(taken)
            .map_err(|_| Error::cancelled("the test is over"))
    }
}

/// A client, a server that takes tables, and what it took.
struct Ends {
    client: Client,
    _server: ServerHandle,
    uri: String,
    taken: Receiver<Taken>,
    way: Way,
    level: Level,
    compression: Option<Compression>,
}

impl Ends {
    fn new(way: Way, level: Level, compression: Option<Compression>) -> Self {
        let take = TakeOptions {
            level: Some(level),
            ..TakeOptions::default()
        };
        let server = start(way, compression, take);
        let (sender, taken) = channel();
        let handler = server.set_handler(Box::new(Echo(sender)));
        handler.map_err(|(error, _)| error).unwrap();
        Self {
            client: Client::new(ClientOptions::default()).unwrap(),
            uri: server.location(Role::Both).expect("it listens"),
            _server: server,
            taken,
            way,
            level,
            compression,
        }
    }

    fn options(&self) -> PutOptions {
        PutOptions {
            body: match self.way.body {
                // A client lends bodies as small as these only where it is told to.
                BodyPolicy::Auto => BodyPolicy::Lent,
                body => body,
            },
            compression: self.compression,
            connections: self.way.connections,
            ..PutOptions::default()
        }
    }

    /// Sends a table, and compares it at the server. Gives the bytes that were lent.
    fn put(&self, table: &Table, what: &str) -> u64 {
        let described = (&export_schema(&table.schema), 1);
        let (uris, name, options) = ([&self.uri[..]], table.name.as_bytes(), self.options());
        let put = self.client.put(&uris, name, described, &options, None);
        let mut put = put.unwrap_or_else(|error| panic!("{}, {what}: {error}", table.name));
        for batch in &table.batches {
            push(&mut put, batch, &table.name, what);
        }
        finish(&mut put, table, what);
        let (batches, lent) = self.taken.recv().unwrap();
        assert_eq!(batches.len(), table.batches.len(), "{}, {what}", table.name);
        for (number, batch) in batches.iter().enumerate() {
            assert_arrived(batch, table, number, what);
        }
        lent
    }

    /// Sends a table, and compares what comes back. Gives the bytes that were lent back.
    fn exchange(&self, table: &Table, what: &str) -> u64 {
        let described = (&export_schema(&table.schema), 1);
        let answers = GetOptions {
            level: Some(self.level),
            connections: self.way.connections,
            ..GetOptions::default()
        };
        let (uris, name, options) = ([&self.uri[..]], table.name.as_bytes(), self.options());
        let (mut put, mut stream): (Put, Stream) = self
            .client
            .exchange(&uris, name, described, (&options, &answers), None)
            .unwrap_or_else(|error| panic!("{}, {what}: {error}", table.name));
        let schema = stream.schema().unwrap();
        for (number, batch) in table.batches.iter().enumerate() {
            push(&mut put, batch, &table.name, what);
            let next = stream.next();
            let array =
                next.unwrap_or_else(|error| panic!("{}, {what}, {number}: {error}", table.name));
            let batch = import(array.expect("a batch comes back"), &schema);
            assert_arrived(&batch, table, number, what);
        }
        finish(&mut put, table, what);
        assert!(stream.next().unwrap().is_none(), "{}, {what}", table.name);
        stream.stats().bytes_lent
    }
}

fn push(put: &mut Put, batch: &RecordBatch, name: &str, what: &str) {
    put.push(export(batch), None, None)
        .unwrap_or_else(|(error, _)| panic!("{name}, {what}: {error}"));
}

fn finish(put: &mut Put, table: &Table, what: &str) {
    let count = put.finish(None);
    let count = count.unwrap_or_else(|error| panic!("{}, {what}: {error}", table.name));
    assert_eq!(count, table.batches.len() as u64, "{}, {what}", table.name);
}

/// Sends each table by put and by exchange, to servers that validate at both levels.
pub fn all_are_sent(tables: &[Table], way: Way, compression: Option<Compression>) {
    for level in [Level::Structure, Level::Full] {
        let ends = Ends::new(way, level, compression);
        let what = format!("{way:?}, {level:?}, {compression:?}");
        let (mut there, mut back) = (0, 0);
        for table in tables {
            there += ends.put(table, &format!("put, {what}"));
            back += ends.exchange(table, &format!("exchange, {what}"));
        }
        // Rules A4, D3, D4: the tested kind of body is the requested kind.
        let lends = way.lends && compression.is_none();
        assert_eq!((there > 0, back > 0), (lends, lends), "{what}");
    }
}
