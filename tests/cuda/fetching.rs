//! Streams with arrays for a GPU, from servers with host memory, over every transport that needs no
//! hardware.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, RecordBatchIterator};
use arrow::datatypes::{Int32Type, Schema};
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::decode::Level;
use dipc::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream, to_device};
use dipc::arrow::transfer::move_into;
use dipc::arrow::transfer::to_host;
use dipc::arrow::{
    BatchReader, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, export_batches, schema_from_c,
    schema_to_c,
};
use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions, Stream};
use dipc::device::{DeviceKind, Target};
use dipc::error::{Error, Result, Status};
use dipc::server::{HostProvider, ServerHandle, ServerOptions, ServerRequest};

use crate::decoding::{assert_at, assert_clean};
use crate::headers::wide;
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("fetch-host", arrays_come_to_a_gpu),
    ("fetch-registered", lent_memory_is_copied_from),
    ("fetch-faults", every_call_may_fail),
    ("fetch-places", places_are_checked_first),
    ("fetch-outlive", arrays_outlive_all),
    ("fetch-cancel", streams_end_early),
    ("fetch-follow", arrays_stay_where_they_are),
];

/// Batches with a shared, growing dictionary, nulls, lists, views and strings.
fn batches() -> Vec<RecordBatch> {
    let words = ["a word", "another", "and a third one that is longer"];
    (1..=3)
        .map(|known| {
            let wide = wide();
            let keys = (0..wide.num_rows()).map(|row| words[row % known]);
            let kinds: DictionaryArray<Int32Type> = keys.collect();
            let mut columns: Vec<(String, ArrayRef)> = (wide.schema().fields().iter())
                .zip(wide.columns())
                .map(|(field, column)| (field.name().clone(), Arc::clone(column)))
                .collect();
            columns.push(("kind".to_owned(), Arc::new(kinds)));
            RecordBatch::try_from_iter_with_nullable(
                columns
                    .into_iter()
                    .map(|(name, column)| (name, column, true)),
            )
            .unwrap()
        })
        .collect()
}

/// Two columns of [`batches`], one of them the dictionary.
fn few(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let project = |batch: &RecordBatch| batch.project(&[0, 40]).unwrap();
    batches.iter().map(project).collect()
}

/// The table once, or again and again.
struct Tables(Vec<RecordBatch>, usize);

impl HostProvider for Tables {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        let schema = self.0[0].schema();
        let all = self.0.len() * self.1;
        let batches = self.0.clone().into_iter().cycle().take(all).map(Ok);
        Ok(export_batches(Box::new(RecordBatchIterator::new(
            batches, schema,
        ))))
    }
}

/// A server of host tables at each address, and a client.
struct Pair {
    server: ServerHandle,
    client: Client,
    uri: String,
}

impl Pair {
    fn new(address: &str) -> Self {
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        for (ticket, tables) in [
            (&b"t"[..], Tables(batches(), 1)),
            (b"few", Tables(few(&batches()), 1)),
            (b"endless", Tables(batches(), 1 << 40)),
        ] {
            let served = server.serve(ticket, Box::new(tables));
            served.map_err(|(error, _)| error).unwrap();
        }
        Self {
            uri: server.listen(address).unwrap(),
            client: Client::new(ClientOptions::default()).unwrap(),
            server,
        }
    }

    fn get(&self, options: &GetOptions) -> Result<Stream> {
        self.ask(b"t", options)
    }

    fn ask(&self, ticket: &[u8], options: &GetOptions) -> Result<Stream> {
        self.client.get(&[&self.uri], ticket, options, None)
    }
}

fn address(scheme: &str) -> String {
    match scheme {
        "shm" => format!("shm:@dipc-cuda-fetching-{}", std::process::id()),
        "mem" => "mem:fetching".to_owned(),
        _ => "tcp://127.0.0.1:0".to_owned(),
    }
}

fn to(device: Target) -> GetOptions {
    GetOptions {
        device,
        ..GetOptions::default()
    }
}

/// Reads arrays on any device, like a consumer.
struct Given {
    schema: Schema,
    arrays: std::vec::IntoIter<OwnedDeviceArray>,
    kind: DeviceKind,
}

impl ArrayReader for Given {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.arrays.next())
    }

    fn device_type(&self) -> i32 {
        self.kind.0
    }
}

/// The values of arrays, read on the host.
fn contents(
    schema: OwnedSchema,
    arrays: Vec<OwnedDeviceArray>,
    kind: DeviceKind,
) -> Vec<RecordBatch> {
    let given = Given {
        schema: schema_from_c(&schema).unwrap(),
        arrays: arrays.into_iter(),
        kind,
    };
    let host = to_device(to_host(export_device_stream(Box::new(given))).unwrap());
    // SAFETY: the arrays are libdipc's, of the schema.
    let reader = unsafe { BatchReader::new(host) }.unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

/// Promise of `dipc_get_options_set_device`: arrays of the host come to the requested GPU, equal,
/// at every level of validation, and the figures show the cost.
#[test]
fn arrays_of_the_host_come_to_a_gpu() {
    for scheme in ["shm", "tcp", "mem"] {
        let variables = [("FAKE_CUDA_DEVICES", "2"), ("DIPC_TEST_SCHEME", scheme)];
        run("fetch-host", &variables);
    }
}

fn arrays_come_to_a_gpu() {
    let scheme = std::env::var("DIPC_TEST_SCHEME").unwrap();
    let pair = Pair::new(&address(&scheme));
    for level in [Level::Structure, Level::Full] {
        for ordinal in [1, 0] {
            let what = format!("{scheme}, {level:?}, GPU {ordinal}");
            let mut options = to(Target::Cuda(ordinal));
            options.level = Some(level);
            let mut stream = pair.get(&options).unwrap();
            assert_eq!(stream.device_type(), DeviceKind::CUDA.0);
            let schema = stream.schema().unwrap();
            let mut arrays = Vec::new();
            while let Some(array) = stream.next().unwrap() {
                assert_at(&array, Some(ordinal), &what);
                arrays.push(array);
            }
            let stats = stream.stats();
            let bytes = stats.bytes_lent + stats.bytes_received;
            assert_eq!((stats.rows, stats.batches), (3 * rows(), 3), "{what}");
            assert!(
                stats.bytes_staged > 0 && stats.bytes_staged < 2 * bytes,
                "{what}: {stats:?}"
            );
            assert_eq!(stats.bytes_copied_on_device, 0, "{what}: {stats:?}");
            // The arrays need neither the stream nor the connection.
            drop(stream);
            assert_eq!(
                contents(schema, arrays, DeviceKind::CUDA),
                batches(),
                "{what}"
            );
        }
    }
    // Nothing lies on a GPU: as sent the arrays are on the host, without a copy to or from a GPU.
    let mut stream = pair.get(&to(Target::AsSent)).unwrap();
    assert_eq!(stream.device_type(), DeviceKind::CPU.0);
    let schema = stream.schema().unwrap();
    let mut arrays = Vec::new();
    while let Some(array) = stream.next().unwrap() {
        assert_at(&array, None, &scheme);
        arrays.push(array);
    }
    assert_eq!(stream.stats().bytes_staged, 0);
    assert_eq!(contents(schema, arrays, DeviceKind::CPU), batches());
    drop(pair);
    assert_clean(&scheme);
}

/// Promise: a GPU copies large bodies directly from lent host memory, which is registered once; if
/// the driver refuses to register it, they come through pinned memory.
#[test]
fn a_gpu_copies_from_lent_memory_of_the_host() {
    run("fetch-registered", &[]);
}

fn lent_memory_is_copied_from() {
    let column =
        |first: i64| Arc::new(Int64Array::from_iter_values(first..first + 65_536)) as ArrayRef;
    let batch =
        |first| RecordBatch::try_from_iter([("a", column(first)), ("b", column(-first))]).unwrap();
    let table: Vec<_> = (0..24).map(batch).collect();
    let pair = Pair::new(&address("shm"));
    let large = Tables(table.clone(), 1);
    let served = pair.server.serve(b"large", Box::new(large));
    served.map_err(|(error, _)| error).unwrap();
    // The number of copies: one for each buffer from lent memory, or one for each body through
    // pinned memory.
    let read = |pair: &Pair| -> i64 {
        let copies = fake::count("cuMemcpyAsync");
        let mut stream = pair.ask(b"large", &to(Target::Cuda(0))).unwrap();
        let schema = stream.schema().unwrap();
        let mut arrays = Vec::new();
        while let Some(array) = stream.next().unwrap() {
            arrays.push(array);
        }
        let copies = fake::count("cuMemcpyAsync") - copies;
        let stats = stream.stats();
        assert_eq!(stats.bytes_staged, stats.bytes_lent, "{stats:?}");
        drop(stream);
        assert_eq!(contents(schema, arrays, DeviceKind::CUDA), table);
        copies
    };
    let buffers = 2 * i64::try_from(table.len()).unwrap();
    // Refused for the first region, and then not any more.
    fake::fail_call("cuMemHostRegister_v2", 1, 801);
    assert!(read(&pair) < buffers);
    fake::fail_call("cuMemHostRegister_v2", 0, 0);
    let registered = count_registered();
    // One for each region, not for each body.
    let bodies = i64::try_from(table.len()).unwrap();
    assert!(
        (1..bodies).contains(&registered),
        "{registered} registrations"
    );
    let Pair {
        server,
        client,
        uri,
    } = pair;
    let again = Pair {
        server,
        client: Client::new(ClientOptions::default()).unwrap(),
        uri,
    };
    assert_eq!(read(&again), buffers);
    assert!(count_registered() > registered);
    // Registered memory stays registered. A second registration would be refused, and those bodies
    // would take one copy each. More regions may come: if memory comes back late, the server uses
    // others.
    assert_eq!(read(&again), buffers);
    assert_eq!(fake::count("cuMemHostUnregister"), 0);
    drop((client, again));
    assert_clean("registered");
}

fn count_registered() -> i64 {
    fake::count("cuMemHostRegister_v2")
}

fn rows() -> u64 {
    u64::try_from(wide().num_rows()).unwrap()
}

/// Promise: each driver call fails once while arrays come to a GPU; the stream's error names the
/// call, the next stream is whole, and nothing is left behind.
#[test]
fn every_call_may_fail_while_arrays_come() {
    run("fetch-faults", &[]);
}

fn every_call_may_fail() {
    let pair = Pair::new(&address("shm"));
    let read = || -> Result<()> {
        let mut stream = pair.ask(b"few", &to(Target::Cuda(0)))?;
        let schema = stream.schema()?;
        let mut arrays = Vec::new();
        while let Some(array) = stream.next()? {
            arrays.push(array);
        }
        assert_eq!(contents(schema, arrays, DeviceKind::CUDA), few(&batches()));
        Ok(())
    };
    read_only(&pair).unwrap();
    let was = fake::counts();
    read_only(&pair).unwrap();
    let counts = fake::counts();
    let mut failed = 0;
    for (function, count) in counts {
        let earlier = was.iter().find(|(known, _)| *known == function);
        let calls = count - earlier.map_or(0, |(_, count)| *count);
        for nth in 1..=calls {
            fake::fail_call(&function, nth, 999);
            let outcome = read_only(&pair);
            fake::fail_call(&function, 0, 0);
            if let Err(error) = outcome {
                failed += 1;
                let what = format!("call {nth} of {function}");
                assert_eq!(error.status(), Status::Io, "{what}: {error}");
                assert!(error.text().contains(&function), "{what}: {error}");
            }
        }
        // The connection, the client and the GPU are as before.
        read().unwrap();
    }
    assert!(failed > 5, "{failed} calls failed the stream");
    drop(pair);
    assert_clean("faults");
}

/// Reads a stream and releases its arrays.
fn read_only(pair: &Pair) -> Result<()> {
    let mut stream = pair.ask(b"few", &to(Target::Cuda(0)))?;
    while stream.next()?.is_some() {}
    Ok(())
}

/// Promise of `dipc_client_get`: a missing GPU is an error before connecting.
#[test]
fn a_gpu_that_is_not_there_is_told_before_connecting() {
    run("fetch-places", &[("FAKE_CUDA_DEVICES", "1")]);
    run("fetch-places", &[("FAKE_CUDA_DEVICES", "0")]);
}

fn places_are_checked_first() {
    let client = Client::new(ClientOptions::default()).unwrap();
    let ask = |device| -> Error {
        let nobody = ["shm:@dipc-nobody-listens-here"];
        client
            .get(&nobody, b"t", &to(device), None)
            .map(drop)
            .unwrap_err()
    };
    let error = ask(Target::Cuda(1));
    if std::env::var("FAKE_CUDA_DEVICES").unwrap() == "0" {
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        assert!(error.text().contains("sees no GPU"), "{error}");
        assert_eq!(ask(Target::Cuda(0)).status(), Status::Unsupported);
    } else {
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert!(error.text().contains("there is no GPU 1"), "{error}");
        assert_eq!(ask(Target::Cuda(0)).status(), Status::Unreachable);
    }
    assert!(error.text().contains("cuda:1"), "{error}");
    // Arrays that may come from the host need no driver.
    assert_eq!(ask(Target::AsSent).status(), Status::Unreachable);
    assert_eq!(ask(Target::Host).status(), Status::Unreachable);
    // The check made no context.
    if std::env::var("FAKE_CUDA_DEVICES").unwrap() != "0" {
        assert_eq!(fake::Live::now().contexts, 0);
    }
}

/// Rule F6: arrays on a GPU outlive stream, client and server, with the resources that they need.
#[test]
fn arrays_on_a_gpu_outlive_client_and_server() {
    run("fetch-outlive", &[]);
}

fn arrays_outlive_all() {
    let pair = Pair::new(&address("shm"));
    let mut stream = pair.get(&to(Target::Cuda(0))).unwrap();
    let schema = stream.schema().unwrap();
    let mut arrays = Vec::new();
    while let Some(array) = stream.next().unwrap() {
        arrays.push(array);
    }
    // The memory of uploaded bodies is back at the server while the arrays are held.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while pair.server.stats().lent_outstanding > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            pair.server.stats()
        );
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    drop(stream);
    drop(pair);
    let batches = batches();
    let last = arrays.split_off(2);
    drop(arrays);
    assert_eq!(contents(schema, last, DeviceKind::CUDA), batches[2..]);
    assert_clean("outliving arrays");
}

/// Tables in an arena on a GPU, with a dictionary and a batch that are sent as bytes.
struct OnGpu(Arena);

impl HostProvider for OnGpu {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        let all = batches();
        let small = all[2].slice(0, 1).project(&[0, 2, 40]).unwrap();
        let schema = small.schema();
        let large = all.iter().map(|batch| batch.project(&[0, 2, 40]).unwrap());
        let batches = large.chain([small]).map(Ok).collect::<Vec<_>>();
        let reader = export_batches(Box::new(RecordBatchIterator::new(batches, schema)));
        let reader = Box::new(DeviceStreamReader::new(reader));
        let room = self.0.room().unwrap();
        Ok(export_device_stream(move_into(reader, room)?))
    }
}

/// Promise of `device_type` 0 of `dipc_get_options_set_device`: all arrays of a stream stay on the
/// lending GPU, also those that come as bytes, whatever number that GPU has at the server.
#[test]
fn arrays_as_they_are_sent_stay_where_they_are() {
    run("fetch-follow", &[("FAKE_CUDA_DEVICES", "3")]);
}

fn arrays_stay_where_they_are() {
    let pair = Pair::new(&address("shm"));
    for ordinal in [2, 0] {
        let ticket = format!("on {ordinal}");
        let arena = Arena::on(DeviceKind::CUDA, ordinal, ArenaOptions::default()).unwrap();
        let served = pair.server.serve(ticket.as_bytes(), Box::new(OnGpu(arena)));
        served.map_err(|(error, _)| error).unwrap();
        let mut stream = pair.ask(ticket.as_bytes(), &to(Target::AsSent)).unwrap();
        assert_eq!(stream.device_type(), DeviceKind::CUDA.0);
        let mut rows = 0;
        while let Some(array) = stream.next().unwrap() {
            assert_at(&array, i32::try_from(ordinal).ok(), &ticket);
            rows += array.raw().array.length;
        }
        assert_eq!(rows, 3 * 1000 + 1);
        let stats = stream.stats();
        assert!(stats.bytes_lent > 10_000, "{stats:?}");
        // Bodies that came as bytes were uploaded.
        assert!(
            stats.bytes_received > 0 && stats.bytes_staged > 0,
            "{stats:?}"
        );
        assert_eq!(stats.bytes_copied_on_device, 0, "{stats:?}");
    }
    // The same to the host, and equal.
    let mut stream = pair.ask(b"on 2", &to(Target::Host)).unwrap();
    let schema = stream.schema().unwrap();
    let mut arrays = Vec::new();
    while let Some(array) = stream.next().unwrap() {
        arrays.push(array);
    }
    let wanted: Vec<_> = (batches().iter())
        .map(|batch| batch.project(&[0, 2, 40]).unwrap())
        .collect();
    let mut read = contents(schema, arrays, DeviceKind::CPU);
    assert_eq!(read.pop().unwrap(), wanted[2].slice(0, 1));
    assert_eq!(read, wanted);
}

/// Promise of `dipc_cancel` and of releasing a stream: a stream that ends early, during copies to
/// the GPU, leaves nothing behind.
#[test]
fn streams_to_a_gpu_end_early() {
    run("fetch-cancel", &[("FAKE_CUDA_DELAY_US", "3000")]);
}

fn streams_end_early() {
    let pair = Pair::new(&address("shm"));
    for taken in 0..3 {
        let mut stream = pair.ask(b"endless", &to(Target::Cuda(0))).unwrap();
        for _ in 0..taken {
            assert!(stream.next().unwrap().is_some());
        }
    }
    let cancel = Cancel::new().unwrap();
    let options = to(Target::Cuda(0));
    let mut stream = pair
        .client
        .get(&[&pair.uri], b"endless", &options, Some(&cancel))
        .unwrap();
    let first = stream.next().unwrap().unwrap();
    cancel.cancel();
    let ended = loop {
        match stream.next() {
            Ok(Some(array)) => drop(array),
            Ok(None) => panic!("an endless stream came to its end"),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.status(), Status::Cancelled);
    assert_at(&first, Some(0), "the first array");
    drop((first, stream, pair));
    assert_clean("cancelled streams");
}
