//! The two processes of a measurement, for the command.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::level_filters::LevelFilter;

use super::base::message::{Order, Role};
use crate::signals;

/// The hidden subcommand of these processes.
pub const SUBCOMMAND: &str = "bench-process";

/// How long a process may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// SIGINT and SIGTERM during the wait for a process.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    interrupted: bool,
    pid: Option<Pid>,
}

impl Interrupt {
    /// From now on a signal ends the client that the command waits for, and so the wait. A server
    /// is not ended: it answers soon, and must release its address.
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        let first = interrupt.clone();
        let signalled = move || {
            let mut waiting = first.0.lock();
            waiting.interrupted = true;
            if let Some(pid) = waiting.pid {
                // The process has not been reaped (`Worker::answer`), so its number is still valid.
                let _ = kill_process(pid, Signal::KILL);
            }
        };
        signals::watch(signalled, signals::give_up)?;
        Ok(interrupt)
    }

    /// # Errors
    ///
    /// The time of a signal.
    pub fn check(&self) -> Result<()> {
        match self.0.lock().interrupted {
            true => bail!("interrupted"),
            false => Ok(()),
        }
    }
}

/// A process of a measurement. The drop ends it.
pub struct Worker {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// A client does not read its pipe while it fetches, and leaves nothing behind, so it is
    /// killed.
    is_client: bool,
    interrupt: Interrupt,
}

impl Worker {
    /// Starts a process.
    pub fn start(
        name: &'static str,
        order: &Order,
        log: LevelFilter,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        interrupt.check()?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(["--log", &log.to_string(), SUBCOMMAND])
            // A process group of its own, so that ctrl-C reaches only the command, which ends the
            // others in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the {name} process"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the {name} process has no pipes");
        };
        let mut worker = Self {
            name,
            child,
            stdin: Some(stdin),
            stdout: BufReader::new(stdout),
            is_client: matches!(order.role, Role::Client(_)),
            interrupt: interrupt.clone(),
        };
        worker.tell(order)?;
        Ok(worker)
    }

    /// Starts its next step.
    pub fn go(&mut self) -> Result<()> {
        self.tell(&"go")
    }

    fn tell(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        let told = match &mut self.stdin {
            Some(stdin) => stdin.write_all(line.as_bytes()),
            None => Ok(()),
        };
        told.map_err(|_| self.why_ended())
    }

    /// Waits for its next answer.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        {
            let mut waiting = self.interrupt.0.lock();
            if waiting.interrupted {
                bail!("interrupted");
            }
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            waiting.pid = pid.filter(|_| self.is_client);
        }
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        // Before the process is reaped: afterwards its number may belong to another process.
        self.interrupt.0.lock().pid = None;
        self.interrupt.check()?;
        match read {
            Ok(bytes) if bytes > 0 && line.ends_with('\n') => {
                let answer: Result<T, String> = serde_json::from_str(&line)
                    .with_context(|| format!("the {} process speaks otherwise", self.name))?;
                answer.map_err(|text| anyhow!("the {} process: {text}", self.name))
            }
            _ => Err(self.why_ended()),
        }
    }

    /// The error of a process that ended too early; `None` while it runs.
    pub fn ended_badly(&mut self, patience: Duration) -> Option<anyhow::Error> {
        let status = self.wait(patience)?;
        let how = match (status.signal(), status.code()) {
            (Some(9), _) => "was killed (signal 9), by hand or for want of memory".to_owned(),
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, Some(0)) | (None, None) => "ended too early".to_owned(),
            (None, Some(code)) => format!("ended with status {code}"),
        };
        Some(anyhow!("the {} process {how}", self.name))
    }

    fn why_ended(&mut self) -> anyhow::Error {
        self.ended_badly(PATIENCE)
            .unwrap_or_else(|| anyhow!("the {} process says nothing any more", self.name))
    }

    /// Waits for its end.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A process ends when its pipe is closed.
        drop(self.stdin.take());
        if self.wait(PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
