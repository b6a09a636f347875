//! Where a stream is served that has begun.

use crate::driver::end::End;
use crate::driver::turning::Turner;
use crate::error::Error;

/// Where a stream is served that has begun.
pub(super) enum Begun {
    /// Where the connection is turned. The connection may be free as well.
    Here(Turner<End>),
    /// On a thread of its own.
    Thread(Box<dyn StreamWork>),
    /// By a host of the pull form, or by the thread of the stream's other part.
    Elsewhere,
}

impl Begun {
    /// Has `run` find a thread for a stream that needs one. Gives the connection that the calling
    /// thread has to turn.
    pub(super) fn dispatch(self, run: impl FnOnce(Box<dyn StreamWork>)) -> Option<Turner<End>> {
        match self {
            Self::Here(turner) => Some(turner),
            Self::Thread(work) => {
                run(work);
                None
            }
            Self::Elsewhere => None,
        }
    }
}

/// A stream that needs a thread of its own.
pub(super) trait StreamWork: Send {
    /// Serves the stream. Gives the connection back, where it is free for the next request.
    fn run(self: Box<Self>) -> Begun;

    /// Ends the stream, for which there is no thread.
    fn refuse(self: Box<Self>, error: &Error);
}

/// A published table whose bodies are copied, on a thread for this stream only.
pub(super) struct HeavyTable(pub(super) Turner<End>);

impl StreamWork for HeavyTable {
    fn run(self: Box<Self>) -> Begun {
        Begun::Here(self.0)
    }

    fn refuse(self: Box<Self>, error: &Error) {
        // Without a thread the I/O thread sends the table, while other connections wait.
        tracing::debug!("a table is sent by the I/O thread: {error}");
    }
}
