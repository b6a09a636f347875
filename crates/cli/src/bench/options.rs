//! The arguments of `dipc bench`, and the cases for them.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum as _;
use dipc::Target;

use super::base::case::{Body, Case, Level, Memory, Op, Scheme, Source, Take, Touch, Values, What};
use crate::parse::UsageError;

/// Arguments of `dipc bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure (several, separated by commas); without it get, latency, connect and
    /// metadata, each for a short time
    #[arg(long, value_delimiter = ',')]
    op: Vec<Op>,

    /// Transport between the processes (several)
    #[arg(long, value_delimiter = ',', default_value = "shm")]
    transport: Vec<Scheme>,

    /// Address of the server; without it the server chooses one
    #[arg(long, value_name = "URI")]
    listen: Option<String>,

    /// Memory of the batches: lendable, or ordinary memory that is copied or sent (several)
    #[arg(long, value_delimiter = ',')]
    memory: Vec<Memory>,

    /// Device of the server's batches: host or cuda:N (several)
    #[arg(
        long,
        value_name = "PLACE",
        value_delimiter = ',',
        default_value = "host"
    )]
    #[arg(value_parser = parse_device)]
    device: Vec<Target>,

    /// Device that the client asks for: host, cuda:N or as-sent (several)
    #[arg(
        long,
        value_name = "PLACE",
        value_delimiter = ',',
        default_value = "host"
    )]
    to: Vec<Target>,

    /// Bytes of values in a batch (several): 64 to 256M
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = crate::parse::bytes)]
    batch_bytes: Vec<u64>,

    /// Columns of a batch (several)
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    columns: Vec<u32>,

    /// Type of the columns; bool (one bit each) is for get and idle
    #[arg(long, default_value = "int64")]
    values: Values,

    /// Streams at once, each on its own connection, but for open; without it 100 for idle, 64 for
    /// open, otherwise 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: Option<u32>,

    /// Threads that take the batches of get and metadata, each from its streams in turn; without it
    /// one for each stream
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    consumers: Option<u32>,

    /// Connections that carry a stream, if the transport can use several (tcp)
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,

    /// Bytes to fetch in all; without it and --batches: as many as arrive in --seconds
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::bytes)]
    total_bytes: Option<u64>,

    /// Batches (or streams, for connect) to fetch in all
    #[arg(long, value_name = "N", conflicts_with = "total_bytes")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,

    /// How long to measure each case without --total-bytes and --batches; default: 250ms without
    /// --op, 1s with it, and 2s for filter
    #[arg(long, value_name = "TIME", value_parser = crate::parse::duration)]
    seconds: Option<Duration>,

    /// The client's work on the values: none, or add them up and check the sum (several)
    #[arg(long, value_delimiter = ',')]
    touch: Vec<Touch>,

    /// How the client of get and metadata takes batches: by a call that waits, or in an event loop
    /// with epoll (several)
    #[arg(long, value_delimiter = ',', default_value = "next")]
    take: Vec<Take>,

    /// How the server hands batches to libdipc: as a published table, by a provider, or by one
    /// thread that pushes to all streams; latency always uses a provider
    #[arg(long, default_value = "published")]
    source: Source,

    /// How bodies travel: lent if that is faster, always as bytes, or lent whenever possible
    #[arg(long, value_name = "HOW", default_value = "auto")]
    body: Body,

    /// How long both sides spin before they sleep
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    spin: Duration,

    /// Time between two batches of latency, and between two streams of connect
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = crate::parse::duration)]
    interval: Duration,

    /// filter: how many of 100 rows pass (several)
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_value = "0.1,10,90"
    )]
    #[arg(value_parser = percent)]
    passing: Vec<f64>,

    /// get: how long the client keeps each batch before it takes the next one
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    consumer_pause: Duration,

    /// machine: what to measure (several); without it everything
    #[arg(long, value_delimiter = ',')]
    what: Vec<What>,

    /// connect: a new client, and so a new connection, for each stream
    #[arg(long)]
    fresh: bool,

    /// connect --fresh: each new client resumes the TLS session of the one before
    #[arg(long, requires = "fresh")]
    resume: bool,

    /// Run the server on one half of the processors and the client on the other; without it the
    /// system may put both on one
    #[arg(long)]
    apart: bool,

    /// Keep up N connections that send nonsense, or too slowly, or ask without credit, during the
    /// measurement (tcp)
    #[arg(long, value_name = "N", default_value_t = 0)]
    hostile: u32,

    /// Most memory of the distinct batches, which are sent in turn; for machine: the memory to walk
    /// through
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = crate::parse::bytes)]
    ring_bytes: u64,

    /// Number of distinct batches; without it as many as --ring-bytes allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16_384))]
    distinct: Option<u64>,

    /// How many batches the server may send ahead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    window_batches: Option<u64>,

    /// How many bytes the server may send ahead
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::bytes)]
    window_bytes: Option<u64>,

    /// Level of validation; without it structure over shm, full otherwise
    #[arg(long)]
    level: Option<Level>,

    /// Measure the first fetch: connecting, mapping and the first touch of memory
    #[arg(long)]
    cold: bool,

    /// Measure all cases N times in turn; the table shows the median
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    settings: Vec<(String, String)>,

    /// Print JSON, one object on each line
    #[arg(long)]
    pub json: bool,
}

/// The window that [`GetOptions`](dipc::GetOptions) have by default.
const WINDOW_BATCHES: u64 = 16;
const WINDOW_BYTES: u64 = 256 << 20;
/// How long each case is measured without options.
const SHORT: Duration = Duration::from_millis(250);

/// The defaults of options, by measurement.
struct Defaults {
    batch_bytes: &'static [u64],
    columns: &'static [u32],
    streams: u32,
    memory: &'static [Memory],
    touch: &'static [Touch],
    seconds: Duration,
}

impl Defaults {
    fn of(op: Op) -> Self {
        let small = Self {
            batch_bytes: &[64],
            columns: &[1],
            streams: 1,
            memory: &[Memory::Arena],
            touch: &[Touch::None],
            seconds: Duration::from_secs(1),
        };
        match op {
            Op::Get => Self {
                batch_bytes: &[64 << 10, 2 << 20, 32 << 20],
                memory: &[Memory::Arena, Memory::Heap],
                touch: &[Touch::None, Touch::Sum],
                ..small
            },
            Op::Put => Self {
                batch_bytes: &[64 << 10, 2 << 20, 32 << 20],
                memory: &[Memory::Arena, Memory::Heap],
                ..small
            },
            // One row, of any size.
            Op::Metadata => Self {
                batch_bytes: &[0],
                columns: &[10, 100, 1000],
                ..small
            },
            Op::Filter => Self {
                batch_bytes: &[4 << 20],
                columns: &[8],
                seconds: Duration::from_secs(2),
                ..small
            },
            Op::Idle => Self {
                streams: 100,
                ..small
            },
            Op::Open => Self {
                streams: 64,
                ..small
            },
            Op::Machine => Self {
                batch_bytes: &[64 << 10, 2 << 20, 32 << 20],
                ..small
            },
            Op::Latency | Op::Connect | Op::Describe | Op::Shed => small,
        }
    }
}

impl Args {
    /// The cases: every combination of the options' values.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        // The output names the transport, so the address must belong to it.
        if let Some(uri) = &self.listen
            && !self
                .transport
                .iter()
                .all(|transport| uri.starts_with(&format!("{transport}:")))
        {
            let text = format!("--listen {uri}: not an address of the --transport");
            return Err(UsageError(text).into());
        }
        let all = [Op::Get, Op::Latency, Op::Connect, Op::Metadata];
        for op in given(&self.op, &all) {
            let defaults = Defaults::of(op);
            let mut of_op = vec![self.common(op, &defaults)];
            multiply(&mut of_op, &self.transport, |case, transport| {
                case.transport = transport;
                case.level = self.level.unwrap_or(match transport {
                    // As the client's default (rule A8).
                    Scheme::Shm => Level::Structure,
                    Scheme::Tcp | Scheme::Tls | Scheme::Ucx => Level::Full,
                });
            });
            multiply(
                &mut of_op,
                &given(&self.memory, defaults.memory),
                |case, memory| case.memory = memory,
            );
            multiply(&mut of_op, &self.device, |case, device| {
                case.device = device;
            });
            if op != Op::Machine {
                multiply(&mut of_op, &self.to, |case, to| case.to = to);
            }
            multiply(
                &mut of_op,
                &given(&self.touch, defaults.touch),
                |case, touch| case.touch = touch,
            );
            if matches!(op, Op::Get | Op::Metadata) {
                multiply(&mut of_op, &self.take, |case, take| case.take = take);
            }
            multiply(
                &mut of_op,
                &given(&self.columns, defaults.columns),
                |case, columns| case.columns = columns,
            );
            if op == Op::Filter {
                multiply(&mut of_op, &self.passing, |case, passing| {
                    case.passing = passing;
                });
            }
            // Rows, until the number of columns is known.
            let sizes = match op {
                Op::Metadata => defaults.batch_bytes.to_vec(),
                _ => given(&self.batch_bytes, defaults.batch_bytes),
            };
            multiply(&mut of_op, &sizes, |case, bytes| case.rows = bytes);
            let whats = match op {
                Op::Machine => given(&self.what, What::value_variants()),
                _ => vec![What::Memcpy],
            };
            multiply(&mut of_op, &whats, |case, what| case.what = what);
            // Each measurement of the machine once: those of GPUs for each GPU, the others without
            // a GPU.
            of_op.retain(|case| {
                case.op != Op::Machine || case.what.is_gpus() == (case.device != Target::Host)
            });
            for case in of_op {
                cases.push(self.complete(case)?);
            }
        }
        Ok(cases)
    }

    /// The common part of all cases of `op`.
    fn common(&self, op: Op, defaults: &Defaults) -> Case {
        let seconds = if self.op.is_empty() {
            SHORT
        } else {
            defaults.seconds
        };
        Case {
            op,
            listen: self.listen.clone(),
            source: match op {
                // Batches of `latency` are made at their time, so only a provider can give them.
                Op::Latency => Source::Provider,
                _ => self.source,
            },
            body: self.body,
            columns: 1,
            values: self.values,
            streams: self.streams.unwrap_or(defaults.streams),
            consumers: self.consumers,
            connections: self.connections,
            batches: self.batches,
            seconds: self.seconds.unwrap_or(seconds),
            interval: self.interval,
            pause: self.consumer_pause,
            spin: self.spin,
            ring_bytes: self.ring_bytes,
            distinct: self.distinct,
            window_batches: self.window_batches.unwrap_or(WINDOW_BATCHES),
            window_bytes: self.window_bytes.unwrap_or(WINDOW_BYTES),
            cold: self.cold,
            fresh: self.fresh,
            resume: self.resume,
            apart: self.apart,
            hostile: self.hostile,
            passing: 100.0,
            settings: self.settings.clone(),
            ..Case::default()
        }
    }

    /// Computes rows and batches from sizes.
    fn complete(&self, mut case: Case) -> Result<Case> {
        let (bytes, row) = (case.rows, u64::from(case.columns) * 8);
        case.rows = match case.op {
            Op::Metadata => 1,
            _ => bytes / row * case.values.in_word(),
        };
        if case.rows == 0 {
            let text = format!(
                "--batch-bytes {bytes}: the least batch of {} {} columns has {row} bytes",
                case.columns, case.values
            );
            return Err(UsageError(text).into());
        }
        // The other measurements count rows, or write a time into them.
        if case.values == Values::Bool && !matches!(case.op, Op::Get | Op::Idle) {
            let text = format!("--values bool: {} is of int64 columns", case.op);
            return Err(UsageError(text).into());
        }
        if case.op == Op::Put && (case.touch != Touch::None || case.streams > 1) {
            let text = "put: one stream is measured, whose values the server does not read";
            return Err(UsageError(text.into()).into());
        }
        if case.op == Op::Filter
            && (case.touch != Touch::None
                || case.streams > 1
                || (case.device, case.to) != (Target::Host, Target::Host))
        {
            let text = "filter: one stream on the host is measured, whose values are not summed";
            return Err(UsageError(text.into()).into());
        }
        if case.op == Op::Open
            && (case.touch != Touch::None
                || case.source != Source::Published
                || case.connections > 1
                || case.batches.or(self.total_bytes).is_some()
                || (case.device, case.to) != (Target::Host, Target::Host))
        {
            let text = "open: streams of a published batch on the host are measured, as many as \
                        --seconds allow, each on one connection, whose values are not summed";
            return Err(UsageError(text.into()).into());
        }
        if !case.pause.is_zero() && case.op != Op::Get {
            let text = format!(
                "--consumer-pause: {} has no consumer that could pause, get has",
                case.op
            );
            return Err(UsageError(text).into());
        }
        if let Some(total) = self.total_bytes {
            case.batches = Some(total.div_ceil(case.batch_bytes()).max(1));
        }
        Ok(case)
    }
}

/// Reads a share of rows.
fn percent(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(percent) if (0.001..=100.0).contains(&percent) => Ok(percent),
        Ok(_) => bail!("of 100 rows, at least 0.001 pass, and at most all"),
        Err(error) => bail!("{text:?} is not a number of rows of 100: {error}"),
    }
}

/// The devices that the server can use.
fn parse_device(text: &str) -> Result<Target> {
    match text.parse()? {
        Target::AsSent => bail!("the server has its batches somewhere: host or cuda:N"),
        device => Ok(device),
    }
}

/// The values of an option, or its default.
fn given<T: Copy>(values: &[T], default: &[T]) -> Vec<T> {
    match values {
        [] => default.to_vec(),
        _ => values.to_vec(),
    }
}

/// Replaces each case by one case for each value.
fn multiply<T: Copy>(cases: &mut Vec<Case>, values: &[T], set: impl Fn(&mut Case, T)) {
    let multiplied = cases.iter().flat_map(|case| {
        values.iter().map(|value| {
            let mut case = case.clone();
            set(&mut case, *value);
            case
        })
    });
    *cases = multiplied.collect();
}
