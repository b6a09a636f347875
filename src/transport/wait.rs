//! Waits, which only a client makes that connects on its own thread; and timers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::cancel::Cancel;

/// Waits until `fd` is ready for `events`. Returns false if `timeout` passes first.
/// Errors: `CANCELED` by the token, and errors of the system.
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
/// Errors: Those of the system.
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

/// A timer. It becomes readable when its time has come.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer without a time: it does not go off.
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags).map(Self)
    }

    /// Sets the time, counted from now; `None`: the timer does not go off.
    pub fn set(&self, time: Option<Duration>) -> Result<(), Errno> {
        // For the system, zero means that the timer never goes off.
        const AT_ONCE: Duration = Duration::from_nanos(1);
        let time = time.map(|time| time.max(AT_ONCE));
        let never = Timespec::default();
        let timer = Itimerspec {
            it_interval: never,
            it_value: Timespec::try_from(time.unwrap_or_default()).unwrap_or(never),
        };
        timerfd_settime(self, TimerfdTimerFlags::empty(), &timer).map(drop)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
