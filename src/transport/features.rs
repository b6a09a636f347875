//! Control messages of the transports themselves (`docs/wire.md`, "Control messages").
//!
//! A client asks for features of its transport beyond the protocol, once it knows that the server
//! is one of libdipc's (rule E1). A server that does not know a message ignores it, and the
//! connection goes on without the feature. The state machines never see these messages.

use crate::error::{Error, Result};
use crate::proto::Fields;
use crate::transport::connection::ConnectionEnd;

/// Most sockets of one connection over tcp.
pub const MAX_SOCKETS: u16 = 64;

/// The first byte of each message.
const JOIN_KIND: u8 = 8;
const RING_KIND: u8 = 10;
const CLIENT_RING_KIND: u8 = 24;
/// The only byte of a CHECKSUMS: every later message of the sender's has a checksum (rule E8).
pub const CHECKSUMS_KIND: u8 = 22;

/// tcp: the first message on each of several sockets of one connection. It says which socket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Drawn at random by the client. A socket with another number cannot join.
    pub group: u128,
    /// Which socket this is, from 0.
    pub index: u16,
    /// How many there are.
    pub count: u16,
}

impl Join {
    /// The bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![JOIN_KIND];
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Reads a control message; `None` if it is another one.
    /// Errors: `Protocol` for a malformed JOIN.
    pub fn decode(message: &[u8]) -> Result<Option<Self>> {
        let [JOIN_KIND, content @ ..] = message else {
            return Ok(None);
        };
        let join = Self::read(Fields::new(content));
        let join = join.filter(|join| (2..=MAX_SOCKETS).contains(&join.count));
        let join = join.filter(|join| join.index < join.count);
        let rule = "21 bytes, a count from 2 to 64, and an index below that";
        join.map(Some).ok_or_else(|| wrong("JOIN", message, rule))
    }

    fn read(mut fields: Fields<'_>) -> Option<Self> {
        let join = Self {
            group: fields.take()?,
            index: fields.take()?,
            count: fields.take()?,
        };
        fields.end().map(|()| join)
    }
}

/// shm: a RING or a CLIENT_RING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingMessage {
    /// The end that writes to the ring.
    pub writer: ConnectionEnd,
    /// From a server, together with the descriptor: the bytes of the ring. `None`: a client asks
    /// for a ring.
    pub length: Option<u64>,
}

impl RingMessage {
    /// The bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![match self.writer {
            ConnectionEnd::Server => RING_KIND,
            ConnectionEnd::Client => CLIENT_RING_KIND,
        }];
        bytes.extend(self.length.map(u64::to_le_bytes).into_iter().flatten());
        bytes
    }

    /// Reads a control message; `None` if it is another one.
    /// Errors: `Protocol` for one of another length.
    pub fn decode(message: &[u8]) -> Result<Option<Self>> {
        let (writer, length) = match message {
            [RING_KIND, length @ ..] => (ConnectionEnd::Server, length),
            [CLIENT_RING_KIND, length @ ..] => (ConnectionEnd::Client, length),
            _ => return Ok(None),
        };
        let length = match (length, length.try_into()) {
            ([], _) => None,
            (_, Ok(length)) => Some(u64::from_le_bytes(length)),
            _ => {
                let rule = "1 byte from a client, and 9 bytes from a server";
                return Err(wrong("RING or CLIENT_RING", message, rule));
            }
        };
        Ok(Some(Self { writer, length }))
    }

    /// Whether a descriptor belongs to a control message: true for a ring from a server.
    pub fn brings_descriptor(message: &[u8]) -> bool {
        matches!(message, [RING_KIND | CLIENT_RING_KIND, _, ..])
    }
}

/// True if a control message asks for checksums, or agrees to them.
/// Errors: `Protocol` for a CHECKSUMS of another length.
pub fn is_checksums(message: &[u8]) -> Result<bool> {
    match message {
        [CHECKSUMS_KIND] => Ok(true),
        [CHECKSUMS_KIND, ..] => Err(wrong("CHECKSUMS", message, "1 byte")),
        _ => Ok(false),
    }
}

fn wrong(name: &str, message: &[u8], rule: &str) -> Error {
    Error::protocol(format!(
        // Rule E3.
        "the peer sent a {name} of {} bytes that makes no sense: it has {rule}",
        message.len()
    ))
}

#[cfg(test)]
#[path = "features_tests.rs"]
mod tests;
