//! A server for Flight clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use arrow_flight::flight_service_server::FlightServiceServer;
use futures::Stream;
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower::util::MapRequest;
use tracing::{error, info, warn};

use crate::accept::Accepting;
use crate::access::Access;
use crate::flight::caller::MAX_MESSAGE;
use crate::flight::certificates::Certificates;
use crate::flight::cut::tell_of_cuts;
use crate::flight::incoming::Listener;
use crate::flight::service::{Counters, Service};
use crate::listening::runtime;
use crate::report::bytes_text;
use crate::tables::Tables;

/// What protects a Flight server.
#[derive(Default)]
pub struct Gate {
    /// `None`: nothing is encrypted.
    pub tls: Option<Arc<Certificates>>,
    /// Most connections; `None`: an eighth of the files that the process may open.
    pub max_connections: Option<usize>,
    /// `None`: everybody may do everything.
    pub access: Option<Arc<Access>>,
}

/// A Flight server, which answers until it is stopped or dropped.
pub struct FlightServer {
    address: SocketAddr,
    /// `None` once stopped.
    runtime: Mutex<Option<Runtime>>,
    is_tls: bool,
    stopping: watch::Sender<bool>,
    /// Whether the last connection has ended.
    ended: Arc<(Mutex<bool>, Condvar)>,
    counters: Arc<Counters>,
}

/// A client that does not answer for this long is taken to be gone.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The default bound on connections. libdipc's own connections have half of the files, and further
/// connections wait for a slot or for their handshake.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(Semaphore::MAX_PERMITS, |files| {
        (files / 8).clamp(1, Semaphore::MAX_PERMITS)
    })
}

/// Answers the clients of `incoming` until a stop, and until all of them have gone.
async fn answer<I>(
    incoming: impl Stream<Item = io::Result<I>>,
    service: Service,
    mut stop: watch::Receiver<bool>,
    end: Arc<(Mutex<bool>, Condvar)>,
) where
    I: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let stop = async move {
        // An error means that the server was dropped, which stops it too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    // Clients send large batches in one message.
    let service = match service.takes_tables() {
        true => FlightServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE),
        false => FlightServiceServer::new(service),
    };
    let service = MapRequest::new(service, tell_of_cuts);
    let outcome = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .serve_with_incoming_shutdown(service, incoming, stop)
        .await;
    if let Err(reason) = outcome {
        error!(%reason, "the Flight server has failed");
    }
    *end.0.lock() = true;
    end.1.notify_all();
}

impl FlightServer {
    /// Answers at `listener`: serves `tables` by at most `max_streams` streams at once, and names
    /// `uris` as the locations of libdipc for the same tables. Takes more tables by `accepting`.
    pub fn start(
        listener: TcpListener,
        (tables, uris): (Tables, Vec<String>),
        max_streams: usize,
        accepting: Option<Arc<Accepting>>,
        gate: Gate,
    ) -> Result<Self> {
        let doing = "cannot start the Flight server";
        let runtime = runtime("dipc-flight", 2).context(doing)?;
        let inside = runtime.enter();
        let address = listener.local_addr().context(doing)?;
        listener.set_nonblocking(true).context(doing)?;
        let Gate {
            tls,
            max_connections,
            access,
        } = gate;
        let is_tls = tls.is_some();
        let service = Service::new(tables, uris, max_streams, accepting).with_access(access);
        let counters = service.counters();
        let (stopping, stop) = watch::channel(false);
        let listener = Listener {
            listener: tokio::net::TcpListener::from_std(listener).context(doing)?,
            places: Arc::new(Semaphore::new(
                max_connections.unwrap_or_else(most_connections),
            )),
            stop: stop.clone(),
        };
        let ended = Arc::<(Mutex<bool>, Condvar)>::default();
        let end = Arc::clone(&ended);
        match tls {
            None => drop(runtime.spawn(answer(listener.plain(), service, stop, end))),
            Some(tls) => {
                let incoming = listener.secured(tls);
                drop(runtime.spawn(answer(incoming, service, stop, end)));
            }
        }
        drop(inside);
        Ok(Self {
            address,
            runtime: Mutex::new(Some(runtime)),
            is_tls,
            stopping,
            ended,
            counters,
        })
    }

    /// The URI to give to clients.
    pub fn uri(&self) -> String {
        let scheme = if self.is_tls { "grpc+tls" } else { "grpc" };
        format!("{scheme}://{}", self.address)
    }

    /// Refuses new calls from now on; running calls continue.
    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Refuses new calls, waits at most `drain` for running calls, then cuts them. Several threads
    /// may call it at once; the shortest time counts.
    pub fn stop(&self, drain: Duration) {
        self.begin_stop();
        let (over, changed) = &*self.ended;
        let mut over = over.lock();
        changed.wait_while_for(&mut over, |over| !*over, drain);
        let whole = *over;
        // Other waiting threads stop waiting too.
        *over = true;
        changed.notify_all();
        drop(over);
        let Some(runtime) = self.runtime.lock().take() else {
            return;
        };
        // Connections are closed. A thread that blocks in a file read ends with the process.
        runtime.shutdown_background();
        if !whole {
            warn!("streams by DoGet were cut");
        }
        info!(
            streams = self.counters.streams.load(Ordering::Relaxed),
            sent = bytes_text(self.counters.bytes_sent.load(Ordering::Relaxed)),
            "Flight stopped"
        );
    }

    /// The number of streams sent by `DoGet` up to now, and the bytes of their bodies.
    pub fn figures(&self) -> (u64, u64) {
        (
            self.counters.streams.load(Ordering::Relaxed),
            self.counters.bytes_sent.load(Ordering::Relaxed),
        )
    }
}

impl Drop for FlightServer {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
