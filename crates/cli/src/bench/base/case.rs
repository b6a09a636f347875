//! One case of a measurement: the configuration of its two processes.

use std::path::PathBuf;
use std::time::Duration;

use dipc::{BodyPolicy, GetOptions, PutOptions, Server, ServerBuilder, Target};
use serde::{Deserialize, Serialize};

use super::certificate;
pub use super::choices::*;

/// One case.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Case {
    pub op: Op,
    /// For [`Op::Machine`].
    pub what: What,
    pub transport: Scheme,
    /// The folder of a certificate, for tls.
    pub certificate: Option<PathBuf>,
    /// The server's address; `None`: the server chooses it.
    pub listen: Option<String>,
    pub memory: Memory,
    /// The device of the server's batches.
    #[serde(with = "place")]
    pub device: Target,
    /// The device that the client asks for.
    #[serde(with = "place")]
    pub to: Target,
    pub touch: Touch,
    pub take: Take,
    pub source: Source,
    pub body: Body,
    pub rows: u64,
    pub columns: u32,
    pub values: Values,
    pub streams: u32,
    /// Threads of the client that take batches; `None`: one for each stream.
    pub consumers: Option<u32>,
    pub connections: u16,
    /// Batches to fetch, all streams together; `None`: as many as arrive in `seconds`.
    pub batches: Option<u64>,
    pub seconds: Duration,
    /// Time between two batches of `latency`, or two streams of `connect`.
    pub interval: Duration,
    /// How long the client of `get` keeps each batch.
    pub pause: Duration,
    pub spin: Duration,
    /// Most memory of the distinct batches.
    pub ring_bytes: u64,
    /// Number of distinct batches; `None`: as many as `ring_bytes` allow.
    pub distinct: Option<u64>,
    pub window_batches: u64,
    pub window_bytes: u64,
    pub level: Level,
    /// No fetch precedes the measurement.
    pub cold: bool,
    /// `connect` makes a new client for each stream.
    pub fresh: bool,
    /// The new clients resume the TLS session of those before.
    pub resume: bool,
    /// The processes run on separate processors.
    pub apart: bool,
    /// Hostile connections to the server during the measurement.
    pub hostile: u32,
    /// For [`Op::Filter`]: how many of 100 rows pass.
    pub passing: f64,
    pub settings: Vec<(String, String)>,
}

/// A device, as text in JSON.
mod place {
    use dipc::Target;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(place: &Target, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(place)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Most distinct batches, and most batches of a published table. More batches would need much
/// memory for their descriptions.
const MOST_DISTINCT: u64 = 4096;
const MOST_PUBLISHED: u64 = 16_384;
/// The same limit in columns.
const MOST_COLUMNS: u64 = 1 << 18;
/// How long the other process may be silent. A dead one is noticed at once; this limit is for one
/// that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Case {
    /// Bytes of values in one batch.
    pub fn batch_bytes(&self) -> u64 {
        self.words() * u64::from(self.columns) * 8
    }

    /// Number of the client's threads that take batches, each from its streams in turn.
    pub fn consumers(&self) -> u32 {
        let streams = self.streams.max(1);
        self.consumers
            .map_or(streams, |most| most.clamp(1, streams))
    }

    /// Words of eight bytes in one column of a batch.
    pub fn words(&self) -> u64 {
        self.rows.div_ceil(self.values.in_word())
    }

    /// How many batches pass between two readings of the clock: a small batch takes less time than
    /// a reading.
    pub fn clock_step(&self) -> u64 {
        match self.batch_bytes() {
            0..=0x1_0000 => 16,
            _ => 1,
        }
    }

    /// The columns of the batches.
    pub fn shape(&self) -> Shape {
        Shape {
            columns: self.columns,
            values: self.values,
        }
    }

    /// How many batches a stream fetches, if that is fixed.
    fn stream_batches(&self) -> Option<u64> {
        let batches = self.batches?;
        Some(batches.div_ceil(u64::from(self.streams.max(1))))
    }

    /// The number of distinct batches, which are sent in turn.
    pub fn distinct(&self) -> u64 {
        let by_bytes = self.ring_bytes / self.batch_bytes().max(1);
        let by_columns = MOST_COLUMNS / u64::from(self.columns.max(1));
        // At least two, so that a batch differs from the previous batch. If the memory is not read,
        // more would only take time.
        let most = match self.op {
            Op::Get | Op::Put | Op::Metadata | Op::Filter => MOST_DISTINCT,
            _ => 2,
        };
        let wanted = self.stream_batches().unwrap_or(most);
        let bounded = by_bytes.min(by_columns).min(wanted).clamp(2, most);
        self.distinct.unwrap_or(bounded)
    }

    /// How many batches a published table has: the distinct ones, in turn.
    pub fn published(&self) -> u64 {
        let by_columns = MOST_COLUMNS / u64::from(self.columns.max(1));
        let most = by_columns.clamp(2, MOST_PUBLISHED).max(self.distinct());
        match (self.op, self.stream_batches()) {
            // Each stream needs a batch.
            (Op::Connect | Op::Open | Op::Describe | Op::Shed, _) => 1,
            // More than the window has room for.
            (Op::Idle, _) => self.window_batches.saturating_add(16).min(most),
            (_, Some(batches)) => batches.clamp(1, most),
            (_, None) => most,
        }
    }

    /// How many batches each stream fetches before the measurement, to make connections, mappings
    /// and pages. For one stream, as many as the window allows.
    pub fn warm_up(&self) -> u64 {
        let streams = u64::from(self.streams.max(1));
        let batch = self.batch_bytes().max(1);
        let by_bytes = self.ring_bytes / streams / batch;
        let on_the_way = self.window_batches.min(self.window_bytes / batch);
        let least = if streams == 1 {
            on_the_way.clamp(2, 16)
        } else {
            2
        };
        by_bytes.clamp(least, self.distinct().max(least))
    }

    /// The options of the streams.
    pub fn get_options(&self) -> GetOptions {
        GetOptions::new()
            .stall_timeout(PATIENCE)
            .window(self.window_batches, self.window_bytes)
            .validation(self.validation())
            .spin(self.spin)
            .connections(self.connections)
            .device(self.to)
    }

    /// The options of a stream that the client sends.
    pub fn put_options(&self) -> PutOptions {
        PutOptions::new()
            .stall_timeout(PATIENCE)
            .body(self.body_policy())
            .connections(self.connections)
    }

    fn body_policy(&self) -> BodyPolicy {
        match self.body {
            Body::Auto => BodyPolicy::Auto,
            Body::Packed => BodyPolicy::Packed,
            Body::Lent => BodyPolicy::Lent,
        }
    }

    fn validation(&self) -> dipc::Level {
        match self.level {
            Level::Structure => dipc::Level::Structure,
            Level::Full => dipc::Level::Full,
        }
    }

    /// The server, without tables and addresses.
    pub fn server(&self) -> dipc::Result<Server> {
        // The client's last stream may still be ending when the next one begins.
        let streams = match self.op {
            Op::Shed => 1,
            _ => self.streams as usize * 2 + 8,
        };
        let server = Server::builder()
            .max_streams(streams)
            .body(self.body_policy())
            .put_window(self.window_batches, self.window_bytes)
            .put_validation(self.validation())
            .spin(self.spin)
            // Both processes are this command's own.
            .trusted_network(true)
            .allow_remote(self.listen.is_some());
        let server = certificate::of_server(server, self.certificate.as_deref());
        let mut settings = self.settings.iter();
        (settings.try_fold(server, |server, (name, value)| server.setting(name, value)))
            .and_then(ServerBuilder::build)
    }

    /// The server's address: the given one, or an unused one.
    pub fn address(&self) -> String {
        let own = || match self.transport {
            Scheme::Shm => format!("shm:@dipc-bench-{}", std::process::id()),
            Scheme::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Scheme::Tls => "tls://127.0.0.1:0".to_owned(),
            Scheme::Ucx => "ucx://127.0.0.1:0".to_owned(),
        };
        self.listen.clone().unwrap_or_else(own)
    }
}

/// A small case, at an address of its own.
#[cfg(test)]
pub fn test_case(name: &str) -> Case {
    Case {
        listen: Some(format!("shm:@dipc-bench-{name}-{}", std::process::id())),
        rows: 100,
        columns: 3,
        streams: 1,
        connections: 1,
        seconds: Duration::from_millis(10),
        interval: Duration::from_millis(1),
        ring_bytes: 1 << 20,
        window_batches: 16,
        window_bytes: 1 << 20,
        passing: 50.0,
        ..Case::default()
    }
}
