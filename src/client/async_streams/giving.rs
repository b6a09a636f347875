//! The thread that calls the handlers of a client.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::{HashMap, HashMapExt as _};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::flow::{Arrival, Consumer, Inbox};
use crate::arrow::OwnedDeviceArray;
use crate::arrow::async_stream::{AsyncHandler, Refused};
use crate::arrow::format::write_metadata;
use crate::arrow::stream::ArrayReader as _;
use crate::client::threads::caught;
use crate::client::{NextBatch, Stream};
use crate::error::{Error, Result};

/// The most arrays that a stream gives before it is the next one's turn.
const AT_ONCE: usize = 16;
/// Events that are read at once.
const MOST_EVENTS: usize = 64;
/// The bell's key in the epoll instance. Streams count from 0.
const BELL: u64 = u64::MAX;

/// What the thread works on.
pub(super) struct Giver {
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    streams: HashMap<u64, Giving>,
    /// Streams to look at.
    ready: VecDeque<u64>,
    /// The client was freed.
    is_closed: bool,
}

impl Giver {
    pub(super) fn new(inbox: Arc<Inbox>) -> Result<Self> {
        let failed = |errno| Error::os("cannot make a descriptor for asynchronous streams", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let data = EventData::new_u64(BELL);
        epoll::add(&epoll, &inbox.bell, data, EventFlags::IN).map_err(failed)?;
        Ok(Self {
            inbox,
            epoll,
            streams: HashMap::new(),
            ready: VecDeque::new(),
            is_closed: false,
        })
    }

    /// Works until the client was freed and its last stream is over.
    pub(super) fn run(&mut self) {
        self.inbox.read_here();
        let mut arrivals = Vec::new();
        let mut events = Vec::with_capacity(MOST_EVENTS);
        loop {
            self.inbox.read(&mut arrivals);
            for arrival in arrivals.drain(..) {
                self.hear(arrival);
            }
            // Those that become ready meanwhile come behind new arrivals.
            for _ in 0..self.ready.len() {
                if let Some(id) = self.ready.pop_front() {
                    self.look(id);
                }
            }
            if self.is_closed && self.streams.is_empty() {
                return;
            }
            self.wait(&mut events);
        }
    }

    fn hear(&mut self, arrival: Arrival) {
        let id = match arrival {
            Arrival::Asked(consumer, handler) => {
                let id = consumer.id;
                self.streams.insert(id, Giving::new(consumer, handler));
                id
            }
            Arrival::Answered(id, answer) => {
                // A consumer that has cancelled is gone, and its stream ends here.
                if let Some(giving) = self.streams.get_mut(&id) {
                    giving.answer = Some(*answer);
                }
                id
            }
            Arrival::Said(id) => {
                if let Some(giving) = self.streams.get(&id) {
                    giving.consumer.heard();
                }
                id
            }
            Arrival::NoMore => {
                self.is_closed = true;
                return;
            }
        };
        self.ready.push_back(id);
    }

    /// Goes on with a stream.
    fn look(&mut self, id: u64) {
        let Some(giving) = self.streams.get_mut(&id) else {
            return;
        };
        let is_over = match giving.turn() {
            Turn::More => {
                self.ready.push_back(id);
                false
            }
            Turn::Sleep => match giving.watch(&self.epoll) {
                Ok(()) => false,
                Err(error) => {
                    giving.tell(&error);
                    true
                }
            },
            Turn::Enough => {
                giving.unwatch(&self.epoll);
                false
            }
            Turn::Over => true,
        };
        if is_over {
            giving.unwatch(&self.epoll);
            let over = self.streams.remove(&id);
            // The drop calls the host.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(over)));
            self.inbox.close();
        }
    }

    /// Sleeps until a stream has something, or something arrives.
    fn wait(&mut self, events: &mut Vec<Event>) {
        let is_busy = !self.ready.is_empty() || self.inbox.has_more();
        let now = Timespec::default();
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        let waited = epoll::wait(&self.epoll, room, is_busy.then_some(&now));
        if let Err(errno) = waited
            && errno != rustix::io::Errno::INTR
        {
            tracing::error!("cannot wait for asynchronous streams: {errno}");
        }
        for event in events.drain(..) {
            match event.data.u64() {
                BELL => self.inbox.bell.silence(),
                id => self.ready.push_back(id),
            }
        }
    }
}

/// How to go on with a stream.
enum Turn {
    /// Look at it again, after the others.
    More,
    /// Wait for the server.
    Sleep,
    /// Wait for the consumer.
    Enough,
    /// The handler is to be released.
    Over,
}

/// A stream and its handler. Their drops run in this order: the stream ends before the release.
struct Giving {
    /// An array that the consumer does not want yet, with its metadata. One array is read ahead, so
    /// that a consumer that wants none learns of the end.
    ahead: Option<(OwnedDeviceArray, Option<Vec<u8>>)>,
    stream: Option<Stream>,
    /// The answer of the server, until the consumer knows it.
    answer: Option<Result<Stream>>,
    is_watched: bool,
    consumer: Arc<Consumer>,
    handler: AsyncHandler,
}

impl Giving {
    fn new(consumer: Arc<Consumer>, handler: AsyncHandler) -> Self {
        Self {
            ahead: None,
            stream: None,
            answer: None,
            is_watched: false,
            consumer,
            handler,
        }
    }

    /// Gives what is there and wanted.
    fn turn(&mut self) -> Turn {
        self.consumer.is_served.store(true, Ordering::Release);
        let turn = caught(|| self.give());
        self.consumer.is_served.store(false, Ordering::Release);
        turn.unwrap_or_else(|error| {
            self.tell(&error);
            Turn::Over
        })
    }

    /// Tells the consumer of a failure, unless it has cancelled. The metadata has the number of the
    /// status, and then the headers of the answer.
    fn tell(&mut self, error: &Error) {
        if self.consumer.has_cancelled() {
            return;
        }
        let status = error.status().code().to_string();
        let headers = self.stream.as_ref().map(Stream::headers);
        let headers = headers.unwrap_or_default();
        let mut pairs = vec![("dipc_status", status.as_bytes())];
        pairs.extend(headers.iter());
        self.handler
            .on_error(error, write_metadata(&pairs).as_ref());
    }

    fn give(&mut self) -> Result<Turn> {
        for _ in 0..AT_ONCE {
            if self.consumer.has_cancelled() {
                return Ok(Turn::Over);
            }
            if self.consumer.is_wrong() {
                let text = "the consumer has asked for fewer than one array";
                return Err(Error::invalid_argument(text));
            }
            if let Some(answer) = self.answer.take()
                && self.begin(answer?)?.is_err()
            {
                return Ok(Turn::Over);
            }
            let Some(stream) = &mut self.stream else {
                return Ok(Turn::Enough);
            };
            if self.ahead.is_none() {
                match stream.try_next()? {
                    NextBatch::Batch(array) => {
                        let metadata = encoded(stream.custom_metadata())?;
                        self.ahead = Some((array, metadata));
                    }
                    NextBatch::NotYet => return Ok(Turn::Sleep),
                    NextBatch::End => {
                        self.handler.on_end();
                        return Ok(Turn::Over);
                    }
                }
            }
            if !self.consumer.take_one() {
                return Ok(Turn::Enough);
            }
            if let Some((array, metadata)) = self.ahead.take()
                && self.handler.on_array(array, metadata.as_ref()).is_err()
            {
                return Ok(Turn::Over);
            }
        }
        Ok(Turn::More)
    }

    /// Tells the consumer of the stream.
    fn begin(&mut self, stream: Stream) -> Result<Refused> {
        let stream = self.stream.insert(stream);
        let schema = stream.schema()?;
        let headers = stream.headers();
        let metadata = encoded(&headers.iter().collect::<Vec<_>>())?;
        let device_type = stream.device_type();
        Ok(self.handler.on_schema(schema, device_type, metadata))
    }

    /// Has the thread wake when the stream may have something.
    fn watch(&mut self, epoll: &OwnedFd) -> Result<()> {
        if let (Some(stream), false) = (&mut self.stream, self.is_watched) {
            let failed = |errno| Error::os("cannot watch an asynchronous stream", errno);
            let data = EventData::new_u64(self.consumer.id);
            // For the first sleep the descriptor is made; it is readable at first.
            epoll::add(epoll, stream.fd()?, data, EventFlags::IN).map_err(failed)?;
            self.is_watched = true;
        }
        Ok(())
    }

    /// The stream's descriptor stays readable while nobody reads the stream.
    fn unwatch(&mut self, epoll: &OwnedFd) {
        if std::mem::take(&mut self.is_watched)
            && let Some(stream) = &mut self.stream
            && let Ok(fd) = stream.fd()
        {
            let _ = epoll::delete(epoll, fd);
        }
    }
}

/// Encodes metadata as in `ArrowSchema.metadata`; `None` where there is none.
fn encoded(pairs: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<Option<Vec<u8>>> {
    if pairs.is_empty() {
        return Ok(None);
    }
    let text = "metadata larger than Arrow's C interface can say";
    let bytes = write_metadata(pairs).ok_or_else(|| Error::unsupported(text))?;
    Ok(Some(bytes))
}
