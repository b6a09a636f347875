//! What a connection at a client asks of its I/O thread.

use super::*;
use crate::proto::Uri;
use crate::transport::{LinkOptions, by_scheme};

/// Promise of [`FetchLink::free`]: it is said by the I/O thread where another thread has the
/// connection, however long, and releases that come meanwhile, in any number, ask for that once.
#[test]
fn releases_ask_the_io_thread_once() {
    let transport = by_scheme("mem").unwrap();
    let uri = Uri::parse("mem:@releases-ask-once").unwrap();
    let options = LinkOptions::default();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let connection = transport.connect(&uri, &options).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let link = FetchLink::new(connection, Some(9), &io);
    let turn = link.turn(false).unwrap();
    let mut most = 0;
    for seq in 0..5000 {
        link.free([Return::Number { stream: 1, seq }]);
        // Those of a full socket, too.
        link.retry_writing();
        most = most.max(io.waiting());
    }
    // The first release's own, one that is to come soon, and one that tries again.
    assert!(most <= 4, "{most} calls wait");
    drop(turn);
    let mut back = 0;
    while back < 5000 {
        match server.receive().unwrap() {
            Some(Incoming::Control { bytes, .. }) => match Control::decode(&bytes).unwrap() {
                Some(Control::Return { seqs, .. }) => back += seqs.len(),
                other => panic!("{other:?}"),
            },
            Some(_) => panic!("something else than a return"),
            None => std::thread::yield_now(),
        }
    }
}
