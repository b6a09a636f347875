//! Bodies that turn out not to lie where they were expected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ::arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch};
use ::arrow::datatypes::Int32Type;

use super::*;
use crate::arrow::decode::DecodeOptions;
use crate::arrow::{EncodeOptions, Encoder, batch_to_c, schema_to_c};
use crate::device::{BufferRef, DeviceKind, Target};
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::clock;
use crate::driver::end::{End, EndLink, Host, ServedLimits};
use crate::driver::fetch::{Connections, Fetch, NextBatch};
use crate::driver::io::IoThread;
use crate::driver::turning::Turn as _;
use crate::driver::turning::Turner;
use crate::error::Error;
use crate::error::{Result, Status};
use crate::proto::{
    ArrivedRequest, Credit, ExpectedBody, ReceiverConfig, Request, Role, SenderConfig, SideConfig,
    Tags, Uri,
};
use crate::transport::{
    self, BodyPolicy, BodyWays, Connection, Identity, Incoming, Lender, LinkOptions, OnGpu,
    Outgoing, Payload, Placement, RegionTable, Traffic,
};

/// A lender that would lend everything in place, and then cannot: its region cannot be exported,
/// say.
struct Refusing;

impl Lender for Refusing {
    fn place(
        self: Arc<Self>,
        _: &[BufferRef],
        _: Option<OnGpu<'_>>,
        _: BodyPolicy,
    ) -> Result<Placement> {
        Ok(Placement::Packed)
    }
}

/// A connection with that lender.
struct Connected(Box<dyn Connection>, Arc<Panics>);

/// The bug that is to be outlived: so many calls panic.
#[derive(Default)]
struct Panics {
    sending: AtomicU64,
    receiving: AtomicU64,
}

impl Panics {
    fn call(left: &AtomicU64) {
        let one = |left: u64| left.checked_sub(1);
        let panics = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one);
        assert!(panics.is_err(), "this connection panics on purpose");
    }
}

impl Connection for Connected {
    fn identity(&self) -> &Identity {
        self.0.identity()
    }
    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        Panics::call(&self.1.sending);
        self.0.queue(number, message)
    }
    fn flush(&mut self) -> Result<bool> {
        self.0.flush()
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
    fn post_body(&mut self, number: u32, body: ExpectedBody) {
        self.0.post_body(number, body);
    }
    fn forget_bodies(&mut self, number: u32) {
        self.0.forget_bodies(number);
    }
    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        Panics::call(&self.1.receiving);
        self.0.receive()
    }
    fn waiting(&self) -> Option<u32> {
        self.0.waiting()
    }
    fn ways(&self, _: bool) -> BodyWays {
        BodyWays {
            lender: Some(Arc::new(Refusing)),
            gpu: false,
        }
    }
    fn table(&mut self) -> Option<&mut RegionTable> {
        self.0.table()
    }
    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.0.close(lent)
    }
}

struct Asks(mpsc::Sender<(Turner<End>, ArrivedRequest)>);

impl Host for Asks {
    fn requested(&self, turner: Turner<End>, request: ArrivedRequest) {
        self.0.send((turner, request)).unwrap();
    }
    fn closed(&self, _: &Arc<EndLink>) {}
}

/// A batch with dictionaries of 8,000 bytes each.
fn batch() -> RecordBatch {
    let column = |first: i64| -> ArrayRef {
        let values = Arc::new(Int64Array::from_iter_values(first..first + 1000));
        let keys = Int32Array::from_iter_values(0..10);
        Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
    };
    let columns = (0..4).map(|number| (format!("column {number}"), column(number)));
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A server's connection, and the stream that a client has asked for over it.
struct Begun {
    link: Arc<EndLink>,
    turner: Option<Turner<End>>,
    fetch: Box<Fetch>,
    asked: ArrivedRequest,
    produce: ProduceOptions,
    panics: Arc<Panics>,
    _host: Arc<dyn Host>,
}

/// A connection to a server that hands on its requests.
struct Served {
    client: Box<dyn Connection>,
    link: Arc<EndLink>,
    io: IoThread,
    requests: mpsc::Receiver<(Turner<End>, ArrivedRequest)>,
    panics: Arc<Panics>,
    host: Arc<dyn Host>,
}

/// Connects to an address of that name.
fn connect(name: &str) -> Served {
    let uri = Uri::parse(&format!("mem:{name}")).unwrap();
    let options = LinkOptions::default();
    let transport = transport::by_scheme("mem").unwrap();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let client = transport.connect(&uri, &options).unwrap();
    let panics = Arc::<Panics>::default();
    let server = Connected(listener.accept().unwrap().unwrap(), Arc::clone(&panics));
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let (sender, requests) = mpsc::channel();
    let host: Arc<dyn Host> = Arc::new(Asks(sender));
    let link = EndLink::start(
        1,
        Box::new(server),
        SenderConfig::default(),
        ServedLimits {
            most_queued: u64::MAX,
            ..ServedLimits::default()
        },
        &io,
        Arc::downgrade(&host),
    )
    .unwrap();
    Served {
        client,
        link,
        io,
        requests,
        panics,
        host,
    }
}

fn produce_options() -> ProduceOptions {
    let (callbacks, _) = Callbacks::start().unwrap();
    ProduceOptions {
        encode: EncodeOptions::default(),
        body: BodyPolicy::Auto,
        callbacks,
        counting: Counting::Alone(Arc::default()),
    }
}

/// Asks for a stream at an address of that name, with a window that takes one dictionary of
/// [`batch`].
fn begin(name: &str) -> Begun {
    let Served {
        client,
        link,
        io,
        requests,
        panics,
        host,
    } = connect(name);
    let metadata = End::open(client, Tags::DEFAULT, &io, None);
    let window = Credit {
        batches: 16,
        bytes: 12_000,
    };
    let request = Request::new(b"t".to_vec(), window);
    let config = ReceiverConfig::new(request, SideConfig::extended(Tags::DEFAULT));
    let (decode, target) = (DecodeOptions::default(), Target::Host);
    let connections = Connections {
        metadata,
        data: None,
    };
    let started = Fetch::start(config, connections, decode, target, Duration::ZERO);
    let fetch = started.map_err(|(error, _)| error).unwrap();

    let (turner, asked) = requests.recv().unwrap();
    assert!(Arc::ptr_eq(turner.link(), &link));
    Begun {
        link,
        turner: Some(turner),
        fetch,
        asked,
        produce: produce_options(),
        panics,
        _host: host,
    }
}

/// Rule E5: a body may be admitted only because it would be lent in place. If it then is not, it
/// waits for room; the receiver checks that.
#[test]
fn bodies_that_are_not_in_place_after_all_wait_for_room() {
    let Begun {
        turner,
        fetch,
        asked,
        produce,
        ..
    } = &mut begin("produce-tests");
    let counters = Arc::clone(produce.counting.counters());
    let ticket = std::mem::take(&mut asked.request.ticket);
    let turner = turner.take().unwrap();
    let stream = OutStream::new(ticket, turner, asked.role, false);
    let mut production = Production::new(stream, produce.clone(), Box::new(|| {}));
    let batch = batch();
    let schema = schema_to_c(&batch.schema()).unwrap();
    production.start(&schema, DeviceKind::CPU.0).unwrap();
    fetch.wait_for_schema(None).unwrap();
    let pushed = production.push(batch_to_c(batch), None, None);
    pushed.map_err(|(error, _)| error).unwrap();
    // The first dictionary fits into the window, the others wait for the client to take it.
    assert!(counters.bytes_sent.load(Ordering::Relaxed) < 3 * 8000);
    assert_eq!(counters.batches.load(Ordering::Relaxed), 0);
    let finishing = thread::spawn(move || production.finish(None).unwrap());
    let next = fetch.next(None).unwrap();
    assert!(matches!(next, NextBatch::Batch(batch) if batch.rows == 10));
    assert!(matches!(fetch.next(None).unwrap(), NextBatch::End));
    finishing.join().unwrap();
}

/// Rules E4, E6: a client that asks for the next stream does not have to wait until the last stream
/// gets its second connection, because it may have had that part from another server.
#[test]
fn the_next_request_ends_the_wait_for_a_second_connection() {
    for has_batch in [true, false] {
        let Served {
            mut client,
            requests,
            link: _link,
            host: _host,
            ..
        } = connect("produce-next-request");
        let window = Credit {
            batches: 16,
            bytes: 1 << 20,
        };
        let ask = |client: &mut Box<dyn Connection>, stream_id| {
            let mut request = Request::new(b"t".to_vec(), window);
            request.stream_id = stream_id;
            let tag = Tags::default_for(Role::Metadata).dipc_want;
            let payload = Payload::Bytes(request.encode().into());
            client.queue(0, Outgoing::Tagged { tag, payload }).unwrap();
            client.flush().unwrap();
        };
        ask(&mut client, 7);
        let (turner, asked) = requests.recv().unwrap();
        let stream = OutStream::new(b"t".to_vec(), turner, asked.role, true);
        let mut production = Production::new(stream, produce_options(), Box::new(|| {}));
        let batch = batch();
        let schema = schema_to_c(&batch.schema()).unwrap();
        production.start(&schema, DeviceKind::CPU.0).unwrap();
        if has_batch {
            let pushed = production.push(batch_to_c(batch), None, None);
            pushed.map_err(|(error, _)| error).unwrap();
        }
        // The end is sent.
        let waits = production.finish(Some(clock::now()));
        assert_eq!(waits.unwrap_err().status(), Status::Timeout);
        ask(&mut client, 8);
        let patience = clock::after(Duration::from_secs(20));
        production.finish(Some(patience)).unwrap();
        drop(production);
        let (_turner, asked) = requests.recv().unwrap();
        assert_eq!(asked.request.stream_id, 8);
    }
}

/// Tells when it is dropped, as a stream's place is.
struct Place(mpsc::Sender<&'static str>);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.0.send("the place is free");
    }
}

/// Begins to send a published table. Gives what becomes of the stream.
fn publish(begun: &mut Begun) -> mpsc::Receiver<&'static str> {
    let batch = batch();
    let schema = schema_to_c(&batch.schema()).unwrap();
    let batches = vec![batch_to_c(batch)];
    let options = EncodeOptions::default();
    let encoder = Encoder::new(&schema, options).unwrap();
    let table = Published::new(schema, batches, encoder).map_err(|(error, _)| error);
    let table = table.unwrap();
    let table = Arc::new(Deferred::new(table, begun.produce.callbacks.clone()));
    let (told, heard) = mpsc::channel();
    let place = Box::new(Place(told.clone()));
    let ending = Box::new(move || told.send("it has ended").unwrap());
    let wanted = (b"t".as_slice(), Role::Both);
    let mut turner = begun.turner.take().unwrap();
    let publication = Publication::new(
        &turner.stream(),
        wanted,
        table,
        &begun.produce,
        ending,
        place,
    );
    turner.step(|served, effects| served.send_in_turns(0, publication, effects));
    drop(turner);
    heard
}

/// design.md, "Failure is per stream": a table for a connection that was just closed begins no
/// stream.
#[test]
fn a_table_on_a_closed_connection_ends() {
    let mut begun = begin("produce-closed");
    let turner = begun.turner.as_mut().unwrap();
    let error = Error::disconnected("the peer has gone");
    turner.step(|served, effects| served.fail(error, effects));
    let heard = publish(&mut begun);
    assert_eq!(heard.recv().unwrap(), "it has ended");
    assert_eq!(heard.recv().unwrap(), "the place is free");
}

fn ensure_broken_off(begun: &mut Begun, heard: &mpsc::Receiver<&'static str>) {
    let read_all = |fetch: &mut Fetch| -> Result<()> {
        fetch.wait_for_schema(None)?;
        while matches!(fetch.next(None)?, NextBatch::Batch(_)) {}
        Ok(())
    };
    let error = read_all(&mut begun.fetch).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected, "{error}");
    assert_eq!(heard.recv().unwrap(), "it has ended");
    assert_eq!(heard.recv().unwrap(), "the place is free");
    assert!(begun.link.is_closed());
}

/// design.md, "Failure is per stream": a panic while a published table is sent, at its beginning or
/// by the I/O thread later on, ends the stream and frees its place.
#[test]
fn a_panic_leaves_no_stream_of_a_table_behind() {
    for late in [false, true] {
        let mut begun = begin("produce-panics");
        let panics = |begun: &Begun| begun.panics.sending.store(1, Ordering::SeqCst);
        if !late {
            panics(&begun);
        }
        let heard = publish(&mut begun);
        if late {
            begun.fetch.wait_for_schema(None).unwrap();
            // The rest of the table is sent when the client has taken the first batches.
            panics(&begun);
        }
        ensure_broken_off(&mut begun, &heard);
    }
}

/// The same if reading from the connection panics on the I/O thread, because nothing would be read
/// any more.
#[test]
fn a_panic_of_the_io_thread_ends_its_connection() {
    let mut begun = begin("produce-panics-reading");
    let heard = publish(&mut begun);
    begun.fetch.wait_for_schema(None).unwrap();
    begun.panics.receiving.store(1, Ordering::SeqCst);
    ensure_broken_off(&mut begun, &heard);
}
