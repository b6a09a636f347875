//! One call of a function, over the structs of the C data interface.

use std::error::Error;
use std::mem;
use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Schema, SchemaRef};

use crate::entry::{Entry, Running};
use crate::loan::{self, Loan};
use crate::out::{Out, Sink};
use crate::{Output, Result};

const KEPT: &str = "the function keeps a part of a batch after its call: it must keep a copy \
                    (copy_batch, copy_array)";

/// A call in progress.
pub(crate) struct Call {
    function: Box<dyn Running>,
    input: Option<SchemaRef>,
    out: Out,
    /// What the server reads until the next call; none: the output is bytes.
    schema: Option<FFI_ArrowSchema>,
}

impl Call {
    /// Begins a call of function `name`.
    pub(crate) fn begin(
        functions: &[Entry],
        name: &[u8],
        arguments: &[u8],
        input: Option<&FFI_ArrowSchema>,
        sink: Box<dyn Sink>,
    ) -> Result<Self> {
        let entry = Entry::find(functions, name)?;
        let input = input.map(Schema::try_from).transpose()?.map(Arc::new);
        let (function, output) = (entry.begin)(arguments, input.as_deref())?;
        let schema = match &output {
            Output::Table(schema) => Some(FFI_ArrowSchema::try_from(schema.as_ref())?),
            Output::Bytes => None,
        };
        Ok(Call {
            function,
            input,
            out: Out::new(output, sink),
            schema,
        })
    }

    /// The output's schema; none: the output is bytes.
    pub(crate) fn schema(&self) -> Option<&FFI_ArrowSchema> {
        self.schema.as_ref()
    }

    /// Gives the function the next batch. Without an error the call goes on. After one, no code of
    /// the function has run since it returned, and the caller lets none run again if the memory of
    /// the batch is not kept for ever.
    ///
    /// # Safety
    ///
    /// `array` points to a struct array of the input's type, which is readable until this returns.
    pub(crate) unsafe fn process(mut self, array: *const FFI_ArrowArray) -> Result<Self> {
        let Some(input) = &self.input else {
            return Err("a batch came in a call without a table".into());
        };
        let loan = Loan::default();
        // SAFETY: the caller promises a struct array of the input's type that is readable until
        // this returns. A loan that is not returned ends the function, below.
        let batch = unsafe { loan::borrow(array, input, &loan) }?;
        let done = self.function.process(&batch, &mut self.out);
        drop(batch);
        let done = done.map_err(|error| text(error.as_ref()));
        if !loan.is_returned() {
            // What is kept may lie in the function, whose destructor could read it.
            mem::forget(self);
            return Err(KEPT.into());
        }
        done?;
        Ok(self)
    }

    /// Tells the function that the input has ended.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.function.finish(&mut self.out)
    }
}

/// The text of an error and of its sources.
pub(crate) fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        // Many errors show their source themselves.
        let source_text = source.to_string();
        if !text.ends_with(&source_text) {
            text.push_str(": ");
            text.push_str(&source_text);
        }
        next = source.source();
    }
    text
}
