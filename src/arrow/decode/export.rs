//! Export of decoded arrays and fields as C structs that release themselves.

use std::alloc::{Layout, LayoutError, alloc, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::arrow::abi::{
    ArrowArray, ArrowDeviceArray, ArrowSchema, FLAG_DICTIONARY_ORDERED, FLAG_MAP_KEYS_SORTED,
    FLAG_NULLABLE,
};
use crate::arrow::decode::columns::{Columns, Holds, NO_LENGTHS, Node};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::Type;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::DeviceKind;
use crate::error::{Error, Result};

/// The shared block of all arrays of one batch: one allocation with this struct and then the parts
/// of [`Places`]. It counts its arrays, so that a child that was moved out survives its parent.
struct ExportBlock {
    /// Arrays that are not released.
    live: AtomicUsize,
    /// The layout of the whole allocation.
    layout: Layout,
    /// The owners of the buffers' memory.
    holds: Holds,
}

const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    // The last release drops the block, on any thread.
    any_thread::<ExportBlock>();
};

/// The parts of a block.
struct Places {
    /// The structs of all arrays but the root. Consumers write to them when they release or move
    /// them.
    arrays: *mut ArrowArray,
    children: *mut *mut ArrowArray,
    buffers: *mut *const c_void,
    /// Lengths of view buffers.
    lengths: *mut i64,
}

impl Places {
    /// A block for these arrays. Writes the head only.
    fn new(columns: &mut Columns) -> Result<(NonNull<ExportBlock>, Self)> {
        let refused = || Error::out_of_memory("no memory for the structs of a batch");
        let parts = || {
            let block = Layout::new::<ExportBlock>();
            let (block, arrays) =
                block.extend(Layout::array::<ArrowArray>(columns.nodes.len() - 1)?)?;
            let (block, children) =
                block.extend(Layout::array::<*mut ArrowArray>(columns.children.len())?)?;
            let (block, buffers) =
                block.extend(Layout::array::<*const c_void>(columns.buffers.len())?)?;
            let (layout, lengths) = block.extend(Layout::array::<i64>(columns.lengths.len())?)?;
            Ok::<_, LayoutError>((layout, [arrays, children, buffers, lengths]))
        };
        let (layout, [arrays, children, buffers, lengths]) = parts().map_err(|_| refused())?;
        // SAFETY: the layout contains the head, so it is not empty.
        let memory = unsafe { alloc(layout) };
        let block = NonNull::new(memory.cast::<ExportBlock>()).ok_or_else(refused)?;
        let head = ExportBlock {
            live: AtomicUsize::new(columns.nodes.len()),
            layout,
            holds: mem::take(&mut columns.holds),
        };
        // SAFETY: by its layout the memory begins with room for a block, and nobody else uses it.
        unsafe { block.write(head) };
        let places = Self {
            arrays: memory.wrapping_add(arrays).cast(),
            children: memory.wrapping_add(children).cast(),
            buffers: memory.wrapping_add(buffers).cast(),
            lengths: memory.wrapping_add(lengths).cast(),
        };
        Ok((block, places))
    }

    /// The C struct of a node.
    fn array(&self, node: &Node, block: NonNull<ExportBlock>) -> ArrowArray {
        let at = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        ArrowArray {
            length: node.length,
            null_count: node.null_count,
            offset: 0,
            n_buffers: at(node.n_buffers),
            n_children: at(node.n_children),
            buffers: entries(self.buffers, node.first_buffer, node.n_buffers),
            children: entries(self.children, node.first_child, node.n_children),
            dictionary: node.dictionary.map_or(ptr::null_mut(), |id| self.slot(id)),
            release: Some(release_array),
            private_data: block.as_ptr().cast(),
        }
    }

    /// The address of the struct of node `id`, which is not 0.
    fn slot(&self, id: usize) -> *mut ArrowArray {
        self.arrays.wrapping_add(id - 1)
    }
}

/// The address of a node's entries; NULL without entries.
fn entries<T>(all: *mut T, first: usize, count: usize) -> *mut T {
    if count == 0 {
        ptr::null_mut()
    } else {
        all.wrapping_add(first)
    }
}

/// Exports decoded arrays; node 0 is the root. The content of `columns` is not usable afterwards.
pub(super) fn array(columns: &mut Columns) -> Result<OwnedDeviceArray> {
    let mut device = ArrowDeviceArray::empty();
    if let Some(gpu) = &columns.holds.gpu {
        device.device_type = DeviceKind::CUDA.0;
        device.device_id = gpu.device().ordinal().into();
        // The event is on the heap, so its address is stable; the block owns it.
        device.sync_event = gpu.sync_event();
    }
    let (block, places) = Places::new(columns)?;
    for (index, buffer) in columns.buffers.iter().enumerate() {
        let place = places.buffers.wrapping_add(index);
        // SAFETY: the block has room for the buffers of `columns`, and nobody else uses it.
        unsafe { place.write(buffer.at.data.cast()) };
    }
    for (index, child) in columns.children.iter().enumerate() {
        let place = places.children.wrapping_add(index);
        // SAFETY: the block has room for the children of `columns`, and nobody else uses it.
        unsafe { place.write(places.slot(*child)) };
    }
    for (index, length) in columns.lengths.iter().enumerate() {
        let place = places.lengths.wrapping_add(index);
        // SAFETY: the block has room for the lengths of `columns`, and nobody else uses it.
        unsafe { place.write(*length) };
    }
    for (id, node) in columns.nodes.iter().enumerate() {
        if node.lengths != NO_LENGTHS {
            let place = places
                .buffers
                .wrapping_add(node.first_buffer + node.n_buffers - 1);
            let lengths = places.lengths.wrapping_add(node.lengths);
            // SAFETY: the buffers of a node are among those of `columns`, for which there is room.
            // A node with lengths has at least three buffers, and the lengths are the last.
            unsafe { place.write(lengths.cast_const().cast()) };
        }
        if id > 0 {
            // SAFETY: the block has room for the structs of all nodes but the first.
            unsafe { places.slot(id).write(places.array(node, block)) };
        }
    }
    device.array = places.array(&columns.nodes[0], block);
    // SAFETY: buffers and children lie in the block, or in memory that the block holds until the
    // release function drops it. The build has checked that buffers are as large as types and
    // lengths require (rule A8). The struct has no other owner.
    Ok(unsafe { OwnedDeviceArray::from_raw(device) })
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the C data interface calls this once, with the array or its moved copy, and nobody
    // else uses it meanwhile. NULL becomes `None`.
    let Some(array) = (unsafe { array.as_mut() }) else {
        return;
    };
    if array.release.take().is_none() {
        return;
    }
    let block = mem::replace(&mut array.private_data, ptr::null_mut());
    // SAFETY: `array` belongs to this block, and counts until the subtraction below.
    let released = 1 + unsafe { release_parts(array, block) };
    let block = block.cast::<ExportBlock>();
    // SAFETY: the block lives as long as one of its arrays counts, and this array does.
    let before = unsafe { &(*block).live }.fetch_sub(released, Ordering::Release);
    if before != released {
        return;
    }
    // Uses of the other arrays on other threads happen before the block is freed.
    fence(Ordering::Acquire);
    // SAFETY: no array is left, so nobody else refers to the block. `Places::new` has written it.
    let ExportBlock { layout, holds, .. } = unsafe { block.read() };
    // SAFETY: the memory was allocated with this layout, and nothing uses it from here on.
    unsafe { dealloc(block.cast(), layout) };
    // The body's owner is foreign code; a panic in its drop must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(holds)));
}

/// Releases the children and the dictionary of an array, except those that were moved out. Returns
/// the number of released arrays of `block`. The caller subtracts them in one atomic step, because
/// one step for each would be slow for wide batches.
///
/// # Safety
///
/// [`array`] made the array with this block, which lives. Nobody uses the array's parts.
unsafe fn release_parts(array: &ArrowArray, block: *mut c_void) -> usize {
    let mut released = 0;
    for index in 0..usize::try_from(array.n_children).unwrap_or(0) {
        // SAFETY: `children` points to this many entries of the block.
        let child = unsafe { *array.children.wrapping_add(index) };
        // SAFETY: the caller promises the same for the children.
        released += unsafe { release_part(child, block) };
    }
    // SAFETY: the caller promises that the dictionary is a part of the same block, or NULL, and is
    // not used by anybody.
    released + unsafe { release_part(array.dictionary, block) }
}

/// Releases a child or a dictionary; see [`release_parts`].
///
/// # Safety
///
/// As for [`release_parts`]; `part` is NULL or a child or dictionary of such an array.
unsafe fn release_part(part: *mut ArrowArray, block: *mut c_void) -> usize {
    // SAFETY: children and dictionaries lie in the block. The consumer has synchronised its uses of
    // them before the release of their parent.
    let Some(part) = (unsafe { part.as_mut() }) else {
        return 0;
    };
    // A part that was moved out has no release function any more.
    let Some(release) = part.release else {
        return 0;
    };
    let ours: unsafe extern "C" fn(*mut ArrowArray) = release_array;
    if part.private_data != block || !ptr::fn_addr_eq(release, ours) {
        // SAFETY: the part is not released, and belongs to the array that is being released.
        unsafe { release(part) };
        return 0;
    }
    part.release = None;
    part.private_data = ptr::null_mut();
    // SAFETY: `array` made the part with this block; the caller promises the rest.
    1 + unsafe { release_parts(part, block) }
}

/// The memory of one exported schema.
struct SchemaBlock {
    /// Owns the name, metadata and format of the field.
    _field: Arc<DecodedField>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

/// A new C schema of the fields below `root`.
pub(super) fn schema(root: &Arc<DecodedField>) -> OwnedSchema {
    // SAFETY: `schema_of` makes a schema that follows the C data interface. The schema's own block
    // keeps its strings and children until its release, and nobody else has it.
    unsafe { OwnedSchema::from_raw(schema_of(root)) }
}

/// The name of the root, and of dictionaries' values.
static NO_NAME: &CStr = c"";

fn schema_of(field: &Arc<DecodedField>) -> ArrowSchema {
    let Some(encoding) = field.dictionary else {
        return values_schema(field, &field.name, flags(field), &field.metadata);
    };
    // A dictionary-encoded field has the type of its indices, and the field's name, flags and
    // metadata (also of an extension type). The dictionary has the type of the values.
    let values = values_schema(field, NO_NAME, FLAG_NULLABLE | sorted_flag(field), &[]);
    let format = match (encoding.bits, encoding.signed) {
        (8, true) => c"c",
        (8, false) => c"C",
        (16, true) => c"s",
        (16, false) => c"S",
        (32, true) => c"i",
        (32, false) => c"I",
        (_, true) => c"l",
        (_, false) => c"L",
    };
    let ordered = if encoding.ordered {
        FLAG_DICTIONARY_ORDERED
    } else {
        0
    };
    let nullable = if field.nullable { FLAG_NULLABLE } else { 0 };
    finish(
        field,
        ArrowSchema {
            format: format.as_ptr(),
            name: field.name.as_ptr(),
            metadata: metadata_pointer(&field.metadata),
            flags: ordered | nullable,
            dictionary: Box::into_raw(Box::new(values)),
            ..ArrowSchema::empty()
        },
        Vec::new(),
    )
}

fn sorted_flag(field: &DecodedField) -> i64 {
    if matches!(field.ty, Type::Map { keys_sorted: true }) {
        FLAG_MAP_KEYS_SORTED
    } else {
        0
    }
}

fn flags(field: &DecodedField) -> i64 {
    sorted_flag(field) | if field.nullable { FLAG_NULLABLE } else { 0 }
}

fn metadata_pointer(metadata: &[u8]) -> *const c_char {
    if metadata.is_empty() {
        ptr::null()
    } else {
        metadata.as_ptr().cast()
    }
}

fn values_schema(
    field: &Arc<DecodedField>,
    name: &CStr,
    flags: i64,
    metadata: &[u8],
) -> ArrowSchema {
    let children = field
        .children
        .iter()
        .map(|child| Box::into_raw(Box::new(schema_of(child))))
        .collect();
    finish(
        field,
        ArrowSchema {
            format: field.format.as_ptr(),
            name: name.as_ptr(),
            metadata: metadata_pointer(metadata),
            flags,
            ..ArrowSchema::empty()
        },
        children,
    )
}

fn finish(
    field: &Arc<DecodedField>,
    mut schema: ArrowSchema,
    children: Vec<*mut ArrowSchema>,
) -> ArrowSchema {
    let block = Box::new(SchemaBlock {
        _field: Arc::clone(field),
        dictionary: schema.dictionary,
        children,
    });
    schema.n_children = i64::try_from(block.children.len()).unwrap_or(i64::MAX);
    if !block.children.is_empty() {
        schema.children = block.children.as_ptr().cast_mut();
    }
    schema.release = Some(release_schema);
    schema.private_data = Box::into_raw(block).cast();
    schema
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the C data interface calls this once, with the schema or its moved copy, and nobody
    // else uses it meanwhile. NULL becomes `None`.
    let Some(schema) = (unsafe { schema.as_mut() }) else {
        return;
    };
    if schema.release.take().is_none() {
        return;
    }
    let block = std::mem::replace(&mut schema.private_data, ptr::null_mut());
    // SAFETY: `finish` made the pointer by `Box::into_raw`. `release` is NULL from now on, so the
    // pointer is taken back only once.
    let block = unsafe { Box::from_raw(block.cast::<SchemaBlock>()) };
    for child in block.children.iter().chain([&block.dictionary]) {
        if child.is_null() {
            continue;
        }
        // SAFETY: each child and the dictionary came from `Box::into_raw`, and only this call takes
        // them back. A consumer moves out the content of the struct, not its allocation.
        let mut child = unsafe { Box::from_raw(*child) };
        if let Some(release) = child.release {
            // SAFETY: the child is not released, and belongs to the schema that is being released.
            unsafe { release(&raw mut *child) };
        }
    }
}
