//! Clients that see the server's GPU and cannot open its memory, as between containers: they get
//! their arrays through the host.

use std::process::Stdio;

use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions, StreamStats};
use dipc::device::{DeviceKind, Target};
use dipc::error::Result;
use dipc::server::{ServerHandle, ServerOptions};

use crate::processes::Other;
use crate::serving::{address, eventually};
use crate::tables::{Place, Table, numbers, read};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("unopened", handles_cannot_be_opened),
    ("unopened-client", client),
];

const URI: &str = "DIPC_TEST_CUDA_URI";
const COUNT: usize = 4;
const ROWS: usize = 8 << 10;

#[test]
fn a_client_that_cannot_open_memory_gets_its_arrays_by_way_of_the_host() {
    run("unopened", &[]);
}

fn handles_cannot_be_opened() {
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    for place in [Place::Arena, Place::Own] {
        let ticket = format!("{place:?}");
        let served = server.serve(ticket.as_bytes(), Box::new(Table::new(place, COUNT, ROWS)));
        served.map_err(|(error, _)| error).unwrap();
    }
    let mut other = Other::new("unopened-client", Stdio::null(), &[(URI, uri)]);
    other.says("done");
    other.succeeds();
    eventually("everything is back", || {
        server.stats().lent_outstanding == 0
    });
}

/// Fetches a table to `device`, checks it, and gives the figures.
fn fetch(client: &Client, uri: &str, ticket: &str, device: Target) -> Result<StreamStats> {
    fetch_on(DeviceKind::CUDA, client, uri, ticket, device)
}

fn fetch_on(
    kind: DeviceKind,
    client: &Client,
    uri: &str,
    ticket: &str,
    device: Target,
) -> Result<StreamStats> {
    let options = GetOptions {
        device,
        ..GetOptions::default()
    };
    let mut stream = client.get(&[uri], ticket.as_bytes(), &options, None)?;
    assert_eq!(stream.device_type(), kind.0);
    let mut index = 0;
    while let Some(array) = stream.next()? {
        assert_eq!(array.raw().device_type, kind.0);
        assert!(read(&array).into_iter().eq(numbers(index, ROWS)));
        index += 1;
    }
    assert_eq!(index, COUNT);
    Ok(stream.stats())
}

/// A client, after all memory of other processes is closed: open memory would not be opened again.
fn fresh_client() -> Client {
    eventually("nothing is left open", || {
        let live = fake::Live::now();
        (live.opened, live.mappings) == (0, 0)
    });
    Client::new(ClientOptions::default()).unwrap()
}

fn client() {
    let uri = std::env::var(URI).unwrap();
    let bytes = (COUNT * ROWS * 8) as u64;
    let by_the_host = |stats: StreamStats| assert_eq!(stats.bytes_staged, bytes, "{stats:?}");
    let as_it_lies = |stats: StreamStats| {
        assert_eq!(
            (stats.bytes_lent, stats.bytes_staged),
            (bytes, 0),
            "{stats:?}"
        );
    };
    for (ticket, function) in [
        ("Arena", "cuMemImportFromShareableHandle"),
        ("Arena", "cuMemMap"),
        ("Own", "cuIpcOpenMemHandle_v2"),
    ] {
        for device in [Target::Cuda(0), Target::AsSent] {
            for code in [1, 304, 801, 999] {
                let client = fresh_client();
                fake::fail_call(function, 1, code);
                by_the_host(fetch(&client, &uri, ticket, device).unwrap());
                fake::fail_call(function, 0, 0);
                // Later streams do not try again, so their provider is called once.
                let tried = fake::count(function);
                if device == Target::AsSent {
                    // They go through the host now.
                    let stats = fetch_on(DeviceKind::CPU, &client, &uri, ticket, device);
                    assert_eq!(stats.unwrap().bytes_lent, bytes);
                } else {
                    by_the_host(fetch(&client, &uri, ticket, device).unwrap());
                }
                assert_eq!(fake::count(function), tried, "{function}");
            }
            // A full GPU may have room later.
            let client = fresh_client();
            fake::fail_call(function, 1, 2);
            by_the_host(fetch(&client, &uri, ticket, device).unwrap());
            fake::fail_call(function, 0, 0);
            as_it_lies(fetch(&client, &uri, ticket, device).unwrap());
        }
    }
    // After the first array the stream stays with its request.
    let client = fresh_client();
    fake::fail_call("cuIpcOpenMemHandle_v2", 2, 999);
    let error = fetch(&client, &uri, "Own", Target::Cuda(0)).unwrap_err();
    assert!(error.text().contains("cuIpcOpenMemHandle_v2"), "{error}");
    as_it_lies(fetch(&client, &uri, "Own", Target::Cuda(0)).unwrap());
    drop(client);
    drop(fresh_client());
    println!("done");
}
