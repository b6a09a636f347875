//! Our extension's request (rule E1); `docs/wire.md` has the exact bytes.

use std::time::Duration;

use crate::error::Error;
use crate::proto::extension::{
    Credit, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_RETURN, UUID_BYTES, VERSION,
};
use crate::proto::headers::{Headers, MAX_REQUEST_HEADERS};
use crate::proto::wire::{Fields, Wire as _};
use crate::proto::{ProtocolError, Selection, StreamInfo, Verb};

/// An extension request (rule E1): the payload of a message tagged `dipc_want`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Lowest version of the extension that the client speaks.
    pub min_version: u16,
    /// Highest version that the client speaks.
    pub max_version: u16,
    /// Features that the client knows, as bits.
    pub features: u64,
    /// Credit of the server before the first CREDIT.
    pub credit: Credit,
    /// Most bytes of copies lent at a time. Beyond this limit bodies travel packed.
    pub lent_limit: u64,
    /// Joins the two connections of one stream (rule E6).
    pub stream_id: u128,
    /// Device where the client wants bodies, as `ArrowDeviceType`: 1 is the host, 2 is a CUDA
    /// device, and 0 is the device where the sender has the bodies.
    pub device_type: i32,
    /// UUIDs of the GPUs whose memory on this host the client can map. At most 255 are sent.
    pub gpus: Vec<[u8; UUID_BYTES]>,
    /// The verb of the request (rule Q1).
    pub verb: Verb,
    /// Time that the client waits for the end of the stream.
    pub deadline: Option<Duration>,
    /// Headers of the client's host program.
    pub headers: Headers,
    /// The stream that the client sends, for a verb [with one](Verb::has_source). Its features are
    /// those that the client knows as a sender; the version is that of the request.
    pub source: Option<StreamInfo>,
    /// For a get: the columns and rows that the client wants (rule Q12).
    pub selection: Selection,
    /// Number of the stream among those of the connection (rule S2).
    pub number: u32,
    /// The descriptor: opaque bytes (rule M1).
    pub ticket: Vec<u8>,
}

/// Limit for a ticket together with headers and selection, in bytes. A server takes messages of up
/// to 1 MiB, and the other fields of a request fit into the rest.
pub const MAX_TICKET_BYTES: usize = 1016 << 10;

/// Refuses a ticket that is too long for a request.
///
/// # Errors
///
/// `InvalidArgument`, with the limit.
pub fn ensure_ticket_fits(ticket: &[u8]) -> Result<(), Error> {
    ensure_lens_fit(ticket.len(), 0)
}

/// Refuses a ticket of `ticket` bytes, with `beside` bytes of headers and selection.
fn ensure_lens_fit(ticket: usize, beside: usize) -> Result<(), Error> {
    let len = ticket.saturating_add(beside);
    if len <= MAX_TICKET_BYTES {
        return Ok(());
    }
    let with = if beside == 0 {
        ""
    } else {
        " with its headers and its selection"
    };
    Err(Error::invalid_argument(format!(
        "a ticket{with} has {len} bytes; the limit is {MAX_TICKET_BYTES}"
    )))
}

/// Bytes of the fixed part without UUIDs.
const MOST_FIXED: usize = 101;
/// Length of `verb`, `deadline` and `headers_len`.
const VERB: usize = 13;
/// Length of the fields of [`Request::source`].
const SOURCE: usize = 21;

impl Request {
    /// A request for `ticket` in the version that this build speaks.
    pub fn new(ticket: impl Into<Vec<u8>>, credit: Credit) -> Self {
        Self {
            min_version: 1,
            max_version: VERSION,
            features: FEATURE_IN_PLACE | FEATURE_RETURN | FEATURE_HEADERS,
            credit,
            lent_limit: u64::MAX,
            stream_id: 0,
            device_type: HOST,
            gpus: Vec::new(),
            verb: Verb::Get,
            deadline: None,
            headers: Headers::new(),
            source: None,
            selection: Selection::new(),
            number: 0,
            ticket: ticket.into(),
        }
    }

    /// The request that a baseline peer's ticket stands for: without credit (rule E5).
    pub(crate) fn baseline(ticket: &[u8]) -> Self {
        let unlimited = Credit {
            batches: u64::MAX,
            bytes: u64::MAX,
        };
        Self {
            min_version: 0,
            max_version: 0,
            features: 0,
            ..Self::new(ticket, unlimited)
        }
    }

    /// The request of a message tagged `dipc_want` or, without our extension, `want_data`.
    pub(crate) fn of(extension: bool, bytes: &[u8]) -> Result<Self, ProtocolError> {
        match extension {
            true => Self::decode(bytes),
            false => Ok(Self::baseline(bytes)),
        }
    }

    /// Names the stream in control messages: the low half of `stream_id`. Without the name, a late
    /// message of an earlier stream could be taken for a message of this stream.
    pub fn mark(&self) -> u64 {
        u64::try_from(self.stream_id & u128::from(u64::MAX)).unwrap_or_default()
    }

    /// The lowest version that a server needs for this request: version 1 has neither verbs nor
    /// headers, version 2 no selection.
    pub(crate) fn lowest_version(&self) -> u16 {
        let needed = if !self.selection.is_all() {
            3
        } else if self.verb != Verb::Get || !self.headers.is_empty() {
            2
        } else {
            0
        };
        self.min_version.max(needed)
    }

    /// Refuses a request that is too long, or whose selection does not go with its verb (rules Q1
    /// and Q12).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`.
    pub(crate) fn ensure_fits(&self) -> Result<(), Error> {
        self.selection.ensure_fits(self.verb)?;
        self.headers.ensure_fit(MAX_REQUEST_HEADERS)?;
        let selection = self.selection.encoded_len();
        let beside = self.headers.encoded_len().saturating_add(selection);
        ensure_lens_fit(self.ticket.len(), beside)
    }

    /// At a server: refuses a request with parts that this build does not know, or that no request
    /// may have.
    ///
    /// # Errors
    ///
    /// `Unsupported` for versions, verbs (rule E1) and parts of a selection that this build does
    /// not know. `InvalidArgument` for a selection that does not go with the verb (rule Q12).
    pub(crate) fn ensure_served(&self) -> Result<(), Error> {
        if self.min_version > VERSION {
            let (min, max) = (self.min_version, self.max_version);
            return Err(Error::unsupported(format!(
                "this server speaks versions 1 to {VERSION} of the extension, the client {min} to \
                 {max}: upgrade the server"
            )));
        }
        if let Verb::Unknown(number) = self.verb {
            return Err(Error::unsupported(format!(
                "this server does not know the verb with number {number}: upgrade it"
            )));
        }
        self.selection.ensure_fits(self.verb)
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Fields that have their default are left out, so that servers of earlier releases
        // understand the request.
        let min_version = self.lowest_version();
        let (headers, selection) = (self.headers.encoded_len(), self.selection.encoded_len());
        let says_number = self.number != 0;
        let says_selection = selection > 0 || says_number;
        let says_verb = min_version > 1 || self.deadline.is_some() || says_number;
        let variable = headers
            .saturating_add(selection)
            .saturating_add(self.ticket.len());
        let mut bytes = Vec::with_capacity(variable.saturating_add(MOST_FIXED));
        // The length of the fixed part, known below.
        0_u16.put(&mut bytes);
        min_version.put(&mut bytes);
        self.max_version.put(&mut bytes);
        self.features.put(&mut bytes);
        self.credit.put(&mut bytes);
        self.lent_limit.put(&mut bytes);
        self.stream_id.put(&mut bytes);
        if says_verb || self.device_type != HOST || !self.gpus.is_empty() {
            let count = u8::try_from(self.gpus.len()).unwrap_or(u8::MAX);
            self.device_type.put(&mut bytes);
            count.put(&mut bytes);
            bytes.extend(self.gpus.iter().take(usize::from(count)).flatten());
        }
        if says_verb {
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.verb.number().put(&mut bytes);
            self.deadline.map_or(0, nanos).put(&mut bytes);
            length(headers).put(&mut bytes);
            if let Some(source) = &self.source {
                source.body_kinds.put(&mut bytes);
                source.device_type.put(&mut bytes);
                source.device_id.put(&mut bytes);
                source.features.put(&mut bytes);
            } else if says_selection {
                bytes.extend_from_slice(&[0; SOURCE]);
            }
            if says_selection {
                length(selection).put(&mut bytes);
            }
            if says_number {
                self.number.put(&mut bytes);
            }
        }
        let fixed = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        if let Some(place) = bytes.first_chunk_mut() {
            *place = fixed.to_le_bytes();
        }
        self.headers.encode(&mut bytes);
        self.selection.encode(&mut bytes);
        bytes.extend_from_slice(&self.ticket);
        bytes
    }

    /// Reads a request. Skips fields that a later version may have put before the ticket.
    ///
    /// # Errors
    ///
    /// Rule E1: the request is too short, or its version range is empty. Rule Q1: bad headers, or a
    /// ticket that is too long. Rule Q12: a malformed selection.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let malformed = || {
            broken!(
                "E1",
                "request of {} bytes is malformed: see docs/wire.md",
                bytes.len()
            )
        };
        let (mut request, parts) = Self::fields(bytes).ok_or_else(malformed)?;
        let VariableParts {
            headers,
            selection,
            ticket,
        } = parts;
        request.headers = Headers::decode(headers, MAX_REQUEST_HEADERS)?;
        request.selection = Selection::decode(selection)?;
        let lens = [headers.len(), selection.len(), ticket.len()];
        let len = lens.into_iter().fold(0, usize::saturating_add);
        if len > MAX_TICKET_BYTES {
            return Err(broken!(
                "Q1",
                "request with {len} bytes of headers, selection and ticket"
            ));
        }
        request.ticket = ticket.to_vec();
        if request.min_version == 0 || request.min_version > request.max_version {
            return Err(broken!(
                "E1",
                "request for versions {} to {} of the extension: there is none",
                request.min_version,
                request.max_version
            ));
        }
        if request.verb.has_source() && request.source.is_none() {
            return Err(broken!(
                "Q3",
                "request to {} that describes no stream",
                request.verb.name()
            ));
        }
        Ok(request)
    }

    /// The request without its parts of variable length, and the bytes of these parts.
    fn fields(bytes: &[u8]) -> Option<(Self, VariableParts<'_>)> {
        let fixed = Fields::new(bytes).take::<u16>()?;
        let (fixed, rest) = bytes.split_at_checked(usize::from(fixed))?;
        let mut fields = Fields::new(fixed);
        fields.take::<u16>()?;
        let mut request = Self {
            min_version: fields.take()?,
            max_version: fields.take()?,
            features: fields.take()?,
            credit: fields.take()?,
            lent_limit: fields.take()?,
            stream_id: fields.take()?,
            ..Self::baseline(&[])
        };
        // Later versions may have added fields after these.
        let (mut headers, mut selection) = (0_u32, 0_u32);
        if fields.len() > 0 {
            request.device_type = fields.take()?;
            for _ in 0..fields.take::<u8>()? {
                request.gpus.push(fields.chunk()?);
            }
        }
        if fields.len() >= VERB {
            request.verb = Verb::from_number(fields.take()?);
            let deadline = Some(fields.take()?).filter(|deadline| *deadline > 0);
            request.deadline = deadline.map(Duration::from_nanos);
            headers = fields.take()?;
            if fields.len() >= SOURCE {
                let source = StreamInfo {
                    body_kinds: fields.take()?,
                    device_type: fields.take()?,
                    device_id: fields.take()?,
                    features: fields.take()?,
                    version: request.max_version,
                };
                request.source = request.verb.has_source().then_some(source);
                // Each of these fields may be absent, together with all fields after it.
                selection = fields.take().unwrap_or_default();
                request.number = fields.take().unwrap_or_default();
            }
        }
        let (headers, rest) = rest.split_at_checked(usize::try_from(headers).ok()?)?;
        let (selection, ticket) = rest.split_at_checked(usize::try_from(selection).ok()?)?;
        let parts = VariableParts {
            headers,
            selection,
            ticket,
        };
        Some((request, parts))
    }
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The bytes of a request after its fields of fixed length.
struct VariableParts<'a> {
    headers: &'a [u8],
    selection: &'a [u8],
    ticket: &'a [u8],
}

/// `ARROW_DEVICE_CPU`
const HOST: i32 = 1;
