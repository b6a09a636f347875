//! Passes UCX's log on to ours.

use ucx1_sys::{
    UCS_LOG_LEVEL_DIAG, UCS_LOG_LEVEL_ERROR, UCS_LOG_LEVEL_FATAL, UCS_LOG_LEVEL_INFO,
    UCS_LOG_LEVEL_WARN, ucs_log_level_t,
};

use crate::lines::Lines;

/// Logs a line of UCX's log. What UCX calls an error is often a peer's death, which the
/// connection's own error reports. So each level is one lower here. Each peer that leaves may cause
/// several lines, so they are limited.
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

/// Whether UCX only reports that a peer has left, which it does several times for each: its
/// endpoint is closed, or bodies that it sent for an ended stream are dropped.
fn is_of_an_end(text: &str) -> bool {
    text.contains("error during flush")
        || (text.starts_with("unexpected tag-receive descriptor")
            && text.ends_with("was not matched"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    /// UCX's lines about peers that leave are shown only at the level for finding faults.
    #[test]
    fn ends_are_not_told() {
        let told = |text| lines::testing::count(|| log(UCS_LOG_LEVEL_WARN, "file.c", 1, text));
        assert_eq!(told("error during flush: UcxEndpoint timeout"), 0);
        let dropped = "unexpected tag-receive descriptor 0x5581 was not matched";
        assert_eq!(told(dropped), 0);
        assert_eq!(told("failed to create keepalive timer fd"), 1);
    }
}
