//! Workers in processes of their own.

use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use url::Url;

/// Workers of this machine. They end with this value.
pub struct Workers(Vec<Worker>);

struct Worker {
    child: Child,
    url: Url,
    /// A worker whose output nobody can read any more may end.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Workers {
    /// Starts workers that read from each other by one way.
    pub async fn start(count: usize, way: &str) -> Result<Self> {
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(Worker::start(way).await?);
        }
        Ok(Self(workers))
    }

    pub fn urls(&self) -> Vec<Url> {
        self.0.iter().map(|worker| worker.url.clone()).collect()
    }

    /// Seconds of processor time that the workers and this process have used so far.
    pub fn processor_time(&self) -> Result<f64> {
        let mut sum = processor_time("self")?;
        for worker in &self.0 {
            let id = worker.child.id().context("a worker has ended")?;
            sum += processor_time(&id.to_string())?;
        }
        Ok(sum)
    }
}

impl Worker {
    async fn start(way: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", "--listen", "127.0.0.1:0", "--way", way])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("a worker has no output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(url) = line.strip_prefix("plans at ") {
                let url = Url::parse(url)?;
                return Ok(Self {
                    child,
                    url,
                    _output: lines,
                });
            }
        }
        anyhow::bail!("a worker ended before it listened")
    }
}

/// User and system time of a process, in seconds (proc_pid_stat(5), fields 14 and 15).
fn processor_time(process: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before the last parenthesis may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("no state of the process")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let per_second = clock_ticks_per_second() as f64;
    Ok(f64::from(ticks) / per_second)
}
