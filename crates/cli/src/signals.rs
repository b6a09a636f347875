//! SIGINT, SIGTERM and SIGHUP go to threads, where any code may run. SIGXFSZ does not end the
//! process.

use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Makes a write past the file size limit fail, instead of ending the process.
pub fn survive_file_limit() -> Result<()> {
    let unseen = Arc::default();
    signal_hook::flag::register(SIGXFSZ, unseen).context("cannot catch SIGXFSZ")?;
    Ok(())
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
            if signals.next().is_some() {
                first();
            }
            for _ in signals {
                later();
            }
        })
        .context("cannot start a thread to wait for signals")?;
    Ok(())
}

/// SIGHUP, which waits until somebody looks.
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
