//! The state that a client's streams share, and its connections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::HashSet;
use parking_lot::Mutex;

use super::alone::{AloneConnections, AlonePlace};
use super::dial::{DialOptions, key_of, may_share, sides};
use super::ids::StreamIds;
use super::pool::{ConnectionKey, IdleConnection, Pool};
use super::sharing::{Opener, SharedConnections, SharedPlace};
use super::uris::{KnownUri, KnownUris};
use super::{ClientOptions, GetOptions, PutOptions};
use crate::driver::bell::Bell;
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::end::{End, EndLink};
use crate::driver::fetch::{Connections, Fetch};
use crate::driver::io::{IoThread, Source};
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::{AnswerLimit, Timestamp, Uri};
use crate::transport::{self, AccessOptions, Attempt, LinkOptions, ReceivingOptions, checked};

/// The I/O thread begins to watch idle connections after this time. Usually the next stream takes
/// the connection earlier, so that no system call is spent on the watch.
const UNWATCHED: Duration = Duration::from_millis(100);

pub(super) struct ClientCore {
    pub(super) options: ClientOptions,
    pub(super) generation: Generation,
    io: IoThread,
    me: Weak<Self>,
    pub(super) uris: KnownUris,
    pub(super) pool: Mutex<Pool>,
    pub(super) shared: Arc<SharedConnections>,
    alone: AloneConnections,
    /// A timer is set, at which the I/O thread begins to watch idle connections.
    watching: AtomicBool,
    pub(super) ids: StreamIds,
    /// Releases the host's arrays; `None` before the first put.
    callbacks: Mutex<Option<Callbacks>>,
    /// URIs of servers whose GPU memory this process cannot open. Requests to them name no GPU.
    pub(super) closed_gpus: Mutex<HashSet<Arc<str>>>,
    pub(super) streams: AtomicU64,
    pub(super) connections: AtomicU64,
}

impl ClientCore {
    pub(super) fn start(options: ClientOptions) -> Result<Arc<Self>> {
        let io = IoThread::start("dipc-client-io", Duration::ZERO)?;
        let ids = StreamIds::new()?;
        Ok(Arc::new_cyclic(|me| Self {
            options,
            generation: Generation::now(),
            io,
            me: Weak::clone(me),
            uris: KnownUris::default(),
            pool: Mutex::default(),
            shared: Arc::default(),
            alone: AloneConnections::default(),
            watching: AtomicBool::new(false),
            ids,
            callbacks: Mutex::default(),
            closed_gpus: Mutex::default(),
            streams: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }))
    }

    /// The connections of one stream. `shares`: whether the stream may share one. `opener`: other
    /// streams wait already for the connection that this stream opens.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for the wrong number of URIs; those of connecting.
    pub(super) async fn connections(
        &self,
        uris: &[KnownUri],
        (shares, opener): (bool, Option<Opener>),
        (options, due): (&GetOptions, Option<Timestamp>),
        attempt: &Attempt,
    ) -> Result<Reached> {
        let (metadata, data) = sides(uris)?;
        let key = key_of(uris, options)?;
        let mut start = clock::now();
        let dial = DialOptions::of_get(options, due);
        let shared = (key.as_ref()).filter(|_| shares && may_share(metadata, options.connections));
        let way = Way {
            opener,
            shares: options.shares,
        };
        let (turner, is_reused, opener) = match shared {
            Some(key) => self.reach(metadata, key, way, &dial, attempt).await?,
            None => self.alone(metadata, key.as_ref(), &dial, attempt).await?,
        };
        let data = match data {
            Some(data) => {
                start = clock::now();
                Some(self.connect_alone(data, &dial, attempt).await?)
            }
            None => None,
        };
        Ok(Reached {
            connections: Connections {
                metadata: turner,
                data,
            },
            key,
            answer: dial.answer(start),
            is_reused,
            opener,
        })
    }

    /// The place of a stream that shares a connection, as far as it is known without a wait.
    /// `later` rings when there is more to know.
    ///
    /// # Errors
    ///
    /// `Busy`: all connections carry as many streams as the server takes.
    pub(super) fn reach_at_once(
        &self,
        uri: &KnownUri,
        key: ConnectionKey,
        options: &GetOptions,
        later: Option<&Arc<Bell>>,
    ) -> Result<AtOnce<Reached>> {
        let most = self.most_connections();
        let Some(most) = most.filter(|_| may_share(uri, options.connections)) else {
            return Ok(AtOnce::Elsewhere);
        };
        let place = self.shared.place_at_once(&key, most, later)?;
        let guest = match place {
            Some(SharedPlace::Guest(guest)) => guest,
            Some(SharedPlace::Opener(opener)) => return Ok(AtOnce::Opens(opener)),
            Some(SharedPlace::Alone) => return Ok(AtOnce::Elsewhere),
            None => return Ok(AtOnce::Later),
        };
        Ok(AtOnce::Done(Reached {
            connections: Connections {
                metadata: guest,
                data: None,
            },
            key: Some(key),
            answer: AnswerLimit {
                by: clock::after(options.connect_timeout),
                timeout: options.connect_timeout,
            },
            is_reused: true,
            opener: None,
        }))
    }

    /// Most connections to one server; `None`: no streams share any.
    fn most_connections(&self) -> Option<usize> {
        let is_kept = self.options.most_idle() > 0;
        self.options.connections.filter(|_| is_kept)
    }

    /// Rings the bell at the time when a request has waited too long for its connection.
    pub(super) fn ring_late(&self, dial: &DialOptions, bell: &Arc<Bell>) -> Timestamp {
        let late = clock::after(dial.connect().time());
        self.io.call_at(late, Arc::downgrade(bell) as Weak<Bell>);
        late
    }

    /// The connection of a stream that goes this `way`: an idle one; a new one, while there may be
    /// more; or one that streams share.
    async fn reach(
        &self,
        uri: &KnownUri,
        key: &ConnectionKey,
        way: Way,
        dial: &DialOptions,
        attempt: &Attempt,
    ) -> Result<Connected> {
        let most = self.most_connections();
        if way.opener.is_none() && (!way.shares || most.is_none()) {
            if let Some(kept) = self.reuse(&uri.uri, key) {
                return Ok((kept, true, None));
            }
            // One of the connections is shared.
            if most.is_none_or(|most| self.alone.count(&uri.name) + 1 < most) {
                return Ok((self.connect_alone(uri, dial, attempt).await?, false, None));
            }
        }
        let most = most.unwrap_or(usize::MAX);
        let until = Instant::now() + dial.connect().time();
        let place = match way.opener {
            Some(opener) => SharedPlace::Opener(opener),
            None => {
                let place = self.shared.place(key, most, until, attempt).await;
                place.map_err(|error| dial.explain(error))?
            }
        };
        match place {
            SharedPlace::Guest(guest) => Ok((guest, true, None)),
            SharedPlace::Opener(opener) => {
                let mut turner = self.connect(&uri.uri, dial, None, attempt).await?;
                turner.step(|end, _| end.session.offer_streams(u32::MAX));
                self.watch_soon();
                Ok((turner, false, Some(opener)))
            }
            SharedPlace::Alone => self.alone(uri, Some(key), dial, attempt).await,
        }
    }

    /// A connection with one stream at a time: an idle one with this key, or a new one.
    async fn alone(
        &self,
        uri: &KnownUri,
        key: Option<&ConnectionKey>,
        dial: &DialOptions,
        attempt: &Attempt,
    ) -> Result<Connected> {
        match key.and_then(|key| self.reuse(&uri.uri, key)) {
            Some(kept) => Ok((kept, true, None)),
            None => Ok((self.connect_alone(uri, dial, attempt).await?, false, None)),
        }
    }

    /// A new connection with one stream at a time.
    async fn connect_alone(
        &self,
        uri: &KnownUri,
        dial: &DialOptions,
        attempt: &Attempt,
    ) -> Result<Turner<End>> {
        let place = self.alone.add(&uri.name);
        self.connect(&uri.uri, dial, Some(place), attempt).await
    }

    /// The connection of a stream that this client sends. `answers`: in an exchange, the window in
    /// bytes of the stream that the server sends.
    pub(super) async fn connection(
        &self,
        uri: &KnownUri,
        (options, due): (&PutOptions, Option<Timestamp>),
        answers: Option<u64>,
        attempt: &Attempt,
    ) -> Result<Reached> {
        let start = clock::now();
        let dial = DialOptions::of_put(options, due, answers);
        let key = (Arc::clone(&uri.name), dial.kind);
        let (turner, is_reused, opener) = match may_share(uri, options.connections) {
            true => {
                let way = Way {
                    opener: None,
                    shares: options.shares,
                };
                self.reach(uri, &key, way, &dial, attempt).await?
            }
            false => self.alone(uri, Some(&key), &dial, attempt).await?,
        };
        Ok(Reached {
            connections: Connections {
                metadata: turner,
                data: None,
            },
            key: Some(key),
            answer: dial.answer(start),
            is_reused,
            opener,
        })
    }

    /// An idle connection of an earlier stream. It may be dead.
    fn reuse(&self, uri: &Uri, (name, kind): &ConnectionKey) -> Option<Turner<End>> {
        let kept = self.pool.lock().take(name, *kind)?;
        tracing::debug!(
            "the connection to {} ({}) is used again",
            uri.bare(),
            kept.link().peer()
        );
        Some(kept)
    }

    async fn connect(
        &self,
        uri: &Uri,
        options: &DialOptions,
        place: Option<AlonePlace>,
        attempt: &Attempt,
    ) -> Result<Turner<End>> {
        options.ensure_time()?;
        let transport = transport::by_scheme(&uri.scheme)?;
        let link_options = LinkOptions {
            connect: options.connect(),
            access: AccessOptions {
                any_user: self.options.any_user,
                ..AccessOptions::default()
            },
            receiving: ReceivingOptions {
                unexpected_bytes: options.unexpected_bytes,
                ..ReceivingOptions::default()
            },
            settings: self.options.settings.clone(),
            tls: Arc::clone(&self.options.tls),
            ..LinkOptions::default()
        };
        let start = Instant::now();
        let connected = transport.connecting(uri, &link_options, attempt).await;
        let mut connection = connected.map_err(|error| options.explain(error))?;
        if link_options.connect.checksums && !connection.identity().profile.trust.is_intact() {
            ensure_checksums_are_known(uri)?;
            let by = start + link_options.connect.time();
            let agreed = checked::agree(connection, by, attempt).await;
            connection = agreed.map_err(|error| options.explain(error))?;
        }
        let peer = &connection.identity().peer;
        tracing::debug!("connected to {} ({peer})", uri.bare());
        self.connections.fetch_add(1, Ordering::Relaxed);
        let place = place.map(|place| Box::new(place) as _);
        Ok(End::open(connection, uri.tags, &self.io, place))
    }

    /// The id of a stream on one connection.
    pub(super) fn next_id(&self) -> Result<u128> {
        self.ids.next(false)
    }

    /// The thread that releases the host's arrays, which starts with the first put.
    pub(super) fn callbacks(&self) -> Result<Callbacks> {
        let mut started = self.callbacks.lock();
        if let Some(callbacks) = &*started {
            return Ok(callbacks.clone());
        }
        // The thread ends with the last array.
        let (callbacks, _) = Callbacks::start()?;
        Ok(started.insert(callbacks).clone())
    }

    /// Takes back the connection of a stream that this client has sent.
    pub(super) fn keep(&self, link: &Arc<EndLink>, key: &ConnectionKey) {
        // Rule Q10: without order, messages of a stream that failed could come between those of the
        // next one.
        let is_settled = |end: &End| {
            let is_ordered = link.profile().is_ordered || end.session.first().has_ended_well();
            is_ordered && !end.session.first().is_asking()
        };
        let Some(turner) = link.acquire() else { return };
        if link.inspect(|end| end.session.first().is_receiving()) {
            // The server's stream of the exchange gives the connection back when it ends.
            return;
        }
        if link.inspect(is_settled) {
            let connections = Connections {
                metadata: turner,
                data: None,
            };
            self.put_back(connections, Some(key));
        } else {
            IdleConnection::Owned(turner).retire();
        }
    }

    /// Takes idle connections back. Keeps those that can serve the next stream.
    pub(super) fn put_back(&self, connections: Connections, key: Option<&ConnectionKey>) {
        let Connections { metadata, data } = connections;
        let tokens = [Some(metadata), data].into_iter().flatten();
        for mut token in tokens.filter(|token| !token.is_guest()) {
            // A connection on which GPU memory could not be opened is not kept.
            let can_serve =
                token.step(|end, _| end.session.closed().is_none() && !end.misses_gpus());
            let unused = match key {
                Some((uri, kind)) if can_serve => {
                    let most = self.options.most_idle();
                    self.watch_soon();
                    self.pool.lock().keep(uri, *kind, token, most)
                }
                _ => Some(IdleConnection::Owned(token)),
            };
            if let Some(unused) = unused {
                unused.retire();
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

impl Source for ClientCore {
    fn ready(&self) {}

    fn timer(&self) {
        // First, so that later connections set a timer of their own.
        self.watching.store(false, Ordering::Release);
        let time = self.options.idle_timeout;
        let (expired, next) = {
            // The lock keeps other threads from taking a connection meanwhile.
            let mut pool = self.pool.lock();
            (pool.watch(time), pool.next_look(time))
        };
        let (left, next_shared) = self.shared.expire(time);
        for next in next.into_iter().chain(next_shared) {
            self.io.call_at(next, self.source());
        }
        expired.into_iter().for_each(IdleConnection::retire);
        let left = left.into_iter().map(IdleConnection::Watched);
        left.for_each(IdleConnection::retire);
    }
}

/// The connections of a stream that was not asked for.
pub(super) struct Reached {
    pub(super) connections: Connections,
    /// The key of a connection that may be kept. The connections of a stream on two connections are
    /// not kept: the server cannot know the end of the stream on both.
    pub(super) key: Option<ConnectionKey>,
    /// The time limit of the server's answer.
    pub(super) answer: AnswerLimit,
    /// The connection had an earlier stream.
    pub(super) is_reused: bool,
    /// The connection is to carry many streams.
    pub(super) opener: Option<Opener>,
}

/// A connection, whether it had an earlier stream, and the opener of a connection that is to carry
/// many streams.
type Connected = (Turner<End>, bool, Option<Opener>);

/// How far a stream that is to share a connection comes without a wait.
pub(super) enum AtOnce<T> {
    /// On a connection that is open.
    Done(T),
    /// Another stream opens the connection.
    Later,
    /// The stream opens the connection. Other streams wait for it from now on.
    Opens(Opener),
    /// The stream shares no connection.
    Elsewhere,
}

/// How a stream goes to its server.
struct Way {
    /// Other streams wait already for the connection that this stream opens.
    opener: Option<Opener>,
    /// The stream shares a connection even if it may have one of its own.
    shares: bool,
}

/// # Errors
///
/// `Unsupported`: a server that may be a baseline server, which has no checksums. The question for
/// checksums comes first on a connection, and may end such a server.
fn ensure_checksums_are_known(uri: &Uri) -> Result<()> {
    if uri.extension && !uri.is_bare {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the server at {} may have no checksums, for its URI does not say `dipc=1`: ask without \
         them, or use the whole URI that a server of libdipc printed",
        uri.bare()
    )))
}

/// Ends a stream for its consumer. Its connection serves the next stream, at once or after the
/// server has confirmed the end.
pub(super) fn end(client: Weak<ClientCore>, fetch: Box<Fetch>, key: Option<ConnectionKey>) {
    fetch.end(move |connections| match client.upgrade() {
        Some(client) => client.put_back(connections, key.as_ref()),
        None => {
            let Connections { metadata, data } = connections;
            let tokens = [Some(metadata), data].into_iter().flatten();
            tokens
                .map(IdleConnection::Owned)
                .for_each(IdleConnection::retire);
        }
    });
}
