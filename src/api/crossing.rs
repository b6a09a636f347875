//! Record batches of other versions of the `arrow` crate.
//!
//! The API has the record batches of one version, which changes with libdipc's own major version. A
//! program that uses another version enables the feature of that version, and reads and sends its
//! own record batches by the module of the same name. The batches cross by Arrow's C data
//! interface: their buffers are shared, not copied.
//!
//! ```
//! # #[cfg(feature = "arrow-59")] {
//! # use std::sync::Arc;
//! # mod arrow { pub use arrow_array_59 as array; }
//! use arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! use dipc::crossing::arrow_59::{batches, reader};
//!
//! let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let batch = RecordBatch::try_from_iter([("n", column)])?;
//!
//! let server = dipc::Server::new()?;
//! let table = batch.clone();
//! server.serve("numbers", move |_: &dipc::Request<'_>| {
//!     Ok(batches(&table.schema(), [table.clone()])?)
//! })?;
//! let uri = server.listen("shm:@dipc-doc-crossing")?;
//! let got = reader(dipc::Client::new()?.get(uri, "numbers")?)?.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(got, [batch]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The parts of `arrow` 59 that this module converts, under the names of that crate.
#[cfg(feature = "arrow-59")]
mod parts_59 {
    pub use arrow_array_59::ffi;
    pub use {arrow_array_59 as array, arrow_array_59 as record_batch};
    pub use {arrow_schema_59 as datatypes, arrow_schema_59 as error};
}

/// The module of a version. To add a version, add a feature, its optional dependencies, a module
/// with their names, and a line at the end of this file.
macro_rules! version {
    ($name:ident, $($arrow:ident)::+, $feature:literal) => {
        #[doc = concat!("Record batches of `arrow` ", $feature, ".")]
        #[cfg(feature = $feature)]
        pub mod $name {
            use std::mem;
            #[cfg(any(feature = "tokio", feature = "async-io"))]
            use std::pin::Pin;
            use std::sync::Arc;
            #[cfg(any(feature = "tokio", feature = "async-io"))]
            use std::task::{Context, Poll, ready};

            use $($arrow)::+::array::{Array as _, RecordBatch, RecordBatchOptions, StructArray};
            use $($arrow)::+::datatypes::{DataType, Schema, SchemaRef};
            use $($arrow)::+::error::ArrowError;
            use $($arrow)::+::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
            use $($arrow)::+::record_batch::RecordBatchReader;

            #[cfg(any(feature = "tokio", feature = "async-io"))]
            use crate::api::AsyncReader;
            use crate::api::{Batches, Reader};
            use crate::arrow::abi::{ArrowArray, ArrowSchema};
            use crate::arrow::columns::ensure_same_columns;
            use crate::arrow::{
                OwnedDeviceArray, OwnedSchema, batch_from_c, batch_to_c, schema_from_c, schema_to_c,
            };
            use crate::error::{Error, Result};

            // Both are structs of Arrow's C data interface; only the Rust types differ.
            const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());
            const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<ArrowArray>());
            const _: () = assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());
            const _: () = assert!(align_of::<FFI_ArrowSchema>() == align_of::<ArrowSchema>());

            /// Reads a stream as record batches of this version.
            pub struct Crossed {
                reader: Reader,
                schema: SchemaRef,
            }

            /// Reads a stream as record batches of this version, in async programs.
            #[cfg(any(feature = "tokio", feature = "async-io"))]
            pub struct CrossedStream {
                reader: AsyncReader,
                schema: SchemaRef,
            }

            /// The record batches of `reader`.
            ///
            /// # Errors
            ///
            /// `InvalidData` for a schema that this version of `arrow` cannot express.
            pub fn reader(reader: Reader) -> Result<Crossed> {
                let schema = Arc::new(schema_out(&reader.schema())?);
                Ok(Crossed { reader, schema })
            }

            /// The record batches of `reader`, as a [`Stream`](futures_core::Stream).
            ///
            /// # Errors
            ///
            /// `InvalidData` for a schema that this version of `arrow` cannot express.
            #[cfg(any(feature = "tokio", feature = "async-io"))]
            pub fn stream(reader: AsyncReader) -> Result<CrossedStream> {
                let schema = Arc::new(schema_out(&reader.schema())?);
                Ok(CrossedStream { reader, schema })
            }

            /// Converts record batches of one schema to those of the API, for programs that hand
            /// over batch after batch.
            #[derive(Debug, Clone)]
            pub struct Entrance {
                outside: SchemaRef,
                inside: arrow::datatypes::SchemaRef,
            }

            impl Entrance {
                /// # Errors
                ///
                /// `InvalidData` if the schema cannot be sent.
                pub fn new(schema: &SchemaRef) -> Result<Self> {
                    Ok(Self {
                        outside: Arc::clone(schema),
                        inside: Arc::new(schema_in(schema)?),
                    })
                }

                /// The schema, as a type of the API.
                pub fn schema(&self) -> &arrow::datatypes::SchemaRef {
                    &self.inside
                }

                /// Turns a record batch of this version into one of the API.
                ///
                /// # Errors
                ///
                /// `InvalidData`, with the first difference, if the batch has other columns than
                /// the schema.
                pub fn batch(&self, batch: RecordBatch) -> Result<arrow::array::RecordBatch> {
                    let given = batch.schema_ref();
                    if given.fields() != self.outside.fields() {
                        ensure_same_columns(&self.inside, &schema_in(given)?)?;
                    }
                    let exported = FFI_ArrowArray::new(&StructArray::from(batch).to_data());
                    // SAFETY: both types are the same `repr(C)` struct of the C data interface, as
                    // compared above. `transmute` moves the value, so it keeps one owner.
                    let array = unsafe { mem::transmute::<FFI_ArrowArray, ArrowArray>(exported) };
                    // SAFETY: the array is arrow's own, in host memory, and moved here.
                    let array = unsafe { OwnedDeviceArray::on_host(array) };
                    // SAFETY: the array has the columns that were just compared, and `inside` is
                    // the schema of them.
                    unsafe { batch_from_c(array, &self.inside) }
                }
            }

            /// Record batches of this version, for a put or a provider.
            ///
            /// # Errors
            ///
            /// `InvalidData` for a schema that cannot be sent.
            pub fn batches<I>(schema: &SchemaRef, batches: I) -> Result<Batches>
            where
                I: IntoIterator<Item = RecordBatch>,
                I::IntoIter: Send + 'static,
            {
                let entrance = Entrance::new(schema)?;
                let inside = Arc::clone(entrance.schema());
                let batches = batches.into_iter().map(move |batch| entrance.batch(batch));
                Ok(Batches::new(inside, batches))
            }

            /// Turns a schema of this version into one of the API.
            ///
            /// # Errors
            ///
            /// `InvalidData` if it cannot be sent.
            pub fn schema_in(schema: &Schema) -> Result<arrow::datatypes::Schema> {
                let exported =
                    FFI_ArrowSchema::try_from(schema).map_err(|error| invalid(&error))?;
                // SAFETY: both types are the `repr(C)` struct of the C data interface, as compared
                // above. `transmute` moves the value, so it keeps one owner.
                let raw = unsafe { mem::transmute::<FFI_ArrowSchema, ArrowSchema>(exported) };
                // SAFETY: arrow exports schemas that follow the interface; `raw` is the only owner.
                schema_from_c(&unsafe { OwnedSchema::from_raw(raw) })
            }

            /// Turns a schema of the API into one of this version.
            ///
            /// # Errors
            ///
            /// `InvalidData` if this version cannot express it.
            pub fn schema_out(schema: &arrow::datatypes::Schema) -> Result<Schema> {
                let raw = schema_to_c(schema)?.into_raw();
                // SAFETY: both types are the same `repr(C)` struct of the C data interface, as
                // compared above. `transmute` moves the value, so it keeps one owner.
                let imported = unsafe { mem::transmute::<ArrowSchema, FFI_ArrowSchema>(raw) };
                Schema::try_from(&imported).map_err(|error| invalid(&error))
            }

            /// Turns a record batch of this version into one of the API. `schema` is the result of
            /// [`schema_in`] for the schema of the batch. [`Entrance`] is cheaper for many batches.
            ///
            /// # Errors
            ///
            /// `InvalidData` if `schema` has other columns than the batch, or if the batch's schema
            /// cannot be sent.
            pub fn batch_in(
                batch: RecordBatch,
                schema: &arrow::datatypes::SchemaRef,
            ) -> Result<arrow::array::RecordBatch> {
                let entrance = Entrance::new(batch.schema_ref())?;
                ensure_same_columns(schema, entrance.schema())?;
                let entrance = Entrance {
                    inside: Arc::clone(schema),
                    ..entrance
                };
                entrance.batch(batch)
            }

            /// Turns a record batch of the API into one of this version. `schema` is the result of
            /// [`schema_out`] for the schema of the batch.
            ///
            /// # Errors
            ///
            /// `InvalidData` if `schema` has other columns than the batch.
            pub fn batch_out(
                batch: arrow::array::RecordBatch,
                schema: &SchemaRef,
            ) -> Result<RecordBatch> {
                if schema_out(&batch.schema())?.fields() != schema.fields() {
                    return Err(Error::invalid_data(
                        "the batch has other columns than the schema",
                    ));
                }
                cross_out(batch, schema)
            }

            /// [`batch_out`] for a batch whose columns are known to be those of `schema`.
            fn cross_out(
                batch: arrow::array::RecordBatch,
                schema: &SchemaRef,
            ) -> Result<RecordBatch> {
                let raw = batch_to_c(batch).into_raw().array;
                // SAFETY: both types are the same `repr(C)` struct of the C data interface, as
                // compared above. `transmute` moves the value, so it keeps one owner.
                let imported = unsafe { mem::transmute::<ArrowArray, FFI_ArrowArray>(raw) };
                let columns = DataType::Struct(schema.fields().clone());
                // SAFETY: the array is arrow's own, of these columns, and follows the interface.
                let data = unsafe { from_ffi_and_data_type(imported, columns) }
                    .map_err(|error| invalid(&error))?;
                let options = RecordBatchOptions::new().with_row_count(Some(data.len()));
                let columns = StructArray::from(data).into_parts().1;
                RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
                    .map_err(|error| invalid(&error))
            }

            fn invalid(error: &ArrowError) -> Error {
                Error::invalid_data(error.to_string())
            }

            impl Iterator for Crossed {
                type Item = std::result::Result<RecordBatch, ArrowError>;

                fn next(&mut self) -> Option<Self::Item> {
                    let next = self.reader.next_batch().transpose()?;
                    let crossed = next.and_then(|batch| cross_out(batch, &self.schema));
                    Some(crossed.map_err(|error| ArrowError::ExternalError(Box::new(error))))
                }
            }

            impl RecordBatchReader for Crossed {
                fn schema(&self) -> SchemaRef {
                    Arc::clone(&self.schema)
                }
            }

            #[cfg(any(feature = "tokio", feature = "async-io"))]
            impl CrossedStream {
                /// The schema of each batch.
                pub fn schema(&self) -> SchemaRef {
                    Arc::clone(&self.schema)
                }

                /// The stream itself: its headers and figures.
                pub fn reader(&self) -> &AsyncReader {
                    &self.reader
                }
            }

            #[cfg(any(feature = "tokio", feature = "async-io"))]
            impl futures_core::Stream for CrossedStream {
                type Item = Result<RecordBatch>;

                fn poll_next(
                    mut self: Pin<&mut Self>,
                    context: &mut Context<'_>,
                ) -> Poll<Option<Self::Item>> {
                    let next = ready!(Pin::new(&mut self.reader).poll_next(context));
                    let crossed = |batch: Result<_>| cross_out(batch?, &self.schema);
                    Poll::Ready(next.map(crossed))
                }
            }

            #[cfg(any(feature = "tokio", feature = "async-io"))]
            impl std::fmt::Debug for CrossedStream {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.reader.fmt(f)
                }
            }

            impl std::fmt::Debug for Crossed {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.reader.fmt(f)
                }
            }
        }
    };
}

version!(arrow_59, super::parts_59, "arrow-59");
version!(arrow_60, arrow, "arrow-60");
