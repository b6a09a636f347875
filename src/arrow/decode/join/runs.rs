//! Joins run-end encoded columns.

use super::Joiner;
use crate::arrow::decode::columns::Buffer;
use crate::arrow::decode::field::DecodedField;
use crate::arrow::decode::parts::{ArrayPart, Numbers, Width, too_long};
use crate::arrow::format::Type;
use crate::error::Result;

impl Joiner<'_> {
    /// The ends of some runs of a part, as row numbers of the result from `base` on.
    pub(super) fn ends(
        &self,
        part: &ArrayPart<'_>,
        width: Width,
        (first, count): (usize, usize),
        base: i64,
    ) -> Result<Vec<u8>> {
        let ends = part.child(0)?.numbers(1, width, 0)?;
        let start = i64::try_from(part.start).map_err(|_| too_long())?;
        let len = i64::try_from(part.len).map_err(|_| too_long())?;
        let rows = (first..first.saturating_add(count)).map(|run| {
            let end = (ends.at(run) - start).min(len);
            end.checked_add(base).ok_or_else(too_long)
        });
        self.write_numbers(rows, width)
    }

    pub(super) fn run_ends(
        &mut self,
        field: &DecodedField,
        parts: &[ArrayPart<'_>; 2],
    ) -> Result<usize> {
        let width = match field.children.first().map(|ends| &ends.ty) {
            Some(Type::Int { bits: 16, .. }) => Width::Two,
            Some(Type::Int { bits: 32, .. }) => Width::Four,
            _ => Width::Eight,
        };
        let [old, new] = parts;
        let (old_ends, new_ends) = (old.child(0)?, new.child(0)?);
        let old_numbers = old_ends.numbers(1, width, 0)?;
        let runs = [
            runs_of(old, &old_numbers)?,
            runs_of(new, &new_ends.numbers(1, width, 0)?)?,
        ];
        let old_len = i64::try_from(old.len).map_err(|_| too_long())?;
        let rewritten;
        let whole = runs[0] == (0, old_numbers.len())
            && old_numbers.at(runs[0].1.saturating_sub(1)) == old_len;
        let known = if whole {
            old_ends.bytes(1, width.bytes(), 0)?
        } else {
            rewritten = self.ends(old, width, runs[0], 0)?;
            &rewritten
        };
        let added = self.ends(new, width, runs[1], old_len)?;
        let ends = self.extend(old, known, &added)?;
        let id = self.push(parts, Vec::new(), 2)?;
        let values = [
            parts[0].child_range(1, runs[0].0, runs[0].1)?,
            parts[1].child_range(1, runs[1].0, runs[1].1)?,
        ];
        let end_parts = [
            ArrayPart {
                len: runs[0].1,
                ..values[0]
            },
            ArrayPart {
                len: runs[1].1,
                ..values[1]
            },
        ];
        let ends = self.push(&end_parts, vec![Buffer::ABSENT, ends], 0)?;
        let first = self.out.nodes[id].first_child;
        self.out.children[first] = ends;
        if let Some(child) = field.children.get(1) {
            self.out.children[first + 1] = self.column(child, &values)?;
        }
        Ok(id)
    }
}

/// The runs that a part uses: the first run and the number of runs.
fn runs_of(part: &ArrayPart<'_>, ends: &Numbers<'_>) -> Result<(usize, usize)> {
    let start = i64::try_from(part.start).map_err(|_| too_long())?;
    let last = i64::try_from(part.len).map_err(|_| too_long())?;
    let last = start.checked_add(last).ok_or_else(too_long)?;
    let first = ends.up_to(start);
    if part.len == 0 {
        return Ok((first.min(ends.len()), 0));
    }
    // The run of the last value ends after that value.
    let behind = ends.up_to(last - 1).saturating_add(1).min(ends.len());
    Ok((first, behind.saturating_sub(first)))
}
