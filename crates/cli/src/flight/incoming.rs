//! The connections of a Flight server: a bounded number of them, behind TLS if there are
//! certificates. A connection that says nothing is closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use crate::flight::certificates::Certificates;
use crate::lines::Lines;

/// How long a handshake may take, as at libdipc's own listeners.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long a client has for its first words.
const GREETING_TIME: Duration = Duration::from_secs(30);
/// Bytes of HTTP/2's first words.
const GREETING_BYTES: usize = 24;
/// How long a failed listener pauses: without free descriptors it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait until tonic takes them.
const WAITING: usize = 16;
/// Bounds these log lines, because strangers can cause any number.
static LINES: Lines = Lines::new();

/// A connection that counts until its drop.
pub struct Counted<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
    /// What the client has yet to say, and by when.
    greeting: Option<(usize, Pin<Box<Sleep>>)>,
}

/// A connection in plain text.
pub type Plain = Counted<TcpStream>;
/// A connection inside TLS.
pub type Secured = Counted<TlsStream<TcpStream>>;

/// Accepts connections until `stop` says so.
pub struct Listener {
    pub listener: TcpListener,
    pub places: Arc<Semaphore>,
    pub stop: watch::Receiver<bool>,
}

impl Listener {
    /// Connections in plain text.
    pub fn plain(self) -> impl Stream<Item = io::Result<Plain>> {
        self.accept(|socket| async move { Some(socket) })
    }

    /// Connections inside TLS, with the certificates that `tls` has read last.
    pub fn secured(self, tls: Arc<Certificates>) -> impl Stream<Item = io::Result<Secured>> {
        self.accept(move |socket| handshake(Arc::clone(&tls), socket))
    }

    /// Each connection has a task of its own until tonic has it.
    fn accept<S, F>(
        mut self,
        make: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> impl Stream<Item = io::Result<Counted<S>>>
    where
        S: Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let (ready, mut taken) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let make = Arc::new(make);
            loop {
                let accepted = tokio::select! {
                    // Also if the server was dropped.
                    _ = self.stop.wait_for(|stop| *stop) => return,
                    accepted = self.listener.accept() => accepted,
                };
                let (socket, peer) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        LINES.say(|more| {
                            warn!("a connection for Flight was not accepted: {error}{more}");
                        });
                        sleep(PAUSE).await;
                        continue;
                    }
                };
                let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                    LINES.say(|more| {
                        warn!(
                            "a connection for Flight from {peer} is closed: there are as many as \
                             there may be{more}"
                        );
                    });
                    continue;
                };
                // Small messages are not to wait; a failure shows in the next call.
                let _ = socket.set_nodelay(true);
                let (made, ready) = (make(socket), ready.clone());
                tokio::spawn(async move {
                    if let Some(stream) = made.await {
                        // It fails if the server has stopped.
                        let _ = ready.send(Ok(Counted::new(stream, place))).await;
                    }
                });
            }
        });
        stream::poll_fn(move |context| taken.poll_recv(context))
    }
}

/// Agrees on TLS with a client.
async fn handshake(tls: Arc<Certificates>, socket: TcpStream) -> Option<TlsStream<TcpStream>> {
    let peer = socket.peer_addr().ok()?;
    let failed = |why: &dyn std::fmt::Display| {
        LINES.say(|more| {
            warn!(
                "a connection for Flight from {peer} is closed: the TLS handshake failed: \
                 {why}{more}"
            );
        });
    };
    let acceptor = TlsAcceptor::from(tls.config());
    match timeout(HANDSHAKE_TIME, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            failed(&error);
            None
        }
        Err(_) => {
            failed(&"it takes too long");
            None
        }
    }
}

impl<S> Counted<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            _place: place,
            greeting: Some((GREETING_BYTES, Box::pin(sleep(GREETING_TIME)))),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some((left, time)) = &mut self.greeting else {
            return read;
        };
        if read.is_pending() {
            ready!(time.as_mut().poll(context));
            debug!("a connection for Flight is closed: its client has said nothing");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        *left = left.saturating_sub(buffer.filled().len() - before);
        if *left == 0 {
            self.greeting = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<S: Connected> Connected for Counted<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
