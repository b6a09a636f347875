//! Requests and streams for async programs, over the pollable core. The core wakes the tasks of
//! requests, and of streams that share a connection. The tasks of other streams sleep in the
//! reactor of their runtime until a descriptor of the core is readable. Dropping a task ends its
//! request or stream.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures_core::Stream;

use super::device_array::DeviceArray;
use super::readiness::Readiness;
use super::{Client, Description, Endpoint, GetOptions, Put, PutOptions, Uris};
use crate::arrow::batches::schema_from_c;
use crate::arrow::stream::ArrayReader as _;
use crate::arrow::{OwnedDeviceArray, description, schema_to_c};
use crate::client::{self, Answer, NextBatch, Pending, Rows, StreamStats};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Verb};

/// The record batches of a server, as a [`Stream`].
///
/// As with a [`Reader`](super::Reader), batches keep their memory alive by themselves, and a drop
/// before the end cancels the stream.
pub struct AsyncReader {
    stream: Box<client::Stream>,
    schema: SchemaRef,
    wait: Option<Readiness>,
    has_ended: bool,
}

/// A stream that this client sends, batch by batch. Dropping it before [`finish`](Self::finish)
/// fails the stream at the server.
pub struct AsyncPut(Put);

impl Client {
    /// [`get`](Self::get) without a wait: a future of the stream.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```no_run
    /// # async fn read() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::TryStreamExt as _;
    ///
    /// let client = dipc::Client::new()?;
    /// let mut batches = client.get_async("tcp://127.0.0.1:4000", "today").await?;
    /// while let Some(batch) = batches.try_next().await? {
    ///     println!("{} rows", batch.num_rows());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_async(
        &self,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
    ) -> Result<AsyncReader> {
        (self.get_async_with(uris, ticket, &GetOptions::default())).await
    }

    /// [`get_async`](Self::get_async) with options.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Cancelled` by the token.
    pub async fn get_async_with(
        &self,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<AsyncReader> {
        match self
            .ask(Verb::Get, uris.into(), ticket.as_ref(), options)
            .await?
        {
            Answer::Stream(stream) => AsyncReader::new(stream),
            _ => Err(unexpected()),
        }
    }

    /// [`describe`](Self::describe) without a wait.
    ///
    /// # Errors
    ///
    /// As [`describe`](Self::describe).
    pub async fn describe_async(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Description> {
        let asked = self.ask(Verb::Describe, uris.into(), descriptor.as_ref(), options);
        match asked.await? {
            Answer::Description(inner, headers) => Ok(Description { inner, headers }),
            _ => Err(unexpected()),
        }
    }

    /// [`list`](Self::list) without a wait.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn list_async(
        &self,
        uris: impl Into<Uris>,
        prefix: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Vec<Endpoint>> {
        match self
            .ask(Verb::List, uris.into(), prefix.as_ref(), options)
            .await?
        {
            Answer::Stream(stream) => {
                let mut stream = AsyncReader::new(stream)?;
                let mut list = Rows::of(&mut stream.stream)?;
                while let Some(array) = poll_fn(|context| stream.poll_array(context)).await? {
                    list.add(array)?;
                }
                let list = description::Description::read(Box::new(list))?;
                Ok(Endpoint::of_list(list))
            }
            _ => Err(unexpected()),
        }
    }

    /// [`start_put`](Self::start_put) without a wait.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub async fn put_async(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        schema: &SchemaRef,
        options: &PutOptions,
    ) -> Result<AsyncPut> {
        let asked = self.send(uris.into(), descriptor.as_ref(), schema, (options, None));
        match asked.await? {
            Answer::Put(put, None) => Ok(AsyncPut::new(*put, schema)),
            _ => Err(unexpected()),
        }
    }

    /// [`exchange`](Self::exchange) without a wait. Poll both streams, or each by a task of its
    /// own.
    ///
    /// # Errors
    ///
    /// As [`exchange`](Self::exchange).
    pub async fn exchange_async(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        schema: &SchemaRef,
        options: (&PutOptions, &GetOptions),
    ) -> Result<(AsyncPut, AsyncReader)> {
        let options = (options.0, Some(options.1));
        let asked = self.send(uris.into(), descriptor.as_ref(), schema, options);
        match asked.await? {
            Answer::Put(put, Some(stream)) => {
                let reader = AsyncReader::new(stream)?;
                Ok((AsyncPut::new(*put, schema), reader))
            }
            _ => Err(unexpected()),
        }
    }

    async fn ask(
        &self,
        verb: Verb,
        uris: Uris,
        descriptor: &[u8],
        options: &GetOptions,
    ) -> Result<Answer> {
        let token = options.cancel.as_ref();
        let started = (self.0).start(verb, &uris.texts(), descriptor, &options.inner, token);
        answer(started?).await
    }

    async fn send(
        &self,
        uris: Uris,
        descriptor: &[u8],
        schema: &SchemaRef,
        options: (&PutOptions, Option<&GetOptions>),
    ) -> Result<Answer> {
        let c_schema = schema_to_c(schema)?;
        let described = (&c_schema, DeviceKind::CPU.0);
        let inner = (&options.0.inner, options.1.map(|options| &options.inner));
        let token = options.0.cancel.as_ref();
        let started = (self.0).start_put(&uris.texts(), descriptor, described, inner, token);
        answer(started?).await
    }
}

/// Waits for the answer. A drop meanwhile ends the request.
async fn answer(pending: Pending) -> Result<Answer> {
    poll_fn(|context| pending.poll_answer(context)).await
}

/// Waits until `fd` is readable.
pub(super) async fn readable(fd: BorrowedFd<'_>) -> Result<()> {
    let wait = Readiness::of(fd).map_err(|error| no_wait(&error))?;
    let waited = poll_fn(|context| wait.poll(context)).await;
    waited.map_err(|error| no_wait(&error))
}

pub(super) fn no_wait(error: &io::Error) -> Error {
    Error::io("the task cannot wait in its runtime", error)
}

/// An answer of the wrong kind. It cannot come: the core answers each verb with its own kind.
fn unexpected() -> Error {
    Error::protocol("the answer is of another verb")
}

impl AsyncReader {
    fn new(mut stream: Box<client::Stream>) -> Result<Self> {
        let schema = Arc::new(schema_from_c(&stream.schema()?)?);
        Ok(Self {
            stream,
            schema,
            wait: None,
            has_ended: false,
        })
    }

    /// The schema of each batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The custom metadata of the batch that came last: key and value.
    pub fn batch_metadata(&self) -> &[(String, String)] {
        self.stream.custom_metadata()
    }

    /// Headers of the other host's answer, so far.
    pub fn headers(&self) -> Headers {
        self.stream.headers()
    }

    /// Figures up to now.
    pub fn stats(&self) -> StreamStats {
        self.stream.stats()
    }

    /// The next array, or a wait that wakes the task.
    fn poll_array(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<OwnedDeviceArray>>> {
        loop {
            if let Some(wait) = &self.wait {
                let waited = ready!(wait.poll(context));
                self.wait = None;
                waited.map_err(|error| no_wait(&error))?;
            }
            let is_woken = self.stream.wake(context.waker());
            match self.stream.try_next()? {
                NextBatch::Batch(array) => return Poll::Ready(Ok(Some(array))),
                NextBatch::End => return Poll::Ready(Ok(None)),
                NextBatch::NotYet if is_woken => return Poll::Pending,
                NextBatch::NotYet => {
                    let fd = self.stream.fd()?;
                    self.wait = Some(Readiness::of(fd).map_err(|error| no_wait(&error))?);
                }
            }
        }
    }
}

impl Stream for AsyncReader {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let array = ready!(self.poll_array(context));
        let batch = array.and_then(|array| {
            let schema = &self.schema;
            let array = array.map(|array| DeviceArray {
                array,
                schema: Arc::clone(schema),
            });
            array.map(DeviceArray::into_batch).transpose()
        });
        self.has_ended = !matches!(batch, Ok(Some(_)));
        Poll::Ready(batch.transpose())
    }
}

opaque_debug! { AsyncReader, |it| schema = it.schema }

impl AsyncPut {
    fn new(inner: client::Put, schema: &SchemaRef) -> Self {
        Self(Put {
            inner,
            schema: Arc::clone(schema),
        })
    }

    /// Sends a batch, and waits for a slow server. If the future is dropped early, the batch was
    /// sent as a whole or not at all.
    ///
    /// # Errors
    ///
    /// As [`Put::push`].
    pub async fn push(&mut self, mut batch: RecordBatch) -> Result<()> {
        loop {
            batch = match self.0.push_within(batch, Some(Duration::ZERO)) {
                Ok(()) => return Ok(()),
                Err((error, batch)) => {
                    self.wait_after(error).await?;
                    batch
                }
            };
        }
    }

    /// Ends the stream, and waits until the server's host has taken everything. Returns how many
    /// batches it has taken.
    ///
    /// # Errors
    ///
    /// As [`Put::finish`].
    pub async fn finish(&mut self) -> Result<u64> {
        loop {
            match self.0.inner.finish(Some(Duration::ZERO)) {
                Ok(taken) => return Ok(taken),
                Err(error) => self.wait_after(error).await?,
            }
        }
    }

    /// The next report of the server's host that the first batches are safe, as
    /// [`Put::next_result`] gives it.
    ///
    /// # Errors
    ///
    /// As [`Put::next_result`].
    pub async fn next_result(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        loop {
            match self.0.inner.next_result(Some(Duration::ZERO)) {
                Ok(result) => return Ok(result.map(|result| (result.batches, result.bytes))),
                Err(error) => self.wait_after(error).await?,
            }
        }
    }

    /// Fails the stream; as [`Put::fail`].
    pub fn fail(&mut self, text: &str) {
        self.0.fail(text);
    }

    /// The same stream, for calls that block their thread.
    pub fn into_put(self) -> Put {
        self.0
    }

    /// Waits until a call that failed with `Timeout`, because it did not wait, can be made again.
    /// Returns `error` if it has ended the stream.
    async fn wait_after(&mut self, error: Error) -> Result<()> {
        if error.status() != Status::Timeout || self.0.inner.is_over() {
            return Err(error);
        }
        readable(self.0.inner.fd()?).await
    }
}
