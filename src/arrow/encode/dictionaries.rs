//! Which dictionaries must be sent before a batch (rule A3).

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

/// Dictionaries as they were last sent, each by its id.
///
/// To compare with them, their memory must live: each holds the batch that it came with. A
/// dictionary that has not changed moves its hold to the newest batch, so that between calls all of
/// them hold one batch together, the last one encoded, and no older one.
#[derive(Debug, Default)]
pub(super) struct SentDictionaries {
    sent: BTreeMap<i64, Sent>,
    /// Whether the schema has dictionary-encoded fields at all.
    any: bool,
    spare: SpareDictionary,
}

/// An empty list, whose memory serves one batch after the other.
#[derive(Debug, Default)]
struct SpareDictionary(Vec<FoundDictionary<'static>>);

// SAFETY: the list has no elements, whose pointers are what keeps it to one thread: nothing but
// `Dictionaries::remember` fills the field, and with an empty list.
unsafe impl Send for SpareDictionary {}
// SAFETY: as above.
unsafe impl Sync for SpareDictionary {}

/// A dictionary that was sent.
#[derive(Debug)]
struct Sent {
    /// Keeps `values` alive; held, not used.
    _batch: Arc<OwnedDeviceArray>,
    /// The dictionary's array, somewhere under `_batch`.
    values: *const ArrowArray,
}

// SAFETY: the pointer is a place in the array that `_batch` owns, which may be read on any thread
// (see `Owned`); nothing writes through it.
unsafe impl Send for Sent {}
// SAFETY: as above.
unsafe impl Sync for Sent {}

/// A dictionary of a batch that is being encoded.
#[derive(Debug)]
pub(super) struct FoundDictionary<'a> {
    field: &'a Field,
    id: i64,
    /// The values.
    pub(super) values: Column<'a>,
    pub(super) change: Change,
}

/// What has become of a dictionary since it was last sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing: it is not sent.
    Same,
    /// It has grown; what is beyond so many rows is sent.
    Grown(usize),
    /// It is new, or another one.
    New,
}

impl FoundDictionary<'_> {
    /// Its number in the stream.
    pub(super) fn id(&self) -> i64 {
        self.id
    }

    /// Its field's name, for texts.
    pub(super) fn name(&self) -> &str {
        &self.field.name
    }
}

impl SentDictionaries {
    /// None sent yet, of streams of this schema.
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
        let here = |fault: Box<Fault>| fault.inside(column.child_name(index));
        let Some(dictionary) = &field.dictionary else {
            visit(&child, found).map_err(here)?;
            continue;
        };
        let values = child.dictionary(field).map_err(here)?;
        visit(&values, found).map_err(here)?;
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
    /// Fills in what has changed since the last batch.
    pub(super) fn compare(
        &self,
        found: &mut [FoundDictionary<'_>],
        memory: ProducerMemory<'_>,
    ) -> Checked<()> {
        // Inner dictionaries come before the outer ones that they stand under, so a list of the
        // ids that go out suffices to know of an outer one that something under it does.
        let mut sent: Vec<i64> = Vec::new();
        let mut unread = None;
        for this in found {
            this.change = if inner_ids(this.field).iter().any(|id| sent.contains(id)) {
                // The outer one's values are made of the inner one's: readers that resolved them
                // when they came must get them again.
                Change::New
            } else {
                match self.change(this, memory) {
                    Ok(change) => change,
                    // What the others need is fetched with it.
                    Err(fault) if memory.is_waiting() => {
                        unread = Some(fault);
                        continue;
                    }
                    Err(fault) => return Err(fault.inside(this.name())),
                }
            };
            if this.change != Change::Same {
                sent.push(this.id);
            }
        }
        unread.map_or(Ok(()), Err)
    }

    fn change(&self, this: &FoundDictionary<'_>, memory: ProducerMemory<'_>) -> Checked<Change> {
        let Some(sent) = self.sent.get(&this.id) else {
            return Ok(Change::New);
        };
        // SAFETY: `values` points into the array that `sent._batch` keeps alive and unchanged.
        let old = unsafe { &*sent.values };
        // SAFETY: it is a dictionary of an array that follows the C data interface, where this
        // batch lies too (else the encoder has forgotten it), and it passed these checks when it
        // was sent.
        let old = unsafe { Column::of_values(this.field, old, memory) }?;
        let new = &this.values;
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
            // Readers join deltas, which some cannot do with nested values; and from nothing there
            // is nothing to join.
            _ if old.len == 0 || !joins(new.layout) => Change::New,
            _ => Change::Grown(old.len),
        })
    }

    /// Remembers the dictionaries of a batch that was encoded.
    pub(super) fn remember(
        &mut self,
        mut found: Vec<FoundDictionary<'_>>,
        batch: &Arc<OwnedDeviceArray>,
    ) {
        for this in found.drain(..) {
            let sent = Sent {
                _batch: Arc::clone(batch),
                values: this.values.array(),
            };
            self.sent.insert(this.id, sent);
        }
        // Collecting nothing out of an empty list keeps the list's memory, for the next batch.
        self.spare = SpareDictionary(found.into_iter().map_while(|_| None).collect());
    }
}

/// Whether a dictionary of this layout is sent as a delta where it has grown.
fn joins(layout: Layout) -> bool {
    matches!(
        layout,
        Layout::Boolean | Layout::Fixed { .. } | Layout::Binary { .. } | Layout::View { .. }
    )
}

/// The dictionaries directly or deeper under a field's values.
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
    /// How many batches are held.
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
