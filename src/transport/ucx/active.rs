//! Active messages: metadata (id 0, rule R1) and control (id 1).

use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB, UCP_AM_HANDLER_PARAM_FIELD_ID,
    UCP_AM_RECV_ATTR_FLAG_RNDV, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCS_INPROGRESS,
    UCS_MEMORY_TYPE_HOST, UCS_OK, ucp_am_handler_param_t, ucp_am_recv_param_t, ucp_request_param_t,
    ucs_status_t,
};

use crate::error::{Error, Result};
use crate::proto::Bytes;
use crate::transport::ucx::callbacks::{Announced, CallbackInbox, MessageClass};
use crate::transport::ucx::error::ensure;
use crate::transport::ucx::gather::NUMBER_BYTES;
use crate::transport::ucx::operations::{Operations, Work};
use crate::transport::ucx::worker::Worker;

/// Refuses a message that is longer than its class allows.
fn ensure_within_limit(class: MessageClass, length: usize, shared: &CallbackInbox) -> Result<()> {
    let most = class.limit(shared.takes_stream());
    if length as u64 <= most {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "the peer sent a {class:?} message of {length} bytes; the limit is {most}"
    )))
}

/// Makes a worker take the active messages that the peer may send. UCX refuses all others.
///
/// `shared` must live until the worker is destroyed.
///
/// # Errors
///
/// `OutOfMemory` and other errors of UCX.
pub(super) fn listen(worker: &Worker, shared: &Arc<CallbackInbox>) -> Result<()> {
    for class in [MessageClass::Metadata, MessageClass::Control] {
        let params = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: class.id(),
            cb: Some(match class {
                MessageClass::Metadata => on_active::<false>,
                MessageClass::Control => on_active::<true>,
            }),
            arg: Arc::as_ptr(shared).cast_mut().cast(),
            ..ucp_am_handler_param_t::default()
        };
        let api = worker.api();
        // SAFETY: the worker lives; the masked fields are set; the handlers take a `CallbackInbox`.
        let status =
            unsafe { api.ucp_worker_set_am_recv_handler(worker.handle, &raw const params) };
        ensure(api, "cannot receive active messages", status)?;
    }
    Ok(())
}

/// Fetches a message that was announced.
///
/// # Errors
///
/// `Protocol` if it is longer than its class allows, `OutOfMemory`; the message is then released.
pub(super) fn fetch(
    worker: &Worker,
    shared: &CallbackInbox,
    operations: &mut Operations,
    announced: Announced,
) -> Result<()> {
    let Announced {
        description,
        length,
        class,
        number,
    } = announced;
    let (api, worker) = (worker.api(), worker.handle);
    let allocate = || -> Result<Vec<u8>> {
        ensure_within_limit(class, length, shared)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            Error::out_of_memory(format!("cannot allocate {length} bytes for a message"))
        })?;
        bytes.resize(length, 0);
        Ok(bytes)
    };
    let mut bytes = allocate().inspect_err(|_| {
        // SAFETY: a description that was kept (UCS_INPROGRESS) and is given back only here.
        unsafe { api.ucp_am_data_release(worker, description) };
    })?;
    let params = ucp_request_param_t {
        op_attr_mask: UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        memory_type: UCS_MEMORY_TYPE_HOST,
        ..ucp_request_param_t::default()
    };
    // SAFETY: `description` was kept (UCS_INPROGRESS), and only this call gives it back. `bytes`
    // has `length` bytes, and the operation owns it until the operation is over.
    let returned = unsafe {
        let buffer = bytes.as_mut_ptr().cast();
        api.ucp_am_recv_data_nbx(worker, description, buffer, length, &raw const params)
    };
    let work = Work::Active {
        class,
        number,
        bytes,
    };
    operations.add(work, returned);
    Ok(())
}

/// Takes one message: its bytes if they have come, otherwise a note to fetch them.
///
/// # Safety
///
/// `arg` is the [`CallbackInbox`] that [`listen`] was given; `param` is readable; the header has
/// `header_length` readable bytes; `data` is `length` readable bytes or, by rendezvous, UCX's
/// description of a message.
unsafe extern "C" fn on_active<const IS_CONTROL: bool>(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    let class = match IS_CONTROL {
        true => MessageClass::Control,
        false => MessageClass::Metadata,
    };
    // SAFETY: `arg` is the inbox given to `listen`, by this function's contract, and `listen`'s
    // caller keeps the inbox until the worker, which calls this, is destroyed.
    let shared = unsafe { &*arg.cast_const().cast::<CallbackInbox>() };
    // Rule S2.
    let number = match header_length {
        0 => 0,
        // SAFETY: UCX passes `header_length` readable bytes, by this function's contract, and that
        // is the size of the number. `read_unaligned` asks for no alignment.
        NUMBER_BYTES => u32::from_le(unsafe { header.cast::<u32>().read_unaligned() }),
        _ => {
            let refuse = || {
                Error::protocol(format!(
                    "the peer sent a {class:?} message with a header of {header_length} bytes; the \
                     number of a stream has {NUMBER_BYTES}"
                ))
            };
            shared.guarded(|reports| _ = reports.refused.get_or_insert_with(refuse));
            return UCS_OK;
        }
    };
    // SAFETY: UCX passes a readable `param`, by this function's contract.
    let attributes = unsafe { (*param).recv_attr };
    if attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 {
        shared.guarded(|reports| {
            reports.announced.push(Announced {
                description: data,
                length,
                class,
                number,
            });
        });
        // The description stays until it is fetched or released.
        return UCS_INPROGRESS;
    }
    let bytes = if length == 0 {
        &[]
    } else {
        // SAFETY: `data` has `length` readable bytes, by this function's contract, as the message
        // came whole. They belong to UCX, which does not write to them during this call.
        unsafe { std::slice::from_raw_parts(data.cast_const().cast::<u8>(), length) }
    };
    shared.guarded(|reports| {
        let allowed = ensure_within_limit(class, length, shared);
        let arrived = allowed.map(|()| class.incoming(Bytes::from_slice(bytes)));
        match arrived {
            Ok(message) => reports.arrived.push((number, message)),
            Err(error) => _ = reports.refused.get_or_insert(error),
        }
    });
    UCS_OK
}
