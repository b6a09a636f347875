//! Blocking calls to Flight servers.

use std::error::Error as _;
use std::future::Future;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Criteria, FlightData, FlightDescriptor, FlightInfo, PutResult, Ticket};
use dipc::{Cancel, Error, Result, Status};
use futures::future::{Either, select};
use futures::stream;
use rustls::pki_types::ServerName;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use url::Url;

use crate::listening::runtime;
use crate::output::{told, whole};
use crate::trust::{AUTHORIZATION, ClientTrust};

/// Largest message accepted from a peer, in bytes; the limit of pyarrow's client. A message is one
/// record batch.
pub(super) const MAX_MESSAGE: usize = i32::MAX as usize;

/// Limits of the waits for a server.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For connecting, and for the first answer.
    pub connect: Duration,
    /// How long the server may be silent during a wait.
    pub stall: Option<Duration>,
    /// For everything, from now on.
    pub deadline: Option<Duration>,
}

impl Times {
    /// Of `--timeout` and `--deadline`.
    pub fn of(timeout: Option<Duration>, deadline: Option<Duration>) -> Self {
        Self {
            connect: timeout.unwrap_or(Duration::from_secs(10)),
            stall: timeout,
            deadline,
        }
    }
}

/// A running call of `DoPut`. It ends with the last result of the server, if there is one.
pub(super) type Call = JoinHandle<Result<Option<PutResult>, tonic::Status>>;

/// The runtime for calls, and the limits of their waits.
pub struct Caller {
    runtime: Runtime,
    /// Readable once the caller's token is cancelled.
    cancelled: AsyncFd<OwnedFd>,
    times: Times,
    /// When the deadline began to run.
    begun: Instant,
    /// Certificates, for grpc+tls.
    trust: ClientTrust,
    /// The header with the token.
    authorization: Option<MetadataValue<Ascii>>,
}

impl Caller {
    /// Starts a runtime with one thread. The deadline begins to run.
    pub fn new(cancel: &Cancel, times: Times, trust: &ClientTrust) -> Result<Arc<Self>> {
        let begun = Instant::now();
        let invalid = |error: anyhow::Error| Error::invalid_argument(whole(&error));
        let authorization = trust.authorization().map_err(invalid)?;
        let authorization = authorization.map(|value| value.parse()).transpose();
        let authorization = authorization
            .map_err(|_| Error::invalid_argument("the token has characters of no header"))?;
        let doing = "cannot start what calls Flight servers";
        let runtime = runtime("dipc-flight", 1).map_err(|error| Error::io(doing, &error))?;
        let cancelled = {
            let _inside = runtime.enter();
            let event = cancel.fd()?.try_clone_to_owned();
            event.and_then(|event| {
                // SAFETY: the `AsyncFd` owns the descriptor and nothing takes it out, so it stays
                // open, and the same, until the drop.
                let watched = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) };
                Ok(watched?)
            })
        };
        Ok(Arc::new(Self {
            runtime,
            cancelled: cancelled.map_err(|error| Error::io(doing, &error))?,
            times,
            begun,
            trust: trust.clone(),
            authorization,
        }))
    }

    /// A request with the token.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(value) = &self.authorization {
            let metadata = request.metadata_mut();
            metadata.insert(AUTHORIZATION, value.clone());
        }
        request
    }

    /// How much of the deadline is left; `None`: there is no deadline.
    ///
    /// # Errors
    ///
    /// `Timeout`: nothing is left.
    pub fn left(&self) -> Result<Option<Duration>> {
        let Some(deadline) = self.times.deadline else {
            return Ok(None);
        };
        let left = deadline.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            return Err(late(deadline));
        }
        Ok(Some(left))
    }

    /// Waits for `call`, until the server has been silent for too long, the deadline has come or the
    /// token is cancelled.
    fn wait<T>(&self, limit: Option<Duration>, call: impl Future<Output = T>) -> Result<T> {
        let left = self.left()?;
        let by_deadline = left.filter(|left| limit.is_none_or(|limit| *left < limit));
        let limited = async {
            match by_deadline.or(limit) {
                None => Ok(call.await),
                Some(time) => tokio::time::timeout(time, call).await.map_err(|_| {
                    match (by_deadline, self.times.deadline) {
                        (Some(_), Some(deadline)) => late(deadline),
                        _ => Error::timeout(format!(
                            "the server said nothing for {time:?}; --timeout sets how long it may"
                        )),
                    }
                }),
            }
        };
        self.runtime.block_on(async {
            match select(pin!(self.cancelled.readable()), pin!(limited)).await {
                Either::Left(_) => Err(Error::cancelled("cancelled by the caller's token")),
                Either::Right((outcome, _)) => outcome,
            }
        })
    }
}

/// A connection to a Flight server.
#[derive(Clone)]
pub struct Peer {
    caller: Arc<Caller>,
    /// Its URI, for error texts.
    uri: Arc<str>,
    client: FlightServiceClient<Channel>,
}

impl Peer {
    /// Connects to `uri`: `grpc://host:port`, `grpc+tcp://host:port`, `grpc+tls://host:port` or
    /// `grpc+unix:///path`.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unreachable`, `Timeout`, `Cancelled`; `InvalidArgument` if a file of TLS
    /// is of no use; `Permission` if a token would go where others can read it.
    pub fn connect(caller: &Arc<Caller>, uri: &str) -> Result<Self> {
        let may_be_read = !caller.trust.send_secrets && !is_private(uri);
        if caller.authorization.is_some() && may_be_read {
            return Err(Error::new(
                Status::Permission,
                format!(
                    "the token is not sent to {uri}, where others could read it: use grpc+tls://, \
                     or --send-secrets"
                ),
            ));
        }
        let connect_timeout = caller.times.connect;
        let endpoint = endpoint(uri, &caller.trust)?.connect_timeout(connect_timeout);
        let channel = caller
            // The connector's own limit covers only the TCP handshake.
            .wait(Some(connect_timeout), endpoint.connect())
            .map_err(|error| error.context(format_args!("cannot connect to {uri}")))?
            .map_err(|error| {
                let text = format!(
                    "cannot connect to {uri} ({}): is the Flight server running there?",
                    causes(&error)
                );
                Error::new(Status::Unreachable, text)
            })?;
        Ok(Self {
            caller: Arc::clone(caller),
            uri: uri.into(),
            client: FlightServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        })
    }

    /// Its URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// `GetFlightInfo`.
    ///
    /// # Errors
    ///
    /// The server's error, as the nearest status; `Timeout`, `Cancelled`.
    pub fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        let mut client = self.client.clone();
        let call = client.get_flight_info(self.caller.request(descriptor));
        self.first_answer(call)
    }

    /// `ListFlights`: the tables that match `criteria`.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info).
    pub fn list(&self, criteria: &[u8]) -> Result<Vec<FlightInfo>> {
        let mut client = self.client.clone();
        let call = client.list_flights(self.caller.request(Criteria {
            expression: criteria.to_vec().into(),
        }));
        let mut answers = self.first_answer(call)?;
        let mut infos = Vec::new();
        while let Some(info) = self.answer(self.caller.wait(self.stall(), answers.message()))? {
            infos.push(info);
        }
        Ok(infos)
    }

    /// Waits for the answer to a connection's first call. The system accepts connections even for a
    /// stopped server.
    fn first_answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T> {
        let answer = self.answer(self.caller.wait(Some(self.caller.times.connect), call));
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(error) if error.status() == Status::Disconnected => {
                Err(match speaks_tls(&self.uri, &self.caller) {
                    true => error.context(
                        "TLS is spoken there: grpc+tls:// in the place of grpc:// speaks it too",
                    ),
                    false => error.context(
                        "no Flight server answered there; an address of libdipc's own protocol \
                         begins with tcp:// or tls://",
                    ),
                })
            }
            Err(error) => Err(error),
        }
    }

    fn stall(&self) -> Option<Duration> {
        self.caller.times.stall
    }

    /// `DoGet`: the stream of messages. Does not wait for the first message.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info).
    pub fn do_get(&self, ticket: Ticket) -> Result<Streaming<FlightData>> {
        let mut client = self.client.clone();
        let call = client.do_get(self.caller.request(ticket));
        self.answer(self.caller.wait(self.stall(), call))
            .map(tonic::Response::into_inner)
    }

    /// The next message of a stream; `None` at its end.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info).
    pub fn next(&self, messages: &mut Streaming<FlightData>) -> Result<Option<FlightData>> {
        self.answer(self.caller.wait(self.stall(), messages.message()))
    }

    /// Begins `DoPut`, which sends the messages of `messages` up to `None`. Without a `None` the
    /// messages have no end, so the server does not take a part of the table for the whole; the
    /// call is then aborted.
    pub fn do_put(&self, messages: mpsc::Receiver<Option<FlightData>>) -> Call {
        let mut client = self.client.clone();
        let messages = stream::unfold(messages, |mut messages| async {
            match messages.recv().await {
                Some(message) => message.map(|message| (message, messages)),
                None => std::future::pending().await,
            }
        });
        let request = self.caller.request(messages);
        self.caller.runtime.spawn(async move {
            let mut results = client.do_put(request).await?.into_inner();
            let mut last = None;
            while let Some(result) = results.message().await? {
                last = Some(result);
            }
            Ok(last)
        })
    }

    /// Gives a message to a call of [`do_put`](Self::do_put); waits for a slow server.
    ///
    /// # Errors
    ///
    /// `Disconnected` if the call has ended; `Timeout`, `Cancelled`.
    pub fn send(
        &self,
        messages: &mpsc::Sender<Option<FlightData>>,
        message: Option<FlightData>,
    ) -> Result<()> {
        let sent = self.caller.wait(self.stall(), messages.send(message))?;
        sent.map_err(|_| {
            Error::disconnected(format!(
                "the Flight server at {} ended the call before the end of the table",
                self.uri
            ))
        })
    }

    /// Waits for the end of a call of [`do_put`](Self::do_put).
    ///
    /// # Errors
    ///
    /// The server's error, as the nearest status; `Timeout`, `Cancelled`.
    pub fn outcome(&self, call: &mut Call) -> Result<Option<PutResult>> {
        let outcome = self.caller.wait(self.stall(), call)?;
        let outcome = outcome.map_err(|error| Error::disconnected(error.to_string()))?;
        self.answer(Ok(outcome))
    }

    /// Adds the server's name to an error.
    fn answer<T>(&self, outcome: Result<Result<T, tonic::Status>>) -> Result<T> {
        outcome
            .and_then(|answer| answer.map_err(|status| refusal(&status)))
            .map_err(|error| error.context(format_args!("the Flight server at {}", self.uri)))
    }
}

/// The error of a call that the deadline has ended.
fn late(deadline: Duration) -> Error {
    Error::timeout(format!(
        "the call has not ended within its deadline of {deadline:?}; --deadline sets this time"
    ))
}

/// Whether the server speaks TLS. This is asked after a call in plain text has failed, because
/// gRPC's own error tells only of a broken connection.
fn speaks_tls(uri: &str, caller: &Caller) -> bool {
    let url = Url::parse(uri.trim()).ok();
    let plain = url.filter(|url| matches!(url.scheme(), "grpc" | "grpc+tcp"));
    let Some(address) = plain.and_then(|url| Some((url.host_str()?.to_owned(), url.port()?)))
    else {
        return false;
    };
    let asked = async {
        let mut socket = TcpStream::connect((bare(&address.0), address.1)).await?;
        socket.write_all(&hello(bare(&address.0))?).await?;
        let mut answer = [0; 2];
        socket.read_exact(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = caller.wait(Some(caller.times.connect), asked);
    // A record of the handshake or an alert, and the version of TLS.
    matches!(answer, Ok(Ok([0x15 | 0x16, 3])))
}

/// A client's first words in TLS.
fn hello(host: &str) -> anyhow::Result<Vec<u8>> {
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    let mut client = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// A host as it stands in a URI, without the brackets of an address of IPv6.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether nobody between this process and the server can read what is sent.
fn is_private(uri: &str) -> bool {
    let url = Url::parse(uri.trim());
    url.is_ok_and(|url| match (url.scheme(), url.host_str()) {
        ("grpc+tls" | "grpc+unix", _) | (_, Some("localhost")) => true,
        (_, Some(host)) => bare(host).parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        _ => false,
    })
}

/// The endpoint for tonic.
fn endpoint(uri: &str, trust: &ClientTrust) -> Result<Endpoint> {
    let invalid = |why: &str| {
        let text =
            format!("`{uri}` {why}: write it as in `grpc://host:port` or `grpc+unix:///path`");
        Error::new(Status::InvalidUri, text)
    };
    let url = Url::parse(uri.trim()).map_err(|error| invalid(&format!("is no URI ({error})")))?;
    let target = match url.scheme() {
        scheme @ ("grpc" | "grpc+tcp" | "grpc+tls") => {
            match (url.host_str().filter(|host| !host.is_empty()), url.port()) {
                (Some(host), Some(port)) if scheme == "grpc+tls" => {
                    let endpoint = Endpoint::from_shared(format!("https://{host}:{port}"));
                    let endpoint = endpoint.map_err(|error| invalid(&causes(&error)))?;
                    let tls = trust.flight(host)?;
                    return endpoint
                        .tls_config(tls)
                        .map_err(|error| Error::invalid_argument(causes(&error)));
                }
                (Some(host), Some(port)) => format!("http://{host}:{port}"),
                _ => return Err(invalid("lacks a host or a port")),
            }
        }
        "grpc+unix" => {
            let path = percent_encoding::percent_decode_str(url.path());
            match path.decode_utf8() {
                Ok(path) if path.starts_with('/') => format!("unix:{path}"),
                _ => return Err(invalid("has no absolute path")),
            }
        }
        _ => return Err(invalid("has a scheme that is not Flight's")),
    };
    Endpoint::from_shared(target).map_err(|error| invalid(&causes(&error)))
}

/// The error of a server, or of gRPC.
pub(super) fn refusal(status: &tonic::Status) -> Error {
    let text = match (status.message(), status.source()) {
        // gRPC's own errors have their reason in their source.
        (message, Some(source)) => format!("{message} ({})", causes(source)),
        ("", None) => status.code().description().to_owned(),
        (message, None) => message.to_owned(),
    };
    let kind = match status.code() {
        Code::NotFound => Status::NotFound,
        Code::AlreadyExists => Status::AlreadyExists,
        Code::Unimplemented => Status::Unsupported,
        Code::InvalidArgument => Status::InvalidArgument,
        Code::PermissionDenied | Code::Unauthenticated => Status::Permission,
        Code::ResourceExhausted => Status::Busy,
        Code::DeadlineExceeded => Status::Timeout,
        Code::Unavailable | Code::Aborted | Code::Cancelled => Status::Disconnected,
        _ if status.source().is_some() => Status::Disconnected,
        _ => Status::Provider,
    };
    Error::new(kind, text)
}

/// An error and its causes on one line.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    told(anyhow::Chain::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flight's addresses are read; others are refused with a reason.
    #[test]
    fn addresses_are_read() {
        for good in [
            "grpc://localhost:1",
            "grpc+tcp://[::1]:1",
            "grpc+unix:///run/flight%20socket",
        ] {
            assert!(endpoint(good, &ClientTrust::default()).is_ok(), "{good}");
        }
        for (bad, part) in [
            ("grpc://localhost", "port"),
            ("grpc://:5", "no URI"),
            ("grpc+unix:socket", "path"),
            ("grpc+tls://localhost", "port"),
            ("grpc+other://localhost:1", "scheme"),
        ] {
            let error = endpoint(bad, &ClientTrust::default()).unwrap_err();
            assert!(error.text().contains(part), "{bad}: {error}");
        }
    }
}
