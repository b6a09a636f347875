//! Decoded arrays in flat form, between the header and the C structs, for checks, joins and the
//! export. A batch needs a few allocations, whatever its number of columns.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arrow::abi::ArrowArray;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::grown::Grown;
use crate::arrow::decode::plain::Plain;
use crate::arrow::decode::remote::RemoteParts;
use crate::arrow::decode::totals::Kept;
use crate::device::gpu::{ArrayMemory, Gpu};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};

/// The owners of the arrays' memory.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// For arrays on a GPU. Dropped first, because its work must end before the memory is freed.
    pub(super) gpu: Option<Box<ArrayMemory>>,
    /// The body, as the driver received or mapped it.
    pub(super) body: Option<Arc<dyn Any + Send + Sync>>,
    /// All dictionaries of a batch, so that many columns cost no more than one. Only batches have
    /// this: a dictionary with it would hold all its predecessors.
    pub(super) dictionaries: Option<Arc<ReceivedDictionaries>>,
    /// Dictionaries of columns, in order of the nodes of their values.
    pub(super) inner: Vec<(usize, Arc<Columns>)>,
    /// Memory that the decoder allocated.
    pub(super) memory: Vec<HostBuffer>,
    /// Memory of a joined dictionary, by address.
    pub(super) grown: BTreeMap<usize, Arc<Grown>>,
}

/// A buffer of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffer {
    pub(super) at: BufferRef,
    /// True if nobody else can write to the memory.
    pub(super) private: bool,
}

impl Buffer {
    /// NULL, for a missing validity bitmap.
    pub(super) const ABSENT: Self = Self {
        at: BufferRef::EMPTY,
        private: true,
    };

    /// Not NULL, but without bytes: consumers expect that of all empty buffers except validity. The
    /// zeros also serve as offsets of an array of length 0.
    #[inline]
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

/// A dictionary, as batches use it.
#[derive(Debug, Clone)]
pub(super) struct Dictionary {
    pub(super) columns: Arc<Columns>,
    /// The number of the replacement; a delta keeps it.
    pub(super) generation: u64,
    /// True if the values were checked.
    pub(super) checked: bool,
    /// The bytes that stay with it.
    pub(super) kept: Kept,
}

/// The latest dictionaries, by id.
pub(super) type ReceivedDictionaries = BTreeMap<i64, Dictionary>;

/// One array in [`Columns`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) length: i64,
    pub(super) null_count: i64,
    /// The first index of its buffers in `Columns::buffers`.
    pub(super) first_buffer: usize,
    pub(super) n_buffers: usize,
    /// The first index of its children in `Columns::children`.
    pub(super) first_child: usize,
    pub(super) n_children: usize,
    /// The node of its dictionary's values.
    pub(super) dictionary: Option<usize>,
    /// [`Dictionary::generation`] of its dictionary.
    pub(super) generation: u64,
    /// The first index in `Columns::lengths` of its last buffer, the lengths of view buffers;
    /// [`NO_LENGTHS`] if the last buffer is an ordinary one.
    pub(super) lengths: usize,
}

/// See [`Node::lengths`].
pub(super) const NO_LENGTHS: usize = usize::MAX;

impl Node {
    /// The length as a count of elements in memory.
    #[inline]
    pub(super) fn len(&self) -> Result<usize> {
        usize::try_from(self.length)
            .map_err(|_| Error::invalid_data(format!("an array of length {}", self.length)))
    }

    /// The index of its buffer `index` in `Columns::buffers`.
    pub(super) fn buffer(&self, index: usize) -> usize {
        self.first_buffer + index
    }
}

/// Arrays in flat form. Node 0 is the root.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) nodes: Vec<Node>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) children: Vec<usize>,
    /// Lengths of view buffers. The C data interface has a buffer for them, which
    /// [`settle`](Self::settle) or the export makes, once their number is known.
    pub(super) lengths: Vec<i64>,
    pub(super) holds: Holds,
    /// During the build of a body on a GPU: the fetched values.
    pub(super) remote: Option<Box<RemoteParts>>,
}

impl Columns {
    /// A node whose buffers and children begin at the next free indexes.
    #[inline]
    pub(super) fn blank(&self, length: i64, null_count: i64) -> Node {
        Node {
            length,
            null_count,
            first_buffer: self.buffers.len(),
            n_buffers: 0,
            first_child: self.children.len(),
            n_children: 0,
            dictionary: None,
            generation: 0,
            lengths: NO_LENGTHS,
        }
    }

    /// Adds a node with room for children, and returns its index.
    #[inline]
    pub(super) fn push(&mut self, mut node: Node, n_children: usize) -> usize {
        node.first_child = self.children.len();
        node.n_children = n_children;
        if n_children > 0 {
            self.children.resize(node.first_child + n_children, 0);
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The nodes of the children of `node`.
    pub(super) fn children_of(&self, node: &Node) -> &[usize] {
        &self.children[node.first_child..node.first_child + node.n_children]
    }

    /// Child `index` of `node`.
    pub(super) fn child(&self, node: &Node, index: usize) -> &Node {
        &self.nodes[self.children_of(node)[index]]
    }

    /// The GPU of all buffers; `None` for arrays on the host.
    pub(super) fn device(&self) -> Option<&Arc<Gpu>> {
        self.holds.gpu.as_deref().map(ArrayMemory::device)
    }

    /// For each buffer, true if it belongs to the dictionary of a column.
    pub(super) fn of_dictionaries(&self) -> Vec<bool> {
        let mut marks = vec![false; self.buffers.len()];
        for node in &self.nodes {
            if let Some(dictionary) = node.dictionary {
                self.mark(dictionary, &mut marks);
            }
        }
        marks
    }

    fn mark(&self, id: usize, marks: &mut [bool]) {
        let node = &self.nodes[id];
        marks[node.first_buffer..][..node.n_buffers].fill(true);
        for child in self.children_of(node) {
            self.mark(*child, marks);
        }
    }

    /// Takes ownership of memory and describes it.
    pub(super) fn keep(&mut self, memory: HostBuffer) -> Buffer {
        let at = if memory.is_empty() {
            Buffer::empty().at
        } else {
            memory.as_ref()
        };
        self.holds.memory.push(memory);
        Buffer { at, private: true }
    }

    /// Removes all content, and keeps the memory of the lists.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.buffers.clear();
        self.children.clear();
        self.lengths.clear();
        self.holds = Holds::default();
    }

    /// Moves all lengths of view buffers into one allocation.
    pub(super) fn settle(&mut self) -> Result<()> {
        let lengths = std::mem::take(&mut self.lengths);
        if lengths.is_empty() {
            return Ok(());
        }
        let mut memory = HostBuffer::new(size_of_val(lengths.as_slice()))?;
        let slots = memory.as_mut_slice().as_chunks_mut::<8>().0;
        for (slot, length) in slots.iter_mut().zip(&lengths) {
            *slot = length.to_ne_bytes();
        }
        let start = memory.as_ref().data;
        for node in self.nodes.iter_mut().filter(|n| n.lengths != NO_LENGTHS) {
            let at = BufferRef {
                data: start.wrapping_add(node.lengths * size_of::<i64>()),
                len: (node.n_buffers - 3) * size_of::<i64>(),
            };
            self.buffers[node.first_buffer + node.n_buffers - 1] = Buffer { at, private: true };
            node.lengths = NO_LENGTHS;
        }
        self.holds.memory.push(memory);
        Ok(())
    }

    /// Appends the arrays of a dictionary without a copy, holds it, and returns its node.
    pub(super) fn append(&mut self, dictionary: &Arc<Columns>) -> usize {
        let place = self.append_held(dictionary);
        self.holds.inner.push((place, Arc::clone(dictionary)));
        place
    }

    /// As [`append`](Self::append), for a dictionary that the columns already hold.
    pub(super) fn append_held(&mut self, dictionary: &Columns) -> usize {
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
        nodes
    }

    /// Copies every buffer that others could write to, except those of dictionaries. Returns the
    /// copied bytes.
    pub(super) fn make_private(&mut self, budget: &DecodeBudget<'_>) -> Result<u64> {
        let mut copied = 0u64;
        let inner = self.of_dictionaries();
        for (place, inner) in inner.into_iter().enumerate() {
            let Buffer { at, private } = self.buffers[place];
            if !private && !inner {
                budget.take(at.len as u64)?;
                let memory = private_copy(at)?;
                copied = copied.saturating_add(memory.len() as u64);
                self.buffers[place] = self.keep(memory);
            }
        }
        Ok(copied)
    }

    /// Bytes of host memory that it holds, without the body and the dictionaries of its columns.
    pub(super) fn own_bytes(&self) -> u64 {
        let memory = self.holds.memory.iter().map(HostBuffer::len);
        let grown = self.holds.grown.values().map(|grown| grown.capacity());
        memory
            .chain(grown)
            .fold(0, |sum, len| sum.saturating_add(len as u64))
    }

    /// The bytes of another copy of the structs of these arrays.
    pub(super) fn struct_bytes(&self) -> u64 {
        struct_bytes(self.nodes.len(), self.buffers.len())
    }

    /// True if others could write to a buffer, except those of dictionaries.
    pub(super) fn is_shared(&self) -> bool {
        let inner = self.of_dictionaries();
        let mut buffers = self.buffers.iter().zip(inner);
        buffers.any(|(buffer, inner)| !buffer.private && !inner)
    }

    /// True if values are not fetched yet; they read as 0.
    pub(super) fn is_waiting(&self) -> bool {
        self.remote.as_deref().is_some_and(RemoteParts::is_waiting)
    }

    /// Element `index` of a buffer. Reads once only, since the peer may still write to it (rule
    /// A8). For a body on a GPU the result is 0 until the value is fetched.
    pub(super) fn read_once<T: Plain>(&self, buffer: usize, index: usize) -> Result<T> {
        let at = self.buffers[buffer].at;
        let end = index
            .checked_add(1)
            .and_then(|count| count.checked_mul(size_of::<T>()));
        if end.is_none_or(|end| end > at.len) {
            return Err(too_short(at.len, index, size_of::<T>()));
        }
        if let Some(remote) = &self.remote {
            return Ok(remote.read(at.data.addr() + index * size_of::<T>()));
        }
        let element = at.data.wrapping_add(index * size_of::<T>()).cast::<T>();
        ensure_aligned(element)?;
        // SAFETY: the element lies inside the buffer and is aligned, as checked above. `holds`
        // keeps the buffer alive on the host. Every bit pattern is a value of a `Plain` type.
        Ok(unsafe { element.read_volatile() })
    }

    /// The first `count` elements of a buffer that nobody writes to.
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
        // SAFETY: `count` elements lie inside the buffer and `first` is aligned, as checked above.
        // `holds` keeps the buffer alive on the host as long as self. Nobody writes to private
        // memory, and every bit pattern is a value of a `Plain` type.
        Ok(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// The bytes of a buffer that nobody writes to.
    pub(super) fn bytes(&self, buffer: usize) -> Result<&[u8]> {
        self.slice(buffer, self.buffers[buffer].at.len)
    }
}

/// The bytes of the structs of arrays, in the decoder and in the export.
pub(super) fn struct_bytes(nodes: usize, buffers: usize) -> u64 {
    const NODE: usize = size_of::<Node>() + size_of::<ArrowArray>() + 2 * size_of::<usize>();
    const BUFFER: usize = size_of::<Buffer>() + 2 * size_of::<usize>();
    let nodes = nodes.saturating_mul(NODE);
    nodes.saturating_add(buffers.saturating_mul(BUFFER)) as u64
}

fn ensure_aligned<T>(pointer: *const T) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    // The build has copied unaligned buffers.
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

/// Copies bytes into new memory. The source may be shared, so nothing is read twice.
pub(super) fn private_copy(source: BufferRef) -> Result<HostBuffer> {
    let mut memory = HostBuffer::new(source.len)?;
    if source.len != 0 {
        let target = memory.as_mut_slice().as_mut_ptr();
        // SAFETY: the source is readable for `len` bytes while its owner lives, and the caller
        // holds the owner. The target is a new allocation of that length, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source.data, target, source.len) };
    }
    Ok(memory)
}
