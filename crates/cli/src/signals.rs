//! SIGINT, SIGTERM and SIGHUP go to threads, where any code may run. SIGXFSZ does not end the
//! process.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dipc::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::output;

/// Makes a write past the file size limit fail, instead of ending the process.
pub fn survive_file_limit() -> Result<()> {
    let unseen = Arc::default();
    signal_hook::flag::register(SIGXFSZ, unseen).context("cannot catch SIGXFSZ")?;
    Ok(())
}

/// The signal that came first; 0: none.
static FIRST: AtomicU8 = AtomicU8::new(0);

/// The exit status of a command that a signal ended, as shells give it: 128 and the signal.
fn status() -> Option<u8> {
    let signal = FIRST.load(Ordering::Relaxed);
    (signal != 0).then(|| 128 + signal)
}

/// The exit status of a command that has failed.
pub fn failure() -> ExitCode {
    status().map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Ends the process at a second signal.
pub fn give_up() {
    std::process::exit(status().map_or(1, i32::from));
}

/// Calls `first` at the first SIGINT or SIGTERM and `later` at each later signal, on its own
/// thread, until the process ends.
pub fn watch(
    first: impl FnOnce() + Send + 'static,
    later: impl Fn() + Send + 'static,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    thread::Builder::new()
        .name("dipc-signals".to_owned())
        .spawn(move || {
            let mut signals = signals.forever();
            if let Some(signal) = signals.next() {
                FIRST.store(u8::try_from(signal).unwrap_or(0), Ordering::Relaxed);
                first();
            }
            for _ in signals {
                later();
            }
        })
        .context("cannot start a thread to wait for signals")?;
    Ok(())
}

/// A token that the first signal cancels. With `blocked` the process ends a second later, with this
/// error: the work may then wait for a pipe, whatever happens meanwhile.
pub fn cancelling(blocked: Option<&'static str>) -> Result<Cancel> {
    let cancel = Cancel::new()?;
    let first = cancel.clone();
    let interrupted = move || {
        first.cancel();
        if let Some(text) = blocked {
            thread::sleep(Duration::from_secs(1));
            output::complain(text);
            give_up();
        }
    };
    watch(interrupted, give_up)?;
    Ok(cancel)
}

/// SIGHUP, which stays pending until `reload` handles it.
pub struct Hangups(Option<Signals>);

impl Hangups {
    /// Takes SIGHUP from now on, or leaves it to end the process.
    pub fn new(takes: bool) -> Result<Self> {
        let signals = takes.then(|| Signals::new([SIGHUP]));
        Ok(Self(signals.transpose().context("cannot wait for SIGHUP")?))
    }

    /// Calls `reload` at each SIGHUP, on its own thread, until the process ends.
    pub fn watch(self, reload: impl Fn() + Send + 'static) -> Result<()> {
        let Some(mut signals) = self.0 else {
            return Ok(());
        };
        thread::Builder::new()
            .name("dipc-reload".to_owned())
            .spawn(move || signals.forever().for_each(|_| reload()))
            .context("cannot start a thread to wait for SIGHUP")?;
        Ok(())
    }
}
