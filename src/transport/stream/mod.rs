//! Frames over byte streams, for the transports that have one: what is read is cut by
//! [`FrameReader`], what is written is gathered by [`Outbox`].

mod frame;
mod outbox;

pub(super) use frame::{Frame, FrameReader};
pub(super) use outbox::Outbox;

#[doc(hidden)]
pub use frame::fuzz_frames;
