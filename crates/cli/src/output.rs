//! Printing. If the reader closes stdout early (`dipc get … | head`), the command neither fails nor
//! panics.
//!
//! The output may contain text of a peer or a file, so [`display::escape`] keeps it from
//! controlling the terminal.

use std::io::{self, Write as _};

use arrow::error::ArrowError;
use serde::Serialize;

use crate::display;

/// The reader of stdout has gone.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub struct Closed;

/// Prints a value as JSON, on one line.
///
/// Fails like [`print`].
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&json(value)?)
}

/// A value as JSON, on one line.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(display::escape_json(&serde_json::to_string(value)?).into_owned())
}

/// Prints `text` and a newline to stdout, at once.
///
/// Fails with [`Closed`] if the reader has gone, otherwise with the system's error.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(io::stdout().lock(), text).map_err(|error| refused(error.into()))
}

/// Replaces what the terminal shows by `text`.
///
/// Fails like [`print`].
pub fn redraw(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let cleared = stdout.write_all(b"\x1b[H\x1b[2J");
    cleared
        .and_then(|()| write(stdout, text))
        .map_err(|error| refused(error.into()))
}

/// Prints `text` and a newline to stderr, for a command whose stdout is a table.
///
/// Fails like [`print`].
pub fn print_aside(text: &str) -> anyhow::Result<()> {
    write(io::stderr().lock(), text).map_err(|error| refused(error.into()))
}

fn write(mut stream: impl io::Write, text: &str) -> io::Result<()> {
    let text = display::escape_lines(text);
    stream.write_all(text.as_bytes())?;
    stream.write_all(b"\n")?;
    stream.flush()
}

/// The error of a write to stdout or stderr: [`Closed`] if the reader has gone.
pub fn refused(error: anyhow::Error) -> anyhow::Error {
    match io_kind(&error) {
        Some(io::ErrorKind::BrokenPipe) => Closed.into(),
        _ => error.context("cannot write to stdout"),
    }
}

/// The kind of the first error of the system among the causes.
pub fn io_kind(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|error| {
        let inner = match error.downcast_ref() {
            Some(ArrowError::IoError(_, inner)) => Some(inner),
            _ => error.downcast_ref::<io::Error>(),
        };
        inner.map(io::Error::kind)
    })
}

/// An error with its causes. Repeated text is left out: some errors contain the text of their
/// cause, and some begin with the context that a caller adds.
pub fn whole(error: &anyhow::Error) -> String {
    told(error.chain())
}

/// The same for the errors of a chain.
pub fn told(chain: anyhow::Chain<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in chain.map(ToString::to_string) {
        match parts.last_mut() {
            Some(last) if last.contains(&part) => {}
            Some(last) if part.starts_with(&*last) => *last = part,
            _ => parts.push(part),
        }
    }
    parts.join(": ")
}

/// Prints an error to stderr, on one line.
pub fn complain(text: &str) {
    let line = text
        .split('\n')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let line = line.map(display::escape).collect::<Vec<_>>().join("; ");
    // A closed stderr cannot be reported.
    let _ = writeln!(io::stderr(), "dipc: {line}");
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// Promise of `whole`: each cause is printed once.
    #[test]
    fn causes_are_told_once() {
        let told = |inner: &str, outer: &str| {
            let inner = anyhow!(inner.to_owned()).context("here");
            whole(&inner.context(outer.to_owned()))
        };
        assert_eq!(
            told("no file", "cannot open t"),
            "cannot open t: here: no file"
        );
        let same = anyhow!("cannot open t: no file").context("cannot open t");
        assert_eq!(whole(&same), "cannot open t: no file");
        let told = anyhow!("no file").context("cannot open t: no file");
        assert_eq!(whole(&told), "cannot open t: no file");
    }
}
