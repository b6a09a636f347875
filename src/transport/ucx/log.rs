//! UCX's log, in ours.

use ucx1_sys::{
    UCS_LOG_LEVEL_DIAG, UCS_LOG_LEVEL_ERROR, UCS_LOG_LEVEL_FATAL, UCS_LOG_LEVEL_INFO,
    UCS_LOG_LEVEL_WARN, ucs_log_level_t,
};

use crate::lines::Lines;

/// Takes a line of UCX's log. What UCX calls an error is often a peer's death, which the
/// connection's own error tells: so each level is a step lower here. Each peer that goes may bring
/// several lines about, so they are counted.
pub(super) fn log(level: ucs_log_level_t, _file: &str, _line: u32, text: &str) {
    static ERRORS: Lines = Lines::new();
    static WARNINGS: Lines = Lines::new();
    match level {
        _ if is_of_an_end(text) => tracing::debug!(target: "dipc::ucx", "UCX: {text}"),
        UCS_LOG_LEVEL_FATAL => tracing::error!(target: "dipc::ucx", "UCX: {text}"),
        UCS_LOG_LEVEL_ERROR => {
            ERRORS.say(|more| tracing::warn!(target: "dipc::ucx", "UCX: {text}{more}"));
        }
        UCS_LOG_LEVEL_WARN => {
            WARNINGS.say(|more| tracing::info!(target: "dipc::ucx", "UCX: {text}{more}"));
        }
        UCS_LOG_LEVEL_DIAG | UCS_LOG_LEVEL_INFO => {
            tracing::debug!(target: "dipc::ucx", "UCX: {text}")
        }
        _ => tracing::trace!(target: "dipc::ucx", "UCX: {text}"),
    }
}

/// Whether UCX says no more than that a peer has left, several times for each: its endpoint is
/// closed, or bodies that it sent to a stream that is over are dropped.
fn is_of_an_end(text: &str) -> bool {
    text.contains("error during flush")
        || (text.starts_with("unexpected tag-receive descriptor")
            && text.ends_with("was not matched"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    /// What UCX says of each peer that leaves is for finding faults alone.
    #[test]
    fn ends_are_not_told() {
        let told = |text| lines::testing::count(|| log(UCS_LOG_LEVEL_WARN, "file.c", 1, text));
        assert_eq!(told("error during flush: UcxEndpoint timeout"), 0);
        let dropped = "unexpected tag-receive descriptor 0x5581 was not matched";
        assert_eq!(told(dropped), 0);
        assert_eq!(told("failed to create keepalive timer fd"), 1);
    }
}
