//! What a stream on its way out needs from its server, and what a server says about the stream.

use std::sync::Arc;

use crate::arrow::EncodeOptions;
use crate::device::DeviceKind;
use crate::device::cuda::Driver;
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::figures::{Counters, Record, TIMED_BATCHES};
use crate::driver::telling::Account;
use crate::error::Result;
use crate::proto::Timestamp;
use crate::transport::BodyPolicy;

/// Where a stream on its way out is counted.
#[derive(Debug, Clone)]
pub enum Counting {
    /// With the request that a server answers.
    Request(Arc<Record>),
    /// By itself, at a client that sends.
    Alone(Arc<Counters>),
}

impl Counting {
    pub(super) fn counters(&self) -> &Arc<Counters> {
        match self {
            Self::Request(record) => record.counters(),
            Self::Alone(counters) => counters,
        }
    }

    /// The log's account of a stream that begins.
    pub(super) fn account(&self, ticket: &[u8], peer: &str) -> Option<Box<Account>> {
        match self {
            Self::Request(record) => Some(Account::of_request(record, ticket, peer)),
            Self::Alone(_) => Account::open("to", ticket, peer),
        }
    }

    /// When the producer gave batch `number`, counted from 0, if that batch is timed. Not all are
    /// timed, because reading the clock costs more than all counters of a batch.
    pub(super) fn given(&self, number: u64) -> Option<Timestamp> {
        match self {
            Self::Request(_) if number.is_multiple_of(TIMED_BATCHES) => Some(clock::now()),
            Self::Request(_) | Self::Alone(_) => None,
        }
    }
}

/// What a stream on its way out needs from its server.
#[derive(Clone)]
pub struct ProduceOptions {
    /// How headers and bodies are made.
    pub encode: EncodeOptions,
    /// How bodies travel.
    pub body: BodyPolicy,
    /// Where the producer's arrays are released.
    pub callbacks: Callbacks,
    /// Where figures are counted.
    pub counting: Counting,
}

/// Fails if arrays of this Arrow device type cannot be served. The client learns that before the
/// stream begins.
pub(super) fn ensure_served(device_type: i32) -> Result<()> {
    let kind = DeviceKind(device_type);
    match kind {
        DeviceKind::CUDA | DeviceKind::CUDA_HOST | DeviceKind::CUDA_MANAGED => {
            Driver::get().map(drop).map_err(|error| {
                error.context(format!(
                    "memory of Arrow device type {} cannot be served here",
                    kind.0
                ))
            })
        }
        _ => kind.ensure_readable(),
    }
}
