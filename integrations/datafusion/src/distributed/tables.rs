//! Tables of libdipc in plans that workers run.
//!
//! A scan travels as a protobuf message: the server's URIs, the table's schema, the parts that a
//! worker reads, and the rows and columns of them that are wanted.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, not_impl_err};
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt as _, DistributedLeafExec,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use dipc::{Client, Endpoint, GetOptions};
use prost::Message;

use crate::DipcServer;
use crate::table::{DipcScanExec, Filter, Table, Wanted};

/// Lets workers read tables of libdipc. If a table has parts, each worker reads some of them;
/// otherwise one worker reads the table.
///
/// It belongs into the session of the coordinator and into those of all workers. A worker reads
/// with the client and the options of its own `DipcTables`. The options of the coordinator's tables
/// may have secrets and are not sent.
///
/// ```
/// use datafusion::execution::SessionStateBuilder;
/// use dipc_datafusion::DipcTables;
/// # use datafusion_distributed::SessionStateBuilderExt as _;
///
/// let state = SessionStateBuilder::new().with_default_features().with_distributed_planner();
/// let state = DipcTables::new()?.register(state);
/// # let _ = state;
/// # Ok::<(), dipc::Error>(())
/// ```
#[derive(Clone)]
pub struct DipcTables {
    client: Client,
    get: GetOptions,
}

impl DipcTables {
    /// Reads with a client of the default options.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new() -> dipc::Result<Self> {
        Ok(Self::with_client(Client::new()?))
    }

    /// Reads with this client.
    pub fn with_client(client: Client) -> Self {
        Self {
            client,
            get: GetOptions::new(),
        }
    }

    /// The options of gets: headers, time limits, window and so on.
    #[must_use]
    pub fn get_options(mut self, options: GetOptions) -> Self {
        self.get = options;
        self
    }

    /// The session of a coordinator or of a worker, with these tables.
    pub fn register(&self, state: SessionStateBuilder) -> SessionStateBuilder {
        state
            .with_distributed_user_codec(self.clone())
            .with_distributed_desired_task_count_handler(tasks)
            .with_distributed_scale_up_leaf_node_handler(shares)
    }
}

/// The output leaves out the options, because their headers may have secrets.
impl fmt::Debug for DipcTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DipcTables").finish_non_exhaustive()
    }
}

fn tasks(event: DesiredTaskCountEvent<'_>) -> Option<Result<DesiredTaskCountEventResponse>> {
    let scan = event.plan.downcast_ref::<DipcScanExec>()?;
    // More tasks than parts would leave some without work, and each task must have its own parts.
    Some(Ok(DesiredTaskCountEventResponse::maximum(
        scan.most_shares(),
    )))
}

fn shares(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<DipcScanExec>()?;
    let leaf = scan.shares(event.task_count).and_then(|shares| {
        let shares = shares.into_iter().map(|share| Arc::new(share) as _);
        DistributedLeafExec::try_new(Arc::clone(event.plan), shares)
    });
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

#[derive(Clone, PartialEq, Message)]
struct Scan {
    #[prost(string, repeated, tag = "1")]
    uris: Vec<String>,
    #[prost(bytes = "vec", tag = "2")]
    ticket: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
    #[prost(message, repeated, tag = "4")]
    partitions: Vec<Partition>,
    #[prost(message, optional, tag = "5")]
    projection: Option<Columns>,
    #[prost(uint64, optional, tag = "6")]
    fetch: Option<u64>,
    #[prost(message, optional, tag = "7")]
    filter: Option<Rows>,
}

#[derive(Clone, PartialEq, Message)]
struct Partition {
    #[prost(message, repeated, tag = "1")]
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Message)]
struct Part {
    #[prost(bytes = "vec", tag = "1")]
    ticket: Vec<u8>,
    #[prost(string, repeated, tag = "2")]
    uris: Vec<String>,
}

/// The rows that pass a filter.
#[derive(Clone, PartialEq, Message)]
struct Rows {
    #[prost(message, optional, tag = "1")]
    predicate: Option<protobuf::PhysicalExprNode>,
    /// The same for the table's server.
    #[prost(bytes = "vec", optional, tag = "2")]
    message: Option<Vec<u8>>,
    #[prost(bool, tag = "3")]
    is_whole: bool,
}

/// Columns by their places.
#[derive(Clone, PartialEq, Message)]
struct Columns {
    #[prost(uint64, repeated, tag = "1")]
    places: Vec<u64>,
}

impl Scan {
    /// `rows` are those of the scan's filter.
    fn new(scan: &DipcScanExec, rows: Option<Rows>) -> Result<Self> {
        let (table, wanted) = (scan.table(), scan.wanted());
        let part = |part: &Endpoint| Part {
            ticket: part.ticket().to_vec(),
            uris: part.uris().to_vec(),
        };
        let partition = |parts: &Vec<Endpoint>| Partition {
            parts: parts.iter().map(part).collect(),
        };
        let columns = |places: &Vec<usize>| Columns {
            places: places.iter().map(|place| *place as u64).collect(),
        };
        Ok(Self {
            uris: table.server.uris.as_slice().to_vec(),
            ticket: table.ticket.clone(),
            schema: Some(protobuf::Schema::try_from(&*table.schema)?),
            partitions: scan.partitions().iter().map(partition).collect(),
            projection: wanted.projection.as_ref().map(columns),
            fetch: wanted.fetch.map(|rows| rows as u64),
            filter: rows,
        })
    }

    /// `predicate` reads that of a filter.
    fn into_plan(
        self,
        tables: &DipcTables,
        predicate: impl FnOnce(&protobuf::PhysicalExprNode, &Schema) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<DipcScanExec> {
        let schema = self.schema.ok_or_else(|| malformed("has no schema"))?;
        let table = Arc::new(Table {
            server: DipcServer::with_client(tables.client.clone(), self.uris)
                .get_options(tables.get.clone()),
            ticket: self.ticket,
            schema: Arc::new(Schema::try_from(&schema)?),
        });
        let part = |part: Part| {
            let endpoint = Endpoint::new(part.ticket);
            part.uris.into_iter().fold(endpoint, Endpoint::uri)
        };
        let partition = |it: Partition| it.parts.into_iter().map(part).collect();
        let place =
            |place: u64| usize::try_from(place).map_err(|_| malformed("has no such column"));
        let columns = |it: Columns| it.places.into_iter().map(place).collect::<Result<_>>();
        let filter = |rows: Rows| {
            let node = rows
                .predicate
                .ok_or_else(|| malformed("has an empty filter"))?;
            Ok::<_, DataFusionError>(Filter {
                message: rows.message,
                is_whole: rows.is_whole,
                predicate: predicate(&node, &table.schema)?,
            })
        };
        let wanted = Wanted {
            projection: self.projection.map(columns).transpose()?,
            filter: self.filter.map(filter).transpose()?,
            fetch: self.fetch.and_then(|rows| usize::try_from(rows).ok()),
        };
        let partitions = self.partitions.into_iter().map(partition).collect();
        DipcScanExec::of_parts(&table, partitions, wanted)
    }
}

fn malformed(what: &str) -> DataFusionError {
    exec_datafusion_err!("a scan of libdipc {what}")
}

impl PhysicalExtensionCodec for DipcTables {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = Scan::decode(bytes).map_err(|error| DataFusionError::External(error.into()))?;
        let context = PhysicalPlanDecodeContext::new(context, self);
        let plan = scan.into_plan(self, |node, schema| {
            converter.proto_to_physical_expr(node, schema, &context)
        });
        Ok(Arc::new(plan?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(scan) = node.downcast_ref::<DipcScanExec>() else {
            return not_impl_err!("{} is no scan of libdipc", node.name());
        };
        let rows = |filter: &Filter| {
            let predicate = converter.physical_expr_to_proto(&filter.predicate, self)?;
            Ok::<_, DataFusionError>(Rows {
                predicate: Some(predicate),
                message: filter.message.clone(),
                is_whole: filter.is_whole,
            })
        };
        let rows = scan.wanted().filter.as_ref().map(rows).transpose()?;
        bytes.extend(Scan::new(scan, rows)?.encode_to_vec());
        Ok(())
    }
}
