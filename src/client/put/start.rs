//! The request of a stream that this client sends, up to the server's answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Put;
use crate::arrow::decode::DecodeOptions;
use crate::arrow::{EncodeOptions, OwnedSchema, copy_schema};
use crate::cancel::Cancel;
use crate::client::asking::ensure_secrets_are_safe;
use crate::client::core::{ClientCore, Reached};
use crate::client::sharing::Opener;
use crate::client::uris::KnownUri;
use crate::client::{GetOptions, PutOptions};
use crate::driver::clock;
use crate::driver::end::End;
use crate::driver::fetch::{Fetch, Stream};
use crate::driver::figures::Counters;
use crate::driver::produce::{Counting, OutStream, ProduceOptions, Production};
use crate::driver::turning::Turner;
use crate::error::{Error, Result, Status};
use crate::proto::{
    AnswerLimit, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_PENDING, FEATURE_REPEAT,
    FEATURE_RETURN, FEATURE_STREAMS, Headers, PutProgress, PutStage, ReceiverConfig, Request, Role,
    SideConfig, StreamInfo, Timestamp, Verb,
};
use crate::transport::Attempt;

/// What a client asks a server to take. With `answers` the server sends a stream too (rule Q5).
pub(in crate::client) struct WantedPut<'a> {
    pub(in crate::client) uri: &'a KnownUri,
    pub(in crate::client) descriptor: &'a [u8],
    /// The schema, and the device of the arrays.
    pub(in crate::client) described: (&'a OwnedSchema, i32),
    pub(in crate::client) options: &'a PutOptions,
    pub(in crate::client) answers: Option<&'a GetOptions>,
    pub(in crate::client) due: Option<Timestamp>,
}

/// A put or exchange that the server was asked for.
pub(in crate::client) struct AskedPut {
    pub(in crate::client) put: Put,
    answers: Option<(Box<Fetch>, DecodeOptions)>,
    limit: AnswerLimit,
    /// Other streams wait to share the connection, until the server has said whether they may.
    opener: Option<Opener>,
    /// Why the request was not sent.
    failure: Option<Error>,
    /// The connection had an earlier stream.
    is_reused: bool,
}

impl WantedPut<'_> {
    /// Connects, and asks. The server has not answered then.
    ///
    /// # Errors
    ///
    /// `Unreachable`, `Timeout`, `Cancelled` and the like.
    pub(in crate::client) fn begin(
        &self,
        client: &Arc<ClientCore>,
        cancel: Option<&Cancel>,
    ) -> Result<AskedPut> {
        let attempt = Attempt::new(cancel.cloned());
        let window = self.answers.map(|answers| answers.window.bytes);
        let options = (self.options, self.due);
        let reached = client.connection(self.uri, options, window, &attempt);
        self.ask_over(client, attempt.block_on(reached)?, cancel)
    }

    /// Asks over this connection.
    ///
    /// # Errors
    ///
    /// `Permission` for secrets on a connection that others may read, and those of the request.
    pub(in crate::client) fn ask_over(
        &self,
        client: &Arc<ClientCore>,
        reached: Reached,
        cancel: Option<&Cancel>,
    ) -> Result<AskedPut> {
        let (options, answers) = (self.options, self.answers);
        let Reached {
            connections,
            key,
            answer: limit,
            is_reused,
            opener,
        } = reached;
        let key = key.ok_or_else(|| Error::invalid_argument("a put has one connection"))?;
        let mut turner = connections.metadata;
        let link = turner.stream();
        if !options.send_secrets
            && let Err(error) = ensure_secrets_are_safe(&options.headers, [&*link])
        {
            drop(turner);
            client.keep(&link, &key);
            return Err(error);
        }
        let mut request = self.request(client.next_id()?, link.profile().is_ordered);
        request.number = link.number();
        if opener.is_some() || turner.is_guest() {
            request.features |= FEATURE_STREAMS | FEATURE_RETURN;
        }
        let answers = match answers {
            Some(answers) => Some(read_answers(&mut turner, self.uri, &request, answers)?),
            None => None,
        };
        let counters = Arc::<Counters>::default();
        let produce = ProduceOptions {
            encode: EncodeOptions {
                compression: options.compression,
            },
            body: options.body,
            callbacks: client.callbacks()?,
            counting: Counting::Alone(Arc::clone(&counters)),
        };
        let stream = OutStream::new(self.descriptor.to_vec(), turner, Role::Both, false);
        let mut production = Production::new(stream, produce, Box::new(|| ()));
        production.set_cancel(cancel);
        let mut put = Put {
            production,
            link,
            client: Arc::clone(client),
            key,
            counters,
            source: None,
            stall_timeout: options.stall_timeout,
            is_exchange: answers.is_some(),
            due: self.due,
            deadline: self.options.deadline,
            waits_since: None,
            is_sent: false,
            outcome: None,
            headers: Headers::new(),
            results: VecDeque::new(),
            is_released: false,
            unsent: None,
        };
        let (schema, device_type) = self.described;
        // Choice: some transports deliver metadata unasked. A server of another make would get the
        // schema, which it does not expect (rule R2), so the schema waits.
        let holds_back = self.uri.uri.is_bare && !put.link.profile().is_ordered;
        let asked = put
            .production
            .ask(&request)
            .and_then(|()| match holds_back {
                true => copy_schema(schema).map(|schema| Some((schema, device_type))),
                false => put.production.start(schema, device_type).map(|()| None),
            });
        let failure = asked.map(|unsent| put.unsent = unsent).err();
        Ok(AskedPut {
            put,
            answers,
            limit,
            opener: opener.filter(|_| failure.is_none()),
            failure,
            is_reused,
        })
    }

    fn request(&self, stream_id: u128, is_ordered: bool) -> Request {
        let mut features = FEATURE_IN_PLACE | FEATURE_RETURN;
        if is_ordered {
            features |= FEATURE_REPEAT;
        }
        let own = self.answers.map_or(0, |_| features);
        let defaults = GetOptions::default();
        let wanted = self.answers.unwrap_or(&defaults);
        Request {
            verb: match self.answers {
                Some(_) => Verb::Exchange,
                None => Verb::Put,
            },
            features: FEATURE_HEADERS | FEATURE_PENDING | own,
            lent_limit: wanted.lent_limit,
            stream_id,
            // A repeated request has less time left. Zero on the wire would mean no deadline.
            deadline: (self.due).map(|due| clock::until(due).max(Duration::from_nanos(1))),
            headers: self.options.headers.clone(),
            // The server refuses a put or an exchange with a selection.
            selection: wanted.selection.clone(),
            source: Some(StreamInfo::of(self.described.1, features)),
            ..Request::new(self.descriptor, wanted.window)
        }
    }
}

impl AskedPut {
    /// Whether the server has accepted. Waits for the answer if `waits`; otherwise returns `false`
    /// if it has not come, and the put's descriptor tells when to look again.
    ///
    /// # Errors
    ///
    /// The server's refusal; `Timeout`, `Cancelled` and the like.
    pub(in crate::client) fn look(&mut self, waits: bool) -> Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if !self.settle(waits) {
            return Ok(false);
        }
        let Self { put, limit, .. } = self;
        let by = put.due.map_or(limit.by, |due| due.min(limit.by));
        loop {
            if put.is_heard()
                && let Some((schema, device_type)) = put.unsent.take()
            {
                put.production.start(&schema, device_type)?;
            }
            let sends_schema = put.unsent.is_some();
            let awaited = match sends_schema {
                true => PutStage::Heard,
                false => PutStage::Granted,
            };
            let is_answered = |put: &mut PutProgress| (put.stage >= awaited).then_some(());
            // From the first word of the server on, the stall timeout and the deadline count.
            let is_late = clock::now() >= by && (put.is_heard() || put.is_due());
            let until = match is_late {
                true => put.wait_limit(None),
                false => Some(by),
            };
            put.production.set_alarm(until);
            let deadline = match waits {
                true => until,
                false => Some(clock::now()),
            };
            let error = match put.production.wait_for_answer(deadline, is_answered) {
                Ok(()) if sends_schema => continue,
                Ok(()) => {
                    put.waits_since = None;
                    return Ok(true);
                }
                Err(error) => error,
            };
            if error.status() != Status::Timeout {
                return Err(match is_late {
                    true => put.explain(error),
                    false => error,
                });
            }
            let has_time = until.is_none_or(|until| clock::now() < until);
            if has_time && !waits {
                return Ok(false);
            }
            if !has_time && is_late {
                return Err(put.explain(error));
            }
            if !has_time && !put.is_heard() && !put.is_due() {
                return Err(Error::timeout(format!(
                    "the server has not answered within {:?}: it is stopped or hangs, or the \
                     time-out is too short",
                    limit.timeout
                )));
            }
        }
    }

    /// Learns whether the streams that want to share the connection may do so. False: this is not
    /// known yet, and the put's descriptor tells when to look again.
    fn settle(&mut self, waits: bool) -> bool {
        let Some(opener) = self.opener.take() else {
            return true;
        };
        let Self { put, limit, .. } = self;
        put.production.set_alarm(Some(limit.by));
        let deadline = match waits {
            true => limit.by,
            false => clock::now(),
        };
        match put.production.wait_for_streams(Some(deadline)) {
            Err(error)
                if !waits && error.status() == Status::Timeout && clock::now() < limit.by =>
            {
                self.opener = Some(opener);
                false
            }
            // The error is not lost: the wait for the answer reports it.
            is_many => {
                if let (Ok(true), Some((fetch, _))) = (&is_many, &mut self.answers) {
                    fetch.become_guest();
                }
                opener.end(is_many.ok(), &put.link);
                true
            }
        }
    }

    /// The put, and the server's stream of an exchange, if the server has accepted. `None`: ask
    /// once more, on another connection.
    ///
    /// # Errors
    ///
    /// That of [`look`](Self::look).
    pub(in crate::client) fn end(
        self,
        accepted: Result<()>,
        cancel: Option<&Cancel>,
    ) -> Result<Option<(Put, Option<Stream>)>> {
        let Self {
            mut put, answers, ..
        } = self;
        let Err(error) = accepted else {
            put.set_cancel(cancel);
            let answers = answers.map(|(fetch, decode)| put.answers(fetch, decode, cancel));
            return Ok(Some((put, answers)));
        };
        // The server may have restarted since the connection was last used.
        let is_dead = matches!(error.status(), Status::Disconnected | Status::Protocol);
        if self.is_reused && is_dead && !put.is_heard() {
            return Ok(None);
        }
        drop(answers.map(|(fetch, decode)| put.answers(fetch, decode, None)));
        Err(put.give_up(error))
    }
}

impl Put {
    /// The server's stream of an exchange.
    fn answers(&self, fetch: Box<Fetch>, decode: DecodeOptions, cancel: Option<&Cancel>) -> Stream {
        let (client, link, key) = (
            Arc::clone(&self.client),
            self.link.clone(),
            self.key.clone(),
        );
        let ending = move |fetch: Box<Fetch>| {
            fetch.end(move |connections| {
                drop(connections);
                client.keep(&link, &key);
            });
        };
        Stream::new(fetch, decode, cancel, Box::new(ending))
    }

    pub(super) fn is_heard(&mut self) -> bool {
        let heard = |put: &mut PutProgress| (put.stage >= PutStage::Heard).then_some(());
        self.production.progress(heard).is_some()
    }
}

/// Reads the server's stream of an exchange, which `request` asks for.
fn read_answers(
    turner: &mut Turner<End>,
    uri: &KnownUri,
    request: &Request,
    options: &GetOptions,
) -> Result<(Box<Fetch>, DecodeOptions)> {
    let config = ReceiverConfig {
        stall_timeout: options.stall_timeout,
        given_deadline: options.deadline,
        ..ReceiverConfig::new(request.clone(), SideConfig::extended(uri.uri.tags))
    };
    let decode = options.decode(turner.link().same_user());
    let fetch = Fetch::of_exchange(config, turner.share(), decode, options.spin)?;
    Ok((fetch, decode))
}
