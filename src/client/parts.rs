//! A table in parts, on one server or several: its endpoints, fetched at once (rule Q6).
//!
//! The parts need no threads. Each has a window of its own, which its server fills while the
//! consumer reads another part. The consumer's thread takes whatever has come. If nothing has come,
//! it sleeps on the parts' descriptors.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::core::ClientCore;
use super::uris::KnownUri;
use super::{Client, GetOptions, NextBatch, Stream, StreamStats};
use crate::arrow::description::{Description, Endpoint};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, copy_schema, schema_from_c};
use crate::cancel::Cancel;
use crate::driver::wording::shown;
use crate::error::{Error, Result, Status};
use crate::proto::Verb;
use crate::transport::trust_of;

/// Most parts that are fetched at once. The next part begins when one of them has ended.
const AT_ONCE: usize = 8;

/// The batches of a table in parts: in any order, or part after part if the description says that
/// the order matters.
pub struct Parts {
    source: PartSource,
    is_ordered: bool,
    /// Parts that are not begun, with their numbers.
    rest: VecDeque<(usize, Endpoint)>,
    running: VecDeque<Part>,
    schema: OwnedSchema,
    columns: Vec<Column>,
    device_type: i32,
    /// Figures of the parts that have ended.
    ended: StreamStats,
    total_rows: Option<u64>,
    error: Option<Error>,
}

/// Where parts come from, and how.
struct PartSource {
    core: Arc<ClientCore>,
    /// The server of the description, and of the parts without URIs.
    uris: Arc<[KnownUri]>,
    options: GetOptions,
    /// Options for the servers that the description names.
    elsewhere: GetOptions,
    cancel: Option<Cancel>,
    /// URIs at which nobody has answered.
    unreachable: HashMap<String, Error>,
}

struct Part {
    /// Number and ticket, for error texts.
    name: String,
    stream: Stream,
}

impl Parts {
    /// Begins the first parts of the description of `ticket`.
    ///
    /// # Errors
    ///
    /// Those of the parts; `InvalidData` for parts with different columns.
    pub(super) fn begin(
        (core, uris): (&Arc<ClientCore>, Arc<[KnownUri]>),
        ticket: &[u8],
        description: Description,
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Self> {
        let mut source = PartSource::new((core, uris), options, cancel);
        let mut rest: VecDeque<_> = description.endpoints.into_iter().enumerate().collect();
        let (number, endpoint) = rest.pop_front().unwrap_or_else(|| {
            let itself = Endpoint {
                descriptor: ticket.to_vec(),
                ..Endpoint::default()
            };
            (0, itself)
        });
        let name = name_of(number, &endpoint);
        let mut stream = source.open(&name, &endpoint)?;
        let schema = stream.schema()?;
        let mut parts = Self {
            source,
            is_ordered: description.is_ordered,
            rest,
            columns: columns(&schema)?,
            schema,
            device_type: stream.device_type(),
            running: VecDeque::from([Part { name, stream }]),
            ended: StreamStats::default(),
            total_rows: description.rows,
            error: None,
        };
        parts.begin_more()?;
        Ok(parts)
    }

    /// Figures up to now, of all parts.
    pub fn stats(&self) -> StreamStats {
        let running = self.running.iter().map(|part| part.stream.stats());
        running.fold(self.ended, |sum, stats| sum + stats)
    }

    /// Rows of the whole table, if its server said so.
    pub fn total_rows(&self) -> Option<u64> {
        self.total_rows
    }

    /// Begins parts until as many run as may.
    fn begin_more(&mut self) -> Result<()> {
        while self.running.len() < AT_ONCE
            && let Some((number, endpoint)) = self.rest.pop_front()
        {
            let name = name_of(number, &endpoint);
            let mut stream = self.source.open(&name, &endpoint)?;
            // An array of other columns would be read past its end.
            if columns(&stream.schema()?)? != self.columns {
                return Err(Error::invalid_data(format!(
                    "{name} has other columns than the first part: fetch each part by itself"
                )));
            }
            if stream.device_type() != self.device_type {
                return Err(Error::unsupported(format!(
                    "{name} is on another kind of device than the first part: name one device for \
                     all"
                )));
            }
            self.running.push_back(Part { name, stream });
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<OwnedDeviceArray>> {
        loop {
            self.begin_more()?;
            let looked_at = match self.is_ordered {
                true => self.running.len().min(1),
                false => self.running.len(),
            };
            if looked_at == 0 {
                return Ok(None);
            }
            let mut has_ended = false;
            for place in 0..looked_at {
                let part = &mut self.running[place];
                let next = part.stream.try_next();
                match next.map_err(|error| error.context(&part.name))? {
                    NextBatch::NotYet => {}
                    NextBatch::Batch(array) => {
                        if !self.is_ordered {
                            // Another part comes first at the next call.
                            self.running.rotate_left(place + 1);
                        }
                        return Ok(Some(array));
                    }
                    NextBatch::End => {
                        self.ended = self.ended + part.stream.stats();
                        self.running.remove(place);
                        has_ended = true;
                        break;
                    }
                }
            }
            if !has_ended {
                wait(self.running.iter_mut().take(looked_at))?;
            }
        }
    }
}

impl ArrayReader for Parts {
    fn schema(&mut self) -> Result<OwnedSchema> {
        copy_schema(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.advance().inspect_err(|error| {
            self.error = Some(error.clone());
            self.running.clear();
            self.rest.clear();
        })
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }
}

impl PartSource {
    fn new(
        (core, uris): (&Arc<ClientCore>, Arc<[KnownUri]>),
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            uris,
            options: GetOptions {
                shares: true,
                ..options.clone()
            },
            elsewhere: GetOptions {
                shares: true,
                ..options.for_strangers()
            },
            cancel: cancel.cloned(),
            unreachable: HashMap::default(),
        }
    }

    /// Asks for a part: at its first server that can be reached. Errors begin with its `name`.
    fn open(&mut self, name: &str, endpoint: &Endpoint) -> Result<Stream> {
        let here = |error: Error| error.context(name);
        let request = (Verb::Get, endpoint.descriptor.as_slice());
        let cancel = self.cancel.as_ref();
        if endpoint.uris.is_empty() {
            let stream = self.core.open(&self.uris, request, &self.options, cancel);
            return stream.map_err(here);
        }
        let mut skipped = Skipped::default();
        let mut drains = Vec::new();
        for uri in &endpoint.uris {
            let known = self.unreachable.get(uri).cloned();
            let outcome = match known {
                Some(error) => Err(error),
                None => self.trusted(uri).and_then(|uris| {
                    (self.core).open_here(&uris, request, &self.elsewhere, cancel)
                }),
            };
            let error = match outcome {
                Err(error) if leads_elsewhere(&error) => {
                    drains.push((uri, error.clone()));
                    error
                }
                // Nobody has answered there.
                Err(error) if is_unreachable(error.status()) => error,
                outcome => return outcome.map_err(here),
            };
            skipped.add(name, uri, &error);
            // Later parts at this server would wait as long.
            self.unreachable.insert(uri.clone(), error);
        }
        for (uri, refusal) in drains {
            let uris = self.trusted(uri)?;
            let led = (self.core).open_on(&uris, request, &self.elsewhere, refusal, cancel);
            if led.is_ok() {
                return led;
            }
        }
        Err(here(skipped.into_error()))
    }

    fn trusted(&self, uri: &str) -> Result<Arc<[KnownUri]>> {
        trusted(&self.core, &self.uris, uri, &self.options)
    }
}

/// Checks a URI in a description from the server at `origin`. A server must not lead this process
/// where its program would not go.
fn trusted(
    core: &ClientCore,
    origin: &[KnownUri],
    uri: &str,
    options: &GetOptions,
) -> Result<Arc<[KnownUri]>> {
    let uris = core.uris.read(&[uri])?;
    let opens_memory = |known: &KnownUri| trust_of(&known.uri.scheme).opens_memory;
    if options.trusted_network || origin.iter().any(opens_memory) || !uris.iter().any(opens_memory)
    {
        return Ok(uris);
    }
    let text = "a description names a ucx address, whose server could read and write this \
                process's memory: trusted_network allows it";
    Err(Error::new(Status::Permission, text))
}

/// The servers of a part that were asked in vain.
#[derive(Default)]
pub(crate) struct Skipped(Option<Error>);

impl Skipped {
    /// Whether another server of the part is asked after `error`.
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub(crate) fn is_for(error: &Error) -> bool {
        leads_elsewhere(error) || is_unreachable(error.status())
    }

    pub(crate) fn add(&mut self, part: &str, uri: &str, error: &Error) {
        tracing::info!("{part}: {uri} is skipped: {error}");
        self.0 = Some(match self.0.take() {
            None => Error::new(error.status(), format!("at {uri}: {}", error.text())),
            Some(first) => {
                let text = format!("{}; at {uri}: {}", first.text(), error.text());
                Error::new(first.status(), text)
            }
        });
    }

    pub(crate) fn into_error(self) -> Error {
        let none = || Error::invalid_data("no server has it");
        self.0.unwrap_or_else(none)
    }
}

impl Client {
    /// Asks for one part of a description that the server at `uris` gave: at its first server that
    /// can be reached.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_part(
        &self,
        uris: &[&str],
        part: &Endpoint,
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.core.generation.ensure_same_process()?;
        options.device.ensure_available()?;
        let server = (&self.core, self.core.uris.read(uris)?);
        PartSource::new(server, options, cancel).open(&part.name(), part)
    }

    /// Refuses a URI to which a description of the server at `uris` must not lead this process.
    ///
    /// # Errors
    ///
    /// `Permission`, `InvalidUri`.
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub(crate) fn ensure_may_lead(
        &self,
        uris: &[&str],
        uri: &str,
        options: &GetOptions,
    ) -> Result<()> {
        trusted(&self.core, &self.core.uris.read(uris)?, uri, options).map(drop)
    }
}

impl Endpoint {
    /// The name of this part in error texts.
    pub(crate) fn name(&self) -> String {
        format!("the part {}", shown(&self.descriptor))
    }
}

fn leads_elsewhere(error: &Error) -> bool {
    error.advice().is_some_and(|it| !it.elsewhere.is_empty())
}

fn name_of(number: usize, endpoint: &Endpoint) -> String {
    format!("part {number} ({})", shown(&endpoint.descriptor))
}

fn is_unreachable(status: Status) -> bool {
    matches!(
        status,
        Status::Unreachable
            | Status::Timeout
            | Status::Unsupported
            | Status::InvalidUri
            | Status::Permission
    )
}

/// Name, type, and whether it may have nulls.
type Column = (String, DataType, bool);

fn columns(schema: &OwnedSchema) -> Result<Vec<Column>> {
    let schema: Schema = schema_from_c(schema)?;
    let column = |field: &Arc<Field>| {
        let kind = field.data_type().clone();
        (field.name().clone(), kind, field.is_nullable())
    };
    Ok(schema.fields().iter().map(column).collect())
}

/// Sleeps until one of the parts may have something.
fn wait<'a>(parts: impl Iterator<Item = &'a mut Part>) -> Result<()> {
    let fds = parts.map(|part| part.stream.fd());
    let fds = fds.collect::<Result<Vec<_>>>()?;
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => {
            let text = format!("cannot wait for the parts of a table: {errno}");
            Err(Error::new(Status::OutOfResources, text))
        }
    }
}
