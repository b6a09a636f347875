//! Kills of processes that share GPU memory, at random moments: no memory is left, and complete
//! batches are right.
//!
//! `DIPC_GPU_BATCHES` sets the number of batches (`make gpu-check`: 1,000), `DIPC_SEED` repeats a
//! run. These cases do not control the fake driver, so they run over a real driver too.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::Target;
use dipc::device::cuda::Device;
use dipc::server::{ServerHandle, ServerOptions};
use fastrand::Rng;

use crate::tables::{Place, Table, numbers, read};
use crate::{Case, child_of, run_and_show};

pub const CASES: &[Case] = &[
    ("killed-clients", clients_are_killed),
    ("killed-servers", servers_are_killed),
    ("kill-client", client),
    ("kill-server", server),
];

/// The argument of the other process.
const ARGUMENT: &str = "DIPC_TEST_CUDA_ARGUMENT";
/// Rows of a batch: each is 256 KiB.
const ROWS: usize = 32 << 10;
/// Distinct batches of a table.
const COUNT: usize = 5;
/// Memory that may be missing afterwards on a GPU with other users; a leak of one batch each time
/// would be far more. Only this process uses the fake GPU.
const SLACK: usize = 64 << 20;

fn wanted() -> u64 {
    std::env::var("DIPC_GPU_BATCHES").map_or(100, |text| text.parse().unwrap())
}

fn rng() -> Rng {
    let seed =
        std::env::var("DIPC_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().unwrap());
    println!("DIPC_SEED={seed}");
    Rng::with_seed(seed)
}

/// This program as the other process. The drop kills it.
struct Other {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn new(case: &str, argument: &str) -> Self {
        let folder = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut child = child_of(case, folder.as_ref())
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    /// The rest of the next line with `start` in it; `None` at the end of the output.
    fn hears(&mut self, start: &str) -> Option<String> {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(start) {
                return Some(rest.trim().to_owned());
            }
            line.clear();
        }
        None
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with an endless table for each kind of memory, and a table on the host.
fn serving() -> (ServerHandle, String) {
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let address = format!("shm:@dipc-test-gpu-{}", std::process::id());
    let uri = server.listen(&address).unwrap();
    for place in [Place::Arena, Place::Own, Place::Host] {
        let table = Table::new(place, COUNT, ROWS).endless();
        let ticket = format!("{place:?}");
        let served = server.serve(ticket.as_bytes(), Box::new(table));
        served.map_err(|(error, _)| error).unwrap();
    }
    (server, uri)
}

const TICKETS: [&str; 3] = ["Arena", "Own", "Host"];

/// Fetches a table, and calls `taken` for each batch until it returns false. Keeps a few batches at
/// any time, and checks every value.
fn fetch(uri: &str, ticket: &str, mut taken: impl FnMut() -> bool) -> dipc::error::Result<()> {
    let client = Client::new(ClientOptions::default())?;
    let options = GetOptions {
        device: Target::Cuda(0),
        ..GetOptions::default()
    };
    let mut stream = client.get(&[uri], ticket.as_bytes(), &options, None)?;
    let mut kept = Vec::new();
    let mut index = 0;
    while let Some(array) = stream.next()? {
        assert!(
            read(&array).into_iter().eq(numbers(index % COUNT, ROWS)),
            "batch {index}"
        );
        index += 1;
        kept.push(array);
        if kept.len() > 3 {
            kept.remove(0);
        }
        if !taken() {
            break;
        }
    }
    Ok(())
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not yet: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Free bytes of the GPU, without cached memory of this process.
fn free() -> usize {
    let device = Device::get(0).unwrap();
    device.trim().unwrap();
    device.memory().unwrap().0
}

/// Waits until the GPU has as much free memory as before, and prints a line for `make gpu-check`.
fn settle(what: &str, kills: u32, batches: u64, before: usize) {
    let mut after = 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        after = free();
        if after >= before {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("kills: {what} {kills} batches {batches} free-before {before} free-after {after}");
    assert!(
        after + SLACK >= before,
        "{before} bytes were free, now {after}"
    );
}

#[test]
fn killed_clients_leave_nothing_on_the_gpu() {
    run_and_show("killed-clients", &[], "kills:");
}

/// Clients with lent GPU memory are killed at random moments: the server goes on, the memory comes
/// back, and a later client gets right values.
fn clients_are_killed() {
    let mut rng = rng();
    let (server, uri) = serving();
    // Permanent resources of the process exist before the count.
    for ticket in TICKETS {
        let mut other = Other::new("kill-client", &format!("{uri} {ticket}"));
        for _ in 0..2 * COUNT {
            assert!(other.hears("batch").is_some(), "the client ended");
        }
    }
    let idle = || {
        let stats = server.stats();
        stats.connections == 0 && stats.streams_active == 0 && stats.lent_outstanding == 0
    };
    eventually("clients are gone", idle);
    let before = free();
    let start = server.stats().batches;
    let mut kills = 0;
    while server.stats().batches - start < wanted() {
        let ticket = TICKETS[rng.usize(..TICKETS.len())];
        let mut other = Other::new("kill-client", &format!("{uri} {ticket}"));
        // From before it has connected until it is in the middle of the table.
        for _ in 0..rng.usize(..3 * COUNT) {
            assert!(other.hears("batch").is_some(), "the client ended");
        }
        thread::sleep(Duration::from_micros(rng.u64(..5000)));
        drop(other);
        kills += 1;
    }
    eventually("clients are gone", idle);
    let batches = server.stats().batches - start;
    settle("clients", kills, batches, before);
    for ticket in TICKETS {
        let mut left = COUNT;
        fetch(&uri, ticket, || {
            left -= 1;
            left > 0
        })
        .unwrap();
    }
    drop(server);
}

fn client() {
    let argument = std::env::var(ARGUMENT).unwrap();
    let (uri, ticket) = argument.split_once(' ').unwrap();
    fetch(uri, ticket, || {
        println!("batch");
        std::io::stdout().flush().is_ok()
    })
    .unwrap();
}

#[test]
fn killed_servers_leave_nothing_on_the_gpu() {
    run_and_show("killed-servers", &[], "kills:");
}

/// Servers with mapped GPU memory are killed at random moments: earlier batches are right, the
/// fetch ends with an error, and the mappings end with their arrays.
fn servers_are_killed() {
    let mut rng = rng();
    let round = |kill_after: u64, pause: Duration, ticket: &str| {
        let mut other = Other::new("kill-server", "");
        let uri = other.hears("uri ").unwrap();
        let mut other = Some(other);
        let (mut got, mut killer) = (0, None);
        let outcome = fetch(&uri, ticket, || {
            got += 1;
            if got >= kill_after
                && let Some(other) = other.take()
            {
                let kill = move || {
                    thread::sleep(pause);
                    drop(other);
                };
                // Memory that does not outlive its owner must not be used after the owner's death:
                // for it the fetch pauses during the kill, and then ends.
                if ticket == "Own" {
                    kill();
                    return false;
                }
                killer = Some(thread::spawn(kill));
            }
            true
        });
        assert!(outcome.is_err() || ticket == "Own", "the table has no end");
        if let Some(killer) = killer {
            killer.join().unwrap();
        }
        got
    };
    for ticket in TICKETS {
        assert!(round(2, Duration::ZERO, ticket) >= 2);
    }
    let before = free();
    let (mut kills, mut batches) = (0, 0);
    while batches < wanted() {
        let ticket = TICKETS[rng.usize(..TICKETS.len())];
        let pause = Duration::from_micros(rng.u64(..3000));
        batches += round(rng.u64(1..40), pause, ticket);
        kills += 1;
    }
    settle("servers", kills, batches, before);
}

fn server() {
    let (_server, uri) = serving();
    println!("uri {uri}");
    std::io::stdout().flush().unwrap();
    // Until it is killed.
    let _ = std::io::stdin().read(&mut [0]);
}
