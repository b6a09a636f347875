//! Frames over byte streams, for the transports that have one: what is read is cut by
//! [`FrameReader`], what is written is gathered by [`Outbox`].

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod outbox;

pub(super) use frame::{Frame, FrameReader};
pub(super) use outbox::Outbox;
