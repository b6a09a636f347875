//! What decides where rows go, and the batches of a table cut by it.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};

use super::range::{SortKey, Splitters};
use super::{columns, cut, destination, hash};
use crate::arrow::columns::ensure_columns;
use crate::error::{Error, Result};

/// What decides which rank a row goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partitioning {
    /// The specified hash of key columns ([`hash`]): rows with equal keys go to one rank.
    Hash {
        /// The names of the key columns.
        keys: Vec<String>,
    },
    /// Ranges of key columns ([`range`](super::range)): the keys of each rank come before those of
    /// the next.
    Range {
        /// The key columns, the most significant first.
        keys: Vec<SortKey>,
    },
    /// A column of integers that names ranks ([`destination`]).
    Destinations {
        /// The name of the column.
        column: String,
    },
    /// The number of the row: each rank in turn gets the next rows.
    Rows {
        /// The number of rows that a rank gets before the next rank's turn.
        chunk: u64,
    },
}

impl Partitioning {
    /// The words of a call, such as `by hash of "a", "b"`. Different partitionings have different
    /// words.
    pub fn describe(&self) -> String {
        match self {
            Self::Hash { keys } => {
                let keys = keys.iter().map(|key| format!("{key:?}"));
                format!("by hash of {}", keys.collect::<Vec<_>>().join(", "))
            }
            Self::Range { keys } => {
                let keys = keys.iter().map(|key| {
                    let order = if key.descending {
                        "descending"
                    } else {
                        "ascending"
                    };
                    let nulls = if key.nulls_first { "first" } else { "last" };
                    format!("{:?} ({order}, nulls {nulls})", key.column)
                });
                format!("by range of {}", keys.collect::<Vec<_>>().join(", "))
            }
            Self::Destinations { column } => format!("by the destinations in {column:?}"),
            Self::Rows { chunk } => format!("by rows, {chunk} at a time"),
        }
    }
}

/// Cuts the batches of one table.
#[derive(Debug)]
pub struct Partitioner {
    schema: SchemaRef,
    ranks: u32,
    by: By,
}

/// A [`Partitioning`] with the places of its columns.
#[derive(Debug)]
enum By {
    Hash(Vec<usize>),
    Range(Splitters),
    Destinations(usize),
    Rows(Turns),
}

impl Partitioner {
    /// A partitioner of batches with this schema among `ranks`. A partitioning by range needs
    /// `splitters` for its keys and for as many ranks; no other takes any.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with a list of the columns: no column, or more than one, has the name of
    /// a key. `InvalidArgument`: there are no ranks, no keys or no rows in a chunk; the splitters
    /// are missing, or are for another partitioning; the column of destinations has no integers.
    pub fn new(
        partitioning: &Partitioning,
        schema: &SchemaRef,
        ranks: u32,
        splitters: Option<Splitters>,
    ) -> Result<Self> {
        let by = By::new(partitioning, schema, ranks, splitters);
        Ok(Self {
            schema: schema.clone(),
            ranks,
            by: by.map_err(|cause| cause.context(partitioning.describe()))?,
        })
    }

    /// The batch for each rank that gets rows of `batch`. A rank's rows keep their order. Only by
    /// rows, whose batches are slices in the order of the table, a rank may get several batches.
    ///
    /// # Errors
    ///
    /// `InvalidData`: the batch has other columns than the table; with the row, a destination is
    /// null or not the number of a rank; or Arrow cannot pick rows from a column.
    pub fn cut(&mut self, batch: &RecordBatch) -> Result<Vec<(u32, RecordBatch)>> {
        ensure_columns(&self.schema, batch)?;
        if self.ranks == 1 && !matches!(self.by, By::Destinations(_)) {
            let rows = batch.num_rows() > 0;
            return Ok(rows.then(|| (0, batch.clone())).into_iter().collect());
        }
        let destinations = match &mut self.by {
            By::Hash(keys) => {
                let keys = keys.iter().filter_map(|at| batch.columns().get(*at));
                let keys: Vec<ArrayRef> = keys.cloned().collect();
                let hashes = hash::hash_rows(&keys)?;
                let hashes = hashes.into_iter();
                hashes.map(|hash| hash::rank_of(hash, self.ranks)).collect()
            }
            By::Range(splitters) => splitters.destinations(batch)?,
            By::Destinations(at) => {
                let name = self.schema.field(*at).name();
                destination::destinations(name, batch.column(*at), self.ranks)?
            }
            By::Rows(turns) => return Ok(turns.cut(batch, self.ranks)),
        };
        cut::cut(batch, &destinations, self.ranks)
    }
}

impl By {
    fn new(
        partitioning: &Partitioning,
        schema: &SchemaRef,
        ranks: u32,
        splitters: Option<Splitters>,
    ) -> Result<Self> {
        if ranks == 0 {
            return Err(Error::invalid_argument(
                "there are no ranks: at least 1 is needed",
            ));
        }
        let is_range = matches!(partitioning, Partitioning::Range { .. });
        if splitters.is_some() && !is_range {
            return Err(Error::invalid_argument(
                "there are splitters, which only a partitioning by range takes",
            ));
        }
        match partitioning {
            Partitioning::Hash { keys } if keys.is_empty() => Err(no_keys()),
            Partitioning::Hash { keys } => {
                let names = keys.iter().map(String::as_str);
                Ok(Self::Hash(columns::find(names, schema)?))
            }
            Partitioning::Range { keys } if keys.is_empty() => Err(no_keys()),
            Partitioning::Range { keys } => {
                columns::find(keys.iter().map(|key| key.column.as_str()), schema)?;
                match splitters {
                    Some(of) if of.keys() == keys && of.ranks() == ranks => Ok(Self::Range(of)),
                    Some(_) => Err(Error::invalid_argument(
                        "the splitters are for other keys or another number of ranks: choose them \
                         for these",
                    )),
                    None => Err(Error::invalid_argument(
                        "there are no splitters: choose them from samples of all ranks",
                    )),
                }
            }
            Partitioning::Destinations { column } => {
                let found = columns::find(std::iter::once(column.as_str()), schema)?;
                let found = found.into_iter().next().map(|at| (at, schema.field(at)));
                match found.map(|(at, field)| (at, field.data_type())) {
                    Some((at, of)) if of.is_integer() => Ok(Self::Destinations(at)),
                    of => {
                        let of = of.map_or(&DataType::Null, |(_, of)| of);
                        Err(destination::not_integers(column, of))
                    }
                }
            }
            Partitioning::Rows { chunk: 0 } => Err(Error::invalid_argument(
                "a chunk has no rows: at least 1 is needed",
            )),
            Partitioning::Rows { chunk } => Ok(Self::Rows(Turns {
                chunk: *chunk,
                rank: 0,
                done: 0,
            })),
        }
    }
}

fn no_keys() -> Error {
    Error::invalid_argument("there are no keys: name at least one column")
}

/// Whose turn it is to get rows.
#[derive(Debug)]
struct Turns {
    chunk: u64,
    rank: u32,
    /// The rows that the rank has of its chunk, fewer than `chunk`.
    done: u64,
}

impl Turns {
    fn cut(&mut self, batch: &RecordBatch, ranks: u32) -> Vec<(u32, RecordBatch)> {
        let rows = batch.num_rows();
        let mut first = 0;
        let mut slices = Vec::new();
        while first < rows {
            let wanted = usize::try_from(self.chunk - self.done).unwrap_or(usize::MAX);
            let next = wanted.min(rows - first);
            slices.push((self.rank, batch.slice(first, next)));
            first += next;
            self.done += next as u64;
            if self.done == self.chunk {
                self.done = 0;
                self.rank = (self.rank + 1) % ranks;
            }
        }
        slices
    }
}

#[cfg(test)]
#[path = "partitioner_tests.rs"]
mod tests;
