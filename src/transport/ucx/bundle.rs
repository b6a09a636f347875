//! Bundles: several small messages in one active message (`docs/wire.md`, "Several messages in one,
//! over ucx").
//!
//! Each message costs UCX a pass through its layers, and over tcp a system call. A small batch is
//! two, its header and its body; a short answer is five. A client of our extension says that it
//! takes bundles ([`Feature::Bundles`](crate::transport::features::Feature)); its server then holds
//! small messages until [`Bundle::take`], and sends them as one.

use crate::device::HostBuffer;
use crate::error::{Error, Result};
use crate::proto::{BodyKind, body_of_tag, body_tag};
use crate::transport::stream::{Class, HEADER_BYTES, Head, MAX_METADATA_BYTES, encode_header};
use crate::transport::{Incoming, Outgoing, Payload, sends_host_memory_only};

/// A message that is longer goes by itself: its bytes would be copied once more for nothing.
pub(super) const MOST_MESSAGE_BYTES: usize = 16 << 10;
/// The same over tcp. What UCX sends by itself there, it sends in pieces of 8 KiB or by rendezvous,
/// whose answers keep the sender waiting: with either a body of 8 KiB takes 15 to 35 us, in a
/// bundle 3.
pub(super) const MOST_MESSAGE_BYTES_OVER_TCP: usize = 256 << 10;
/// A bundle is not longer, frames included: the longest message, and its header. Elsewhere than
/// over tcp it is written long before, by what the driver has wait.
const MOST_BYTES: usize = MOST_MESSAGE_BYTES_OVER_TCP + (64 << 10);
/// No peer may send a longer one.
pub(super) const LIMIT: u64 = 512 << 10;
/// More memory than this is not kept for the next one.
const MOST_KEPT_BYTES: usize = 64 << 10;
// Any message that may travel so fits an empty one.
const _: () = assert!(MOST_MESSAGE_BYTES_OVER_TCP + HEADER_BYTES <= MOST_BYTES);
const _: () = assert!(MOST_BYTES as u64 <= LIMIT);

/// Messages that wait for others to leave with.
#[derive(Default)]
pub(super) struct Bundle {
    messages: Vec<Outgoing>,
    /// Bytes of the messages, their frames included.
    length: usize,
    /// The memory of one that has left, for the next.
    kept: Vec<u8>,
}

impl Bundle {
    /// Bytes that wait here.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Whether a message of up to `most` bytes may travel in a bundle at all, and its bytes there.
    pub(super) fn room_for(message: &Outgoing, most: usize) -> Option<usize> {
        let length = match message {
            Outgoing::Metadata { prefix, header } => {
                prefix.len() + header.as_ref().map_or(0, |header| header.len())
            }
            // A client reads one before the driver sees it, and has to have announced it.
            Outgoing::Tagged { tag, .. } if is_list(*tag) => return None,
            Outgoing::Tagged { payload, .. } => payload.checked_len()?,
            Outgoing::Control { bytes, fd: None } => bytes.len(),
            Outgoing::Control { fd: Some(_), .. } | Outgoing::GpuBody { .. } => return None,
        };
        (length <= most).then_some(HEADER_BYTES + length)
    }

    /// Whether `length` bytes more fit.
    pub(super) fn fits(&self, length: usize) -> bool {
        self.length + length <= MOST_BYTES
    }

    /// Takes a message of which [`room_for`](Self::room_for) gave the `length`.
    pub(super) fn push(&mut self, message: Outgoing, length: usize) {
        self.messages.push(message);
        self.length += length;
    }

    /// Takes what has waited, to be sent now: one message as it is unless it is [in
    /// runs](is_in_runs), several [`together`].
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        self.length = 0;
        std::mem::take(&mut self.messages)
    }

    /// Keeps the memory of a message that has left.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) {
        if (self.kept.capacity()..=MOST_KEPT_BYTES).contains(&bytes.capacity()) {
            self.kept = bytes;
        }
    }

    /// Takes that memory.
    pub(super) fn take_kept(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// Takes the list back, for the next messages. Those in it have left.
    pub(super) fn use_again(&mut self, mut messages: Vec<Outgoing>) {
        messages.clear();
        if self.messages.is_empty() {
            self.messages = messages;
        }
    }
}

/// Whether a message lies in several runs of memory. UCX sends two of them with each system call
/// over tcp: of a body of 3,000 columns that takes 25 times as long as to put it together.
pub(super) fn is_in_runs(message: &Outgoing) -> bool {
    matches!(
        message,
        Outgoing::Tagged {
            payload: Payload::Gather { parts, .. },
            ..
        } if parts.len() > 1
    )
}

/// The bytes of a bundle of these messages, in the memory of `bundle`.
///
/// # Errors
///
/// `Unsupported`: one lies in a GPU's memory, for which there is [no room](Bundle::room_for).
pub(super) fn together(messages: &[Outgoing], mut bundle: Vec<u8>) -> Result<Vec<u8>> {
    let room = |message| Bundle::room_for(message, MOST_MESSAGE_BYTES_OVER_TCP);
    let lengths = messages.iter().filter_map(room);
    bundle.clear();
    bundle.reserve(lengths.sum());
    for message in messages {
        let at = bundle.len();
        bundle.extend_from_slice(&[0; HEADER_BYTES]);
        let (class, tag) = match message {
            Outgoing::Metadata { prefix, header } => {
                bundle.extend_from_slice(prefix);
                bundle.extend_from_slice(header.as_deref().unwrap_or_default());
                (Class::Untagged, 0)
            }
            Outgoing::Tagged { tag, payload } => {
                payload.append_to(&mut bundle);
                (Class::Tagged, *tag)
            }
            Outgoing::Control { bytes, fd: _ } => {
                bundle.extend_from_slice(bytes);
                (Class::Control, 0)
            }
            Outgoing::GpuBody { .. } => return Err(sends_host_memory_only()),
        };
        let length = bundle.len() - at - HEADER_BYTES;
        let header = encode_header(length as u64, tag, class);
        bundle[at..at + HEADER_BYTES].copy_from_slice(&header);
    }
    Ok(bundle)
}

fn is_list(tag: u64) -> bool {
    matches!(body_of_tag(tag), Some((_, BodyKind::List)))
}

/// Takes a bundle apart, in order.
///
/// # Errors
///
/// `Protocol` when it is none; `OutOfMemory`. What came before the error stays.
pub(super) fn split(mut bundle: &[u8], messages: &mut Vec<Incoming>) -> Result<()> {
    while !bundle.is_empty() {
        let message = next(&mut bundle);
        messages.push(message.map_err(|error| error.context("a bundle of the server's"))?);
    }
    Ok(())
}

/// Takes the first message off a bundle.
fn next(bundle: &mut &[u8]) -> Result<Incoming> {
    let cut = || Error::protocol("it ends in the middle of a message");
    let (header, rest) = bundle.split_first_chunk().ok_or_else(cut)?;
    let head = Head::decode(header, MAX_METADATA_BYTES, false)?;
    let (Head::Body { length, .. } | Head::Bytes { length, .. }) = head;
    let length = usize::try_from(length).map_err(|_| cut())?;
    let (bytes, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
    *bundle = rest;
    Ok(match head {
        Head::Body {
            seq,
            kind: BodyKind::Packed,
            ..
        } => Incoming::Body {
            seq,
            memory: HostBuffer::copy_of(bytes)?,
        },
        Head::Body { seq, kind, .. } => Incoming::Tagged {
            tag: body_tag(seq, kind),
            bytes: bytes.into(),
        },
        Head::Bytes {
            class: Class::Untagged,
            ..
        } => Incoming::Metadata(bytes.into()),
        Head::Bytes {
            class: Class::Control,
            ..
        } => Incoming::Control {
            bytes: bytes.into(),
            fd: None,
        },
        Head::Bytes { tag, .. } => Incoming::Tagged {
            tag,
            bytes: bytes.into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BufferRef;
    use smallvec::smallvec;
    use std::sync::Arc;

    fn pushed(messages: Vec<Outgoing>) -> Bundle {
        let mut bundle = Bundle::default();
        for message in messages {
            let length = Bundle::room_for(&message, MOST_MESSAGE_BYTES).unwrap();
            assert!(bundle.fits(length));
            bundle.push(message, length);
        }
        bundle
    }

    fn metadata(header: &[u8]) -> Outgoing {
        Outgoing::Metadata {
            prefix: [1, 2, 0, 0, 0],
            header: Some(header.into()),
        }
    }

    fn gathered(tag: u64, parts: &[&[u8]], owner: Box<dyn Send>) -> Outgoing {
        let parts = parts.iter().map(|part| BufferRef::of(part)).collect();
        let payload = Payload::Gather { parts, owner };
        Outgoing::Tagged { tag, payload }
    }

    fn sealed(messages: Vec<Outgoing>) -> Vec<u8> {
        together(&pushed(messages).take(), Vec::new()).unwrap()
    }

    /// docs/wire.md, "Several messages in one": a bundle brings each class of message as it was, in
    /// order; what a body lay in is kept until the bundle has left.
    #[test]
    fn a_bundle_brings_each_message_in_order() {
        let owner = Arc::new(());
        let other = Payload::Bytes(smallvec![7; 32]);
        let packed = body_tag(2, BodyKind::Packed);
        let mut bundle = pushed(vec![
            Outgoing::Control {
                bytes: vec![1, 2],
                fd: None,
            },
            metadata(b"header"),
            gathered(
                packed,
                &[b"body ", b"", b"bytes"],
                Box::new(Arc::clone(&owner)),
            ),
            Outgoing::Tagged {
                tag: 0xABCD << 44,
                payload: other,
            },
            // Rule D1: an empty body is a message, too.
            gathered(body_tag(4, BodyKind::Packed), &[], Box::new(())),
        ]);
        let waiting = bundle.len();
        let messages = bundle.take();
        let bytes = together(&messages, Vec::new()).unwrap();
        assert_eq!(bytes.len(), waiting);
        assert_eq!((bundle.len(), Arc::strong_count(&owner)), (0, 2));
        bundle.use_again(messages);
        assert!(bundle.take().is_empty());
        assert_eq!(Arc::strong_count(&owner), 1);
        let mut came = Vec::new();
        split(&bytes, &mut came).unwrap();
        let [
            Incoming::Control { bytes, fd: None },
            Incoming::Metadata(header),
            Incoming::Body { seq: 2, memory },
            Incoming::Tagged { tag, bytes: other },
            Incoming::Body {
                seq: 4,
                memory: none,
            },
        ] = &came[..]
        else {
            panic!("{came:?}");
        };
        assert_eq!(
            (&bytes[..], &header[..]),
            (&[1, 2][..], &b"\x01\x02\0\0\0header"[..])
        );
        assert_eq!(memory.as_slice(), b"body bytes");
        assert_eq!(
            (*tag, &other[..], none.len()),
            (0xABCD << 44, &[7; 32][..], 0)
        );
    }

    /// docs/wire.md: long messages and lists never join others.
    #[test]
    fn a_long_message_and_a_list_go_by_themselves() {
        let room_for = |message| Bundle::room_for(&message, MOST_MESSAGE_BYTES);
        assert!(room_for(metadata(&[0; MOST_MESSAGE_BYTES])).is_none());
        let listed = Outgoing::Tagged {
            tag: body_tag(3, BodyKind::List),
            payload: Payload::Bytes(smallvec![0; 32]),
        };
        assert!(room_for(listed).is_none());
        let length = room_for(metadata(&[0; 16_000])).unwrap();
        let full = pushed((0..20).map(|_| metadata(&[0; 16_000])).collect());
        assert!(!full.fits(length) && (full.len() as u64) < LIMIT);
    }

    /// Rule A8: a bundle cut anywhere but between its messages is refused, and so are frames of no
    /// known class and lengths beyond the bundle; nothing is read past its end.
    #[test]
    fn what_is_no_bundle_is_refused() {
        let bytes = sealed(vec![metadata(b"one"), metadata(b"two")]);
        let whole = HEADER_BYTES + 8;
        for end in 0..=bytes.len() {
            let mut came = Vec::new();
            let result = split(&bytes[..end], &mut came);
            assert_eq!(result.is_ok(), end % whole == 0, "{end} bytes");
            assert_eq!(came.len(), end / whole);
        }
        for (at, byte, text) in [(16, 3, "class 3"), (7, 255, "limit"), (0, 255, "middle")] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            let error = split(&wrong, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
