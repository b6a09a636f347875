//! Threads that wait, as the system tells: for tests that go on once another thread waits inside the
//! library.

use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};

/// The calling thread, for [`until_asleep`].
pub fn this_thread() -> Pid {
    gettid()
}

/// Waits until this thread of the process sleeps, or has ended.
pub fn until_asleep(thread: Pid) {
    let start = Instant::now();
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    // The state follows the name, which may have any character.
    let is_awake = |stat: String| {
        stat.rsplit_once(')')
            .is_some_and(|it| it.1.starts_with(" R"))
    };
    while std::fs::read_to_string(&path).is_ok_and(is_awake) {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the thread never sleeps"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
