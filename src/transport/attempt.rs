//! Attempts to reach a server, which need no thread while they wait.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::transport::wait::{rest, wait};
use crate::transport::{Connection, Watched};

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Connection>>> + Send + 'a>>;

/// What an attempt waits for: a descriptor, a time, or whichever comes first.
#[derive(Debug, Clone)]
pub struct Awaited {
    /// The descriptor, and the events to wait for: `IN` or `OUT`.
    pub fd: Option<(Arc<dyn Watched>, PollFlags)>,
    /// The attempt goes on at this time at the latest.
    pub until: Instant,
}

/// An attempt to reach a server, for the futures that belong to it.
///
/// These futures wake no task. [`poll`](Self::poll) returns the descriptor and the time that a
/// future waits for. The caller sleeps on both and on the token, and then polls again. The caller
/// is a thread that does nothing else ([`block_on`](Self::block_on)), or a thread that sleeps for
/// many attempts.
#[derive(Debug, Default)]
pub struct Attempt {
    cancel: Option<Cancel>,
    /// What the future that was polled last waits for.
    awaited: Mutex<Option<Awaited>>,
}

impl Attempt {
    /// An attempt that the token can end.
    pub fn new(cancel: Option<Cancel>) -> Self {
        Self {
            cancel,
            awaited: Mutex::default(),
        }
    }

    /// Fails if the token is triggered.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), Cancel::check)
    }

    /// Whether `fd` is ready for `events` before `until`.
    ///
    /// # Errors
    ///
    /// `Cancelled` by the token, and errors of the system.
    pub async fn ready(
        &self,
        fd: Arc<dyn Watched>,
        events: PollFlags,
        until: Instant,
    ) -> Result<bool> {
        poll_fn(|_| {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            match wait(&fd, events, Duration::ZERO, None) {
                Ok(true) => return Poll::Ready(Ok(true)),
                Ok(false) if left.is_zero() => return Poll::Ready(Ok(false)),
                Ok(false) => {}
                Err(errno) => return Poll::Ready(Err(cannot_wait(errno))),
            }
            self.sleep(Awaited {
                fd: Some((Arc::clone(&fd), events)),
                until,
            })
        })
        .await
    }

    /// Waits until `until`.
    ///
    /// # Errors
    ///
    /// `Cancelled` by the token.
    pub async fn pause(&self, until: Instant) -> Result<()> {
        poll_fn(|_| {
            self.check()?;
            match Instant::now() >= until {
                true => Poll::Ready(Ok(())),
                false => self.sleep(Awaited { fd: None, until }),
            }
        })
        .await
    }

    fn sleep<T>(&self, awaited: Awaited) -> Poll<T> {
        *self.awaited.lock() = Some(awaited);
        Poll::Pending
    }

    /// Continues a future of this attempt.
    ///
    /// # Errors
    ///
    /// If the future is not done: what it waits for.
    pub fn poll<T>(
        &self,
        future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<T, Awaited> {
        let mut context = Context::from_waker(Waker::noop());
        match future.poll(&mut context) {
            Poll::Ready(done) => Ok(done),
            Poll::Pending => Err(self.awaited.lock().take().unwrap_or_else(|| Awaited {
                fd: None,
                until: Instant::now(),
            })),
        }
    }

    /// Waits for a future of this attempt, on this thread.
    ///
    /// # Errors
    ///
    /// Those of the future, and of the system.
    pub fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let mut future = pin!(future);
        loop {
            let awaited = match self.poll(future.as_mut()) {
                Ok(done) => return done,
                Err(awaited) => awaited,
            };
            let left = awaited.until.saturating_duration_since(Instant::now());
            let cancel = self.cancel.as_ref();
            let waited = match &awaited.fd {
                Some((fd, events)) => wait(fd, *events, left, cancel).map(drop),
                None => rest(left, cancel),
            };
            match waited {
                // The future reports it.
                Ok(()) | Err(Errno::CANCELED) => {}
                Err(errno) => return Err(cannot_wait(errno)),
            }
        }
    }
}

fn cannot_wait(errno: Errno) -> Error {
    Error::os("cannot wait for a server", errno)
}
