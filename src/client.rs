//! A client: connections kept for the next stream, and the streams fetched over them.

mod again;
mod draining;
mod idle;
mod ids;

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;

use again::Again;
use draining::Draining;
use idle::Pool;

use crate::arrow::decode::{DecodeOptions, Decoder, Level};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::device::cuda::later;
use crate::driver::clock;
use crate::driver::fetch::Fetch;
pub use crate::driver::fetch::StreamStats;
use crate::driver::io::{IoThread, Source};
use crate::driver::link::FetchLink;
use crate::driver::telling::{Account, shown};
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{
    AnswerLimit, Credit, FEATURE_PENDING, FEATURE_REPEAT, Header, ReceiverConfig, Request,
    SideConfig, Uri,
};
use crate::transport::{self, LinkOptions, Settings};
use ids::StreamIds;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Accept servers of every user, not only of this process's own.
    pub any_user: bool,
    /// How long a connection on which no stream is is kept for the next one.
    pub idle_timeout: Duration,
    /// How many of them are kept for each server.
    pub max_idle: usize,
    /// What only one transport knows.
    pub settings: Settings,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            any_user: false,
            idle_timeout: Duration::from_secs(60),
            max_idle: 8,
            settings: Settings::default(),
        }
    }
}

impl ClientOptions {
    fn most_idle(&self) -> usize {
        match self.idle_timeout {
            Duration::ZERO => 0,
            _ => self.max_idle,
        }
    }
}

/// Options of one stream.
#[derive(Debug, Clone)]
pub struct GetOptions {
    /// How long connecting may take, up to the server's first answer: STREAM, ERROR, or PENDING
    /// where those take longer. A baseline server's first answer is the schema, which may take its
    /// time.
    pub connect_timeout: Duration,
    /// How long the server may say nothing while something is waited for; `None`: for ever.
    pub stall_timeout: Option<Duration>,
    /// How far the server may run ahead of what the consumer has taken.
    pub window: Credit,
    /// Most bytes of copies that the server may lend at once; past it bodies travel as bytes.
    pub lent_limit: u64,
    /// Where arrays shall be.
    pub device: Target,
    /// How much of what arrives is checked; `None`: the structure alone from a server of the same
    /// user, everything from others (rule A8).
    pub level: Option<Level>,
    /// Most bytes that one message may take here beside its body; `None`: 16 GiB from a server of
    /// the same user, [`DecodeOptions`]' default from others.
    pub message_limit: Option<u64>,
    /// How long a waiting consumer looks for the stream before it sleeps.
    pub spin: Duration,
    /// Connections for the stream, where the transport can spread bodies over several.
    pub connections: u16,
    /// Number of the schema message: 0, but in tests of the wrap-around (rule M4).
    pub first_seq: u32,
}

impl Default for GetOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            stall_timeout: None,
            window: Credit {
                batches: 16,
                bytes: 256 << 20,
            },
            lent_limit: 1 << 30,
            device: Target::Host,
            level: None,
            message_limit: None,
            spin: Duration::ZERO,
            connections: 1,
            first_seq: 0,
        }
    }
}

impl GetOptions {
    /// What is asked of the decoder of a server's stream.
    pub fn decode(&self, same_user: bool) -> DecodeOptions {
        let (level, limit) = if same_user {
            (Level::Structure, SAME_USER_LIMIT)
        } else {
            let careful = DecodeOptions::default();
            (careful.level, careful.message_limit)
        };
        DecodeOptions {
            level: self.level.unwrap_or(level),
            message_limit: self.message_limit.unwrap_or(limit),
        }
    }
}

/// Most bytes that a message of the same user may take beside its body.
const SAME_USER_LIMIT: u64 = 16 << 30;

/// How long a server that cannot say no is waited for (rule R5).
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Figures of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Streams asked for since the start.
    pub streams: u64,
    /// Connections made since the start.
    pub connections_made: u64,
    /// Connections kept for the next stream.
    pub connections_idle: u64,
}

/// A client. Calls are safe from any thread. Streams and arrays outlive it (rule F6).
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: ClientOptions,
    generation: Generation,
    io: IoThread,
    me: Weak<Self>,
    /// URIs that were read before, by their text: reading one takes longer than asking for a stream.
    known: Mutex<HashMap<String, Arc<[Known]>>>,
    pool: Mutex<Pool>,
    /// A timer is set at which the I/O thread begins to watch the connections kept.
    watching: AtomicBool,
    ids: StreamIds,
    /// Servers whose memory on GPUs cannot be opened here, by URI: they are asked for none.
    closed_gpus: Mutex<HashSet<Arc<str>>>,
    streams: AtomicU64,
    connections: AtomicU64,
}

/// A URI, and by what its connections are found again.
struct Known {
    uri: Uri,
    name: Arc<str>,
}

/// How long a connection may be kept before it is watched.
const UNWATCHED: Duration = Duration::from_millis(100);

/// Most URIs that are kept; then they are read anew.
const MOST_KNOWN: usize = 64;

/// What tells connections apart: the URI, and how many sockets there are.
type Key = (Arc<str>, u16);

/// A connection to a URI, and how it was come by.
struct Connected {
    link: Arc<FetchLink>,
    /// It served an earlier stream, and so may turn out to be dead.
    reused: bool,
    /// Where it goes back to when the stream has ended; `None` for one of two connections, whose
    /// end of stream the server cannot tell.
    key: Option<Key>,
}

impl Client {
    /// Makes a client. It has an I/O thread, which lives as long as any of its connections.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(options: ClientOptions) -> Result<Self> {
        let io = IoThread::start("dipc-client-io", Duration::ZERO)?;
        let ids = StreamIds::new()?;
        let inner = Arc::new_cyclic(|me| Inner {
            options,
            generation: Generation::now(),
            io,
            me: Weak::clone(me),
            known: Mutex::default(),
            pool: Mutex::default(),
            watching: AtomicBool::new(false),
            ids,
            closed_gpus: Mutex::default(),
            streams: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        Ok(Self { inner })
    }

    /// Asks for `ticket` at one URI, or at two: metadata first, then data, unless `dipc_role` in
    /// them says otherwise (rule U3). Returns once the schema is there.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `Unsupported` and `InvalidArgument` where arrays are wanted
    /// on a GPU and there is no driver or no such GPU, `Unreachable`, `Permission`, `Timeout`,
    /// `NotFound` for an unknown ticket, `Busy`, `Cancelled`, and what the provider says.
    pub fn get(
        &self,
        uris: &[&str],
        ticket: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.inner.generation.ensure_same_process()?;
        options.device.ensure_available()?;
        let uris = self.inner.read(uris)?;
        self.inner.streams.fetch_add(1, Ordering::Relaxed);
        match self.inner.ask(&uris, ticket, options, true, cancel) {
            Ok(mut stream) => {
                let peer = stream.fetch.as_deref().map_or("", Fetch::peer);
                stream.account = Account::open("from", ticket, peer);
                Ok(stream)
            }
            Err(error) => {
                let status = error.status().symbol();
                tracing::info!("no stream of {}: {status}: {error}", shown(ticket));
                Err(error)
            }
        }
    }

    /// Figures of the client.
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            streams: self.inner.streams.load(Ordering::Relaxed),
            connections_made: self.inner.connections.load(Ordering::Relaxed),
            connections_idle: self.inner.pool.lock().len(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.inner.generation.ensure_same_process().is_err() {
            // In a forked child locks may be held for ever: the copy is left as it is.
            let _left = ManuallyDrop::new(Arc::clone(&self.inner));
            return;
        }
        let kept = self.inner.pool.lock().take_all();
        for link in kept {
            // Arrays may hold it; what the server says meanwhile is answered.
            link.retire();
        }
        // Memory of GPUs that was mapped for streams that are over is back with the driver, unless a device
        // is stuck.
        later::wait(later::PATIENCE);
    }
}

impl Inner {
    fn read(&self, texts: &[&str]) -> Result<Arc<[Known]>> {
        if let [text] = texts
            && let Some(known) = self.known.lock().get(*text)
        {
            return Ok(Arc::clone(known));
        }
        let uris = Uri::parse_all(texts)?.into_iter();
        let known: Arc<[Known]> = uris
            .map(|uri| Known {
                name: uri.to_string().into(),
                uri,
            })
            .collect();
        if let [text] = texts {
            let mut all = self.known.lock();
            if all.len() >= MOST_KNOWN {
                all.clear();
            }
            all.insert((*text).to_owned(), Arc::clone(&known));
        }
        Ok(known)
    }

    /// `on_gpus`: bodies may lie in memory on GPUs that the server lends, where it can.
    fn ask(
        self: &Arc<Self>,
        uris: &Arc<[Known]>,
        ticket: &[u8],
        options: &GetOptions,
        on_gpus: bool,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let (metadata, data) = match &**uris {
            [metadata] => (metadata, None),
            [metadata, data] => (metadata, Some(data)),
            _ => return Err(Error::invalid_argument("a stream has one URI, or two")),
        };
        let bodies = data.unwrap_or(metadata);
        let gpus = if on_gpus && !self.closed_gpus.lock().contains(&bodies.name) {
            options.device.reachable_gpus()?
        } else {
            Vec::new()
        };
        let asks_for_gpus = !gpus.is_empty();
        let mut stream = loop {
            let request = Request {
                lent_limit: options.lent_limit,
                stream_id: self.ids.next(data.is_some())?,
                device_type: options.device.device_type(),
                gpus: gpus.clone(),
                ..Request::new(ticket, options.window)
            };
            let mut start = clock::now();
            let first = self.connect(metadata, data.is_none(), options, cancel)?;
            let second = data
                .map(|known| {
                    start = clock::now();
                    self.connect(known, false, options, cancel)
                })
                .transpose()?;
            let answer = AnswerLimit {
                by: start.saturating_add(options.connect_timeout),
                timeout: options.connect_timeout,
            };
            let reused = first.reused;
            let second = data.map(|known| &known.uri).zip(second);
            match self.begin(
                &metadata.uri,
                first,
                second,
                (request, answer),
                options,
                cancel,
            ) {
                // The server may have gone, and come back, since the connection was last used. What it
                // has said itself it would say again.
                Err((error, false))
                    if reused
                        && matches!(error.status(), Status::Disconnected | Status::Protocol) => {}
                outcome => break outcome.map_err(|(error, _)| error)?,
            }
        };
        if asks_for_gpus {
            stream.again = Some(Box::new(Again::new(self, uris, ticket, options)));
        }
        Ok(stream)
    }

    fn connect(
        &self,
        known: &Known,
        keep: bool,
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Connected> {
        let uri = &known.uri;
        // Connections made otherwise are other connections.
        let key = (Arc::clone(&known.name), options.connections);
        if keep && let Some(link) = self.pool.lock().take(&key.0, key.1) {
            tracing::debug!(
                "the connection to {} ({}) is used again",
                uri.bare(),
                link.peer()
            );
            return Ok(Connected {
                link,
                reused: true,
                key: Some(key),
            });
        }
        let transport = transport::by_scheme(&uri.scheme)?;
        let link_options = LinkOptions {
            connect_timeout: options.connect_timeout,
            cancel: cancel.cloned(),
            any_user: self.options.any_user,
            unexpected_bytes: options.window.bytes,
            connections: options.connections,
            settings: self.options.settings.clone(),
            ..LinkOptions::default()
        };
        let connection = transport.connect(uri, &link_options)?;
        tracing::debug!(
            "connected to {} ({})",
            uri.bare(),
            connection.identity().peer
        );
        self.connections.fetch_add(1, Ordering::Relaxed);
        let link = FetchLink::new(connection, uri.tags.free_data, &self.io);
        Ok(Connected {
            link,
            reused: false,
            key: keep.then_some(key),
        })
    }

    /// Asks for a stream. An error comes with whether it is the server's answer, after which the
    /// connection serves the next stream.
    fn begin(
        self: &Arc<Self>,
        uri: &Uri,
        metadata: Connected,
        data: Option<(&Uri, Connected)>,
        (mut request, answer): (Request, AnswerLimit),
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream, (Error, bool)> {
        let side = |uri: &Uri| SideConfig {
            tags: uri.tags,
            extension: uri.extension,
        };
        request.features |= FEATURE_PENDING;
        if metadata.link.is_ordered() {
            request.features |= FEATURE_REPEAT;
        }
        let config = ReceiverConfig {
            request,
            metadata: side(uri),
            data: data.as_ref().map(|(uri, _)| side(uri)),
            first_seq: options.first_seq,
            stall_timeout: options.stall_timeout,
            silence_timeout: Some(SILENCE_TIMEOUT),
            answer: Some(answer),
        };
        let same_user = metadata.link.same_user()
            && data
                .as_ref()
                .is_none_or(|(_, connected)| connected.link.same_user());
        let first = Arc::clone(&metadata.link);
        let second = data.map_or_else(|| Arc::clone(&first), |(_, connected)| connected.link);
        let decode = options.decode(same_user);
        let target = options.device;
        let other = (!Arc::ptr_eq(&first, &second)).then(|| Arc::clone(&second));
        let links = [Some(Arc::clone(&first)), other];
        let started = Fetch::start(config, first, second, decode, target, options.spin);
        let mut fetch = started.map_err(|error| {
            self.put_back(links.into_iter().flatten(), metadata.key.as_ref());
            (error, false)
        })?;
        if let Err(error) = fetch.wait_for_schema(cancel) {
            let answered = fetch.is_settled();
            settle(&Arc::downgrade(self), fetch, metadata.key);
            return Err((error, answered));
        }
        let device_type = fetch.target().device_type();
        let (peer, level) = (fetch.peer(), decode.level);
        tracing::debug!("{peer} serves the stream, which is checked at level {level:?}");
        Ok(Stream {
            schema: fetch.schema(),
            decode,
            fetch: Some(fetch),
            generation: self.generation,
            client: Arc::downgrade(self),
            key: metadata.key,
            device_type,
            cancel: cancel.cloned(),
            custom_metadata: Vec::new(),
            stats: StreamStats::default(),
            error: None,
            again: None,
            account: None,
        })
    }

    /// Takes the connections of a stream that is over. One that can serve the next stream is watched a
    /// little later: most often that stream comes first, and the system is spared telling of it.
    fn keep(self: &Arc<Self>, fetch: &mut Fetch, key: Option<Key>) {
        fetch.leave_memory();
        for link in &fetch.links() {
            link.end();
        }
        self.put_back(fetch.links(), key.as_ref());
    }

    /// Takes connections on which no stream is.
    fn put_back(
        self: &Arc<Self>,
        links: impl IntoIterator<Item = Arc<FetchLink>>,
        key: Option<&Key>,
    ) {
        for link in links {
            match key {
                // What could not be opened stays so on its connection.
                Some((uri, sockets)) if link.closed().is_none() && !link.misses_gpus() => {
                    let most = self.options.most_idle();
                    let other = self.pool.lock().keep(uri, *sockets, link, most);
                    if let Some(other) = other {
                        other.retire();
                    }
                    self.watch_soon();
                }
                // Arrays may still need it.
                _ => link.retire(),
            }
        }
    }

    fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }

    fn watch_soon(&self) {
        if !self.watching.swap(true, Ordering::AcqRel) {
            self.io.call_at(clock::after(UNWATCHED), self.source());
        }
    }
}

impl Source for Inner {
    fn ready(&self) {}

    fn timer(&self) {
        // First: what is kept from now on asks for a timer of its own.
        self.watching.store(false, Ordering::Release);
        let time = self.options.idle_timeout;
        let (expired, next) = {
            // Nobody takes a connection out meanwhile.
            let mut pool = self.pool.lock();
            (pool.watch(time), pool.next_look(time))
        };
        if let Some(next) = next {
            self.io.call_at(next, self.source());
        }
        for link in expired {
            link.retire();
        }
    }
}

/// A stream is over for its consumer: its connection serves the next one, at once or when the
/// server has agreed to the end.
fn settle(client: &Weak<Inner>, mut fetch: Box<Fetch>, key: Option<Key>) {
    // Also at a good end: what was lent for batches that nobody took goes back.
    fetch.cancel();
    if fetch.is_settled() {
        match client.upgrade() {
            Some(client) => client.keep(&mut fetch, key),
            None => retire_all(&fetch),
        }
    } else if fetch.is_broken() {
        fetch.close();
    } else {
        // On this thread: it waits for work on a GPU.
        fetch.forget();
        Draining::start(client, fetch, key);
    }
}

/// Watches the connections of a stream that is over and whose client is gone: arrays may still need them,
/// and they end with the last of those.
fn retire_all(fetch: &Fetch) {
    for link in fetch.links() {
        link.end();
        link.retire();
    }
}

/// A stream of record batches. Dropping it before its end cancels it.
pub struct Stream {
    /// `None` once it has ended.
    fetch: Option<Box<Fetch>>,
    generation: Generation,
    client: Weak<Inner>,
    key: Option<Key>,
    schema: Option<Arc<Header>>,
    decode: DecodeOptions,
    device_type: i32,
    cancel: Option<Cancel>,
    custom_metadata: Vec<(String, String)>,
    stats: StreamStats,
    error: Option<Error>,
    /// How to ask without GPUs, until there is an array.
    again: Option<Box<Again>>,
    /// For the log, until it has the stream's end.
    account: Option<Box<Account>>,
}

impl Stream {
    /// Custom metadata of the batch that [`ArrayReader::next`] gave last.
    pub fn custom_metadata(&self) -> &[(String, String)] {
        &self.custom_metadata
    }

    /// Why the stream ended, if it did not end well.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Figures so far.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// How many batches have come and were not handed out: so many are there without waiting for the server. Where
    /// there are none, what the connection has is read first.
    pub fn batches_here(&mut self) -> usize {
        if self.generation.ensure_same_process().is_err() {
            return 0;
        }
        self.fetch.as_deref_mut().map_or(0, Fetch::batches_here)
    }

    /// Has the log say how the stream ended.
    fn tell_end(&mut self, is_whole: bool) {
        let Some(mut account) = self.account.take() else {
            return;
        };
        let stats = self.stats;
        (account.batches, account.rows) = (stats.batches, stats.rows);
        account.bytes = stats.bytes_lent + stats.bytes_received;
        match &self.error {
            Some(error) => account.fail(error.status().code(), error.text()),
            None if is_whole => account.end(),
            None => account.fail(Status::Cancelled.code(), "its consumer has left it"),
        }
    }

    /// `is_whole`: the consumer has had all of it.
    fn end(&mut self, is_whole: bool) {
        let Some(fetch) = self.fetch.take() else {
            return;
        };
        if self.generation.ensure_same_process().is_err() {
            // In a forked child nothing is sent, and locks may be held for ever: the copy is left.
            let _left = ManuallyDrop::new(fetch);
            return;
        }
        self.tell_end(is_whole);
        settle(&self.client, fetch, self.key.take());
    }
}

impl ArrayReader for Stream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        if let Some(decoder) = self.fetch.as_deref().and_then(Fetch::decoder) {
            return Ok(decoder.schema());
        }
        let header = self
            .schema
            .as_ref()
            // Rule M4.
            .ok_or_else(|| Error::protocol("the stream has no schema"))?;
        Ok(Decoder::new(header, self.decode)?.schema())
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.generation.ensure_same_process()?;
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(fetch) = &mut self.fetch else {
            return Ok(None);
        };
        let mut outcome = fetch.next(self.cancel.as_ref());
        self.stats = fetch.stats();
        if let Some(again) = self.again.take()
            && let Err(error) = &outcome
            && error.status() != Status::Disconnected
            && fetch.misses_gpus()
        {
            let error = error.clone();
            outcome = self.go_on_without_gpus(*again, &error);
        }
        match outcome {
            Ok(Some(batch)) => {
                self.custom_metadata = batch.custom_metadata;
                Ok(Some(batch.array))
            }
            Ok(None) => {
                self.end(true);
                Ok(None)
            }
            Err(error) => {
                self.error = Some(error.clone());
                self.end(false);
                Err(error)
            }
        }
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end(false);
    }
}
