//! Pulling what a server lends: before the driver sees an address list, a client reads the memory
//! that the list names into memory of its own (rules D4, E3).
//!
//! Control messages and bodies may come in any order: a list may name a region that the server has
//! not announced yet, and then waits for the announcement. The bodies that were posted bound what
//! waits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::{AddressList, BodyKind, Bytes, Fields, Span, body_of_tag};
use crate::transport::lend::{beyond, ensure_new, never_announced, split_address};
use crate::transport::rdma::remote::{ALIGNMENT, RemoteRead, RemoteReads};
use crate::transport::{BodyPlace, Incoming, Resolved};

/// The regions of one server, and what is being read from them.
pub(in crate::transport) struct Pulls<K> {
    /// Whether the server speaks our extension, and so may announce regions.
    announces: bool,
    /// Regions by id.
    regions: HashMap<u16, PulledRegion<K>>,
    /// The key in the URI's `remote_handle`, for addresses that lie in no region.
    plain: Option<Arc<K>>,
    /// Lengths of the packed bodies that are posted.
    posted: HashMap<BodyPlace, u64>,
    /// Lists that name a region that is not announced yet.
    early: Vec<List>,
    /// Lists that are being read, by numbers of this module.
    lists: HashMap<u64, Pull<K>>,
    next_list: u64,
    /// Lists that were read completely but that the driver has not asked for yet.
    pulled: HashMap<BodyPlace, Pulled>,
}

/// A region that the server announced.
struct PulledRegion<K> {
    base: u64,
    length: u64,
    key: Arc<K>,
}

/// An address list as it came.
struct List {
    place: BodyPlace,
    /// The whole message, for the driver.
    tag: u64,
    bytes: Bytes,
    spans: Vec<Span>,
    /// Length of the body in packed form, which its header announces.
    packed: u64,
}

impl List {
    fn into_message(self) -> (u32, Incoming) {
        let Self { tag, bytes, .. } = self;
        (self.place.number, Incoming::Tagged { tag, bytes })
    }
}

/// A list that is being read.
struct Pull<K> {
    list: List,
    pulled: Pulled,
    /// Reads that have not ended.
    left: usize,
    fate: PullFate,
    /// The keys with which it is read, held until the reads have ended.
    _keys: Vec<Arc<K>>,
}

/// What to do with a list once all its reads are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PullFate {
    /// It is handed over with the memory.
    Wanted,
    /// It is handed over without the memory, so that the lease is given back.
    Unwanted,
    /// A read has failed, which ends the connection.
    Failed,
}

/// How one span of a list is read.
struct SpanRead<K> {
    /// The index of the span in its list.
    index: usize,
    address: u64,
    key: Arc<K>,
    /// The place of the bytes in the memory of the list.
    offset: usize,
    len: usize,
}

/// Memory that was read, and where each span lies in it.
struct Pulled {
    memory: Arc<HostBuffer>,
    buffers: Vec<BufferRef>,
}

impl<K> Pulls<K> {
    /// For a server that `announces` regions, or whose URI has the key to plain addresses (rule
    /// U2), or both.
    pub(in crate::transport) fn new(announces: bool, plain: Option<K>) -> Self {
        Self {
            announces,
            plain: plain.map(Arc::new),
            regions: HashMap::new(),
            posted: HashMap::new(),
            early: Vec::new(),
            lists: HashMap::new(),
            next_list: 0,
            pulled: HashMap::new(),
        }
    }

    /// Notes a posted body, which has `packed` bytes in packed form.
    pub(in crate::transport) fn expect(&mut self, place: BodyPlace, packed: u64) {
        self.posted.insert(place, packed);
    }

    /// Looks at a message of the stream `number` before the driver does. Keeps a list until it was
    /// read, unless nobody wants the list.
    ///
    /// # Errors
    ///
    /// `Protocol` for a list that is not valid; `OutOfMemory`.
    pub(in crate::transport) fn take_in(
        &mut self,
        link: &mut impl RemoteReads<Key = K>,
        (number, message): (u32, Incoming),
    ) -> Result<Option<(u32, Incoming)>> {
        let (tag, bytes) = match message {
            Incoming::Tagged { tag, bytes } => (tag, bytes),
            Incoming::Body { seq, .. } | Incoming::GpuBody { seq, .. } => {
                self.posted.remove(&BodyPlace { number, seq });
                return Ok(Some((number, message)));
            }
            other => return Ok(Some((number, other))),
        };
        let Some((seq, BodyKind::List)) = body_of_tag(tag) else {
            return Ok(Some((number, Incoming::Tagged { tag, bytes })));
        };
        let place = BodyPlace { number, seq };
        let Some(packed) = self.posted.remove(&place) else {
            return Ok(Some((number, Incoming::Tagged { tag, bytes })));
        };
        let AddressList { total, spans } = AddressList::decode(&bytes)?;
        if total > packed {
            // Rule A1. Checked before any memory is taken.
            return Err(Error::protocol(format!(
                "the address list of message {seq} names {total} bytes; its header announces \
                 {packed}"
            )));
        }
        let list = List {
            place,
            tag,
            bytes,
            spans,
            packed,
        };
        self.begin_or_wait(link, list)
    }

    fn begin_or_wait(
        &mut self,
        link: &mut impl RemoteReads<Key = K>,
        list: List,
    ) -> Result<Option<(u32, Incoming)>> {
        let unknown = |span: &&Span| span.length > 0 && self.find(span).is_none();
        match list.spans.iter().find(unknown) {
            None => self.begin(link, list),
            Some(span) if !self.announces || split_address(span.address).0 == 0 => {
                Err(Error::protocol(format!(
                    // Rule U2.
                    "the address list of message {} names {:#x}, which is in no region and cannot \
                     be reached by a remote_handle of the server's URI",
                    list.place.seq, span.address
                )))
            }
            Some(_) => {
                self.early.push(list);
                Ok(None)
            }
        }
    }

    /// The place of a span at the server, or the error that the span is outside its region. `None`:
    /// its region is not known.
    fn find(&self, span: &Span) -> Option<Result<(u64, &Arc<K>)>> {
        let (id, offset) = split_address(span.address);
        if id == 0 {
            return self.plain.as_ref().map(|key| Ok((span.address, key)));
        }
        let region = self.regions.get(&id)?;
        let inside = offset
            .checked_add(span.length)
            .filter(|end| *end <= region.length)
            .and_then(|_| region.base.checked_add(offset));
        let found = inside.map(|address| (address, &region.key));
        Some(found.ok_or_else(|| beyond(*span, region.length)))
    }

    /// Takes memory for a list and begins to read. A list of empty buffers is complete at once.
    fn begin(
        &mut self,
        link: &mut impl RemoteReads<Key = K>,
        list: List,
    ) -> Result<Option<(u32, Incoming)>> {
        let too_long = || {
            Error::protocol(format!(
                // Rule A1.
                "the address list of message {} names more than its {} bytes",
                list.place.seq, list.packed
            ))
        };
        let (mut reads, mut end) = (Vec::new(), 0_usize);
        for (index, span) in list.spans.iter().enumerate() {
            if span.length == 0 {
                continue;
            }
            // Found before: no region goes away during this call.
            let (address, key) = self.find(span).ok_or_else(too_long)??;
            let len = usize::try_from(span.length).map_err(|_| too_long())?;
            reads.push(SpanRead {
                index,
                address,
                key: Arc::clone(key),
                offset: end,
                len,
            });
            end = len
                .checked_next_multiple_of(ALIGNMENT)
                .and_then(|length| end.checked_add(length))
                .ok_or_else(too_long)?;
        }
        let memory = Arc::new(HostBuffer::to_fill(end)?);
        let data = memory.as_ref().as_ref().data;
        let mut buffers = vec![BufferRef::EMPTY; list.spans.len()];
        let number = self.next_list;
        let has_failed = link.has_failed();
        for read in &reads {
            let target = BufferRef {
                data: data.wrapping_add(read.offset),
                len: read.len,
            };
            buffers[read.index] = target;
            // A lost peer answers no read. The connection reports the end.
            if has_failed {
                continue;
            }
            let read = RemoteRead {
                list: number,
                address: read.address,
                key: &*read.key,
                target,
                memory: &memory,
            };
            // SAFETY: the target lies in the memory, and nobody has a reference to the memory
            // before every read is over; each span has its own part; the list below keeps the keys.
            // read is over; each span has a part of its own; the list below keeps the keys.
            unsafe { link.read(read) };
        }
        let pull = Pull {
            list,
            pulled: Pulled { memory, buffers },
            left: reads.len(),
            fate: PullFate::Wanted,
            _keys: reads.into_iter().map(|read| read.key).collect(),
        };
        if pull.left == 0 {
            return Ok(Some(self.deliver(pull)));
        }
        self.next_list += 1;
        self.lists.insert(number, pull);
        Ok(None)
    }

    /// Whether reads are under way.
    pub(in crate::transport) fn is_reading(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Notes the end of a read. Returns the list if this was its last read.
    ///
    /// # Errors
    ///
    /// Memory that a list names could not be read.
    pub(in crate::transport) fn finish(
        &mut self,
        list: u64,
        outcome: Result<()>,
    ) -> Result<Option<(u32, Incoming)>> {
        let Some(pull) = self.lists.get_mut(&list) else {
            return Ok(None);
        };
        pull.left -= 1;
        // One error for each list that is still wanted.
        let outcome = match outcome {
            Err(error) if pull.fate == PullFate::Wanted => {
                pull.fate = PullFate::Failed;
                Err(error)
            }
            _ => Ok(None),
        };
        if pull.left == 0
            && let Some(pull) = self.lists.remove(&list)
            && pull.fate != PullFate::Failed
        {
            return Ok(Some(self.deliver(pull)));
        }
        outcome
    }

    fn deliver(&mut self, pull: Pull<K>) -> (u32, Incoming) {
        if pull.fate == PullFate::Wanted {
            self.pulled.insert(pull.list.place, pull.pulled);
        }
        pull.list.into_message()
    }

    /// The server announced a region. Begins to read the lists that waited for it.
    ///
    /// # Errors
    ///
    /// `Protocol` for an id in use, or a handle that is not valid.
    pub(in crate::transport) fn map(
        &mut self,
        link: &mut impl RemoteReads<Key = K>,
        id: u16,
        handle: &[u8],
    ) -> Result<Vec<(u32, Incoming)>> {
        ensure_new(id, self.regions.contains_key(&id))?;
        let mut fields = Fields::new(handle);
        let (Some(base), Some(length)) = (fields.take::<u64>(), fields.take::<u64>()) else {
            return Err(Error::protocol(format!(
                "the handle of region {id} has {} bytes, which no address, length and key have",
                handle.len()
            )));
        };
        if base.checked_add(length).is_none() {
            return Err(Error::protocol(format!(
                "region {id} has {length} bytes at {base:#x}, past the end of all memory"
            )));
        }
        let key = link
            .unpack(fields.rest())
            .map_err(|error| error.context(format_args!("region {id}")))?;
        let key = Arc::new(key);
        self.regions.insert(id, PulledRegion { base, length, key });
        let mut read = Vec::new();
        for list in std::mem::take(&mut self.early) {
            read.extend(self.begin_or_wait(link, list)?);
        }
        Ok(read)
    }

    /// The server retired a region. Reads from it that are under way go on to their end.
    ///
    /// # Errors
    ///
    /// `Protocol` when no region has that id.
    pub(in crate::transport) fn unmap(&mut self, id: u16) -> Result<()> {
        let known = self.regions.remove(&id);
        known.map(drop).ok_or_else(|| never_announced(id))
    }

    /// The memory of a list that was read.
    ///
    /// # Errors
    ///
    /// `Protocol` if no list was read for this body.
    pub(in crate::transport) fn resolve(
        &mut self,
        place: BodyPlace,
        spans: &[Span],
    ) -> Result<Resolved> {
        let Pulled { memory, buffers } = self
            .pulled
            .remove(&place)
            .filter(|pulled| pulled.buffers.len() == spans.len())
            .ok_or_else(|| {
                Error::protocol(format!(
                    // Rule U2.
                    "message {} came with a list of addresses, and nothing is lent on this \
                     connection",
                    place.seq
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

    /// Nobody wants the stream `number` any more. Returns its lists that wait to be read. A list
    /// that is being read is handed over after its reads, without the memory.
    pub(in crate::transport) fn forget(&mut self, number: u32) -> Vec<(u32, Incoming)> {
        self.posted.retain(|place, _| place.number != number);
        self.pulled.retain(|place, _| place.number != number);
        for pull in self.lists.values_mut() {
            if pull.list.place.number == number && pull.fate == PullFate::Wanted {
                pull.fate = PullFate::Unwanted;
            }
        }
        let is_of_stream = |list: &mut List| list.place.number == number;
        let unread = self.early.extract_if(.., is_of_stream);
        unread.map(List::into_message).collect()
    }

    /// The connection is over. Returns everything that the transport still works on. What was read
    /// completely stays, because the driver may not have asked for it yet.
    pub(in crate::transport) fn detach(&mut self) -> Self {
        let mut rest = Self::new(self.announces, None);
        rest.pulled = std::mem::take(&mut self.pulled);
        std::mem::replace(self, rest)
    }
}
