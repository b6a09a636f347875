//! File descriptors for UCX: it ends the process where it finds none, so they are counted first.

use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result, Status};

/// What loading UCX and making a context may take.
pub(super) const OF_A_CONTEXT: u64 = 24;
/// What a worker takes, with an endpoint and UCX's own thread, besides two for each transport that
/// it opens on a device.
const OF_A_WORKER: u64 = 10;

/// This process's descriptors, one entry each.
const OPEN: &str = "/proc/self/fd";

/// What a worker may take where there are so many transports on devices to open.
pub(super) fn of_a_worker(resources: usize) -> u64 {
    OF_A_WORKER.saturating_add((resources as u64).saturating_mul(2))
}

/// Makes sure that this process may open `wanted` file descriptors more.
///
/// # Errors
///
/// `OutOfResources`.
pub(super) fn ensure(wanted: u64) -> Result<()> {
    // No limit.
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Ok(());
    };
    // Where it cannot be known, UCX may try.
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

/// How many descriptors are open; `None` where that cannot be known.
fn count_open() -> Option<u64> {
    match std::fs::read_dir(OPEN) {
        // The folder's own is among them.
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
        // Tests beside this one open and close some, too.
        assert!(count_open().unwrap() + 30 > before + 50);
        drop(held);
        ensure(1).unwrap();
        let error = ensure(u64::MAX).unwrap_err();
        assert_eq!(error.status(), Status::OutOfResources);
        assert!(error.text().contains("ulimit -n"), "{error}");
        assert_eq!(of_a_worker(5), 20);
    }
}
