//! One end of a connection: made, flushed and closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ucx1_sys::{
    UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_PARAM_FIELD_CONN_REQUEST, UCP_EP_PARAM_FIELD_ERR_HANDLER,
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE, UCP_EP_PARAM_FIELD_FLAGS, UCP_EP_PARAM_FIELD_SOCK_ADDR,
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID, UCP_OP_ATTR_FIELD_FLAGS,
    UCS_ERR_INVALID_PARAM, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_PTR_STATUS,
    ucp_conn_request_h, ucp_ep_h, ucp_ep_params_t, ucp_err_handler_t, ucp_request_param_t,
    ucs_status_ptr_t, ucs_status_t,
};

use crate::cancel::Cancel;
use crate::error::Result;
use crate::transport::ucx::error::{error, not_connected};
use crate::transport::ucx::shared::{Shared, on_endpoint_failure};
use crate::transport::ucx::sockaddr::with_raw;
use crate::transport::ucx::worker::Worker;

/// An endpoint. It belongs to a worker, and is closed before that is destroyed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint(ucp_ep_h);

// SAFETY: UCX was told that calls come from any thread, one at a time (SERIALIZED).
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Begins to connect to a server (rule R6).
    ///
    /// # Errors
    ///
    /// What UCX finds at once; the rest comes to the error handler of `shared`, which must outlive
    /// the worker.
    pub(super) fn connect(
        worker: &Worker,
        shared: &Arc<Shared>,
        address: SocketAddr,
    ) -> Result<Self> {
        with_raw(address, |sockaddr| {
            let params = ucp_ep_params_t {
                field_mask: u64::from(
                    UCP_EP_PARAM_FIELD_SOCK_ADDR
                        | UCP_EP_PARAM_FIELD_FLAGS
                        | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                ),
                err_mode: worker.context().error_mode(),
                flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
                sockaddr,
                ..ucp_ep_params_t::default()
            };
            Self::create(worker, shared, params)
                .map_err(|status| not_connected(worker.api(), &address.to_string(), status))
        })
    }

    /// Accepts a client. The request is used up, also on failure.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub(super) fn accept(
        worker: &Worker,
        shared: &Arc<Shared>,
        request: ucp_conn_request_h,
    ) -> Result<Self> {
        // No error mode: the endpoint has the client's, and UCX refuses any other (rule R6).
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_CONN_REQUEST),
            conn_request: request,
            ..ucp_ep_params_t::default()
        };
        Self::create(worker, shared, params)
            .map_err(|status| error(worker.api(), "cannot accept a connection", status))
    }

    fn create(
        worker: &Worker,
        shared: &Arc<Shared>,
        mut params: ucp_ep_params_t,
    ) -> Result<Self, ucs_status_t> {
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLER);
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_endpoint_failure),
            arg: Arc::as_ptr(shared).cast_mut().cast(),
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the worker lives; the masked fields are set, and what they point to is readable;
        // the handler takes a `Shared`; `handle` is writable.
        let status = unsafe {
            (worker.api()).ucp_ep_create(worker.handle(), &raw const params, &raw mut handle)
        };
        if status == UCS_OK {
            Ok(Self(handle))
        } else {
            Err(status)
        }
    }

    /// UCX's handle.
    pub(super) fn handle(self) -> ucp_ep_h {
        self.0
    }

    /// Waits until everything sent has left, and, on a new endpoint, until it is connected.
    /// `None`: it did not come to that before the deadline.
    ///
    /// # Errors
    ///
    /// The worker cannot be waited for.
    pub(super) fn flush(
        self,
        worker: &mut Worker,
        shared: &Shared,
        deadline: Instant,
        cancel: Option<&Cancel>,
    ) -> Result<Option<ucs_status_t>> {
        let params = ucp_request_param_t::default();
        // SAFETY: the endpoint lives; the parameters ask for nothing.
        let returned = unsafe { worker.api().ucp_ep_flush_nbx(self.0, &raw const params) };
        let failed = || shared.with(|state| state.failed);
        let ended = finish(worker, returned, deadline, cancel, || failed().is_some())?;
        // The reason is with the error handler; the flush knows only that it was cancelled.
        Ok(failed().or(ended))
    }

    /// Closes the endpoint. Operations under way end with an error. Returns whether UCX was done
    /// with it before the deadline.
    ///
    /// # Errors
    ///
    /// The worker cannot be waited for.
    pub(super) fn close(self, worker: &mut Worker, deadline: Instant) -> Result<bool> {
        // By force: a flush would wait for a peer that may not be there. UCX does not take that
        // where the endpoint has no error mode.
        let close = |flags| {
            let params = ucp_request_param_t {
                op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
                flags,
                ..ucp_request_param_t::default()
            };
            // SAFETY: the endpoint lives, and is not used after a call that does not fail.
            unsafe { worker.api().ucp_ep_close_nbx(self.0, &raw const params) }
        };
        let mut returned = close(UCP_EP_CLOSE_FLAG_FORCE);
        if UCS_PTR_STATUS(returned) == UCS_ERR_INVALID_PARAM {
            returned = close(0);
        }
        Ok(finish(worker, returned, deadline, None, || false)?.is_some())
    }
}

/// Waits for a request of no data. `None`: it, or `given_up`, did not come before the deadline.
fn finish(
    worker: &mut Worker,
    returned: ucs_status_ptr_t,
    deadline: Instant,
    cancel: Option<&Cancel>,
    given_up: impl Fn() -> bool,
) -> Result<Option<ucs_status_t>> {
    if !UCS_PTR_IS_PTR(returned) {
        return Ok(Some(UCS_PTR_STATUS(returned)));
    }
    let api = worker.api();
    // SAFETY: a request that is not freed yet.
    let status = || unsafe { api.ucp_request_check_status(returned) };
    let driven = worker.drive(deadline, cancel, || {
        status() != UCS_INPROGRESS || given_up()
    });
    let ended = status();
    // SAFETY: as above, and not used after this; UCX keeps what is still under way to itself.
    unsafe { api.ucp_request_free(returned) };
    driven?;
    Ok((ended != UCS_INPROGRESS).then_some(ended))
}
