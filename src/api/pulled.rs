//! Requests that the host takes from a queue, and answers from tasks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use futures_core::Stream;
use parking_lot::Mutex;

use super::batches::fitting;
use super::nonblocking::{no_wait, readable};
use super::readiness::Readiness;
use super::{DeviceArray, Request, Server};
use crate::arrow::OwnedDeviceArray;
use crate::arrow::batches::{batch_to_c, provider_error};
use crate::arrow::columns::ensure_columns;
use crate::arrow::schema_to_c;
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};
use crate::server;

/// A request that waits for its answer. Dropping it fails the request at its client.
///
/// The answer may come from any task: no thread waits for it.
pub struct PulledRequest(server::ServerRequest);

impl Server {
    /// From now on every request for a ticket that nothing else serves waits in a queue;
    /// [`next_request`](Self::next_request) takes it out. Replaces an earlier handler.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn pull_handler(&self) -> Result<()> {
        self.0.set_handler_pull()
    }

    /// The next request of the queue. A dropped future takes no request.
    ///
    /// Requests wait while nobody takes them. A runtime that is dropped ends its tasks, and with
    /// them the requests that they hold, but not the server: drop or stop the server too, so that
    /// later clients get an error.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # async fn serve(
    /// #     server: dipc::Server,
    /// #     schema: arrow::datatypes::SchemaRef,
    /// #     batches: Vec<arrow::array::RecordBatch>,
    /// # ) -> dipc::Result<()> {
    /// server.pull_handler()?;
    /// loop {
    ///     let request = server.next_request().await?;
    ///     let (schema, batches) = (Arc::clone(&schema), batches.clone());
    ///     tokio::spawn(async move {
    ///         let table = futures::stream::iter(batches).map(Ok::<_, dipc::Error>);
    ///         request.answer(&schema, table).await
    ///     });
    /// }
    /// # use futures::StreamExt as _;
    /// # }
    /// ```
    pub async fn next_request(&self) -> Result<PulledRequest> {
        loop {
            if let Some(request) = self.0.next_request(Some(Duration::ZERO), None)? {
                return Ok(PulledRequest(request));
            }
            readable(self.0.request_fd()).await?;
        }
    }
}

impl PulledRequest {
    /// What the client asks for.
    pub fn request(&self) -> Request<'_> {
        Request(&self.0)
    }

    /// Refuses the request: the client gets the status and the text.
    pub fn refuse(self, error: &Error) {
        self.0.fail(error.status().code(), error.text());
    }

    /// Answers a get with the batches of `table`, as fast as the client has room for them. Returns
    /// how many batches were taken. A client that has selected rows may need only the first ones.
    ///
    /// When the client goes or cancels, the call drops `table` at once and fails. So does the drop
    /// of the future, which fails the stream at the client.
    ///
    /// # Errors
    ///
    /// `Cancelled`, `Disconnected`; `InvalidArgument` for a client that does not get; `InvalidData`
    /// for batches of other columns; the errors of `table`, which the client gets too.
    pub async fn answer<S, E>(self, schema: &SchemaRef, table: S) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<RecordBatch, E>>,
        E: Into<ArrowError>,
    {
        self.answer_by(schema, DeviceKind::CPU, table, |batch| {
            ensure_columns(schema, &batch)?;
            Ok(batch_to_c(batch))
        })
        .await
    }

    /// [`answer`](Self::answer) with arrays in memory of the kind `device`: of the host, or of a
    /// GPU.
    ///
    /// # Errors
    ///
    /// As [`answer`](Self::answer); `InvalidData` for arrays in other memory.
    pub async fn answer_arrays<S, E>(
        self,
        schema: &SchemaRef,
        device: DeviceKind,
        table: S,
    ) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<DeviceArray, E>>,
        E: Into<ArrowError>,
    {
        self.answer_by(schema, device, table, |array| {
            fitting(array, schema, device)
        })
        .await
    }

    async fn answer_by<S, T, E>(
        self,
        schema: &SchemaRef,
        device: DeviceKind,
        table: S,
        to_c: impl Fn(T) -> Result<OwnedDeviceArray>,
    ) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<T, E>>,
        E: Into<ArrowError>,
    {
        let sent = self.send(schema, device, table, to_c).await;
        if let Err(error) = &sent {
            // It changes nothing for a client that has gone.
            self.0.fail(error.status().code(), error.text());
        }
        sent
    }

    async fn send<S, T, E>(
        &self,
        schema: &SchemaRef,
        device: DeviceKind,
        table: S,
        to_c: impl Fn(T) -> Result<OwnedDeviceArray>,
    ) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<T, E>>,
        E: Into<ArrowError>,
    {
        self.0.release_by_callbacks()?;
        self.0.start(&schema_to_c(schema)?, device.0)?;
        let loss = Arc::new(Loss::default());
        let told = Arc::clone(&loss);
        self.0.when_cancelled(move || told.tell());
        let mut table = pin!(table);
        let mut sent = 0;
        while !self.0.is_complete() {
            let next = poll_fn(|context| {
                if loss.poll(context).is_ready() {
                    return Poll::Ready(Err(lost()));
                }
                table.as_mut().poll_next(context).map(Ok)
            });
            match next.await? {
                Some(Ok(batch)) => {
                    self.push(to_c(batch)?).await?;
                    sent += 1;
                }
                Some(Err(error)) => return Err(provider_error(error.into())),
                None => break,
            }
        }
        self.finish().await?;
        Ok(sent)
    }

    async fn push(&self, mut array: OwnedDeviceArray) -> Result<()> {
        loop {
            array = match self.0.push(array, None, Some(Duration::ZERO)) {
                Ok(()) => return Ok(()),
                Err((error, array)) => {
                    self.wait_after(error).await?;
                    array
                }
            };
        }
    }

    async fn finish(&self) -> Result<()> {
        loop {
            match self.0.finish(Some(Duration::ZERO)) {
                Ok(()) => return Ok(()),
                Err(error) => self.wait_after(error).await?,
            }
        }
    }

    /// Waits until a call that failed with `Timeout`, because it did not wait, can be made again.
    async fn wait_after(&self, error: Error) -> Result<()> {
        if error.status() != Status::Timeout {
            return Err(error);
        }
        let wait = self.0.with_fd(Readiness::of)?;
        let wait = wait.map_err(|error| no_wait(&error))?;
        let waited = poll_fn(|context| wait.poll(context)).await;
        waited.map_err(|error| no_wait(&error))
    }
}

impl std::fmt::Debug for PulledRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.request().fmt(f)
    }
}

/// The error if the client takes no more batches.
fn lost() -> Error {
    Error::cancelled("the client has gone or has cancelled its request")
}

/// Tells a task that its client has gone.
#[derive(Default)]
struct Loss(Mutex<(bool, Option<Waker>)>);

impl Loss {
    fn tell(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once the client has gone.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.0 {
            return Poll::Ready(());
        }
        match &mut state.1 {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
