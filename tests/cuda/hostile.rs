//! False messages about GPU memory, of a hostile or faulty server: the client refuses them with a
//! reason.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::cuda::{Device, DeviceMemory, Purpose, later, uuids};
use dipc::device::region::Region;
use dipc::error::{Error, Result, Status};
use dipc::proto::{Control, Span, Uri};
use dipc::transport::{self, Connection, Incoming, LinkOptions, Listener, Outgoing, Unmapped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("hostile-regions", regions_are_checked),
    ("hostile-orders", orders_are_checked),
    ("hostile-bodies", bodies_are_checked),
    ("hostile-order", descriptors_find_their_message),
    ("hostile-unasked", nothing_unasked_is_opened),
    ("hostile-unused", nothing_unused_is_opened),
];

/// Both ends of a connection in this process.
struct Pair {
    _listener: Box<dyn Listener>,
    server: Box<dyn Connection>,
    client: Box<dyn Connection>,
}

fn pair() -> Pair {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let uri = format!("shm:@dipc-cuda-pair-{}-{number}", std::process::id());
    let uri = Uri::parse(&uri).unwrap();
    let shm = transport::by_scheme("shm").unwrap();
    let options = LinkOptions::default();
    let mut listener = shm.listen(&uri, &options).unwrap();
    let client = shm.connect(&uri, &options).unwrap();
    let server = listener.accept().unwrap().unwrap();
    Pair {
        _listener: listener,
        server,
        client,
    }
}

/// A pair whose client accepts memory of every GPU.
fn client() -> (Pair, Arc<Device>) {
    let mut pair = pair();
    let unknown = [9; 16];
    let gpus = [uuids().unwrap(), vec![unknown]].concat();
    pair.client.table().unwrap().accept_gpus(&gpus);
    (pair, Device::get(0).unwrap())
}

/// The handle of a region, as in docs/wire.md.
fn handle(length: u64, kind: u8, uuid: &[u8; 16], legacy: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes()[..], &[kind], uuid, &[0; 8], legacy].concat()
}

fn lendable(device: &Arc<Device>) -> (DeviceMemory, OwnedFd, u64) {
    let memory = DeviceMemory::new(device, 10_000, Purpose::Lend).unwrap();
    let fd = memory.export().unwrap();
    let len = memory.len() as u64;
    (memory, fd, len)
}

fn refused<T>(outcome: Result<T>, text: &str) {
    let error: Error = outcome.err().expect("it is refused");
    let fault = matches!(error.status(), Status::Protocol | Status::InvalidData);
    assert!(fault, "{:?}: {error}", error.status());
    assert!(error.text().contains(text), "{text}: {error}");
}

/// A region that cannot be opened is an error for its bodies.
fn unopened(link: &mut Box<dyn Connection>, handle: &[u8], fd: Option<OwnedFd>, text: &str) {
    link.regions().unwrap().map(9, handle, fd).unwrap();
    assert!(!link.table().unwrap().misses_gpus());
    refused(
        link.regions().unwrap().resolve(0, 1, vec![span(9, 0, 1)]),
        text,
    );
    assert!(link.table().unwrap().misses_gpus());
    unmap(link, 9);
    // Like the next request.
    link.table().unwrap().accept_gpus(&uuids().unwrap());
}

/// Retires a region, and waits until its unused mapping is closed.
fn unmap(link: &mut Box<dyn Connection>, id: u16) {
    let _whenever = link.regions().unwrap().unmap(id).unwrap();
    assert!(later::wait(Duration::from_secs(10)));
}

fn span(id: u16, offset: u64, length: u64) -> Span {
    Span {
        address: u64::from(id) << 48 | offset,
        length,
    }
}

#[test]
fn regions_on_a_gpu_are_what_their_handle_says() {
    run("hostile-regions", &[]);
}

fn regions_are_checked() {
    let (mut pair, device) = client();
    let link = &mut pair.client;
    let (_memory, fd, len) = lendable(&device);
    let before = fake::Live::now();
    let uuid = *device.uuid();
    let again = || Some(fd.try_clone().unwrap());
    let file = || {
        Some(OwnedFd::from(
            std::fs::File::open("/proc/self/exe").unwrap(),
        ))
    };
    let host = Region::create(8192, "dipc-test").unwrap();
    let memfd = || Some(host.fd().try_clone().unwrap());
    let good = handle(len, 1, &uuid, &[]);

    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 1, &[9; 16], &[]), again()),
        "0909",
    );
    unopened(
        link,
        &handle(len + 1, 1, &uuid, &[]),
        again(),
        "no memory of GPU 0",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(0, 1, &uuid, &[]), again()),
        "0 bytes",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(u64::MAX, 1, &uuid, &[]), again()),
        "bytes",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 0, &uuid, &[]), again()),
        "kind 0",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 5, &uuid, &[]), again()),
        "kind 5",
    );
    refused(link.regions().unwrap().map(1, &good, None), "no descriptor");
    unopened(link, &good, file(), "no memory of GPU 0");
    unopened(link, &good, memfd(), "no memory of GPU 0");
    refused(
        link.regions().unwrap().map(1, &good[..32], again()),
        "32 bytes",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 1, &uuid, &[0]), again()),
        "not the 0 of a descriptor",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 2, &uuid, &[7; 63]), None),
        "legacy",
    );
    unopened(
        link,
        &handle(len, 2, &uuid, &[7; 64]),
        None,
        "cuIpcOpenMemHandle",
    );
    refused(
        link.regions()
            .unwrap()
            .map(1, &handle(len, 2, &uuid, &[7; 64]), again()),
        "to which none belongs",
    );
    refused(link.regions().unwrap().map(0, &good, again()), "id 0");
    assert_eq!(fake::Live::now(), before, "what was refused is not kept");

    link.regions().unwrap().map(1, &good, again()).unwrap();
    refused(link.regions().unwrap().map(1, &good, again()), "twice");
    // Unused regions are not opened.
    assert_eq!(fake::Live::now(), before);
    assert_eq!(link.regions().unwrap().unmap(1).unwrap(), Unmapped::Now);
    link.regions().unwrap().map(1, &good, again()).unwrap();
    drop(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(1, 0, 1)])
            .unwrap(),
    );
    assert_eq!(link.regions().unwrap().unmap(1).unwrap(), Unmapped::Later);
    assert_eq!(fake::Live::now(), before);
}

#[test]
fn orders_name_events_that_were_told() {
    run("hostile-orders", &[]);
}

fn orders_are_checked() {
    let (mut pair, device) = client();
    let link = &mut pair.client;
    let (_memory, fd, len) = lendable(&device);
    link.regions()
        .unwrap()
        .map(1, &handle(len, 1, device.uuid(), &[]), Some(fd))
        .unwrap();
    refused(link.table().unwrap().order(5, 0, &[]), "event 0");
    refused(link.table().unwrap().order(5, 0, &[1; 63]), "63 bytes");
    // An invalid handle is noticed with the body.
    link.table().unwrap().order(5, 0, &[1; 64]).unwrap();
    refused(link.table().unwrap().order(6, 0, &[1; 64]), "second handle");
    refused(
        link.regions().unwrap().resolve(0, 5, vec![span(1, 0, 64)]),
        "cuIpcOpenEventHandle",
    );
    // A body without READY may be read.
    let found = link
        .regions()
        .unwrap()
        .resolve(0, 6, vec![span(1, 0, 64)])
        .unwrap();
    assert!(found.gpu.unwrap().ready.is_none());
    // Short on the wire.
    let bytes = Control::Ready {
        seq: 1,
        event: 1,
        handle: vec![3; 64],
    }
    .encode();
    for len in [1, 6, 8, 70] {
        let error = Control::decode(&bytes[..len]).unwrap_err();
        assert!(error.text().contains("READY"), "{error}");
    }
    // Other transports do not have it.
    let tcp = transport::by_scheme("tcp").unwrap();
    let uri = Uri::parse("tcp://127.0.0.1:0").unwrap();
    let listener = tcp.listen(&uri, &LinkOptions::default()).unwrap();
    let uri = Uri::parse(&listener.address()).unwrap();
    let other = &mut *tcp.connect(&uri, &LinkOptions::default()).unwrap();
    let ordered = other.order(1, 1, &[3; 64]);
    refused(ordered, "READY");
}

#[test]
fn bodies_lie_in_one_place_and_inside_it() {
    run("hostile-bodies", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn bodies_are_checked() {
    let (mut pair, device) = client();
    let other = Device::get(1).unwrap();
    let link = &mut pair.client;
    let (memory, fd, len) = lendable(&device);
    let (_elsewhere, other_fd, other_len) = lendable(&other);
    let host = Region::create(8192, "dipc-test").unwrap();
    link.regions()
        .unwrap()
        .map(1, &handle(len, 1, device.uuid(), &[]), Some(fd))
        .unwrap();
    link.regions()
        .unwrap()
        .map(2, &handle(other_len, 1, other.uuid(), &[]), Some(other_fd))
        .unwrap();
    let host_fd = Some(host.fd().try_clone().unwrap());
    link.regions()
        .unwrap()
        .map(3, &8192_u64.to_le_bytes(), host_fd)
        .unwrap();

    refused(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(1, len - 10, 11)]),
        "reach past",
    );
    refused(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(1, (1 << 48) - 1, u64::MAX)]),
        "reach past",
    );
    refused(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(1, 0, 8), span(2, 0, 8)]),
        "several places",
    );
    refused(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(1, 0, 8), span(3, 0, 8)]),
        "several places",
    );
    refused(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(3, 0, 8), span(1, 0, 8)]),
        "several places",
    );
    refused(
        link.regions().unwrap().resolve(0, 1, vec![span(4, 0, 8)]),
        "not announced",
    );

    fake::write(memory.address() + 128, b"seen");
    let found = link
        .regions()
        .unwrap()
        .resolve(0, 1, vec![span(1, 128, 4), span(0, 0, 0)])
        .unwrap();
    assert_eq!(fake::read(found.buffers[0].data as u64, 4), b"seen");
    assert_eq!(found.gpu.as_ref().unwrap().device.ordinal(), 0);
    let elsewhere = link
        .regions()
        .unwrap()
        .resolve(0, 2, vec![span(2, 0, 4)])
        .unwrap();
    assert_eq!(elsewhere.gpu.unwrap().device.ordinal(), 1);
    // Mapped memory stays mapped after the region is retired.
    assert_eq!(link.regions().unwrap().unmap(1).unwrap(), Unmapped::Later);
    assert_eq!(fake::read(found.buffers[0].data as u64, 4), b"seen");
}

#[test]
fn a_descriptor_belongs_to_the_region_that_it_was_sent_with() {
    run("hostile-order", &[]);
}

/// A legacy handle has no descriptor, and may be read together with a later region's message.
fn descriptors_find_their_message() {
    let (mut pair, device) = client();
    let (_memory, fd, len) = lendable(&device);
    let region = |id, handle| Control::Region { id, handle }.encode();
    let uuid = device.uuid();
    let messages = [
        (region(1, handle(len, 2, uuid, &[7; 64])), None),
        (region(2, handle(len, 1, uuid, &[])), Some(Arc::new(fd))),
        (region(3, handle(len, 2, uuid, &[8; 64])), None),
    ];
    pair.client.begin_stream(0, 0);
    for (bytes, fd) in messages {
        pair.server.send(Outgoing::Control { bytes, fd }).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match pair.client.receive_any().unwrap() {
            Some(Incoming::Control { bytes, fd }) => seen.push((bytes[1], fd.is_some())),
            Some(other) => panic!("{other:?}"),
            None => {
                let ready = pair.client.identity().readiness.clone();
                let mut fds = [PollFd::new(&ready.fd, PollFlags::IN)];
                let wait = Timespec::try_from(Duration::from_millis(100)).unwrap();
                poll(&mut fds, Some(&wait)).unwrap();
            }
        }
    }
    assert_eq!(seen, [(1, false), (2, true), (3, false)]);
}

#[test]
fn a_client_that_asked_for_the_host_uses_no_gpu_for_a_hostile_server() {
    run("hostile-unasked", &[("FAKE_CUDA_DEVICES", "2")]);
}

/// A context takes much memory and time: a server must not force a client to make one.
fn nothing_unasked_is_opened() {
    let gpus = uuids().unwrap();
    let no_memory = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let mut pair = pair();
    // Earlier requests no longer count.
    pair.client.table().unwrap().accept_gpus(&gpus);
    pair.client.table().unwrap().accept_gpus(&gpus[1..]);
    for (kind, legacy, fd) in [(1, &[][..], Some(no_memory())), (2, &[7; 64], None)] {
        let handle = handle(2 << 20, kind, &gpus[0], legacy);
        refused(
            pair.client.regions().unwrap().map(1, &handle, fd),
            "did not name",
        );
    }
    // The same for a whole client.
    let uri = format!("shm:@dipc-cuda-unasked-{}", std::process::id());
    let (shm, parsed) = (
        transport::by_scheme("shm").unwrap(),
        Uri::parse(&uri).unwrap(),
    );
    let mut listener = shm.listen(&parsed, &LinkOptions::default()).unwrap();
    let server = std::thread::spawn(move || {
        let mut link = loop {
            match listener.accept().unwrap() {
                Some(link) => break link,
                None => std::thread::yield_now(),
            }
        };
        while link.receive_any().unwrap().is_none() {
            std::thread::yield_now();
        }
        let handle = handle(2 << 20, 2, &gpus[0], &[7; 64]);
        let bytes = Control::Region { id: 1, handle }.encode();
        link.send(Outgoing::Control { bytes, fd: None }).unwrap();
        link
    });
    let client = Client::new(ClientOptions::default()).unwrap();
    let answer = client.get(&[&uri], b"t", &GetOptions::default(), None);
    refused(answer, "did not name");
    drop(server.join().unwrap());
    assert_eq!(fake::Live::now().contexts, 0);
}

#[test]
fn memory_is_opened_when_a_body_lies_in_it() {
    run("hostile-unused", &[]);
}

/// A client that gets regions and uses none, for example after a cancel, makes no context.
fn nothing_unused_is_opened() {
    let gpus = uuids().unwrap();
    let no_memory = || Some(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    let host = Region::create(8192, "dipc-test").unwrap();
    let mut pair = pair();
    let link = &mut pair.client;
    link.table().unwrap().accept_gpus(&gpus);
    let of = |kind, rest: &[u8]| handle(2 << 20, kind, &gpus[0], rest);
    link.regions()
        .unwrap()
        .map(1, &of(1, &[]), no_memory())
        .unwrap();
    link.regions()
        .unwrap()
        .map(2, &of(2, &[7; 64]), None)
        .unwrap();
    let host_fd = Some(host.fd().try_clone().unwrap());
    link.regions()
        .unwrap()
        .map(5, &8192_u64.to_le_bytes(), host_fd)
        .unwrap();
    drop(
        link.regions()
            .unwrap()
            .resolve(0, 1, vec![span(5, 0, 8)])
            .unwrap(),
    );
    assert!(link.regions().unwrap().is_sound());
    // What an earlier request named counts no more.
    link.table().unwrap().accept_gpus(&[]);
    refused(
        link.regions().unwrap().resolve(0, 1, vec![span(2, 0, 8)]),
        "did not name",
    );
    link.table().unwrap().accept_gpus(&gpus);
    for id in [1, 2] {
        assert_eq!(link.regions().unwrap().unmap(id).unwrap(), Unmapped::Now);
    }
    assert_eq!(fake::Live::now().contexts, 0);
    assert_eq!(fake::count("cuIpcOpenMemHandle_v2"), 0);
    assert_eq!(fake::Live::now().opened, 0);
}
