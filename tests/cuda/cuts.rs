//! A client whose server, or whose device, ends in the middle of a stream: mapped memory stays for
//! as long as an array uses it.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use dipc::arrow::OwnedDeviceArray;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions, Stream};
use dipc::device::Target;
use dipc::device::cuda::{self, Device, later};
use dipc::error::Status;
use dipc::server::{ServerHandle, ServerOptions};

use crate::processes::Other;
use crate::producer::{Lies, Producer, Served, batches};
use crate::resets::reset;
use crate::serving::{address, eventually};
use crate::tables::{Place, Table, numbers, read};
use crate::{Case, end_on_panic, fake, run};

pub const CASES: &[Case] = &[
    ("cut", mappings_go),
    ("cut-reset", clients_are_reset),
    ("cut-second", the_second_gpu_is_used),
    ("cut-server", server),
];

/// The GPU of the server's tables.
const GPU: &str = "DIPC_TEST_CUDA_GPU";
const COUNT: usize = 8;
const ROWS: usize = 8 << 10;

/// A server in another process, and its URI.
fn serving(gpu: i32) -> (Other, String) {
    let mut other = Other::new("cut-server", Stdio::piped(), &[(GPU, gpu.to_string())]);
    let uri = other.says("uri ");
    (other, uri)
}

/// It serves until the test lets it end.
fn server() {
    let gpu: i32 = std::env::var(GPU).unwrap().parse().unwrap();
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    for place in [Place::Arena, Place::Own] {
        let table = Table::on(gpu, place, COUNT, ROWS).endless();
        let served = server.serve(format!("{place:?}").as_bytes(), Box::new(table));
        served.map_err(|(error, _)| error).unwrap();
    }
    if gpu == 0 {
        let late = cuda::Stream::new(&Device::get(0).unwrap()).unwrap();
        let producer = Producer {
            late: Some(Arc::new(late)),
            ..Producer::new(Lies::Legacy)
        };
        let batches = batches(40, 3000);
        let served = server.serve(b"Late", Box::new(Served { producer, batches }));
        served.map_err(|(error, _)| error).unwrap();
    }
    println!("uri {uri}");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    // No context on another GPU is needed.
    assert_eq!(fake::Live::now().contexts, 1);
}

fn get(client: &Client, uri: &str, ticket: &str, gpu: i32) -> Stream {
    let mut options = GetOptions {
        device: Target::Cuda(gpu),
        ..GetOptions::default()
    };
    options.window.batches = 1;
    client
        .get(&[uri], ticket.as_bytes(), &options, None)
        .unwrap()
}

/// The first arrays of a table, checked.
fn take(stream: &mut Stream, count: usize) -> Vec<OwnedDeviceArray> {
    let take_one = |index| {
        let array = stream.next().unwrap().unwrap();
        assert!(read(&array).into_iter().eq(numbers(index, ROWS)));
        array
    };
    (0..count).map(take_one).collect()
}

/// The numbers of open handles of other processes.
fn open() -> (i64, i64, i64) {
    let live = fake::Live::now();
    (live.opened, live.mappings, live.reservations)
}

#[test]
fn what_a_cut_client_mapped_goes_with_its_last_array() {
    run("cut", &[]);
}

/// Rule F6, also after a cut: the server's process is killed, or stops serving.
fn mappings_go() {
    end_on_panic();
    let expected = [
        ("Arena", (1, 1, 1), "cuMemRelease"),
        ("Own", (3, 0, 0), "cuIpcCloseMemHandle"),
    ];
    for (ticket, mapped, closes) in expected {
        for killed in [true, false] {
            let what = format!("{ticket}, killed: {killed}");
            let (mut other, uri) = serving(0);
            let client = Client::new(ClientOptions::default()).unwrap();
            let mut stream = get(&client, &uri, ticket, 0);
            let mut arrays = take(&mut stream, 3);
            assert_eq!(open(), mapped, "{what}");
            let closed = fake::count(closes);
            if killed {
                other.kill();
            } else {
                drop(other.0.stdin.take());
            }
            let error = loop {
                // The consumer still gets the batches that arrived before.
                if let Err(error) = stream.next() {
                    break error;
                }
            };
            // A stopping server, like a killed one, may end before its last body is opened.
            let stopped = !killed && error.status() == Status::Stopped;
            let ended = error.status() == Status::Disconnected;
            assert!(stopped || ended, "{what}: {error}");
            drop((stream, client));
            while arrays.len() > 1 {
                arrays.pop();
                assert_ne!(open(), (0, 0, 0), "{what}");
            }
            drop(arrays);
            // The connection's open memory goes with it, on the I/O thread.
            eventually(&what, || open() == (0, 0, 0));
            assert!(fake::count(closes) > closed, "{what}");
        }
    }
}

#[test]
fn a_client_begins_anew_after_a_reset() {
    run("cut-reset", &[("FAKE_CUDA_DELAY_US", "2000")]);
}

/// Opened minus closed handles, by kind.
fn held() -> [i64; 4] {
    let kinds = [
        ("cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"),
        ("cuMemImportFromShareableHandle", "cuMemRelease"),
        ("cuMemAddressReserve", "cuMemAddressFree"),
        ("cuMemMap", "cuMemUnmap"),
    ];
    kinds.map(|(opens, closes)| fake::count(opens) - fake::count(closes))
}

/// A reset of a client's device, with mappings and events of its server: the stream ends with an
/// error that names the reset, lost handles are not passed to the driver, and the next stream of
/// the client is whole.
fn clients_are_reset() {
    end_on_panic();
    let (mut other, uri) = serving(0);
    for ticket in ["Arena", "Own", "Late"] {
        let client = Client::new(ClientOptions::default()).unwrap();
        let mut at_reset = held();
        for round in 0..3 {
            let what = format!("{ticket}, round {round}");
            let mut stream = get(&client, &uri, ticket, 0);
            let arrays = if ticket == "Late" {
                vec![stream.next().unwrap().unwrap()]
            } else {
                take(&mut stream, 3)
            };
            assert!(later::wait(Duration::from_secs(10)));
            reset();
            at_reset = held();
            let error = loop {
                if let Err(error) = stream.next() {
                    break error;
                }
            };
            let told = error.text().contains("CUDA_ERROR_CONTEXT_IS_DESTROYED");
            assert!(told, "{what}: {error}");
            drop((arrays, stream));
        }
        drop(client);
        // Only handles opened since the reset are closed; connections end on the I/O thread.
        eventually(ticket, || {
            let live = fake::Live::now();
            held() == at_reset && (live.streams, live.events, live.pinned) == (0, 0, 0)
        });
    }
    assert!(fake::count("cuIpcOpenEventHandle") > 0, "nothing was late");
    drop(other.0.stdin.take());
    other.succeeds();
}

#[test]
fn what_lies_on_the_second_gpu_is_opened_there() {
    run("cut-second", &[("FAKE_CUDA_DEVICES", "2")]);
}

/// No context on the first GPU is needed for it.
fn the_second_gpu_is_used() {
    end_on_panic();
    let (mut other, uri) = serving(1);
    let client = Client::new(ClientOptions::default()).unwrap();
    for ticket in ["Arena", "Own"] {
        let mut stream = get(&client, &uri, ticket, 1);
        let arrays = take(&mut stream, 3);
        assert!(arrays.iter().all(|array| array.raw().device_id == 1));
        let bytes = (3 * ROWS * 8) as u64;
        assert_eq!(stream.stats().bytes_lent, bytes, "{ticket}");
        assert_eq!(fake::Live::now().contexts, 1, "{ticket}");
    }
    drop(client);
    eventually("the connection is gone", || open() == (0, 0, 0));
    drop(other.0.stdin.take());
    other.succeeds();
}
