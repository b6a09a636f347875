//! Tables of libdipc in DataFusion, and the shuffles of datafusion-distributed over libdipc.
//!
//! ```
//! # use std::sync::Arc;
//! use datafusion::prelude::SessionContext;
//! use dipc_datafusion::DipcServer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use dipc::crossing::arrow_59::{batch_in, schema_in};
//! # use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! # let column: ArrayRef = Arc::new(Int64Array::from(vec![40, 2]));
//! # let batch = RecordBatch::try_from_iter([("price", column)])?;
//! # let schema = Arc::new(schema_in(&batch.schema())?);
//! # let server = dipc::Server::new()?;
//! # server.publish("today", &schema, [batch_in(batch, &schema)?])?;
//! # let _uri = server.listen("shm:@dipc-doc-datafusion")?;
//! let context = SessionContext::new();
//! // One table, and all tables of a server:
//! DipcServer::new("shm:@dipc-doc-datafusion")?.register(&context, "prices", "today").await?;
//! DipcServer::new("shm:@dipc-doc-datafusion")?.register_catalog(&context, "dipc");
//!
//! context.sql("SELECT sum(price) FROM prices").await?.show().await?;
//! let rows = context.sql("SELECT * FROM dipc.public.today").await?.collect().await?;
//! assert_eq!(rows[0].num_rows(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! - [`DipcServer`] says where tables are, and how they are asked for.
//! - [`DipcTableProvider`] is one of them, as a source and a target of queries.
//! - [`DipcCatalogProvider`] and [`DipcSchemaProvider`] show the tables that a server lists.
//! - [`distributed`] carries the shuffles of datafusion-distributed.
//!
//! Streams sleep in tokio's reactor, so the runtime of the queries needs I/O enabled
//! (`Builder::enable_io`; `#[tokio::main]` has it).

mod catalog;
pub mod distributed;
mod table;

pub use catalog::{DipcCatalogProvider, DipcSchemaProvider};
#[doc(inline)]
pub use distributed::{
    ChannelOptions, DipcChannelResolver, DipcTables, DipcWorker, LocationsService, worker_server,
};
pub use table::{DipcScanExec, DipcServer, DipcTableProvider};
