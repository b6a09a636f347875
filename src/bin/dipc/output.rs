//! Printing. A reader that closes stdout early (`dipc get … | head`) is no failure and no panic.

use std::io::{self, Write as _};

/// Whoever read stdout has gone.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub struct Closed;

/// Prints `text` and a newline to stdout, at once.
///
/// Fails with [`Closed`] when nobody reads any more, else with what the system says.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(Closed),
        _ => anyhow::Error::new(error).context("cannot write to stdout"),
    })
}

/// Prints an error to stderr, on one line.
pub fn complain(text: &str) {
    let line = text
        .split('\n')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let line = line.collect::<Vec<_>>().join("; ");
    // Where stderr is closed, too, there is nowhere left to say so.
    let _ = writeln!(io::stderr(), "dipc: {line}");
}
