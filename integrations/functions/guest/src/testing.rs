//! Calls of a function where it is compiled, for its author's tests.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Schema, SchemaRef};

use crate::call::{self, Call};
use crate::loan::{self, Loan};
use crate::out::Sink;
use crate::{Entry, Function, Result, copy_batch};

/// What a call has given out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// Batches, of the output's schema.
    pub batches: Vec<RecordBatch>,
    /// Values that are bytes.
    pub values: Vec<Vec<u8>>,
    /// Where the call goes on: URI, descriptor and state.
    pub forward: Option<(String, Vec<u8>, Vec<u8>)>,
}

/// A whole call, as a server makes it: `input` is a schema and batches of it.
///
/// # Errors
///
/// The text that a client would get. A panic goes on.
pub fn call<F: Function>(
    arguments: &[u8],
    input: Option<(&SchemaRef, &[RecordBatch])>,
) -> std::result::Result<Given, String> {
    run::<F>(arguments, input).map_err(|error| call::text(error.as_ref()))
}

fn run<F: Function>(
    arguments: &[u8],
    input: Option<(&SchemaRef, &[RecordBatch])>,
) -> Result<Given> {
    let lists = Rc::new(RefCell::new(Lists::default()));
    let functions = [Entry::new::<F>("function")];
    let schema = input
        .map(|(schema, _)| FFI_ArrowSchema::try_from(schema.as_ref()))
        .transpose()?;
    let sink = Box::new(lists.clone());
    let mut call = Call::begin(&functions, b"function", arguments, schema.as_ref(), sink)?;
    let output = call.schema().map(Schema::try_from).transpose()?;
    lists.borrow_mut().schema = output.map(SchemaRef::new);
    for batch in input.map_or(&[][..], |(_, batches)| batches) {
        let types = |schema: &SchemaRef| {
            schema
                .fields()
                .iter()
                .map(|it| it.data_type().clone())
                .collect::<Vec<_>>()
        };
        if input.is_some_and(|(schema, _)| types(schema) != types(batch.schema_ref())) {
            return Err("a batch has other types than the table".into());
        }
        let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).into_data());
        // A function that fails may have kept a part of it, anywhere.
        let mut array = ManuallyDrop::new(array);
        // SAFETY: the batch has the types of the schema, as compared above. Only the line below
        // frees the array, after the call, which holds nothing of it.
        call = unsafe { call.process(&*array) }?;
        // SAFETY: the last use of it.
        unsafe { ManuallyDrop::drop(&mut array) };
    }
    call.finish()?;
    Ok(lists.take().given)
}

#[derive(Default)]
struct Lists {
    schema: Option<SchemaRef>,
    given: Given,
}

impl Sink for Rc<RefCell<Lists>> {
    fn emit(&mut self, array: &FFI_ArrowArray) -> bool {
        let lists = &mut *self.borrow_mut();
        if let Some(schema) = &lists.schema {
            // SAFETY: the array has this schema, and lives until the copy is there.
            let batch = unsafe { loan::borrow(array, schema, &Loan::default()) };
            lists
                .given
                .batches
                .extend(batch.and_then(|batch| copy_batch(&batch)));
        }
        true
    }

    fn emit_bytes(&mut self, bytes: &[u8]) -> bool {
        self.borrow_mut().given.values.push(bytes.to_vec());
        true
    }

    fn forward(&mut self, uri: &str, descriptor: &[u8], state: &[u8]) -> bool {
        let forward = (uri.to_owned(), descriptor.to_vec(), state.to_vec());
        self.borrow_mut().given.forward = Some(forward);
        true
    }
}
