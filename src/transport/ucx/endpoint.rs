//! One end of a connection: creation, flush and close.

use std::net::SocketAddr;
use std::sync::Arc;

use ucx1_sys::{
    Api, UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR, UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR,
    UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_PARAM_FIELD_CONN_REQUEST, UCP_EP_PARAM_FIELD_ERR_HANDLER,
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE, UCP_EP_PARAM_FIELD_FLAGS, UCP_EP_PARAM_FIELD_SOCK_ADDR,
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID, UCP_OP_ATTR_FIELD_FLAGS,
    UCS_ERR_INVALID_PARAM, UCS_OK, UCS_PTR_STATUS, ucp_conn_request_h, ucp_ep_attr_t, ucp_ep_h,
    ucp_ep_params_t, ucp_err_handler_t, ucp_request_param_t, ucs_status_t,
};

use crate::error::Result;
use crate::transport::ucx::callbacks::{CallbackInbox, on_endpoint_failure};
use crate::transport::ucx::error::{error, not_connected};
use crate::transport::ucx::operations::UcxRequest;
use crate::transport::ucx::sockaddr::{from_raw, with_raw};
use crate::transport::ucx::worker::Worker;

/// An endpoint of a worker. The endpoint is closed before its worker is destroyed.
#[derive(Debug, Clone, Copy)]
pub(super) struct UcxEndpoint(pub(super) ucp_ep_h);

// SAFETY: UCX knows that calls come from any thread, but one at a time (SERIALIZED).
unsafe impl Send for UcxEndpoint {}

impl UcxEndpoint {
    /// Begins to connect to a server (rule R6).
    ///
    /// # Errors
    ///
    /// Errors that UCX finds at once. Later errors go to the error handler of `shared`, which must
    /// outlive the worker.
    pub(super) fn connect(
        worker: &Worker,
        shared: &Arc<CallbackInbox>,
        address: SocketAddr,
    ) -> Result<Self> {
        with_raw(address, |sockaddr| {
            let params = ucp_ep_params_t {
                field_mask: u64::from(
                    UCP_EP_PARAM_FIELD_SOCK_ADDR
                        | UCP_EP_PARAM_FIELD_FLAGS
                        | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                ),
                err_mode: worker.context.error_mode,
                flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID,
                sockaddr,
                ..ucp_ep_params_t::default()
            };
            Self::create(worker, shared, params)
                .map_err(|status| not_connected(worker.api(), &address.to_string(), status))
        })
    }

    /// Accepts a client. Uses up the request, even on failure.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub(super) fn accept(
        worker: &Worker,
        shared: &Arc<CallbackInbox>,
        request: ucp_conn_request_h,
    ) -> Result<Self> {
        // No error mode: the endpoint takes the client's, and UCX refuses another mode (rule R6).
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
        shared: &Arc<CallbackInbox>,
        mut params: ucp_ep_params_t,
    ) -> Result<Self, ucs_status_t> {
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLER);
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_endpoint_failure),
            arg: Arc::as_ptr(shared).cast_mut().cast(),
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the worker lives; the masked fields are set, and their pointers are readable; the
        // handler takes a `CallbackInbox`; `handle` is writable.
        let status = unsafe {
            (worker.api()).ucp_ep_create(worker.handle, &raw const params, &raw mut handle)
        };
        if status == UCS_OK {
            Ok(Self(handle))
        } else {
            Err(status)
        }
    }

    /// The addresses of both ends, this end first; `None` if UCX knows no addresses.
    pub(super) fn addresses(self, api: &Api) -> Option<(SocketAddr, SocketAddr)> {
        let wanted = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
        let mut attributes = ucp_ep_attr_t {
            field_mask: u64::from(wanted),
            ..ucp_ep_attr_t::default()
        };
        // SAFETY: the endpoint lives; the attributes are writable.
        let status = unsafe { api.ucp_ep_query(self.0, &raw mut attributes) };
        if status != UCS_OK {
            return None;
        }
        let ends = (&attributes.local_sockaddr, &attributes.remote_sockaddr);
        Some((from_raw(ends.0)?, from_raw(ends.1)?))
    }

    /// Begins a flush, which ends when all sent data has left.
    pub(super) fn begin_flush(self, worker: &Worker) -> UcxRequest {
        let params = ucp_request_param_t::default();
        // SAFETY: the endpoint lives; the parameters set no option.
        let returned = unsafe { worker.api().ucp_ep_flush_nbx(self.0, &raw const params) };
        UcxRequest::new(worker.api(), returned)
    }

    /// Begins to close the endpoint. By force: operations under way end with an error, and UCX
    /// waits for no peer. Otherwise UCX tells the peer and waits for its answer. `None`: UCX
    /// refuses force, because the endpoint has no error mode. Do not use the endpoint after `Some`.
    ///
    /// After a close by force while the worker [is flushing](Worker::is_flushing), do not call
    /// `progress` again: destroy the worker.
    pub(super) fn begin_close(self, worker: &Worker, by_force: bool) -> Option<UcxRequest> {
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags: if by_force { UCP_EP_CLOSE_FLAG_FORCE } else { 0 },
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint lives, and is not used after a successful call.
        let returned = unsafe { worker.api().ucp_ep_close_nbx(self.0, &raw const params) };
        let refused = by_force && UCS_PTR_STATUS(returned) == UCS_ERR_INVALID_PARAM;
        (!refused).then(|| UcxRequest::new(worker.api(), returned))
    }
}
