//! Bundles: several small messages in one active message (`docs/wire.md`, "Several messages in one, over
//! ucx").
//!
//! Each message costs UCX a pass through its layers, and over tcp a system call. A small batch is two, its
//! header and its body; a short answer is five. A client of our extension says that it takes bundles
//! ([`ask`]); its server then holds small messages until [`Bundle::seal`], and sends them as one.

use crate::error::{Error, Result};
use crate::proto::{BodyKind, parse_body_tag};
use crate::transport::stream::{FrameReader, HEADER_BYTES, OutFrame};
use crate::transport::ucx::gather::Sending;
use crate::transport::{Incoming, Outgoing, Payload};

/// The first byte of BUNDLES, a control message that the state machines do not see: a client takes
/// bundles.
pub(super) const BUNDLES_KIND: u8 = 13;

/// A message that is longer goes by itself: its bytes would be copied once more for nothing.
const MOST_MESSAGE_BYTES: usize = 4096;
/// A bundle is not longer, frames included: what UCX sends in one piece by default over tcp and shared
/// memory, less its own headers.
const MOST_BYTES: usize = 8000;

/// BUNDLES.
pub(super) fn ask() -> Vec<u8> {
    vec![BUNDLES_KIND]
}

/// Whether a control message is BUNDLES.
///
/// # Errors
///
/// `Protocol`: it is, and malformed.
pub(super) fn is_asked(control: &[u8]) -> Result<bool> {
    match control {
        [BUNDLES_KIND] => Ok(true),
        [BUNDLES_KIND, ..] => Err(Error::protocol(format!(
            "the client sent a BUNDLES of {} bytes; it has 1 (rule E3)",
            control.len()
        ))),
        _ => Ok(false),
    }
}

/// What a message becomes that leaves by itself or in a bundle.
pub(super) enum Sealed {
    /// It was alone: it leaves as it is.
    One(Outgoing),
    /// A bundle, which keeps what the messages kept alive.
    Many(Sending),
}

/// Messages that wait for others to leave with.
#[derive(Default)]
pub(super) struct Bundle {
    messages: Vec<Outgoing>,
    /// Bytes of the messages, their frames included.
    length: usize,
}

impl Bundle {
    /// Bytes that wait here.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Whether a message may travel in a bundle at all, and its bytes there.
    pub(super) fn room_for(message: &Outgoing) -> Option<usize> {
        let length = match message {
            Outgoing::Metadata { prefix, header } => prefix.len() + header.len(),
            // A client reads one before the driver sees it, and has to have announced it.
            Outgoing::Tagged { tag, .. } if is_list(*tag) => return None,
            Outgoing::Tagged { payload, .. } => match payload {
                Payload::Bytes(bytes) => bytes.len(),
                Payload::Gather { parts, .. } => parts.iter().map(|part| part.len).sum(),
            },
            Outgoing::Control { bytes, fd: None } => bytes.len(),
            Outgoing::Control { fd: Some(_), .. } | Outgoing::GpuBody { .. } => return None,
        };
        (length <= MOST_MESSAGE_BYTES).then_some(HEADER_BYTES + length)
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

    /// What has waited, to be sent now; `None` where nothing has.
    ///
    /// # Errors
    ///
    /// As [`OutFrame::new`].
    pub(super) fn seal(&mut self) -> Result<Option<Sealed>> {
        let length = std::mem::take(&mut self.length);
        if self.messages.len() < 2 {
            return Ok(self.messages.pop().map(Sealed::One));
        }
        let mut bytes = Vec::with_capacity(length);
        let mut frames = Vec::with_capacity(self.messages.len());
        for message in self.messages.drain(..) {
            let (frame, _) = OutFrame::new(message)?;
            frame.runs().for_each(|run| bytes.extend_from_slice(run));
            frames.push(frame);
        }
        Ok(Some(Sealed::Many(Sending::kept(bytes, Box::new(frames)))))
    }
}

fn is_list(tag: u64) -> bool {
    matches!(parse_body_tag(tag), Ok((_, BodyKind::List)))
}

/// Takes a bundle apart, in order.
///
/// # Errors
///
/// `Protocol` when it is none; `OutOfMemory`. What came before the error stays.
pub(super) fn split(mut bundle: &[u8], messages: &mut Vec<Incoming>) -> Result<()> {
    // A body in it may be no longer than it is itself.
    let mut reader = FrameReader::new(bundle.len() as u64);
    let malformed = |error: Error| error.context("a bundle of the server's");
    while let Some(frame) = reader.read(&mut bundle).map_err(malformed)? {
        messages.push(frame.into());
    }
    if reader.is_mid_frame() {
        let cut = Error::protocol("it ends in the middle of a message");
        return Err(malformed(cut));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BufferRef;
    use crate::proto::body_tag;
    use std::sync::Arc;

    fn pushed(messages: Vec<Outgoing>) -> Bundle {
        let mut bundle = Bundle::default();
        for message in messages {
            let length = Bundle::room_for(&message).unwrap();
            assert!(bundle.fits(length));
            bundle.push(message, length);
        }
        bundle
    }

    fn metadata(header: &[u8]) -> Outgoing {
        Outgoing::Metadata {
            prefix: [1, 2, 0, 0, 0],
            header: header.to_vec(),
        }
    }

    fn gathered(tag: u64, parts: &[&[u8]], owner: Box<dyn Send>) -> Outgoing {
        let parts = parts.iter().map(|part| BufferRef::of(part)).collect();
        let payload = Payload::Gather { parts, owner };
        Outgoing::Tagged { tag, payload }
    }

    fn sealed(messages: Vec<Outgoing>) -> Vec<u8> {
        match pushed(messages).seal().unwrap() {
            Some(Sealed::Many(sending)) => sending.as_bytes().unwrap().to_vec(),
            _ => panic!("not a bundle"),
        }
    }

    /// docs/wire.md, "Several messages in one": a bundle brings each class of message as it was, in order;
    /// what a body lay in is kept until the bundle has left.
    #[test]
    fn a_bundle_brings_each_message_in_order() {
        let owner = Arc::new(());
        let other = Payload::Bytes(vec![7; 32]);
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
        let Ok(Some(Sealed::Many(sending))) = bundle.seal() else {
            panic!("not a bundle");
        };
        assert_eq!((sending.len(), bundle.len()), (waiting, 0));
        assert_eq!(Arc::strong_count(&owner), 2);
        let mut came = Vec::new();
        split(sending.as_bytes().unwrap(), &mut came).unwrap();
        drop(sending);
        assert_eq!(Arc::strong_count(&owner), 1);
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

    /// docs/wire.md: one message leaves as it is; long ones and lists never join others.
    #[test]
    fn a_single_message_a_long_one_and_a_list_go_by_themselves() {
        let mut bundle = pushed(vec![metadata(b"alone")]);
        assert!(matches!(
            bundle.seal(),
            Ok(Some(Sealed::One(Outgoing::Metadata { .. })))
        ));
        assert!(bundle.seal().unwrap().is_none());
        assert!(Bundle::room_for(&metadata(&[0; MOST_MESSAGE_BYTES])).is_none());
        let listed = Outgoing::Tagged {
            tag: body_tag(3, BodyKind::List),
            payload: Payload::Bytes(vec![0; 32]),
        };
        assert!(Bundle::room_for(&listed).is_none());
        let length = Bundle::room_for(&metadata(&[0; 4000])).unwrap();
        let mut bundle = pushed(vec![metadata(&[0; 4000])]);
        assert!(!bundle.fits(length));
        bundle.push(metadata(b"x"), 30);
        assert!(matches!(bundle.seal(), Ok(Some(Sealed::Many(_)))));
    }

    /// Rule A8: a bundle cut anywhere but between its messages is refused, and so are frames of no known
    /// class and lengths beyond the bundle; nothing is read past its end.
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

    /// Rule E3: BUNDLES has one byte; other control messages are others'.
    #[test]
    fn a_client_asks_for_bundles_in_one_byte() {
        assert!(is_asked(&ask()).unwrap());
        assert!(!is_asked(&[]).unwrap() && !is_asked(&[1, 2]).unwrap());
        assert!(is_asked(&[BUNDLES_KIND, 0]).is_err());
    }
}
