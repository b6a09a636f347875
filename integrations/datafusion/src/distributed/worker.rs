//! The worker's side: serves the partitions of its plans over libdipc.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::Worker;
use dipc::crossing::arrow_59::{Entrance, schema_in};
use dipc::{Error, PulledRequest, Result, Server, ServerBuilder, Status, Verb};
use futures::{FutureExt as _, StreamExt as _};
use tokio::task::JoinHandle;

use super::discovery::LocationsService;
use super::locations::Location;
use super::partition;

/// Most streams of a worker. Each stream is one partition of one task for one reader, so a query
/// may have as many as its tasks times their partitions. A refused stream fails its query.
const MOST_STREAMS: usize = 1 << 16;

/// The ticket of an empty table, by which clients ask whether a worker lives. libdipc answers also
/// while the runtime's threads are busy with plans.
pub(super) const ALIVE: &[u8] = b"alive";

/// A server whose limits suit a worker: many streams at once, also from one machine, and no limit
/// on how long they wait for their query. Each stream that is being read takes a few file
/// descriptors.
///
/// ```
/// let server = dipc_datafusion::worker_server().build()?;
/// server.listen("shm:@dipc-doc-worker-server")?;
/// # Ok::<(), dipc::Error>(())
/// ```
pub fn worker_server() -> ServerBuilder {
    Server::builder()
        .max_streams(MOST_STREAMS)
        .max_streams_per_peer(MOST_STREAMS)
        .credit_timeout(None)
}

/// Serves the partitions of a [`Worker`]'s plans over libdipc.
///
/// The worker's own gRPC server runs next to it and needs [`locations`](Self::locations) as one
/// more service. The drop ends the streams.
#[derive(Debug)]
pub struct DipcWorker {
    server: Server,
    locations: Vec<Location>,
    serving: JoinHandle<()>,
}

impl DipcWorker {
    /// Answers the requests of `server`, which listens already, by tasks of this runtime.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the server does not listen; `AlreadyExists` if it serves another
    /// worker; `Stopped`.
    ///
    /// # Panics
    ///
    /// Outside a runtime of tokio.
    pub fn start(worker: Worker, server: Server) -> Result<Self> {
        let locations: Vec<_> = (server.uris().into_iter())
            .filter_map(Location::of)
            .collect();
        if locations.is_empty() {
            let text = "the worker's libdipc server listens nowhere: call Server::listen first";
            return Err(Error::new(Status::InvalidArgument, text));
        }
        server.publish(ALIVE, &Arc::new(schema_in(&Schema::empty())?), [])?;
        server.pull_handler()?;
        let serving = tokio::spawn(serve(worker, server.clone()));
        Ok(Self {
            server,
            locations,
            serving,
        })
    }

    /// The service for the worker's gRPC server that tells clients where this one listens.
    pub fn locations(&self) -> LocationsService {
        LocationsService::new(self.locations.clone())
    }

    /// The server, for its figures.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Stops serving: running streams have `deadline` to end. Batches that clients hold stay valid.
    /// Blocks its thread.
    ///
    /// # Errors
    ///
    /// As [`Server::stop`].
    pub fn stop(self, deadline: Duration) -> Result<()> {
        self.server.stop(deadline)
    }
}

impl Drop for DipcWorker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers requests until the server stops.
async fn serve(worker: Worker, server: Server) {
    while let Ok(request) = server.next_request().await {
        tokio::spawn(answer(worker.clone(), request));
    }
}

async fn answer(worker: Worker, request: PulledRequest) {
    let opened = open(&worker, &request).await;
    let opened = opened.and_then(|stream| Ok((Entrance::new(&stream.schema())?, stream)));
    let (entrance, stream) = match opened {
        Ok(opened) => opened,
        Err(error) => return request.refuse(&error),
    };
    let schema = Arc::clone(entrance.schema());
    // A panic of the plan is an error of its stream, as in the plan's own tasks.
    let stream = AssertUnwindSafe(stream).catch_unwind().map(move |batch| {
        let batch = batch.unwrap_or_else(|panic| Err(panicked(&*panic)));
        let batch = batch.and_then(|batch| Ok(compact(batch)?));
        entrance.batch(batch.map_err(|error| failed(&error))?)
    });
    // The client is told.
    let _ = request.answer(&schema, stream).await;
}

/// Begins the partition that a client asks for. Polls nothing of it.
async fn open(worker: &Worker, request: &PulledRequest) -> Result<SendableRecordBatchStream> {
    let request = request.request();
    if request.verb() != Verb::Get {
        let text = "a worker answers gets of partitions alone";
        return Err(Error::new(Status::Unsupported, text));
    }
    let asked = partition::parse(request.ticket())?;
    let opened = AssertUnwindSafe(worker.execute_task(asked)).catch_unwind();
    let opened = opened.await.unwrap_or_else(|panic| Err(panicked(&*panic)));
    let (streams, _) = opened.map_err(|error| failed(&error))?;
    let none = || {
        Error::new(
            Status::Provider,
            "the task gave no stream for its partition",
        )
    };
    streams.into_iter().next().ok_or_else(none)
}

/// The error of a plan, with its own text.
fn failed(error: &DataFusionError) -> Error {
    let status = match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Status::OutOfMemory,
        _ => Status::Provider,
    };
    Error::new(status, error.strip_backtrace())
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> DataFusionError {
    let text = (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a text");
    DataFusionError::Execution(format!("the plan panicked: {text}"))
}

/// Copies columns that keep more memory than they show: a part of a repartitioned batch may refer
/// to the buffers of the whole batch.
fn compact(batch: RecordBatch) -> std::result::Result<RecordBatch, ArrowError> {
    let (schema, columns, rows) = batch.into_parts();
    let columns = columns.into_iter().map(compact_column);
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

fn compact_column(column: ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let is_sparse = |used: usize, buffers: &[datafusion::arrow::buffer::Buffer]| {
        let held = buffers.iter().map(|buffer| buffer.len()).sum::<usize>();
        held > used.saturating_mul(2)
    };
    if let Some(texts) = column.as_string_view_opt() {
        if is_sparse(texts.total_buffer_bytes_used(), texts.data_buffers()) {
            return Ok(Arc::new(texts.gc()));
        }
    } else if let Some(bytes) = column.as_binary_view_opt() {
        if is_sparse(bytes.total_buffer_bytes_used(), bytes.data_buffers()) {
            return Ok(Arc::new(bytes.gc()));
        }
    } else if let Some(dictionary) = column.as_any_dictionary_opt()
        && dictionary.values().len() > dictionary.keys().len()
    {
        return arrow_select::dictionary::garbage_collect_any_dictionary(dictionary);
    }
    Ok(column)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DictionaryArray, Int32Array, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    /// Promise of `compact`: a small part of a batch does not take the buffers of the whole along,
    /// and has the same values.
    #[test]
    fn parts_of_batches_are_compact() {
        let texts = || (0..1000).map(|n| format!("a text that is not inline, number {n}"));
        let views = StringViewArray::from_iter_values(texts());
        let held = |views: &StringViewArray| -> usize {
            views.data_buffers().iter().map(|it| it.len()).sum()
        };
        let whole = held(&views);
        let keys = Int32Array::from_iter_values(0..1000);
        let values = Arc::new(StringArray::from_iter_values(texts()));
        let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
        let columns: [(&str, ArrayRef); 2] = [
            ("views", Arc::new(views)),
            ("dictionary", Arc::new(dictionary)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();

        let part = batch.slice(500, 10);
        let compacted = compact(part.clone()).unwrap();
        assert_eq!(compacted, part);
        let views = compacted.column(0).as_string_view();
        assert!(held(views) < whole / 50, "{} bytes", held(views));
        let dictionary = compacted.column(1).as_any_dictionary();
        assert_eq!(dictionary.values().len(), 10);

        // The whole stays as it is.
        let compacted = compact(batch.clone()).unwrap();
        let (before, after) = (batch.column(0), compacted.column(0));
        assert!(Arc::ptr_eq(before, after));
    }
}
