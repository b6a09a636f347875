//! Thousands of streams that one thread of the host serves at once, without waits.
//!
//! The server and its clients are processes of their own. `DIPC_STREAMS` sets the number of streams
//! (`tools/test-slow.sh connections` takes 10,000), as far as the limit of open files allows.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dipc::arrow::stream::ArrayReader as _;
use dipc::client::GetOptions;
use dipc::error::Status;
use dipc::proto::Credit;
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::child::{assert_in_child, in_child};
use crate::common::{batch, export, export_schema, schema};
use crate::{SUBJECTS, client, server};

const CLIENTS: usize = 4;
const BATCHES: i64 = 20;
/// Batches that a client has room for.
const WINDOW: u64 = 4;
const ROWS: usize = 10;
/// Descriptors that a process needs beside its streams.
const SPARE: usize = 250;

fn streams() -> usize {
    std::env::var("DIPC_STREAMS").map_or(300, |text| text.parse().unwrap())
}

/// Raises the limit of open files as far as that goes.
fn allow_descriptors() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    maximum.map_or(usize::MAX, |most| most.try_into().unwrap())
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Resident memory of this process, without memory that it shares.
fn private_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let of = |name| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<usize>()
            .unwrap()
            * 1024
    };
    of("RssAnon:") + of("RssFile:")
}

/// One thread of the host serves many streams at once. A stream takes no thread, one descriptor
/// beside those of its connection, and little memory.
#[test]
fn one_thread_serves_thousands_of_streams() {
    in_child("many::child_serves");
}

/// What a stream takes at the server.
struct Taken {
    descriptors: usize,
    threads: usize,
    bytes: usize,
}

impl Taken {
    fn now() -> Self {
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            bytes: private_bytes(),
        }
    }
}

#[test]
#[ignore = "run by one_thread_serves_thousands_of_streams"]
fn child_serves() {
    assert_in_child();
    let limit = allow_descriptors();
    for subject in SUBJECTS {
        // Connections within a process are no measure, and those of UCX are not meant to be many.
        if subject.connections > 1 || !["shm", "tcp"].contains(&subject.scheme) {
            continue;
        }
        // Over shm a connection also has a descriptor of the peer's process.
        let of_connection = if subject.scheme == "shm" { 2 } else { 1 };
        let most = (limit - SPARE) / (of_connection + 1);
        let count = streams().min(most) / CLIENTS * CLIENTS;
        if count < streams() {
            println!(
                "{}: {count} streams, for the limit of open files is {limit}",
                subject.scheme
            );
        }
        let options = ServerOptions {
            // Over tcp, some places are others'.
            max_streams: count + 64,
            ..ServerOptions::default()
        };
        let (server, uri) = server(subject, options);
        server.serve_pull(b"t").unwrap();
        let mut served = Served::new(&server);
        // The first stream takes memory for the code, too.
        let mut clients = vec![fetch(&uri, 1)];
        served.begin(1);
        clients.iter_mut().for_each(go);
        served.end();
        join(clients);
        let before = Taken::now();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| fetch(&uri, count / CLIENTS)).collect();
        served.begin(count);
        let taken = Taken::now();
        let bytes = taken.bytes.saturating_sub(before.bytes) / count;
        let descriptors = taken.descriptors - before.descriptors;
        println!(
            "{}: {count} streams at once; each takes {bytes} bytes of memory and {:.2} descriptors",
            subject.scheme,
            descriptors as f64 / count as f64
        );
        assert_eq!(taken.threads, before.threads, "{}", subject.scheme);
        let shared = count / 50 + 10;
        assert!(
            descriptors <= count * (of_connection + 1) + shared,
            "{}: {descriptors}",
            subject.scheme
        );
        assert!(bytes <= 32 << 10, "{}: {bytes}", subject.scheme);
        clients.iter_mut().for_each(go);
        served.end();
        join(clients);
    }
}

/// A process with so many streams.
fn fetch(uri: &str, count: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "many::child_fetches", "--ignored"])
        .env("DIPC_TEST_URI", uri)
        .env("DIPC_STREAMS", count.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// All streams are open: the client may read.
fn go(client: &mut Child) {
    client.stdin.take().unwrap().write_all(b"g").unwrap();
}

fn join(clients: Vec<Child>) {
    for mut client in clients {
        assert!(client.wait().unwrap().success());
    }
}

#[test]
#[ignore = "run by child_serves"]
fn child_fetches() {
    assert_in_child();
    allow_descriptors();
    let uri = std::env::var("DIPC_TEST_URI").unwrap();
    let client = client();
    let options = GetOptions {
        window: Credit {
            batches: WINDOW,
            ..GetOptions::default().window
        },
        ..GetOptions::default()
    };
    let open = |_| client.get(&[&uri], b"t", &options, None).unwrap();
    let mut streams: Vec<_> = (0..streams()).map(open).collect();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    for _ in 0..BATCHES {
        for stream in &mut streams {
            assert!(stream.next().unwrap().is_some());
        }
    }
    for stream in &mut streams {
        assert!(stream.next().unwrap().is_none());
        assert_eq!(stream.stats().rows, BATCHES as u64 * ROWS as u64);
    }
}

struct Sent {
    request: ServerRequest,
    next: i64,
    /// The client had no room once.
    has_waited: bool,
}

/// The streams of one server, in an event loop.
struct Served<'a> {
    server: &'a ServerHandle,
    epoll: std::os::fd::OwnedFd,
    open: HashMap<i32, Sent>,
    /// Streams that wait for their clients.
    full: usize,
}

impl<'a> Served<'a> {
    fn new(server: &'a ServerHandle) -> Self {
        let served = Self {
            server,
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
            open: HashMap::new(),
            full: 0,
        };
        served.watch(server.request_fd().as_raw_fd());
        served
    }

    fn watch(&self, fd: i32) {
        // SAFETY: the descriptor is open: its owner lives.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let data = EventData::new_u64(u64::try_from(fd).unwrap());
        epoll::add(&self.epoll, borrowed, data, EventFlags::IN).unwrap();
    }

    /// Serves until so many streams wait for their clients.
    fn begin(&mut self, count: usize) {
        self.full = 0;
        while self.full < count {
            self.turn();
        }
        assert_eq!(self.open.len(), count);
        assert_eq!(self.server.stats().streams_active, count as u64);
    }

    /// Serves until all streams have ended.
    fn end(&mut self) {
        while !self.open.is_empty() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let mut events = Vec::with_capacity(256);
        let time = Timespec::try_from(Duration::from_secs(60)).unwrap();
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let ready = epoll::wait(&self.epoll, buffer, Some(&time)).unwrap();
        assert!(ready > 0, "nothing came in time");
        let now = Some(Duration::ZERO);
        while let Some(request) = self.server.next_request(now, None).unwrap() {
            request.start(&export_schema(&schema()), 1).unwrap();
            let fd = request.fd().unwrap();
            self.watch(fd);
            let sent = Sent {
                request,
                next: 0,
                has_waited: false,
            };
            self.open.insert(fd, sent);
        }
        for event in events {
            self.send_on(i32::try_from(event.data.u64()).unwrap());
        }
        self.server.drain_releases();
    }

    fn send_on(&mut self, fd: i32) {
        let Some(sent) = self.open.get_mut(&fd) else {
            return;
        };
        let now = Some(Duration::ZERO);
        let ensure_timeout = |status| assert_eq!(status, Status::Timeout);
        while sent.next < BATCHES {
            let array = export(&batch(sent.next, ROWS));
            if let Err((error, _)) = sent.request.push(array, None, now) {
                ensure_timeout(error.status());
                let has_waited = std::mem::replace(&mut sent.has_waited, true);
                self.full += usize::from(!has_waited);
                return;
            }
            sent.next += 1;
        }
        match sent.request.finish(now) {
            Ok(()) => drop(self.open.remove(&fd)),
            Err(error) => ensure_timeout(error.status()),
        }
    }
}
