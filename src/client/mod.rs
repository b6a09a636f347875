//! A client: its idle connections, and the streams over its connections.

mod alone;
mod asking;
mod async_streams;
mod busy;
mod core;
mod dial;
mod getting;
mod ids;
mod options;
mod parts;
mod pending;
mod pool;
mod put;
mod redirects;
mod requests;
mod sharing;
mod stats;
mod uris;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use options::{ClientOptions, GetOptions, PutOptions};
pub use parts::Parts;
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub(crate) use parts::Skipped;
pub use pending::{Answer, Pending};
pub use put::{Put, PutStats};
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub(crate) use requests::Rows;
pub use stats::ClientStats;

use self::core::ClientCore;
use crate::arrow::async_stream::{AsyncHandler, Flow};
use crate::arrow::decode::Level;
use crate::arrow::description::Description;
use crate::arrow::stream::{ArrayReader as _, DeviceStreamReader};
use crate::arrow::{OwnedDeviceStream, OwnedSchema, copy_schema};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::device::cuda::later;
use crate::driver::clock;
pub(crate) use crate::driver::fetch::SILENCE_TIMEOUT;
pub use crate::driver::fetch::{NextBatch, Stream};
pub use crate::driver::figures::StreamStats;
use crate::error::{Error, Result};
use crate::proto::{Headers, Selection, Verb};
use async_streams::AsyncStreams;
use busy::Tries;
use pool::IdleConnection;
use put::WantedPut;
use redirects::Redirects;
use requests::{GetRequest, GetState, PutRequest, PutState, Request, Requests, Retrying};
use uris::KnownUri;

/// A client. Any thread may call it. Streams and arrays outlive it (rule F6).
pub struct Client {
    core: Arc<ClientCore>,
    requests: Arc<Requests>,
    async_streams: AsyncStreams,
}

impl Client {
    /// Makes a client. It has an I/O thread, which ends after its last connection.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(options: ClientOptions) -> Result<Self> {
        Ok(Self {
            core: ClientCore::start(options)?,
            requests: Arc::default(),
            async_streams: AsyncStreams::default(),
        })
    }

    /// Asks for `ticket` at one URI or at two, and waits for the schema. Of two URIs the first is
    /// for metadata and the second for bodies, unless their `dipc_role` names the roles (rule U3).
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` for an unknown scheme or a missing GPU driver, `InvalidArgument`
    /// for a missing GPU, `Unreachable`, `Permission`, `Timeout`, `NotFound` for an unknown ticket,
    /// `Busy`, `Cancelled`, and the provider's errors.
    pub fn get(
        &self,
        uris: &[&str],
        ticket: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.open(Verb::Get, uris, ticket, options, cancel)
    }

    /// Asks for `ticket` without a wait. A thread of the client calls the handler that `handler`
    /// makes: with the schema, with each array that was asked for, and with the end.
    ///
    /// # Errors
    ///
    /// Then no handler was made. `InvalidUri`, `Unsupported` for a missing GPU driver,
    /// `InvalidArgument` for a missing GPU, `OutOfResources` when the process has no threads or
    /// descriptors left. The handler gets every later error.
    pub fn get_async(
        &self,
        uris: &[&str],
        ticket: &[u8],
        options: &GetOptions,
        handler: impl FnOnce(Arc<dyn Flow>) -> AsyncHandler,
    ) -> Result<()> {
        self.core.generation.ensure_same_process()?;
        options.device.ensure_available()?;
        let uris = self.core.uris.read(uris)?;
        let make =
            |cancel| self.request((Verb::Get, ticket), uris, options.clone(), (cancel, None));
        self.async_streams.start(&self.requests, make, handler)
    }

    /// A get, a list or a describe without a wait. Threads of the client connect and wait for the
    /// answer.
    /// `cancel` ends the request and its stream.
    ///
    /// # Errors
    ///
    /// As [`get_async`](Self::get_async); [`Pending::try_answer`] gives every later error.
    pub fn start(
        &self,
        verb: Verb,
        uris: &[&str],
        descriptor: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Pending> {
        self.core.generation.ensure_same_process()?;
        options.device.ensure_available()?;
        let uris = self.core.uris.read(uris)?;
        let options = match verb {
            Verb::Get => options.clone(),
            _ => of_rows(options),
        };
        Pending::start(&self.requests, cancel, |own| {
            self.request((verb, descriptor), uris, options, (own, cancel.cloned()))
        })
    }

    /// `cancel`: the token of the request, and the token of its result, such as a stream.
    fn request(
        &self,
        (verb, descriptor): (Verb, &[u8]),
        uris: Arc<[KnownUri]>,
        options: GetOptions,
        cancel: (Cancel, Option<Cancel>),
    ) -> Box<dyn Request> {
        self.core.streams.fetch_add(1, Ordering::Relaxed);
        let (due, own) = (options.deadline.map(clock::after), cancel.0.clone());
        let request = GetRequest {
            client: Arc::clone(&self.core),
            uris,
            verb,
            descriptor: descriptor.to_vec(),
            due,
            options: GetOptions {
                shares: true,
                ..options
            },
            cancel,
            redirects: None,
            state: GetState::default(),
        };
        Box::new(Retrying::new(request, due, own))
    }

    /// A put, or an exchange if there are options for the server's stream, without a wait. A thread
    /// of the client waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); as [`Encoder::new`](crate::arrow::Encoder::new) for the schema.
    pub fn start_put(
        &self,
        uris: &[&str],
        descriptor: &[u8],
        (schema, device_type): (&OwnedSchema, i32),
        (own, answers): (&PutOptions, Option<&GetOptions>),
        cancel: Option<&Cancel>,
    ) -> Result<Pending> {
        let uri = self.uri_of_put(uris)?;
        let schema = copy_schema(schema)?;
        Pending::start(&self.requests, cancel, |request| {
            self.core.streams.fetch_add(1, Ordering::Relaxed);
            let (due, token) = (own.deadline.map(clock::after), request.clone());
            let request = PutRequest {
                client: Arc::clone(&self.core),
                uri,
                descriptor: descriptor.to_vec(),
                described: (schema, device_type),
                due,
                options: PutOptions {
                    shares: true,
                    ..own.clone()
                },
                answers: answers.cloned(),
                cancel: (request, cancel.cloned()),
                redirects: None,
                state: PutState::default(),
            };
            Box::new(Retrying::new(request, due, token))
        })
    }

    /// Asks the server to take a stream of this schema, whose arrays are of `device_type`, and
    /// waits for the answer. Then [`Put::push`] sends the batches.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server takes no tables; the refusal of its host.
    pub fn put(
        &self,
        uris: &[&str],
        descriptor: &[u8],
        (schema, device_type): (&OwnedSchema, i32),
        options: &PutOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Put> {
        let uri = self.uri_of_put(uris)?;
        let (described, options) = ((schema, device_type), (options, None));
        send(&self.core, &uri, descriptor, described, options, cancel).map(|(put, _)| put)
    }

    /// Asks the server to exchange streams: this client sends one with this schema, and the server
    /// sends another (rule Q5). Waits until the server accepts. Either stream may end first. The
    /// schema of the server's stream may come later:
    /// [`ArrayReader::schema`](crate::arrow::stream::ArrayReader::schema) waits.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn exchange(
        &self,
        uris: &[&str],
        descriptor: &[u8],
        described: (&OwnedSchema, i32),
        options: (&PutOptions, &GetOptions),
        cancel: Option<&Cancel>,
    ) -> Result<(Put, Stream)> {
        let uri = self.uri_of_put(uris)?;
        let options = (options.0, Some(options.1));
        match send(&self.core, &uri, descriptor, described, options, cancel)? {
            (put, Some(stream)) => Ok((put, stream)),
            (_, None) => Err(Error::unsupported("no stream of the server")),
        }
    }

    /// The one server that a put goes to.
    fn uri_of_put(&self, uris: &[&str]) -> Result<KnownUri> {
        self.core.generation.ensure_same_process()?;
        let uris = self.core.uris.read(uris)?;
        let [uri] = &*uris else {
            let text = "a stream that a client sends goes over one connection: give one URI";
            return Err(Error::invalid_argument(text));
        };
        if !uri.uri.extension {
            return Err(Error::unsupported(
                "the server does not speak libdipc's extension, and so takes no tables",
            ));
        }
        Ok(uri.clone())
    }

    /// [`put`](Self::put) for the batches of `source`, which [`Put::next_result`] and
    /// [`Put::finish`] send.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), and the errors of the source, which is given back.
    pub fn put_stream(
        &self,
        uris: &[&str],
        descriptor: &[u8],
        source: OwnedDeviceStream,
        options: &PutOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Put, (Error, OwnedDeviceStream)> {
        let mut source = DeviceStreamReader::new(source);
        let device_type = source.device_type();
        let asked = (source.schema())
            .and_then(|schema| self.put(uris, descriptor, (&schema, device_type), options, cancel));
        match asked {
            Ok(mut put) => {
                put.set_source(source);
                Ok(put)
            }
            Err(error) => Err((error, source.into_inner())),
        }
    }

    /// Asks what `descriptor` stands for, and waits for the whole answer. The headers are those of
    /// the answer.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server knows no descriptions; `InvalidData` if
    /// its answer is not a description.
    pub fn describe(
        &self,
        uris: &[&str],
        descriptor: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<(Description, Headers)> {
        let options = of_rows(options);
        described(self.open(Verb::Describe, uris, descriptor, &options, cancel)?)
    }

    /// Asks for a table in parts, on one server or several: describes it, then asks for its
    /// endpoints, several at once.
    ///
    /// # Errors
    ///
    /// As [`describe`](Self::describe) and [`get`](Self::get); `InvalidData` for parts with
    /// different columns; `InvalidArgument` for a selection of rows, which counts within one part.
    pub fn get_parts(
        &self,
        uris: &[&str],
        ticket: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Parts> {
        if options.selection.limits_rows() {
            return Err(Error::invalid_argument(
                "a range of rows counts within one part of a table: ask for its parts one by one, \
                 or for the whole table",
            ));
        }
        let whole = GetOptions {
            selection: Selection::new(),
            ..options.clone()
        };
        let (description, _) = self.describe(uris, ticket, &whole, cancel)?;
        options.device.ensure_available()?;
        let server = (&self.core, self.core.uris.read(uris)?);
        Parts::begin(server, ticket, description, options, cancel)
    }

    /// Asks which descriptors that begin with `prefix` there are: a table with a row for each, with
    /// the columns descriptor, uris, rows and bytes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server knows no lists.
    pub fn list(
        &self,
        uris: &[&str],
        prefix: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.open(Verb::List, uris, prefix, &of_rows(options), cancel)
    }

    fn open(
        &self,
        verb: Verb,
        uris: &[&str],
        ticket: &[u8],
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.core.generation.ensure_same_process()?;
        options.device.ensure_available()?;
        let uris = self.core.uris.read(uris)?;
        self.core.open(&uris, (verb, ticket), options, cancel)
    }

    /// Figures of the client.
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            streams: self.core.streams.load(Ordering::Relaxed),
            connections_made: self.core.connections.load(Ordering::Relaxed),
            connections_idle: self.core.pool.lock().len() + self.core.shared.idle(),
        }
    }
}

/// A put, or an exchange if there are options for the server's stream.
fn send(
    core: &Arc<ClientCore>,
    origin: &KnownUri,
    descriptor: &[u8],
    described: (&OwnedSchema, i32),
    (own, answers): (&PutOptions, Option<&GetOptions>),
    cancel: Option<&Cancel>,
) -> Result<(Put, Option<Stream>)> {
    core.streams.fetch_add(1, Ordering::Relaxed);
    let due = own.deadline.map(clock::after);
    let mut tries = Tries::until(due);
    // The redirects so far, the server that they lead to, and the options for that server.
    let mut way: Option<(Redirects, KnownUri, PutOptions)> = None;
    loop {
        let (uri, options) = match &way {
            None => (origin, own),
            Some((_, uri, options)) => (uri, options),
        };
        let wanted = WantedPut {
            uri,
            descriptor,
            described,
            options,
            answers,
            due,
        };
        let answered = wanted.begin(core, cancel).and_then(|mut asked| {
            let accepted = asked.look(true).map(drop);
            asked.end(accepted, cancel)
        });
        let error = match answered {
            Ok(None) => continue,
            Ok(Some(both)) => return Ok(both),
            Err(error) => match tries.wait(error, cancel) {
                Ok(()) => continue,
                Err(error) => error,
            },
        };
        let mut redirects = match way.take() {
            Some((redirects, ..)) => redirects,
            None => Redirects::of(std::slice::from_ref(origin), false),
        };
        let next = redirects.after_put(core, error);
        let next = next.map_err(|error| core.not_taken(descriptor, error))?;
        way = Some((redirects, next, own.for_strangers()));
    }
}

/// Reads the answer to a describe.
fn described(stream: Stream) -> Result<(Description, Headers)> {
    let headers = stream.headers();
    Ok((Description::read(Box::new(stream))?, headers))
}

/// Options of a stream whose rows this side reads.
fn of_rows(options: &GetOptions) -> GetOptions {
    GetOptions {
        device: Target::Host,
        level: Some(Level::Full),
        ..options.clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.core.generation.ensure_same_process().is_err() {
            // In a forked child locks may be held for ever: the copy is leaked.
            let _left = ManuallyDrop::new(Arc::clone(&self.core));
            return;
        }
        let kept = self.core.pool.lock().close();
        // Arrays may keep a connection open. The I/O thread answers its server until then.
        kept.for_each(IdleConnection::retire);
        let shared = self.core.shared.close().into_iter();
        shared
            .map(IdleConnection::Watched)
            .for_each(IdleConnection::retire);
        // Waits until mapped GPU memory of ended streams is back with the driver, unless a device
        // is stuck.
        later::wait(later::PATIENCE);
    }
}
