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

use crate::device::cuda::{Current, Device};
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::ExpectedBody;
use crate::transport::Attempt;
use crate::transport::address::is_loopback;
use crate::transport::connection::ConnectionEnd;
use crate::transport::patience::Patience;
use crate::transport::rdma::{Lenders, Pulls, RemoteReads as _};
use crate::transport::ucx::context::Context;
use crate::transport::ucx::endpoint::UcxEndpoint;
use crate::transport::ucx::error::not_connected;
use crate::transport::ucx::key::RemoteKey;
use crate::transport::ucx::link::UcxLink;
use crate::transport::ucx::operations::UcxRequest;
use crate::transport::ucx::silence;
use crate::transport::ucx::tagged::Tagged;
use crate::transport::{
    BodyPlace, BodyWays, Connection, ConnectionReadiness, Identity, Incoming, Outgoing, PeerOrigin,
    PeerRegions, Profile, RegionPool, Traffic, Trust,
};

/// Rounds of progress without a message in one call, after which other connections get a turn.
pub(super) const ROUNDS_AT_ONCE: usize = 256;

/// [`Connection`] over UCX.
pub struct UcxConnection {
    identity: Identity,
    /// `None` once closed.
    link: Option<UcxLink>,
    api: &'static Api,
    tagged: Tagged,
    /// Present at a client that asked UCX for remote reads.
    pulls: Option<Pulls<RemoteKey>>,
    /// Whether UCX sends and receives memory of GPUs.
    knows_cuda: bool,
    /// Present at a server that lends.
    lenders: Option<Lenders>,
    /// The GPU whose memory UCX was given on this connection. From then on it is current during
    /// every call, because any call may begin or finish a copy.
    gpu: Option<Arc<Device>>,
    /// At a client, until its server has sent a control message: the control messages that wait for
    /// that. They wait because UCX ends the process of a baseline server that gets one.
    unproven: Option<Vec<(u32, Vec<u8>)>>,
    inbox: VecDeque<(u32, Incoming)>,
    /// The reader looks for messages and does not sleep.
    awake: bool,
    /// The descriptor announces what comes.
    rests: bool,
    queued_bytes: u64,
    /// The flush that [`finish`](Connection::finish) begins. It ends when every message has left.
    flush: Option<UcxRequest>,
    /// The peer is on this machine.
    is_here: bool,
    /// Why no more messages come once the inbox is empty.
    over: Option<Error>,
    generation: Generation,
}

impl UcxConnection {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// `Unreachable` if the server refuses or does not exist, `Timeout` at the deadline,
    /// `Cancelled` by the token, and errors of UCX.
    pub async fn connect(
        context: &Arc<Context>,
        address: SocketAddr,
        deadline: Instant,
        attempt: &Attempt,
    ) -> Result<Self> {
        let link = UcxLink::new(context, ConnectionEnd::Server, |worker, shared| {
            UcxEndpoint::connect(worker, shared, address)
        })?;
        let tagged = Tagged::of_client(context.receives_by_turns());
        let mut connection = Self::new(link, tagged, address.to_string());
        connection.establish(deadline, attempt).await?;
        Ok(connection)
    }

    /// Accepts a client.
    ///
    /// # Errors
    ///
    /// Those of UCX. `request` is `None` once it was given to UCX, even after an error.
    pub fn accept(
        context: &Arc<Context>,
        request: &mut Option<ucp_conn_request_h>,
        peer: String,
    ) -> Result<Self> {
        let link = UcxLink::new(context, ConnectionEnd::Client, |worker, shared| {
            let request = request.take().ok_or_else(closed)?;
            UcxEndpoint::accept(worker, shared, request)
        })?;
        Ok(Self::new(link, Tagged::of_server(), peer))
    }

    fn new(mut link: UcxLink, tagged: Tagged, peer: String) -> Self {
        // The descriptor is not armed yet, and something may have come.
        link.worker.signal();
        let address: Option<SocketAddr> = peer.parse().ok();
        let is_here = address.as_ref().is_some_and(is_loopback);
        let profile = Profile {
            is_ordered: false,
            carries_many: true,
            // If an endpoint fails, UCX drops the data that it has for it.
            is_read_after_close: false,
            trust: Trust::OPEN_MEMORY,
        };
        Self {
            identity: Identity {
                origin: PeerOrigin {
                    scheme: "ucx",
                    address,
                    ..PeerOrigin::default()
                },
                peer,
                // A socket address does not identify a user.
                same_user: false,
                readiness: ConnectionReadiness {
                    fd: Arc::clone(&link.worker.ready) as _,
                    socket: false,
                    peer_death: None,
                    peer_machine: None,
                },
                descriptors: 1,
                profile,
            },
            api: link.worker.api(),
            knows_cuda: link.worker.context.knows_cuda,
            gpu: None,
            tagged,
            pulls: None,
            lenders: None,
            unproven: (link.shared.peer == ConnectionEnd::Server).then(Vec::new),
            link: Some(link),
            inbox: VecDeque::new(),
            awake: false,
            rests: false,
            queued_bytes: 0,
            flush: None,
            is_here,
            over: None,
            generation: Generation::now(),
        }
    }

    /// Makes the system notice if the network is cut. Not needed for a peer on this machine.
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

    /// Lends memory with `lenders`; at a server.
    pub fn lend(&mut self, lenders: Lenders) {
        self.lenders = Some(lenders);
    }

    /// Reads memory that the server lends: the server `announces` regions, or its URI has the `key`
    /// to plain addresses, or both. The context must have the feature for remote reads.
    ///
    /// # Errors
    ///
    /// The key is not valid, or its memory cannot be reached from here.
    pub fn pull(&mut self, announces: bool, key: Option<&[u8]>) -> Result<()> {
        if let Some(link) = &self.link {
            let unpacked = key.map(|key| link.unpack(key)).transpose();
            let unpacked =
                unpacked.map_err(|error| error.context("remote_handle of the server's URI"))?;
            self.pulls = Some(Pulls::new(announces, unpacked));
        }
        Ok(())
    }

    /// Waits until the server has accepted. After a failure, the drop of `self` cleans up.
    async fn establish(&mut self, deadline: Instant, attempt: &Attempt) -> Result<()> {
        let Some(link) = &mut self.link else {
            return Err(closed());
        };
        let flushed = link.flush(deadline, attempt).await;
        match flushed.inspect_err(|error| self.over = Some(error.clone()))? {
            Some(UCS_OK) => Ok(()),
            Some(status) => {
                let error = not_connected(self.api, &self.identity.peer, status);
                self.over = Some(error.clone());
                Err(error)
            }
            None => {
                let error = Error::timeout(format!(
                    "the server at ucx://{} did not accept the connection in time: it is \
                     busy or stopped, its packets are lost, its UCX cannot talk to this one, or \
                     the time to connect is too short for so many connections: raise \
                     connect_timeout, or let streams share connections",
                    self.identity.peer
                ));
                self.over = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Fails if no more calls to UCX are allowed.
    fn ensure_usable(&self) -> Result<()> {
        self.generation.ensure_same_process()?;
        self.over.clone().map_or(Ok(()), Err)
    }

    /// The next message. If there is none, the descriptor tells a sleeper when to ask again; a
    /// caller that is awake asks again by itself.
    fn next(&mut self) -> Result<Option<(u32, Incoming)>> {
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
            if self.progress() {
                continue;
            }
            if self.awake {
                return Ok(None);
            }
            let Some(link) = &mut self.link else {
                return Err(closed());
            };
            match link.worker.rest() {
                // Callbacks may have run during `rest`.
                Ok(asleep) => {
                    if !self.settle() && asleep {
                        self.rests = true;
                        return Ok(None);
                    }
                }
                Err(error) => self.over = Some(error),
            }
        }
        // A large body is coming in: other connections get a turn, and this one continues directly
        // after.
        if let Some(link) = &mut self.link {
            link.worker.signal();
        }
        Ok(None)
    }

    /// Handles what a call has made possible.
    fn settle_soon(&mut self) {
        if self.ensure_usable().is_err() {
            return;
        }
        let gpu = self.gpu.clone();
        match enter(gpu.as_ref()) {
            Ok(_current) => _ = self.settle(),
            Err(error) => self.over = Some(error),
        }
        self.wake_for_inbox();
    }

    /// Keeps the promise of [`ConnectionReadiness`]: a sleeper wakes for messages in the inbox,
    /// even if a call of another thread has put them there.
    fn wake_for_inbox(&mut self) {
        if let Some(link) = &mut self.link
            && (!self.inbox.is_empty() || self.over.is_some())
        {
            link.worker.signal();
        }
    }
}

/// Makes a connection's GPU current on this thread, if it has one.
fn enter(gpu: Option<&Arc<Device>>) -> Result<Option<Current<'_>>> {
    gpu.map(|device| device.enter()).transpose()
}

fn closed() -> Error {
    Error::disconnected("the connection was closed by this side")
}

impl Connection for UcxConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        self.ensure_usable()?;
        self.send_now(number, message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.ensure_usable()?;
        if self.queued_bytes > 0 {
            let gpu = self.gpu.clone();
            let _current = enter(gpu.as_ref())?;
            self.progress();
            self.wake_for_inbox();
        }
        self.over.clone().map_or(Ok(self.queued_bytes == 0), Err)
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            queued: self.queued_bytes,
            ..Traffic::default()
        }
    }

    fn finish(&mut self) -> bool {
        self.queued_bytes == 0 && self.has_left()
    }

    fn post_body(&mut self, number: u32, body: ExpectedBody) {
        let seq = body.seq;
        let place = BodyPlace { number, seq };
        self.tagged.expect(place, body);
        if let Some(pulls) = &mut self.pulls {
            pulls.expect(place, body.packed);
        }
        self.settle_soon();
    }

    fn begin_stream(&mut self, number: u32, _early_bytes: u64) {
        self.tagged.begin_stream(number);
        if let Some(link) = &self.link {
            link.shared.take_stream(true);
        }
    }

    fn end_stream(&mut self) {
        if let Some(link) = &self.link {
            link.shared.take_stream(false);
        }
    }

    fn forget_bodies(&mut self, number: u32) {
        self.tagged.forget(number);
        if let Some(pulls) = &mut self.pulls {
            self.inbox.extend(pulls.forget(number));
        }
        self.settle_soon();
    }

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
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

    fn ways(&self, extension: bool) -> BodyWays {
        BodyWays {
            lender: self.lenders.as_ref().map(|it| it.of_peer(extension)),
            gpu: self.knows_cuda,
        }
    }

    fn pool(&self) -> Option<Arc<RegionPool>> {
        self.lenders.as_ref().map(|it| Arc::clone(&it.pool))
    }

    fn regions(&mut self) -> Option<&mut dyn PeerRegions> {
        Some(self)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        if let Some(lenders) = &self.lenders {
            lenders.abandon();
        }
        let lent = self.shut_down(lent);
        self.inbox.clear();
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
