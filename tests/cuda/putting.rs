//! Tables on a GPU that a client sends: they reach the server's host in its own memory, with one
//! copy, and every array comes back.

use std::sync::Arc;

use arrow::array::RecordBatch;
use dipc::arrow::stream::{ArrayReader as _, export_device_stream};
use dipc::arrow::{BatchReader, OwnedDeviceStream, schema_to_c};
use dipc::client::{Client, ClientOptions, GetOptions, Put, PutOptions};
use dipc::device::cuda::{Device, Stream};
use dipc::error::{Result, Status};
use dipc::server::{HostProvider, ServerHandle, ServerOptions, ServerRequest};

use parking_lot::Mutex;

use crate::producer::{Lies, Producer, batches};
use crate::serving::{address, eventually};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("put", arrays_on_a_gpu_are_put),
    ("put-late", a_put_waits_for_the_event),
    ("put-faults", a_driver_that_fails_fails_the_put),
    ("put-no-driver", no_driver),
];

const CUDA: i32 = 2;

/// Takes tables, and sends the tables of exchanges back.
struct Taker(Arc<Mutex<Vec<Vec<RecordBatch>>>>);

impl HostProvider for Taker {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(request.source()?)))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        let taken = read(Box::new(request.source()?))?;
        self.0.lock().push(taken);
        Ok(())
    }
}

/// The batches of a stream, copied.
fn read(stream: Box<dipc::client::Stream>) -> Result<Vec<RecordBatch>> {
    assert_eq!(
        stream.device_type(),
        1,
        "the receiver wants them on the host"
    );
    // SAFETY: a stream of the library follows the interface.
    let mut reader = unsafe { BatchReader::new(export_device_stream(stream)) }?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        let rows = (0..u32::try_from(batch.num_rows()).unwrap()).collect();
        let rows: arrow::array::UInt32Array = rows;
        batches.push(arrow::compute::take_record_batch(&batch, &rows).unwrap());
    }
    Ok(batches)
}

struct Ends {
    server: ServerHandle,
    client: Client,
    uri: String,
    taken: Arc<Mutex<Vec<Vec<RecordBatch>>>>,
}

impl Ends {
    fn new(scheme: &str) -> Self {
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address(scheme)).unwrap();
        let taken = Arc::default();
        let handler = server.set_handler(Box::new(Taker(Arc::clone(&taken))));
        handler.map_err(|(error, _)| error).unwrap();
        let client = Client::new(ClientOptions::default()).unwrap();
        Self {
            server,
            client,
            uri,
            taken,
        }
    }

    fn put(&self, batches: &[RecordBatch], device_type: i32) -> Result<Put> {
        let schema = schema_to_c(&batches[0].schema()).unwrap();
        let (described, options) = ((&schema, device_type), PutOptions::default());
        self.client
            .put(&[&self.uri], b"t", described, &options, None)
    }

    /// The only table that the server's host has taken.
    fn taken(&self) -> Vec<RecordBatch> {
        let mut taken = self.taken.lock();
        assert_eq!(taken.len(), 1);
        taken.remove(0)
    }

    /// Puts the batches from the producer's memory.
    fn put_all(&self, producer: &Producer, batches: &[RecordBatch]) -> Result<()> {
        let device_type = match producer.lies {
            Lies::Managed => 13,
            _ => CUDA,
        };
        let mut put = self.put(batches, device_type)?;
        for batch in batches {
            let pushed = put.push(producer.array(batch), None, None);
            pushed.map_err(|(error, _)| error)?;
        }
        let taken = put.finish(None)?;
        assert_eq!(taken, batches.len() as u64);
        Ok(())
    }
}

#[test]
fn arrays_on_a_gpu_reach_a_server_over_every_transport() {
    run("put", &[]);
}

fn arrays_on_a_gpu_are_put() {
    for lies in [
        Lies::Legacy,
        Lies::Fd,
        Lies::Managed,
        Lies::Pool,
        Lies::Arena,
    ] {
        for scheme in ["shm", "tcp", "mem"] {
            let what = format!("{lies:?} over {scheme}");
            let ends = Ends::new(scheme);
            let producer = Producer::new(lies);
            // The last body is small enough to travel inline.
            let mut expected = batches(4, 3000);
            expected.extend(batches(1, 10));
            for _ in 0..2 {
                ends.put_all(&producer, &expected).unwrap();
                assert_eq!(ends.taken(), expected, "{what}");
            }

            // Both ways at once.
            let schema = schema_to_c(&expected[0].schema()).unwrap();
            let options = (&PutOptions::default(), &GetOptions::default());
            let (mut put, answers) = ends
                .client
                .exchange(&[&ends.uri], b"t", (&schema, CUDA), options, None)
                .unwrap();
            let reader = std::thread::spawn(move || read(Box::new(answers)));
            for batch in &expected {
                let pushed = put.push(producer.array(batch), None, None);
                pushed.map_err(|(error, _)| error).unwrap();
            }
            put.finish(None).unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), expected, "{what}");
            drop(put);

            eventually(&what, || producer.released() == 3 * expected.len());
            drop(ends);
            eventually(&what, || {
                Device::get(0).unwrap().trim().unwrap();
                let live = fake::Live::now();
                (live.allocations, live.mappings, live.opened, live.pinned) == (0, 0, 0, 0)
            });
        }
    }
}

#[test]
fn a_put_body_is_read_once_its_producer_has_written_it() {
    run("put-late", &[]);
}

fn a_put_waits_for_the_event() {
    for scheme in ["shm", "tcp"] {
        let device = Device::get(0).unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let producer = Producer {
            late: Some(Arc::clone(&stream)),
            ..Producer::new(Lies::Legacy)
        };
        let ends = Ends::new(scheme);
        let expected = batches(3, 2000);
        let before = fake::count("cuStreamWaitEvent");
        fake::hold(stream.raw().cast(), 1);
        std::thread::scope(|scope| {
            let putting = scope.spawn(|| ends.put_all(&producer, &expected));
            eventually("the first batch is encoded", || {
                fake::count("cuStreamWaitEvent") > before
            });
            assert!(ends.taken.lock().is_empty());
            fake::hold(stream.raw().cast(), 0);
            putting.join().unwrap().unwrap();
        });
        assert_eq!(ends.taken(), expected, "{scheme}");
    }
}

#[test]
fn a_put_fails_if_the_driver_does() {
    run("put-faults", &[]);
}

fn a_driver_that_fails_fails_the_put() {
    let expected = batches(3, 2000);
    for scheme in ["shm", "tcp"] {
        let ends = Ends::new(scheme);
        let producer = Producer::new(Lies::Legacy);
        ends.put_all(&producer, &expected).unwrap();
        assert_eq!(ends.taken(), expected);
        let copies: Vec<_> = (fake::counts().into_iter())
            .filter(|(name, count)| name.contains("Memcpy") && name.contains("Async") && *count > 0)
            .collect();
        assert!(!copies.is_empty(), "{:?}", fake::counts());
        for (function, _) in &copies {
            fake::fail_call(function, 1, 999);
            let outcome = ends.put_all(&producer, &expected);
            fake::fail_call(function, 0, 0);
            let error = outcome.unwrap_err();
            assert!(error.text().contains(function.as_str()), "{error}");
            // The server's host sees no end, so it has taken nothing.
            assert!(ends.taken.lock().is_empty());
        }
        // The next table crosses.
        ends.put_all(&producer, &expected).unwrap();
        assert_eq!(ends.taken(), expected);
        eventually("every array is back", || {
            ends.server.stats().streams_active == 0
        });
    }
}

#[test]
fn a_client_without_a_driver_says_so() {
    let folder = crate::places::scratch("no-driver-put");
    crate::run_in("put-no-driver", &folder, &[]);
}

fn no_driver() {
    let ends = Ends::new("shm");
    let error = ends.put(&batches(1, 1), CUDA).map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported, "{error}");
    assert!(error.text().contains("libcuda.so.1"), "{error}");
}
