//! The header of a frame: the kind and length of a message.

use crate::error::{Error, Result};
use crate::proto::{BodyKind, body_of_tag};

/// Bytes of a frame's header: length and tag (u64 LE each), class, number of the stream (u32 LE), 3
/// zero bytes.
pub const HEADER_BYTES: usize = 24;
/// Longest untagged message from a server. A message from a client is at most as long as a request.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;
/// Longest control message.
pub const MAX_CONTROL_BYTES: u64 = 64 << 10;
/// Longest tagged message that is not a body; an address list may be longer once it is posted.
pub const MAX_TAGGED_BYTES: u64 = 1 << 20;

/// The class of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameClass {
    /// Metadata.
    Untagged = 0,
    /// Bodies, requests, free lists.
    Tagged = 1,
    /// Rule E3.
    Control = 2,
    /// No message: the next frame is in the other place, if there are two places.
    Switch = 3,
}

/// A whole SWITCH: [`encode_header`] of no bytes and no stream.
pub const SWITCH: [u8; HEADER_BYTES] = {
    let mut header = [0; HEADER_BYTES];
    header[16] = FrameClass::Switch as u8;
    header
};

/// The header of a frame of the stream `number`.
pub fn encode_header(number: u32, length: u64, tag: u64, class: FrameClass) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&tag.to_le_bytes());
    header[16] = class as u8;
    header[17..21].copy_from_slice(&number.to_le_bytes());
    header
}

/// What a frame's header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A body, or the list of a lent one.
    Body {
        /// Sequence number.
        seq: u32,
        /// Packed, or an address list.
        kind: BodyKind,
        /// Bytes that follow, without a limit.
        length: u64,
    },
    /// A message other than a body.
    Bytes {
        /// Its class.
        class: FrameClass,
        /// The whole tag.
        tag: u64,
        /// Bytes that follow, within the limit of the class.
        length: u64,
    },
}

impl Head {
    /// Reads a header, and the number of the frame's stream. `metadata_bytes` is the length of the
    /// longest untagged message, and `switches` says whether frames may come in two places.
    /// Errors: `Protocol` if it is not a header, or announces more than its class may have.
    pub fn decode(
        header: &[u8; HEADER_BYTES],
        metadata_bytes: u64,
        switches: bool,
    ) -> Result<(u32, Self)> {
        let length = read_u64(header, 0);
        let tag = read_u64(header, 8);
        ensure_familiar(header)?;
        let number = u32::from_le_bytes([header[17], header[18], header[19], header[20]]);
        if header[21..].iter().any(|byte| *byte != 0) {
            return Err(Error::protocol(
                "the peer sent a frame whose padding is not zero: it does not speak this protocol",
            ));
        }
        let (class, what, most) = match header[16] {
            0 => (FrameClass::Untagged, "metadata", metadata_bytes),
            // Rule U4: a tag that is not a body's belongs to a request or a free list. If it does
            // not, the state machines refuse it.
            1 => match body_of_tag(tag) {
                Some((seq, kind)) => return Ok((number, Self::Body { seq, kind, length })),
                None => (FrameClass::Tagged, "tagged", MAX_TAGGED_BYTES),
            },
            2 => (FrameClass::Control, "control", MAX_CONTROL_BYTES),
            3 if switches => (FrameClass::Switch, "switch", 0),
            class => {
                return Err(Error::protocol(format!(
                    "the peer sent a frame of class {class}; 0 to 2 are known"
                )));
            }
        };
        if length > most {
            return Err(Error::protocol(format!(
                "the peer announced a {what} message of {length} bytes; the limit is {most}"
            )));
        }
        Ok((number, Self::Bytes { class, tag, length }))
    }
}

/// Checks that the bytes may be the beginning of a header: no message has 2^48 bytes. The result
/// does not depend on how the bytes are split.
///
/// # Errors
///
/// `Protocol`, or `Disconnected` for the answer of a peer that expects TLS: the peer is another
/// program.
pub fn ensure_familiar(begun: &[u8]) -> Result<()> {
    // An alert has 7 bytes, and its sender may send nothing more.
    if matches!(begun, [0x15, 3, _, _, _, _, 1..=255, ..]) {
        return Err(Error::disconnected(
            "the peer answered with a word of TLS: its address begins with tls://",
        ));
    }
    let Some((first @ [.., sixth, seventh], _)) = begun.split_first_chunk::<8>() else {
        return Ok(());
    };
    if (*sixth, *seventh) == (0, 0) {
        return Ok(());
    }
    let is_readable = first.iter().all(|byte| matches!(byte, b' '..=b'~'));
    Err(Error::protocol(match str::from_utf8(first) {
        Ok(said) if is_readable => {
            format!("the peer does not speak this protocol: its first words are {said:?}")
        }
        _ => "the peer sent what is no frame: it does not speak this protocol".to_owned(),
    }))
}

fn read_u64(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}
