//! One connection to one peer: a worker of its own and one endpoint (rule R2).

mod shutdown;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use ucx1_sys::{
    Api, UCP_AM_SEND_FLAG_REPLY, UCP_OP_ATTR_FIELD_FLAGS, UCS_ERR_CANCELED, UCS_OK,
    ucp_conn_request_h, ucp_request_param_t, ucs_status_ptr_t,
};

use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Span;
use crate::transport::ucx::active::{self, Class};
use crate::transport::ucx::context::Context;
use crate::transport::ucx::endpoint::Endpoint;
use crate::transport::ucx::error::{error, lost, not_connected};
use crate::transport::ucx::gather::Sending;
use crate::transport::ucx::key::Key;
use crate::transport::ucx::pull::{Line, Pulls};
use crate::transport::ucx::shared::{Ends, Finished, Shared, Work};
use crate::transport::ucx::tagged::{self, Received, Tagged};
use crate::transport::ucx::worker::Worker;
use crate::transport::{Connection, Incoming, Lender, Outgoing, Readiness, Resolved};

/// Rounds of progress in one call that bring no message, after which others have their turn.
const ROUNDS_AT_ONCE: usize = 256;

/// [`Connection`] over UCX.
pub struct UcxConnection {
    /// `None` once closed.
    link: Option<Link>,
    api: &'static Api,
    ready: Arc<OwnedFd>,
    shared: Arc<Shared>,
    tagged: Tagged,
    /// At a client that asked UCX for remote reads.
    pulls: Option<Pulls>,
    /// At a server that lends.
    lender: Option<Arc<dyn Lender>>,
    inbox: VecDeque<Incoming>,
    queued_bytes: u64,
    peer: String,
    /// Why nothing more comes, once the inbox is empty.
    over: Option<Error>,
    generation: Generation,
}

/// What UCX has of a connection.
struct Link {
    worker: Worker,
    endpoint: Endpoint,
}

impl UcxConnection {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// `Unreachable` when it refuses or is not there, `Timeout` at the deadline, and UCX's own.
    pub fn connect(context: &Arc<Context>, address: SocketAddr, deadline: Instant) -> Result<Self> {
        let (worker, shared) = prepare(context)?;
        let endpoint = match Endpoint::connect(&worker, &shared, address) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                worker.destroy();
                return Err(error);
            }
        };
        let tagged = Tagged::new(false);
        let mut connection = Self::new(worker, shared, endpoint, tagged, address.to_string());
        connection.establish(&address.to_string(), deadline)?;
        Ok(connection)
    }

    /// Accepts a client.
    ///
    /// # Errors
    ///
    /// Of UCX; the request is given back in the error while it has not been used.
    pub fn accept(
        context: &Arc<Context>,
        request: ucp_conn_request_h,
        peer: String,
    ) -> Result<Self, (Error, Option<ucp_conn_request_h>)> {
        let (worker, shared) = prepare(context).map_err(|error| (error, Some(request)))?;
        match Endpoint::accept(&worker, &shared, request) {
            Ok(endpoint) => Ok(Self::new(worker, shared, endpoint, Tagged::new(true), peer)),
            Err(error) => {
                worker.destroy();
                Err((error, None))
            }
        }
    }

    fn new(
        worker: Worker,
        shared: Arc<Shared>,
        endpoint: Endpoint,
        tagged: Tagged,
        peer: String,
    ) -> Self {
        // Nothing is armed yet, and something may have come.
        worker.signal();
        Self {
            api: worker.api(),
            ready: Arc::clone(worker.ready()),
            link: Some(Link { worker, endpoint }),
            shared,
            tagged,
            pulls: None,
            lender: None,
            inbox: VecDeque::new(),
            queued_bytes: 0,
            peer,
            over: None,
            generation: Generation::now(),
        }
    }

    /// Lends by `lender`, at a server.
    pub fn lend(&mut self, lender: Arc<dyn Lender>) {
        self.lender = Some(lender);
    }

    /// Reads what the server lends: one that `announces` regions, or whose URI has the `key` to plain
    /// addresses, or both. The context must have the feature for it.
    ///
    /// # Errors
    ///
    /// The key is none, or of memory that cannot be reached from here.
    pub fn pull(&mut self, announces: bool, key: Option<&[u8]>) -> Result<()> {
        if let Some(Link { worker, endpoint }) = &self.link {
            let unpacked = key.map(|key| Key::unpack(worker, *endpoint, key));
            let unpacked = unpacked
                .transpose()
                .map_err(|error| error.context("remote_handle of the server's URI"))?;
            self.pulls = Some(Pulls::new(announces, unpacked));
        }
        Ok(())
    }

    /// Waits until the server has accepted. On failure the drop of `self` cleans up.
    fn establish(&mut self, address: &str, deadline: Instant) -> Result<()> {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return Err(closed());
        };
        match endpoint.flush(worker, &self.shared, deadline)? {
            Some(UCS_OK) => Ok(()),
            Some(status) => {
                let error = not_connected(self.api, address, status);
                self.over = Some(error.clone());
                Err(error)
            }
            None => {
                let error = Error::timeout(format!(
                    "the server at ucx://{address} did not accept the connection in time: it is \
                     busy or stopped, its packets are lost, or its UCX cannot talk to this one"
                ));
                self.over = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Whether calls may go on to UCX.
    fn ensure_usable(&self) -> Result<()> {
        self.generation.ensure_same_process()?;
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Lets UCX go on, and deals with what it told. Returns whether anything moved.
    fn progress(&mut self) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let mut moved = link.worker.progress();
        if self.over.is_none() && self.shared.with(|state| state.failed.is_some()) {
            // What came before the end may still lie in shared memory.
            for _ in 0..ROUNDS_AT_ONCE {
                if !link.worker.progress() {
                    break;
                }
            }
            moved = true;
        }
        self.settle() || moved
    }

    /// Deals with what callbacks told, until there is nothing more. Returns whether there was
    /// something. No call of UCX's is on the stack here, so that every function may be called.
    fn settle(&mut self) -> bool {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return false;
        };
        let (tagged, shared, pulls) = (&mut self.tagged, &self.shared, &mut self.pulls);
        let mut moved = false;
        loop {
            let mut failed = Ok(());
            if self.over.is_none() {
                failed = tagged.fetch_arrived(worker, shared);
            }
            let (arrived, announced, finished) = shared.with(|state| {
                (
                    std::mem::take(&mut state.arrived),
                    std::mem::take(&mut state.announced),
                    std::mem::take(&mut state.finished),
                )
            });
            if arrived.is_empty() && announced.is_empty() && finished.is_empty() {
                note(&mut self.over, failed);
                break;
            }
            moved = true;
            // The reason, before what operations end with because of it.
            note_failure(&mut self.over, shared, self.api, &self.peer);
            self.inbox.extend(arrived);
            for announced in announced {
                failed = failed.and(active::fetch(worker, shared, announced));
            }
            for finished in finished {
                let request = finished.request;
                if let Work::Send(sending) = &finished.work {
                    self.queued_bytes -= sending.len() as u64;
                }
                let mut line = Line {
                    worker: &mut *worker,
                    endpoint: *endpoint,
                    shared,
                };
                match finish(tagged, pulls.as_mut(), &mut line, finished) {
                    Ok(Some(message)) => self.inbox.push_back(message),
                    Ok(None) => {}
                    Err(error) => failed = failed.and(Err(error)),
                }
                if !request.is_null() {
                    // SAFETY: the request of an operation that is over, freed only here.
                    unsafe { self.api.ucp_request_free(request) };
                }
            }
            note(&mut self.over, failed);
        }
        note_failure(&mut self.over, shared, self.api, &self.peer);
        moved
    }

    /// Starts to send. What is not over at once needs progress, for which whoever sleeps is woken.
    fn post(
        &mut self,
        sending: Sending,
        extra: impl FnOnce(&mut ucp_request_param_t),
        call: impl FnOnce(
            &Api,
            Endpoint,
            *const c_void,
            usize,
            *const ucp_request_param_t,
        ) -> ucs_status_ptr_t,
    ) -> Result<()> {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return Err(closed());
        };
        let (buffer, count, mut params) = sending.describe();
        extra(&mut params);
        self.queued_bytes += sending.len() as u64;
        let (api, endpoint) = (self.api, *endpoint);
        let under_way = self
            .shared
            .start(Work::Send(sending), Ends::Send, params, |params| {
                call(api, endpoint, buffer, count, params)
            });
        if under_way.is_some() {
            worker.signal();
        }
        self.settle();
        self.wake_for_inbox();
        self.over.clone().map_or(Ok(()), Err)
    }

    fn send_active(&mut self, class: Class, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() as u64 > class.limit() {
            return Err(Error::invalid_argument(format!(
                "a {class:?} message of {} bytes cannot be sent; the limit is {}",
                bytes.len(),
                class.limit()
            )));
        }
        // Rule R1: no header, and for metadata the reply flag. UCX drops a message with it that is
        // read after the endpoint has failed, as the last word of a server may be.
        let with_reply = |params: &mut ucp_request_param_t| {
            if class == Class::Metadata {
                params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                params.flags = UCP_AM_SEND_FLAG_REPLY;
            }
        };
        let id = class.id();
        self.post(
            Sending::bytes(bytes),
            with_reply,
            // SAFETY: the endpoint lives; the buffer is the operation's until that is over.
            |api, endpoint, buffer, count, params| unsafe {
                let none = std::ptr::null();
                api.ucp_am_send_nbx(endpoint.handle(), id, none, 0, buffer, count, params)
            },
        )
    }

    /// Keeps the promise of [`Readiness`]: whoever sleeps wakes for what is in the inbox, although
    /// another thread's call has put it there.
    fn wake_for_inbox(&self) {
        if let Some(link) = &self.link
            && (!self.inbox.is_empty() || self.over.is_some())
        {
            link.worker.signal();
        }
    }
}

/// Notes what callbacks told of the end of the connection.
fn note_failure(over: &mut Option<Error>, shared: &Shared, api: &Api, peer: &str) {
    if over.is_none() {
        let (refused, failed) = shared.with(|state| (state.refused.take(), state.failed));
        *over = refused.or_else(|| Some(lost(api, peer, failed?)));
    }
}

/// Keeps the first error.
fn note(over: &mut Option<Error>, result: Result<()>) {
    if let Err(error) = result {
        over.get_or_insert(error);
    }
}

/// What an operation that is over brought.
fn finish(
    tagged: &mut Tagged,
    pulls: Option<&mut Pulls>,
    line: &mut Line<'_>,
    finished: Finished,
) -> Result<Option<Incoming>> {
    let Finished {
        work, status, info, ..
    } = finished;
    let worker = &mut *line.worker;
    let brought = match work {
        Work::Read { list, memory } => {
            // Its list has it, too.
            drop(memory);
            return pulls.map_or(Ok(None), |pulls| pulls.finish(line, list, status));
        }
        // Why a send failed is told by the endpoint's error handler, where there is one.
        Work::Send(_) if status == UCS_OK || status == UCS_ERR_CANCELED => Ok(None),
        Work::Send(_) => Err(error(worker.api(), "a message was not sent", status)),
        Work::Body {
            id,
            seq,
            kind,
            memory,
        } => tagged.finish(
            worker,
            Received {
                id,
                seq,
                kind,
                memory,
                status,
                info,
            },
        ),
        Work::Tagged { tag, memory } => tagged::arrived(worker, tag, memory, status).map(Some),
        Work::Active { class, bytes } if status == UCS_OK => Ok(Some(class.incoming(bytes))),
        Work::Active { .. } => Err(error(worker.api(), "a message was not received", status)),
    }?;
    match (brought, pulls) {
        (Some(message), Some(pulls)) => pulls.take_in(line, message),
        (brought, _) => Ok(brought),
    }
}

fn closed() -> Error {
    Error::disconnected("the connection was closed by this side")
}

/// Makes a worker that takes active messages.
fn prepare(context: &Arc<Context>) -> Result<(Worker, Arc<Shared>)> {
    let worker = Worker::new(Arc::clone(context))?;
    let shared = Arc::default();
    match active::listen(&worker, &shared) {
        Ok(()) => Ok((worker, shared)),
        Err(error) => {
            worker.destroy();
            Err(error)
        }
    }
}

impl Connection for UcxConnection {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn same_user(&self) -> bool {
        // A socket address says nothing of users.
        false
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            fd: Arc::clone(&self.ready),
            socket: false,
            peer_death: None,
        }
    }

    fn send(&mut self, message: Outgoing) -> Result<()> {
        self.ensure_usable()?;
        match message {
            Outgoing::Metadata { prefix, header } => {
                self.send_active(Class::Metadata, [prefix.as_slice(), &header].concat())
            }
            Outgoing::Control { bytes, fd: _ } => self.send_active(Class::Control, bytes),
            Outgoing::Tagged { tag, payload } => self.post(
                Sending::payload(payload),
                |_| {},
                // SAFETY: the endpoint lives; the buffer is the operation's until that is over.
                |api, endpoint, buffer, count, params| unsafe {
                    api.ucp_tag_send_nbx(endpoint.handle(), buffer, count, tag, params)
                },
            ),
        }
    }

    fn flush(&mut self) -> Result<bool> {
        self.ensure_usable()?;
        for _ in 0..ROUNDS_AT_ONCE {
            if self.queued_bytes == 0 || !self.progress() {
                break;
            }
        }
        self.wake_for_inbox();
        self.over.clone().map_or(Ok(self.queued_bytes == 0), Err)
    }

    fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        if self.ensure_usable().is_err() {
            return;
        }
        if let Some(link) = &mut self.link {
            if let Some(pulls) = &mut self.pulls {
                pulls.expect(seq, packed);
            }
            let posted = (self.tagged).post(&mut link.worker, &self.shared, seq, packed, list);
            note(&mut self.over, posted);
            self.settle();
            self.wake_for_inbox();
        }
    }

    fn clear_posted(&mut self) {
        if self.generation.is_same_process()
            && let Some(link) = &mut self.link
        {
            self.tagged.clear(&mut link.worker);
            self.settle();
        }
        if let Some(pulls) = &mut self.pulls {
            pulls.clear();
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>> {
        self.generation.ensure_same_process()?;
        for _ in 0..ROUNDS_AT_ONCE {
            if let Some(message) = self.inbox.pop_front() {
                return Ok(Some(message));
            }
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            if self.progress() {
                continue;
            }
            let Some(link) = &mut self.link else {
                return Err(closed());
            };
            match link.worker.rest() {
                // Callbacks may have run while it was asked for rest.
                Ok(asleep) => {
                    if !self.settle() && asleep {
                        return Ok(None);
                    }
                }
                Err(error) => self.over = Some(error),
            }
        }
        // A large body is coming in: others have their turn, and this goes on at once after.
        if let Some(link) = &self.link {
            link.worker.signal();
        }
        Ok(None)
    }

    fn is_waiting(&self) -> bool {
        // A body that comes early waits in UCX, a large one at the sender.
        false
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        self.lender.clone()
    }

    fn map_region(&mut self, id: u16, handle: &[u8], _fd: Option<OwnedFd>) -> Result<()> {
        self.generation.ensure_same_process()?;
        let (Some(link), Some(pulls)) = (&mut self.link, &mut self.pulls) else {
            return Err(no_regions(id));
        };
        if self.over.is_some() {
            // Nothing can be read from it any more; what the server said behind it is still heard.
            return Ok(());
        }
        let mut line = Line {
            worker: &mut link.worker,
            endpoint: link.endpoint,
            shared: &self.shared,
        };
        self.inbox.extend(pulls.map(&mut line, id, handle)?);
        // Lists that waited for the region are read now, perhaps at once.
        self.settle();
        self.wake_for_inbox();
        Ok(())
    }

    fn unmap_region(&mut self, id: u16) -> Result<()> {
        match &mut self.pulls {
            Some(pulls) => pulls.unmap(id),
            None => Err(no_regions(id)),
        }
    }

    fn resolve(&mut self, seq: u32, spans: &[Span]) -> Result<Resolved> {
        match &mut self.pulls {
            Some(pulls) => pulls.resolve(seq, spans),
            None => Err(Error::protocol(format!(
                "message {seq} came with a list of addresses, and nothing is lent on this \
                 connection (rule U2)"
            ))),
        }
    }

    fn close(&mut self) {
        if let Some(lender) = &self.lender {
            lender.abandon();
        }
        self.shut_down();
        self.inbox.clear();
        self.queued_bytes = 0;
        self.over.get_or_insert_with(closed);
    }
}

fn no_regions(id: u16) -> Error {
    Error::protocol(format!(
        "region {id} on a connection that has none (rule E3)"
    ))
}

impl Drop for UcxConnection {
    fn drop(&mut self) {
        self.close();
    }
}
