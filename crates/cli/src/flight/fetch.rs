//! `dipc get grpc://host:port NAME`: asks a Flight server for the locations of a table, and fetches
//! it.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_flight::{FlightEndpoint, FlightInfo};
use dipc::ipc::{Decoder, Header};
use dipc::{
    Cancel, Client, DeviceArray, Error, GetOptions, Result, Selection, Status, StreamStats,
};
use tracing::{info, warn};

use crate::columns::{Columns, are_same};
use crate::fetched::{Counted, ask_selected};
use crate::flight::caller::{Caller, Peer, Times};
use crate::flight::do_get::DoGet;
use crate::flight::locations::{Route, Unusable, routes};
use crate::flight::names::descriptor;
use crate::output::whole;
use crate::report::Taken;
use crate::trust::ClientTrust;

/// How a table is fetched.
pub struct How {
    /// Whether to use the server's ucx addresses.
    pub trusted_network: bool,
    /// For endpoints fetched by libdipc.
    pub client: Client,
    /// Options of those streams.
    pub options: GetOptions,
    /// Most bytes that a message of `DoGet` may take in addition to its body.
    pub message_limit: Option<u64>,
}

/// A table that a Flight server was asked for. Nothing of it is fetched yet.
pub struct Asked {
    caller: Arc<Caller>,
    peer: Peer,
    info: FlightInfo,
    how: How,
}

impl Asked {
    /// Asks for the table of a path or of a command. The deadline of `times` begins to run.
    ///
    /// # Errors
    ///
    /// `Unreachable`, `NotFound` and other errors of the server.
    pub fn of(
        uri: &str,
        (name, is_command): (&str, bool),
        (times, trust): (Times, &ClientTrust),
        cancel: &Cancel,
        how: How,
    ) -> Result<Self> {
        let caller = Caller::new(cancel, times, trust)?;
        let peer = Peer::connect(&caller, uri)?;
        let info = ask(&peer, name, is_command)?;
        Ok(Self {
            caller,
            peer,
            info,
            how,
        })
    }

    /// The table's schema.
    ///
    /// # Errors
    ///
    /// `Protocol`: the server does not tell it.
    pub fn schema(&self) -> Result<SchemaRef> {
        schema_of(&self.info, self.how.message_limit)
    }

    /// Begins to fetch a part of the table, with only the columns of `names`. Waits for the schema.
    ///
    /// # Errors
    ///
    /// `Unsupported` if rows are selected and no server can do so. If no location of the first
    /// endpoint works, the error of the last location.
    pub fn fetch(self, selection: Selection, names: Option<&str>) -> Result<FlightFetch> {
        let counts_rows = selection.first_row() > 0 || selection.rows().is_some();
        let (endpoints, has_one) = (self.info.endpoint.clone(), self.info.endpoint.len() < 2);
        if counts_rows && !has_one {
            return Err(Error::unsupported(format!(
                "the table comes from {} endpoints, and --offset and --limit count the rows of one",
                endpoints.len()
            )));
        }
        let selects_rows = counts_rows || selection.filter().is_some();
        // -1 if the server does not know.
        let total_rows = u64::try_from(self.info.total_records).ok();
        let mut fetch = FlightFetch {
            rest: endpoints.into(),
            current: None,
            columns: None,
            schema: SchemaRef::new(Schema::empty()),
            ended: StreamStats::default(),
            taken: Vec::new(),
            total_rows: total_rows.filter(|_| !selects_rows),
            selects_rows,
            names: names.map(str::to_owned),
            selection,
            asked: self,
        };
        fetch.schema = match fetch.begin_next()? {
            Some(schema) => schema,
            None => fetch.asked.schema()?,
        };
        Ok(fetch)
    }
}

/// A table whose parts, the endpoints, are fetched one after the other.
pub struct FlightFetch {
    asked: Asked,
    selection: Selection,
    /// Whether rows are left out, which only a server of libdipc can do.
    selects_rows: bool,
    /// The columns that are wanted; `None`: all.
    names: Option<String>,
    /// Endpoints that are not begun.
    rest: VecDeque<FlightEndpoint>,
    /// The endpoint that is being fetched.
    current: Option<Box<dyn Counted>>,
    /// The columns to take of it, if its server has not left out the others.
    columns: Option<Columns>,
    schema: SchemaRef,
    /// Figures of the ended endpoints.
    ended: StreamStats,
    taken: Vec<Taken>,
    total_rows: Option<u64>,
}

impl FlightFetch {
    /// Begins the next endpoint, if there is one, and gives its schema.
    fn begin_next(&mut self) -> Result<Option<SchemaRef>> {
        let Some(endpoint) = self.rest.pop_front() else {
            self.current = None;
            return Ok(None);
        };
        let ticket = endpoint
            .ticket
            .ok_or_else(|| Error::protocol("an endpoint of the Flight server has no ticket"))?;
        let locations: Vec<_> = endpoint.location.into_iter().map(|l| l.uri).collect();
        let mut last: Option<(String, Error)> = None;
        for route in routes(&locations, self.asked.how.trusted_network) {
            // Logs all errors but the last, which the caller gets.
            if let Some((location, reason)) = last.take() {
                warn!(location, %reason, "skipped");
            }
            let route = match route {
                Ok(route) => route,
                Err(Unusable { location, reason }) => {
                    let text = format!("{location}: {reason}");
                    last = Some((location, Error::unsupported(text)));
                    continue;
                }
            };
            let (by, from) = match &route {
                Route::Dissociated(uris) => ("libdipc", uris.clone()),
                Route::DoGet(uri) => ("DoGet", vec![uri.clone()]),
                Route::Here => ("DoGet", vec![self.asked.peer.uri().to_owned()]),
            };
            let opened = self.try_route(&route, &ticket);
            let narrowed = |stream: Box<dyn Counted>| {
                let columns = self.columns_of(&stream.schema())?;
                let schema = match &columns {
                    Some(columns) => columns.of_schema(&stream.schema()).map_err(invalid)?,
                    None => stream.schema(),
                };
                Ok((stream, columns, schema))
            };
            match opened.and_then(narrowed) {
                Ok((stream, columns, schema)) => {
                    info!(by, from = from.join(" "), "fetching");
                    self.taken.push(Taken { by, from });
                    (self.current, self.columns) = (Some(stream), columns);
                    return Ok(Some(schema));
                }
                Err(error) if error.status() == Status::Cancelled => return Err(error),
                // The time is over for other locations too.
                Err(_) if self.asked.caller.left().is_err() => {
                    self.asked.caller.left()?;
                }
                Err(error) => last = Some((from.join(" "), error)),
            }
        }
        // With one location its error is enough.
        Err(match last {
            Some((_, error)) if locations.len() > 1 => error.context(format_args!(
                "none of the {} locations of the table works; the last one",
                locations.len()
            )),
            Some((_, error)) => error,
            None => Error::protocol("an endpoint has no location"),
        })
    }

    /// The columns to take of an endpoint with the columns `all`; `None`: all of them.
    fn columns_of(&self, all: &Schema) -> Result<Option<Columns>> {
        let Some(names) = &self.names else {
            return Ok(None);
        };
        let columns = Columns::find(names, all);
        let columns = columns.map_err(|error| Error::invalid_argument(whole(&error)))?;
        Ok((!columns.are_all_of(all)).then_some(columns))
    }

    fn try_route(&self, route: &Route, ticket: &arrow_flight::Ticket) -> Result<Box<dyn Counted>> {
        let Asked {
            caller, peer, how, ..
        } = &self.asked;
        if self.selects_rows && !matches!(route, Route::Dissociated(_)) {
            return Err(Error::unsupported(
                "DoGet gives whole tables: --where, --offset and --limit need a location of \
                 libdipc, as dipc serve --listen tells one",
            ));
        }
        Ok(match route {
            Route::Dissociated(uris) => {
                let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
                let mut options = how.options.clone();
                if let Some(left) = caller.left()? {
                    options = options.deadline(left);
                }
                // Rule R4: `want_data` carries the endpoint's ticket.
                Box::new(ask_selected(&self.selection, |selection| {
                    let options = options.clone().selection(selection);
                    how.client.get_with(uris.clone(), &ticket.ticket, &options)
                })?)
            }
            Route::DoGet(uri) => {
                let peer = Peer::connect(caller, uri)?;
                Box::new(DoGet::open(&peer, ticket.clone(), how.message_limit)?)
            }
            Route::Here => Box::new(DoGet::open(peer, ticket.clone(), how.message_limit)?),
        })
    }

    /// The next array of the endpoint that is being fetched. The deadline belongs to the whole
    /// fetch, so the error text of an endpoint does not name it.
    fn next_of(caller: &Caller, current: &mut dyn Counted) -> Result<Option<DeviceArray>> {
        current.next().map_err(|error| match error.status() {
            Status::Timeout => caller.left().err().unwrap_or(error),
            _ => error,
        })
    }
}

fn invalid(error: ArrowError) -> Error {
    Error::invalid_data(error.to_string())
}

/// Calls `GetFlightInfo` with the name as a path of one part, or as a command.
pub(super) fn ask(peer: &Peer, name: &str, command: bool) -> Result<FlightInfo> {
    let answer = peer.info(descriptor(name, command));
    if command {
        return answer;
    }
    answer.map_err(|error| match error.status() {
        Status::Unreachable | Status::Disconnected | Status::Timeout | Status::Cancelled => error,
        status => Error::new(
            status,
            format!("{error} (asked for the path [{name:?}]; --command asks for a command)"),
        ),
    })
}

/// The schema in the answer of a Flight server, for a table without endpoints and so without rows.
pub(super) fn schema_of(info: &FlightInfo, message_limit: Option<u64>) -> Result<SchemaRef> {
    let missing = || Error::protocol("the Flight server tells neither endpoints nor a schema");
    // An encapsulated message: a marker (absent before Arrow 0.15), the length of the header, and
    // the header.
    let bytes = info.schema.as_ref();
    let bytes = bytes.strip_prefix(&[0xff; 4]).unwrap_or(bytes);
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or_else(missing)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| missing())?;
    let header = Header::parse(rest.get(..len).ok_or_else(missing)?)?;
    Ok(Decoder::new(&header, message_limit)?.schema())
}

impl Counted for FlightFetch {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn next(&mut self) -> Result<Option<DeviceArray>> {
        while let Some(current) = &mut self.current {
            if let Some(array) = Self::next_of(&self.asked.caller, current.as_mut())? {
                let Some(columns) = &self.columns else {
                    return Ok(Some(array));
                };
                let batch = columns.of_batch(&array.into_batch()?);
                return Ok(Some(batch.map_err(invalid)?.into()));
            }
            self.ended = self.ended + current.stats();
            // An array with a wrong type would be read past its end.
            if let Some(next) = self.begin_next()?
                && !are_same(&self.schema, &next)
            {
                return Err(Error::protocol(
                    "the endpoints of the table have different columns: fetch each by itself",
                ));
            }
        }
        Ok(None)
    }

    fn stats(&self) -> StreamStats {
        let current = self.current.as_ref();
        self.ended + current.map(|stream| stream.stats()).unwrap_or_default()
    }

    fn total_rows(&self) -> Option<u64> {
        self.total_rows
    }

    fn taken(&self) -> Vec<Taken> {
        self.taken.clone()
    }
}
