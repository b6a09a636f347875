//! Tickets, statuses and failures, as lines of the log show them.

use std::fmt::Display;

use crate::error::Status;
use crate::lines::Lines;

/// Most bytes of a ticket in a line.
const TICKET_BYTES: usize = 100;

/// A ticket as a line shows it, between backticks.
pub fn shown(ticket: &[u8]) -> String {
    format!("`{}`", readable(ticket))
}

/// A ticket as a field shows it. It comes from the peer, so it may be any bytes.
pub fn readable(ticket: &[u8]) -> String {
    let (start, cut) = match ticket.get(..TICKET_BYTES) {
        Some(start) if ticket.len() > TICKET_BYTES => (start, "…"),
        _ => (ticket, ""),
    };
    format!("{}{cut}", start.escape_ascii())
}

/// The name of a status. A status that the host made up counts as the provider's.
pub fn symbol(status: i32) -> &'static str {
    Status::from_code(status)
        .unwrap_or(Status::Provider)
        .symbol()
}

/// Warns that the provider of `what` has failed. There is no warning for an answer that the
/// provider chose, or for a selection that does not fit the table: the line of INFO about the end
/// reports these.
pub fn warn_of_provider(what: impl Display, status: i32, text: &str) {
    static FAILURES: Lines = Lines::new();
    if is_answer(status) {
        return;
    }
    let status = symbol(status);
    FAILURES.say(|more| {
        tracing::warn!("{what}: its provider failed: {status}: {text}{more}");
    });
}

/// True for an answer that a host gives to a request on purpose; false for a fault of the host.
fn is_answer(status: i32) -> bool {
    matches!(
        Status::from_code(status),
        Some(
            Status::AlreadyExists
                | Status::Busy
                | Status::InvalidArgument
                | Status::NotFound
                | Status::Permission
                | Status::Unsupported
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tickets are any bytes, of up to a megabyte.
    #[test]
    fn tickets_are_shown_in_one_short_line() {
        assert_eq!(shown(b"a\n\xff"), "`a\\n\\xff`");
        assert_eq!(shown(&[b'x'; 100]).len(), 102);
        let long = shown(&[b'\n'; 101]);
        assert_eq!(long, format!("`{}…`", "\\n".repeat(100)));
    }
}
