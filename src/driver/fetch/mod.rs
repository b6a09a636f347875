//! Streams on their way in, and the connections that they come on.
//!
//! - [`Fetch`] is one stream, turned by the thread that consumes it. It holds the tokens of its
//!   connections.
//! - A stream that its consumer leaves before the end goes to the I/O thread (`left.rs`).

mod bells;
mod decode;
mod left;
mod looking;
mod polling;
mod sides;
mod stream;
mod taken;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub use left::{Home, SILENCE_TIMEOUT};
pub use sides::Sides;
pub use stream::{Ending, Retry, Stream};

use crate::arrow::decode::{DecodeOptions, DecodedBatch, Decoder, Level, ReceivedBody};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::device::cuda::Device;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::end::{End, EndLink, StreamGpus};
use crate::driver::figures::StreamStats;
use crate::driver::packed::PackedBody;
use crate::driver::turning::Turner;
use crate::driver::waiting::{Cause, Looks};
use crate::error::{Error, Result};
use crate::proto::{Header, Headers, IncomingStream, Receiver, ReceiverConfig, Rest, Timestamp};
use taken::{Look, Taken};

/// What a call that does not wait finds for the consumer.
#[derive(Debug)]
pub enum NextBatch<T> {
    /// The next batch.
    Batch(T),
    /// The end of the stream.
    End,
    /// Nothing has come yet.
    NotYet,
}

/// Who sends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamSource {
    Server,
    /// A client. Its connection knows this state of the server's host.
    Client(HostState),
}

/// What the host of a server does with the stream of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    /// The host has something to do.
    Works,
    /// The host waits for the next batch.
    Waits,
}

/// Dictionaries that came as bytes, before it was known where arrays are.
#[derive(Default)]
struct EarlyMessages {
    messages: Vec<(Header, ReceivedBody)>,
    /// How much memory they take.
    bytes: u64,
}

/// The connections of a stream.
pub type Connections = Sides<Turner<End>>;

/// One stream on its way in.
pub struct Fetch {
    connections: Connections,
    decoder: Option<Decoder>,
    decode: DecodeOptions,
    source: StreamSource,
    /// The time by which the stream must have ended.
    deadline: Option<Timestamp>,
    /// Where arrays shall be. [`Target::AsSent`] until the place of the sender's arrays is known.
    target: Target,
    /// `Some` while arrays shall be on the server's GPU, until the first lent body shows which GPU
    /// here is meant.
    early: Option<EarlyMessages>,
    /// The message that the consumer is handed next.
    taken: Option<Taken>,
    /// How long to look for messages before sleeping.
    spin: Duration,
    looks: Looks,
    /// Rings when another thread has read something for this stream: the connection's other stream
    /// in an exchange, or the I/O thread for a guest.
    bell: Option<Arc<Bell>>,
    /// Why the connections are looked at next. [`Cause::Ready`]: a server's process has ended. The
    /// last messages are then read, and nothing is waited for.
    cause: Cause,
    stats: StreamStats,
    /// Why the stream is over, if it did not end well.
    failed: Option<Error>,
}

impl Fetch {
    /// Asks for the stream. An error comes with the connections, on which nothing was asked. The
    /// stream is boxed, because it is large and is handed on several times.
    pub fn start(
        config: ReceiverConfig,
        connections: Connections,
        decode: DecodeOptions,
        target: Target,
        spin: Duration,
    ) -> Result<Box<Self>, (Error, Connections)> {
        let gpus = config.request.gpus.clone();
        let most_bytes = config.request.credit.bytes;
        let prepared = gpu_of(target, decode.level)
            .and_then(|gpu| Receiver::new(config).map(|receiver| (gpu, receiver)));
        let (gpu, mut receiver) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, connections)),
        };
        receiver.start(clock::now());
        let gpus = StreamGpus {
            packed: gpu.as_ref(),
            lent: &gpus,
        };
        let mut fetch = Self::new(&receiver, connections, decode, target, spin);
        if let Some(data) = &mut fetch.connections.data {
            data.step(|end, _| end.begin_bodies(gpus, most_bytes));
        }
        fetch.begin(receiver, gpus, 0);
        Ok(fetch)
    }

    /// Reads the server's stream of an exchange. The other holder of `connection` asks for the
    /// stream.
    ///
    /// # Errors
    ///
    /// Those of the configuration; `OutOfResources`.
    pub fn of_exchange(
        config: ReceiverConfig,
        connection: Turner<End>,
        decode: DecodeOptions,
        spin: Duration,
    ) -> Result<Box<Self>> {
        let early_bytes = config.request.credit.bytes;
        let receiver = Receiver::of_exchange(config, clock::now())?;
        let connections = Sides::one(connection);
        let bell = Arc::new(Bell::new()?);
        let mut fetch = Self::new(&receiver, connections, decode, Target::Host, spin);
        fetch.share(bell);
        fetch.begin(receiver, StreamGpus::default(), early_bytes);
        fetch.leave();
        Ok(fetch)
    }

    /// Waits for the server's first word, which says whether the connection carries many streams.
    /// If it does, the stream becomes a guest.
    ///
    /// # Errors
    ///
    /// As [`wait_for_schema`](Self::wait_for_schema).
    pub fn wait_for_streams(&mut self, cancel: Option<&Cancel>) -> Result<bool> {
        loop {
            if let Some(is_many) = self.find_streams()? {
                return Ok(is_many);
            }
            if !self.look(Look::Wait) {
                self.wait(Look::Wait, cancel)?;
            }
        }
    }

    /// Becomes a guest of the connection, which carries many streams: see [`Turner::become_guest`].
    pub fn become_guest(&mut self) {
        let metadata = &mut self.connections.metadata;
        metadata.become_guest();
        metadata.set_bell(self.bell.clone());
    }

    /// The answer of [`wait_for_streams`](Self::wait_for_streams), if it is known yet.
    fn find_streams(&mut self) -> Result<Option<bool>> {
        let metadata = &mut self.connections.metadata;
        if metadata.link().inspect(|end| end.session.is_many()) {
            self.become_guest();
            return Ok(Some(true));
        }
        // A refusal does not say whether the server takes many streams.
        self.check()?;
        if self.stream(IncomingStream::is_answered) {
            let metadata = &mut self.connections.metadata;
            metadata.step(|end, _| end.session.keep_one());
            return Ok(Some(false));
        }
        Ok(None)
    }

    /// Reads the stream that a client sends over `connection`. An error comes with the connection.
    pub fn of_client(
        config: ReceiverConfig,
        connection: Turner<End>,
        decode: DecodeOptions,
    ) -> Result<Box<Self>, (Error, Turner<End>)> {
        let early_bytes = config.request.credit.bytes;
        let receiver = match Receiver::of_client(config, clock::now()) {
            Ok(receiver) => receiver,
            Err(error) => return Err((error, connection)),
        };
        let (connections, spin) = (Sides::one(connection), Duration::ZERO);
        let mut fetch = Self::new(&receiver, connections, decode, Target::Host, spin);
        fetch.begin(receiver, StreamGpus::default(), early_bytes);
        // Rule Q11: the connection is read whatever the host does.
        fetch.connections.metadata.step_to_host(|_, _| ());
        Ok(fetch)
    }

    fn new(
        receiver: &Receiver<PackedBody>,
        connections: Connections,
        decode: DecodeOptions,
        target: Target,
        spin: Duration,
    ) -> Box<Self> {
        Box::new(Self {
            connections,
            decoder: None,
            decode,
            source: match receiver.is_of_client() {
                true => StreamSource::Client(HostState::Works),
                false => StreamSource::Server,
            },
            deadline: receiver.deadline(),
            target,
            early: None,
            taken: None,
            spin,
            looks: Looks::default(),
            bell: None,
            cause: Cause::Woken,
            stats: StreamStats::default(),
            failed: None,
        })
    }

    /// Hands the stream to its connection.
    fn begin(
        &mut self,
        mut receiver: Receiver<PackedBody>,
        gpus: StreamGpus<'_>,
        early_bytes: u64,
    ) {
        receiver.limit_messages(self.decode.body_limit(), self.decode.message_limit);
        let is_ordered = |it: &Turner<End>| it.link().profile().is_ordered;
        let is_ordered = self.connections.iter().all(is_ordered);
        let stream = IncomingStream::new(receiver, is_ordered);
        let number = self.number();
        (self.connections.metadata).step(|end, effects| {
            end.begin_receiving(number, stream, gpus, early_bytes, effects);
        });
        self.hand_on();
    }

    /// Whether every message has come, and the consumer has taken it.
    pub fn is_complete(&self) -> bool {
        self.failed.is_none() && self.taken.is_none() && self.has_all()
    }

    /// Whether every message has come and was taken.
    fn has_all(&self) -> bool {
        self.stream(IncomingStream::is_complete)
    }

    /// The rule that the sender broke, or why the sender is gone; known after the end of the stream
    /// too.
    pub fn fault(&self) -> Option<Error> {
        self.stream(IncomingStream::fault)
    }

    /// Figures so far.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Whether the stream failed because this process cannot open the server's memory on a GPU.
    pub fn misses_gpus(&self) -> bool {
        self.bodies().interfere(|end, _| end.misses_gpus())
    }

    /// Headers of the server's answer, so far.
    pub fn answer_headers(&self) -> Headers {
        self.stream(|stream| stream.answer_headers().clone())
    }

    /// The connection of the headers.
    pub fn connection(&self) -> &Arc<EndLink> {
        self.link()
    }

    /// Number of the stream on its connection.
    pub(super) fn number(&self) -> u32 {
        self.connections.metadata.number()
    }

    /// Who the server is.
    pub fn peer(&self) -> &str {
        self.link().peer()
    }

    fn bodies(&self) -> &Arc<EndLink> {
        self.connections.bodies().link()
    }

    /// Whether the server has said its last word on this stream.
    pub fn is_settled(&self) -> bool {
        left::rest(&self.links(), self.number()) == Rest::Nothing
    }

    /// Where arrays will be, once the schema is there.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The decoder of messages into arrays, once the schema is there.
    pub fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// The schema message, once it is there.
    pub fn schema(&self) -> Option<Arc<Header>> {
        self.stream(|stream| stream.schema().cloned())
    }

    /// Waits for the schema. Fails with the error that ended the stream.
    pub fn wait_for_schema(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        while !self.find_schema(cancel)? {
            self.wait(Look::Wait, cancel)?;
        }
        Ok(())
    }

    /// Whether the schema is there. In an exchange it may come late.
    fn find_schema(&mut self, cancel: Option<&Cancel>) -> Result<bool> {
        while self.decoder.is_none() {
            if let Some(header) = self.schema() {
                // Rule E2: STREAM came before the schema.
                let target = self.settle_target();
                let follows = self.target == Target::AsSent && target != Target::Host;
                self.early = follows.then(EarlyMessages::default);
                self.target = target;
                self.note_host(HostState::Works);
                let known = &self.link().context.schema;
                let decoder = Decoder::with_known(known, &header, self.decode, self.target);
                self.decoder = Some(decoder.map_err(|error| self.abort(error))?);
                break;
            }
            if let Some(Err(error)) = cancel.map(Cancel::check) {
                // An error counts even if the answer has already come.
                return Err(self.abort(error));
            }
            if self.is_guest() && !self.has_news() {
                return Ok(false);
            }
            self.check()?;
            if !self.look(Look::Wait) {
                self.note_host(HostState::Waits);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the next record batch, or the end. Fails with the error that ended the stream;
    /// every later call fails with the same error.
    pub fn next(&mut self, cancel: Option<&Cancel>) -> Result<NextBatch<DecodedBatch>> {
        let next = self.wait_for_next(cancel);
        self.leave();
        next
    }

    fn wait_for_next(&mut self, cancel: Option<&Cancel>) -> Result<NextBatch<DecodedBatch>> {
        while !self.begin_next(cancel)? {
            self.wait(Look::Wait, cancel)?;
        }
        loop {
            match self.find_next(cancel)? {
                NextBatch::NotYet => self.wait(Look::Take, cancel)?,
                found => return Ok(found),
            }
        }
    }

    /// The consumer goes on with something else. Rule Q11: a server still reads a client's stream
    /// during that time.
    pub fn leave(&mut self) {
        // The other holder may sleep on the descriptors, which must announce what comes. The I/O
        // thread looks by itself when it stands in.
        if self.is_guest() {
            return;
        }
        let is_shared = self.bell.is_some();
        if is_shared || self.source != StreamSource::Server {
            for (_, connection) in self.connections.iter_mut() {
                connection.step_to_host(|end, _| is_shared && end.doze());
            }
        }
    }

    /// Whether the schema is there; only then can there be batches.
    fn begin_next(&mut self, cancel: Option<&Cancel>) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.find_schema(cancel)? {
            return Ok(false);
        }
        // Checked even if there are batches that need no wait.
        if let Some(Err(error)) = cancel.map(Cancel::check)
            && !self.has_all()
        {
            return Err(self.abort(error));
        }
        // A consumer that always finds a batch does not wait; its deadline must be checked too.
        if self.deadline.is_some_and(|at| clock::now() >= at) {
            self.change(|stream| stream.handle_timeout(clock::now()));
        }
        Ok(true)
    }

    /// Finds what needs no wait.
    fn find_next(&mut self, cancel: Option<&Cancel>) -> Result<NextBatch<DecodedBatch>> {
        loop {
            if self.taken.is_none() {
                self.look(Look::Take);
            }
            if let Some(taken) = self.taken.take() {
                let batch = self.decode(taken, cancel);
                if let Some(batch) = batch.map_err(|error| self.abort(error))? {
                    self.note_host(HostState::Works);
                    return Ok(NextBatch::Batch(batch));
                }
            } else if self.has_all() {
                // The last credit tells a server that waits for a second connection that no such
                // connection will come.
                self.flush_credit();
                return Ok(NextBatch::End);
            } else {
                // Checked after the messages, because what came before a failure is still handed
                // out.
                self.check()?;
                self.note_host(HostState::Waits);
                return Ok(NextBatch::NotYet);
            }
        }
    }

    /// How many batches [`next`](Self::next) gives without waiting for the server. If there are
    /// none, this call first reads what the connections have.
    pub fn batches_here(&mut self) -> usize {
        let here = self.stream(IncomingStream::batches_here);
        if here > 0 || self.failed.is_some() || self.has_all() {
            return here;
        }
        // The caller may wait for something else next. Then only the descriptor announces the end
        // of the connection.
        self.doze();
        self.look(Look::Count);
        self.stream(IncomingStream::batches_here)
    }

    /// Ends the stream, at its end or early. `home` gets the connections, at once or when the
    /// server has said its last word, unless they can no longer be used.
    pub fn end(mut self: Box<Self>, home: impl FnOnce(Connections) + Send + 'static) {
        if self.is_guest() {
            let is_whole = self.failed.is_none() && self.taken.is_none();
            return left::leave_one(self.connections.metadata, is_whole);
        }
        // Also at a good end: what was lent for batches that nobody took is given back.
        self.cancel();
        let rest = left::rest(&self.links(), self.number());
        match rest {
            Rest::Nothing => {
                for (_, connection) in self.connections.iter_mut() {
                    connection.step(|end, _| end.end_receiving(0));
                }
                home(self.connections);
            }
            Rest::Unusable => left::close(&self.links()),
            // The decoder is dropped on this thread, because the drop waits for work on a GPU.
            Rest::More | Rest::Late => left::leave(self.connections, Box::new(home)),
        }
    }

    fn cancel(&mut self) {
        if self.failed.is_none() && self.has_all() {
            // A server that sends only the bodies learns of the end by the last credit.
            self.flush_credit();
            return;
        }
        self.failed
            .get_or_insert_with(|| Error::cancelled("the stream was cancelled by its consumer"));
        self.change(IncomingStream::cancel);
    }

    fn check(&mut self) -> Result<()> {
        match self.change(|stream| stream.error().cloned()) {
            Some(error) => Err(self.failed.get_or_insert(error).clone()),
            None => Ok(()),
        }
    }

    fn abort(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        self.cancel();
        error
    }
}

/// The GPU that packed bodies are received into. `None` at a level that checks value by value: the
/// host does that check, so a body on a GPU would have to come back first.
fn gpu_of(target: Target, level: Level) -> Result<Option<Arc<Device>>> {
    match (target, level) {
        (Target::Cuda(ordinal), Level::Structure) => Ok(Some(Device::get(ordinal.into())?)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
