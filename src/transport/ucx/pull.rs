//! Pulling what a server lends: a client reads the memory that an address list names into memory of
//! its own, before the driver sees the list (rules D4, E3).
//!
//! UCX keeps no order between control messages and bodies: a list that names a region which the
//! server has not announced yet waits for it. What waits is bounded by what was posted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ucx1_sys::{
    UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCS_MEMORY_TYPE_HOST, UCS_OK,
    ucp_dt_make_contig, ucp_request_param_t, ucs_status_t,
};

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::{AddressList, BodyKind, Bytes, Span, body_of_tag};
use crate::transport::lend::split_address;
use crate::transport::ucx::ALIGNMENT;
use crate::transport::ucx::callbacks::{CallbackInbox, Ends, Started, Work};
use crate::transport::ucx::endpoint::Endpoint;
use crate::transport::ucx::error::error;
use crate::transport::ucx::key::Key;
use crate::transport::ucx::worker::Worker;
use crate::transport::{Incoming, Resolved};

/// Reads under way at a time on one connection; more wait here, where they cost less than in UCX.
const READS_AT_ONCE: usize = 64;

/// What the regions of one server brought, and what is being read from them.
#[derive(Default)]
pub(super) struct Pulls {
    /// The server speaks our extension, and so may announce regions.
    announces: bool,
    /// Regions by id.
    regions: HashMap<u16, PulledRegion>,
    /// The key of the URI's `remote_handle`: to addresses that are in no region.
    plain: Option<Arc<Key>>,
    /// Lengths of the packed bodies that are posted, by sequence number.
    posted: HashMap<u32, u64>,
    /// Lists that name a region which is not announced yet.
    early: Vec<List>,
    /// Lists being read, by a number of their own.
    lists: HashMap<u64, Pull>,
    next_list: u64,
    /// Reads that have not begun.
    queue: VecDeque<Read>,
    under_way: usize,
    /// Lists that are read whole and that the driver has not asked for yet.
    pulled: HashMap<u32, Pulled>,
}

/// A region that the server announced.
struct PulledRegion {
    base: u64,
    length: u64,
    key: Arc<Key>,
}

/// An address list as it came.
struct List {
    seq: u32,
    /// The whole message, for the driver.
    tag: u64,
    bytes: Bytes,
    spans: Vec<Span>,
    /// Length of the packed body that its header announces.
    packed: u64,
}

/// A list being read.
struct Pull {
    seq: u32,
    tag: u64,
    bytes: Bytes,
    pulled: Pulled,
    /// Reads that are not over.
    left: usize,
    /// The stream goes on, and nothing has failed.
    wanted: bool,
    /// The keys that it is read with.
    _keys: Vec<Arc<Key>>,
}

/// Memory that was read, and where in it each span is.
struct Pulled {
    memory: Arc<HostBuffer>,
    buffers: Vec<BufferRef>,
}

/// One read.
struct Read {
    list: u64,
    memory: Arc<HostBuffer>,
    target: BufferRef,
    address: u64,
    key: Arc<Key>,
}

/// What reads go through.
pub(super) struct ReadLane<'a> {
    /// The connection's worker.
    pub worker: &'a mut Worker,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// What callbacks tell.
    pub shared: &'a Arc<CallbackInbox>,
}

impl Pulls {
    /// For a server that `announces` regions, or has given the key to plain addresses in its URI
    /// (rule U2), or both.
    pub(super) fn new(announces: bool, plain: Option<Key>) -> Self {
        Self {
            announces,
            plain: plain.map(Arc::new),
            ..Self::default()
        }
    }

    /// A body is posted that has `packed` bytes if it comes packed.
    pub(super) fn expect(&mut self, seq: u32, packed: u64) {
        self.posted.insert(seq, packed);
    }

    /// Looks at a message before the driver does. A list stays here until it is read.
    ///
    /// # Errors
    ///
    /// `Protocol` for a list that makes no sense; `OutOfMemory`.
    pub(super) fn take_in(
        &mut self,
        line: &mut ReadLane<'_>,
        message: Incoming,
    ) -> Result<Option<Incoming>> {
        let (tag, bytes) = match message {
            Incoming::Tagged { tag, bytes } => (tag, bytes),
            Incoming::Body { seq, .. } | Incoming::GpuBody { seq, .. } => {
                self.posted.remove(&seq);
                return Ok(Some(message));
            }
            other => return Ok(Some(other)),
        };
        let Some((seq, BodyKind::List)) = body_of_tag(tag) else {
            return Ok(Some(Incoming::Tagged { tag, bytes }));
        };
        let packed = self.posted.remove(&seq).unwrap_or(0);
        let AddressList { total, spans } = AddressList::decode(&bytes)?;
        if total > packed {
            // Rule A1, and before any memory is taken.
            return Err(Error::protocol(format!(
                "the address list of message {seq} names {total} bytes; its header announces \
                 {packed}"
            )));
        }
        let list = List {
            seq,
            tag,
            bytes,
            spans,
            packed,
        };
        self.begin_or_wait(line, list)
    }

    fn begin_or_wait(&mut self, line: &mut ReadLane<'_>, list: List) -> Result<Option<Incoming>> {
        let unknown = |span: &&Span| span.length > 0 && self.find(span).is_none();
        match list.spans.iter().find(unknown) {
            None => self.begin(line, list),
            Some(span) if !self.announces || split_address(span.address).0 == 0 => {
                Err(Error::protocol(format!(
                    // Rule U2.
                    "the address list of message {} names {:#x}, which is in no region and cannot \
                     be reached by a remote_handle of the server's URI",
                    list.seq, span.address
                )))
            }
            Some(_) => {
                self.early.push(list);
                Ok(None)
            }
        }
    }

    /// Where a span is at the server, or the error that it is outside its region. `None`: its
    /// region is not known.
    fn find(&self, span: &Span) -> Option<Result<(u64, &Arc<Key>)>> {
        let (id, offset) = split_address(span.address);
        if id == 0 {
            return self.plain.as_ref().map(|key| Ok((span.address, key)));
        }
        let region = self.regions.get(&id)?;
        let inside = offset
            .checked_add(span.length)
            .filter(|end| *end <= region.length)
            .and_then(|_| region.base.checked_add(offset));
        Some(inside.map(|address| (address, &region.key)).ok_or_else(|| {
            Error::protocol(format!(
                "{} bytes at address {:#x} reach past region {id}, which has {} bytes",
                span.length, span.address, region.length
            ))
        }))
    }

    /// Takes memory for a list and begins to read. A list of empty buffers is there at once.
    fn begin(&mut self, line: &mut ReadLane<'_>, list: List) -> Result<Option<Incoming>> {
        let List {
            seq,
            tag,
            bytes,
            spans,
            packed,
        } = list;
        let too_long = || {
            Error::protocol(format!(
                // Rule A1.
                "the address list of message {seq} names more than its {packed} bytes"
            ))
        };
        let (mut offsets, mut end) = (Vec::with_capacity(spans.len()), 0u64);
        for span in &spans {
            offsets.push(end);
            end = span
                .length
                .checked_next_multiple_of(ALIGNMENT)
                .and_then(|length| end.checked_add(length))
                .ok_or_else(too_long)?;
        }
        let length = usize::try_from(end).map_err(|_| too_long())?;
        let memory = Arc::new(HostBuffer::to_fill(length)?);
        let whole = memory.as_ref().as_ref();
        let (mut buffers, mut reads) = (Vec::with_capacity(spans.len()), Vec::new());
        let mut keys: Vec<Arc<Key>> = Vec::new();
        let number = self.next_list;
        for (span, offset) in spans.iter().zip(offsets) {
            if span.length == 0 {
                buffers.push(BufferRef::EMPTY);
                continue;
            }
            let Some(found) = self.find(span) else {
                // Looked at before: regions do not go while a list is looked at.
                return Err(too_long());
            };
            let (address, key) = found?;
            let (offset, len) = (usize::try_from(offset), usize::try_from(span.length));
            let (Ok(offset), Ok(len)) = (offset, len) else {
                return Err(too_long());
            };
            let target = BufferRef {
                data: whole.data.wrapping_add(offset),
                len,
            };
            buffers.push(target);
            if keys.iter().all(|other| !Arc::ptr_eq(other, key)) {
                keys.push(Arc::clone(key));
            }
            reads.push(Read {
                list: number,
                memory: Arc::clone(&memory),
                target,
                address,
                key: Arc::clone(key),
            });
        }
        let pull = Pull {
            seq,
            tag,
            bytes,
            pulled: Pulled { memory, buffers },
            left: reads.len(),
            wanted: true,
            _keys: keys,
        };
        if reads.is_empty() {
            return Ok(self.deliver(pull));
        }
        self.next_list += 1;
        self.lists.insert(number, pull);
        self.queue.extend(reads);
        self.read_on(line);
        Ok(None)
    }

    /// Whether reads are under way.
    pub(super) fn is_reading(&self) -> bool {
        self.under_way > 0
    }

    /// Begins as many reads as may be under way.
    fn read_on(&mut self, line: &mut ReadLane<'_>) {
        if line.shared.with(|state| state.failed.is_some()) {
            // Nothing is to be had from an endpoint that is lost; its end is told by the
            // connection.
            return;
        }
        while self.under_way < READS_AT_ONCE {
            let Some(read) = self.queue.pop_front() else {
                return;
            };
            let Read {
                list,
                memory,
                target,
                address,
                key,
            } = read;
            let params = ucp_request_param_t {
                op_attr_mask: UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                datatype: ucp_dt_make_contig(1),
                memory_type: UCS_MEMORY_TYPE_HOST,
                ..ucp_request_param_t::default()
            };
            let (api, endpoint) = (line.worker.api(), line.endpoint.handle());
            let work = Work::Read { list, memory };
            self.under_way += 1;
            let started = line.shared.start(work, Ends::Send, params, |params| {
                let buffer = target.data.cast_mut().cast();
                // SAFETY: the endpoint lives; the target lies in memory that the operation holds,
                // no reference to it exists while it is read into, and no two reads have the same
                // part of it; the key was unpacked at this endpoint, and is kept by the list until
                // the operation is over.
                unsafe {
                    api.ucp_get_nbx(endpoint, buffer, target.len, address, key.handle(), params)
                }
            });
            if let Started::UnderWay(_) = started {
                // Whoever sleeps has armed the worker before this.
                line.worker.signal();
            }
        }
    }

    /// A read is over. Returns the list that was read whole with it.
    ///
    /// # Errors
    ///
    /// UCX could not read.
    pub(super) fn finish(
        &mut self,
        line: &mut ReadLane<'_>,
        list: u64,
        status: ucs_status_t,
    ) -> Result<Option<Incoming>> {
        self.under_way -= 1;
        self.read_on(line);
        let Some(pull) = self.lists.get_mut(&list) else {
            return Ok(None);
        };
        pull.left -= 1;
        let failed = status != UCS_OK && std::mem::replace(&mut pull.wanted, false);
        if pull.left == 0
            && let Some(pull) = self.lists.remove(&list)
            && pull.wanted
        {
            return Ok(self.deliver(pull));
        }
        if failed {
            let doing = "the memory that the server lent cannot be read";
            return Err(error(line.worker.api(), doing, status));
        }
        Ok(None)
    }

    fn deliver(&mut self, pull: Pull) -> Option<Incoming> {
        let Pull {
            seq,
            tag,
            bytes,
            pulled,
            ..
        } = pull;
        self.pulled.insert(seq, pulled);
        Some(Incoming::Tagged { tag, bytes })
    }

    /// The server announced a region: lists that waited for it are read.
    ///
    /// # Errors
    ///
    /// `Protocol` for an id in use, or a handle that is none.
    pub(super) fn map(
        &mut self,
        line: &mut ReadLane<'_>,
        id: u16,
        handle: &[u8],
    ) -> Result<Vec<Incoming>> {
        if id == 0 {
            return Err(Error::protocol(
                // Rule E3.
                "the server announced a region with the id 0",
            ));
        }
        if self.regions.contains_key(&id) {
            return Err(Error::protocol(format!(
                "the server announced region {id} twice (an id is free again only after \
                 REGION_GONE)"
            )));
        }
        let parts = handle
            .split_first_chunk::<8>()
            .and_then(|(base, rest)| Some((base, rest.split_first_chunk::<8>()?)));
        let Some((base, (length, key))) = parts else {
            return Err(Error::protocol(format!(
                "the handle of region {id} has {} bytes, which no address, length and key have",
                handle.len()
            )));
        };
        let (base, length) = (u64::from_le_bytes(*base), u64::from_le_bytes(*length));
        if base.checked_add(length).is_none() {
            return Err(Error::protocol(format!(
                "region {id} has {length} bytes at {base:#x}, past the end of all memory"
            )));
        }
        let key = Key::unpack(line.worker, line.endpoint, key)
            .map_err(|error| error.context(format_args!("region {id}")))?;
        let key = Arc::new(key);
        self.regions.insert(id, PulledRegion { base, length, key });
        let mut read = Vec::new();
        for list in std::mem::take(&mut self.early) {
            read.extend(self.begin_or_wait(line, list)?);
        }
        Ok(read)
    }

    /// The server retired a region. What is still read from it is read to the end.
    ///
    /// # Errors
    ///
    /// `Protocol` when no region has that id.
    pub(super) fn unmap(&mut self, id: u16) -> Result<()> {
        self.regions.remove(&id).map(drop).ok_or_else(|| {
            Error::protocol(format!(
                "the server retired region {id}, which it never announced"
            ))
        })
    }

    /// The memory of a list that was read.
    ///
    /// # Errors
    ///
    /// `Protocol` when none was for `seq`.
    pub(super) fn resolve(&mut self, seq: u32, spans: &[Span]) -> Result<Resolved> {
        let Pulled { memory, buffers } = self
            .pulled
            .remove(&seq)
            .filter(|pulled| pulled.buffers.len() == spans.len())
            .ok_or_else(|| {
                Error::protocol(format!(
                    // Rule U2.
                    "message {seq} came with a list of addresses, and nothing is lent on this \
                     connection"
                ))
            })?;
        Ok(Resolved {
            buffers,
            owner: memory,
            shared: false,
            pulled: true,
            gpu: None,
        })
    }

    /// The stream is over: what was read for it is not wanted any more. Memory that is still read
    /// into lives until that is over.
    pub(super) fn clear(&mut self) {
        self.posted.clear();
        self.early.clear();
        self.pulled.clear();
        for read in self.queue.drain(..) {
            if let Some(pull) = self.lists.get_mut(&read.list) {
                pull.left -= 1;
            }
        }
        self.lists.retain(|_, pull| {
            pull.wanted = false;
            pull.left > 0
        });
    }

    /// The connection is over: gives up everything that UCX has to do with. What was read stays,
    /// for the driver may not have asked for it yet.
    pub(super) fn detach(&mut self) -> Self {
        let pulled = std::mem::take(&mut self.pulled);
        let rest = Self {
            announces: self.announces,
            pulled,
            ..Self::default()
        };
        std::mem::replace(self, rest)
    }
}
