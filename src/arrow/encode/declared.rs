//! Columns that a schema declares without nulls.
//!
//! A consumer may skip the check for nulls in such a column. The encoder therefore refuses a batch
//! with nulls there.

use super::fault::{Checked, Fault};
use super::pair::Pair;
use crate::arrow::format::{Field, Type};

/// The columns without nulls of one schema, and such fields of structs.
#[derive(Debug, Default)]
pub(super) struct DeclaredFull(Vec<Column>);

#[derive(Debug)]
struct Column {
    /// The names from the column to the field.
    path: Vec<String>,
    /// The nodes of the same fields: the last one must have no nulls.
    nodes: Vec<usize>,
}

impl DeclaredFull {
    pub(super) fn of(fields: &[Field]) -> Self {
        let mut found = Self::default();
        found.add(fields, &mut 0, &[], &[]);
        found
    }

    /// Adds fields whose first node is `next`, inside the structs of `path` and `nodes`.
    fn add(&mut self, fields: &[Field], next: &mut usize, path: &[String], nodes: &[usize]) {
        for field in fields {
            let path = [path, std::slice::from_ref(&field.name)].concat();
            let nodes = [nodes, &[*next]].concat();
            *next += 1;
            if field.dictionary.is_some() {
                // The values are in a message of their own.
            } else if field.ty == Type::Struct {
                self.add(&field.children, next, &path, &nodes);
            } else {
                *next += descendants(field);
            }
            if !field.nullable && field.ty != Type::Null {
                self.0.push(Column { path, nodes });
            }
        }
    }

    /// Checks the nodes of a batch.
    /// Choice: if a struct has nulls, a field may have nulls in the same rows. The receiver's
    /// validation finds whether the rows are the same.
    #[inline]
    pub(super) fn check(&self, found: &[Pair]) -> Checked<()> {
        let nulls = |node: &usize| found.get(*node).map_or(0, |Pair(_, nulls)| *nulls);
        for column in &self.0 {
            let Some((last, structs)) = column.nodes.split_last() else {
                continue;
            };
            if nulls(last) > 0 && structs.iter().all(|node| nulls(node) == 0) {
                let fault = Fault::invalid(format!(
                    "{} values are null, and the schema declares the column without nulls: declare it \
                     nullable",
                    nulls(last)
                ));
                return Err(
                    (column.path.iter().rev()).fold(fault, |fault, name| fault.inside(name))
                );
            }
        }
        Ok(())
    }
}

/// The number of fields below one that is not dictionary-encoded: as many as nodes.
fn descendants(field: &Field) -> usize {
    let below = |child: &Field| match child.dictionary {
        Some(_) => 1,
        None => 1 + descendants(child),
    };
    field.children.iter().map(below).sum()
}
