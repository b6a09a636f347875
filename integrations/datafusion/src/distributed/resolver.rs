//! Workers by their URLs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion_distributed::grpc::DefaultChannelResolver;
use datafusion_distributed::{
    ChannelResolver, DistributedExt as _, Worker, WorkerChannel, WorkerQueryContext,
};
use http::HeaderMap;
use url::Url;

use super::channel::DipcChannel;
use super::options::ChannelOptions;
use super::peer::Peer;

/// Most workers that are kept while nobody uses them.
const MOST_PEERS: usize = 1024;

/// Gets the partitions of workers over libdipc, and everything else over gRPC. A worker without
/// libdipc is reached over gRPC alone ([`ChannelOptions::ways`] has the choice).
///
/// Clones share the connections. The resolver belongs into the session of the coordinator, and into
/// those of the workers, which read each other's partitions; [`worker`](Self::worker) makes such a
/// worker.
///
/// The plan nodes that read from workers get these metrics, in addition to those of
/// datafusion-distributed:
///
/// | Metric | Counts |
/// |---|---|
/// | `bytes_transferred` | bytes of bodies, by any way |
/// | `dipc_bytes_lent` | of these, bytes that lie in memory shared with the worker |
/// | `dipc_bytes_received` | of these, bytes that came through a connection |
/// | `dipc_bytes_copied` | bytes that this side copied |
/// | `dipc_streams_shm`, `dipc_streams_tcp`, … | partitions, by scheme |
#[derive(Clone)]
pub struct DipcChannelResolver(Arc<Peers>);

struct Peers {
    options: Arc<ChannelOptions>,
    grpc: DefaultChannelResolver,
    by_url: Mutex<HashMap<Url, Arc<Peer>>>,
    /// Made for the first worker.
    probes: OnceLock<dipc::Client>,
}

impl DipcChannelResolver {
    /// A resolver that has reached no worker yet.
    pub fn new(options: ChannelOptions) -> Self {
        Self(Arc::new(Peers {
            options: Arc::new(options),
            grpc: DefaultChannelResolver::default(),
            by_url: Mutex::default(),
            probes: OnceLock::new(),
        }))
    }

    /// A worker whose sessions are those of [`session`](Self::session).
    pub fn worker(&self) -> Worker {
        let resolver = self.clone();
        Worker::from_session_builder(move |query: WorkerQueryContext| {
            let state = resolver.session(query);
            async move { Ok(state.build()) }
        })
    }

    /// The session of a worker for a query, with this resolver. The headers that the coordinator's
    /// session passes through go on to the workers that this one reads from.
    pub fn session(&self, query: WorkerQueryContext) -> SessionStateBuilder {
        let mut state = (query.builder).with_distributed_channel_resolver(self.clone());
        // It refuses only reserved headers, which are left out.
        let _ = state.set_distributed_passthrough_headers(passed_through(query.headers));
        state
    }

    fn probes(&self) -> Result<dipc::Client> {
        if let Some(probes) = self.0.probes.get() {
            return Ok(probes.clone());
        }
        let made = self.0.options.client.clone().build();
        let made = made.map_err(|error| DataFusionError::External(error.into()))?;
        Ok(self.0.probes.get_or_init(|| made).clone())
    }

    fn peer(&self, url: &Url) -> Result<Arc<Peer>> {
        let peers = &self.0;
        let mut by_url = peers.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = by_url.get(url) {
            return Ok(Arc::clone(peer));
        }
        // A lost worker may never come back: the worker that replaces it may have another address.
        let is_full = by_url.len() >= MOST_PEERS;
        let is_used = |peer: &Arc<Peer>| Arc::strong_count(peer) > 1;
        by_url.retain(|_, peer| is_used(peer) || !(is_full || peer.is_lost()));
        let (options, grpc) = (Arc::clone(&peers.options), peers.grpc.clone());
        let probes = self.probes()?;
        let peer = Arc::new(Peer::new(url.clone(), options, grpc, probes)?);
        by_url.insert(url.clone(), Arc::clone(&peer));
        Ok(peer)
    }
}

/// The headers that a client's session has set: not those of HTTP, of gRPC and of the engine.
fn passed_through(mut headers: HeaderMap) -> HeaderMap {
    let is_own = |key: &str| {
        ["content-type", "te", "user-agent", "host"].contains(&key)
            || key.starts_with("grpc-")
            || key.starts_with("x-datafusion-distributed-config-")
    };
    let own: Vec<_> = headers
        .keys()
        .filter(|key| is_own(key.as_str()))
        .cloned()
        .collect();
    for key in own {
        headers.remove(key);
    }
    headers
}

impl Default for DipcChannelResolver {
    fn default() -> Self {
        Self::new(ChannelOptions::new())
    }
}

impl std::fmt::Debug for DipcChannelResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DipcChannelResolver")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ChannelResolver for DipcChannelResolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(DipcChannel(self.peer(url)?)))
    }
}
