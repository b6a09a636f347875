//! Checks the choices of a union's rows (level `full` of rule A8): the child exists. In a dense
//! union the value exists too, and is not before the last chosen value of the child.

use crate::error::{Error, Result};

#[derive(Clone, Copy)]
struct Child {
    id: i8,
    length: i64,
    /// The last chosen value.
    last: i32,
}

/// The children of a union during a pass over its rows.
pub(super) struct Choices {
    children: [Option<Child>; 128],
    /// The type id of a child with values, if any.
    filled: Option<i8>,
    first: Option<i8>,
}

impl Choices {
    /// For children with these type ids and lengths.
    pub(super) fn new(given: &[(i8, i64)]) -> Self {
        let mut children = [None; 128];
        for (id, length) in given {
            let (id, length) = (*id, *length);
            if let Some(place) = usize::try_from(id).ok().and_then(|id| children.get_mut(id)) {
                *place = Some(Child {
                    id,
                    length,
                    last: 0,
                });
            }
        }
        let filled = given.iter().find(|(_, length)| *length > 0);
        Self {
            children,
            filled: filled.map(|(id, _)| *id),
            first: given.first().map(|(id, _)| *id),
        }
    }

    fn child(&mut self, id: i8) -> Option<&mut Child> {
        let id = usize::try_from(id).ok()?;
        self.children.get_mut(id)?.as_mut()
    }

    /// Checks all rows. `offsets` is `None` for a sparse union.
    pub(super) fn check_all(&mut self, types: &[i8], offsets: Option<&[i32]>) -> Result<()> {
        for (row, id) in types.iter().enumerate() {
            let offset = offsets.and_then(|offsets| offsets.get(row).copied());
            self.check(row, *id, offset)?;
        }
        Ok(())
    }

    /// Checks a reachable row.
    pub(super) fn check(&mut self, row: usize, id: i8, offset: Option<i32>) -> Result<()> {
        let child = self.child(id).ok_or_else(|| {
            Error::invalid_data(format!("row {row} has the unknown type id {id}"))
        })?;
        let Some(offset) = offset else {
            return Ok(());
        };
        if !(0..child.length).contains(&i64::from(offset)) {
            return Err(Error::invalid_data(format!(
                "row {row} is value {offset} of a child with {} values",
                child.length
            )));
        }
        if offset < child.last {
            return Err(Error::invalid_data(format!(
                "row {row} is value {offset} of a child, after a row that is value {}: offsets of \
                 a dense union must not fall",
                child.last
            )));
        }
        child.last = offset;
        Ok(())
    }

    /// A valid choice for an unreachable row: its own type id or another, and an offset.
    pub(super) fn substitute(
        &mut self,
        row: usize,
        id: i8,
        dense: bool,
    ) -> Result<(i8, Option<i32>)> {
        let known = self.child(id).filter(|child| !dense || child.length > 0);
        let id = match known {
            Some(child) => Some(child.id),
            None if dense => self.filled,
            None => self.first,
        };
        let child = id.and_then(|id| self.child(id)).ok_or_else(|| {
            Error::invalid_data(format!("row {row} of a union whose children have no value"))
        })?;
        Ok((child.id, dense.then_some(child.last)))
    }
}
