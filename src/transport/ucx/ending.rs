//! The end of the process while UCX is in use.
//!
//! `exit` runs UCX's destructors on the thread that calls it. The destructors free tables that
//! `ucp_ep_close_nbx`, `ucp_worker_destroy` and `ucp_cleanup` read. An I/O thread may run these
//! functions just then, to close the connections of a freed client. So an exit waits for running
//! closes. Later closes do nothing: the system frees the memory.

use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::{RecursiveRwLock, RecursiveRwLockReadGuard};

use crate::device::outlive;
use crate::fork;

/// Locked for reading while a UCX object is closed or destroyed. True from the end of the process
/// on. Recursive, because the end of a connection includes the end of its worker.
static ENDS: RecursiveRwLock<bool> = RecursiveRwLock::new(false);

/// Longest wait of an exit: no connection takes longer to close.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes an exit wait. Called before the first object that must be closed.
pub(super) fn watch() {
    static REGISTERED: OnceCell<i32> = OnceCell::new();
    // If the handler cannot be registered, an exit does not wait.
    // SAFETY: `at_exit` lives as long as the process: the library is linked `-z nodelete`. The
    // handler runs before the destructors of libraries.
    REGISTERED.get_or_init(|| unsafe { libc::atexit(at_exit) });
}

extern "C" fn at_exit() {
    // In a forked child the lock may stay held for ever, because the parent's threads are missing.
    if fork::is_child() {
        return;
    }
    outlive::wait(PATIENCE);
    if let Some(mut ends) = ENDS.try_write_for(PATIENCE) {
        *ends = true;
    }
}

/// Keeps the process alive while a UCX object is closed or destroyed. `None`: the process ends, and
/// the caller must leave its objects as they are.
pub(super) fn hold_off() -> Option<RecursiveRwLockReadGuard<'static, bool>> {
    let ends = ENDS.read();
    (!*ends).then_some(ends)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const CHILD: &str = "transport::ucx::ending::tests::child";
    /// Set only for the child.
    const CASE: &str = "DIPC_TEST_ENDING";

    /// Promise of this module: an exit waits for a running close, and later closes do nothing.
    #[test]
    fn an_exit_waits_for_what_is_being_closed() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--ignored", "--nocapture"])
            .env(CASE, "")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("closed, and no more"), "{told}");
    }

    /// Registered first, so it is called last.
    extern "C" fn tell() {
        if hold_off().is_none() {
            println!(", and no more");
        }
    }

    /// Runs a slow close while the process ends.
    #[test]
    #[ignore = "ends its process: run by another test, in a process of its own"]
    fn child() {
        if std::env::var_os(CASE).is_none() {
            return;
        }
        // SAFETY: `tell` lives as long as the process.
        assert_eq!(unsafe { libc::atexit(tell) }, 0);
        watch();
        let (closing, is_closing) = mpsc::channel();
        thread::spawn(move || {
            let held = hold_off().unwrap();
            closing.send(()).unwrap();
            thread::sleep(Duration::from_millis(300));
            // A close inside a close goes on, although the exit has begun.
            assert!(hold_off().is_some());
            print!("closed");
            drop(held);
        });
        is_closing.recv().unwrap();
        std::process::exit(0);
    }
}
