//! Frames over byte streams, for the transports that have one: what is read is cut by
//! [`FrameReader`], what is written is gathered by [`Outbox`], and [`Channel`] is a socket with
//! both.

mod buffer;
mod channel;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod header;
mod outbox;

pub(super) use channel::RingRead;
pub use channel::{Channel, Wire};
#[cfg(test)]
pub(super) use header::encode_header;
pub(super) use header::{MAX_CONTROL_BYTES, MAX_METADATA_BYTES, MAX_TAGGED_BYTES, SWITCH};
pub(super) use outbox::OutFrame;
pub use outbox::Outbox;
#[cfg(feature = "tls")]
pub(super) use outbox::send;
