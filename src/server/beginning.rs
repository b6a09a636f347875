//! Streams that begin.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::asked::{Admission, Begun, ConnectionOwner, HeavyTable, IncomingRequest};
use super::asked_for::{Allowed, AskedFor};
use super::attachment::Attachment;
use super::core::ServerCore;
use super::figures::asker;
use super::providing::HostStream;
use super::request::{PullStream, Reply, ServerRequest, Services};
use super::streams::{Slot, ending, lose_with};
use super::tickets::{Entry, PublishedTable, provided};
use crate::driver::callbacks::Deferred;
use crate::driver::end::End;
use crate::driver::figures::{HANDLER, LIST, Record, label_of};
use crate::driver::produce::{OutStream, ProduceOptions, Production, Publication, Published};
use crate::driver::turning::Turner;
use crate::proto::{ArrivedRequest, Role, Verb};

impl ServerCore {
    /// Begins the stream of a request.
    pub(super) fn begin(
        &self,
        incoming: IncomingRequest,
        allowed: Allowed,
        admission: Admission,
    ) -> Begun {
        let record = self.record(&incoming, &admission.entry, &allowed);
        let (asked, owner) = (incoming.request, incoming.owner);
        let (slot, callbacks) = (admission.slot, admission.callbacks);
        let request = &asked.request;
        let options = self.produce(callbacks.clone(), &record);
        let (entry, owner) = match (admission.entry, owner) {
            (Entry::Published(table), ConnectionOwner::Request(turner))
                if request.selection.is_all() && may_turn(&turner, &asked, &table, &options) =>
            {
                return self.publish(turner, &asked, table, slot, &options);
            }
            (Entry::Published(table), owner) => {
                (provided(Box::new(PublishedTable(table)), callbacks), owner)
            }
            other => other,
        };
        let ticket = request.ticket.clone();
        let mut shared_id = None;
        let (stream, source) = match owner {
            ConnectionOwner::Request(mut turner) => {
                // A provider, or a host of the pull form, may be slow.
                turner.step_to_host(|_, _| ());
                let is_shared = asked.extension && asked.role != Role::Both;
                shared_id = is_shared.then_some(request.stream_id);
                (OutStream::new(ticket, turner, asked.role, is_shared), None)
            }
            ConnectionOwner::Stream(source, other) => {
                source.set_record(&record);
                let stream = match other {
                    Some(other) => OutStream::new(ticket, other, Role::Both, false),
                    None => OutStream::without_batches(ticket, source.link().clone()),
                };
                (stream, Some(source))
            }
        };
        // Set before the provider's call, which may never return.
        lose_with(&stream, &slot);
        if let Some(id) = shared_id {
            self.streams.offer(id, &stream);
        }
        let production = (request.verb != Verb::Put).then(|| {
            let ending = match &source {
                None => ending(&slot),
                Some(_) => Box::new(|| ()),
            };
            Production::new(Arc::clone(&stream), options, ending)
        });
        let yields = source.is_some() || self.options.spin.is_zero();
        let attachment = source.map_or(Attachment::Nothing, Attachment::Client);
        let asked_for = AskedFor::of_allowed(request, allowed, &record);
        let services = || Weak::clone(&self.me) as Weak<Self> as Weak<dyn Services>;
        if let Entry::Provider(provider) = entry {
            let behind = self.tickets.middleware(request).map(|_| services());
            let request = ServerRequest::new(stream, asked_for, Reply::Returned, attachment);
            return Begun::Thread(Box::new(HostStream {
                production,
                provider,
                record,
                request: request.before(behind),
                slot,
                yields,
            }));
        }
        let reply = match production {
            Some(production) => {
                let stream = PullStream {
                    production,
                    answer: None,
                    _slot: slot,
                };
                Reply::Pushed(Box::new(Mutex::new(stream)), services())
            }
            None => Reply::Taken(Mutex::new(Some(slot))),
        };
        self.pulls
            .put(ServerRequest::new(stream, asked_for, reply, attachment));
        Begun::Elsewhere
    }

    /// Begins to send a published table. The owner of the connection sends the rest.
    fn publish(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        table: Arc<Deferred<Published>>,
        slot: Arc<Slot>,
        options: &ProduceOptions,
    ) -> Begun {
        let link = turner.stream();
        let is_light = is_light(&turner, asked, &table, options);
        let wanted = (asked.request.ticket.as_slice(), asked.role);
        let (ending, place) = (ending(&slot), Box::new(slot));
        let publication = Publication::new(&link, wanted, table, options, ending, place);
        turner.step(|served, effects| {
            served.send_in_turns(link.number(), publication, effects);
        });
        if is_light {
            Begun::Here(turner)
        } else {
            Begun::Thread(Box::new(HeavyTable(turner)))
        }
    }

    /// The record of a request that is answered by `entry`.
    fn record(&self, incoming: &IncomingRequest, entry: &Entry, allowed: &Allowed) -> Arc<Record> {
        let request = &incoming.request.request;
        let label = match (&allowed.label, request.verb) {
            (Some(label), _) => label.clone(),
            (None, Verb::Get | Verb::Describe) if self.tickets.has(&request.ticket) => {
                label_of(&request.ticket)
            }
            (None, Verb::List) if matches!(entry, Entry::Published(_)) => LIST.to_owned(),
            // A client chooses these tickets, so they do not become labels.
            (None, _) => HANDLER.to_owned(),
        };
        let principal = allowed.principal.clone();
        let asker = asker(incoming.link(), &incoming.request, principal);
        Record::new(&self.figures.labels, label, asker)
    }
}

/// Whether the turns of the connection may send a table. If a body had to be copied, that would
/// hold up the other streams of the connection. A stream of a provider is copied on its own thread
/// instead.
fn may_turn(
    turner: &Turner<End>,
    asked: &ArrivedRequest,
    table: &Deferred<Published>,
    options: &ProduceOptions,
) -> bool {
    !turner.is_guest() || is_light(turner, asked, table, options)
}

/// Whether no body of a table has to be copied on its way.
fn is_light(
    turner: &Turner<End>,
    asked: &ArrivedRequest,
    table: &Deferred<Published>,
    options: &ProduceOptions,
) -> bool {
    let lends = turner.link().ways().lender.is_some();
    table.is_light(options.body, lends, asked.extension)
}
