//! A client's request for a stream, in the hands of the host.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::asked_for::{Allowed, AskedFor};
use super::attachment::{Attachment, Forwarded, SentTable};
use super::errors::stopped;
use super::relay::Relay;
use super::streams::Slot;
use crate::arrow::abi::ArrowAsyncDeviceStreamHandler;
use crate::arrow::{OwnedDeviceStream, OwnedSchema};
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::fetch::Stream;
use crate::driver::figures::{LABEL_BYTES, label_of};
use crate::driver::produce::{OutStream, Production};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Selection, Timestamp, Verb};
use crate::transport::PeerOrigin;

/// A client's request for a stream.
///
/// A provider borrows the request while its stream is served. In the pull form the host owns it,
/// and fills the stream by [`start`](Self::start), [`push`](Self::push) and
/// [`finish`](Self::finish). Dropping it unfinished fails the stream.
pub struct ServerRequest {
    stream: Arc<OutStream>,
    asked: AskedFor,
    /// The provider's own reason for a failure.
    failure: Mutex<Option<(i32, String)>>,
    pub(super) reply: Reply,
    pub(super) attachment: Attachment,
    /// The server, if this is the request of a middleware that may pass it on.
    behind: Option<Weak<dyn Services>>,
}

/// What requests ask of their server.
pub(super) trait Services: Send + Sync {
    /// The queue of the thread that drops the host's objects, while the server runs.
    fn callbacks(&self) -> Result<Callbacks>;

    /// Prepares an answer by a producer of Arrow's asynchronous interface.
    fn prepare_async_answer(&self) -> Result<AsyncAnswer>;

    /// Makes the provider or handler after the middleware answer `request`
    /// ([`ServerRequest::forward`]).
    fn forward(
        &self,
        request: &ServerRequest,
        table: Option<OwnedDeviceStream>,
    ) -> Result<Option<OwnedDeviceStream>>;
}

/// Begins the answer to a request, and returns the handler for the producer. A thread of the server
/// sends what the handler gets.
pub type AsyncAnswer = Box<dyn FnOnce(ServerRequest) -> ArrowAsyncDeviceStreamHandler>;

/// How the host answers a request.
pub(super) enum Reply {
    /// By the return value of its call, and by its stream.
    Returned,
    /// Pull form: the host says whether the client may do this. `None`: it has said so.
    Decided(Mutex<Option<SyncSender<Result<Allowed>>>>),
    /// Pull form: by a stream that it pushes.
    Pushed(Box<Mutex<PullStream>>, Weak<dyn Services>),
    /// Pull form: the host says that it has taken the table of a put. Holds the place of that
    /// stream until then.
    Taken(Mutex<Option<Arc<Slot>>>),
    /// Pull form: to the middleware that has passed the request on and waits for the answer.
    Relayed(Arc<Relay>, Weak<dyn Services>),
}

/// A stream that the host pushes.
pub(super) struct PullStream {
    pub(super) production: Production,
    /// How the host has ended the stream, which it does once.
    pub(super) answer: Option<PullAnswer>,
    /// Counts the stream as active. After `production`, so that the stream ends first.
    pub(super) _slot: Arc<Slot>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PullAnswer {
    Finished,
    Failed,
}

impl ServerRequest {
    /// A request. If the client sends a stream, the host gets it with the request.
    pub(super) fn new(
        stream: Arc<OutStream>,
        asked: AskedFor,
        reply: Reply,
        attachment: Attachment,
    ) -> Self {
        Self {
            stream,
            asked,
            failure: Mutex::new(None),
            reply,
            attachment,
            behind: None,
        }
    }

    /// The same request for the middleware of `server`, if `server` is given.
    pub(super) fn before(mut self, server: Option<Weak<dyn Services>>) -> Self {
        self.behind = server;
        self
    }

    /// The ticket that the client asked for.
    pub fn ticket(&self) -> &[u8] {
        &self.stream.ticket
    }

    /// The verb of the request.
    pub fn verb(&self) -> Verb {
        self.asked.verb
    }

    /// Headers that the client's host has sent.
    pub fn headers(&self) -> &Headers {
        &self.asked.headers
    }

    /// The same request for the provider or handler after the middleware, with the table that the
    /// middleware sends.
    pub(super) fn behind(&self, forwarded: Forwarded, reply: Reply) -> Self {
        let stream = Arc::clone(&self.stream);
        let table = Attachment::Forwarded(forwarded);
        Self::new(stream, self.asked.forwarded(), reply, table)
    }

    /// The columns and rows that the client wants of the table. Unless the host
    /// [selects by itself](Self::select_by_host), the host gives the whole table.
    pub fn selection(&self) -> &Selection {
        &self.asked.selected.selection
    }

    /// Leaves the selection to the host: the stream that it gives must have only the wanted columns
    /// and rows. Otherwise the library selects from the whole table, without a copy.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun.
    pub fn select_by_host(&self) -> Result<()> {
        self.asked.selected.leave_to_host()
    }

    /// What the library still has to select of a stream that begins now.
    pub(super) fn selection_left(&self) -> Selection {
        self.asked.selected.left()
    }

    /// Middleware: makes what the middleware stands before answer the request: the published table,
    /// the provider of the ticket or the handler. Returns the whole table of a get or an exchange,
    /// whatever the client has selected; the library selects from what the middleware then gives.
    ///
    /// `table` goes to the host in place of the table that the client sends, which the middleware
    /// takes with [`source`](Self::source). For a put, the call returns when the host has taken
    /// `table`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the request is not a middleware's, or a table is missing or too much.
    /// `Unsupported`: an exchange, if the host of the pull form is to answer. `Cancelled`: the
    /// client has gone. `NotFound`, `Stopped`, and errors of the host.
    pub fn forward(&self, table: Option<OwnedDeviceStream>) -> Result<Option<OwnedDeviceStream>> {
        let behind = self.behind.as_ref().ok_or_else(|| {
            Error::invalid_argument("only a middleware can forward a request, and only its own")
        })?;
        let server = behind.upgrade().ok_or_else(stopped)?;
        server.forward(self, table)
    }

    /// The schema of the stream that the client sends, for a host that needs it for its decision.
    /// Waits for the schema.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a client that sends none, or once the host has taken the stream; or
    /// the error that ended the stream.
    pub fn source_schema(&self) -> Result<OwnedSchema> {
        self.attachment.schema()
    }

    /// Takes the stream that the client sends: from now on the client sends batches. The host must
    /// read the stream to its end before it answers.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a client that sends none, or for a second call; or the error that
    /// ended the stream.
    pub fn source(&self) -> Result<Stream> {
        self.attachment.client_stream()?.take()
    }

    /// [`source`](Self::source), or the table that the middleware sends instead.
    ///
    /// # Errors
    ///
    /// As [`source`](Self::source).
    pub fn table(&self) -> Result<SentTable> {
        self.attachment.take()
    }

    /// Tells the client that the first `batches` batches of its table are safe, for example stored
    /// (rule Q4). `bytes` go to the client's program with this message.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the host has taken no stream, or `bytes` has more than
    /// [`MOST_RESULT`](crate::proto::MOST_RESULT) bytes; `Cancelled`, `Disconnected`.
    pub fn say_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        self.attachment.send_result(batches, bytes)
    }

    /// The name that the server's authorizer has given the client.
    pub fn principal(&self) -> Option<String> {
        self.asked.principal.lock().clone()
    }

    /// Called by an authorizer, gives the client a name. Handlers get it from
    /// [`principal`](Self::principal).
    pub fn set_principal(&self, principal: &str) {
        *self.asked.principal.lock() = Some(principal.to_owned());
    }

    /// Counts the request under `label` (`Server::label_stats`). An authorizer may call this, and a
    /// handler before the stream begins. Otherwise the label is the ticket, or
    /// [`HANDLER`](crate::server::HANDLER) if a handler serves the request.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the label is empty or longer than
    /// [`LABEL_BYTES`](crate::server::LABEL_BYTES), or the stream has begun.
    pub fn set_label(&self, label: &str) -> Result<()> {
        if label.is_empty() || label.len() > LABEL_BYTES {
            let text = format!(
                "the label has {} bytes; a label has 1 to {LABEL_BYTES}",
                label.len()
            );
            return Err(Error::invalid_argument(text));
        }
        let label = label_of(label.as_bytes());
        if let Some(record) = &self.asked.record {
            return record.set_label(label);
        }
        *self.asked.label.lock() = Some(label);
        Ok(())
    }

    /// The label that an authorizer has set.
    pub(super) fn label(&self) -> Option<String> {
        self.asked.label.lock().clone()
    }

    /// Pull form: whether the host still has to decide if the client may do this, by
    /// [`allow`](Self::allow) or [`fail`](Self::fail).
    pub fn is_undecided(&self) -> bool {
        matches!(&self.reply, Reply::Decided(word) if word.lock().is_some())
    }

    /// Pull form: allows what the client asks for.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a request that the host need not decide about, or for a second call.
    pub fn allow(&self) -> Result<()> {
        let none = || Error::invalid_argument("there is nothing to decide about this request");
        let Reply::Decided(word) = &self.reply else {
            return Err(none());
        };
        let word = word.lock().take().ok_or_else(none)?;
        self.decided(&word, Ok(()));
        Ok(())
    }

    fn decided(&self, word: &SyncSender<Result<Allowed>>, decision: Result<()>) {
        let (principal, label) = (self.principal(), self.label());
        // It fails only if no thread waits any more.
        let _ = word.send(decision.map(|()| Allowed { principal, label }));
    }

    /// How long the client still waits for the end of the stream; `None`: for ever.
    pub fn time_left(&self) -> Option<Duration> {
        self.asked.deadline.map(clock::until)
    }

    /// Adds headers to the server's answer. They go with the acceptance of the request, which is
    /// sent with the schema; later ones go only with a failure of the stream. A client that does
    /// not know headers does not get them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when the headers of one answer take more than
    /// [`MAX_ANSWER_HEADERS`](crate::proto::MAX_ANSWER_HEADERS), or when the stream is over.
    pub fn add_headers(&self, headers: &Headers) -> Result<()> {
        self.stream.add_answer_headers(headers)
    }

    /// A description of the client, for logs.
    pub fn peer(&self) -> &str {
        &self.stream.peer
    }

    /// Who the client is, as data.
    pub fn origin(&self) -> &PeerOrigin {
        &self.stream.origin
    }

    /// Whether the client has gone or has cancelled. More batches are useless then.
    pub fn is_cancelled(&self) -> bool {
        self.stream.is_cancelled()
    }

    /// A descriptor that becomes readable when [`is_cancelled`](Self::is_cancelled) becomes true,
    /// for a poll of several descriptors. Not to be read.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn cancel_fd(&self) -> Result<BorrowedFd<'_>> {
        self.stream.watch.fd()
    }

    /// Calls `then` once [`is_cancelled`](Self::is_cancelled) is true, which may be now.
    pub fn when_cancelled(&self, then: impl FnOnce() + Send + 'static) {
        self.stream.watch.when_lost(Box::new(then));
    }

    /// Fails the stream with a reason. Pull form: the stream ends now, and a call on another thread
    /// that waits for the client returns `Cancelled`. Provider: the reason replaces the text of the
    /// failure that the provider returns next. `code` is a code of `Status`; any other number
    /// becomes `Provider` for the client. For an undecided request, this refuses it, and any other
    /// number becomes `Permission`.
    pub fn fail(&self, code: i32, text: &str) {
        let refuse_sent = || {
            if let Some(source) = self.attachment.of_client() {
                // It fails only if the client has an answer already.
                let _ = source.answer(Err((code, text.to_owned())));
            }
        };
        match &self.reply {
            Reply::Returned => *self.failure.lock() = Some((code, text.to_owned())),
            Reply::Decided(word) => {
                if let Some(word) = word.lock().take() {
                    self.decided(&word, Err(refused(code, text.to_owned())));
                }
            }
            Reply::Relayed(relay, _) => relay.fail(code, text),
            Reply::Taken(place) => {
                if let Some(place) = place.lock().take() {
                    place.ending();
                    refuse_sent();
                }
            }
            Reply::Pushed(pull, _) => {
                // Another call may hold the lock while it waits for the client: this ends that
                // wait.
                self.stream.give_up();
                let PullStream {
                    production, answer, ..
                } = &mut *pull.lock();
                answer.get_or_insert(PullAnswer::Failed);
                production.fail(code, text);
                refuse_sent();
                production.let_go();
            }
        }
    }

    /// Code and text for the client after the provider failed with `error`.
    pub(super) fn failure(&self, error: &Error) -> (i32, String) {
        let own = self.failure.lock().take();
        own.unwrap_or_else(|| (error.status().code(), error.text().to_owned()))
    }

    /// A provider that has failed its request may report success afterwards.
    pub(super) fn ensure_not_failed(&self) -> Result<()> {
        match &*self.failure.lock() {
            // The reason itself is returned by `failure`.
            Some(_) => Err(Error::new(Status::Provider, "the request was failed")),
            None => Ok(()),
        }
    }

    /// The host's end of the stream, once no other call uses it.
    pub(super) fn pull(&self, deadline: Option<Timestamp>) -> Result<MutexGuard<'_, PullStream>> {
        let Reply::Pushed(pull, _) = &self.reply else {
            return Err(not_pulled());
        };
        match deadline {
            None => Ok(pull.lock()),
            Some(deadline) => pull.try_lock_for(clock::until(deadline)).ok_or_else(|| {
                Error::timeout("another call on this request waits for the consumer")
            }),
        }
    }
}

/// The error for a host that cannot push the stream of a request.
pub(super) fn not_pulled() -> Error {
    Error::invalid_argument(
        "this request belongs to a provider, which gives its batches by a stream; push, start and \
         finish are for tickets served in the pull form",
    )
}

/// The error for the client of a refused request.
pub(super) fn refused(code: i32, text: String) -> Error {
    let status = Status::from_code(code).unwrap_or(Status::Permission);
    Error::new(status, text)
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        let left = |code: Status, text: &'static str| match self.is_cancelled() {
            true => (
                Status::Cancelled,
                "the client has gone or has cancelled its request",
            ),
            false => (code, text),
        };
        let dropped = (Status::Provider, "the server's host dropped the request");
        let unanswered = match &self.reply {
            Reply::Decided(word) if word.lock().is_some() => Some((
                Status::Permission,
                "the server's host has not decided about this request",
            )),
            Reply::Taken(place) if place.lock().is_some() => Some(dropped),
            Reply::Pushed(..) if self.attachment.of_client().is_some() || self.is_cancelled() => {
                Some(dropped)
            }
            Reply::Relayed(..) => Some(dropped),
            _ => None,
        };
        if let Some((status, text)) = unanswered {
            let (status, text) = left(status, text);
            self.fail(status.code(), text);
        }
    }
}
