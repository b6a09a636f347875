//! The shuffles of datafusion-distributed over libdipc.
//!
//! A worker runs the gRPC server of datafusion-distributed, which takes plans and gives metrics. In
//! addition, a [`DipcWorker`] serves the partitions of those plans over libdipc, and tells clients
//! where. A [`DipcChannelResolver`], in the session of the coordinator and of each worker, gets
//! them: over shared memory between processes of one machine, and otherwise over the network.
//!
//! A worker:
//!
//! ```no_run
//! use dipc_datafusion::{ChannelOptions, DipcChannelResolver, DipcWorker, worker_server};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let server = worker_server().allow_remote(true).build()?;
//! server.listen("shm:@worker-1")?;
//! server.listen("tcp://0.0.0.0:7001")?;
//!
//! let worker = DipcChannelResolver::new(ChannelOptions::new()).worker();
//! let shuffles = DipcWorker::start(worker.clone(), server)?;
//! tonic::transport::Server::builder()
//!     .add_service(worker.into_worker_server())
//!     .add_service(shuffles.locations())
//!     .serve("0.0.0.0:7000".parse()?)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! The coordinator:
//!
//! ```no_run
//! # use datafusion::common::Result;
//! # use datafusion::execution::SessionStateBuilder;
//! # use datafusion::prelude::SessionContext;
//! # use datafusion_distributed::{DistributedExt as _, SessionStateBuilderExt as _};
//! # use datafusion_distributed::WorkerResolver;
//! # use dipc_datafusion::{ChannelOptions, DipcChannelResolver};
//! # use url::Url;
//! struct Workers;
//!
//! impl WorkerResolver for Workers {
//!     fn get_urls(&self) -> Result<Vec<Url>> {
//!         # use datafusion::error::DataFusionError;
//!         # let bad = |error: url::ParseError| DataFusionError::External(error.into());
//!         Ok(vec![Url::parse("http://worker-1:7000").map_err(bad)?])
//!     }
//! }
//!
//! let state = SessionStateBuilder::new()
//!     .with_default_features()
//!     .with_distributed_planner()
//!     .with_distributed_worker_resolver(Workers)
//!     .with_distributed_channel_resolver(DipcChannelResolver::new(ChannelOptions::new()))
//!     .build();
//! let context = SessionContext::from(state);
//! # let _ = context;
//! ```
//!
//! Each partition is a stream of its own with its own credit: a stream that nobody reads holds up
//! no other stream, and dropping a stream ends only that one. No stream takes a thread.
//!
//! | Files | Part |
//! |---|---|
//! | `partition` | what a client asks a worker for |
//! | `worker` | the worker's side |
//! | `resolver`, `channel`, `peer`, `options` | the client's side |
//! | `locations`, `discovery` | how a client learns where a worker serves |
//! | `tables` | tables of libdipc in the plans of workers |
//! | `figures` | metrics |

mod channel;
mod discovery;
mod figures;
mod locations;
mod options;
mod partition;
mod peer;
mod resolver;
mod tables;
mod worker;

pub use discovery::LocationsService;
pub use options::ChannelOptions;
pub use resolver::DipcChannelResolver;
pub use tables::DipcTables;
pub use worker::{DipcWorker, worker_server};
