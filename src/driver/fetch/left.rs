//! A stream that its consumer has left. The I/O thread reads it to its end, for the sake of its
//! connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Connections, Sides};
use crate::driver::end::{Afterwards, End, EndLink};
use crate::driver::turning::Turner;
use crate::error::Error;
use crate::proto::{IncomingStream, Rest};

/// How long to wait for a server that has no reason to be silent (rule R5).
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// What to do with the connections once nothing of a stream is under way on them.
pub type Home = Box<dyn FnOnce(Connections) + Send>;

/// Hands the connections of a stream to the I/O thread until the stream is over. The stream keeps
/// them alive even if the client is gone.
pub(super) fn leave(mut connections: Connections, home: Home) {
    let links = connections.map(|it| Arc::clone(it.link()));
    let stream = Arc::clone(&links.metadata);
    let ending = Arc::new(Mutex::new(Some((links, home))));
    // Each connection may be the first one that is over.
    let over = || -> Afterwards {
        let ending = Arc::clone(&ending);
        Box::new(move || {
            let first = ending.lock().take();
            if let Some((links, home)) = first {
                end(&links, home);
            }
        })
    };
    let mut is_cut =
        (connections.metadata).step(|end, _| end.leave_stream(SILENCE_TIMEOUT, over()));
    if let Some(data) = &mut connections.data {
        is_cut |= data.step(|end, _| end.leave_bodies(stream, over()));
    }
    // A connection that was cut meanwhile is not turned again, but it keeps the stream alive: end
    // the stream here.
    if is_cut {
        over()();
    }
}

/// Gives back the connections that can be used again. No lock of a connection is held.
fn end(links: &Sides<Arc<EndLink>>, home: Home) {
    if rest(links, 0) != Rest::Nothing {
        close(links);
        return;
    }
    for link in links.iter() {
        link.interfere(|end, _| end.end_receiving(0));
    }
    // If another thread has the connection meanwhile, that thread keeps it.
    let data = links.data.as_ref().map(|link| link.acquire());
    if let Some(metadata) = links.metadata.acquire()
        && data.as_ref().is_none_or(Option::is_some)
    {
        let data = data.flatten();
        home(Connections { metadata, data });
    }
}

/// What is still to come of a stream. No lock of a connection is held.
pub(super) fn rest(links: &Sides<Arc<EndLink>>, number: u32) -> Rest {
    match links.iter().any(|link| link.is_closed()) {
        true => Rest::Unusable,
        false => links.metadata.inspect(|end| {
            let stream = end.stream(number);
            stream.map_or(Rest::Unusable, |stream| stream.rest())
        }),
    }
}

/// Leaves a stream that shares its connection with others: the I/O thread reads the rest of the
/// stream. `is_whole`: the consumer has taken all that has come; if more is to come, the stream is
/// cancelled. If the peer broke a rule, the connection ends.
pub(super) fn leave_one(mut token: Turner<End>, is_whole: bool) {
    let number = token.number();
    token.step(|end, effects| {
        let stream = end.stream_mut(number).ok();
        if let Some(incoming) = stream.and_then(|stream| stream.incoming_mut()) {
            match is_whole && incoming.is_complete() {
                true => incoming.flush_credit(),
                false => incoming.cancel(),
            }
        }
        end.flush_output(effects);
        let Ok(stream) = end.stream(number) else {
            return;
        };
        match stream.incoming().and_then(IncomingStream::fault) {
            Some(fault) => end.close(fault, effects),
            None if stream.rest() == Rest::Nothing => end.end_receiving(number),
            None => end.leave_one(number, SILENCE_TIMEOUT),
        }
    });
}

/// Cuts the connections of a stream. Arrays handed out stay valid. No lock of a connection is held.
pub(super) fn close(links: &Sides<Arc<EndLink>>) {
    for link in links.iter() {
        let cut = Error::cancelled("the stream on this connection has failed");
        link.interfere(|end, effects| end.close(cut, effects));
    }
}
