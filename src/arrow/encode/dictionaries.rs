//! The dictionaries that must be sent before a batch (rule A3).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::column::Column;
use super::compare::equal;
use super::fault::{Checked, Fault};
use super::foresee;
use super::memory::ProducerMemory;
use crate::arrow::OwnedDeviceArray;
use crate::arrow::abi::ArrowArray;
use crate::arrow::format::{Field, Layout, Schema};

/// The last sent dictionaries, by id.
///
/// A comparison needs their memory, so each holds the batch that it came with. After each batch,
/// unchanged dictionaries hold the new batch instead. So between calls all dictionaries hold the
/// last encoded batch only.
#[derive(Debug, Default)]
pub(super) struct SentDictionaries {
    sent: BTreeMap<i64, Sent>,
    /// True if the schema has dictionary-encoded fields.
    any: bool,
    spare: SpareDictionary,
}

/// An empty list whose memory the next batch reuses.
#[derive(Debug, Default)]
struct SpareDictionary(Vec<FoundDictionary<'static>>);

// SAFETY: only the pointers in elements tie the list to a thread, and the list has none: only
// `SentDictionaries::remember` writes the field, with an empty list.
unsafe impl Send for SpareDictionary {}
// SAFETY: the list has no elements, so shared access reads nothing that belongs to a thread.
unsafe impl Sync for SpareDictionary {}

/// A dictionary that was sent.
#[derive(Debug)]
struct Sent {
    /// Held, because it keeps `values` alive.
    _batch: Arc<OwnedDeviceArray>,
    /// The dictionary's array, a part of `_batch`.
    values: *const ArrowArray,
}

// SAFETY: the pointer leads into the array of `_batch`, which any thread may read (see `Owned`).
// Nobody writes through it.
unsafe impl Send for Sent {}
// SAFETY: any thread may read the array of `_batch`, and nobody writes through the pointer.
unsafe impl Sync for Sent {}

/// A dictionary of the batch that is being encoded.
#[derive(Debug)]
pub(super) struct FoundDictionary<'a> {
    field: &'a Field,
    id: i64,
    /// The values.
    pub(super) values: Column<'a>,
    pub(super) change: Change,
}

/// The change of a dictionary since it was last sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// None: the dictionary is not sent.
    Same,
    /// It has grown: the rows from this number on are sent.
    Grown(usize),
    /// It is new or different: the whole dictionary is sent.
    New,
}

impl FoundDictionary<'_> {
    /// Its number in the stream.
    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// The name of its field, for error texts.
    pub(super) fn name(&self) -> &str {
        &self.field.name
    }
}

impl SentDictionaries {
    /// For streams of this schema; no dictionary was sent yet.
    pub(super) fn of(schema: &Schema) -> Self {
        let encoded = |field: &Field| field.dictionary.is_some() || field.has_inner_dictionary();
        Self {
            any: schema.fields.iter().any(encoded),
            ..Self::default()
        }
    }

    /// Finds the dictionaries of a batch, inner ones first. The result borrows the arrays.
    pub(super) fn find<'a>(&mut self, batch: &Column<'a>) -> Checked<Vec<FoundDictionary<'a>>> {
        let mut found: Vec<FoundDictionary<'a>> = std::mem::take(&mut self.spare.0);
        if self.any {
            visit(batch, &mut found)?;
        }
        Ok(found)
    }
}

fn visit<'a>(column: &Column<'a>, found: &mut Vec<FoundDictionary<'a>>) -> Checked<()> {
    for (index, field) in column.fields().iter().enumerate() {
        if field.dictionary.is_none() && !field.has_inner_dictionary() {
            continue;
        }
        let child = column.child(index)?;
        let in_child = |fault: Box<Fault>| fault.inside(column.child_name(index));
        let Some(dictionary) = &field.dictionary else {
            visit(&child, found).map_err(in_child)?;
            continue;
        };
        let values = child.dictionary(field).map_err(in_child)?;
        visit(&values, found).map_err(in_child)?;
        found.push(FoundDictionary {
            field,
            id: dictionary.id,
            values,
            change: Change::New,
        });
    }
    Ok(())
}

impl SentDictionaries {
    /// Determines the change of each dictionary since the last batch.
    pub(super) fn compare(
        &self,
        found: &mut [FoundDictionary<'_>],
        memory: ProducerMemory<'_>,
    ) -> Checked<()> {
        // Inner dictionaries come before their outer dictionaries. So the list of sent ids tells if
        // a dictionary inside an outer dictionary is sent.
        let mut sent: Vec<i64> = Vec::new();
        let mut unread = None;
        for dictionary in found {
            dictionary.change = if inner_ids(dictionary.field)
                .iter()
                .any(|id| sent.contains(id))
            {
                // The values of the outer dictionary use the inner dictionary. A reader that
                // resolved them on arrival needs them again.
                Change::New
            } else {
                match self.change(dictionary, memory) {
                    Ok(change) => change,
                    // The next fetch also gets the data for the other dictionaries.
                    Err(fault) if memory.is_waiting() => {
                        unread = Some(fault);
                        continue;
                    }
                    Err(fault) => return Err(fault.inside(dictionary.name())),
                }
            };
            if dictionary.change != Change::Same {
                sent.push(dictionary.id);
            }
        }
        unread.map_or(Ok(()), Err)
    }

    fn change(
        &self,
        dictionary: &FoundDictionary<'_>,
        memory: ProducerMemory<'_>,
    ) -> Checked<Change> {
        let Some(sent) = self.sent.get(&dictionary.id) else {
            return Ok(Change::New);
        };
        // SAFETY: `values` points into the array that `sent._batch` keeps alive and unchanged.
        let old = unsafe { &*sent.values };
        // SAFETY: it is a dictionary of an array that follows the C data interface and passed these
        // checks when it was sent. It lies where this batch lies, or else the encoder has forgotten
        // it.
        let old = unsafe { Column::of_values(dictionary.field, old, memory) }?;
        let new = &dictionary.values;
        if old.same_memory(new)? {
            return Ok(Change::Same);
        }
        if memory.as_remote().is_some() {
            foresee::whole(&old);
            foresee::whole(new);
        }
        if new.len < old.len || !equal(&old, 0, new, 0, old.len)? {
            return Ok(Change::New);
        }
        Ok(match new.len - old.len {
            0 => Change::Same,
            // Readers append deltas. Some cannot append nested values, and there is nothing to
            // append to an empty dictionary.
            _ if old.len == 0 || !joins(new.layout) => Change::New,
            _ => Change::Grown(old.len),
        })
    }

    /// Remembers the dictionaries of an encoded batch.
    pub(super) fn remember(
        &mut self,
        mut found: Vec<FoundDictionary<'_>>,
        batch: &Arc<OwnedDeviceArray>,
    ) {
        for dictionary in found.drain(..) {
            let sent = Sent {
                _batch: Arc::clone(batch),
                values: dictionary.values.array(),
            };
            self.sent.insert(dictionary.id, sent);
        }
        // Collecting from the drained list keeps its memory for the next batch.
        self.spare = SpareDictionary(found.into_iter().map_while(|_| None).collect());
    }
}

/// True if a grown dictionary of this layout is sent as a delta.
fn joins(layout: Layout) -> bool {
    matches!(
        layout,
        Layout::Boolean | Layout::Fixed { .. } | Layout::Binary { .. } | Layout::View { .. }
    )
}

/// The ids of all dictionaries inside a field's values.
fn inner_ids(field: &Field) -> Vec<i64> {
    fn collect(fields: &[Field], ids: &mut Vec<i64>) {
        for field in fields {
            ids.extend(field.dictionary.as_ref().map(|dictionary| dictionary.id));
            collect(&field.children, ids);
        }
    }
    let mut ids = Vec::new();
    collect(&field.children, &mut ids);
    ids
}

#[cfg(test)]
impl SentDictionaries {
    /// The number of held batches.
    pub(super) fn held(&self) -> usize {
        let mut batches: Vec<_> = self
            .sent
            .values()
            .map(|sent| Arc::as_ptr(&sent._batch))
            .collect();
        batches.sort();
        batches.dedup();
        batches.len()
    }
}
