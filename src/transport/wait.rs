//! Waiting, as only a client does that connects on its own thread.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cancel::Cancel;

/// Waits until `fd` is ready for `events`. Returns false if `timeout` has passed before.
/// Errors: `CANCELED` by the token, and as the system says it.
pub fn wait(
    fd: &impl AsFd,
    events: PollFlags,
    timeout: Duration,
    cancel: Option<&Cancel>,
) -> Result<bool, Errno> {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let ready = PollFd::new(fd, events);
        let polled = match cancel {
            Some(cancel) => {
                let token = cancel.fd().map_err(|_| Errno::MFILE)?;
                let token = PollFd::from_borrowed_fd(token, PollFlags::IN);
                poll(&mut [ready, token], Some(&left))
            }
            None => poll(&mut [ready], Some(&left)),
        };
        match polled {
            Ok(_) if cancel.is_some_and(Cancel::is_cancelled) => return Err(Errno::CANCELED),
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for `time`, or for the token.
/// Errors: As the system says it.
pub fn rest(time: Duration, cancel: Option<&Cancel>) -> Result<(), Errno> {
    match cancel {
        Some(cancel) => {
            let token = cancel.fd().map_err(|_| Errno::MFILE)?;
            wait(&token, PollFlags::IN, time, None).map(drop)
        }
        None => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}
