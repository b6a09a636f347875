//! A worker, as its clients see it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::common::{DataFusionError, Result};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, DefaultChannelResolver};
use dipc::{AsyncReader, Client, GetOptions, Status};
use futures::future::{Either, select, select_ok};
use futures::{FutureExt as _, TryFutureExt as _};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::discovery;
use super::locations::{Location, scheme, usable};
use super::options::ChannelOptions;
use super::worker::ALIVE;

/// A worker that this process has reached.
pub(super) struct Peer {
    pub(super) url: Url,
    pub(super) options: Arc<ChannelOptions>,
    grpc: DefaultChannelResolver,
    /// One for each worker: requests that wait for this worker's answer do not hold up requests to
    /// others.
    client: Client,
    /// A client that asks workers whether they live; it is shared by all workers, because this
    /// worker's own client may be waiting.
    probes: Client,
    /// Whether the worker has failed a request since the last one that it took.
    is_lost: AtomicBool,
    /// When the worker last said that it lives.
    heard: Mutex<Option<Instant>>,
    addresses: Mutex<Option<Addresses>>,
}

/// The addresses by which this process reaches a worker, the best first; `None` for a worker whose
/// partitions come over gRPC.
type Addresses = Option<Arc<[String]>>;

impl Peer {
    /// A worker. Asks it nothing.
    pub(super) fn new(
        url: Url,
        options: Arc<ChannelOptions>,
        grpc: DefaultChannelResolver,
        probes: Client,
    ) -> Result<Self> {
        let made = options.client.clone().build();
        let client = made.map_err(|error| at(&url, &error.to_string()))?;
        Ok(Self {
            url,
            options,
            grpc,
            client,
            probes,
            is_lost: AtomicBool::new(false),
            heard: Mutex::default(),
            addresses: Mutex::default(),
        })
    }

    /// The worker's gRPC channel.
    ///
    /// # Errors
    ///
    /// The worker takes no connection, or not in time.
    pub(super) async fn channel(&self) -> Result<BoxCloneSyncChannel> {
        let limit = self.options.answer_timeout;
        match timeout(limit, self.grpc.get_channel(&self.url)).await {
            Ok(channel) => channel.map_err(|error| self.context(error)),
            Err(_) => Err(self.silent("took no gRPC connection", limit)),
        }
    }

    async fn ask(&self) -> Result<Option<Vec<Location>>> {
        let channel = self.channel().await?;
        let limit = self.options.answer_timeout;
        match timeout(limit, discovery::ask(channel)).await {
            Ok(Ok(locations)) => Ok(locations),
            Ok(Err(status)) => {
                Err(self.failed(&format!("cannot say where it serves: {}", status.message())))
            }
            Err(_) => Err(self.silent("did not answer", limit)),
        }
    }

    /// The worker's addresses, which it is asked for once.
    async fn addresses(&self) -> Result<Addresses> {
        let mut known = self.addresses.lock().await;
        if let Some(addresses) = &*known {
            return Ok(addresses.clone());
        }
        let addresses = match self.ask().await? {
            None => None,
            Some(locations) => {
                let usable = usable(&locations, &self.url, &self.options.ways);
                match usable.is_empty() {
                    true if self.options.takes_grpc() => None,
                    true => return Err(self.unreachable(&locations)),
                    false => Some(usable.into()),
                }
            }
        };
        *known = Some(addresses.clone());
        Ok(addresses)
    }

    /// Whether the worker may be gone for good: it has failed a request, and taken none since.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Whether the worker's partitions come over libdipc.
    ///
    /// # Errors
    ///
    /// The worker does not answer, or has no address that this process can reach.
    pub(super) async fn has_libdipc(&self) -> Result<bool> {
        Ok(self.addresses().await?.is_some())
    }

    /// Opens the stream of a descriptor. Gives its scheme too.
    ///
    /// # Errors
    ///
    /// Those of the worker, and of all ways to it.
    pub(super) async fn open(
        &self,
        descriptor: &[u8],
        options: &GetOptions,
    ) -> Result<(AsyncReader, String)> {
        let mut again = true;
        loop {
            let addresses = self.addresses().await?.unwrap_or_else(|| Arc::from([]));
            let mut outcome = Err(self.failed("has no address for libdipc"));
            for address in &*addresses {
                let opening = self.client.get_async_with(&**address, descriptor, options);
                match opening.await {
                    Ok(reader) => {
                        self.is_lost.store(false, Ordering::Relaxed);
                        return Ok((reader, scheme(address).to_owned()));
                    }
                    Err(error) if is_of_the_way(error.status()) => {
                        let text = format!("cannot be reached at {address}: {error}");
                        outcome = Err(self.failed(&text));
                    }
                    Err(error) => return Err(self.error(error)),
                }
            }
            // A worker that was started again may listen elsewhere.
            if !std::mem::take(&mut again) {
                return outcome;
            }
            *self.addresses.lock().await = None;
        }
    }

    /// The outcome of `work`, which waits for this worker. If that takes long, the worker is asked
    /// whether it lives.
    ///
    /// # Errors
    ///
    /// Those of `work`; or the worker does not live any more.
    pub(super) async fn watched<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = pin!(work);
        loop {
            if let Ok(outcome) = timeout(self.options.silence, &mut work).await {
                return outcome;
            }
            match select(&mut work, pin!(self.ensure_alive())).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right((alive, _)) => alive?,
            }
        }
    }

    /// Asks the worker whether it lives, unless another task has just heard of it.
    async fn ensure_alive(&self) -> Result<()> {
        let mut heard = self.heard.lock().await;
        if heard.is_some_and(|at| at.elapsed() < self.options.silence) {
            return Ok(());
        }
        // A worker without libdipc says so, and lives.
        let by_grpc = self.ask().map_ok(drop);
        let answers = match self.known_address().await {
            Some(address) => vec![self.ask_libdipc(address).boxed(), by_grpc.boxed()],
            None => vec![by_grpc.boxed()],
        };
        select_ok(answers).await?;
        *heard = Some(Instant::now());
        Ok(())
    }

    async fn known_address(&self) -> Option<String> {
        let known = self.addresses.lock().await;
        known.as_ref()?.as_ref()?.first().cloned()
    }

    /// Asks a worker at its best address for the table that it always has.
    async fn ask_libdipc(&self, address: String) -> Result<()> {
        let limit = self.options.answer_timeout;
        let options = GetOptions::new().connect_timeout(limit);
        let asked = self.probes.get_async_with(address, ALIVE, &options);
        match timeout(limit, asked).await {
            Ok(Ok(_)) => Ok(()),
            // An answer is a sign of life, too.
            Ok(Err(error)) if error.status() == Status::Permission => Ok(()),
            Ok(Err(error)) => Err(self.error(error)),
            Err(_) => Err(self.silent("did not answer", limit)),
        }
    }

    /// An error of a stream of this worker, with its status for a program that downcasts. A plan
    /// that reached its memory limit at the worker gives the same error here.
    pub(super) fn error(&self, error: dipc::Error) -> DataFusionError {
        let is_of_plan = matches!(error.status(), Status::Provider | Status::OutOfMemory);
        self.is_lost.fetch_or(!is_of_plan, Ordering::Relaxed);
        let error = error.context(format_args!("worker {}", self.url));
        match error.status() {
            Status::OutOfMemory => DataFusionError::ResourcesExhausted(error.to_string()),
            _ => DataFusionError::External(error.into()),
        }
    }

    /// An error of this worker.
    pub(super) fn failed(&self, text: &str) -> DataFusionError {
        self.is_lost.store(true, Ordering::Relaxed);
        at(&self.url, text)
    }

    /// An error of this worker's gRPC channel.
    pub(super) fn context(&self, error: DataFusionError) -> DataFusionError {
        self.is_lost.store(true, Ordering::Relaxed);
        error.context(format!("worker {}", self.url))
    }

    fn silent(&self, what: &str, limit: Duration) -> DataFusionError {
        self.failed(&format!(
            "{what} within {limit:?}; it has stopped, or its machine cannot be reached"
        ))
    }

    fn unreachable(&self, locations: &[Location]) -> DataFusionError {
        let uris: Vec<_> = locations.iter().map(|it| &*it.uri).collect();
        self.failed(&format!(
            "serves at {}, of which this process can reach none by {}; have the worker listen also \
             where other machines connect",
            uris.join(", "),
            self.options.ways.join(", ")
        ))
    }
}

fn at(url: &Url, text: &str) -> DataFusionError {
    DataFusionError::Execution(format!("worker {url}: {text}"))
}

/// Whether another way to the same worker may do better.
fn is_of_the_way(status: Status) -> bool {
    matches!(
        status,
        Status::Unreachable | Status::Permission | Status::Unsupported | Status::InvalidUri
    )
}
