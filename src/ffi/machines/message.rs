//! Messages that the host's transport carries.

use std::ffi::c_void;

use crate::bare::{MessageClass, WireMessage};
use crate::error::{Error, Result};
use crate::ffi::handle::{Out, try_out};
use crate::ffi::server::{DIPC_ROLE_BOTH, DIPC_ROLE_DATA, DIPC_ROLE_METADATA};
use crate::proto::Side;

/// An untagged message of the metadata stream.
pub const DIPC_MESSAGE_METADATA: i32 = 1;
/// A tagged message: a body, an address list, a request, or a free_data list.
pub const DIPC_MESSAGE_TAGGED: i32 = 2;
/// A control message of libdipc's extension.
pub const DIPC_MESSAGE_CONTROL: i32 = 3;
/// An order to cut the connection, not a message. The one part is the reason, UTF-8 without a NUL.
pub const DIPC_MESSAGE_DISCONNECT: i32 = 4;

/// The message of the last poll, and its parts for C.
#[derive(Default)]
pub(super) struct PolledMessage {
    message: Option<WireMessage>,
    parts: Vec<*const c_void>,
    lens: Vec<usize>,
}

// SAFETY: the pointers are those of `message`, which may be sent to another thread.
unsafe impl Send for PolledMessage {}

/// The output arguments of a poll.
pub(super) struct MessageOut<'a> {
    class: Out<'a, i32>,
    tag: Out<'a, u64>,
    parts: Out<'a, *const *const c_void>,
    lens: Out<'a, *const usize>,
    count: Out<'a, usize>,
}

impl MessageOut<'_> {
    /// Checks the five arguments.
    ///
    /// # Safety
    ///
    /// Each is NULL or writable, and nobody else uses it during the call.
    pub(super) unsafe fn new(
        class: *mut i32,
        tag: *mut u64,
        parts: *mut *const *const c_void,
        lens: *mut *const usize,
        count: *mut usize,
    ) -> Result<Self> {
        Ok(Self {
            // SAFETY: the caller promises that it is NULL or writable.
            class: unsafe { try_out(class, "out_class") }?,
            // SAFETY: the caller promises that it is NULL or writable.
            tag: unsafe { try_out(tag, "out_tag") }?,
            // SAFETY: the caller promises that it is NULL or writable.
            parts: unsafe { try_out(parts, "out_parts") }?,
            // SAFETY: the caller promises that it is NULL or writable.
            lens: unsafe { try_out(lens, "out_lens_bytes") }?,
            // SAFETY: the caller promises that it is NULL or writable.
            count: unsafe { try_out(count, "out_n_parts") }?,
        })
    }

    /// Writes a message; `current` keeps it until the next poll.
    pub(super) fn set(self, message: WireMessage, current: &mut PolledMessage) {
        current.parts = message
            .parts()
            .iter()
            .map(|part| part.data.cast())
            .collect();
        current.lens = message.parts().iter().map(|part| part.len).collect();
        self.class.set(match message.class {
            MessageClass::Metadata => DIPC_MESSAGE_METADATA,
            MessageClass::Tagged => DIPC_MESSAGE_TAGGED,
            MessageClass::Control => DIPC_MESSAGE_CONTROL,
            MessageClass::Disconnect => DIPC_MESSAGE_DISCONNECT,
        });
        self.tag.set(message.tag);
        self.parts.set(current.parts.as_ptr());
        self.lens.set(current.lens.as_ptr());
        self.count.set(current.parts.len());
        current.message = Some(message);
    }
}

impl PolledMessage {
    /// Drops the message of the last poll.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The connection of a stream for a role.
pub(super) fn parse_side(role: i32) -> Result<Side> {
    match role {
        DIPC_ROLE_BOTH | DIPC_ROLE_METADATA => Ok(Side::Metadata),
        DIPC_ROLE_DATA => Ok(Side::Data),
        _ => Err(Error::invalid_argument(format!(
            "role is {role}: no DIPC_ROLE_*"
        ))),
    }
}
