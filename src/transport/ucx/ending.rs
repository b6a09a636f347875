//! The end of the process while UCX is in use.
//!
//! `exit` runs UCX's destructors on the thread that calls it. They free tables that
//! `ucp_ep_close_nbx`, `ucp_worker_destroy` and `ucp_cleanup` read, and an I/O thread may just be
//! there: it closes the connections of a client that was freed a moment ago. So an exit waits for
//! what is being closed, and after that nothing is: the system frees it.

use std::time::Duration;

use once_cell::sync::OnceCell;
use parking_lot::{RecursiveRwLock, RecursiveRwLockReadGuard};

use crate::device::outlive;
use crate::fork;

/// Read while something of UCX's is closed or destroyed; true from the end of the process on.
/// Recursive, for a connection's end has its worker's within.
static ENDS: RecursiveRwLock<bool> = RecursiveRwLock::new(false);

/// How long an exit waits: no connection takes longer to close.
const PATIENCE: Duration = Duration::from_secs(2);

/// Has an exit wait. Called before anything is made that is to be closed.
pub(super) fn watch() {
    static REGISTERED: OnceCell<i32> = OnceCell::new();
    // Where there is no room for the handler, an exit does not wait.
    // SAFETY: `at_exit` is a
    // function for the life of the process (the library is linked `-z nodelete`). What is
    // registered runs before the destructors of libraries.
    REGISTERED.get_or_init(|| unsafe { libc::atexit(at_exit) });
}

extern "C" fn at_exit() {
    // In a forked child the lock may be held for ever, and its parent's threads are not there.
    if fork::is_child() {
        return;
    }
    outlive::wait(PATIENCE);
    if let Some(mut ends) = ENDS.try_write_for(PATIENCE) {
        *ends = true;
    }
}

/// Keeps the process from ending while something is closed or destroyed; `None` where it ends, and
/// what is left must stay as it is.
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
    /// Set for the child alone.
    const CASE: &str = "DIPC_TEST_ENDING";

    /// Promise of this module: what is being closed at an exit is closed before the process ends,
    /// and nothing after that.
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

    /// Registered first, hence called last.
    extern "C" fn tell() {
        if hold_off().is_none() {
            println!(", and no more");
        }
    }

    /// Closes something slowly, while the process ends.
    #[test]
    #[ignore = "ends its process: run by another test, in a process of its own"]
    fn child() {
        if std::env::var_os(CASE).is_none() {
            return;
        }
        // SAFETY: `tell` is a function for the life of the process.
        assert_eq!(unsafe { libc::atexit(tell) }, 0);
        watch();
        let (closing, is_closing) = mpsc::channel();
        thread::spawn(move || {
            let held = hold_off().unwrap();
            closing.send(()).unwrap();
            thread::sleep(Duration::from_millis(300));
            // An end within an end goes on, although the exit has begun.
            assert!(hold_off().is_some());
            print!("closed");
            drop(held);
        });
        is_closing.recv().unwrap();
        std::process::exit(0);
    }
}
