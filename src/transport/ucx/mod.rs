//! UCX: RDMA where the hardware has it, TCP or shared memory where not.
//!
//! `docs/protocol.md` has the bytes: rules R1 to R6, and "Our transports".
//! UCX is loaded when it is first needed ([`ucx1_sys`]).
//!
//! | module | what it is |
//! |---|---|
//! | `context`, `log`, `resources`, `info` | UCX with its settings; its log; what it finds; what `dipc info` says |
//! | `worker`, `endpoint`, `link` | what makes progress and sleeps; one end of a connection; both |
//! | `callbacks`, `operations` | what callbacks report; the operations under way |
//! | `active`, `tagged`, `gather` | messages: active, tagged, and the memory of those sent |
//! | `key` | keys to lent memory, for `transport::rdma` |
//! | `closing`, `ending` | connections and processes on their way out |
//! | `room`, `silence`, `version` | too few descriptors, networks that are cut, other versions |
//! | `connection`, `listener` | the contract of [`crate::transport`] |

mod active;
mod callbacks;
mod closing;
mod connection;
mod context;
mod ending;
mod endpoint;
mod error;
mod gather;
mod info;
mod key;
mod link;
mod listener;
mod log;
mod operations;
mod resources;
mod room;
mod silence;
mod sockaddr;
mod tagged;
mod version;
mod worker;

use std::sync::Arc;
use std::time::Instant;

pub use info::describe;
use ucx1_sys::UCP_FEATURE_RMA;

use crate::error::{Error, Result, Status};
use crate::proto::Uri;
use crate::transport::address::{Address, share};
use crate::transport::patience::Patience;
use crate::transport::rdma::{self, Lending};
use crate::transport::ucx::connection::UcxConnection;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::listener::UcxListener;
use crate::transport::{
    Attempt, Connecting, Connection, LendingOptions, LinkOptions, Listener, Transport, Trust,
};

/// [`Transport`] for `ucx://host:port`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ucx;

impl Transport for Ucx {
    fn scheme(&self) -> &'static str {
        "ucx"
    }

    fn trust(&self) -> Trust {
        Trust::OPEN_MEMORY
    }

    fn available(&self) -> Result<()> {
        context::load(None).map(drop)
    }

    fn takes_setting(&self, name: &str, value: &str) -> Result<bool> {
        name.strip_prefix("ucx.")
            .map_or(Ok(false), |name| context::takes_setting(name, value))
    }

    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        let address = Address::of(uri)?;
        if !options.access.trusted_network {
            return Err(Error::new(
                Status::Permission,
                format!(
                    "{address} is not listened at: a UCX peer that can reach the port can read and \
                     write this process's memory, since UCX checks no access rights on all its \
                     paths; say that every process that can reach it is trusted (trusted_network, \
                     --trusted-network), or use shm or tcp"
                ),
            ));
        }
        let patience = Patience::of(&options.settings, "ucx")?;
        let lends = rdma::lends(&options.lending);
        let mut failed = None;
        for target in address.resolve_now(options.connect.time())? {
            let features = if lends { UCP_FEATURE_RMA } else { 0 };
            let context = Context::get(&options.settings, target.is_ipv6(), features.into());
            let listener = context.and_then(|context| {
                let lending = lends
                    .then(|| lend(&context, &options.lending))
                    .transpose()?;
                UcxListener::new(context, &address, target, lending, patience)
            });
            match listener {
                Ok(listener) => return Ok(Box::new(listener)),
                // A name may have addresses of another family, which this version of UCX can use.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| address.nobody()))
    }

    fn connecting<'a>(
        &'a self,
        uri: &'a Uri,
        options: &'a LinkOptions,
        attempt: &'a Attempt,
    ) -> Connecting<'a> {
        Box::pin(connect(uri, options, attempt))
    }
}

async fn connect(
    uri: &Uri,
    options: &LinkOptions,
    attempt: &Attempt,
) -> Result<Box<dyn Connection>> {
    let address = Address::of(uri)?;
    let patience = Patience::of(&options.settings, "ucx")?;
    let api = context::of_settings(&options.settings)?;
    if let Some(theirs) = &uri.ucx_version {
        version::ensure_compatible(api, theirs)?;
    }
    // Rule U2: lent memory can be read only if the URI says how it is given back and how its keys
    // come: by REGION, or in the URI.
    let reads = uri.tags.free_data.is_some() && (uri.extension || uri.remote_handle.is_some());
    let features = if reads { UCP_FEATURE_RMA } else { 0 };
    let start = Instant::now();
    let timeout = options.connect.time();
    let targets = address.resolve(timeout, attempt).await?;
    let mut failed = None;
    for (index, target) in targets.iter().copied().enumerate() {
        let left = timeout.saturating_sub(start.elapsed());
        let deadline = Instant::now() + share(left, targets.len() - index);
        let context = Context::get(&options.settings, target.is_ipv6(), features.into());
        let connection = match context {
            Ok(context) => UcxConnection::connect(&context, target, deadline, attempt).await,
            Err(error) => Err(error),
        };
        match connection {
            Ok(mut connection) => {
                connection.watch_network(patience);
                if options.connect.checksums && uri.extension {
                    // The question for checksums must leave before the server has sent a control
                    // message.
                    connection.prove();
                }
                if reads {
                    connection.pull(uri.extension, uri.remote_handle.as_deref())?;
                }
                return Ok(Box::new(connection));
            }
            Err(error) => {
                attempt.check()?;
                failed = failed.or(Some(error));
            }
        }
    }
    Err(failed.unwrap_or_else(|| address.nobody()))
}

/// Lends memory that is registered with UCX.
fn lend(context: &Arc<Context>, options: &LendingOptions) -> Result<Lending> {
    // Without a device that reads memory, UCX answers each read with messages of its own. If the
    // client dies before these messages leave, UCX mistakes their type and crashes this process.
    if context.goes_over_tcp() {
        tracing::warn!(
            "memory is lent over UCX without a device that reads it: a client that is killed \
             while it reads may end this process; let bodies be sent (auto, packed) instead"
        );
    }
    Lending::new(Arc::new(Arc::clone(context)), options)
}
