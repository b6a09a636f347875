//! One case of a measurement: everything that its two processes must know.

use std::fmt;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use clap::ValueEnum;
use dipc::arrow::decode;
use dipc::client::GetOptions;
use dipc::device::Target;
use dipc::proto::Credit;
use dipc::server::ServerOptions;
use dipc::transport::BodyPolicy;
use serde::{Deserialize, Serialize};

/// Declares an option with few values, which have one name on the command line and in JSON.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$value_doc])* #[serde(rename = $text)] #[value(name = $text)] $value,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $text,)*
                })
            }
        }
    };
}

choice! {
    /// What is measured.
    Op {
        /// How fast batches come
        Get = "get",
        /// How long a batch takes from one process to the other, within one stream
        Latency = "latency",
        /// How long the first batch of a new stream takes
        Connect = "connect",
        /// What open streams cost while nothing happens
        Idle = "idle",
        /// What batches of one row and many columns cost
        Metadata = "metadata",
        /// What the machine can do without libdipc: memory, sums, bare sockets
        Machine = "machine",
    }
}

choice! {
    /// What of the machine is measured.
    What {
        /// Copying from memory of a process into a mapped file in memory, by one thread
        Memcpy = "memcpy",
        /// The kernel copying from memory of a process into one buffer, as UCX's cma does
        ProcessVmReadv = "process_vm_readv",
        /// Adding up numbers in memory of a process
        Sum = "sum",
        /// The same of record batches that come out of arrow-rs' C stream, within one process
        ArrowStream = "arrow_stream",
        /// Messages through a Unix socket, one system call each
        SocketWrite = "socket_write",
        /// A message there and back between two sleeping processes
        SocketRoundTrip = "socket_round_trip",
        /// Copying from pinned memory of the host into a GPU's
        PinnedToDevice = "pinned_to_device",
        /// Copying from a GPU's memory into pinned memory of the host
        DeviceToPinned = "device_to_pinned",
        /// Copying from one place of a GPU's memory to another
        DeviceToDevice = "device_to_device",
    }
}

impl What {
    /// Whether it is a GPU's.
    pub fn is_gpus(self) -> bool {
        matches!(
            self,
            Self::PinnedToDevice | Self::DeviceToPinned | Self::DeviceToDevice
        )
    }
}

choice! {
    /// How the processes reach each other.
    Scheme {
        Shm = "shm",
        Tcp = "tcp",
        Ucx = "ucx",
    }
}

choice! {
    /// Where the server has its batches.
    Memory {
        /// In an arena, whose memory is lent
        Arena = "arena",
        /// In memory of its own, which is copied or sent; on a GPU it can be lent, by a handle for
        /// each allocation
        Heap = "heap",
    }
}

choice! {
    /// What the client does with the values.
    Touch {
        /// Nothing: the batch is released as it came (on a GPU, a stream waits for it first)
        None = "none",
        /// Adds up all of them, and checks the sum (on a GPU, after a download)
        Sum = "sum",
    }
}

choice! {
    /// How the server hands batches to libdipc.
    Source {
        /// As a table that is there
        Published = "published",
        /// By a provider, which is called for each batch
        Provider = "provider",
    }
}

choice! {
    /// What columns are made of.
    Values {
        Int64 = "int64",
        /// A bit each, so that a batch has 64 times as many rows
        Bool = "bool",
    }
}

impl Values {
    /// How many of them are in eight bytes, in which batches are written and read.
    pub fn in_word(self) -> u64 {
        match self {
            Self::Int64 => 1,
            Self::Bool => 64,
        }
    }
}

/// The columns of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub columns: u32,
    pub values: Values,
}

impl Shape {
    /// Columns without nulls.
    pub fn schema(self) -> Schema {
        let kind = match self.values {
            Values::Int64 => DataType::Int64,
            Values::Bool => DataType::Boolean,
        };
        let field = |number| Field::new(format!("c{number}"), kind.clone(), false);
        Schema::new((0..self.columns).map(field).collect::<Vec<_>>())
    }
}

choice! {
    /// How much of what arrives is checked.
    Level {
        Structure = "structure",
        Full = "full",
    }
}

choice! {
    /// How bodies travel.
    Body {
        Auto = "auto",
        Packed = "packed",
        Lent = "lent",
    }
}

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    pub op: Op,
    /// For [`Op::Machine`].
    pub what: What,
    pub transport: Scheme,
    /// Where the server listens, if not at an address of its own choice.
    pub listen: Option<String>,
    pub memory: Memory,
    /// Where the server has its batches: the host or a GPU.
    #[serde(with = "place")]
    pub device: Target,
    /// Where the client wants them.
    #[serde(with = "place")]
    pub to: Target,
    pub touch: Touch,
    pub source: Source,
    pub body: Body,
    pub rows: u64,
    pub columns: u32,
    pub values: Values,
    pub streams: u32,
    /// Threads of the client that take batches; `None`: one for each stream.
    pub consumers: Option<u32>,
    pub connections: u16,
    /// Batches to fetch, all streams together; `None`: as many as come in `seconds`.
    pub batches: Option<u64>,
    pub seconds: Duration,
    /// Between two batches of `latency`, two streams of `connect`.
    pub interval: Duration,
    /// How long the client of `get` keeps each batch.
    pub pause: Duration,
    pub spin: Duration,
    /// Bound on the memory of distinct batches.
    pub ring_bytes: u64,
    /// How many distinct batches, if not as many as `ring_bytes` allow.
    pub distinct: Option<u64>,
    pub window_batches: u64,
    pub window_bytes: u64,
    pub level: Level,
    /// Nothing is fetched before the measurement.
    pub cold: bool,
    /// `connect` makes a client anew for each stream.
    pub fresh: bool,
    /// Neither process runs where the other may.
    pub apart: bool,
    pub settings: Vec<(String, String)>,
}

/// A place as its text.
mod place {
    use dipc::device::Target;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(place: &Target, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(place)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Most distinct batches, and most batches of a published table: more would be memory for their
/// descriptions.
const MOST_DISTINCT: u64 = 4096;
const MOST_PUBLISHED: u64 = 16_384;
/// The same in columns.
const MOST_COLUMNS: u64 = 1 << 18;

impl Case {
    /// Bytes of values in one batch.
    pub fn batch_bytes(&self) -> u64 {
        self.words() * u64::from(self.columns) * 8
    }

    /// Threads of the client that take batches, each of its streams by turns.
    pub fn consumers(&self) -> u32 {
        let streams = self.streams.max(1);
        self.consumers
            .map_or(streams, |most| most.clamp(1, streams))
    }

    /// Eight bytes each, of one column of a batch.
    pub fn words(&self) -> u64 {
        self.rows.div_ceil(self.values.in_word())
    }

    /// What the batches have for columns.
    pub fn shape(&self) -> Shape {
        Shape {
            columns: self.columns,
            values: self.values,
        }
    }

    /// How many batches a stream fetches, where that is known.
    fn stream_batches(&self) -> Option<u64> {
        let batches = self.batches?;
        Some(batches.div_ceil(u64::from(self.streams.max(1))))
    }

    /// How many different batches there are; they come round in turn.
    pub fn distinct(&self) -> u64 {
        let by_bytes = self.ring_bytes / self.batch_bytes().max(1);
        let by_columns = MOST_COLUMNS / u64::from(self.columns.max(1));
        // Two at least, so that a batch is not taken for the one before. Where memory is not walked
        // through, more would only take time.
        let most = match self.op {
            Op::Get | Op::Metadata => MOST_DISTINCT,
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
            // Each stream has one.
            (Op::Connect, _) => 1,
            // More than there is room for.
            (Op::Idle, _) => self.window_batches.saturating_add(16).min(most),
            (_, Some(batches)) => batches.clamp(1, most),
            (_, None) => most,
        }
    }

    /// How many batches each stream fetches before the measurement, so that connections are made,
    /// regions mapped and pages there: for one stream, as many as may be on the way at once.
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

    pub fn window(&self) -> Credit {
        Credit {
            batches: self.window_batches,
            bytes: self.window_bytes,
        }
    }

    /// How streams are asked for.
    pub fn get_options(&self) -> GetOptions {
        GetOptions {
            // A process that died is noticed at once; this is for one that hangs.
            stall_timeout: Some(Duration::from_secs(60)),
            window: self.window(),
            level: Some(match self.level {
                Level::Structure => decode::Level::Structure,
                Level::Full => decode::Level::Full,
            }),
            spin: self.spin,
            connections: self.connections,
            device: self.to,
            ..GetOptions::default()
        }
    }

    /// How the server is made.
    pub fn server_options(&self) -> dipc::error::Result<ServerOptions> {
        let mut options = ServerOptions {
            // The client's last stream may still be ending when the next begins.
            max_streams: self.streams as usize * 2 + 8,
            body: match self.body {
                Body::Auto => BodyPolicy::Auto,
                Body::Packed => BodyPolicy::Packed,
                Body::Lent => BodyPolicy::Lent,
            },
            spin: self.spin,
            ..ServerOptions::default()
        };
        // Both processes are this command's own.
        options.link.trusted_network = true;
        options.link.allow_remote = self.listen.is_some();
        options.link.settings = crate::settings(&self.settings)?;
        Ok(options)
    }

    /// Where the server listens: where it was told, or where nobody else does.
    pub fn address(&self) -> String {
        let own = || match self.transport {
            Scheme::Shm => format!("shm:@dipc-bench-{}", std::process::id()),
            Scheme::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Scheme::Ucx => "ucx://127.0.0.1:0".to_owned(),
        };
        self.listen.clone().unwrap_or_else(own)
    }
}
