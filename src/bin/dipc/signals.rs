//! SIGINT and SIGTERM, handed to a thread that may do anything; and SIGXFSZ, which ends nothing.

use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Has a write past the limit on the size of files fail, where it would end the process.
pub fn survive_file_limit() -> Result<()> {
    let unseen = Arc::default();
    signal_hook::flag::register(SIGXFSZ, unseen).context("cannot catch SIGXFSZ")?;
    Ok(())
}

/// Calls `first` at the first SIGINT or SIGTERM and `again` at each later one, on a thread of its
/// own, from now until the process ends.
pub fn watch(
    first: impl FnOnce() + Send + 'static,
    again: impl Fn() + Send + 'static,
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
                again();
            }
        })
        .context("cannot start a thread to wait for signals")?;
    Ok(())
}
