//! File descriptors for UCX. UCX ends the process if there are none left, so this counts them
//! first.

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result, Status};

/// Descriptors for loading UCX and making a context.
pub(super) const OF_A_CONTEXT: u64 = 24;
/// Descriptors for a worker with an endpoint and UCX's own thread, without the two for each
/// transport that the worker opens on a device.
const OF_A_WORKER: u64 = 10;

/// Has one entry for each descriptor of this process.
const OPEN: &str = "/proc/self/fd";

/// Descriptors for a worker that opens this many transports on devices.
pub(super) fn of_a_worker(resources: usize) -> u64 {
    OF_A_WORKER.saturating_add((resources as u64).saturating_mul(2))
}

/// Fails unless this process may open `wanted` more file descriptors.
///
/// # Errors
///
/// `OutOfResources`.
pub(super) fn ensure(wanted: u64) -> Result<()> {
    // There is no limit.
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Ok(());
    };
    // If the number is unknown, UCX may try.
    let Some(open) = count_open() else {
        return Ok(());
    };
    let left = limit.saturating_sub(open);
    if left >= wanted {
        return Ok(());
    }
    Err(Error::new(
        Status::OutOfResources,
        format!(
            "too few file descriptors are left for UCX, which takes up to {wanted} for a \
             connection and ends the process where there are none: {left} of {limit} are free; \
             raise the limit of open files (ulimit -n) or let connections end"
        ),
    ))
}

/// How many descriptors are open; `None` if that cannot be known.
fn count_open() -> Option<u64> {
    match std::fs::read_dir(OPEN) {
        // The descriptor of the folder itself is among them.
        Ok(entries) => u64::try_from(entries.count().saturating_sub(1)).ok(),
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Some(u64::MAX),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open descriptors are counted. A request for more than are left is refused, and the text has
    /// both numbers.
    #[test]
    fn descriptors_are_counted() {
        let before = count_open().unwrap();
        let held: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        // Other tests may open and close some at the same time.
        assert!(count_open().unwrap() + 30 > before + 50);
        drop(held);
        ensure(1).unwrap();
        let error = ensure(u64::MAX).unwrap_err();
        assert_eq!(error.status(), Status::OutOfResources);
        assert!(error.text().contains("ulimit -n"), "{error}");
        assert_eq!(of_a_worker(5), 20);
    }
}
