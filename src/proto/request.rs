//! Our extension's request (rule E1); `docs/wire.md` has the exact bytes.

use crate::error::Error;
use crate::proto::ProtocolError;
use crate::proto::extension::{Credit, FEATURE_IN_PLACE, FEATURE_RETURN, UUID_BYTES, VERSION};
use crate::proto::wire::Fields;

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
    /// What is asked for, opaque (rule M1).
    pub ticket: Vec<u8>,
}

/// Most bytes of a ticket: with what else a request says it fits into the 1 MiB that a server takes
/// of one message.
pub const MAX_TICKET_BYTES: usize = 1016 << 10;

/// Refuses a ticket that no request can carry.
///
/// # Errors
///
/// `InvalidArgument`, with the limit.
pub fn ensure_ticket_fits(ticket: &[u8]) -> Result<(), Error> {
    if ticket.len() <= MAX_TICKET_BYTES {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a ticket has {} bytes; the limit is {MAX_TICKET_BYTES}",
        ticket.len()
    )))
}

/// Length of the fixed part of a request that says nothing of devices, the length itself included.
const REQUEST_FIXED: u16 = 54;

/// The same, where it says where bodies shall be and that no GPU is reached.
const REQUEST_DEVICES: u16 = 59;

impl Request {
    /// A request for `ticket` in the version that this build speaks.
    pub fn new(ticket: impl Into<Vec<u8>>, credit: Credit) -> Self {
        Self {
            min_version: VERSION,
            max_version: VERSION,
            features: FEATURE_IN_PLACE | FEATURE_RETURN,
            credit,
            lent_limit: u64::MAX,
            stream_id: 0,
            device_type: HOST,
            gpus: Vec::new(),
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

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let count = u8::try_from(self.gpus.len()).unwrap_or(u8::MAX);
        // Most clients want bodies on the host: servers of earlier releases then see what they
        // know.
        let says_more = self.device_type != HOST || count > 0;
        let fixed = if says_more {
            REQUEST_DEVICES.saturating_add(u16::from(count).saturating_mul(UUID_BYTES_16))
        } else {
            REQUEST_FIXED
        };
        let capacity = usize::from(fixed).saturating_add(self.ticket.len());
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(&fixed.to_le_bytes());
        bytes.extend_from_slice(&self.min_version.to_le_bytes());
        bytes.extend_from_slice(&self.max_version.to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        bytes.extend_from_slice(&self.credit.batches.to_le_bytes());
        bytes.extend_from_slice(&self.credit.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.lent_limit.to_le_bytes());
        bytes.extend_from_slice(&self.stream_id.to_le_bytes());
        if says_more {
            bytes.extend_from_slice(&self.device_type.to_le_bytes());
            bytes.push(count);
            for gpu in self.gpus.iter().take(usize::from(count)) {
                bytes.extend_from_slice(gpu);
            }
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
        let request = Self::fields(bytes).ok_or_else(|| {
            ProtocolError::new(
                "E1",
                format!(
                    "request of {} bytes is malformed: see docs/wire.md",
                    bytes.len()
                ),
            )
        })?;
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

    fn fields(bytes: &[u8]) -> Option<Self> {
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
            ticket: Vec::new(),
        };
        let mut known = REQUEST_FIXED;
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
        }
        fields.skip(usize::from(fixed.checked_sub(known)?))?;
        Some(Self {
            ticket: fields.rest().to_vec(),
            ..request
        })
    }
}

/// `ARROW_DEVICE_CPU`
const HOST: i32 = 1;

/// [`UUID_BYTES`] as the fields of a request count.
const UUID_BYTES_16: u16 = 16;
