//! A request at a server, from its arrival to its answer.

use std::sync::Arc;

use super::asked_for::Allowed;
use super::client_stream::ClientStream;
use super::streams::Slot;
use super::tickets::Entry;
use crate::driver::callbacks::Callbacks;
use crate::driver::end::{End, EndLink, StreamLink};
use crate::driver::turning::Turner;
use crate::error::Error;
use crate::proto::ArrivedRequest;

/// A request, by how far the server has come with it.
pub(super) enum Asked {
    /// It has come.
    Arrived(IncomingRequest),
    /// The host allows it (rule Q7).
    Decided(IncomingRequest, Allowed),
    /// It has a ticket, and a place among the streams.
    Admitted(IncomingRequest, Allowed, Admission),
    /// It is answered with an error. The second value is the host's name for the client.
    Refused(IncomingRequest, Option<String>, Error),
    /// A stream serves it.
    Begun(Begun),
    /// It was refused, and the connection is free again.
    Answered(Turner<End>),
}

/// Where a stream is served after it has begun.
pub(super) enum Begun {
    /// On the connection, by the thread that turns it. The connection may also be free.
    Here(Turner<End>),
    /// On a thread of its own.
    Thread(Box<dyn StreamWork>),
    /// By a host of the pull form, or by the thread that serves the stream's other part.
    Elsewhere,
}

impl Begun {
    /// Gives a stream that needs a thread to `run`. Returns the connection if the calling thread
    /// has to turn it.
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
    /// Serves the stream. Gives the connection back if it is free for the next request.
    fn run(self: Box<Self>) -> Begun;

    /// Ends the stream, because there is no thread for it.
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

/// Moves requests on to their next state, on any thread.
pub(super) trait Dispatch: Send + Sync {
    /// Moves a request on as far as the calling thread can.
    fn advance(&self, asked: Asked) -> Begun;
}

/// A request and its connection.
pub(super) struct IncomingRequest {
    pub(super) request: ArrivedRequest,
    pub(super) owner: ConnectionOwner,
}

/// The owner of a request's connection.
pub(super) enum ConnectionOwner {
    /// The request.
    Request(Turner<End>),
    /// The stream that the client sends; and in an exchange also the token of the server's own
    /// stream.
    Stream(Arc<ClientStream>, Option<Turner<End>>),
}

/// The place of a request among the streams.
pub(super) struct Admission {
    pub(super) entry: Entry,
    pub(super) slot: Arc<Slot>,
    pub(super) callbacks: Callbacks,
}

impl IncomingRequest {
    pub(super) fn new(turner: Turner<End>, request: ArrivedRequest) -> Self {
        Self {
            request,
            owner: ConnectionOwner::Request(turner),
        }
    }

    pub(super) fn link(&self) -> &Arc<EndLink> {
        match &self.owner {
            ConnectionOwner::Request(turner) => turner.link(),
            ConnectionOwner::Stream(source, _) => source.link(),
        }
    }

    pub(super) fn stream(&self) -> StreamLink {
        match &self.owner {
            ConnectionOwner::Request(turner) => turner.stream(),
            ConnectionOwner::Stream(source, _) => source.link().clone(),
        }
    }

    /// If the connection carries many streams from now on, gives it to the I/O thread.
    pub(super) fn share_connection(self) -> Self {
        match self.owner {
            ConnectionOwner::Request(mut turner)
                if turner.link().inspect(|end| end.session.is_many()) =>
            {
                turner.become_guest();
                Self::new(turner, self.request)
            }
            owner => Self { owner, ..self },
        }
    }
}
