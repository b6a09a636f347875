//! Views of null rows. Arrow leaves them undefined, but arrow-rs reads them like all other views.

use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use arrow_data::ArrayData;

use crate::error::{Error, Result};

/// Bytes of a view.
const VIEW: usize = 16;

/// The batch with views of zeros in null rows. All its views are sound if the host's views are
/// sound in the other rows.
///
/// # Errors
///
/// `InvalidData`: the columns of the batch do not fit its schema.
pub fn clear_null_views(batch: RecordBatch) -> Result<RecordBatch> {
    let cleared: Vec<_> = (batch.columns().iter())
        .map(|column| cleared(&column.to_data()))
        .collect();
    if cleared.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let columns = (batch.columns().iter().zip(cleared))
        .map(|(column, cleared)| cleared.map_or_else(|| Arc::clone(column), make_array))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
        .map_err(|error| Error::invalid_data(error.to_string()))
}

/// The array with views of zeros in null rows; `None` if it has such views already.
fn cleared(data: &ArrayData) -> Option<ArrayData> {
    let views = match data.data_type() {
        DataType::Utf8View | DataType::BinaryView => cleared_views(data),
        _ => None,
    };
    let children: Vec<_> = data.child_data().iter().map(cleared).collect();
    if views.is_none() && children.iter().all(Option::is_none) {
        return None;
    }
    let mut builder = data.clone().into_builder();
    if let Some(views) = views {
        let mut buffers = data.buffers().to_vec();
        buffers[0] = views;
        builder = builder.buffers(buffers);
    }
    let children = (data.child_data().iter().zip(children))
        .map(|(child, cleared)| cleared.unwrap_or_else(|| child.clone()));
    // SAFETY: the new parts are as long as those that they replace, and a view of zeros is an empty
    // value.
    Some(unsafe { builder.child_data(children.collect()).build_unchecked() })
}

fn cleared_views(data: &ArrayData) -> Option<Buffer> {
    let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0)?;
    let rows = data.offset() * VIEW..(data.offset() + data.len()) * VIEW;
    let is_undefined = |(row, view): (usize, &[u8])| nulls.is_null(row) && view != [0; VIEW];
    let views = data.buffers()[0].as_slice();
    if !views[rows.clone()]
        .chunks_exact(VIEW)
        .enumerate()
        .any(is_undefined)
    {
        return None;
    }
    let mut sound = views.to_vec();
    for (row, view) in sound[rows].chunks_exact_mut(VIEW).enumerate() {
        if nulls.is_null(row) {
            view.fill(0);
        }
    }
    Some(Buffer::from_vec(sound))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray as _, DictionaryArray, StringViewArray, StructArray};
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Field, Fields, Int8Type};

    use super::*;

    /// The text of row 1, and views behind every buffer in rows 0 and 2, which are null.
    fn undefined() -> StringViewArray {
        let wild = 200 | 5 << 64 | 900 << 96;
        let short = 3 | u128::from(u32::from_le_bytes(*b"abc\0")) << 32;
        let views = vec![wild, short, wild];
        let nulls = NullBuffer::from(vec![false, true, false]);
        // SAFETY: none of the tests reads a view before it is cleared.
        unsafe {
            StringViewArray::new_unchecked(
                views.into(),
                [Buffer::from([0; 64])].into(),
                Some(nulls),
            )
        }
    }

    fn clear(column: ArrayRef) -> ArrayRef {
        let batch = RecordBatch::try_from_iter([("column", column)]).unwrap();
        let cleared = clear_null_views(batch).unwrap();
        cleared.column(0).to_data().validate_full().unwrap();
        Arc::clone(cleared.column(0))
    }

    /// Promise of the module: views are cleared in null rows alone, at every depth, in slices too.
    #[test]
    fn undefined_views_are_cleared() {
        let wanted = [None, Some("abc"), None];
        let whole = clear(Arc::new(undefined()));
        assert!(whole.as_string_view().iter().eq(wanted));
        let slice = clear(Arc::new(undefined().slice(1, 2)));
        assert!(slice.as_string_view().iter().eq([Some("abc"), None]));

        let fields = Fields::from(vec![Field::new("text", DataType::Utf8View, true)]);
        let within = StructArray::new(fields, vec![Arc::new(undefined())], None);
        let within = clear(Arc::new(within));
        assert!(
            within
                .as_struct()
                .column(0)
                .as_string_view()
                .iter()
                .eq(wanted)
        );

        let keys = [1_i8, 1, 0].into_iter().collect();
        // SAFETY: the keys are of the three values.
        let words =
            unsafe { DictionaryArray::<Int8Type>::new_unchecked(keys, Arc::new(undefined())) };
        let words = clear(Arc::new(words));
        assert!(
            words
                .as_any_dictionary()
                .values()
                .as_string_view()
                .iter()
                .eq(wanted)
        );
    }

    /// Promise of the module: an array of sound views stays as it is.
    #[test]
    fn sound_views_are_not_copied() {
        let sound: ArrayRef = Arc::new(StringViewArray::from_iter([Some("a"), None]));
        let views = |column: &ArrayRef| column.as_string_view().views().as_ptr();
        assert_eq!(views(&clear(Arc::clone(&sound))), views(&sound));
    }
}
