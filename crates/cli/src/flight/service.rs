//! The answers of `dipc serve --flight`.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use dipc::Verb;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::{debug, info, warn};

use crate::accept::Accepting;
use crate::access::Access;
use crate::calm;
use crate::flight::accept;
use crate::flight::audit::{Audit, Visitor};
use crate::flight::encode::{FlightEncoder, schema_message};
use crate::flight::locations::{REUSE_CONNECTION, for_peer};
use crate::flight::names::{descriptor_of, ticket_of};
use crate::lines::Lines;
use crate::output::whole;
use crate::tables::{Table, Tables};

/// Messages that a reader may prepare ahead of the connection. This limits the memory of a stream
/// to a few MiB.
const AHEAD: usize = 4;

/// Bounds the log lines that clients cause. Refusals are counted apart, so that they hide no fault
/// of this side.
static LINES: Lines = Lines::new();
static REFUSALS: Lines = Lines::new();

type Answer<T> = Result<Response<T>, Status>;

/// Figures of the service.
#[derive(Debug, Default)]
pub struct Counters {
    /// Ended streams of `DoGet` and `DoExchange`, with failed ones.
    pub streams: AtomicU64,
    /// Bytes of the bodies sent.
    pub bytes_sent: AtomicU64,
}

/// The Flight service.
pub struct Service {
    tables: Tables,
    /// The URIs of libdipc for the same tables.
    uris: Vec<String>,
    slots: Arc<Semaphore>,
    max_streams: usize,
    counters: Arc<Counters>,
    accepting: Option<Arc<Accepting>>,
    access: Option<Arc<Access>>,
}

impl Service {
    /// Makes a service for `tables`, which libdipc serves at `uris`, with at most `max_streams`
    /// streams at once. Takes more tables by `accepting`.
    pub fn new(
        tables: Tables,
        uris: Vec<String>,
        max_streams: usize,
        accepting: Option<Arc<Accepting>>,
    ) -> Self {
        let max_streams = max_streams.min(Semaphore::MAX_PERMITS);
        Self {
            tables,
            uris,
            slots: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            counters: Arc::default(),
            accepting,
            access: None,
        }
    }

    /// Sets the access rules: who may do what.
    pub fn with_access(self, access: Option<Arc<Access>>) -> Self {
        Self { access, ..self }
    }

    fn visitor<T>(&self, request: &Request<T>) -> Visitor {
        Visitor::of(request, self.access.clone())
    }

    /// Whether clients may send tables.
    pub fn takes_tables(&self) -> bool {
        self.accepting.is_some()
    }

    /// Its figures.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, Status> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        slot.map_err(|_| {
            Status::resource_exhausted(format!(
                "the server has as many streams as --max-streams allows ({}); raise it at the \
                 server, or ask again when one of them has ended",
                self.max_streams
            ))
        })
    }

    /// The schema of a table, and its number of rows if that is known.
    async fn described(&self, ticket: &[u8]) -> Result<(Vec<u8>, Option<u64>), Status> {
        let table = find(&self.tables, ticket)?;
        blocking(move || Ok((read_schema(&table)?, table.rows()))).await
    }

    /// The endpoint of a table: locations of libdipc first, then this server itself.
    fn endpoint(&self, ticket: &[u8], peer: Addresses) -> FlightEndpoint {
        let uris = for_peer(&self.uris, peer.local, peer.remote);
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.to_vec()));
        let locations = uris.into_iter().chain([REUSE_CONNECTION.to_owned()]);
        locations.fold(endpoint, FlightEndpoint::with_location)
    }

    fn info(
        &self,
        ticket: &[u8],
        descriptor: FlightDescriptor,
        (schema, rows): (Vec<u8>, Option<u64>),
        peer: Addresses,
    ) -> FlightInfo {
        FlightInfo {
            schema: schema.into(),
            flight_descriptor: Some(descriptor),
            endpoint: vec![self.endpoint(ticket, peer)],
            // -1 if they are not known before the table is read.
            total_records: rows.and_then(|rows| rows.try_into().ok()).unwrap_or(-1),
            total_bytes: -1,
            ..FlightInfo::default()
        }
    }
}

/// Both addresses of a connection.
#[derive(Clone, Copy)]
struct Addresses {
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl Addresses {
    fn of<T>(request: &Request<T>) -> Self {
        Self {
            local: request.local_addr(),
            remote: request.remote_addr(),
        }
    }
}

fn find(tables: &Tables, ticket: &[u8]) -> Result<Table, Status> {
    tables.find(ticket).ok_or_else(|| {
        let name = String::from_utf8_lossy(ticket);
        Status::not_found(format!("no table {name:?} here; ListFlights names them"))
    })
}

/// Runs work that reads files on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Status> {
    let work = move || calmly(|| work().map_err(|error| failed(&error)));
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.unwrap_or_else(|_| Err(Status::unavailable("the server is stopping")))
}

/// Runs work whose panics become errors.
fn calmly<T>(work: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
    calm::catch(work).unwrap_or_else(|panic| Err(Status::internal(panic)))
}

fn failed(error: &anyhow::Error) -> Status {
    let known = error.downcast_ref::<dipc::Error>();
    let code = known.map_or(Code::Internal, |error| accept::code_of(error.status()));
    Status::new(code, whole(error))
}

fn read_schema(table: &Table) -> anyhow::Result<Vec<u8>> {
    Ok(schema_message(&table.reader()?.schema())?)
}

/// The channel from a reader to its connection; `None` is the end of the table.
type Messages = mpsc::Sender<Result<Option<FlightData>, Status>>;

/// Sends the messages of a table as fast as the client takes them, without the end.
fn pump(
    table: &Table,
    messages: &Messages,
    counters: &Counters,
    audit: &Audit,
) -> anyhow::Result<()> {
    let reader = table.reader()?;
    let mut encoder = FlightEncoder::new(&reader.schema());
    // Waits for a slow client, and fails after it has gone.
    let mut send = |message: FlightData| {
        let len = message.data_body.len() as u64;
        counters.bytes_sent.fetch_add(len, Ordering::Relaxed);
        audit.carried(len);
        match messages.blocking_send(Ok(Some(message))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    if send(encoder.schema()).is_break() {
        return Ok(());
    }
    for next in reader {
        let (batch, metadata) = next?;
        if encoder.encode(&batch, &metadata, &mut send)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Calls [`pump`], then sends the end or the error.
fn serve(
    table: &Table,
    messages: &Messages,
    counters: &Counters,
    (slot, audit): (OwnedSemaphorePermit, Audit),
) {
    let end = calmly(|| match pump(table, messages, counters, &audit) {
        Ok(()) => Ok(None),
        Err(error) => Err(failed(&error)),
    });
    if let Err(status) = &end {
        LINES.say(|more| {
            let reason = status.message();
            warn!(reason, "a table could not be sent by Flight{more}");
        });
    }
    counters.streams.fetch_add(1, Ordering::Relaxed);
    match messages.is_closed() {
        true => drop(audit),
        false => audit.end(&end),
    }
    // The slot is free before the end is sent, because the client may then ask again at once.
    drop(slot);
    // The client may have gone.
    let _ = messages.blocking_send(end);
}

/// The messages of a reader as a stream. If they stop without an end, the stream fails: a partial
/// table must not look whole.
fn answers(
    mut messages: mpsc::Receiver<Result<Option<FlightData>, Status>>,
) -> BoxStream<'static, Result<FlightData, Status>> {
    let mut over = false;
    stream::poll_fn(move |context| {
        if over {
            return None.into();
        }
        messages.poll_recv(context).map(|message| {
            let message = message.unwrap_or_else(|| {
                Err(Status::unavailable(
                    "the server stopped before the table ended",
                ))
            });
            over = !matches!(message, Ok(Some(_)));
            message.transpose()
        })
    })
    .boxed()
}

/// Logs why a client's table is not taken. A fault of this side is a warning. What the client did,
/// including that it has gone, is a line at INFO.
fn tell_refusal(status: &Status, what: &str, is_gone: bool) {
    let reason = status.message();
    let is_fault = matches!(
        status.code(),
        Code::Internal | Code::ResourceExhausted | Code::Unavailable
    );
    match is_fault && !is_gone {
        true => LINES.say(|more| warn!(reason, "{what}{more}")),
        false => REFUSALS.say(|more| info!(reason, "{what}{more}")),
    }
}

fn unimplemented<T>(what: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!(
        "dipc serve does not know {what}: it answers ListFlights, GetFlightInfo, GetSchema, \
         DoGet, DoPut and DoExchange"
    )))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoActionStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        let (peer, visitor) = (Addresses::of(&request), self.visitor(&request));
        let audit = visitor.admit("ListFlights", Verb::List, b"")?;
        // As for libdipc's clients, the criteria are a prefix of the tickets.
        let prefix = request.into_inner().expression;
        let mut tables = self.tables.all();
        tables.retain(|ticket, _| ticket.starts_with(&prefix) && visitor.may(Verb::Get, ticket));
        // A file may be damaged now; the other tables are still listed.
        let schemas = blocking(move || {
            let schemas = tables.iter().filter_map(|(ticket, table)| {
                let schema = read_schema(table).inspect_err(|error| {
                    let name = String::from_utf8_lossy(ticket);
                    let reason = whole(error);
                    LINES.say(|more| warn!(ticket = %name, reason, "not listed{more}"));
                });
                Some((ticket.clone(), (schema.ok()?, table.rows())))
            });
            Ok(schemas.collect::<Vec<_>>())
        })
        .await;
        audit.end(&schemas);
        let infos: Vec<_> = schemas?
            .into_iter()
            .map(|(ticket, described)| {
                let descriptor = descriptor_of(&ticket);
                Ok(self.info(&ticket, descriptor, described, peer))
            })
            .collect();
        Ok(Response::new(stream::iter(infos).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        let (peer, visitor) = (Addresses::of(&request), self.visitor(&request));
        let descriptor = request.into_inner();
        let ticket = ticket_of(&descriptor)?;
        let audit = visitor.admit("GetFlightInfo", Verb::Get, &ticket)?;
        let described = self.described(&ticket).await;
        audit.end(&described);
        Ok(Response::new(
            self.info(&ticket, descriptor, described?, peer),
        ))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let ticket = ticket_of(request.get_ref())?;
        let audit = (self.visitor(&request)).admit("GetSchema", Verb::Get, &ticket)?;
        let described = self.described(&ticket).await;
        audit.end(&described);
        Ok(Response::new(SchemaResult {
            schema: described?.0.into(),
        }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let visitor = self.visitor(&request);
        let ticket = request.into_inner().ticket;
        let audit = visitor.admit("DoGet", Verb::Get, &ticket)?;
        let found = find(&self.tables, &ticket).and_then(|table| Ok((table, self.slot()?)));
        let (table, slot) = match found {
            Ok(found) => found,
            Err(status) => {
                audit.end(&Err::<(), _>(status.clone()));
                return Err(status);
            }
        };
        debug!(ticket = %String::from_utf8_lossy(&ticket), "DoGet");
        let (sender, receiver) = mpsc::channel(AHEAD);
        let counters = self.counters();
        tokio::task::spawn_blocking(move || serve(&table, &sender, &counters, (slot, audit)));
        Ok(Response::new(answers(receiver)))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        unimplemented("PollFlightInfo")
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        unimplemented("Handshake, for it authenticates nobody")
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        let Some(accepting) = self.accepting.clone() else {
            return Err(Status::unimplemented(
                "this server takes no tables; dipc serve --accept DIR does",
            ));
        };
        let visitor = self.visitor(&request);
        let slot = self.slot()?;
        let messages = request.into_inner();
        let runtime = Handle::current();
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            let gone = || sender.is_closed();
            let taken = calmly(|| accept::take(&accepting, messages, &runtime, &visitor, &gone));
            if let Err(status) = &taken {
                tell_refusal(status, "a table was not taken by DoPut", gone());
            }
            // Done first, because the client may ask again at once or may have gone.
            drop(slot);
            let _ = sender.blocking_send(taken);
        });
        let results = stream::poll_fn(move |context| receiver.poll_recv(context));
        Ok(Response::new(results.boxed()))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        let visitor = self.visitor(&request);
        let slot = self.slot()?;
        let messages = request.into_inner();
        let runtime = Handle::current();
        let (accepting, tables, counters) =
            (self.accepting.clone(), self.tables.clone(), self.counters());
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            let gone = || sender.is_closed();
            let accepting = accepting.as_ref();
            let taken = calmly(|| accept::exchange(accepting, messages, &runtime, &visitor, &gone));
            match taken.and_then(|(ticket, audit)| Ok((find(&tables, &ticket)?, audit))) {
                Ok((table, audit)) => serve(&table, &sender, &counters, (slot, audit)),
                Err(status) => {
                    tell_refusal(&status, "no answer to DoExchange", gone());
                    drop(slot);
                    // The client may have gone.
                    let _ = sender.blocking_send(Err(status));
                }
            }
        });
        Ok(Response::new(answers(receiver)))
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        unimplemented("DoAction")
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        unimplemented("ListActions")
    }
}
