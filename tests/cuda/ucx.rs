//! Bodies in a GPU's memory over UCX: PyPI's, whose CUDA modules run over the fake driver too.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dipc::arrow::decode::Level;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::cuda::{Device, GpuBody};
use dipc::device::{BufferRef, Target};
use dipc::error::{Result, Status};
use dipc::proto::{BodyKind, ExpectedBody, Uri, body_tag};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{
    self, AccessOptions, Connection, Incoming, LinkOptions, Listener, Outgoing, Payload,
};

use crate::serving::eventually;
use crate::tables::{Place, Table, numbers, read};
use crate::{Case, child_of, fake, has_the_systems_driver, places, run};

pub const CASES: &[Case] = &[
    ("ucx-bodies", bodies_go_between_gpus),
    ("ucx-without-cuda", nothing_without_cuda),
    ("ucx-announced", bodies_that_never_arrive),
    ("ucx-full", full_gpus_are_passed_by),
    ("ucx-current", gpus_are_current),
    ("ucx-tables", tables_go_between_gpus),
    ("ucx-server", server),
];

/// Whether this is a run under a sanitizer (tools/test-slow.sh), which UCX does not support.
fn is_sanitized() -> bool {
    let mut options = ["ASAN_OPTIONS", "TSAN_OPTIONS"].into_iter();
    options.any(|name| std::env::var_os(name).is_some())
}

/// Runs a case with PyPI's UCX, if installed.
fn with_ucx(name: &str, variables: &[(&str, &str)]) {
    if is_sanitized() {
        println!("skipped: UCX does not run, or leaks, under a sanitizer");
        return;
    }
    let Some(library) = places::ucx() else {
        println!("skipped: libucx-cu12 is not in .tools (tools/setup.sh test)");
        return;
    };
    let mut all = vec![("DIPC_UCX_LIBRARY", library.as_str())];
    all.extend_from_slice(variables);
    run(name, &all);
}

fn options(tls: &str) -> LinkOptions {
    let mut options = LinkOptions {
        access: AccessOptions {
            trusted_network: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    if !tls.is_empty() {
        options.settings.set("ucx.TLS", tls).unwrap();
    }
    options
}

/// Both ends of a connection.
struct Pair {
    _listener: Box<dyn Listener>,
    server: Box<dyn Connection>,
    client: Box<dyn Connection>,
}

impl Pair {
    fn new(tls: &str) -> Self {
        let ucx = transport::by_scheme("ucx").unwrap();
        let uri = Uri::parse("ucx://127.0.0.1:0").unwrap();
        let mut listener = ucx.listen(&uri, &options(tls)).unwrap();
        let uri = Uri::parse(&listener.address()).unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| ucx.connect(&uri, &options(tls)).unwrap());
            let mut server = None;
            let start = Instant::now();
            while !client.is_finished() || server.is_none() {
                server = server.or_else(|| listener.accept().unwrap());
                if let Some(server) = &mut server {
                    assert!(server.receive_any().unwrap().is_none());
                }
                assert!(start.elapsed() < Duration::from_secs(30), "no connection");
            }
            let mut client = client.join().unwrap();
            client.begin_stream(0, 0);
            Self {
                _listener: listener,
                server: server.unwrap(),
                client,
            }
        })
    }

    /// The client's next message.
    fn next(&mut self) -> Result<Incoming> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.client.receive_any()? {
                return Ok(message);
            }
            self.server.flush().unwrap();
            assert!(self.server.receive_any().unwrap().is_none());
            assert!(start.elapsed() < Duration::from_secs(30), "no message");
        }
    }

    /// Waits until the server has released everything that it sent.
    fn settle(&mut self) {
        let start = Instant::now();
        while !self.server.flush().unwrap() {
            assert!(self.client.receive_any().unwrap().is_none());
            assert!(start.elapsed() < Duration::from_secs(30), "not sent");
        }
    }
}

pub fn bytes(len: usize, seed: usize) -> Vec<u8> {
    let value = |at: usize| (at * 7 + at / 251 + seed).to_le_bytes()[0];
    (0..len).map(value).collect()
}

pub fn on_gpu(device: &Arc<Device>, bytes: &[u8]) -> GpuBody {
    let body = GpuBody::to_fill(device, bytes.len()).unwrap();
    fake::write(body.address(), bytes);
    body
}

fn from_gpu(body: GpuBody, seq: u32) -> Outgoing {
    let tag = body_tag(seq, BodyKind::Packed);
    Outgoing::GpuBody { tag, body }
}

fn from_host(bytes: &[u8], seq: u32) -> Outgoing {
    let bytes = bytes.to_vec();
    let parts = vec![BufferRef::of(&bytes)];
    Outgoing::Tagged {
        tag: body_tag(seq, BodyKind::Packed),
        payload: Payload::Gather {
            parts,
            owner: Box::new(bytes),
        },
    }
}

#[test]
fn bodies_go_from_and_to_gpus() {
    with_ucx("ucx-bodies", &[]);
    // UCX does not notice allocations, as with drivers whose functions it cannot replace.
    with_ucx("ucx-bodies", &[("UCX_MEM_CUDA_HOOK_MODE", "none")]);
}

/// Bodies are sent from GPU memory and received in GPU memory; either end may use host memory
/// instead. Short bodies are received on the host. (The fake's device memory faults on access by
/// the processor.) No context is current on this thread afterwards.
fn bodies_go_between_gpus() {
    let device = Device::get(0).unwrap();
    // UCX's own choice, and its choice between machines.
    for tls in ["", "tcp,cuda_copy"] {
        let mut pair = Pair::new(tls);
        assert!(pair.server.ways(true).gpu && pair.client.ways(true).gpu);
        let mut seq: u32 = 0;
        for len in [1, 4096, 16 << 10, 100_001, (4 << 20) + 64] {
            for (sends, wants) in [(true, true), (true, false), (false, true), (false, false)] {
                seq += 1;
                let sent = bytes(len, seq as usize);
                pair.client
                    .regions()
                    .unwrap()
                    .receive_on(wants.then_some(&device));
                // Posted before, and after.
                let early = seq.is_multiple_of(2);
                if early {
                    pair.client
                        .post_body(0, ExpectedBody::new(seq, len as u64, 8));
                }
                let message = match sends {
                    true => from_gpu(on_gpu(&device, &sent), seq),
                    false => from_host(&sent, seq),
                };
                pair.server.send(message).unwrap();
                if !early {
                    pair.client
                        .post_body(0, ExpectedBody::new(seq, len as u64, 8));
                }
                let got = match pair.next().unwrap() {
                    Incoming::GpuBody { seq: got, body } => {
                        assert!(got == seq && wants && len >= 16 << 10, "{len}");
                        assert_eq!(body.device().ordinal(), 0);
                        assert_eq!(body.len(), len);
                        fake::read(body.address(), len)
                    }
                    Incoming::Body { seq: got, memory } => {
                        assert!(got == seq && (!wants || len < 16 << 10), "{len}");
                        memory.as_slice().to_vec()
                    }
                    other => panic!("{other:?}"),
                };
                assert!(got == sent, "{len} bytes, {sends}, {wants}, {tls:?}");
                assert!(fake::current().is_null());
                pair.settle();
            }
        }
    }
}

#[test]
fn ucx_without_cuda_takes_none_of_it() {
    // Debian's UCX, built without CUDA; and PyPI's with CUDA disabled by a setting.
    if !has_the_systems_driver() && !is_sanitized() {
        // On a machine with a GPU the system's UCX may have CUDA.
        run("ucx-without-cuda", &[("DIPC_UCX_LIBRARY", "libucp.so.0")]);
    }
    with_ucx("ucx-without-cuda", &[("UCX_TLS", "tcp,self")]);
}

/// Without CUDA in UCX the capability is reported, a body on a GPU is refused and not read, and
/// bodies arrive on the host for each wish.
fn nothing_without_cuda() {
    let ucx = transport::by_scheme("ucx").unwrap();
    if let Err(error) = ucx.available() {
        println!("skipped: {error}");
        return;
    }
    let device = Device::get(0).unwrap();
    let mut pair = Pair::new("");
    assert!(!pair.server.ways(true).gpu);
    let error = pair
        .server
        .send(from_gpu(on_gpu(&device, b"never sent"), 1))
        .unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    pair.client.regions().unwrap().receive_on(Some(&device));
    pair.client.post_body(0, ExpectedBody::new(1, 100_000, 8));
    let sent = bytes(100_000, 3);
    pair.server.send(from_host(&sent, 1)).unwrap();
    match pair.next().unwrap() {
        Incoming::Body { seq: 1, memory } => assert_eq!(memory.as_slice(), sent),
        other => panic!("{other:?}"),
    }
    let said = dipc::transport::ucx::describe();
    let line = said.iter().find(|(name, _)| name == "GPU memory").unwrap();
    assert!(line.1.starts_with("by way of the host"), "{}", line.1);
}

#[test]
fn announced_bodies_take_no_memory() {
    with_ucx("ucx-announced", &[]);
}

/// Announced bodies that never arrive, because stream or connection has ended, take no memory of
/// the GPU.
fn bodies_that_never_arrive() {
    let device = Device::get(0).unwrap();
    let mut pair = Pair::new("");
    let before = fake::Live::now().allocations;
    pair.client.regions().unwrap().receive_on(Some(&device));
    for seq in 1..=4 {
        pair.client.post_body(0, ExpectedBody::new(seq, 1 << 20, 8));
    }
    assert!(pair.client.receive_any().unwrap().is_none());
    assert_eq!(fake::Live::now().allocations, before);
    pair.client.forget_bodies(0);
    pair.client.begin_stream(0, 0);
    for seq in 5..=8 {
        pair.client.post_body(0, ExpectedBody::new(seq, 1 << 20, 8));
    }
    assert!(pair.client.receive_any().unwrap().is_none());
    drop(pair);
    assert_eq!(fake::Live::now().allocations, before);
}

#[test]
fn bodies_come_to_the_host_where_a_gpu_is_full() {
    with_ucx("ucx-full", &[("FAKE_CUDA_MEMORY", "1000000")]);
}

/// A body goes through the host if a GPU has no room: the client receives it on the host, and the
/// server sends it from the host.
fn full_gpus_are_passed_by() {
    let device = Device::get(0).unwrap();
    let mut pair = Pair::new("");
    pair.client.regions().unwrap().receive_on(Some(&device));
    for (seq, len) in [(1, 500_000), (2, 2_000_000)] {
        let sent = bytes(len, seq as usize);
        pair.client
            .post_body(0, ExpectedBody::new(seq, len as u64, 8));
        pair.server.send(from_host(&sent, seq)).unwrap();
        let got = match pair.next().unwrap() {
            Incoming::GpuBody { seq: 1, body } => fake::read(body.address(), len),
            Incoming::Body { seq: 2, memory } => memory.as_slice().to_vec(),
            other => panic!("{other:?}"),
        };
        assert!(got == sent, "{len} bytes");
        pair.settle();
    }
    drop(pair);
    // The table fills the server's GPU.
    let server = Serving::new(&[(
        "FAKE_CUDA_MEMORY",
        (BATCHES * LONG * 8 + 20_000).to_string(),
    )]);
    let client = Client::new(ClientOptions::default()).unwrap();
    let options = GetOptions::default();
    let mut stream = client.get(&[&server.uri], b"long", &options, None).unwrap();
    for index in 0..BATCHES {
        let array = stream.next().unwrap().unwrap();
        assert!(read(&array).into_iter().eq(numbers(index, LONG)), "{index}");
    }
    assert!(stream.next().unwrap().is_none());
    let [on_gpu, staged] = server.end();
    assert_eq!(on_gpu, 0);
    assert!(staged >= BATCHES * LONG * 8, "{staged}");
}

#[test]
fn a_gpu_is_current_while_ucx_is_called() {
    with_ucx("ucx-current", &[]);
}

/// Promise: the device's primary context is current in each call of UCX that may begin or finish a
/// copy, on any thread. Connections without GPU memory do not call the driver.
fn gpus_are_current() {
    let device = Device::get(0).unwrap();
    let mut pair = Pair::new("");
    let entered = |work: &mut dyn FnMut()| {
        let before = fake::count("cuCtxPushCurrent_v2");
        work();
        fake::count("cuCtxPushCurrent_v2") - before
    };
    assert_eq!(entered(&mut || drop(pair.client.receive_any().unwrap())), 0);
    assert_eq!(entered(&mut || _ = pair.server.flush().unwrap()), 0);
    pair.client.regions().unwrap().receive_on(Some(&device));
    for _ in 0..2 {
        let client = &mut *pair.client;
        assert!(entered(&mut || drop(client.receive_any().unwrap())) > 0);
        // Started copies may still run when the connection needs the GPU no more.
        pair.client.regions().unwrap().receive_on(None);
    }
    let body = on_gpu(&device, &bytes(100_000, 1));
    let mut message = Some(from_gpu(body, 2));
    assert!(entered(&mut || pair.server.queue(0, message.take().unwrap()).unwrap()) > 0);
    let Pair { server, client, .. } = pair;
    let before = fake::count("cuCtxPushCurrent_v2");
    drop((server, client));
    // A background thread closes connections.
    eventually("the GPU was current", || {
        fake::count("cuCtxPushCurrent_v2") > before
    });
}

#[test]
fn tables_go_between_gpus_of_two_processes() {
    with_ucx("ucx-tables", &[]);
}

/// Rows of a batch with a short or a long body.
const SHORT: usize = 100;
const LONG: usize = 40_000;
const BATCHES: usize = 20;

/// A table on a GPU or the host of one process arrives whole on a GPU or the host of another, over
/// UCX; libdipc stages no long bodies at either end.
fn tables_go_between_gpus() {
    let server = Serving::new(&[]);
    let client = Client::new(ClientOptions::default()).unwrap();
    let (structure, full) = (Some(Level::Structure), None);
    for (device, level) in [
        (Target::Cuda(0), structure),
        (Target::Cuda(0), full),
        (Target::Host, structure),
        (Target::AsSent, full),
    ] {
        for (ticket, rows) in [("short", SHORT), ("long", LONG), ("host", LONG)] {
            let options = GetOptions {
                device,
                level,
                ..GetOptions::default()
            };
            let mut stream = client
                .get(&[&server.uri], ticket.as_bytes(), &options, None)
                .unwrap();
            let on_gpu = device == Target::Cuda(0);
            assert_eq!(stream.device_type(), if on_gpu { 2 } else { 1 });
            let mut batches = Vec::new();
            while let Some(array) = stream.next().unwrap() {
                assert_eq!(array.raw().device_type, stream.device_type());
                batches.push(array);
            }
            assert_eq!(batches.len(), BATCHES);
            for (index, array) in batches.iter().enumerate() {
                assert!(
                    read(array).into_iter().eq(numbers(index, rows)),
                    "{ticket} {index}"
                );
            }
            let stats = stream.stats();
            let bytes = (BATCHES * rows * 8) as u64;
            // Long bodies were received in this GPU's memory, unless each value must be checked
            // first; the others were uploaded once.
            let received = on_gpu && level == structure && rows == LONG;
            let uploaded = if on_gpu && !received { bytes } else { 0 };
            assert_eq!(stats.bytes_staged, uploaded, "{device} {ticket}");
            assert!(stats.bytes_received >= bytes);
        }
    }
    // Four clients fetched each table, gathered on the GPU.
    let all = 4 * BATCHES * (LONG + SHORT) * 8;
    let [on_gpu, staged] = server.end();
    assert!(on_gpu >= all && on_gpu < all + all / 10, "{on_gpu}");
    assert_eq!(staged, 0);
}

/// A process that serves the tables.
struct Serving {
    child: Child,
    says: BufReader<ChildStdout>,
    uri: String,
}

impl Serving {
    fn new(variables: &[(&str, String)]) -> Self {
        let folder = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut child = child_of("ucx-server", folder.as_ref())
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let uri = hear(&mut says, "uri ");
        Self { child, says, uri }
    }

    /// Ends it, and gives its numbers of bytes copied on the GPU, and staged.
    fn end(mut self) -> [usize; 2] {
        drop(self.child.stdin.take());
        let figures = hear(&mut self.says, "figures ");
        assert!(self.child.wait().unwrap().success());
        let (on_gpu, staged) = figures.split_once(' ').unwrap();
        [on_gpu.parse().unwrap(), staged.parse().unwrap()]
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rest of the next line with `start` in it.
fn hear(says: &mut BufReader<ChildStdout>, start: &str) -> String {
    let mut line = String::new();
    while says.read_line(&mut line).unwrap() > 0 {
        if let Some((_, rest)) = line.split_once(start) {
            return rest.trim().to_owned();
        }
        line.clear();
    }
    panic!("it said nothing of {start}");
}

fn server() {
    let server = ServerHandle::new(ServerOptions {
        link: options(""),
        ..ServerOptions::default()
    })
    .unwrap();
    let uri = server.listen("ucx://127.0.0.1:0").unwrap();
    for (ticket, place, rows) in [
        ("short", Place::Own, SHORT),
        ("long", Place::Own, LONG),
        ("host", Place::Host, LONG),
    ] {
        let table = Box::new(Table::new(place, BATCHES, rows));
        let served = server.serve(ticket.as_bytes(), table);
        served.map_err(|(error, _)| error).unwrap();
    }
    println!("uri {uri}");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    let stats = server.stats();
    println!(
        "figures {} {}",
        stats.bytes_copied_on_device, stats.bytes_staged
    );
}
