//! The servers of this process, and the figures of those that are gone.

use std::ptr;
use std::sync::Weak;

use parking_lot::Mutex;

use super::stats::ServerStats;
use crate::driver::figures::Sum as _;
use crate::fork::PerProcess;

/// A server that has figures.
pub trait Measured: Send + Sync {
    /// Its figures now.
    fn stats(&self) -> ServerStats;
}

#[derive(Default)]
struct Servers {
    running: Vec<Weak<dyn Measured>>,
    gone: ServerStats,
}

static SERVERS: PerProcess<Mutex<Servers>> = PerProcess::new(Mutex::default);

/// Counts the server in the figures of the process from now on.
pub fn enlist(server: Weak<dyn Measured>) {
    SERVERS.get().lock().running.push(server);
}

/// Takes a stopped server off the list. Its counts stay in those of the process.
pub fn retire(server: &impl Measured) {
    let mut servers = SERVERS.get().lock();
    let before = servers.running.len();
    (servers.running).retain(|it| !ptr::addr_eq(it.as_ptr(), ptr::from_ref(server)));
    if servers.running.len() < before {
        let mut stats = server.stats();
        // What exists only now ends with the server.
        (stats.connections, stats.streams_active) = (0, 0);
        (stats.lent_outstanding, stats.region_bytes) = (0, 0);
        servers.gone.add_sums(&stats);
    }
}

/// Figures of all servers of this process, those that are gone included.
pub fn process_stats() -> ServerStats {
    let servers = SERVERS.get().lock();
    let mut sums = servers.gone;
    // `retire` waits for the lock, so none of these references is the last one.
    for server in servers.running.iter().filter_map(Weak::upgrade) {
        sums.add_sums(&server.stats());
    }
    sums
}
