//! The serving process in the push form: one thread of the program for all streams, without waits.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dipc::Status;
use dipc::arrow::OwnedDeviceArray;
use dipc::arrow::stream::ArrayReader as _;
use dipc::server::{ServerHandle, ServerRequest};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::bench::base::table::{Ring, RingReader};

/// The server's key in the epoll instance. Streams count from 1.
const SERVER: u64 = 0;

/// Most batches that a stream gets before it is the next one's turn.
const AT_ONCE: usize = 16;

/// A stream, and what it is sent next.
struct Pushing {
    request: ServerRequest,
    batches: RingReader,
    next: Option<OwnedDeviceArray>,
}

impl Pushing {
    /// Pushes what there is room for. Gives whether the stream goes on, and whether it is to be
    /// looked at again before the thread sleeps.
    fn push(&mut self) -> Result<(bool, bool)> {
        for _ in 0..AT_ONCE {
            let next = match self.next.take() {
                Some(next) => Some(next),
                None => self.batches.next()?,
            };
            let Some(array) = next else {
                let ended = self.request.finish(Some(Duration::ZERO));
                return Ok((ended.is_err_and(|it| it.status() == Status::Timeout), false));
            };
            match self.request.push(array, None, Some(Duration::ZERO)) {
                Ok(()) => {}
                Err((error, array)) if error.status() == Status::Timeout => {
                    self.next = Some(array);
                    return Ok((true, false));
                }
                // The client has what it wanted.
                Err(_) => return Ok((false, false)),
            }
        }
        Ok((true, true))
    }
}

/// Serves every stream of the server's on this thread, until the server stops. `count`: batches of
/// each stream; `None`: until its client goes.
pub fn run(server: &ServerHandle, ring: &Arc<Ring>, count: Option<u64>) -> Result<()> {
    let watch = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = EventFlags::IN;
    epoll::add(
        &watch,
        server.request_fd(),
        EventData::new_u64(SERVER),
        flags,
    )?;
    let mut streams: HashMap<u64, Pushing> = HashMap::new();
    let (mut numbers, mut ready) = (SERVER + 1.., Vec::new());
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        let at_once = (!ready.is_empty()).then(rustix::event::Timespec::default);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&watch, room, at_once.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let mut now = std::mem::take(&mut ready);
        now.extend(events.iter().map(|event| event.data.u64()));
        for key in now {
            if key == SERVER {
                loop {
                    let request = match server.next_request(Some(Duration::ZERO), None) {
                        Ok(Some(request)) => request,
                        Ok(None) => break,
                        Err(error) if error.status() == Status::Timeout => break,
                        // The server stops.
                        Err(_) => return Ok(()),
                    };
                    let batches = ring.reader(count);
                    if request
                        .start(&ring.schema()?, batches.device_type())
                        .is_err()
                    {
                        continue;
                    }
                    let Some(key) = numbers.next() else { break };
                    // SAFETY: the descriptor is the request's, which lives as long as its stream.
                    let fd = unsafe { BorrowedFd::borrow_raw(request.fd()?) };
                    epoll::add(&watch, fd, EventData::new_u64(key), flags)?;
                    let stream = Pushing {
                        request,
                        batches,
                        next: None,
                    };
                    streams.insert(key, stream);
                    ready.push(key);
                }
                continue;
            }
            let Some(stream) = streams.get_mut(&key) else {
                continue;
            };
            let (goes_on, again) = stream.push()?;
            if !goes_on {
                streams.remove(&key);
            } else if again {
                ready.push(key);
            }
        }
    }
}
