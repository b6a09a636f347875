//! Streams of arrays on a GPU, for clients on the host: over every transport, with one copy, and
//! with failures of the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use dipc::arrow::stream::export_device_stream;
use dipc::arrow::{BatchReader, schema_to_c};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::cuda::{Device, Stream};
use dipc::error::{Result, Status};
use dipc::server::{ServerHandle, ServerOptions, ServerStats};

use crate::producer::{Lies, Producer, Served, batches};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("staged", bodies_are_staged),
    ("staged-late", staging_waits_for_the_event),
    ("staged-faults", every_call_fails_while_staging),
    ("unpinned", unpinned_memory_serves_too),
    ("published", tables_on_a_gpu_are_published),
    ("selected", tables_on_a_gpu_are_selected_of),
    ("uuids", devices_are_found_by_uuid),
    ("no-driver-served", no_driver),
];

pub fn address(scheme: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    match scheme {
        "tcp" => "tcp://127.0.0.1:0".to_owned(),
        scheme => format!("{scheme}:@dipc-cuda-{}-{number}", std::process::id()),
    }
}

pub fn serve(server: &ServerHandle, producer: &Producer, batches: &[RecordBatch]) {
    let served = Served {
        producer: producer.clone(),
        batches: batches.to_vec(),
    };
    server
        .serve(b"t", Box::new(served))
        .map_err(|(error, _)| error)
        .unwrap();
}

/// Waits for a condition that another thread causes; fails after ten seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not within ten seconds: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Gets the ticket like a client on the host.
fn get(uri: &str) -> Result<Vec<RecordBatch>> {
    get_with(uri, b"t", &GetOptions::default())
}

fn get_with(uri: &str, ticket: &[u8], options: &GetOptions) -> Result<Vec<RecordBatch>> {
    let client = Client::new(ClientOptions::default())?;
    let stream = client.get(&[uri], ticket, options, None)?;
    // SAFETY: a stream of the library follows the interface.
    let mut reader = unsafe { BatchReader::new(export_device_stream(Box::new(stream))) }?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        // Copied, so that the lent memory goes back.
        let indices: arrow::array::UInt32Array =
            (0..u32::try_from(batch.num_rows()).unwrap()).collect();
        batches.push(arrow::compute::take_record_batch(&batch, &indices).unwrap());
    }
    Ok(batches)
}

fn bytes(batches: &[RecordBatch]) -> u64 {
    batches
        .iter()
        .map(|batch| batch.get_array_memory_size() as u64)
        .sum()
}

#[test]
fn arrays_on_a_gpu_reach_hosts_over_every_transport_in_one_copy() {
    run("staged", &[]);
    // The processor does not access managed memory if it must not during work.
    run("staged", &[("FAKE_CUDA_NO_CONCURRENT", "1")]);
}

fn bodies_are_staged() {
    for lies in [Lies::Legacy, Lies::Fd, Lies::Managed, Lies::Arena] {
        for scheme in ["shm", "tcp", "mem"] {
            let what = format!("{lies:?} over {scheme}");
            let producer = Producer::new(lies);
            let server = ServerHandle::new(ServerOptions::default()).unwrap();
            let uri = server.listen(&address(scheme)).unwrap();
            // The last body is small enough to travel inline.
            let mut expected = batches(4, 3000);
            expected.extend(batches(1, 10));
            serve(&server, &producer, &expected);
            for _ in 0..2 {
                assert_eq!(get(&uri).unwrap(), expected, "{what}");
            }
            eventually(&what, || producer.released() == 2 * expected.len());
            let ServerStats {
                bytes_lent,
                bytes_copied,
                bytes_copied_on_device,
                bytes_staged,
                bytes_sent,
                ..
            } = server.stats();
            assert_eq!(
                (bytes_lent, bytes_copied, bytes_copied_on_device),
                (0, 0, 0),
                "{what}"
            );
            assert!(
                bytes_staged > 0 && bytes_staged < 2 * bytes(&expected),
                "{what}"
            );
            if scheme != "tcp" {
                // Directly into the client's mapped region; only the small body is sent.
                assert!(bytes_sent < 2 * 4096, "{what}: {bytes_sent} sent");
                assert!(fake::count("cuMemHostRegister_v2") > 0);
            } else {
                assert_eq!(bytes_sent, bytes_staged, "{what}");
            }
            drop(server);
            Device::get(0).unwrap().trim().unwrap();
            let live = fake::Live::now();
            assert_eq!(
                (
                    live.allocations,
                    live.mappings,
                    live.opened,
                    live.pinned,
                    live.events
                ),
                (0, 0, 0, 0, 0),
                "{what}"
            );
        }
    }
}

#[test]
fn a_body_is_staged_only_once_its_producer_has_written_it() {
    run("staged-late", &[]);
}

fn staging_waits_for_the_event() {
    for scheme in ["shm", "tcp"] {
        let device = Device::get(0).unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let producer = Producer {
            late: Some(Arc::clone(&stream)),
            ..Producer::new(Lies::Legacy)
        };
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address(scheme)).unwrap();
        let expected = batches(3, 2000);
        serve(&server, &producer, &expected);
        fake::hold(stream.raw().cast(), 1);
        let client = std::thread::spawn(move || get(&uri));
        // Work on the device waits for the producer's event.
        eventually("the first batch is encoded", || {
            fake::count("cuStreamWaitEvent") > 0
        });
        assert_eq!(server.stats().bytes_staged, 0);
        fake::hold(stream.raw().cast(), 0);
        assert_eq!(client.join().unwrap().unwrap(), expected, "{scheme}");
    }
}

#[test]
fn every_call_may_fail_while_staging() {
    run("staged-faults", &[]);
}

/// The outcome of a stream, and its driver calls.
fn attempt(
    scheme: &str,
    producer: &Producer,
    expected: &[RecordBatch],
) -> Result<Vec<RecordBatch>> {
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address(scheme)).unwrap();
    serve(&server, producer, expected);
    get(&uri)
}

fn every_call_fails_while_staging() {
    let expected = batches(2, 1500);
    for scheme in ["shm", "tcp"] {
        let producer = Producer::new(Lies::Legacy);
        attempt(scheme, &producer, &expected).unwrap();
        Device::get(0).unwrap().trim().unwrap();
        let before = fake::Live::now();
        let was = fake::counts();
        assert_eq!(attempt(scheme, &producer, &expected).unwrap(), expected);
        let calls: Vec<(String, i64)> = fake::counts()
            .into_iter()
            .map(|(name, count)| {
                let earlier = was.iter().find(|(known, _)| *known == name);
                (name, count - earlier.map_or(0, |(_, count)| *count))
            })
            // The test's own calls, like a host program.
            .filter(|(name, count)| *count > 0 && name != "cuMemcpy")
            .collect();
        Device::get(0).unwrap().trim().unwrap();
        let mut told = 0;
        for (function, count) in &calls {
            // The test's producer allocates and frees too, and does not expect failures.
            if matches!(
                function.as_str(),
                "cuMemAlloc_v2" | "cuMemFree_v2" | "cuCtxPushCurrent_v2" | "cuCtxPopCurrent_v2"
            ) {
                continue;
            }
            for nth in 1..=*count {
                fake::fail_call(function, nth, 999);
                let outcome = attempt(scheme, &producer, &expected);
                fake::fail_call(function, 0, 0);
                let what = format!("call {nth} of {function} over {scheme}");
                match outcome {
                    // A fallback succeeded: a repeated call, or memory that is not pinned.
                    Ok(received) => assert_eq!(received, expected, "{what}"),
                    Err(error) => {
                        told += 1;
                        assert!(error.text().contains(function.as_str()), "{what}: {error}");
                    }
                }
                let device = Device::get(0).unwrap();
                device.trim().unwrap();
                eventually(&what, || fake::Live::now() == before);
            }
        }
        assert!(told > 5, "{told} errors were told");
    }
}

#[test]
fn memory_that_cannot_be_pinned_serves_too() {
    run("unpinned", &[]);
}

fn unpinned_memory_serves_too() {
    let expected = batches(1, 3000);
    let producer = Producer::new(Lies::Legacy);
    attempt("shm", &producer, &expected).unwrap();
    fake::fail_call("cuMemHostRegister_v2", 1, 801);
    assert_eq!(attempt("shm", &producer, &expected).unwrap(), expected);
    assert!(fake::count("cuMemHostRegister_v2") >= 2);
    // The first pinned memory of a stream is the encoder's.
    for nth in 1..4 {
        fake::fail_call("cuMemHostAlloc", nth, 1);
        Device::get(0).unwrap().trim().unwrap();
        match attempt("tcp", &producer, &expected) {
            Ok(received) => assert_eq!(received, expected),
            Err(error) => assert!(error.text().contains("cuMemHostAlloc"), "{error}"),
        }
        fake::fail_call("cuMemHostAlloc", 0, 0);
    }
}

#[test]
fn a_published_table_may_lie_on_a_gpu() {
    run("published", &[]);
}

fn tables_on_a_gpu_are_published() {
    let producer = Producer::new(Lies::Fd);
    let expected = batches(3, 2000);
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    let arrays = expected.iter().map(|batch| producer.array(batch)).collect();
    let schema = schema_to_c(&expected[0].schema()).unwrap();
    server
        .publish(b"t", schema, arrays)
        .map_err(|(error, _)| error)
        .unwrap();
    for _ in 0..3 {
        assert_eq!(get(&uri).unwrap(), expected);
    }
    assert_eq!(producer.released(), 0);
    server.withdraw(b"t").unwrap();
    eventually("the table is released", || producer.released() == 3);
}

/// Rule Q12: of arrays on a GPU, too, the selected columns and rows come, and no other bytes leave
/// the device.
#[test]
fn columns_and_rows_of_arrays_on_a_gpu_are_selected() {
    run("selected", &[]);
}

fn tables_on_a_gpu_are_selected_of() {
    for scheme in ["shm", "tcp", "mem"] {
        let producer = Producer::new(Lies::Fd);
        let table = batches(4, 1000);
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address(scheme)).unwrap();
        serve(&server, &producer, &table);
        let arrays = table.iter().map(|batch| producer.array(batch)).collect();
        let schema = schema_to_c(&table[0].schema()).unwrap();
        server
            .publish(b"published", schema, arrays)
            .map_err(|(error, _)| error)
            .unwrap();
        let whole = concat_batches(&table[0].schema(), &table).unwrap();
        let mut options = GetOptions::default();
        let names = ["text", "n"];
        options.selection.set_columns(names).unwrap();
        options.selection.set_rows(1_501, Some(1_000));
        let expected = whole.project(&[2, 0]).unwrap().slice(1_501, 1_000);
        for ticket in [&b"t"[..], b"published"] {
            let got = get_with(&uri, ticket, &options).unwrap();
            assert_eq!(concat_batches(&expected.schema(), &got).unwrap(), expected);
        }
        let mut few = GetOptions::default();
        few.selection.set_columns(["n"]).unwrap();
        few.selection.set_rows(8, Some(64));
        let before = server.stats().bytes_staged;
        get_with(&uri, b"published", &few).unwrap();
        assert_eq!(server.stats().bytes_staged - before, 64 * 8, "{scheme}");
    }
}

#[test]
fn a_server_without_a_driver_says_so() {
    let folder = crate::places::scratch("no-driver-here");
    crate::run_in("no-driver-served", &folder, &[]);
}

fn no_driver() {
    // An array that claims to lie on a GPU is not read.
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    server.serve_pull(b"t").unwrap();
    let schema = schema_to_c(&batches(1, 1)[0].schema()).unwrap();
    let client = std::thread::spawn(move || get(&uri));
    let request = server.next_request(None, None).unwrap().unwrap();
    let error = request.start(&schema, 2).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported, "{error}");
    assert!(error.text().contains("libcuda.so.1"), "{error}");
    request.fail(error.status().code(), error.text());
    let told = client.join().unwrap().unwrap_err();
    assert!(told.text().contains("libcuda.so.1"), "{told}");
}

#[test]
fn gpus_are_known_by_their_uuid() {
    run("uuids", &[("FAKE_CUDA_DEVICES", "3")]);
}

fn devices_are_found_by_uuid() {
    let uuids = dipc::device::cuda::uuids().unwrap();
    assert_eq!(uuids.len(), 3);
    assert_eq!(fake::Live::now().contexts, 0, "asking makes no context");
    for (ordinal, uuid) in uuids.iter().enumerate() {
        let device = Device::by_uuid(uuid).unwrap().unwrap();
        assert_eq!(usize::try_from(device.ordinal()).unwrap(), ordinal);
        assert_eq!(device.uuid(), uuid);
    }
    assert!(Device::by_uuid(&[1; 16]).unwrap().is_none());
}
