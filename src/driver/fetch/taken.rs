//! Messages that a consumer takes.

use std::any::Any;
use std::sync::Arc;

use crate::driver::end::{End, EndLink};
use crate::driver::packed::PackedBody;
use crate::error::Result;
use crate::proto::{Body, Header, Message, Return};
use crate::transport::Resolved;

/// What a consumer looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Take,
    /// Anything that ends its wait.
    Wait,
    /// How many batches are there. The consumer then waits for something else, so the descriptors
    /// must announce what comes.
    Count,
}

/// A message that the consumer takes.
pub(super) struct Taken {
    pub(super) header: Header,
    pub(super) body: TakenBody,
}

pub(super) enum TakenBody {
    /// It came through the connection.
    Packed(PackedBody),
    /// It lies in memory of the server's.
    Lent {
        len: u64,
        /// Gives the body back, even if its memory cannot be read.
        lent: LentBody,
        memory: Result<Resolved>,
    },
}

impl Taken {
    /// Finds the body of a message of the stream `number`. A lent body is given back as `back`
    /// says, over `link`, the connection of the bodies.
    #[inline]
    pub(super) fn find(
        (message, back): (Message<PackedBody>, Option<Return>),
        number: u32,
        end: &mut End,
        link: &Arc<EndLink>,
    ) -> Self {
        let Message { seq, header, body } = message;
        let body = match body {
            Body::Packed(memory) => TakenBody::Packed(memory),
            Body::Lent(spans) => TakenBody::Lent {
                len: spans.iter().map(|span| span.length).sum(),
                lent: LentBody::new(link, back),
                memory: (end.connection)
                    .with_regions(|regions| regions.resolve(number, seq, spans)),
            },
        };
        Self { header, body }
    }
}

/// A lent body of one message: gives it back when the last array that points into it is released
/// (rule F1), and keeps the connection alive until then (rule F6).
pub(super) struct LentBody {
    link: Arc<EndLink>,
    /// How to give it back; `None` if all its buffers are empty.
    back: Option<Return>,
    memory: Option<Arc<dyn Any + Send + Sync>>,
}

impl LentBody {
    pub(super) fn new(link: &Arc<EndLink>, back: Option<Return>) -> Self {
        link.context.returns.hold();
        Self {
            link: Arc::clone(link),
            back,
            memory: None,
        }
    }

    /// The owner of the body's buffers, which lie in `memory`.
    pub(super) fn into_owner(
        mut self,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Arc<dyn Any + Send + Sync> {
        self.memory = Some(memory);
        Arc::new(self)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        // First: once the memory is given back, a server may free memory of a GPU, which must not
        // be open here then.
        self.memory = None;
        self.link.context.returns.unhold();
        self.link.free(self.back.take());
    }
}
