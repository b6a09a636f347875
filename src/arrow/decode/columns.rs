//! Decoded arrays in flat form, between the header and the C structs: what is checked, joined and
//! exported. A batch takes a handful of allocations, however many columns it has.

use std::any::Any;
use std::sync::Arc;

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};

/// Something that keeps memory alive for arrays.
#[derive(Debug)]
pub(super) enum Hold {
    /// The body, as the driver received or mapped it.
    Body(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Any + Send + Sync>),
    /// Memory made while decoding.
    Memory(#[expect(dead_code, reason = "held for its drop")] HostBuffer),
    /// The dictionary of some column.
    Dictionary(#[expect(dead_code, reason = "held for its drop")] Arc<Columns>),
}

/// A buffer of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffer {
    pub(super) at: BufferRef,
    /// Whether nobody else can write to the memory.
    pub(super) private: bool,
}

impl Buffer {
    /// NULL: a validity bitmap that is not there.
    pub(super) const ABSENT: Self = Self {
        at: BufferRef::EMPTY,
        private: true,
    };

    /// Not NULL and nothing to read: what consumers expect of empty buffers other than validity,
    /// and, being zeros, the offsets of an array of length 0.
    pub(super) fn empty() -> Self {
        #[repr(align(64))]
        struct Zeros([u8; 64]);
        static ZEROS: Zeros = Zeros([0; 64]);
        Self {
            at: BufferRef {
                data: ZEROS.0.as_ptr(),
                len: 0,
            },
            private: true,
        }
    }
}

/// A fixed-size number that any bytes are a value of.
///
/// # Safety
///
/// Every bit pattern of the type's size is a valid value, and it has no padding.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($number:ty)*) => {
        // SAFETY: the integers of Rust are defined for every bit pattern and have no padding.
        $(unsafe impl Plain for $number {})*
    };
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64);

/// One array among [`Columns`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) length: i64,
    pub(super) null_count: i64,
    /// Its buffers, in `Columns::buffers`.
    pub(super) first_buffer: usize,
    pub(super) n_buffers: usize,
    /// Its children, in `Columns::children`.
    pub(super) first_child: usize,
    pub(super) n_children: usize,
    /// The array of its dictionary's values.
    pub(super) dictionary: Option<usize>,
    /// Which dictionary that was: deltas keep the number, replacements change it.
    pub(super) generation: u64,
}

impl Node {
    /// The length as a count of elements in memory.
    pub(super) fn len(&self) -> Result<usize> {
        usize::try_from(self.length)
            .map_err(|_| Error::invalid_data(format!("an array of length {}", self.length)))
    }

    /// Place of its buffer `index` in `Columns::buffers`.
    pub(super) fn buffer(&self, index: usize) -> usize {
        self.first_buffer + index
    }
}

/// Arrays, flat. Node 0 is the one that all others belong to.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) nodes: Vec<Node>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) children: Vec<usize>,
    pub(super) holds: Vec<Hold>,
}

impl Columns {
    /// Nodes of the children of `node`.
    pub(super) fn children_of(&self, node: &Node) -> &[usize] {
        &self.children[node.first_child..node.first_child + node.n_children]
    }

    /// Child `index` of `node`.
    pub(super) fn child(&self, node: &Node, index: usize) -> &Node {
        &self.nodes[self.children_of(node)[index]]
    }

    /// Takes memory over and describes it.
    pub(super) fn keep(&mut self, memory: HostBuffer) -> Buffer {
        let at = if memory.is_empty() {
            Buffer::empty().at
        } else {
            memory.as_ref()
        };
        self.holds.push(Hold::Memory(memory));
        Buffer { at, private: true }
    }

    /// Appends the arrays of a dictionary, which stays where it is, and returns its node.
    pub(super) fn append(&mut self, dictionary: &Arc<Columns>) -> usize {
        let (nodes, buffers, children) =
            (self.nodes.len(), self.buffers.len(), self.children.len());
        self.nodes.extend(dictionary.nodes.iter().map(|node| Node {
            first_buffer: node.first_buffer + buffers,
            first_child: node.first_child + children,
            dictionary: node.dictionary.map(|inner| inner + nodes),
            ..*node
        }));
        self.buffers.extend_from_slice(&dictionary.buffers);
        self.children
            .extend(dictionary.children.iter().map(|child| child + nodes));
        self.holds.push(Hold::Dictionary(Arc::clone(dictionary)));
        nodes
    }

    /// Copies every buffer that somebody else could write to. Returns the bytes copied.
    pub(super) fn make_private(&mut self) -> Result<u64> {
        let mut copied = 0u64;
        for place in 0..self.buffers.len() {
            let Buffer { at, private } = self.buffers[place];
            if !private {
                let memory = private_copy(at)?;
                copied = copied.saturating_add(memory.len() as u64);
                self.buffers[place] = self.keep(memory);
            }
        }
        Ok(copied)
    }

    /// Element `index` of a buffer, read exactly once: the peer may still write to it (rule A8).
    pub(super) fn read_once<T: Plain>(&self, buffer: usize, index: usize) -> Result<T> {
        let at = self.buffers[buffer].at;
        let end = index
            .checked_add(1)
            .and_then(|count| count.checked_mul(size_of::<T>()));
        if end.is_none_or(|end| end > at.len) {
            return Err(too_short(at.len, index, size_of::<T>()));
        }
        let element = at.data.wrapping_add(index * size_of::<T>()).cast::<T>();
        ensure_aligned(element)?;
        // SAFETY: the element lies inside the buffer (checked above), which `holds` keeps alive on
        // the host; it is aligned (checked above); every bit pattern is a value of a `Plain` type.
        Ok(unsafe { element.read_volatile() })
    }

    /// The first `count` elements of a buffer whose memory nobody writes to.
    pub(super) fn slice<T: Plain>(&self, buffer: usize, count: usize) -> Result<&[T]> {
        let Buffer { at, private } = self.buffers[buffer];
        if count == 0 {
            return Ok(&[]);
        }
        if count
            .checked_mul(size_of::<T>())
            .is_none_or(|bytes| bytes > at.len)
        {
            return Err(too_short(at.len, count - 1, size_of::<T>()));
        }
        if !private {
            return Err(Error::invalid_data(
                "values in shared memory cannot be checked in place",
            ));
        }
        let first = at.data.cast::<T>();
        ensure_aligned(first)?;
        // SAFETY: `count` elements lie inside the buffer (checked above), which `holds` keeps
        // alive on the host as long as self; `first` is aligned (checked above); nobody writes to
        // private memory; every bit pattern is a value of a `Plain` type.
        Ok(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// The bytes of a buffer whose memory nobody writes to.
    pub(super) fn bytes(&self, buffer: usize) -> Result<&[u8]> {
        self.slice(buffer, self.buffers[buffer].at.len)
    }
}

fn ensure_aligned<T>(pointer: *const T) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    // Building has copied what was not aligned.
    Err(Error::invalid_data(format!(
        "a buffer is not aligned to {} bytes",
        align_of::<T>()
    )))
}

fn too_short(len: usize, index: usize, width: usize) -> Error {
    Error::invalid_data(format!(
        "a buffer of {len} bytes is too short for element {index} of {width} bytes"
    ))
}

/// Copies bytes into memory of our own. The source may be shared: nothing is read twice.
pub(super) fn private_copy(source: BufferRef) -> Result<HostBuffer> {
    let mut memory = HostBuffer::new(source.len)?;
    if source.len != 0 {
        let target = memory.as_mut_slice().as_mut_ptr();
        // SAFETY: the source is readable for `len` bytes while its owner lives, which the caller,
        // decoding, holds; the target was just allocated with that length, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source.data, target, source.len) };
    }
    Ok(memory)
}
