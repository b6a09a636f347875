//! How the body of one message travels.

use std::sync::atomic::Ordering;

use crate::arrow::EncodedMessage;
use crate::device::BufferRef;
use crate::driver::produce::ProduceOptions;
use crate::driver::served::{Gathered, Hold, ServedLink};
use crate::error::Result;
use crate::proto::OutBody;
use crate::transport::{BodyPolicy, Placement, RegionNotice};

/// Decides how the body of `message` travels; copies it where it is lent from a region. `owner`
/// gives what keeps the producer's memory alive, where that is used.
pub(super) fn place(
    options: &ProduceOptions,
    link: &ServedLink,
    message: &EncodedMessage,
    owner: impl FnOnce() -> Box<dyn Send>,
) -> Result<(OutBody<Gathered, Hold>, Vec<RegionNotice>)> {
    let counters = &options.counters;
    // Rule A4: compressed bodies are packed ones.
    let lender = (options.body != BodyPolicy::Packed && !message.compressed)
        .then(|| link.lender())
        .flatten();
    if let Some(lender) = lender
        && let Placement::Lent(lease) = lender.place(&message.buffers)?
    {
        counters
            .bytes_copied
            .fetch_add(lease.copied, Ordering::Relaxed);
        counters
            .bytes_lent
            .fetch_add(lease.borrowed, Ordering::Relaxed);
        // The blocks go first: they may lie in the producer's array's arena.
        let owner = (lease.borrowed > 0).then(owner);
        let hold: Hold = Box::new((lease.hold, owner));
        return Ok((
            OutBody::Lent {
                spans: lease.spans,
                hold,
                in_place: lease.in_place,
            },
            lease.announce,
        ));
    }
    counters
        .bytes_sent
        .fetch_add(message.body_len, Ordering::Relaxed);
    let payload = Gathered {
        parts: gather(message),
        owner: owner(),
    };
    Ok((
        OutBody::Packed {
            len: message.body_len,
            payload,
        },
        Vec::new(),
    ))
}

/// Whether the client's credit lets `message` be sent now (rule E5).
pub(super) fn has_room(
    options: &ProduceOptions,
    link: &ServedLink,
    message: &EncodedMessage,
) -> Result<bool> {
    if link.has_room(Some(message.body_len), false)? {
        return Ok(true);
    }
    // Looked at last, since it looks every buffer up.
    let lends = options.body != BodyPolicy::Packed && !message.compressed;
    let in_place = lends
        && link
            .lender()
            .is_some_and(|lender| lender.lends_in_place(&message.buffers));
    Ok(in_place && link.has_room(Some(message.body_len), true)?)
}

/// The runs of a packed body (rule D3): the buffers with zeros between them as the header's offsets
/// ask.
pub(crate) fn gather(message: &EncodedMessage) -> Vec<BufferRef> {
    static ZEROS: [u8; 64] = [0; 64];
    let mut parts = Vec::with_capacity(message.buffers.len() * 2);
    let mut at = 0;
    let pad_to = |parts: &mut Vec<BufferRef>, at: &mut u64, target: u64| {
        while *at < target {
            let len = usize::try_from(target - *at)
                .unwrap_or(ZEROS.len())
                .min(ZEROS.len());
            parts.push(BufferRef::of(&ZEROS[..len]));
            *at += len as u64;
        }
    };
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        if buffer.len > 0 {
            pad_to(&mut parts, &mut at, span.offset);
            parts.push(*buffer);
            at += buffer.len as u64;
        }
    }
    pad_to(&mut parts, &mut at, message.body_len);
    parts
}
