//! What the author of a function writes.

use std::error::Error;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::Out;

/// Any error, and a text by `"text".into()`. The client gets its text and those of its sources.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A function of a module. A value of the type serves one call, that is one table, from
/// [`init`](Function::init) to [`finish`](Function::finish).
pub trait Function: Sized + 'static {
    /// Begins a call.
    ///
    /// `arguments` are bytes of the client, which client and function agree on. `input` is the
    /// schema of the table, and `None` in a call without one: then only
    /// [`finish`](Function::finish) follows.
    ///
    /// # Errors
    ///
    /// An error ends the call, here and in the other functions.
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)>;

    /// Takes the next batch of the table, which has the schema of `init`. Any number of batches may
    /// be given out. The batch is borrowed: what is kept of it must be a copy
    /// ([the crate's page](crate#input-is-borrowed)).
    ///
    /// A function that does without tables need not have it.
    ///
    /// # Errors
    ///
    /// As [`init`](Function::init).
    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        let _ = (batch, out);
        Err("the function takes no table".into())
    }

    /// Ends the call: the table has no further batch. Any number of batches may be given out.
    ///
    /// # Errors
    ///
    /// As [`init`](Function::init).
    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let _ = out;
        Ok(())
    }
}

/// What a function gives out.
#[derive(Debug, Clone)]
pub enum Output {
    /// Batches of this schema.
    Table(SchemaRef),
    /// Values that are bytes.
    Bytes,
}

impl Output {
    /// Batches of `schema`.
    pub fn table(schema: impl Into<Arc<Schema>>) -> Self {
        Output::Table(schema.into())
    }
}
