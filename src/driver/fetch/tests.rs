//! What a connection at a client asks of its I/O thread.

use super::*;
use crate::driver::io::IoThread;
use crate::proto::{Control, Return, Uri};
use crate::transport::{Incoming, LinkOptions, by_scheme};

/// Promise of [`ClientLink::free`]: it is said by the I/O thread where another thread has the
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
    let mut token = ClientEnd::open(connection, Some(9), &io);
    let link = Arc::clone(token.link());
    let most = token.step(|_, _| {
        let mut most = 0;
        for seq in 0..5000 {
            link.free([Return::Number { stream: 1, seq }]);
            most = most.max(io.waiting());
        }
        most
    });
    // The time of the first release, and the next try of the I/O thread.
    assert!(most <= 4, "{most} calls wait");
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
