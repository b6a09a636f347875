//! A message for the host's transport.

use std::any::Any;

use crate::device::BufferRef;
use crate::proto::Side;

/// How a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageClass {
    /// Untagged, on the metadata stream (rule M2).
    Metadata,
    /// Tagged: a body, a list, a request, frees.
    Tagged,
    /// Control, of the extension (rule E3).
    Control,
    /// No message: the connection is to be cut; the text says why (rule E7).
    Disconnect,
}

/// A message for the host's transport: its parts are sent one after the other.
pub struct WireMessage {
    /// How it travels.
    pub class: MessageClass,
    /// Which connection of the stream it is for.
    pub side: Side,
    /// The tag, of a tagged message.
    pub tag: u64,
    parts: Vec<BufferRef>,
    /// Keeps the memory of the parts.
    _owner: Box<dyn Any + Send>,
}

impl WireMessage {
    /// A message of parts that `owner` keeps where they are.
    pub(super) fn of_parts(
        class: MessageClass,
        tag: u64,
        parts: Vec<BufferRef>,
        owner: Box<dyn Any + Send>,
    ) -> Self {
        Self {
            class,
            side: Side::Metadata,
            tag,
            parts,
            _owner: owner,
        }
    }

    /// A message of bytes of our own.
    pub(super) fn of_bytes(class: MessageClass, tag: u64, bytes: Vec<u8>) -> Self {
        // The heap keeps its place when the vector moves into the box.
        let parts = vec![BufferRef::of(&bytes)];
        Self::of_parts(class, tag, parts, Box::new(bytes))
    }

    /// The same for a connection.
    pub(super) fn on(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    /// What to send, in order; valid as long as the message.
    pub fn parts(&self) -> &[BufferRef] {
        &self.parts
    }
}
