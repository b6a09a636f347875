//! Listening at a socket address.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use ucx1_sys::{
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR, UCP_LISTENER_ATTR_FIELD_SOCKADDR,
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER, UCP_LISTENER_PARAM_FIELD_SOCK_ADDR, UCS_ERR_BUSY,
    UCS_OK, ucp_conn_request_attr_t, ucp_conn_request_h, ucp_listener_attr_t,
    ucp_listener_conn_handler_t, ucp_listener_h, ucp_listener_params_t,
};

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::Uri;
use crate::transport::address::Address;
use crate::transport::listening::bind;
use crate::transport::patience::Patience;
use crate::transport::rdma::Lending;
use crate::transport::ucx::connection::UcxConnection;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::error::{ensure, error, version_text};
use crate::transport::ucx::sockaddr::{from_raw, with_raw};
use crate::transport::ucx::version::warn_of_mixed_events;
use crate::transport::ucx::worker::Worker;
use crate::transport::{Connection, Listener, Watched};

/// [`Listener`] over UCX.
pub struct UcxListener {
    /// `None` after the close.
    worker: Option<Worker>,
    handle: ucp_listener_h,
    ready: Arc<OwnedFd>,
    context: Arc<Context>,
    /// Clients that wait to be accepted. The argument of the callback points here, so `waiting`
    /// must live as long as the listener.
    waiting: Arc<WaitingClients>,
    /// The memory to lend, if the listener lends any.
    lending: Option<Lending>,
    address: Address,
    patience: Patience,
    generation: Generation,
}

/// Requests from the callback of a listener.
#[derive(Default)]
struct WaitingClients(Mutex<VecDeque<ConnectionRequest>>);

/// A client that wants to be accepted.
struct ConnectionRequest(ucp_conn_request_h);

// SAFETY: a request belongs to its listener's worker and to no thread. The owner of both uses the
// request from one thread at a time.
unsafe impl Send for ConnectionRequest {}
// SAFETY: the listener's handle belongs to no thread either; calls need `&mut self`.
unsafe impl Send for UcxListener {}

/// The connection callback.
///
/// # Safety
///
/// `arg` is the [`WaitingClients`] of a listener that is not destroyed.
unsafe extern "C" fn on_request(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: `arg` is a live `WaitingClients`, by the contract of this function.
    let waiting = unsafe { &*arg.cast_const().cast::<WaitingClients>() };
    waiting.0.lock().push_back(ConnectionRequest(request));
}

impl UcxListener {
    /// Starts to listen at `target`, the socket address of `address`.
    ///
    /// # Errors
    ///
    /// `AddressInUse`, and other errors of UCX.
    pub fn new(
        context: Arc<Context>,
        address: &Address,
        target: SocketAddr,
        lending: Option<Lending>,
        patience: Patience,
    ) -> Result<Self> {
        warn_of_mixed_events(context.api);
        let worker = Worker::new(Arc::clone(&context))?;
        let waiting = Arc::<WaitingClients>::default();
        let handle = match listen(&worker, &waiting, address, target) {
            Ok(handle) => handle,
            Err(error) => {
                worker.destroy();
                return Err(error);
            }
        };
        let mut listener = Self {
            ready: Arc::clone(&worker.ready),
            worker: Some(worker),
            handle,
            context,
            waiting,
            lending,
            address: address.clone(),
            patience,
            generation: Generation::now(),
        };
        listener.fill_in_port()?;
        if !listener.doze()?
            && let Some(worker) = &mut listener.worker
        {
            worker.signal();
        }
        Ok(listener)
    }

    /// Prepares the descriptor to become readable when a client comes. False: the listener has work
    /// already.
    fn doze(&mut self) -> Result<bool> {
        match &mut self.worker {
            Some(worker) => Ok(!worker.progress() && worker.rest()?),
            None => Ok(true),
        }
    }

    fn fill_in_port(&mut self) -> Result<()> {
        let api = self.context.api;
        let mut attributes = ucp_listener_attr_t {
            field_mask: u64::from(UCP_LISTENER_ATTR_FIELD_SOCKADDR),
            ..ucp_listener_attr_t::default()
        };
        // SAFETY: the listener lives; the attributes are writable.
        let status = unsafe { api.ucp_listener_query(self.handle, &raw mut attributes) };
        ensure(api, "cannot find out where UCX listens", status)?;
        if let Some(bound) = from_raw(&attributes.sockaddr) {
            self.address = self.address.with_port(bound.port());
        }
        Ok(())
    }
}

fn listen(
    worker: &Worker,
    waiting: &Arc<WaitingClients>,
    address: &Address,
    target: SocketAddr,
) -> Result<ucp_listener_h> {
    let mut handle = std::ptr::null_mut();
    let status = with_raw(target, |sockaddr| {
        let params = ucp_listener_params_t {
            field_mask: u64::from(
                UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            ),
            sockaddr,
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_request),
                arg: Arc::as_ptr(waiting).cast_mut().cast(),
            },
            ..ucp_listener_params_t::default()
        };
        // SAFETY: the worker lives; the masked fields are set; the callback takes what it is given;
        // `handle` is writable.
        unsafe {
            (worker.api()).ucp_listener_create(worker.handle, &raw const params, &raw mut handle)
        }
    });
    if status == UCS_OK {
        return Ok(handle);
    }
    if status == UCS_ERR_BUSY {
        return Err(taken(address, worker.context.reuses_addresses));
    }
    // UCX has one status for most reasons. A bind by the system returns the exact reason.
    bind(address, &target)?;
    let doing = format_args!("cannot listen at {address}");
    Err(error(worker.api(), doing, status))
}

/// Another process has the address, or had it shortly before.
fn taken(address: &Address, reuses: bool) -> Error {
    let hint = if reuses {
        ""
    } else {
        ", or connections of a server that has ended keep it, for a minute; UCX passes over those \
         with UCX_TCP_CM_REUSEADDR=y in the environment, or ucx.TCP_CM_REUSEADDR=y, which \
         libdipc sets unless it is said otherwise"
    };
    Error::new(
        Status::AddressInUse,
        format!("{address} is taken already{hint}; port 0 takes a free one"),
    )
}

impl Listener for UcxListener {
    fn fd(&self) -> Arc<dyn Watched> {
        Arc::clone(&self.ready) as _
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn complete(&self, uri: &mut Uri) {
        uri.ucx_version = Some(version_text(self.context.api)); // Rule E1
        match &self.lending {
            Some(lending) => uri.remote_handle = Some(lending.remote_handle()),
            // Rule U2: nothing is lent, so nothing can be given back.
            None => uri.tags.free_data = None,
        }
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        self.generation.ensure_same_process()?;
        loop {
            let next = self.waiting.0.lock().pop_front();
            if let Some(ConnectionRequest(request)) = next
                && let Some(worker) = &mut self.worker
            {
                // An event of the client's socket that UCX has missed must not stay at this worker.
                // The socket now goes to another worker, and UCX before 1.18 would end the process.
                worker.progress();
                let peer = peer_of(worker, request);
                let mut left = Some(request);
                let accepted = UcxConnection::accept(&self.context, &mut left, peer);
                if let Some(request) = left {
                    // The client still waits, because the missing resource may be free later.
                    self.waiting.0.lock().push_front(ConnectionRequest(request));
                    worker.signal();
                }
                let mut connection = accepted?;
                connection.watch_network(self.patience);
                if let Some(lending) = &self.lending {
                    connection.lend(lending.lenders());
                }
                return Ok(Some(Box::new(connection)));
            }
            if self.doze()? && self.waiting.0.lock().is_empty() {
                return Ok(None);
            }
        }
    }
}

/// The address of a client that asks for a connection.
fn peer_of(worker: &Worker, request: ucp_conn_request_h) -> String {
    let mut attributes = ucp_conn_request_attr_t {
        field_mask: u64::from(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
        ..ucp_conn_request_attr_t::default()
    };
    // SAFETY: the request has not been used; the attributes are writable.
    let status = unsafe { (worker.api()).ucp_conn_request_query(request, &raw mut attributes) };
    let address = from_raw(&attributes.client_address).filter(|_| status == UCS_OK);
    address.map_or_else(
        || "a client of unknown address".to_owned(),
        |address| address.to_string(),
    )
}

impl Drop for UcxListener {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else {
            return;
        };
        if !self.generation.is_same_process() {
            // A forked child must not touch objects that it shares with its parent.
            let _left = std::mem::ManuallyDrop::new(worker);
            return;
        }
        let api = self.context.api;
        for ConnectionRequest(request) in std::mem::take(&mut *self.waiting.0.lock()) {
            // SAFETY: the request has not been used, and its listener lives.
            unsafe { api.ucp_listener_reject(self.handle, request) };
        }
        // SAFETY: `handle` was made in `new`, and is destroyed only here, before its worker.
        unsafe { api.ucp_listener_destroy(self.handle) };
        worker.destroy();
    }
}
