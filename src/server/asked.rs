//! A request at a server, from its arrival to its answer.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::asked_for::{Allowed, AskedFor};
use super::attachment::Attachment;
use super::client_stream::ClientStream;
use super::core::ServerCore;
use super::errors::with_retry;
use super::figures::asker;
use super::providing::ProvidedStream;
use super::published::PublishedTable;
use super::pull_stream::PullStream;
use super::request::{Reply, Request, Services};
use super::streams::{Slot, StreamLimits, ending, lose_with};
use super::taking::TakenStream;
use super::threads::{HeavyTable, StreamWork};
use super::tickets::{Entry, provided};
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::end::{End, EndLink};
use crate::driver::figures::{HANDLER, LIST, Record, label_of};
use crate::driver::produce::{OutStream, Production, Publication, Published};
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{self, ArrivedRequest, Role, Verb};

/// A request, by how far the server has come with it.
pub(super) enum Asked {
    /// It has come.
    Arrived(Question),
    /// The host allows it (rule Q7).
    Decided(Question, Allowed),
    /// It has a ticket, and a place among the streams.
    Admitted(Question, Allowed, Admission),
    /// A stream serves it.
    Begun(Begun),
    /// It was refused, and the connection is free again.
    Answered(Turner<End>),
}

/// A request and its connection.
pub(super) struct Question {
    pub(super) request: ArrivedRequest,
    pub(super) connection: Asker,
}

/// Who has the connection of a request.
pub(super) enum Asker {
    /// The request.
    Turner(Turner<End>),
    /// The stream that the client sends, and in an exchange the server's own stream.
    Source(Arc<ClientStream>, Option<Turner<End>>),
}

/// The place of a request among the streams.
pub(super) struct Admission {
    entry: Entry,
    slot: Arc<Slot>,
    callbacks: Callbacks,
}

/// Where a stream is served that has begun.
pub(super) enum Begun {
    /// Where the connection is turned. The connection may be free as well.
    Here(Turner<End>),
    /// On a thread of its own.
    Thread(Box<dyn StreamWork>),
    /// By a host of the pull form, or by the thread of the stream's other part.
    Elsewhere,
}

impl Asker {
    pub(super) fn link(&self) -> &Arc<EndLink> {
        match self {
            Self::Turner(turner) => turner.link(),
            Self::Source(source, _) => source.link(),
        }
    }
}

impl Question {
    pub(super) fn new(turner: Turner<End>, request: ArrivedRequest) -> Self {
        Self {
            request,
            connection: Asker::Turner(turner),
        }
    }

    pub(super) fn link(&self) -> &Arc<EndLink> {
        self.connection.link()
    }
}

impl ServerCore {
    /// Brings a request as far as this thread can.
    pub(super) fn advance(&self, mut asked: Asked) -> Begun {
        loop {
            asked = match asked {
                Asked::Arrived(question) => match self.ensure_not_draining(&question.request) {
                    Ok(()) => self.decide(question),
                    Err(error) => self.refuse(question, None, &error),
                },
                Asked::Decided(question, allowed) => self.admit_question(question, allowed),
                Asked::Admitted(question, allowed, admission) => {
                    Asked::Begun(self.begin_stream(question, allowed, admission))
                }
                Asked::Begun(begun) => return begun,
                Asked::Answered(turner) => return Begun::Here(turner),
            };
        }
    }

    /// Finds the ticket of a request, and takes a place for its stream.
    fn admit_question(&self, question: Question, allowed: Allowed) -> Asked {
        let question = match self.join(question) {
            Ok(()) => return Asked::Begun(Begun::Elsewhere),
            Err(question) => question,
        };
        let question = match self.take_source(question) {
            Ok(question) => question,
            Err((question, error)) => return self.refuse(question, allowed.principal, &error),
        };
        match self.admit(question.link(), &question.request) {
            Ok(admission) => Asked::Admitted(question, allowed, admission),
            Err(error) => self.refuse(question, allowed.principal, &error),
        }
    }

    /// Hands the second connection of a stream over to the stream (rule E6).
    fn join(&self, question: Question) -> Result<(), Question> {
        let Question {
            request,
            connection,
        } = question;
        let connection = match (self.joinable(&request), connection) {
            (Some(stream), Asker::Turner(mut turner)) => {
                turner.step_to_host(|_, _| ());
                match stream.join(turner, request.role) {
                    Ok(()) => return Ok(()),
                    Err(turner) => Asker::Turner(turner),
                }
            }
            (_, connection) => connection,
        };
        Err(Question {
            request,
            connection,
        })
    }

    /// Has the stream that the client sends own the connection from here on: also a stream that is
    /// refused is read to its end (rule Q10).
    ///
    /// # Errors
    ///
    /// The system's, with the request as it was.
    pub(super) fn take_source(&self, question: Question) -> Result<Question, (Question, Error)> {
        let Question {
            request,
            connection,
        } = question;
        let connection = match connection {
            Asker::Turner(mut turner) if request.request.verb.has_source() => {
                let is_exchange = request.request.verb == Verb::Exchange;
                let other = is_exchange.then(|| turner.share());
                match self.source(turner, &request.request) {
                    Ok(source) => Asker::Source(source, other),
                    Err((error, turner)) => {
                        return Err((Question::new(turner, request), error));
                    }
                }
            }
            connection => connection,
        };
        Ok(Question {
            request,
            connection,
        })
    }

    /// The stream that the client of `request` sends.
    ///
    /// # Errors
    ///
    /// The system's. The connection comes back.
    fn source(
        &self,
        turner: Turner<End>,
        request: &proto::Request,
    ) -> Result<Arc<ClientStream>, (Error, Turner<End>)> {
        let mut take = self.options.take.clone();
        // What all clients may have here unread is bounded, as what waits for them is.
        take.window.bytes = take.window.bytes.min(self.options.most_queued());
        ClientStream::new(turner, request, &take, self.options.first_seq)
    }

    fn admit(&self, link: &Arc<EndLink>, asked: &ArrivedRequest) -> Result<Admission> {
        self.ensure_running()?;
        let request = &asked.request;
        let entry = self.entry(link, request)?;
        if !asked.extension && asked.role != Role::Both && !entry.replays() {
            return Err(Error::unsupported(
                "a baseline peer on two connections can be served only tickets that give the same \
                 batches each time: published ones, or a provider declared deterministic",
            )); // Rule E6
        }
        let callbacks = match entry {
            Entry::Pull => self.pulls.callbacks.clone(),
            Entry::Provider(_) | Entry::Published(_) => self.callbacks()?,
        };
        let calls_host = matches!(entry, Entry::Provider(_) | Entry::Pull);
        let limits = StreamLimits {
            bounds: self.options.stream_bounds(),
            is_granted: !asked.extension || request.verb == Verb::Put || request.credit.batches > 0,
            most_provided: calls_host.then(|| self.options.most_providers()),
            credit_time: self.options.credit_timeout,
        };
        let slot = self.streams.take_slot(link, limits)?;
        Ok(Admission {
            entry,
            slot,
            callbacks,
        })
    }

    /// Begins the stream of a request.
    fn begin_stream(&self, question: Question, allowed: Allowed, admission: Admission) -> Begun {
        let record = self.record(
            question.link(),
            &question.request,
            &admission.entry,
            &allowed,
        );
        let asked_for = AskedFor::of_allowed(&question.request.request, allowed, &record);
        let asked = question.request;
        match question.connection {
            Asker::Source(source, other) => {
                let taken = (source, other);
                self.begin_taking(taken, &asked.request, admission, asked_for, &record)
            }
            Asker::Turner(turner) => {
                self.begin_sending(turner, &asked, admission, asked_for, &record)
            }
        }
    }

    fn services(&self) -> Weak<dyn Services> {
        Weak::clone(&self.me) as Weak<Self>
    }

    /// This server, behind the middleware that answers a request.
    fn behind_middleware(&self, request: &proto::Request) -> Option<Weak<dyn Services>> {
        self.tickets.middleware(request).map(|_| self.services())
    }

    /// Begins to send a stream to the client.
    fn begin_sending(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        admission: Admission,
        asked_for: AskedFor,
        record: &Arc<Record>,
    ) -> Begun {
        let Admission {
            entry,
            slot,
            callbacks,
        } = admission;
        let entry = match entry {
            Entry::Published(table) if asked.request.selection.is_all() => {
                return self.publish(turner, asked, table, (slot, callbacks), record);
            }
            Entry::Published(table) => provided(Box::new(PublishedTable(table)), callbacks.clone()),
            other => other,
        };
        // A provider, or a host of the pull form, may be slow.
        turner.step_to_host(|_, _| ());
        let shared_id = asked.extension && asked.role != Role::Both;
        let ticket = asked.request.ticket.clone();
        let stream = OutStream::new(ticket, turner, asked.role, shared_id);
        // Before the provider's call, which may never return.
        lose_with(&stream, &slot);
        if shared_id {
            self.streams.offer(asked.request.stream_id, &stream);
        }
        let options = self.produce(callbacks, record);
        let production = Production::new(Arc::clone(&stream), options, ending(&slot));
        match entry {
            Entry::Provider(provider) => Begun::Thread(Box::new(ProvidedStream {
                production,
                provider,
                record: Arc::clone(record),
                request: Request::new(stream, asked_for, Reply::Returned, Attachment::Nothing)
                    .before(self.behind_middleware(&asked.request)),
                slot,
                yields: self.options.spin.is_zero(),
            })),
            Entry::Pull | Entry::Published(_) => {
                let reply = self.pushed(production, slot);
                self.pulls
                    .put(Request::new(stream, asked_for, reply, Attachment::Nothing));
                Begun::Elsewhere
            }
        }
    }

    /// Begins to take the stream of the client, and in an exchange to send one.
    fn begin_taking(
        &self,
        (source, other): (Arc<ClientStream>, Option<Turner<End>>),
        request: &proto::Request,
        admission: Admission,
        asked_for: AskedFor,
        record: &Arc<Record>,
    ) -> Begun {
        let Admission {
            entry,
            slot,
            callbacks,
        } = admission;
        source.set_record(record);
        let ticket = request.ticket.clone();
        let is_exchange = other.is_some();
        let stream = match other {
            Some(other) => OutStream::new(ticket, other, Role::Both, false),
            None => OutStream::without_batches(ticket, Arc::clone(source.link())),
        };
        lose_with(&stream, &slot);
        let production = is_exchange.then(|| {
            let options = self.produce(callbacks, record);
            Production::new(Arc::clone(&stream), options, Box::new(|| ()))
        });
        let sent = Attachment::Client(Arc::clone(&source));
        if let Entry::Provider(provider) = entry {
            return Begun::Thread(Box::new(TakenStream {
                production,
                record: Arc::clone(record),
                provider,
                request: Request::new(stream, asked_for, Reply::Returned, sent)
                    .before(self.behind_middleware(request)),
                source,
                slot,
            }));
        }
        let reply = match production {
            Some(production) => self.pushed(production, slot),
            None => Reply::Taken(Mutex::new(Some(slot))),
        };
        self.pulls.put(Request::new(stream, asked_for, reply, sent));
        Begun::Elsewhere
    }

    fn pushed(&self, production: Production, slot: Arc<Slot>) -> Reply {
        let stream = Box::new(Mutex::new(PullStream::new(production, slot)));
        Reply::Pushed(stream, self.services())
    }

    /// Begins to send a published table. The owner of the connection continues it.
    fn publish(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        table: Arc<Deferred<Published>>,
        (slot, callbacks): (Arc<Slot>, Callbacks),
        record: &Arc<Record>,
    ) -> Begun {
        let options = self.produce(callbacks, record);
        let link = Arc::clone(turner.link());
        let lends = link.ways().lender.is_some();
        let is_light = table
            .get()
            .is_some_and(|table| table.is_light(options.body, lends, asked.extension));
        let wanted = (asked.request.ticket.as_slice(), asked.role);
        let (ending, place) = (ending(&slot), Box::new(slot));
        let publication = Publication::new(&link, wanted, table, &options, ending, place);
        turner.step(|served, effects| served.send_in_turns(publication, effects));
        if is_light {
            Begun::Here(turner)
        } else {
            Begun::Thread(Box::new(HeavyTable(turner)))
        }
    }

    /// Answers a request by an error. `principal` is the host's name for the client.
    pub(super) fn refuse(
        &self,
        question: Question,
        principal: Option<String>,
        error: &Error,
    ) -> Asked {
        let asker = asker(question.link(), &question.request, principal);
        self.figures.note_refusal(&asker, error);
        let error = &with_retry(error);
        let question = self
            .take_source(question)
            .unwrap_or_else(|(mut question, _)| {
                if let Asker::Turner(turner) = &mut question.connection {
                    // Nobody reads what the client has sent already.
                    turner.step(|served, _| served.end_receiving());
                }
                question
            });
        match question.connection {
            Asker::Source(source, _) => {
                source.refuse(error);
                Asked::Begun(Begun::Elsewhere)
            }
            Asker::Turner(mut turner) => {
                turner.step(|served, effects| served.send_refusal(error, effects));
                Asked::Answered(turner)
            }
        }
    }

    /// The record of a request that `entry` answers.
    fn record(
        &self,
        link: &EndLink,
        asked: &ArrivedRequest,
        entry: &Entry,
        allowed: &Allowed,
    ) -> Arc<Record> {
        let request = &asked.request;
        let label = match (&allowed.label, request.verb) {
            (Some(label), _) => label.clone(),
            (None, Verb::Get | Verb::Describe) if self.tickets.has(&request.ticket) => {
                label_of(&request.ticket)
            }
            (None, Verb::List) if matches!(entry, Entry::Published(_)) => LIST.to_owned(),
            // A client chooses these tickets: they make no labels.
            (None, _) => HANDLER.to_owned(),
        };
        let asker = asker(link, asked, allowed.principal.clone());
        self.figures.record(label, asker)
    }

    /// Why a request is refused before anything is done for it. The second connection of a stream
    /// under way belongs to the stream.
    pub(super) fn ensure_not_draining(&self, asked: &ArrivedRequest) -> Result<()> {
        match self.draining.refusal() {
            Some(refusal) if self.joinable(asked).is_none() => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The stream under way whose second connection asks (rule E6).
    pub(super) fn joinable(&self, asked: &ArrivedRequest) -> Option<Arc<OutStream>> {
        if !asked.extension || asked.role == Role::Both {
            return None;
        }
        let stream = self.streams.find(asked.request.stream_id)?;
        (stream.ticket == asked.request.ticket).then_some(stream)
    }
}
