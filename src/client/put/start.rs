//! The request of a stream that this client sends, and the wait for the answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Put;
use crate::arrow::decode::DecodeOptions;
use crate::arrow::{EncodeOptions, OwnedSchema};
use crate::cancel::Cancel;
use crate::client::asking::{ClientCore, ensure_secrets_are_safe};
use crate::client::uris::KnownUri;
use crate::client::{GetOptions, PutOptions};
use crate::driver::clock;
use crate::driver::end::{Answers, End};
use crate::driver::fetch::{Fetch, Stream};
use crate::driver::produce::{Counters, OutStream, ProduceOptions, Production};
use crate::driver::turning::Turner;
use crate::error::{Error, Result, Status};
use crate::proto::{
    BODY_KIND_LIST, BODY_KIND_PACKED, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_PENDING,
    FEATURE_REPEAT, FEATURE_RETURN, Headers, ReceiverConfig, Request, Role, SideConfig, StreamInfo,
    Timestamp, VERSION, Verb,
};

impl Put {
    /// Asks the server to take a stream of this schema, and waits for its answer. With `answers` the
    /// server sends a stream too (rule Q5).
    ///
    /// # Errors
    ///
    /// The server's refusal; `Unreachable`, `Timeout`, `Cancelled` and the like.
    pub(in crate::client) fn start(
        client: &Arc<ClientCore>,
        uri: &KnownUri,
        descriptor: &[u8],
        (schema, device_type): (&OwnedSchema, i32),
        options: &PutOptions,
        answers: Option<&GetOptions>,
        cancel: Option<&Cancel>,
    ) -> Result<(Self, Option<Stream>)> {
        let due = options.deadline.map(clock::after);
        loop {
            let key = (Arc::clone(&uri.name), options.connections);
            let window = answers.map_or(0, |answers| answers.window.bytes);
            let (mut turner, answer, is_reused) =
                client.connection(uri, &key, options, window, cancel)?;
            let link = Arc::clone(turner.link());
            if !options.send_secrets
                && let Err(error) = ensure_secrets_are_safe(&options.headers, [&link])
            {
                drop(turner);
                client.keep(&link, &key);
                return Err(error);
            }
            let mut features = FEATURE_IN_PLACE | FEATURE_RETURN;
            if link.profile().is_ordered {
                features |= FEATURE_REPEAT;
            }
            let own = answers.map_or(0, |_| features);
            let defaults = GetOptions::default();
            let wanted = answers.unwrap_or(&defaults);
            let request = Request {
                verb: match answers {
                    Some(_) => Verb::Exchange,
                    None => Verb::Put,
                },
                features: FEATURE_HEADERS | FEATURE_PENDING | own,
                lent_limit: wanted.lent_limit,
                stream_id: client.next_id()?,
                // The time goes on. Zero would be no deadline on the wire.
                deadline: due.map(|due| clock::until(due).max(Duration::from_nanos(1))),
                headers: options.headers.clone(),
                source: Some(StreamInfo {
                    version: VERSION,
                    features,
                    device_type,
                    device_id: -1,
                    body_kinds: BODY_KIND_PACKED | BODY_KIND_LIST,
                }),
                ..Request::new(descriptor, wanted.window)
            };
            let fetch = match answers {
                Some(answers) => Some(read_answers(&mut turner, uri, &request, answers)?),
                None => None,
            };
            let counters = Arc::<Counters>::default();
            let produce = ProduceOptions {
                encode: EncodeOptions {
                    compression: options.compression,
                },
                body: options.body,
                callbacks: client.callbacks()?,
                counters: Arc::clone(&counters),
            };
            let stream = OutStream::new(descriptor.to_vec(), turner, Role::Both, false);
            let mut production = Production::new(stream, produce, Box::new(|| ()));
            production.set_cancel(cancel);
            let mut put = Self {
                production,
                link,
                client: Arc::clone(client),
                key,
                counters,
                source: None,
                stall_timeout: options.stall_timeout,
                is_exchange: answers.is_some(),
                due,
                waits_since: None,
                is_sent: false,
                outcome: None,
                headers: Headers::new(),
                results: VecDeque::new(),
                is_released: false,
            };
            let started = (put.production.ask(&request, schema, device_type))
                .and_then(|()| put.wait_for_grant(answer.by, answer.timeout));
            match started {
                Ok(()) => {
                    let answers = fetch.map(|(fetch, decode)| put.answers(fetch, decode, cancel));
                    return Ok((put, answers));
                }
                // The server may have restarted since the connection was last used.
                Err(error)
                    if is_reused
                        && !put.is_heard()
                        && matches!(error.status(), Status::Disconnected | Status::Protocol) => {}
                Err(error) => {
                    drop(fetch.map(|(fetch, decode)| put.answers(fetch, decode, None)));
                    return Err(put.give_up(error));
                }
            }
        }
    }

    /// The server's stream of an exchange.
    fn answers(&self, fetch: Box<Fetch>, decode: DecodeOptions, cancel: Option<&Cancel>) -> Stream {
        let (client, link, key) = (
            Arc::clone(&self.client),
            Arc::clone(&self.link),
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

    fn wait_for_grant(&mut self, by: Timestamp, timeout: Duration) -> Result<()> {
        let until = self.due.map_or(by, |due| due.min(by));
        let is_granted = |answers: &mut Answers| answers.is_granted.then_some(());
        match self.production.wait_for_answer(Some(until), is_granted) {
            Err(error)
                if error.status() == Status::Timeout && (self.is_heard() || self.is_due()) => {}
            Err(error) if error.status() == Status::Timeout => {
                return Err(Error::timeout(format!(
                    "the server has not answered within {timeout:?}: it is stopped or hangs, or \
                     the time-out is too short"
                )));
            }
            outcome => return outcome,
        }
        let deadline = self.wait_limit(None);
        let granted = self.production.wait_for_answer(deadline, is_granted);
        granted.map_err(|error| self.explain(error))?;
        self.waits_since = None;
        Ok(())
    }

    pub(super) fn is_heard(&mut self) -> bool {
        let heard = |answers: &mut Answers| answers.is_heard.then_some(());
        self.production.answers(heard).is_some()
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
        request: request.clone(),
        metadata: SideConfig {
            tags: uri.uri.tags,
            extension: true,
        },
        data: None,
        first_seq: 0,
        stall_timeout: options.stall_timeout,
        silence_timeout: None,
        answer: None,
    };
    let decode = options.decode(turner.link().look(End::same_user));
    let fetch = Fetch::of_exchange(config, turner.share(), decode, options.spin)?;
    Ok((fetch, decode))
}
