//! Messages that the host's transport carries.

use std::any::Any;

use crate::device::BufferRef;
use crate::proto::{Side, Transmit};

/// The class of a message on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageClass {
    /// Untagged, on the metadata stream (rule M2).
    Metadata,
    /// Tagged: a body, an address list, a request, or a free_data list.
    Tagged,
    /// Control, of the extension (rule E3).
    Control,
    /// An order to cut the connection, with the reason as text (rule E7).
    Disconnect,
}

/// A message for the host's transport. The host sends its parts as one message, in order.
pub struct WireMessage {
    /// Its class.
    pub class: MessageClass,
    /// The connection of the stream that carries it.
    pub side: Side,
    /// The tag of a tagged message, otherwise 0.
    pub tag: u64,
    parts: Vec<BufferRef>,
    /// Keeps the memory of the parts.
    _owner: Box<dyn Any + Send>,
}

impl WireMessage {
    /// A message of parts in memory that `owner` keeps alive.
    fn of_parts(
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

    /// A message of a session. `body` gives a packed body's parts, and the owner of their memory.
    pub(super) fn of_transmit<P>(
        transmit: Transmit<P>,
        body: impl FnOnce(P) -> (Vec<BufferRef>, Box<dyn Any + Send>),
    ) -> Self {
        let (class, tag, bytes) = match transmit {
            Transmit::Metadata { prefix, header } => {
                let bytes = [&prefix[..], header.as_deref().unwrap_or_default()].concat();
                (MessageClass::Metadata, 0, bytes)
            }
            Transmit::Control { bytes, .. } => (MessageClass::Control, 0, bytes),
            Transmit::Request { tag, bytes } | Transmit::List { tag, bytes } => {
                (MessageClass::Tagged, tag, bytes.into_vec())
            }
            Transmit::Disconnect { reason } => (MessageClass::Disconnect, 0, reason.into_bytes()),
            Transmit::Body { tag, packed } => {
                let (parts, owner) = body(packed);
                return Self::of_parts(MessageClass::Tagged, tag, parts, owner);
            }
        };
        Self::of_bytes(class, tag, bytes)
    }

    /// A message that owns its bytes.
    pub(super) fn of_bytes(class: MessageClass, tag: u64, bytes: Vec<u8>) -> Self {
        // The bytes do not move when the vector moves into the box.
        let parts = vec![BufferRef::of(&bytes)];
        Self::of_parts(class, tag, parts, Box::new(bytes))
    }

    /// Sets the connection.
    pub(super) fn on(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    /// The parts, in order; valid as long as the message.
    pub fn parts(&self) -> &[BufferRef] {
        &self.parts
    }
}
