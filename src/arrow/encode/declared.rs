//! Columns that a schema declares without nulls.
//!
//! A consumer may skip the check for nulls in such a column. The encoder therefore refuses a batch
//! with nulls there.

use super::fault::{Checked, Fault};
use super::pair::Pair;
use super::plan::Plan;
use crate::arrow::format::{Field, Type};

/// The columns that a schema declares without nulls, and such fields of structs, lists and maps.
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

    /// Adds fields whose first node is `next`, inside the fields of `path` and `nodes`.
    fn add(&mut self, fields: &[Field], next: &mut usize, path: &[String], nodes: &[usize]) {
        for field in fields {
            let path = [path, std::slice::from_ref(&field.name)].concat();
            let nodes = [nodes, &[*next]].concat();
            *next += 1;
            if field.dictionary.is_some() {
                // The values are in a message of their own.
            } else if has_reachable_children(&field.ty) {
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
    /// Choice: if a struct or a list has nulls, its fields may have nulls in the same rows. Values
    /// of a list may also have nulls where no row has them. The receiver's validation finds all
    /// other nulls.
    #[inline]
    pub(super) fn check(&self, plan: &Plan) -> Checked<()> {
        let nulls = |node: &usize| plan.nodes.get(*node).map_or(0, |Pair(_, nulls)| *nulls);
        let is_whole = |node: &usize| nulls(node) == 0 && !plan.with_unused.contains(node);
        for column in &self.0 {
            let Some((last, outer)) = column.nodes.split_last() else {
                continue;
            };
            if nulls(last) > 0 && outer.iter().all(is_whole) {
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

/// Whether each row of a child that is sent belongs to a row of a column of this type. Views of
/// lists and unions may leave rows out.
fn has_reachable_children(of: &Type) -> bool {
    matches!(
        of,
        Type::Struct | Type::List { .. } | Type::FixedSizeList(_) | Type::Map { .. }
    )
}

/// The number of fields below a field that is not dictionary-encoded. They have as many nodes.
fn descendants(field: &Field) -> usize {
    let below = |child: &Field| match child.dictionary {
        Some(_) => 1,
        None => 1 + descendants(child),
    };
    field.children.iter().map(below).sum()
}
