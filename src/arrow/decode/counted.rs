//! Lists of rows that count against the budget.

use crate::arrow::decode::budget::DecodeBudget;
use crate::error::{Error, Result};

/// A list that counts against the budget, because small rows can cause many entries.
pub(super) struct CountedList<'a, T> {
    pub(super) rows: Vec<T>,
    budget: &'a DecodeBudget<'a>,
}

impl<'a, T> CountedList<'a, T> {
    pub(super) fn new(budget: &'a DecodeBudget<'a>) -> Self {
        Self {
            rows: Vec::new(),
            budget,
        }
    }

    pub(super) fn add(&mut self, row: T) -> Result<()> {
        // A full list doubles.
        self.budget.take(2 * size_of::<T>() as u64)?;
        let reserved = self.rows.try_reserve(1);
        reserved.map_err(|_| Error::out_of_memory("no memory for a list of rows"))?;
        self.rows.push(row);
        Ok(())
    }
}
