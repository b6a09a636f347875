//! The way out of a function.

use std::fmt;

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch, RecordBatchOptions, StructArray};

use crate::{Output, Result};

/// Where output goes: the server, or a test's lists. Both copy before they return, and answer
/// whether they want more.
pub(crate) trait Sink {
    fn emit(&mut self, array: &FFI_ArrowArray) -> bool;
    fn emit_bytes(&mut self, bytes: &[u8]) -> bool;
    /// True if the call goes on there.
    fn forward(&mut self, uri: &str, descriptor: &[u8], state: &[u8]) -> bool;
}

/// The server lets the call go on at no other server: it allows none, or the call has been at too
/// many. A function that returns this error ends its call with the server's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHop;

impl fmt::Display for NoHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call may go on at no other server")
    }
}

impl std::error::Error for NoHop {}

/// Takes what a function gives out.
pub struct Out {
    output: Output,
    sink: Box<dyn Sink>,
    wanted: bool,
}

impl Out {
    pub(crate) fn new(output: Output, sink: Box<dyn Sink>) -> Self {
        Out {
            output,
            sink,
            wanted: true,
        }
    }

    /// Gives out a batch. Its columns have the types of the output's schema, which gives the names;
    /// the server copies them before the call returns.
    ///
    /// # Errors
    ///
    /// The batch does not agree with the output's schema, or the output is bytes.
    pub fn emit(&mut self, batch: &RecordBatch) -> Result<()> {
        let Output::Table(schema) = &self.output else {
            return Err("the function's output is bytes, and it gives out a batch".into());
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch =
            RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?;
        if self.wanted {
            let array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
            self.wanted = self.sink.emit(&array);
        }
        Ok(())
    }

    /// Gives out a value that is bytes. The server copies it before the call returns.
    ///
    /// # Errors
    ///
    /// The output is batches.
    pub fn emit_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if let Output::Table(_) = self.output {
            return Err("the function's output is batches, and it gives out bytes".into());
        }
        if self.wanted {
            self.wanted = self.sink.emit_bytes(bytes);
        }
        Ok(())
    }

    /// Has the call go on at another server once [`finish`](crate::Function::finish) has returned
    /// well: this function runs there on the table `descriptor` (empty: without a table), with
    /// `state` as its arguments, and its output, of the same schema, follows this one's.
    ///
    /// At most once in a call; the server ends a call that asks twice. `uri` has at most 4 KiB,
    /// `descriptor` 64 KiB, `state` 48 KiB.
    ///
    /// # Errors
    ///
    /// [`NoHop`]; the function may give out what it has.
    pub fn forward(
        &mut self,
        uri: &str,
        descriptor: &[u8],
        state: &[u8],
    ) -> std::result::Result<(), NoHop> {
        match self.sink.forward(uri, descriptor, state) {
            true => Ok(()),
            false => Err(NoHop),
        }
    }

    /// False once the receiver needs no more rows. What is given out then is thrown away, so a
    /// function with much to give out looks at it.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out")
            .field("output", &self.output)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}
