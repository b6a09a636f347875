//! One connection to one peer: a worker of its own and one endpoint (rule R2).

mod progress;
mod regions;
mod sending;
mod shutdown;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ucx1_sys::{Api, UCS_OK, ucp_conn_request_h};

use crate::cancel::Cancel;
use crate::device::cuda::{Current, Device};
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::transport::address::is_loopback;
use crate::transport::features::Feature;
use crate::transport::patience::Patience;
use crate::transport::ucx::active;
use crate::transport::ucx::bundle::{self, Bundle};
use crate::transport::ucx::callbacks::{CallbackInbox, Peer, Reports};
use crate::transport::ucx::context::Context;
use crate::transport::ucx::endpoint::Endpoint;
use crate::transport::ucx::error::not_connected;
use crate::transport::ucx::key::Key;
use crate::transport::ucx::pull::Pulls;
use crate::transport::ucx::silence;
use crate::transport::ucx::tagged::Tagged;
use crate::transport::ucx::worker::Worker;
use crate::transport::{
    Connection, Identity, Incoming, Lender, Outgoing, PeerRegions, Profile, Queued, Readiness,
};

/// Rounds of progress in one call that bring no message, after which others have their turn.
pub(super) const ROUNDS_AT_ONCE: usize = 256;

/// [`Connection`] over UCX.
pub struct UcxConnection {
    identity: Identity,
    /// `None` once closed.
    link: Option<Link>,
    api: &'static Api,
    shared: Arc<CallbackInbox>,
    tagged: Tagged,
    /// At a client that asked UCX for remote reads.
    pulls: Option<Pulls>,
    /// At a server that lends.
    lender: Option<Arc<dyn Lender>>,
    /// Whether UCX takes memory of GPUs.
    knows_cuda: bool,
    /// The GPU whose memory UCX has been given here: current during every call from then on, for
    /// any of them may begin or finish a copy.
    gpu: Option<Arc<Device>>,
    /// Small messages that wait to leave together, once the client has asked for that.
    bundle: Option<Bundle>,
    /// At a client, until its server has sent a control message: control messages that wait for
    /// that. UCX ends the process of a baseline server that is sent one.
    unproven: Option<Vec<Vec<u8>>>,
    inbox: VecDeque<Incoming>,
    /// What callbacks told and is being dealt with; its memory is used again.
    told: Reports,
    /// Whoever reads looks for messages, and does not sleep.
    awake: bool,
    /// The descriptor tells of what comes.
    rests: bool,
    queued_bytes: u64,
    /// The peer is on this machine.
    is_here: bool,
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
    /// `Unreachable` when it refuses or is not there, `Timeout` at the deadline, `Cancelled` by the
    /// token, and UCX's own.
    pub fn connect(
        context: &Arc<Context>,
        address: SocketAddr,
        deadline: Instant,
        cancel: Option<&Cancel>,
    ) -> Result<Self> {
        let (worker, shared) = prepare(context, Peer::Server)?;
        let endpoint = match Endpoint::connect(&worker, &shared, address) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                worker.destroy();
                return Err(error);
            }
        };
        let tagged = Tagged::new(false, context.receives_by_turns());
        let mut connection = Self::new(worker, shared, endpoint, tagged, address.to_string());
        connection.establish(&address.to_string(), deadline, cancel)?;
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
        let (worker, shared) =
            prepare(context, Peer::Client).map_err(|error| (error, Some(request)))?;
        match Endpoint::accept(&worker, &shared, request) {
            Ok(endpoint) => Ok(Self::new(
                worker,
                shared,
                endpoint,
                Tagged::new(true, false),
                peer,
            )),
            Err(error) => {
                worker.destroy();
                Err((error, None))
            }
        }
    }

    fn new(
        mut worker: Worker,
        shared: Arc<CallbackInbox>,
        endpoint: Endpoint,
        tagged: Tagged,
        peer: String,
    ) -> Self {
        // Nothing is armed yet, and something may have come.
        worker.signal();
        let is_here = (peer.parse()).is_ok_and(|address: SocketAddr| is_loopback(&address));
        let knows_cuda = worker.context().knows_cuda();
        let readiness = Readiness {
            fd: Arc::clone(worker.ready()) as _,
            socket: false,
            peer_death: None,
        };
        let profile = Profile {
            is_ordered: false,
            // UCX drops what it has of an endpoint that fails.
            is_read_after_close: false,
            sends_gpu: knows_cuda,
            // Shorter ones may travel in a bundle, which is a copy.
            announces_from: Some(bundle::MOST_MESSAGE_BYTES_OVER_TCP as u64 + 1),
        };
        Self {
            identity: Identity {
                peer,
                // A socket address says nothing of users.
                same_user: false,
                readiness,
                profile,
            },
            api: worker.api(),
            knows_cuda,
            gpu: None,
            link: Some(Link { worker, endpoint }),
            tagged,
            pulls: None,
            lender: None,
            bundle: None,
            unproven: (shared.peer == Peer::Server).then(Vec::new),
            shared,
            inbox: VecDeque::new(),
            told: Reports::default(),
            awake: false,
            rests: false,
            queued_bytes: 0,
            is_here,
            over: None,
            generation: Generation::now(),
        }
    }

    /// Has the system notice a network that is cut. A machine always reaches itself.
    pub fn watch_network(&self, patience: Patience) {
        let Some(link) = self.link.as_ref().filter(|_| !self.is_here) else {
            return;
        };
        let ends = link.endpoint.addresses(self.api);
        if !ends.is_some_and(|(local, remote)| silence::watch(local, remote, patience)) {
            let peer = &self.identity.peer;
            tracing::debug!("it is for UCX to notice that the network to {peer} is cut");
        }
    }

    /// Lends by `lender`, at a server.
    pub fn lend(&mut self, lender: Arc<dyn Lender>) {
        self.lender = Some(lender);
    }

    /// Reads what the server lends: one that `announces` regions, or whose URI has the `key` to
    /// plain addresses, or both. The context must have the feature for it.
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

    /// Client: says that bundles may come, once the server has shown that it has our extension.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn ask_for_bundles(&mut self) -> Result<()> {
        self.send_control(Feature::Bundles.encode())
    }

    /// Waits until the server has accepted. On failure the drop of `self` cleans up.
    fn establish(
        &mut self,
        address: &str,
        deadline: Instant,
        cancel: Option<&Cancel>,
    ) -> Result<()> {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return Err(closed());
        };
        let flushed = endpoint.flush(worker, &self.shared, deadline, cancel);
        match flushed.inspect_err(|error| self.over = Some(error.clone()))? {
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

    /// The next message. Where there is none the descriptor tells when to ask again, or whoever is
    /// awake does it by himself.
    fn next(&mut self) -> Result<Option<Incoming>> {
        self.generation.ensure_same_process()?;
        let gpu = self.gpu.clone();
        let _current = match enter(gpu.as_ref()) {
            Ok(current) => current,
            Err(error) => return Err(self.over.get_or_insert(error).clone()),
        };
        self.rests = false;
        for _ in 0..ROUNDS_AT_ONCE {
            if let Some(message) = self.inbox.pop_front() {
                return Ok(Some(message));
            }
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            if self.go_on() {
                continue;
            }
            if self.awake {
                return Ok(None);
            }
            let Some(link) = &mut self.link else {
                return Err(closed());
            };
            match link.worker.rest() {
                // Callbacks may have run while it was asked for rest.
                Ok(asleep) => {
                    if !self.settle() && asleep {
                        self.rests = true;
                        return Ok(None);
                    }
                }
                Err(error) => self.over = Some(error),
            }
        }
        // A large body is coming in: others have their turn, and this goes on at once after.
        if let Some(link) = &mut self.link {
            link.worker.signal();
        }
        Ok(None)
    }

    /// Keeps the promise of [`Readiness`]: whoever sleeps wakes for what is in the inbox, although
    /// another thread's call has put it there.
    fn wake_for_inbox(&mut self) {
        if let Some(link) = &mut self.link
            && (!self.inbox.is_empty() || self.over.is_some())
        {
            link.worker.signal();
        }
    }
}

/// Makes a connection's GPU current on this thread, where it has one.
fn enter(gpu: Option<&Arc<Device>>) -> Result<Option<Current<'_>>> {
    gpu.map(|device| device.enter()).transpose()
}

fn closed() -> Error {
    Error::disconnected("the connection was closed by this side")
}

/// Makes a worker that takes active messages of `peer`.
fn prepare(context: &Arc<Context>, peer: Peer) -> Result<(Worker, Arc<CallbackInbox>)> {
    let worker = Worker::new(Arc::clone(context))?;
    let shared = Arc::new(CallbackInbox::new(peer));
    match active::listen(&worker, &shared) {
        Ok(()) => Ok((worker, shared)),
        Err(error) => {
            worker.destroy();
            Err(error)
        }
    }
}

impl Connection for UcxConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, message: Outgoing) -> Result<()> {
        self.ensure_usable()?;
        if self.bundle.is_none() {
            return self.send_now(message);
        }
        let length = Bundle::room_for(&message, bundle::MOST_MESSAGE_BYTES)
            .or_else(|| Bundle::room_for(&message, self.most_in_a_bundle()));
        let (Some(length), Some(bundle)) = (length, &mut self.bundle) else {
            self.send_bundle()?;
            return self.send_now(message);
        };
        if bundle.fits(length) {
            bundle.push(message, length);
            return Ok(());
        }
        self.send_bundle()?;
        self.queue(message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.ensure_usable()?;
        self.send_bundle()?;
        if self.queued_bytes > 0 {
            let gpu = self.gpu.clone();
            let _current = enter(gpu.as_ref())?;
            self.progress();
            self.wake_for_inbox();
        }
        self.over.clone().map_or(Ok(self.queued_bytes == 0), Err)
    }

    fn queued(&self) -> Queued {
        let waiting = self.bundle.as_ref().map_or(0, Bundle::len);
        Queued {
            bytes: self.queued_bytes + waiting as u64,
            held: 0,
        }
    }

    fn finish(&mut self) -> bool {
        self.queued().bytes == 0 && self.has_left()
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        if self.ensure_usable().is_err() {
            return;
        }
        let gpu = self.gpu.clone();
        let _current = match enter(gpu.as_ref()) {
            Ok(current) => current,
            Err(error) => {
                self.over = Some(error);
                return self.wake_for_inbox();
            }
        };
        if self.link.is_some() {
            if !self.tagged.expect(seq, packed, list) {
                return;
            }
            if let Some(pulls) = &mut self.pulls {
                pulls.expect(seq, packed);
            }
            self.settle();
            self.wake_for_inbox();
        }
    }

    fn forget_bodies(&mut self) {
        let gpu = self.gpu.clone();
        // A GPU that was reset has nothing left to keep from being written to.
        let _current = enter(gpu.as_ref());
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
        self.next()
    }

    fn wake(&mut self) {
        self.awake = true;
    }

    fn doze(&mut self) -> bool {
        self.awake = false;
        if self.rests && self.inbox.is_empty() {
            return false;
        }
        match self.next() {
            Ok(None) => false,
            Ok(Some(message)) => {
                self.inbox.push_front(message);
                true
            }
            Err(_) => true,
        }
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        self.lender.clone()
    }

    fn regions(&mut self) -> Option<&mut dyn PeerRegions> {
        Some(self)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        if let Some(lender) = &self.lender {
            lender.abandon();
        }
        let lent = self.shut_down(lent);
        self.inbox.clear();
        self.bundle = None;
        self.queued_bytes = 0;
        self.over.get_or_insert_with(closed);
        lent
    }
}

impl Drop for UcxConnection {
    fn drop(&mut self) {
        self.close(None);
    }
}
