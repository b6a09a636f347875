//! Active messages: metadata (id 0, rule R1), control (id 1) and bundles of messages (id 2).

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB, UCP_AM_HANDLER_PARAM_FIELD_ID,
    UCP_AM_RECV_ATTR_FLAG_RNDV, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCS_INPROGRESS,
    UCS_MEMORY_TYPE_HOST, UCS_OK, ucp_am_handler_param_t, ucp_am_recv_callback_t,
    ucp_am_recv_param_t, ucp_request_param_t, ucs_status_t,
};

use crate::error::{Error, Result};
use crate::proto::Bytes;
use crate::transport::Incoming;
use crate::transport::stream::{MAX_CONTROL_BYTES, MAX_METADATA_BYTES, MAX_TAGGED_BYTES};
use crate::transport::ucx::bundle;
use crate::transport::ucx::callbacks::{Announced, CallbackInbox, Ends, Peer, Work};
use crate::transport::ucx::error::error;
use crate::transport::ucx::worker::Worker;

/// What an active message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Prefix and header.
    Metadata,
    /// Rule E3.
    Control,
    /// Several messages in one; a server sends them to a client that has asked for them.
    Bundle,
}

impl Class {
    /// The id of the active message (rule R1, "Our transports").
    pub(super) const fn id(self) -> u32 {
        match self {
            Self::Metadata => 0,
            Self::Control => 1,
            Self::Bundle => 2,
        }
    }

    /// The longest message of its class, in bytes.
    pub(super) const fn limit(self) -> u64 {
        match self {
            Self::Metadata => MAX_METADATA_BYTES,
            Self::Control => MAX_CONTROL_BYTES,
            Self::Bundle => bundle::LIMIT,
        }
    }

    /// The longest that `peer` may send: a client sends nothing longer than a request.
    const fn limit_of(self, peer: Peer) -> u64 {
        match (self, peer) {
            (Self::Metadata, Peer::Client) => MAX_TAGGED_BYTES,
            (Self::Metadata, Peer::Server) | (Self::Control | Self::Bundle, _) => self.limit(),
        }
    }

    const fn handler(self) -> ucp_am_recv_callback_t {
        match self {
            Self::Metadata => Some(on_metadata),
            Self::Control => Some(on_control),
            Self::Bundle => Some(on_bundle),
        }
    }

    /// Appends the message, or those in it, as the driver sees them.
    ///
    /// # Errors
    ///
    /// As [`bundle::split`].
    fn unpack(self, bytes: Cow<'_, [u8]>, messages: &mut Vec<Incoming>) -> Result<()> {
        messages.push(match self {
            Self::Metadata => Incoming::Metadata(owned(bytes)),
            Self::Control => Incoming::Control {
                bytes: owned(bytes),
                fd: None,
            },
            Self::Bundle => return bundle::split(&bytes, messages),
        });
        Ok(())
    }

    /// Whether a message of this length may come.
    ///
    /// # Errors
    ///
    /// `Protocol`, with the length and the limit.
    pub(super) fn ensure_within_limit(self, length: usize, peer: Peer) -> Result<()> {
        let most = self.limit_of(peer);
        if length as u64 <= most {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "the peer sent a {self:?} message of {length} bytes; the limit is {most}"
        )))
    }
}

fn owned(bytes: Cow<'_, [u8]>) -> Bytes {
    match bytes {
        Cow::Borrowed(bytes) => Bytes::from_slice(bytes),
        Cow::Owned(bytes) => Bytes::from_vec(bytes),
    }
}

/// Takes the active messages that the peer may send on a worker from now on. Others are UCX's to
/// refuse.
///
/// `shared` must live until the worker is destroyed.
///
/// # Errors
///
/// `OutOfMemory` and the like, of UCX.
pub(super) fn listen(worker: &Worker, shared: &Arc<CallbackInbox>) -> Result<()> {
    let classes: &[Class] = match shared.peer {
        Peer::Server => &[Class::Metadata, Class::Control, Class::Bundle],
        Peer::Client => &[Class::Metadata, Class::Control],
    };
    for class in classes {
        let params = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: class.id(),
            cb: class.handler(),
            arg: Arc::as_ptr(shared).cast_mut().cast(),
            ..ucp_am_handler_param_t::default()
        };
        let api = worker.api();
        // SAFETY: the worker lives; the masked fields are set; the handlers take a `CallbackInbox`.
        let status =
            unsafe { api.ucp_worker_set_am_recv_handler(worker.handle(), &raw const params) };
        if status != UCS_OK {
            return Err(error(api, "cannot receive active messages", status));
        }
    }
    Ok(())
}

/// Fetches a message that was announced.
///
/// # Errors
///
/// `Protocol` when it is longer than any may be, `OutOfMemory`; it is let go then.
pub(super) fn fetch(
    worker: &mut Worker,
    shared: &Arc<CallbackInbox>,
    announced: Announced,
) -> Result<()> {
    let Announced {
        description,
        length,
        class,
    } = announced;
    let api = worker.api();
    let memory = class
        .ensure_within_limit(length, shared.peer)
        .and_then(|()| {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(length).map_err(|_| {
                Error::out_of_memory(format!("cannot allocate {length} bytes for a message"))
            })?;
            bytes.resize(length, 0);
            Ok(bytes)
        });
    let mut bytes: Vec<u8> = match memory {
        Ok(bytes) => bytes,
        Err(error) => {
            // SAFETY: a description that was kept (UCS_INPROGRESS) and is given back only here.
            unsafe { api.ucp_am_data_release(worker.handle(), description) };
            return Err(error);
        }
    };
    let buffer = bytes.as_mut_ptr();
    let params = ucp_request_param_t {
        op_attr_mask: UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        memory_type: UCS_MEMORY_TYPE_HOST,
        ..ucp_request_param_t::default()
    };
    shared.start(
        Work::Active { class, bytes },
        Ends::Active,
        params,
        // SAFETY: a description that was kept and is given back only here; the buffer has `length`
        // bytes and is the operation's until it is over.
        |params| unsafe {
            api.ucp_am_recv_data_nbx(worker.handle(), description, buffer.cast(), length, params)
        },
    );
    Ok(())
}

/// Takes note of a message that came whole.
pub(super) fn take_in(shared: &CallbackInbox, class: Class, bytes: Cow<'_, [u8]>) {
    shared.guarded(|state| {
        let taken = class
            .ensure_within_limit(bytes.len(), shared.peer)
            .and_then(|()| class.unpack(bytes, state.arrived()));
        if let Err(error) = taken {
            state.refused.get_or_insert(error);
        }
    });
}

unsafe extern "C" fn on_metadata(
    arg: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes what `on_active` asks for.
    unsafe { on_active(arg, data, length, param, Class::Metadata) }
}

unsafe extern "C" fn on_control(
    arg: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes what `on_active` asks for.
    unsafe { on_active(arg, data, length, param, Class::Control) }
}

unsafe extern "C" fn on_bundle(
    arg: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: UCX passes what `on_active` asks for.
    unsafe { on_active(arg, data, length, param, Class::Bundle) }
}

/// Takes one message: its bytes where they have come, a note to fetch them where they have not.
///
/// # Safety
///
/// `arg` is the [`CallbackInbox`] that [`listen`] was given; `param` is readable; `data` is
/// `length` readable bytes or, by rendezvous, UCX's description of a message.
unsafe fn on_active(
    arg: *mut c_void,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
    class: Class,
) -> ucs_status_t {
    // SAFETY: the contract; it outlives the worker that calls.
    let shared = unsafe { &*arg.cast_const().cast::<CallbackInbox>() };
    // SAFETY: the contract.
    let attributes = unsafe { (*param).recv_attr };
    if attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 {
        shared.guarded(|state| {
            state.announced(Announced {
                description: data,
                length,
                class,
            });
        });
        // The description stays until it is fetched or released.
        return UCS_INPROGRESS;
    }
    let bytes = if length == 0 {
        &[]
    } else {
        // SAFETY: the contract; the bytes are UCX's and nobody writes to them meanwhile.
        unsafe { std::slice::from_raw_parts(data.cast_const().cast::<u8>(), length) }
    };
    take_in(shared, class, Cow::Borrowed(bytes));
    UCS_OK
}
