//! Our extension's request (rule E1); `docs/wire.md` has the exact bytes.

use crate::error::Error;
use std::time::Duration;

use crate::proto::extension::{
    Credit, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_RETURN, UUID_BYTES, VERSION,
};
use crate::proto::headers::{Headers, MAX_REQUEST_HEADERS};
use crate::proto::wire::Fields;
use crate::proto::{ProtocolError, Verb};

/// An extension request (rule E1): the payload of a message tagged `dipc_want`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Lowest version of the extension that the client speaks.
    pub min_version: u16,
    /// Highest one.
    pub max_version: u16,
    /// Bits of features that the client knows.
    pub features: u64,
    /// What the server may send before the first CREDIT.
    pub credit: Credit,
    /// Most bytes of copies that may be lent and not returned; past it bodies travel packed.
    pub lent_limit: u64,
    /// Joins the two connections of one stream (rule E6).
    pub stream_id: u128,
    /// Where the client wants bodies, as `ArrowDeviceType`: 1 on the host, 2 on a CUDA device, 0
    /// where the sender has them.
    pub device_type: i32,
    /// UUIDs of the GPUs whose memory on this host the client can map. At most 255 are sent.
    pub gpus: Vec<[u8; UUID_BYTES]>,
    /// What the client asks for (rule Q1).
    pub verb: Verb,
    /// How long the client waits for the end of the stream.
    pub deadline: Option<Duration>,
    /// Headers of the client's host.
    pub headers: Headers,
    /// The descriptor: opaque bytes (rule M1).
    pub ticket: Vec<u8>,
}

/// Most bytes of a ticket together with the headers. A server takes 1 MiB in one message, and the
/// other fields of a request fit beside them.
pub const MAX_TICKET_BYTES: usize = 1016 << 10;

/// Refuses a ticket that no request can carry.
///
/// # Errors
///
/// `InvalidArgument`, with the limit.
pub fn ensure_ticket_fits(ticket: &[u8]) -> Result<(), Error> {
    ensure_request_fits(ticket, &Headers::new())
}

/// Refuses a ticket and headers that no request can carry together (rule Q1).
///
/// # Errors
///
/// `InvalidArgument`, with the limit.
pub fn ensure_request_fits(ticket: &[u8], headers: &Headers) -> Result<(), Error> {
    headers.ensure_fit(MAX_REQUEST_HEADERS)?;
    let len = ticket.len().saturating_add(headers.encoded_len());
    if len <= MAX_TICKET_BYTES {
        return Ok(());
    }
    let with = if headers.is_empty() {
        ""
    } else {
        " with its headers"
    };
    Err(Error::invalid_argument(format!(
        "a ticket{with} has {len} bytes; the limit is {MAX_TICKET_BYTES}"
    )))
}

/// Length of the fixed part of a request that says nothing of devices, the length itself included.
const REQUEST_FIXED: u16 = 54;

/// The same with `device_type` and `gpus`, which is 0.
const REQUEST_DEVICES: u16 = 59;

/// Length of `verb`, `deadline` and `headers_len`.
const REQUEST_VERB: u16 = 13;

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
            ticket: ticket.into(),
        }
    }

    /// What a baseline peer's ticket stands for: no credit is counted (rule E5).
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

    /// What CANCEL and CREDIT name the stream by: the low half of its id. On a transport that does
    /// not keep control messages and requests in order, one of an earlier stream may come late.
    pub fn mark(&self) -> u64 {
        u64::try_from(self.stream_id & u128::from(u64::MAX)).unwrap_or_default()
    }

    /// The lowest version whose servers do what the request says: one of version 1 knows neither
    /// verbs nor headers.
    pub(crate) fn lowest_version(&self) -> u16 {
        if self.verb == Verb::Get && self.headers.is_empty() {
            self.min_version
        } else {
            self.min_version.max(2)
        }
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let count = u8::try_from(self.gpus.len()).unwrap_or(u8::MAX);
        // Most clients want bodies on the host: servers of earlier releases then see what they
        // know.
        let min_version = self.lowest_version();
        let says_verb = min_version > 1 || self.deadline.is_some();
        let says_devices = says_verb || self.device_type != HOST || count > 0;
        let mut fixed = REQUEST_FIXED;
        if says_devices {
            let gpus = u16::from(count).saturating_mul(UUID_BYTES_16);
            fixed = REQUEST_DEVICES.saturating_add(gpus);
        }
        if says_verb {
            fixed = fixed.saturating_add(REQUEST_VERB);
        }
        let headers = self.headers.encoded_len();
        let capacity = usize::from(fixed)
            .saturating_add(headers)
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
            self.headers.encode(&mut bytes);
        }
        bytes.extend_from_slice(&self.ticket);
        bytes
    }

    /// Reads a request; fields that a later version may have put before the ticket are skipped.
    ///
    /// # Errors
    ///
    /// Rule E1: it is too short, or its version range is empty.
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
        let (mut request, headers, ticket) = Self::fields(bytes).ok_or_else(malformed)?;
        request.headers = Headers::decode(headers, MAX_REQUEST_HEADERS)?;
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
        Ok(request)
    }

    /// The request without its headers and its ticket, and the bytes of these.
    fn fields(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let mut fields = Fields::new(bytes);
        let fixed = fields.u16()?;
        let mut request = Self {
            min_version: fields.u16()?,
            max_version: fields.u16()?,
            features: fields.u64()?,
            credit: Credit {
                batches: fields.u64()?,
                bytes: fields.u64()?,
            },
            lent_limit: fields.u64()?,
            stream_id: fields.u128()?,
            device_type: HOST,
            gpus: Vec::new(),
            verb: Verb::Get,
            deadline: None,
            headers: Headers::new(),
            ticket: Vec::new(),
        };
        let (mut known, mut headers) = (REQUEST_FIXED, 0);
        if fixed > REQUEST_FIXED {
            request.device_type = fields.i32()?;
            let count = fields.u8()?;
            let uuids = u16::from(count).checked_mul(UUID_BYTES_16)?;
            known = REQUEST_DEVICES.checked_add(uuids)?;
            // Before they are read: the count is the client's word.
            fixed.checked_sub(known)?;
            for _ in 0..count {
                request.gpus.push(fields.chunk()?);
            }
            let verb = known.checked_add(REQUEST_VERB)?;
            if fixed >= verb {
                known = verb;
                request.verb = Verb::from_number(fields.u8()?);
                let deadline = Some(fields.u64()?).filter(|deadline| *deadline > 0);
                request.deadline = deadline.map(Duration::from_nanos);
                headers = usize::try_from(fields.u32()?).ok()?;
            }
        }
        fields.skip(usize::from(fixed.checked_sub(known)?))?;
        let (headers, ticket) = fields.rest().split_at_checked(headers)?;
        Some((request, headers, ticket))
    }
}

/// `ARROW_DEVICE_CPU`
const HOST: i32 = 1;

/// [`UUID_BYTES`] as the fields of a request count.
const UUID_BYTES_16: u16 = 16;
