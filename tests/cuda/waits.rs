//! A kernel of the host program that never ends, while the driver's free calls wait for it: no
//! connection waits. The fake driver ends a process whose I/O thread makes a call that may wait, so
//! all other tests check this too.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{BatchReader, OwnedDeviceStream, export_batches};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::Target;
use dipc::device::cuda::{Device, PinnedMemory, Stream, later};
use dipc::error::Result;
use dipc::server::{HostProvider, ServerHandle, ServerOptions, ServerRequest};

use crate::asleep::{this_thread, until_asleep};
use crate::processes::Other;
use crate::producer::{Lies, Producer};
use crate::serving::{address, eventually, serve};
use crate::{Case, end_on_panic, fake, run};

pub const CASES: &[Case] = &[
    ("stuck-server", servers_go_on),
    ("stuck-client", clients_go_on),
    ("stuck-legacy", closing_comes_first),
    ("stuck-reader", reader_of_legacy_memory),
    ("stuck-memory", memory_is_waited_for),
];

const URI: &str = "DIPC_TEST_CUDA_STUCK_URI";

/// Endless work on a stream of the host program. All free calls wait for it.
struct Stuck {
    stream: Stream,
    _memory: PinnedMemory,
}

impl Stuck {
    fn new() -> Self {
        let device = Device::get(0).unwrap();
        // Earlier work is not waited for.
        assert!(later::wait(Duration::from_secs(10)));
        let (stream, memory) = (
            Stream::new(&device).unwrap(),
            PinnedMemory::new(&device, 8).unwrap(),
        );
        fake::hold(stream.raw().cast(), 1);
        // SAFETY: the memory lives until the stream is done, below.
        unsafe { stream.fill(memory.address(), 1, 8) }.unwrap();
        fake::frees_wait(1);
        Self {
            stream,
            _memory: memory,
        }
    }

    /// Whether a call waits for it.
    fn is_waited_for(&self) -> bool {
        assert!(!self.stream.is_idle().unwrap());
        !later::wait(Duration::from_millis(10))
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        fake::frees_wait(0);
        fake::hold(self.stream.raw().cast(), 0);
        self.stream.synchronize().unwrap();
    }
}

/// A table on the host, large enough for regions.
fn large() -> Vec<RecordBatch> {
    let column =
        |first: i64| Arc::new(Int64Array::from_iter_values(first..first + 65_536)) as ArrayRef;
    let batch = |first| RecordBatch::try_from_iter([("n", column(first))]).unwrap();
    (0..4).map(batch).collect()
}

struct Large;

impl HostProvider for Large {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        let table = large();
        let schema = table[0].schema();
        let batches = table.into_iter().map(Ok);
        Ok(export_batches(Box::new(RecordBatchIterator::new(
            batches, schema,
        ))))
    }
}

fn server(lies: Lies, options: ServerOptions) -> (ServerHandle, String, Producer) {
    let producer = Producer::new(lies);
    let server = ServerHandle::new(options).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    serve(&server, &producer, &crate::producer::batches(3, 3000));
    let served = server.serve(b"large", Box::new(Large));
    served.map_err(|(error, _)| error).unwrap();
    (server, uri, producer)
}

/// Reads a ticket like a client without GPUs.
fn read_on_host(client: &Client, uri: &str, ticket: &str) -> Vec<RecordBatch> {
    let stream = client.get(&[uri], ticket.as_bytes(), &GetOptions::default(), None);
    let stream = dipc::arrow::stream::export_device_stream(Box::new(stream.unwrap()));
    // SAFETY: a stream of ours keeps to the interface.
    let reader = unsafe { BatchReader::new(stream) }.unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

fn to_gpu() -> GetOptions {
    GetOptions {
        device: Target::Cuda(0),
        ..GetOptions::default()
    }
}

/// Promise: the end of a connection with pinned regions does not block a server's I/O thread.
#[test]
fn a_stuck_device_stops_no_server() {
    run("stuck-server", &[]);
}

fn servers_go_on() {
    end_on_panic();
    let (server, uri, producer) = server(Lies::Legacy, ServerOptions::default());
    let expected = crate::producer::batches(3, 3000);
    let first = Client::new(ClientOptions::default()).unwrap();
    assert_eq!(read_on_host(&first, &uri, "t"), expected);
    eventually("the arrays are back", || producer.released() == 3);
    let stuck = Stuck::new();
    drop(first);
    eventually("the connection is over", || server.stats().connections == 0);
    eventually("its region is being given back", || stuck.is_waited_for());
    // The same I/O thread serves the next stream, from the GPU too.
    let second = Client::new(ClientOptions::default()).unwrap();
    assert_eq!(read_on_host(&second, &uri, "large"), large());
    assert_eq!(read_on_host(&second, &uri, "t"), expected);
    assert!(stuck.is_waited_for());
    drop(stuck);
    drop((second, server));
    Device::get(0).unwrap().trim().unwrap();
    let live = fake::Live::now();
    assert_eq!((live.pinned, live.allocations), (0, 0), "{live:?}");
}

/// The same at a client: a region that is retired while its connection is idle.
#[test]
fn a_stuck_device_stops_no_client() {
    run("stuck-client", &[]);
}

fn clients_go_on() {
    end_on_panic();
    let mut options = ServerOptions::default();
    options.link.lending.region_idle = Duration::from_millis(20);
    let (server, uri, _) = server(Lies::Legacy, options);
    let client = Client::new(ClientOptions::default()).unwrap();
    let read = || {
        let mut stream = client.get(&[&uri], b"large", &to_gpu(), None).unwrap();
        let mut arrays = Vec::new();
        while let Some(array) = stream.next().unwrap() {
            arrays.push(array);
        }
        arrays
    };
    let arrays = read();
    assert!(fake::count("cuMemHostRegister_v2") > 0, "nothing is pinned");
    let stuck = Stuck::new();
    drop(arrays);
    eventually("the region is being given back", || stuck.is_waited_for());
    // The connection serves the next stream. The region counts as long as the client has it pinned.
    assert_eq!(read().len(), large().len());
    assert_eq!(client.stats().connections_made, 1);
    drop(stuck);
    eventually("no region is held any more", || {
        server.stats().region_bytes == 0
    });
    drop((client, server));
    Device::get(0).unwrap().trim().unwrap();
    let live = fake::Live::now();
    assert_eq!((live.pinned, live.allocations), (0, 0), "{live:?}");
}

/// docs/wire.md, REGION_GONE: a server may free memory of a legacy handle after the client's
/// acknowledgement. So the client sends it only after the driver has closed the handle.
#[test]
fn what_is_still_open_is_not_acknowledged() {
    run("stuck-legacy", &[]);
}

fn closing_comes_first() {
    end_on_panic();
    let (server, uri, producer) = server(Lies::Legacy, ServerOptions::default());
    let variables = [(URI, uri)];
    let mut other = Other::new("stuck-reader", Stdio::piped(), &variables);
    other.says("closing");
    eventually("all is returned", || server.stats().lent_outstanding == 0);
    // The client has read the message by then, and would have answered.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(producer.released(), 0, "memory was freed that is open");
    drop(other.0.stdin.take());
    eventually("the arrays are released", || producer.released() == 3);
    other.succeeds();
}

fn reader_of_legacy_memory() {
    end_on_panic();
    let uri = std::env::var(URI).unwrap();
    let client = Client::new(ClientOptions::default()).unwrap();
    let mut stream = client.get(&[&uri], b"t", &to_gpu(), None).unwrap();
    let mut arrays = Vec::new();
    while let Some(array) = stream.next().unwrap() {
        arrays.push(array);
    }
    assert_eq!((arrays.len(), fake::Live::now().opened), (3, 3));
    let stuck = Stuck::new();
    drop((arrays, stream));
    eventually("it is being closed", || stuck.is_waited_for());
    println!("closing");
    std::io::stdout().flush().unwrap();
    // The connection still serves the next stream.
    assert_eq!(read_on_host(&client, &uri, "large"), large());
    // Until the other end says so.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(stuck);
    eventually("all is closed", || fake::Live::now().opened == 0);
}

/// An allocation without free memory waits for memory that is about to be freed.
#[test]
fn memory_that_is_on_its_way_back_is_waited_for() {
    run("stuck-memory", &[("FAKE_CUDA_MEMORY", "8388608")]);
}

fn memory_is_waited_for() {
    use dipc::device::cuda::{DeviceMemory, Purpose};
    let device = Device::get(0).unwrap();
    let memory = |bytes| DeviceMemory::new(&device, bytes, Purpose::Lend);
    let all = memory(8 << 20).unwrap();
    memory(2 << 20).unwrap_err();
    let stuck = Stuck::new();
    drop(all);
    assert!(stuck.is_waited_for());
    let waiting = this_thread();
    let unstick = std::thread::spawn(move || {
        until_asleep(waiting);
        drop(stuck);
    });
    memory(8 << 20).unwrap();
    unstick.join().unwrap();
}
