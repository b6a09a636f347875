//! GPU memory lent between processes: values, copies, waits, and the end of a client.

use std::sync::Arc;
use std::time::Duration;

use dipc::device::cuda::{Device, Stream};
use dipc::proto::Span;
use dipc::server::{ServerHandle, ServerOptions};

use crate::lent_reader::{client, keep_all, plain, read_all, table};
use crate::producer::{Lies, Producer, Served};
use crate::raw_client::{Expected, RawClient, Wanted};
use crate::serving::{address, eventually, serve};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("lent", bodies_are_lent),
    ("lent-late", events_order_reading),
    ("lent-legacy", legacy_memory_waits),
    ("lent-killed", killed_clients_leave_nothing),
    ("lent-cut", what_was_cut_is_kept),
    ("lent-random", clients_die_at_any_moment),
    ("lent-elsewhere", others_get_host_memory),
    ("lent-idle", regions_are_retired),
    ("lent-again", addresses_are_used_again),
    ("lent-here", a_client_in_the_same_process),
    ("lent-faults", every_call_fails_while_lending),
    ("lent-events", events_are_few),
];

/// Each kind of memory of a producer, with and without copies.
const EVERY_WAY: [Lies; 5] = [
    Lies::Fd,
    Lies::Legacy,
    Lies::Pool,
    Lies::Managed,
    Lies::Arena,
];

pub fn served(lies: Lies, options: ServerOptions) -> (ServerHandle, String, Producer) {
    let producer = Producer::new(lies);
    let server = ServerHandle::new(options).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    serve(&server, &producer, &table("t"));
    (server, uri, producer)
}

/// Asserts that all memory is back, and that the driver has only events that peers may wait for.
pub fn nothing_is_left(server: ServerHandle, what: &str) {
    all_is_back(server, what);
    assert!(fake::Live::now().events <= 16, "{what}");
}

/// The same, with any number of events.
pub fn all_is_back(server: ServerHandle, what: &str) {
    drop(server);
    let left = || {
        Device::get(0).unwrap().trim().unwrap();
        let live = fake::Live::now();
        (
            live.allocations,
            live.mappings,
            live.opened,
            live.pinned,
            live.reservations,
            live.used,
        )
    };
    let start = std::time::Instant::now();
    while left() != (0, 0, 0, 0, 0, [0, 0]) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{what}: {:?}",
            fake::Live::now()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn body_bytes() -> u64 {
    let expected = table("t");
    let schema = dipc::arrow::schema_to_c(&expected[0].schema()).unwrap();
    let mut encoder =
        dipc::arrow::Encoder::new(&schema, dipc::arrow::EncodeOptions::default()).unwrap();
    let mut bytes = 0;
    for batch in expected {
        for message in encoder
            .encode(dipc::arrow::batch_to_c(batch), None)
            .unwrap()
        {
            bytes += message
                .buffers
                .iter()
                .map(|buffer| buffer.len as u64)
                .sum::<u64>();
        }
    }
    bytes
}

#[test]
fn a_body_on_a_gpu_is_lent_to_another_process_without_a_copy() {
    run("lent", &[]);
    // If no exportable memory can be allocated for a copy either, the body goes through the host.
    run("lent", &[("FAKE_CUDA_NO_VMM", "1")]);
    // The driver copies managed memory that the processor must not access.
    run("lent", &[("FAKE_CUDA_NO_CONCURRENT", "1")]);
}

fn bodies_are_lent() {
    let no_vmm = std::env::var_os("FAKE_CUDA_NO_VMM").is_some();
    for lies in [
        Lies::Fd,
        Lies::Legacy,
        Lies::Pool,
        Lies::Managed,
        Lies::Arena,
    ] {
        if no_vmm && lies != Lies::Legacy {
            continue;
        }
        let what = format!("{lies:?}");
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let mut other = client(&uri, "read");
        other.says("done");
        other.succeeds();
        eventually(&what, || producer.released() == 3 * table("t").len());
        eventually(&what, || server.stats().lent_outstanding == 0);
        let stats = server.stats();
        let bytes = 3 * body_bytes();
        let expected = match lies {
            Lies::Fd | Lies::Legacy | Lies::Arena => (bytes, 0),
            Lies::Managed | Lies::Pool | Lies::OtherContext => (0, bytes),
        };
        assert_eq!(
            (stats.bytes_lent, stats.bytes_copied_on_device),
            expected,
            "{what}"
        );
        assert_eq!(
            (stats.bytes_copied, stats.bytes_staged, stats.bytes_sent),
            (0, 0, 0),
            "{what}"
        );
        nothing_is_left(server, &what);
    }
}

#[test]
fn what_reads_a_body_waits_for_its_producer_and_no_thread_does() {
    run("lent-late", &[]);
}

fn events_order_reading() {
    for lies in [Lies::Fd, Lies::Pool, Lies::Managed, Lies::Arena] {
        let device = Device::get(0).unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let late = Producer {
            late: Some(Arc::clone(&stream)),
            ..producer.clone()
        };
        let late = Served {
            producer: late,
            batches: plain(),
        };
        server
            .serve(b"plain", Box::new(late))
            .map_err(|(error, _)| error)
            .unwrap();
        fake::hold(stream.raw().cast(), 1);
        let mut other = client(&uri, "late");
        other.says("pending");
        assert_eq!(producer.released(), 0);
        fake::hold(stream.raw().cast(), 0);
        other.says("done");
        other.succeeds();
        eventually("released", || producer.released() == plain().len());
        drop(stream);
        nothing_is_left(server, "late");
    }
}

#[test]
fn legacy_memory_is_released_once_the_client_has_closed_it() {
    run("lent-legacy", &[]);
}

fn legacy_memory_waits() {
    let (server, uri, producer) = served(Lies::Legacy, ServerOptions::default());
    let mut other = client(&uri, "legacy");
    for closed in 0..table("t").len() {
        other.says("gone");
        // Its addresses are back, but the client still has it open.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(producer.released(), closed);
        other.tell("forget");
        eventually("the array is released", || producer.released() > closed);
    }
    other.says("closed");
    other.tell("end");
    other.succeeds();
    nothing_is_left(server, "legacy");
}

#[test]
fn memory_of_a_killed_client_is_released_when_it_is_gone() {
    run("lent-killed", &[]);
}

fn killed_clients_leave_nothing() {
    for lies in EVERY_WAY {
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let mut other = client(&uri, "keep");
        other.says("kept");
        eventually("the end is sent", || server.stats().streams_active == 0);
        assert_eq!(producer.released(), 0, "{lies:?}");
        other.kill();
        eventually("released", || producer.released() == table("t").len());
        nothing_is_left(server, "killed");
    }
}

#[test]
fn what_a_client_was_lent_is_kept_beyond_a_cut_until_its_process_ends() {
    run("lent-cut", &[]);
}

fn what_was_cut_is_kept() {
    for lies in EVERY_WAY {
        let what = format!("{lies:?}");
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let mut other = client(&uri, "desert");
        other.says("closed");
        eventually("the connection is over", || server.stats().connections == 0);
        assert_eq!(producer.released(), 0, "{what}");
        // Neither the server's end nor later allocations reuse memory that the client may read.
        drop(server);
        let another = Producer::new(lies);
        let array = another.array(&table("u")[0]);
        other.tell("look");
        other.says("unchanged");
        drop(array);
        assert_eq!(producer.released(), 0, "{what}");
        other.kill();
        eventually("released", || producer.released() == table("t").len());
        let empty = ServerHandle::new(ServerOptions::default()).unwrap();
        nothing_is_left(empty, &what);
    }
}

#[test]
fn clients_that_die_at_any_moment_leave_nothing_behind() {
    run("lent-random", &[]);
}

fn clients_die_at_any_moment() {
    // A generator with a fixed seed, so that a run can be repeated.
    let mut seed: u64 = 7;
    for kill in 0..52 {
        let lies = EVERY_WAY[kill % EVERY_WAY.len()];
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let mut other = client(&uri, "endless");
        other.says("reading");
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((seed >> 33) % 15_000));
        other.kill();
        eventually("the connection is over", || {
            let stats = server.stats();
            (stats.connections, stats.streams_active, stats.region_bytes) == (0, 0, 0)
        });
        drop(producer);
        nothing_is_left(server, &format!("kill {kill}"));
    }
}

#[test]
fn a_client_without_the_gpu_is_lent_memory_of_the_host() {
    run("lent-elsewhere", &[]);
}

fn others_get_host_memory() {
    let (server, uri, producer) = served(Lies::Fd, ServerOptions::default());
    let mut other = client(&uri, "elsewhere");
    other.says("done");
    other.succeeds();
    eventually("released", || producer.released() == 3 * table("t").len());
    let stats = server.stats();
    assert_eq!(stats.bytes_staged, 3 * body_bytes());
    assert_eq!(
        (
            stats.bytes_lent,
            stats.bytes_copied_on_device,
            stats.bytes_sent
        ),
        (0, 0, 0)
    );
    nothing_is_left(server, "elsewhere");
}

#[test]
fn regions_on_a_gpu_are_retired_and_their_ids_used_again() {
    run("lent-idle", &[]);
}

fn regions_are_retired() {
    for lies in EVERY_WAY {
        let mut options = ServerOptions::default();
        options.link.lending.region_idle = Duration::from_millis(30);
        let (server, uri, producer) = served(lies, options);
        let other_table = Served {
            producer,
            batches: table("u"),
        };
        server
            .serve(b"u", Box::new(other_table))
            .map_err(|(error, _)| error)
            .unwrap();
        let mut other = client(&uri, "idle");
        other.says("done");
        other.succeeds();
        nothing_is_left(server, "idle");
    }
}

#[test]
fn another_allocation_at_the_same_addresses_is_told_apart() {
    run("lent-again", &[]);
}

fn addresses_are_used_again() {
    for lies in [Lies::Fd, Lies::Legacy] {
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let other_table = Served {
            producer: producer.clone(),
            batches: table("u"),
        };
        server
            .serve(b"u", Box::new(other_table))
            .map_err(|(error, _)| error)
            .unwrap();
        let mut other = client(&uri, "again");
        other.says("ready");
        for (round, ticket) in ["t", "u", "t", "u"].into_iter().enumerate() {
            other.tell(ticket);
            other.says("read");
            eventually("released", || producer.released() == 5 * (round + 1));
            // The addresses are free now, while the client may still have the allocations mapped.
            Device::get(0).unwrap().trim().unwrap();
        }
        drop(other.0.stdin.take());
        other.succeeds();
        nothing_is_left(server, "again");
    }
}

#[test]
fn a_client_in_the_servers_own_process_is_lent_copies_on_the_device() {
    run("lent-here", &[]);
}

fn a_client_in_the_same_process() {
    for lies in [Lies::Fd, Lies::Legacy, Lies::Arena] {
        let (server, uri, producer) = served(lies, ServerOptions::default());
        let mut client = RawClient::connect(&uri).unwrap();
        assert_eq!(read_all(&mut client, Wanted::on_gpus("t")).unwrap(), 5);
        let stats = server.stats();
        // Memory of an arena is not reused here, so it can be lent without a copy.
        let expected = match lies {
            Lies::Arena => (body_bytes(), 0),
            _ => (0, body_bytes()),
        };
        assert_eq!(
            (stats.bytes_lent, stats.bytes_copied_on_device),
            expected,
            "{lies:?}"
        );
        if lies != Lies::Arena {
            // A client can read a whole region, but finds only data that was lent to it.
            let end = Span {
                address: u64::from(client.announced[0]) << 48 | ((2 << 20) - 4096),
                length: 4096,
            };
            let found = client
                .link
                .regions()
                .unwrap()
                .resolve(0, u32::MAX, vec![end])
                .unwrap();
            let unused = fake::read(found.buffers[0].data as u64, 4096);
            assert!(unused.iter().all(|byte| *byte == 0));
        }
        // A cut in this process does not wait, because no event reports the end of its own use.
        let kept = keep_all(&mut client, "t");
        drop(server);
        eventually("released", || producer.released() == 10);
        let mut encoded = Expected::new(&table("t")[0]);
        for (received, batch) in kept.iter().zip(&table("t")) {
            encoded.assert_is(received, batch);
        }
        drop((kept, client));
        nothing_is_left(ServerHandle::new(ServerOptions::default()).unwrap(), "here");
    }
}

#[test]
fn every_call_may_fail_while_lending() {
    run("lent-faults", &[]);
}

fn every_call_fails_while_lending() {
    for lies in [Lies::Fd, Lies::Managed] {
        let mut other = client("", "faults");
        other.says("ready");
        let mut attempt = || {
            let (server, uri, producer) = served(lies, ServerOptions::default());
            other.tell(&uri);
            let said = other.says("outcome ");
            // The client's returns are read before the server ends.
            eventually("the connection is over", || server.stats().connections == 0);
            (server, producer, said)
        };
        let (server, _, said) = attempt();
        assert_eq!(said, "5");
        nothing_is_left(server, "first");
        let was = fake::counts();
        let (server, _, _) = attempt();
        let calls: Vec<(String, i64)> = fake::counts()
            .into_iter()
            .map(|(name, count)| {
                let earlier = was.iter().find(|(known, _)| *known == name);
                (name, count - earlier.map_or(0, |(_, count)| *count))
            })
            .filter(|(name, count)| *count > 0 && name != "cuMemcpy")
            .collect();
        nothing_is_left(server, "second");
        let (mut told, mut found_a_way) = (0, 0);
        for (function, count) in &calls {
            // The test's producer calls these functions too, and does not expect failures; frees
            // report no error.
            if function.starts_with("cuCtx")
                || function == "cuDevicePrimaryCtxGetState"
                || matches!(
                    function.as_str(),
                    "cuMemFree_v2" | "cuMemUnmap" | "cuMemAddressFree" | "cuMemRelease"
                )
                || function == "cuMemAllocManaged"
                || (lies == Lies::Fd && function.starts_with("cuMemA"))
                || (lies == Lies::Fd
                    && matches!(
                        function.as_str(),
                        "cuMemCreate"
                            | "cuMemMap"
                            | "cuMemSetAccess"
                            | "cuMemGetAllocationGranularity"
                    ))
            {
                continue;
            }
            for nth in 1..=(*count).min(12) {
                fake::fail_call(function, nth, 999);
                let (server, producer, said) = attempt();
                fake::fail_call(function, 0, 0);
                let what = format!("{lies:?}: call {nth} of {function}: {said}");
                if said.parse::<usize>().is_ok() {
                    found_a_way += 1;
                } else {
                    told += 1;
                    assert!(said.contains(function.as_str()), "{what}");
                }
                drop(producer);
                nothing_is_left(server, &what);
            }
        }
        assert!(
            told > 3 && found_a_way > 20,
            "{told} told, {found_a_way} lent or staged"
        );
        drop(other.0.stdin.take());
        other.succeeds();
    }
}

#[test]
fn events_serve_many_messages_and_belong_to_the_process() {
    run("lent-events", &[]);
}

fn events_are_few() {
    let device = Device::get(0).unwrap();
    for round in 0..3 {
        let stream = Arc::new(Stream::new(&device).unwrap());
        let (server, uri, producer) = served(Lies::Fd, ServerOptions::default());
        let late = Producer {
            late: Some(Arc::clone(&stream)),
            ..producer.clone()
        };
        // More messages than events; no event has happened when it is sent.
        let many: Vec<_> = (0..5).flat_map(|_| plain()).collect();
        let many = Served {
            producer: late,
            batches: many,
        };
        server
            .serve(b"many", Box::new(many))
            .map_err(|(error, _)| error)
            .unwrap();
        fake::hold(stream.raw().cast(), 1);
        let mut other = client(&uri, "many");
        other.says("pending");
        fake::hold(stream.raw().cast(), 0);
        other.says("done");
        other.succeeds();
        eventually("released", || producer.released() == 5 * plain().len());
        drop(stream);
        nothing_is_left(server, &format!("round {round}"));
    }
}
