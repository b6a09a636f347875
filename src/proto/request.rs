//! Our extension's request (rule E1); `docs/wire.md` has the exact bytes.

use std::time::Duration;

use crate::error::Error;
use crate::proto::extension::{
    Credit, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_RETURN, UUID_BYTES, VERSION,
};
use crate::proto::headers::{Headers, MAX_REQUEST_HEADERS};
use crate::proto::wire::Fields;
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
    /// The columns and rows that the client wants, of a get (rule Q12).
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

/// Length of the fixed part of a request without devices. The length field itself is included.
const REQUEST_FIXED: u16 = 54;

/// The same with `device_type` and the number of `gpus`, without any UUID.
const REQUEST_DEVICES: u16 = 59;

/// Length of `verb`, `deadline` and `headers_len`.
const REQUEST_VERB: u16 = 13;

/// Length of the fields of [`Request::source`].
const REQUEST_SOURCE: u16 = 21;

/// Length of `selection_len`.
const REQUEST_SELECTION: u16 = 4;

/// Length of `number`.
const REQUEST_NUMBER: u16 = 4;

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

    /// Refuses, at a server, what this build does not know and what no request may ask.
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
        let count = u8::try_from(self.gpus.len()).unwrap_or(u8::MAX);
        // Fields that have their default are left out, so that servers of earlier releases
        // understand the request.
        let min_version = self.lowest_version();
        let says_number = self.number != 0;
        let says_verb = min_version > 1 || self.deadline.is_some() || says_number;
        let says_devices = says_verb || self.device_type != HOST || count > 0;
        let mut fixed = REQUEST_FIXED;
        if says_devices {
            let gpus = u16::from(count).saturating_mul(UUID_BYTES_16);
            fixed = REQUEST_DEVICES.saturating_add(gpus);
        }
        if says_verb {
            fixed = fixed.saturating_add(REQUEST_VERB);
        }
        let selection = self.selection.encoded_len();
        let says_selection = selection > 0 || says_number;
        if self.source.is_some() || says_selection {
            fixed = fixed.saturating_add(REQUEST_SOURCE);
        }
        if says_selection {
            fixed = fixed.saturating_add(REQUEST_SELECTION);
        }
        if says_number {
            fixed = fixed.saturating_add(REQUEST_NUMBER);
        }
        let headers = self.headers.encoded_len();
        let capacity = usize::from(fixed)
            .saturating_add(headers)
            .saturating_add(selection)
            .saturating_add(self.ticket.len());
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(&fixed.to_le_bytes());
        bytes.extend_from_slice(&min_version.to_le_bytes());
        bytes.extend_from_slice(&self.max_version.to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        bytes.extend_from_slice(&self.credit.batches.to_le_bytes());
        bytes.extend_from_slice(&self.credit.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.lent_limit.to_le_bytes());
        bytes.extend_from_slice(&self.stream_id.to_le_bytes());
        if says_devices {
            bytes.extend_from_slice(&self.device_type.to_le_bytes());
            bytes.push(count);
            for gpu in self.gpus.iter().take(usize::from(count)) {
                bytes.extend_from_slice(gpu);
            }
        }
        if says_verb {
            bytes.push(self.verb.number());
            let deadline = self.deadline.map_or(0, |deadline| {
                u64::try_from(deadline.as_nanos())
                    .unwrap_or(u64::MAX)
                    .max(1)
            });
            bytes.extend_from_slice(&deadline.to_le_bytes());
            let headers = u32::try_from(headers).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&headers.to_le_bytes());
            if let Some(source) = &self.source {
                bytes.push(source.body_kinds);
                bytes.extend_from_slice(&source.device_type.to_le_bytes());
                bytes.extend_from_slice(&source.device_id.to_le_bytes());
                bytes.extend_from_slice(&source.features.to_le_bytes());
            } else if says_selection {
                bytes.extend_from_slice(&[0; REQUEST_SOURCE as usize]);
            }
            if says_selection {
                let selection = u32::try_from(selection).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&selection.to_le_bytes());
            }
            if says_number {
                bytes.extend_from_slice(&self.number.to_le_bytes());
            }
            self.headers.encode(&mut bytes);
            self.selection.encode(&mut bytes);
        }
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
            ProtocolError::new(
                "E1",
                format!(
                    "request of {} bytes is malformed: see docs/wire.md",
                    bytes.len()
                ),
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
            let text = format!("request with {len} bytes of headers, selection and ticket");
            return Err(ProtocolError::new("Q1", text));
        }
        request.ticket = ticket.to_vec();
        if request.min_version == 0 || request.min_version > request.max_version {
            return Err(ProtocolError::new(
                "E1",
                format!(
                    "request for versions {} to {} of the extension: there is none",
                    request.min_version, request.max_version
                ),
            ));
        }
        if request.verb.has_source() && request.source.is_none() {
            return Err(ProtocolError::new(
                "Q3",
                format!(
                    "request to {} that describes no stream",
                    request.verb.name()
                ),
            ));
        }
        Ok(request)
    }

    /// The request without its parts of variable length, and the bytes of these.
    fn fields(bytes: &[u8]) -> Option<(Self, VariableParts<'_>)> {
        let mut fields = Fields::new(bytes);
        let fixed = fields.take::<u16>()?;
        let mut request = Self {
            min_version: fields.take::<u16>()?,
            max_version: fields.take::<u16>()?,
            features: fields.take::<u64>()?,
            credit: Credit {
                batches: fields.take::<u64>()?,
                bytes: fields.take::<u64>()?,
            },
            lent_limit: fields.take::<u64>()?,
            stream_id: fields.take::<u128>()?,
            device_type: HOST,
            gpus: Vec::new(),
            verb: Verb::Get,
            deadline: None,
            headers: Headers::new(),
            source: None,
            selection: Selection::new(),
            number: 0,
            ticket: Vec::new(),
        };
        let (mut known, mut headers, mut selection) = (REQUEST_FIXED, 0, 0);
        if fixed > REQUEST_FIXED {
            request.device_type = fields.take::<i32>()?;
            let count = fields.take::<u8>()?;
            let uuids = u16::from(count).checked_mul(UUID_BYTES_16)?;
            known = REQUEST_DEVICES.checked_add(uuids)?;
            // A check before the UUIDs are read, because the client chose the count.
            fixed.checked_sub(known)?;
            for _ in 0..count {
                request.gpus.push(fields.chunk()?);
            }
            let verb = known.checked_add(REQUEST_VERB)?;
            if fixed >= verb {
                known = verb;
                request.verb = Verb::from_number(fields.take::<u8>()?);
                let deadline = Some(fields.take::<u64>()?).filter(|deadline| *deadline > 0);
                request.deadline = deadline.map(Duration::from_nanos);
                headers = usize::try_from(fields.take::<u32>()?).ok()?;
            }
            let source = known.checked_add(REQUEST_SOURCE)?;
            if fixed >= source {
                known = source;
                let source = StreamInfo {
                    body_kinds: fields.take::<u8>()?,
                    device_type: fields.take::<i32>()?,
                    device_id: fields.take::<i64>()?,
                    features: fields.take::<u64>()?,
                    version: request.max_version,
                };
                request.source = request.verb.has_source().then_some(source);
            }
            let selected = source.checked_add(REQUEST_SELECTION)?;
            if fixed >= selected {
                known = selected;
                selection = usize::try_from(fields.take::<u32>()?).ok()?;
            }
            let numbered = selected.checked_add(REQUEST_NUMBER)?;
            if fixed >= numbered {
                known = numbered;
                request.number = fields.take::<u32>()?;
            }
        }
        fields.skip(usize::from(fixed.checked_sub(known)?))?;
        let (headers, rest) = fields.rest().split_at_checked(headers)?;
        let (selection, ticket) = rest.split_at_checked(selection)?;
        let parts = VariableParts {
            headers,
            selection,
            ticket,
        };
        Some((request, parts))
    }
}

/// The bytes of a request behind its fields of fixed length.
struct VariableParts<'a> {
    headers: &'a [u8],
    selection: &'a [u8],
    ticket: &'a [u8],
}

/// `ARROW_DEVICE_CPU`
const HOST: i32 = 1;

/// [`UUID_BYTES`] in the type of the length field.
const UUID_BYTES_16: u16 = 16;
