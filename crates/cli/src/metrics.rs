//! The figures of a server by HTTP, for Prometheus: `GET /metrics`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dipc::{Server, WeakServer};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::flight::FlightServer;
use crate::listening::runtime;

/// The path of the figures.
pub const PATH: &str = "/metrics";
/// The path of the answer to whether requests are taken.
const READY: &str = "/ready";
/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Most connections at once. If one more comes, the oldest is closed, so that a silent client holds
/// up nobody.
const MOST: usize = 64;
/// How long a client may take to ask.
const ASK_TIME: Duration = Duration::from_secs(2);
/// How long a connection may last. It serves one request.
const LAST_TIME: Duration = Duration::from_secs(30);
/// How long to wait if the system accepts no connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Whose figures they are.
#[derive(Clone)]
struct Figures {
    /// The end of the server does not wait for a client of its figures.
    server: WeakServer,
    flight: Option<Weak<FlightServer>>,
}

impl Figures {
    /// `None`: the server is gone.
    fn text(&self) -> Option<String> {
        let server = self.server.upgrade()?;
        let mut text = server.stats_text();
        let _ = write!(
            text,
            "# HELP dipc_ready Whether the server takes requests: it listens, and does not drain.\n\
             # TYPE dipc_ready gauge\n\
             dipc_ready {}\n",
            u8::from(server.is_ready())
        );
        if let Some(flight) = self.flight.as_ref().and_then(Weak::upgrade) {
            let (streams, bytes) = flight.figures();
            let _ = write!(
                text,
                "# HELP dipc_flight_streams_total Streams sent to Flight clients by DoGet.\n\
                 # TYPE dipc_flight_streams_total counter\n\
                 dipc_flight_streams_total {streams}\n\
                 # HELP dipc_flight_bytes_total Bytes of bodies sent to Flight clients.\n\
                 # TYPE dipc_flight_bytes_total counter\n\
                 dipc_flight_bytes_total {bytes}\n"
            );
        }
        Some(text)
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if ![PATH, READY].contains(&path) {
            let text = format!("the figures are at {PATH}, and whether it is ready at {READY}\n");
            return answer(StatusCode::NOT_FOUND, text);
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refused = answer(StatusCode::METHOD_NOT_ALLOWED, "ask by GET\n".to_owned());
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            return refused;
        }
        if path == READY {
            return match self
                .server
                .upgrade()
                .is_some_and(|server| server.is_ready())
            {
                true => answer(StatusCode::OK, "ready\n".to_owned()),
                false => answer(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
            };
        }
        match self.text() {
            Some(text) => answer(StatusCode::OK, text),
            None => answer(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server has ended\n".to_owned(),
            ),
        }
    }
}

fn answer(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(TEXT);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Answers until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl MetricsServer {
    /// Answers at `listener`.
    pub fn start(
        listener: TcpListener,
        server: &Server,
        flight: Option<&Arc<FlightServer>>,
    ) -> Result<Self> {
        let doing = "cannot start to serve metrics";
        let runtime = runtime("dipc-metrics", 1).context(doing)?;
        let address = listener.local_addr().context(doing)?;
        listener.set_nonblocking(true).context(doing)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).context(doing)?
        };
        let figures = Figures {
            server: server.downgrade(),
            flight: flight.map(Arc::downgrade),
        };
        runtime.spawn(accept(listener, figures));
        Ok(Self {
            address,
            runtime: Some(runtime),
        })
    }

    /// Where the figures are.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, figures: Figures) {
    let mut connections = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "a client of the figures was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection: &AbortHandle| !connection.is_finished());
        if connections.len() >= MOST
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let figures = figures.clone();
        let connection = tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = figures.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ASK_TIME)
                .keep_alive(false)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            match tokio::time::timeout(LAST_TIME, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "a client of the figures has failed"),
                Err(_) => debug!("a client of the figures was too slow"),
            }
        });
        connections.push_back(connection.abort_handle());
    }
}
