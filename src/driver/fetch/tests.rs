//! What a connection at a client asks of its I/O thread.

use super::*;
use crate::driver::io::{IoThread, Source as _};
use crate::driver::turning::Turn as _;
use crate::driver::waiting::RETRY;
use crate::error::Status;
use crate::proto::{Control, Credit, Request, Return, SideConfig, Tags, Uri};
use crate::transport::{Incoming, LinkOptions, Outgoing, by_scheme};

/// Promise of [`EndLink::free`]: if another thread has the connection, however long, the I/O thread
/// sends the returns. Any number of releases in this time asks for that once.
#[test]
fn releases_ask_the_io_thread_once() {
    let transport = by_scheme("mem").unwrap();
    let uri = Uri::parse("mem:@releases-ask-once").unwrap();
    let options = LinkOptions::default();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let connection = transport.connect(&uri, &options).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let mut token = End::open(connection, Tags::DEFAULT, &io, None);
    let link = Arc::clone(token.link());
    let most = token.step(|_, _| {
        let mut most = 0;
        for seq in 0..5000 {
            link.free([Return::Number {
                number: 0,
                stream: 1,
                seq,
            }]);
            most = most.max(io.waiting());
        }
        most
    });
    // The time of the first release, and the next try of the I/O thread.
    assert!(most <= 4, "{most} calls wait");
    let mut back = 0;
    while back < 5000 {
        match server.receive_any().unwrap() {
            Some(Incoming::Control { bytes, .. }) => match Control::decode(&bytes).unwrap() {
                Some(Control::Return { seqs, .. }) => back += seqs.len(),
                other => panic!("{other:?}"),
            },
            Some(_) => panic!("something else than a return"),
            None => std::thread::yield_now(),
        }
    }
}

/// A connection that is over gives nothing back: arrays that outlive it must not keep the I/O
/// thread busy.
#[test]
fn releases_of_a_connection_that_is_over_ask_for_nothing() {
    let transport = by_scheme("mem").unwrap();
    let uri = Uri::parse("mem:@releases-ask-for-nothing").unwrap();
    let options = LinkOptions::default();
    let _listener = transport.listen(&uri, &options).unwrap();
    let connection = transport.connect(&uri, &options).unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let mut token = End::open(connection, Tags::DEFAULT, &io, None);
    // The test calls in place of the thread.
    io.shut_down();
    token.step(|end, effects| end.close(Error::disconnected("the server has gone"), effects));
    let link = Arc::clone(token.link());
    link.free([Return::Number {
        number: 0,
        stream: 1,
        seq: 1,
    }]);
    std::thread::sleep(RETRY * 2);
    let before = io.waiting();
    link.timer();
    assert_eq!(io.waiting(), before, "the same time is asked for again");
}

/// Rule E4: a stream that its consumer has left comes to its end, and the next one can follow,
/// whichever thread has the connection when the server's last word comes.
#[test]
fn a_left_stream_ends_whoever_has_the_connection() {
    let transport = by_scheme("mem").unwrap();
    let uri = Uri::parse("mem:@left-stream").unwrap();
    let options = LinkOptions::default();
    let mut listener = transport.listen(&uri, &options).unwrap();
    let connection = transport.connect(&uri, &options).unwrap();
    let mut server = listener.accept().unwrap().unwrap();
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let connections = Sides::one(End::open(connection, Tags::DEFAULT, &io, None));
    let link = Arc::clone(connections.metadata.link());
    let credit = Credit {
        batches: 4,
        bytes: 1 << 20,
    };
    let asked = Request::new(*b"t", credit);
    let config = ReceiverConfig::new(asked, SideConfig::extended(Tags::DEFAULT));
    let decode = DecodeOptions::default();
    let fetch = Fetch::start(config, connections, decode, Target::Host, Duration::ZERO);
    let fetch = fetch.map_err(|(error, _)| error).unwrap();
    fetch.end(drop);
    let mut holder = link.acquire().unwrap();
    assert!(link.inspect(|end| end.session.first().is_receiving()));
    let bytes = Control::Error {
        status: Status::Cancelled.code(),
        seq: 0,
        text: "left".to_owned(),
        headers: Headers::new(),
    }
    .encode();
    server.send(Outgoing::Control { bytes, fd: None }).unwrap();
    holder.step(|end, effects| end.turn(Cause::Woken, effects));
    assert!(!link.inspect(|end| end.session.first().is_receiving()));
}
