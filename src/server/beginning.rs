//! Streams that begin.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::asked::{Admission, Begun, ConnectionOwner, HeavyTable, IncomingRequest};
use super::asked_for::{Allowed, AskedFor};
use super::attachment::Attachment;
use super::client_stream::ClientStream;
use super::core::ServerCore;
use super::figures::asker;
use super::providing::ProvidedStream;
use super::request::{PullStream, Reply, ServerRequest, Services};
use super::streams::{Slot, ending, lose_with};
use super::taking::TakenStream;
use super::tickets::{Entry, PublishedTable, provided};
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::end::{End, EndLink};
use crate::driver::figures::{HANDLER, LIST, Record, label_of};
use crate::driver::produce::{OutStream, Production, Publication, Published};
use crate::driver::turning::Turner;
use crate::proto::{self, ArrivedRequest, Role, Verb};

impl ServerCore {
    /// Begins the stream of a request.
    pub(super) fn begin(
        &self,
        incoming: IncomingRequest,
        allowed: Allowed,
        admission: Admission,
    ) -> Begun {
        let record = self.record(
            incoming.link(),
            &incoming.request,
            &admission.entry,
            &allowed,
        );
        let asked_for = AskedFor::of_allowed(&incoming.request.request, allowed, &record);
        let asked = incoming.request;
        match incoming.owner {
            ConnectionOwner::Stream(source, other) => {
                let taken = (source, other);
                self.begin_taking(taken, &asked.request, admission, asked_for, &record)
            }
            ConnectionOwner::Request(turner) => {
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
                request: ServerRequest::new(
                    stream,
                    asked_for,
                    Reply::Returned,
                    Attachment::Nothing,
                )
                .before(self.behind_middleware(&asked.request)),
                slot,
                yields: self.options.spin.is_zero(),
            })),
            Entry::Pull | Entry::Published(_) => {
                let reply = self.pushed(production, slot);
                self.pulls.put(ServerRequest::new(
                    stream,
                    asked_for,
                    reply,
                    Attachment::Nothing,
                ));
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
                request: ServerRequest::new(stream, asked_for, Reply::Returned, sent)
                    .before(self.behind_middleware(request)),
                source,
                slot,
            }));
        }
        let reply = match production {
            Some(production) => self.pushed(production, slot),
            None => Reply::Taken(Mutex::new(Some(slot))),
        };
        self.pulls
            .put(ServerRequest::new(stream, asked_for, reply, sent));
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
}
