//! Streams that clients send (rule Q3), on their way to the host.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::arrow::OwnedSchema;
use crate::arrow::decode::{DecodeOptions, Decoder, Level};
use crate::cancel::Cancel;
use crate::device::DeviceKind;
use crate::driver::bell::Bell;
use crate::driver::end::{End, StreamLink};
use crate::driver::fetch::{Fetch, Stream};
use crate::driver::figures::Record;
use crate::driver::turning::Turner;
use crate::error::{Error, Result, Status};
use crate::proto::{
    self, Credit, FEATURE_IN_PLACE, FEATURE_REPEAT, FEATURE_RETURN, Grant, Headers, ReceiverConfig,
    SideConfig, StreamInfo, Tags, Verb,
};
use crate::server::errors::answered_before;

/// Options for streams that clients send.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// How many batches and bytes a client may send before the host takes them.
    pub window: Credit,
    /// Most bytes of copies that a client may lend at once. Bodies beyond this limit travel as
    /// bytes.
    pub lent_limit: u64,
    /// Level of validation; `None`: `Structure` for a client of the same user, `Full` for others
    /// (rule A8).
    pub level: Option<Level>,
    /// Most memory that one message may need here in addition to its body; `None`: 16 GiB from a
    /// client of the same user, [`DecodeOptions`](crate::arrow::decode::DecodeOptions)' default from
    /// others.
    pub message_limit: Option<u64>,
    /// How long a client may be silent while the host waits for it; `None`: for ever.
    pub stall_timeout: Option<Duration>,
}

impl Default for TakeOptions {
    fn default() -> Self {
        Self {
            window: Credit {
                batches: 16,
                bytes: 256 << 20,
            },
            lent_limit: 1 << 30,
            level: None,
            message_limit: None,
            stall_timeout: None,
        }
    }
}

/// A stream that a client sends.
///
/// The stream owns the connection until the client has sent its last word. Even a stream that the
/// host does not want is read, and thrown away (rule Q10).
pub(super) struct ClientStream {
    link: StreamLink,
    /// Names the stream on the connection.
    mark: u64,
    info: StreamInfo,
    grant: Grant,
    decode: DecodeOptions,
    /// Ends the host's reads on any thread, once the request is over.
    over: Cancel,
    /// The host has taken the stream. Set under the lock of `progress` but read without it, because
    /// a thread that waits for the schema holds that lock.
    is_taken: AtomicBool,
    /// The request, once it is begun.
    record: OnceLock<Arc<Record>>,
    progress: Mutex<TakeProgress>,
}

/// How far the host has come with the stream.
enum TakeProgress {
    /// The host has not taken the stream.
    Waiting(Box<Fetch>),
    /// The host has the stream.
    Reading,
    /// The host has given the stream back.
    Read(Box<Fetch>),
    /// The client was told an outcome.
    Answered,
}

impl ClientStream {
    /// The stream of a request. An error comes with the connection.
    pub(super) fn new(
        turner: Turner<End>,
        request: &proto::Request,
        options: &TakeOptions,
        first_seq: u32,
    ) -> Result<Arc<Self>, (Error, Turner<End>)> {
        let is_exchange = request.verb == Verb::Exchange;
        let made = Cancel::new().and_then(|over| {
            let bell = is_exchange.then(Bell::new).transpose()?;
            Ok((over, bell.map(Arc::new)))
        });
        let (over, bell) = match made {
            Ok(made) => made,
            Err(error) => return Err((error, turner)),
        };
        let link = turner.stream();
        let mut features = FEATURE_IN_PLACE | FEATURE_RETURN;
        if link.profile().is_ordered {
            features |= FEATURE_REPEAT;
        }
        features &= request.source.map_or(0, |source| source.features);
        let asked = proto::Request {
            verb: request.verb,
            source: request.source,
            features,
            stream_id: request.stream_id,
            number: request.number,
            deadline: request.deadline,
            ..proto::Request::new(Vec::new(), options.window)
        };
        let config = ReceiverConfig {
            first_seq,
            stall_timeout: options.stall_timeout,
            ..ReceiverConfig::new(asked, SideConfig::extended(Tags::DEFAULT))
        };
        let same_user = link.same_user();
        let decode = DecodeOptions::of_peer(same_user, options.level, options.message_limit);
        // The host may need long to decide.
        link.interfere(|end, effects| end.say_pending(link.number(), effects));
        let mut fetch = Fetch::of_client(config, turner, decode)?;
        if let Some(bell) = bell {
            fetch.share(bell);
        }
        Ok(Arc::new(Self {
            link,
            mark: request.mark(),
            info: StreamInfo::of(DeviceKind::CPU.0, features),
            grant: Grant {
                credit: options.window,
                lent_limit: options.lent_limit,
                device_type: DeviceKind::CPU.0,
            },
            decode,
            over,
            is_taken: AtomicBool::new(false),
            record: OnceLock::new(),
            progress: Mutex::new(TakeProgress::Waiting(fetch)),
        }))
    }

    /// Sets the record of the request. The server calls this when the request begins.
    /// [`answer`](Self::answer) ends the record.
    pub(super) fn set_record(&self, record: &Arc<Record>) {
        self.record.get_or_init(|| Arc::clone(record));
    }

    pub(super) fn link(&self) -> &StreamLink {
        &self.link
    }

    /// The schema of the stream, for a host that needs it for its decision.
    pub(super) fn schema(&self) -> Result<OwnedSchema> {
        let mut progress = self.progress.lock();
        let (TakeProgress::Waiting(fetch) | TakeProgress::Read(fetch)) = &mut *progress else {
            return Err(is_taken());
        };
        fetch.wait_for_schema(Some(&self.over))?;
        fetch.leave();
        fetch.decoder().map(Decoder::schema).ok_or_else(is_taken)
    }

    /// Takes the stream: from now on the client sends batches.
    pub(super) fn take(self: &Arc<Self>) -> Result<Stream> {
        let mut progress = self.progress.lock();
        let TakeProgress::Waiting(fetch) = &mut *progress else {
            return Err(is_taken());
        };
        fetch.wait_for_schema(Some(&self.over))?;
        fetch.leave();
        self.link.grant(self.mark, self.info, self.grant)?;
        self.is_taken.store(true, Ordering::Release);
        let TakeProgress::Waiting(fetch) = mem::replace(&mut *progress, TakeProgress::Reading)
        else {
            return Err(is_taken());
        };
        let me = Arc::clone(self);
        let ending = Box::new(move |fetch| me.give_back(fetch));
        let mut stream = Stream::new(fetch, self.decode, Some(&self.over), ending);
        stream.record = self.record.get().cloned();
        Ok(stream)
    }

    /// Tells the client that the first `batches` record batches are safe.
    pub(super) fn send_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        if self.is_answered() {
            return Err(answered_before());
        }
        if !self.is_taken.load(Ordering::Acquire) {
            let text = "the server's host has not taken the table: take it first";
            return Err(Error::invalid_argument(text));
        }
        self.link.say_result(self.mark, batches, bytes)
    }

    /// The host is done with its stream.
    fn give_back(&self, fetch: Box<Fetch>) {
        let mut progress = self.progress.lock();
        if !matches!(*progress, TakeProgress::Answered) {
            *progress = TakeProgress::Read(fetch);
            return;
        }
        drop(progress);
        fetch.end(drop);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Tells the client the outcome, once. If the host has not read the whole stream, or still has
    /// it, the outcome is that it has not taken the stream.
    ///
    /// # Errors
    ///
    /// The host reports success but the client was not told of it, or the client was told an
    /// outcome before.
    pub(super) fn answer(&self, outcome: Result<(), (i32, String)>) -> Result<()> {
        let is_gone = self.link.ensure_streaming().is_err();
        // Another thread may be waiting for the client while it has the lock or the stream.
        self.over.cancel();
        let before = mem::replace(&mut *self.progress.lock(), TakeProgress::Answered);
        let (fetch, is_taken) = match before {
            TakeProgress::Waiting(fetch) => (Some(fetch), false),
            TakeProgress::Reading => (None, true),
            TakeProgress::Read(fetch) => (Some(fetch), true),
            TakeProgress::Answered => return Err(answered_before()),
        };
        if fetch.is_none() {
            // The host still has the stream, and the stream still has its place.
            self.link.serve_no_more();
        }
        let whole = fetch.as_ref().filter(|it| is_taken && it.is_complete());
        let failure = outcome.as_ref().err().cloned();
        let result = match (outcome, whole) {
            (Ok(()), Some(fetch)) => self.link.finish_taking(self.mark, fetch.stats().batches),
            (Ok(()), None) => {
                let fault = fetch.as_ref().and_then(|it| it.fault());
                Err(fault.unwrap_or_else(|| not_read(is_taken)))
            }
            (Err((code, text)), _) => {
                self.link.fail_taking(self.mark, code, &text);
                Ok(())
            }
        };
        if let Err(error) = &result {
            self.link
                .fail_taking(self.mark, error.status().code(), error.text());
        }
        if let Some(record) = self.record.get() {
            let failed = result.as_ref().err();
            let failed = failed.map(|error| (error.status().code(), error.text()));
            let given = failure.as_ref().map(|(code, text)| (*code, text.as_str()));
            let failed = given.or(failed);
            if let Some((code, text)) = failed.filter(|_| !is_gone) {
                record.warn_of_taker(code, text);
            }
            record.end(failed.map_or(Ok(()), Err));
        }
        if let Some(fetch) = fetch {
            fetch.end(drop);
        }
        result
    }

    /// Refuses the stream, with what the error advises.
    pub(super) fn refuse(&self, error: &Error) {
        if let Some(advice) = error.advice() {
            let _ = (self.link).add_answer_headers(&Headers::of_advice(advice));
        }
        // It fails only if the client has gone.
        let _ = self.answer(Err((error.status().code(), error.text().to_owned())));
    }
}

/// The error if the host says that it has taken a table, but has not read all of it. `is_taken`:
/// the host has begun to read.
pub(super) fn not_read(is_taken: bool) -> Error {
    let text = match is_taken {
        true => "the server's host left the table before its end",
        false => {
            "the server's host did not take the table: its handler returned before it read the \
             client's stream"
        }
    };
    Error::new(Status::Provider, text)
}

fn is_taken() -> Error {
    Error::invalid_argument("the client's stream was taken before, or the request is over")
}
