//! From decoded arrays and fields to C structs that release themselves.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::arrow::abi::{
    ArrowArray, ArrowDeviceArray, ArrowSchema, FLAG_DICTIONARY_ORDERED, FLAG_MAP_KEYS_SORTED,
    FLAG_NULLABLE,
};
use crate::arrow::decode::columns::Columns;
use crate::arrow::decode::field::{Field, Type, integer_format};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::error::{Error, Result};

/// What all arrays of one batch point to. Each of them holds it, so that a child that was moved
/// out survives its parent.
struct Block {
    /// The structs of all arrays but the outermost, which consumers write to when they release or
    /// move them.
    arrays: Vec<UnsafeCell<ArrowArray>>,
    children: Vec<*mut ArrowArray>,
    buffers: Vec<*const c_void>,
    /// Keeps the memory of the buffers alive.
    columns: Columns,
}

// SAFETY: the pointers lead into the block itself and to the memory that `columns` holds, which may
// be held and dropped on any thread (checked below). The structs in `arrays` are written by whoever
// owns the array that they belong to; the C data interface asks consumers to synchronise that.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Columns>();
};

/// Hands decoded arrays out; node 0 is the outermost.
pub(super) fn array(columns: Columns) -> Result<OwnedDeviceArray> {
    let arrays: Vec<_> = columns
        .nodes
        .iter()
        .map(|_| UnsafeCell::new(ArrowArray::empty()))
        .collect();
    let children = columns
        .children
        .iter()
        .map(|child| arrays[*child].get())
        .collect();
    let buffers = columns
        .buffers
        .iter()
        .map(|buffer| buffer.at.data.cast())
        .collect();
    let block = Arc::new(Block {
        arrays,
        children,
        buffers,
        columns,
    });
    let count = |count: usize| {
        i64::try_from(count).map_err(|_| Error::invalid_data("an array of too many parts"))
    };
    // All fallible work comes first: from here on every struct must be released.
    for node in &block.columns.nodes {
        count(node.n_buffers)?;
        count(node.n_children)?;
    }
    let fill = |id: usize| -> Result<ArrowArray> {
        let node = &block.columns.nodes[id];
        Ok(ArrowArray {
            length: node.length,
            null_count: node.null_count,
            offset: 0,
            n_buffers: count(node.n_buffers)?,
            n_children: count(node.n_children)?,
            buffers: pointer_to(&block.buffers, node.first_buffer, node.n_buffers).cast_mut(),
            children: pointer_to(&block.children, node.first_child, node.n_children).cast_mut(),
            dictionary: node
                .dictionary
                .map_or(ptr::null_mut(), |id| block.arrays[id].get()),
            release: Some(release_array),
            private_data: Arc::into_raw(Arc::clone(&block)).cast_mut().cast(),
        })
    };
    for id in 1..block.columns.nodes.len() {
        let filled = fill(id)?;
        // SAFETY: the block was made above and no consumer has seen it, so nothing else refers to
        // the contents of the cell.
        unsafe { *block.arrays[id].get() = filled };
    }
    let mut device = ArrowDeviceArray::empty();
    device.array = fill(0)?;
    // SAFETY: made above, with a release of ours that holds the block: buffers and children lie in
    // the block or in memory that it keeps, and building has checked that buffers are as large as
    // types and lengths ask (rule A8). Nobody else has it.
    Ok(unsafe { OwnedDeviceArray::from_raw(device) })
}

/// Where a node's entries begin; NULL where it has none.
fn pointer_to<T>(entries: &[T], first: usize, count: usize) -> *const T {
    if count == 0 {
        ptr::null()
    } else {
        entries[first..first + count].as_ptr()
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the C data interface calls this once, with the array or the place it was moved to,
    // and nobody else uses it meanwhile; NULL gives None.
    let Some(array) = (unsafe { array.as_mut() }) else {
        return;
    };
    if array.release.take().is_none() {
        return;
    }
    let children = (0..usize::try_from(array.n_children).unwrap_or(0)).map(|index| {
        // SAFETY: `children` points to as many entries of the block, which this array still holds.
        unsafe { *array.children.wrapping_add(index) }
    });
    for child in children.chain([array.dictionary]) {
        // SAFETY: children and dictionary lie in the block or are NULL; the consumer has
        // synchronised whatever it did with them before it released their parent.
        let Some(child) = (unsafe { child.as_mut() }) else {
            continue;
        };
        // A child that was moved out has no release function any more.
        if let Some(release) = child.release {
            // SAFETY: the child is not released, and belongs to the array being released.
            unsafe { release(child) };
        }
    }
    let block = std::mem::replace(&mut array.private_data, ptr::null_mut());
    // SAFETY: `array` put a pointer from `Arc::into_raw` there, one for each struct, and this
    // struct gives it up exactly once, for `release` is NULL from now on.
    let block = unsafe { Arc::from_raw(block.cast_const().cast::<Block>()) };
    // The owner of the body is not our code; a panic of its drop must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(block)));
}

/// What one exported schema points to.
struct SchemaBlock {
    /// Name, metadata and format of a field are its own.
    _field: Arc<Field>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

/// A fresh C schema of the fields below `root`.
pub(super) fn schema(root: &Arc<Field>) -> OwnedSchema {
    // SAFETY: `schema_of` makes a schema that follows the C data interface, its strings and children
    // kept by its own block until its release, and gives it to nobody else.
    unsafe { OwnedSchema::from_raw(schema_of(root)) }
}

/// Names that are not there, and those of the values of a dictionary.
static NO_NAME: &CStr = c"";

fn schema_of(field: &Arc<Field>) -> ArrowSchema {
    let Some(encoding) = field.dictionary else {
        return values_schema(field, &field.name, flags(field), &field.metadata);
    };
    // A dictionary-encoded field has the type of its indices; name, flags and metadata (an
    // extension type's too) are the field's, the type of the values is the dictionary's.
    let values = values_schema(field, NO_NAME, FLAG_NULLABLE | sorted_flag(field), &[]);
    let format = match integer_format(encoding.bits, encoding.signed) {
        "c" => c"c",
        "C" => c"C",
        "s" => c"s",
        "S" => c"S",
        "i" => c"i",
        "I" => c"I",
        "l" => c"l",
        _ => c"L",
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

fn sorted_flag(field: &Field) -> i64 {
    if matches!(field.ty, Type::Map { sorted: true }) {
        FLAG_MAP_KEYS_SORTED
    } else {
        0
    }
}

fn flags(field: &Field) -> i64 {
    sorted_flag(field) | if field.nullable { FLAG_NULLABLE } else { 0 }
}

fn metadata_pointer(metadata: &[u8]) -> *const c_char {
    if metadata.is_empty() {
        ptr::null()
    } else {
        metadata.as_ptr().cast()
    }
}

fn values_schema(field: &Arc<Field>, name: &CStr, flags: i64, metadata: &[u8]) -> ArrowSchema {
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
    field: &Arc<Field>,
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
    // SAFETY: the C data interface calls this once, with the schema or the place it was moved to,
    // and nobody else uses it meanwhile; NULL gives None.
    let Some(schema) = (unsafe { schema.as_mut() }) else {
        return;
    };
    if schema.release.take().is_none() {
        return;
    }
    let block = std::mem::replace(&mut schema.private_data, ptr::null_mut());
    // SAFETY: `finish` put a pointer from `Box::into_raw` there, and this schema gives it up
    // exactly once, for `release` is NULL from now on.
    let block = unsafe { Box::from_raw(block.cast::<SchemaBlock>()) };
    for child in block.children.iter().chain([&block.dictionary]) {
        if child.is_null() {
            continue;
        }
        // SAFETY: each child and the dictionary came from `Box::into_raw` and is taken back only
        // here; a consumer that moved one out took the struct's contents, not its place.
        let mut child = unsafe { Box::from_raw(*child) };
        if let Some(release) = child.release {
            // SAFETY: the child is not released, and belongs to the schema being released.
            unsafe { release(&raw mut *child) };
        }
    }
}
