//! Messages that a consumer takes.

use std::sync::Arc;

use super::returns::LentBody;
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
    /// How many batches are there. The consumer then waits for something else, so that the
    /// descriptors have to tell of what comes.
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
        /// Gives it back, also where its memory cannot be read.
        lent: LentBody,
        memory: Result<Resolved>,
    },
}

impl Taken {
    /// Finds the body of a message, which goes `back` over `link`, the connection of the bodies.
    pub(super) fn find(
        (message, back): (Message<PackedBody>, Option<Return>),
        end: &mut End,
        link: &Arc<EndLink>,
    ) -> Self {
        let Message { seq, header, body } = message;
        let body = match body {
            Body::Packed(memory) => TakenBody::Packed(memory),
            Body::Lent(spans) => TakenBody::Lent {
                len: spans.iter().map(|span| span.length).sum(),
                lent: LentBody::new(link, back),
                memory: end.resolve(seq, spans),
            },
        };
        Self { header, body }
    }
}
