//! Control messages of the transports themselves (`docs/wire.md`, "Control messages").
//!
//! A client asks for what its transport can do beyond the protocol, once it knows that the server
//! is one of libdipc's (rule E1). A server that does not know a message ignores it, and everything
//! goes on without. The state machines never see one of these messages.

use crate::error::{Error, Result};
use crate::transport::connection::ConnectionEnd;

/// Most sockets of one connection over tcp.
pub const MAX_SOCKETS: u16 = 64;

/// The first byte of each message.
const JOIN_KIND: u8 = 8;
const RING_KIND: u8 = 10;
const CHECKSUMS_KIND: u8 = 22;
const CLIENT_RING_KIND: u8 = 24;

/// The transports that have such messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `tcp:`
    Tcp,
    /// `shm:`
    Shm,
    /// Every transport whose connections may have checksums.
    Any,
}

/// A control message of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// tcp: the first message on each of several sockets of one connection.
    Join(Join),
    /// shm, from a client: it takes a ring for the frames of this end.
    AskRing(ConnectionEnd),
    /// shm, from a server: a ring of so many bytes for the frames of this end, with its descriptor.
    Ring(ConnectionEnd, u64),
    /// Every later message of the sender's has a checksum (rule E8).
    Checksums,
}

/// Which socket of which connection a JOIN comes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Drawn at random by the client. A socket without the right number cannot join.
    pub group: u128,
    /// Which socket this is, from 0.
    pub index: u16,
    /// How many there are.
    pub count: u16,
}

impl Feature {
    /// The bytes.
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Join(Join {
                group,
                index,
                count,
            }) => {
                let mut bytes = vec![JOIN_KIND];
                bytes.extend_from_slice(&group.to_le_bytes());
                bytes.extend_from_slice(&index.to_le_bytes());
                bytes.extend_from_slice(&count.to_le_bytes());
                bytes
            }
            Self::AskRing(writer) => vec![ring_kind(writer)],
            Self::Ring(writer, length) => {
                let mut bytes = vec![ring_kind(writer)];
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes
            }
            Self::Checksums => vec![CHECKSUMS_KIND],
        }
    }

    /// Reads a control message; `None` where it is none of this transport's.
    /// Errors: `Protocol` when it is one, and malformed.
    pub fn decode(scheme: Scheme, message: &[u8]) -> Result<Option<Self>> {
        let Some((&kind, content)) = message.split_first() else {
            return Ok(None);
        };
        let feature = match (scheme, kind, content) {
            (Scheme::Tcp, JOIN_KIND, _) => Join::decode(content).map(Self::Join),
            (Scheme::Shm, RING_KIND | CLIENT_RING_KIND, _) => {
                let writer = match kind {
                    RING_KIND => ConnectionEnd::Server,
                    _ => ConnectionEnd::Client,
                };
                match content {
                    [] => Some(Self::AskRing(writer)),
                    _ => {
                        let length = content.try_into().ok().map(u64::from_le_bytes);
                        length.map(|length| Self::Ring(writer, length))
                    }
                }
            }
            (Scheme::Any, CHECKSUMS_KIND, _) => content.is_empty().then_some(Self::Checksums),
            _ => return Ok(None),
        };
        feature.map(Some).ok_or_else(|| {
            let (name, rule) = match kind {
                JOIN_KIND => (
                    "JOIN",
                    "21 bytes, a count from 2 to 64, and an index below that",
                ),
                CHECKSUMS_KIND => ("CHECKSUMS", "1 byte"),
                _ => (
                    "RING or CLIENT_RING",
                    "1 byte from a client, and 9 bytes from a server",
                ),
            };
            Error::protocol(format!(
                // Rule E3.
                "the peer sent a {name} of {} bytes that makes no sense: it has {rule}",
                message.len()
            ))
        })
    }

    /// Whether a control message is a RING or CLIENT_RING that a server sends, which brings a
    /// descriptor.
    pub fn is_ring_with_descriptor(message: &[u8]) -> bool {
        matches!(message, [RING_KIND | CLIENT_RING_KIND, _, ..])
    }
}

fn ring_kind(writer: ConnectionEnd) -> u8 {
    match writer {
        ConnectionEnd::Server => RING_KIND,
        ConnectionEnd::Client => CLIENT_RING_KIND,
    }
}

impl Join {
    fn decode(content: &[u8]) -> Option<Self> {
        let (group, rest) = content.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let join = Self {
            group: u128::from_le_bytes(*group),
            index: u16::from_le_bytes(*index),
            count: u16::from_le_bytes(rest.try_into().ok()?),
        };
        let is_sound = (2..=MAX_SOCKETS).contains(&join.count) && join.index < join.count;
        is_sound.then_some(join)
    }
}

#[cfg(test)]
#[path = "features_tests.rs"]
mod tests;
