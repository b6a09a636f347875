//! Clients that lend the bodies of a put, and take the memory away again: the server's process
//! never reads memory that is not there, and its host gets whole values or an error.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arrow::stream::ArrayReader as _;
use dipc::arrow::{EncodeOptions, Encoder};
use dipc::device::region::Region;
use dipc::error::{Error, Result};
use dipc::proto::{AddressList, BodyKind, Control, PrefixKind, Span, body_tag};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::Outgoing;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;

use crate::common::{FnTaker, batch, export, export_schema, import, schema};
use crate::hostile_puts::Raw;
use crate::{SHM, assert_same, eventually, server};

const ROWS: usize = 1000;

/// Memory of a client, and the header of the batch that lies in it.
struct Lent {
    region: Region,
    header: Vec<u8>,
    spans: Vec<Span>,
}

impl Lent {
    fn new() -> Self {
        let options = EncodeOptions { compression: None };
        let mut encoder = Encoder::new(&export_schema(&schema()), options).unwrap();
        let encoded = encoder.encode(export(&batch(0, ROWS)), None).unwrap();
        let message = encoded.into_iter().next().unwrap();
        let region = Region::create(1 << 20, "dipc-test").unwrap();
        let mut offset = 64;
        let mut spans = Vec::new();
        for buffer in message.buffers.iter() {
            // SAFETY: the region is longer than all buffers with their padding.
            let place = unsafe { region.base().as_ptr().add(offset) };
            // SAFETY: the message owns the buffer, which nobody writes; nobody else has the region.
            unsafe { std::ptr::copy_nonoverlapping(buffer.data, place, buffer.len) };
            spans.push(match buffer.len as u64 {
                0 => Span {
                    address: 0,
                    length: 0,
                },
                length => Span {
                    address: 1 << 48 | offset as u64,
                    length,
                },
            });
            offset = (offset + buffer.len).next_multiple_of(64);
        }
        Self {
            region,
            header: message.header.to_vec(),
            spans,
        }
    }

    /// Announces memory as the region of the batch.
    fn announce(&self, raw: &mut Raw, fd: Arc<OwnedFd>) {
        let handle = (self.region.len() as u64).to_le_bytes().to_vec();
        let bytes = Control::Region { id: 1, handle }.encode();
        let fd = Some(fd);
        raw.connection
            .send(Outgoing::Control { bytes, fd })
            .unwrap();
    }

    fn send(&self, raw: &mut Raw, seq: u32) {
        raw.metadata(PrefixKind::Metadata, seq, Some(self.header.clone()));
        let list = AddressList::new(self.spans.clone()).unwrap();
        raw.tagged(body_tag(seq, BodyKind::List), list.encode().to_vec());
        raw.connection.flush().unwrap();
    }

    fn withdraw(raw: &mut Raw) {
        raw.control(&Control::RegionGone { id: 1 });
        raw.connection.flush().unwrap();
    }
}

/// A host that takes one batch at each word of the test, and then another word to look at it.
struct Host {
    server: ServerHandle,
    uri: String,
    go: mpsc::Sender<()>,
    has_batch: mpsc::Receiver<()>,
    outcomes: mpsc::Receiver<Result<RecordBatch>>,
}

impl Host {
    fn new() -> Self {
        let (server, uri) = server(SHM, ServerOptions::default());
        let (go, gone_on) = mpsc::channel();
        let (took, has_batch) = mpsc::channel();
        let (sender, outcomes) = mpsc::channel();
        let gone_on = Mutex::new(gone_on);
        let take = move |request: &dipc::server::ServerRequest| {
            let gone_on = gone_on.lock();
            let wait = || gone_on.recv_timeout(Duration::from_secs(10)).unwrap();
            let mut source = request.source()?;
            wait();
            let array = match source.next() {
                Ok(array) => array.ok_or_else(|| Error::cancelled("no batch")),
                Err(error) => Err(error),
            };
            let _ = took.send(());
            wait();
            let read = array.map(|array| import(array, &export_schema(&schema())));
            let outcome = read.as_ref().map(drop).map_err(Error::clone);
            let _ = sender.send(read);
            outcome?;
            source.next().map(drop)
        };
        let handler = server.set_handler(Box::new(FnTaker(take)));
        handler.map_err(|(error, _)| error).unwrap();
        Self {
            server,
            uri,
            go,
            has_batch,
            outcomes,
        }
    }

    fn takes(&self) {
        self.go.send(()).unwrap();
        self.has_batch
            .recv_timeout(Duration::from_secs(10))
            .unwrap();
    }

    /// What the host reads of the batch.
    fn reads(&self) -> Result<RecordBatch> {
        self.go.send(()).unwrap();
        self.outcomes.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

/// Rule E3 and "Our transports": memory that a client has lent can neither shrink nor grow, and
/// stays with the batch that lies in it, whatever the client says of the region, and when it has
/// gone.
#[test]
fn lent_memory_cannot_be_taken_away() {
    let host = Host::new();
    let lent = Lent::new();
    let mut raw = Raw::connect(SHM, &host.uri);
    raw.starts();
    lent.announce(&mut raw, Arc::clone(lent.region.fd()));
    lent.send(&mut raw, 1);
    host.takes();
    let fd = lent.region.fd();
    for len in [0, 4096, 2 << 20] {
        assert_eq!(rustix::fs::ftruncate(fd, len).unwrap_err(), Errno::PERM);
    }
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::empty()] {
        assert!(rustix::fs::fallocate(fd, flags, 0, 2 << 20).is_err());
    }
    Lent::withdraw(&mut raw);
    drop(raw);
    drop(lent);
    eventually("the client is gone", || {
        host.server.stats().connections == 0
    });
    assert_same(&[host.reads().unwrap()], &[batch(0, ROWS)]);
    eventually("no stream is active", || {
        host.server.stats().streams_active == 0
    });
}

/// What a client does with its region, that it may not, before the server's host takes the batch.
type Wrong = (&'static str, &'static str, fn(&mut Raw, &Lent));

const WRONGS: [Wrong; 5] = [
    ("a list of a region that is gone", "region", |raw, lent| {
        lent.announce(raw, Arc::clone(lent.region.fd()));
        Lent::withdraw(raw);
        lent.send(raw, 1);
    }),
    (
        "a region that was never announced is gone",
        "region 1",
        |raw, _| {
            Lent::withdraw(raw);
        },
    ),
    ("a region that can shrink", "seals", |raw, lent| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("dipc-test", flags).unwrap();
        let len = lent.region.len() as u64;
        rustix::fs::fallocate(&open, FallocateFlags::empty(), 0, len).unwrap();
        let open = Arc::new(open);
        lent.announce(raw, Arc::clone(&open));
        lent.send(raw, 1);
        let _ = rustix::fs::ftruncate(&open, 0);
    }),
    (
        "a list past the end of its region",
        "region",
        |raw, lent| {
            lent.announce(raw, Arc::clone(lent.region.fd()));
            let past = lent.spans.iter().map(|span| match span.length {
                0 => *span,
                length => Span {
                    address: span.address + (1 << 20),
                    length,
                },
            });
            let past = Lent {
                region: Region::create(4096, "dipc-test").unwrap(),
                header: lent.header.clone(),
                spans: past.collect(),
            };
            past.send(raw, 1);
        },
    ),
    ("a region without its memory", "descriptor", |raw, lent| {
        let handle = (lent.region.len() as u64).to_le_bytes().to_vec();
        raw.control(&Control::Region { id: 1, handle });
        lent.send(raw, 1);
    }),
];

/// Rules E3, D8: memory that was withdrawn, that can be taken away, or that is not there fails the
/// client's table, with the reason; the server goes on.
#[test]
fn a_region_that_is_not_there_fails_the_table() {
    let host = Host::new();
    for (what, part, wrong) in WRONGS {
        let lent = Lent::new();
        let mut raw = Raw::connect(SHM, &host.uri);
        raw.starts();
        wrong(&mut raw, &lent);
        let _ = raw.connection.flush();
        host.takes();
        let error = host.reads().expect_err(what);
        assert!(error.text().contains(part), "{what}: {error}");
        eventually("no stream is active", || {
            host.server.stats().streams_active == 0
        });
    }
    let lent = Lent::new();
    let mut raw = Raw::connect(SHM, &host.uri);
    raw.starts();
    lent.announce(&mut raw, Arc::clone(lent.region.fd()));
    lent.send(&mut raw, 1);
    raw.end(2);
    host.takes();
    assert_same(&[host.reads().unwrap()], &[batch(0, ROWS)]);
}
