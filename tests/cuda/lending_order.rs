//! The order in which another process may read lent memory, and the limit of lending ahead.

use std::sync::Arc;

use dipc::device::cuda::{Device, Stream};
use dipc::server::{ServerHandle, ServerOptions};

use crate::lending::{all_is_back, nothing_is_left};
use crate::lent_reader::{client, plain};
use crate::producer::{Lies, Producer, Served};
use crate::serving::{address, serve};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("lent-order", events_keep_their_order),
    ("lent-window", bodies_in_place_need_no_window),
];

/// docs/wire.md, READY: an event that is recorded again, for other streams or connections, never
/// completes before the work that a client waits for.
#[test]
fn an_event_never_comes_sooner_than_was_told() {
    run("lent-order", &[]);
}

fn events_keep_their_order() {
    crate::end_on_panic();
    let device = Device::get(0).unwrap();
    let [held, slow] = [(); 2].map(|()| Arc::new(Stream::new(&device).unwrap()));
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    let many: Vec<_> = (0..5).flat_map(|_| plain()).collect();
    for (ticket, stream, batches) in [(&b"many"[..], &held, many), (b"plain", &slow, plain())] {
        let producer = Producer {
            late: Some(Arc::clone(stream)),
            ..Producer::new(Lies::Fd)
        };
        let served = server.serve(ticket, Box::new(Served { producer, batches }));
        served.map_err(|(error, _)| error).unwrap();
    }
    fake::hold(held.raw().cast(), 1);
    // Not ready at its send, but soon after.
    fake::delay(slow.raw().cast(), 20_000);
    let mut other = client(&uri, "stale");
    other.says("done");
    other.succeeds();
    fake::hold(held.raw().cast(), 0);
    drop((held, slow));
    all_is_back(server, "order");
}

/// docs/wire.md, features, in place: a body that is lent in place on a GPU needs no room in the
/// window of bytes.
#[test]
fn bodies_lent_in_place_on_a_gpu_need_no_window() {
    run("lent-window", &[]);
}

fn bodies_in_place_need_no_window() {
    for lies in [Lies::Fd, Lies::Legacy, Lies::Arena] {
        let producer = Producer::new(lies);
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address("shm")).unwrap();
        serve(&server, &producer, &plain());
        let mut other = client(&uri, "window");
        other.says("done");
        other.succeeds();
        nothing_is_left(server, &format!("{lies:?}"));
    }
}
