//! Options of the client's side.

use std::time::Duration;

use dipc::ClientBuilder;

/// How a [`DipcChannelResolver`](crate::DipcChannelResolver) reaches workers.
///
/// ```
/// use std::time::Duration;
///
/// let options = dipc_datafusion::ChannelOptions::new()
///     .ways(["shm", "tls"])
///     .silence(Duration::from_secs(5));
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ChannelOptions {
    pub(super) ways: Vec<String>,
    pub(super) connect_timeout: Duration,
    pub(super) silence: Duration,
    pub(super) answer_timeout: Duration,
    pub(super) stall_timeout: Option<Duration>,
    pub(super) send_secrets: bool,
    pub(super) client: ClientBuilder,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            ways: ["shm", "tls", "tcp", "ucx"].map(str::to_owned).into(),
            connect_timeout: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(10),
            stall_timeout: None,
            send_secrets: false,
            client: dipc::Client::builder().max_idle(64),
        }
    }
}

impl ChannelOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The schemes that are used, the best first. A worker's locations of other schemes are not
    /// used, and neither is `shm` of another machine or container. With `grpc` among the schemes, a
    /// worker that no other scheme reaches sends its partitions over the engine's own channel; a
    /// worker without libdipc does so in any case. Default: `shm`, `tls`, `tcp`, `ucx`.
    pub fn ways<T: Into<String>>(mut self, ways: impl IntoIterator<Item = T>) -> Self {
        self.ways = ways.into_iter().map(Into::into).collect();
        self
    }

    pub(super) fn takes_grpc(&self) -> bool {
        self.ways.iter().any(|way| way == "grpc")
    }

    /// How long a worker may take to accept the request for a partition. It waits up to 10 s for
    /// the plan. Default: 30 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a worker may be silent before it is asked whether it lives. Default: 10 s.
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// How long a worker may take to say that it lives, and to take a gRPC connection. A worker
    /// that takes longer fails the query. Default: 10 s.
    pub fn answer_timeout(mut self, limit: Duration) -> Self {
        self.answer_timeout = limit;
        self
    }

    /// How long a living worker may compute without giving a batch, while a client waits for one.
    /// Default: no limit.
    pub fn stall_timeout(mut self, limit: Duration) -> Self {
        self.stall_timeout = Some(limit);
        self
    }

    /// Sends the header `authorization` also where others can read the connection.
    pub fn send_secrets(mut self, send: bool) -> Self {
        self.send_secrets = send;
        self
    }

    /// How the client of each worker is made: TLS, users, settings of transports.
    pub fn client(mut self, client: ClientBuilder) -> Self {
        self.client = client;
        self
    }
}
