//! The messages between the command and its two processes: lines of JSON over pipes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};

use anyhow::{Context as _, Result};
use dipc::StreamStats;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::case::Case;

/// The command that started this process.
pub struct Parent;

impl Parent {
    /// The next line; `None` when there are no more.
    pub fn hear<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let mut line = String::new();
        let bytes = stdin()
            .lock()
            .read_line(&mut line)
            .context("cannot hear the command")?;
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Waits for the start of the next step. Returns whether there is one.
    pub fn go(&self) -> Result<bool> {
        Ok(self.hear::<String>()?.is_some())
    }

    /// Tells the command that this process is ready, and waits until the command starts the next
    /// step. Returns false if the command has no more steps.
    pub fn ready(&self) -> Result<bool> {
        self.say(())?;
        self.go()
    }

    pub fn answer<T: Serialize>(&self, answer: Result<T, String>) -> Result<()> {
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        let mut stdout = stdout().lock();
        stdout.write_all(line.as_bytes())?;
        Ok(stdout.flush()?)
    }

    pub fn say<T: Serialize>(&self, what: T) -> Result<()> {
        self.answer(Ok(what))
    }
}

/// The first line to a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub role: Role,
    pub case: Case,
}

/// The role of a process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Role {
    Server,
    Client(Ready),
}

/// The server is ready.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ready {
    pub uri: String,
    /// The sum of the values of each distinct batch.
    pub sums: Vec<u64>,
    /// The URI of the Flight server, if there is one.
    #[serde(default)]
    pub flight: Option<String>,
}

/// The resources that a process has used up to now.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// Largest resident memory, including lent memory.
    pub peak_bytes: u64,
    /// Resident memory now, without shared memory.
    pub private_bytes: u64,
    /// Bytes that libdipc copied on the host.
    pub copied_bytes: u64,
    /// Bytes that libdipc copied within a GPU or between GPUs.
    pub copied_on_device_bytes: u64,
    /// Bytes that libdipc copied between the host and a GPU.
    pub staged_bytes: u64,
    /// Bytes of regions for lent copies.
    pub region_bytes: u64,
}

impl Usage {
    /// The usage of this process, without libdipc's figures.
    pub fn now() -> Result<Self> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = std::fs::read_to_string("/proc/self/status")
            .context("cannot read this process's use of memory")?;
        let numbers: BTreeMap<&str, u64> = status
            .lines()
            .filter_map(|line| {
                let (name, value) = line.split_once(':')?;
                let kilobytes = value.trim().strip_suffix(" kB")?;
                Some((name, kilobytes.trim().parse::<u64>().ok()? * 1024))
            })
            .collect();
        let number = |name| numbers.get(name).copied().unwrap_or(0);
        Ok(Self {
            cpu_seconds: seconds_of(cpu),
            peak_bytes: number("VmHWM"),
            private_bytes: number("RssAnon") + number("RssFile"),
            ..Self::default()
        })
    }

    /// What this process has used since, as a part of its figures.
    pub fn until_now(&self) -> Result<Outcome> {
        let now = Self::now()?;
        Ok(Outcome {
            cpu_seconds: now.cpu_seconds - self.cpu_seconds,
            peak_bytes: now.peak_bytes,
            ..Outcome::default()
        })
    }
}

/// A time as seconds.
#[expect(clippy::cast_precision_loss, reason = "seconds of a process are few")]
fn seconds_of(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The client's figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub seconds: f64,
    pub batches: u64,
    pub fetches: u64,
    pub lent_bytes: u64,
    pub copied_bytes: u64,
    pub copied_on_device_bytes: u64,
    pub staged_bytes: u64,
    pub received_bytes: u64,
    /// Bytes per second of each stream.
    pub rates: Vec<f64>,
    pub latency: Option<Latency>,
    /// Processor time of this process during the measurement.
    pub cpu_seconds: f64,
    pub peak_bytes: u64,
    /// Private memory for each idle stream.
    pub stream_bytes: Option<u64>,
    /// Of a table that is filtered.
    pub filtered: Option<Filtered>,
    /// Of new streams.
    pub opened: Option<Opened>,
}

impl Outcome {
    /// With the bytes of streams.
    pub fn with(mut self, stats: StreamStats) -> Self {
        self.lent_bytes = stats.bytes_lent;
        self.copied_bytes = stats.bytes_copied;
        self.copied_on_device_bytes = stats.bytes_copied_on_device;
        self.staged_bytes = stats.bytes_staged;
        self.received_bytes = stats.bytes_received;
        self
    }
}

/// Streams that were opened, read and closed, on both sides.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Opened {
    pub libdipc: Opening,
    pub flight: Opening,
}

/// The figures of one of these sides.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Opening {
    pub streams: u64,
    pub seconds: f64,
}

/// A table that was filtered at the client, and at the server.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Filtered {
    pub at_client: Filtering,
    pub at_server: Filtering,
}

/// The figures of one of these ways, all gets together.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Filtering {
    pub gets: u64,
    pub seconds: f64,
    /// Rows of the table.
    pub rows: u64,
    /// Rows that passed.
    pub passed: u64,
    /// Bytes of bodies that the client was given, lent or sent.
    pub bytes: u64,
}

impl Filtering {
    /// Adds a get.
    pub fn add(&mut self, get: &Self) {
        self.gets += get.gets;
        self.seconds += get.seconds;
        self.rows += get.rows;
        self.passed += get.passed;
        self.bytes += get.bytes;
    }
}

/// Percentiles, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Latency {
    pub fn of(times: &Histogram<u64>) -> Self {
        Self {
            count: times.len(),
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            p99_9: times.value_at_quantile(0.999),
            max: times.max(),
        }
    }
}
