//! Some columns and rows of a stream's arrays (rule Q12), without a copy and without a read of a
//! buffer, because the memory may be on a GPU.
//!
//! A selected array is a view of another array: it has some of that array's children and some of
//! its rows. It owns that array until its own release.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::{self, NonNull};

use crate::arrow::OwnedDeviceArray;
use crate::arrow::abi::{ArrowArray, ArrowDeviceArray};
use crate::arrow::format::Schema;
use crate::error::{Error, Result};
use crate::proto::Selection;

/// Most columns that an error names.
const MOST_NAMED: usize = 20;

/// The selection of one stream, and how far the stream has come.
#[derive(Debug)]
pub struct Selector {
    /// The columns of the result, as numbers of those of an array; `None`: all.
    columns: Option<Vec<usize>>,
    /// The number of columns of an array.
    count: usize,
    /// Number of rows before the first wanted row.
    before: u64,
    /// Number of wanted rows after these; `None`: all.
    wanted: Option<u64>,
}

/// The part of one array that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing.
    None,
    /// So many rows, from this one on.
    Rows {
        /// The first row, counting from 0.
        first: i64,
        /// The number of rows.
        rows: i64,
    },
}

impl Selector {
    /// The selector for a stream with this schema, and the schema of what it selects.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with a list of all columns: no column, or more than one, has one of the
    /// names.
    pub fn new(selection: &Selection, schema: &Schema) -> Result<(Self, Schema)> {
        let columns = selection.columns().map(|names| find(names, schema));
        let columns = columns.transpose()?;
        let selected = match &columns {
            Some(columns) => schema.select(columns),
            None => schema.clone(),
        };
        let selector = Self {
            columns,
            count: schema.fields.len(),
            before: selection.first_row(),
            wanted: selection.rows(),
        };
        Ok((selector, selected))
    }

    /// Leaves the selection of columns to the caller, and returns the wanted columns by their
    /// positions; `None`: all. From now on arrays must come with these columns only.
    pub fn take_columns(&mut self) -> Option<Vec<usize>> {
        let columns = self.columns.take()?;
        self.count = columns.len();
        Some(columns)
    }

    /// Whether no later array has a row that is wanted.
    pub fn is_complete(&self) -> bool {
        self.wanted == Some(0)
    }

    /// The part of the next array that is wanted.
    ///
    /// # Errors
    ///
    /// `InvalidData`: the array is released, or has a negative length.
    pub fn part(&self, array: &ArrowDeviceArray) -> Result<Part> {
        let len = rows_of(array)?;
        if self.is_complete() || self.before > len || (self.before == len && len > 0) {
            return Ok(Part::None);
        }
        let rows = (len - self.before).min(self.wanted.unwrap_or(u64::MAX));
        // Neither is larger than the length.
        let (first, rows) = (i64::try_from(self.before), i64::try_from(rows));
        Ok(Part::Rows {
            first: first.unwrap_or(i64::MAX),
            rows: rows.unwrap_or(i64::MAX),
        })
    }

    /// The array with a part of its rows, and with the columns that are wanted.
    ///
    /// Only this crate may read the result. A host program could move children out of it, as the C
    /// data interface allows, but the children belong to the original array.
    ///
    /// # Errors
    ///
    /// `InvalidData`, with the array: it is not of the stream's schema, or its numbers are too
    /// large.
    pub fn select(
        &self,
        array: OwnedDeviceArray,
        first: i64,
        rows: i64,
    ) -> Result<OwnedDeviceArray, (Error, OwnedDeviceArray)> {
        if self.columns.is_none() && rows == array.raw().array.length {
            return Ok(array);
        }
        match self.ensure_selectable(&array.raw().array, first) {
            Ok(()) => Ok(self.view(array, first, rows)),
            Err(error) => Err((error, array)),
        }
    }

    /// Notes that the stream has passed an array of this length.
    pub fn pass(&mut self, len: i64) {
        let len = u64::try_from(len).unwrap_or(0);
        let skipped = len.min(self.before);
        self.before -= skipped;
        self.wanted = (self.wanted).map(|wanted| wanted.saturating_sub(len - skipped));
    }

    /// Checks all that [`view`](Self::view) relies on. Only then may `view` follow a pointer.
    fn ensure_selectable(&self, array: &ArrowArray, first: i64) -> Result<()> {
        let has_offset = array.offset.checked_add(first).is_some();
        if array.n_children == i64::try_from(self.count).unwrap_or(i64::MAX)
            && (self.count == 0 || !array.children.is_null())
            && array.offset >= 0
            && has_offset
        {
            return Ok(());
        }
        Err(Error::invalid_data(format!(
            "the record batch has {} columns and the offset {}, but the schema has {} columns",
            array.n_children, array.offset, self.count
        )))
    }

    /// The view of an array that [`ensure_selectable`](Self::ensure_selectable) has checked.
    fn view(&self, source: OwnedDeviceArray, first: i64, rows: i64) -> OwnedDeviceArray {
        let raw = source.raw();
        let parent = &raw.array;
        let child = |index: &usize| {
            // SAFETY: the list is not NULL and has `count` entries, as `ensure_selectable` has
            // checked. The indices are less, for `find` found them in a schema of `count` fields.
            let slot = unsafe { parent.children.add(*index) };
            // SAFETY: the slot is an entry of the list, since the index is less than `count`.
            unsafe { slot.read() }
        };
        let children = match &self.columns {
            Some(columns) => columns.iter().map(child).collect(),
            None => (0..self.count).map(|index| child(&index)).collect(),
        };
        // SAFETY: `raw` is initialised. The copy gets a release of its own before it has an owner.
        let mut view = unsafe { ptr::read(raw) };
        view.array.length = rows;
        view.array.null_count = nulls_of(parent, rows);
        view.array.offset += first;
        view.array.release = Some(release_view);
        view.reserved = [0; 3];
        let mut whole = Box::new(Whole { source, children });
        let selected = i64::try_from(whole.children.len());
        view.array.n_children = selected.unwrap_or(i64::MAX);
        view.array.children = whole.children.as_mut_ptr();
        view.array.private_data = Box::into_raw(whole).cast();
        // SAFETY: the view has parts of an array that keeps the promise of an owned one: its
        // buffers, and children that have rows up to its old end, which lies behind the new one.
        // `Whole` in `private_data` owns that array and the list of children up to the release.
        unsafe { OwnedDeviceArray::from_raw(view) }
    }
}

/// The array that a view shows a part of, and the view's list of children.
struct Whole {
    source: OwnedDeviceArray,
    children: Vec<*mut ArrowArray>,
}

/// The array that `array` is a view of; any other array as it is.
pub fn into_whole(array: OwnedDeviceArray) -> OwnedDeviceArray {
    let Some(whole) = whole_of(array.raw()) else {
        return array;
    };
    // The box owns everything: nothing is left to release.
    let _ = array.into_raw();
    // SAFETY: `view` made it from a box of this type, and the view is gone.
    unsafe { Box::from_raw(whole.as_ptr()) }.source
}

/// The array that `array` is a view of, if it is one.
pub(super) fn whole(array: &ArrowDeviceArray) -> Option<&ArrowDeviceArray> {
    // SAFETY: it lives until the release of the view, which the borrow excludes.
    whole_of(array).map(|whole| unsafe { whole.as_ref() }.source.raw())
}

fn whole_of(array: &ArrowDeviceArray) -> Option<NonNull<Whole>> {
    let own: unsafe extern "C" fn(*mut ArrowArray) = release_view;
    let release = array.array.release?;
    // Only `Selector::view` pairs the release with `private_data`.
    ptr::fn_addr_eq(release, own)
        .then(|| NonNull::new(array.array.private_data.cast()))
        .flatten()
}

unsafe extern "C" fn release_view(view: *mut ArrowArray) {
    // SAFETY: Arrow's interface passes the struct that holds this function, live.
    let view = unsafe { &mut *view };
    view.release = None;
    let whole = std::mem::replace(&mut view.private_data, ptr::null_mut());
    // SAFETY: `Selector::view` made it from a box of this type. The NULL prevents a second use.
    drop(unsafe { Box::from_raw(whole.cast::<Whole>()) });
}

/// The number of rows.
fn rows_of(array: &ArrowDeviceArray) -> Result<u64> {
    let len = u64::try_from(array.array.length);
    let is_live = array.array.release.is_some();
    len.ok().filter(|_| is_live).ok_or_else(|| {
        Error::invalid_data("the record batch is released, or has a negative number of rows")
    })
}

/// The null count of some rows of an array: -1 if it would have to be counted.
fn nulls_of(array: &ArrowArray, rows: i64) -> i64 {
    match array.null_count {
        0 => 0,
        known if rows == array.length => known,
        _ => -1,
    }
}

/// The columns with these names.
fn find(names: &[String], schema: &Schema) -> Result<Vec<usize>> {
    let mut places = HashMap::with_capacity(schema.fields.len());
    for (index, field) in schema.fields.iter().enumerate() {
        match places.entry(field.name.as_str()) {
            Entry::Vacant(place) => drop(place.insert(Some(index))),
            Entry::Occupied(mut place) => drop(place.insert(None)),
        }
    }
    let place = |name: &String| match places.get(name.as_str()) {
        Some(Some(index)) => Ok(*index),
        Some(None) => Err(Error::invalid_argument(format!(
            "several columns have the name {name:?}, so that a selection cannot name one of them"
        ))),
        None => Err(Error::invalid_argument(format!(
            "no column has the name {name:?}; {}",
            shown(schema)
        ))),
    };
    names.iter().map(place).collect()
}

/// The names of all columns, for the text of an error.
fn shown(schema: &Schema) -> String {
    match schema.fields.as_slice() {
        [] => "the table has no columns".to_owned(),
        fields => format!("the table has {}", listed(fields.iter().map(|it| &it.name))),
    }
}

/// The first names, and how many others there are.
pub(crate) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let left = names.len().saturating_sub(MOST_NAMED);
    let names: Vec<_> = names.take(MOST_NAMED).map(|it| format!("{it:?}")).collect();
    match left {
        0 => names.join(", "),
        _ => format!("{} and {left} others", names.join(", ")),
    }
}
