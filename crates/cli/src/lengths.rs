//! Arrays that are longer than their memory. Nulls, run ends, structs without fields and values of
//! width 0 have any length in a few bytes, and all views of a list-view array may show the same
//! values. Work value by value would not end, or would fill the memory.

use anyhow::{Result, bail};
use arrow::array::{Array, ArrayData, ArrayRef, AsArray as _, make_array};
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::record_batch::RecordBatch;

/// Rows to work on at once.
pub const PIECE: usize = 1 << 20;
/// Most bytes to decode at once, unless a single value has more.
pub const PART_BYTES: usize = 64 << 20;
/// Most values without memory that one batch may have: the limit of filters.
pub const MAX_VALUES: usize = 64 << 20;

/// The batch in parts of no more than [`PIECE`] rows, and of no more than [`PART_BYTES`] in the
/// values that rows share.
pub fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let rows = batch.num_rows();
    let shared = batch.columns().iter().map(|column| widest_shared(column));
    let width = shared.fold(0, usize::saturating_add);
    let step = (PART_BYTES / width.max(1)).clamp(1, PIECE);
    (0..rows)
        .step_by(step)
        .map(move |start| batch.slice(start, step.min(rows - start)))
}

/// The bytes of the widest value that rows of a column share: those of dictionaries and runs.
fn widest_shared(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Dictionary(_, _) => widest(array.as_any_dictionary().values()),
        DataType::RunEndEncoded(_, _) => widest(&run_values(&make_array(array.to_data()))),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            let shared = columns.map(|column| widest_shared(column));
            shared.fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

/// The values of an array of runs.
pub fn run_values(array: &ArrayRef) -> ArrayRef {
    let data = array.to_data();
    match data.child_data() {
        [_, values] => make_array(values.clone()),
        _ => array.clone(),
    }
}

/// The bytes of the widest value. For nested types the bytes of all values together, as an upper
/// bound.
pub fn widest(values: &ArrayRef) -> usize {
    fn longest(lengths: impl Iterator<Item = usize>) -> usize {
        lengths.max().unwrap_or(0)
    }
    match values.data_type() {
        DataType::Utf8 => longest(values.as_string::<i32>().offsets().lengths()),
        DataType::LargeUtf8 => longest(values.as_string::<i64>().offsets().lengths()),
        DataType::Binary => longest(values.as_binary::<i32>().offsets().lengths()),
        DataType::LargeBinary => longest(values.as_binary::<i64>().offsets().lengths()),
        DataType::Utf8View => longest(values.as_string_view().lengths().map(|n| n as usize)),
        DataType::BinaryView => longest(values.as_binary_view().lengths().map(|n| n as usize)),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or(0),
        DataType::Null | DataType::Boolean => 1,
        data_type => data_type
            .primitive_width()
            .unwrap_or_else(|| values.get_array_memory_size()),
    }
}

/// Whether every value of the batch can be written out, row by row.
pub fn ensure_writable(batch: &RecordBatch) -> Result<()> {
    let rows = batch.num_rows();
    let fields = batch.schema_ref().fields();
    // A column with memory bounds the rows: they are no more than its bits.
    let is_bounded = (fields.iter()).any(|field| has_rows_in_memory(field.data_type()));
    let most = if is_bounded {
        rows.max(MAX_VALUES)
    } else {
        MAX_VALUES
    };
    for (field, column) in fields.iter().zip(batch.columns()) {
        check(field.name(), &column.to_data(), most)?;
    }
    if rows > most {
        bail!(too_many("the table", rows, most));
    }
    Ok(())
}

/// Whether each row of a column takes memory, nulls apart.
fn has_rows_in_memory(ty: &DataType) -> bool {
    match ty {
        DataType::FixedSizeList(item, size) => *size > 0 && has_rows_in_memory(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|it| has_rows_in_memory(it.data_type())),
        ty => !is_free(ty),
    }
}

/// Whether the values of an array have no memory.
fn is_free(ty: &DataType) -> bool {
    match ty {
        DataType::Null
        | DataType::RunEndEncoded(_, _)
        | DataType::FixedSizeList(_, 0)
        | DataType::FixedSizeBinary(0) => true,
        DataType::Struct(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Whether the array has too many such values below it. A list of nulls takes a bit for each.
pub fn has_long(data: &ArrayData) -> bool {
    let long = |child: &ArrayData| is_free(child.data_type()) && child.len() > MAX_VALUES;
    data.child_data()
        .iter()
        .any(|child| long(child) || has_long(child))
}

fn too_many(what: &str, values: usize, most: usize) -> String {
    format!(
        "{what} has {values} values without memory of their own in one batch, more than the {most} \
         that are gone through one by one; write it as an Arrow stream (.arrows)"
    )
}

fn check(name: &str, data: &ArrayData, most: usize) -> Result<()> {
    if is_free(data.data_type()) && data.len() > most {
        bail!(too_many(&format!("column {name:?}"), data.len(), most));
    }
    if let DataType::ListView(_) | DataType::LargeListView(_) = data.data_type() {
        let shown = shown_values(data);
        let there: usize = data.child_data().iter().map(ArrayData::len).sum();
        if shown > there.max(MAX_VALUES) {
            bail!(too_many(&format!("column {name:?}"), shown, MAX_VALUES));
        }
    }
    // A struct's children have the same rows as the struct, so its limit applies to them too.
    let below = match data.data_type() {
        DataType::Struct(_) => most,
        _ => MAX_VALUES,
    };
    for child in data.child_data() {
        check(name, child, below)?;
    }
    Ok(())
}

/// How many values the views of a list-view array show together.
fn shown_values(data: &ArrayData) -> usize {
    let array: ArrayRef = make_array(data.clone());
    fn sum<T: ArrowNativeType>(sizes: &[T]) -> usize {
        sizes
            .iter()
            .fold(0, |sum, size| sum.saturating_add(size.as_usize()))
    }
    match array.data_type() {
        DataType::ListView(_) => sum(array.as_list_view::<i32>().sizes()),
        _ => sum(array.as_list_view::<i64>().sizes()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        FixedSizeBinaryArray, FixedSizeListArray, Int64Array, LargeListArray, LargeListViewArray,
        NullArray, RecordBatchOptions, RunArray, StringArray, StructArray,
    };
    use arrow::buffer::{Buffer, OffsetBuffer};
    use arrow::datatypes::{Field, Int64Type, Schema};

    use super::*;
    use crate::checksum::Checksum;

    fn runs(ends: &[i64], values: &dyn Array) -> ArrayRef {
        let ends = Int64Array::from(ends.to_vec());
        let runs =
            RunArray::<Int64Type>::try_new(&ends, &arrow::array::make_array(values.to_data()));
        Arc::new(runs.unwrap())
    }

    fn of(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap()
    }

    fn hash(batch: &RecordBatch) -> Result<String> {
        let mut checksum = Checksum::new(&batch.schema());
        checksum.update(batch, &|| Ok(()))?;
        Ok(checksum.finish())
    }

    /// Columns with more values than the limits.
    fn long(len: usize) -> Vec<ArrayRef> {
        let end = i64::try_from(len).unwrap();
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let list = |values: ArrayRef| -> ArrayRef {
            Arc::new(LargeListArray::new(
                item(values.data_type().clone()),
                OffsetBuffer::new(vec![0, end].into()),
                values,
                None,
            ))
        };
        let nulls: ArrayRef = Arc::new(NullArray::new(len));
        let seven = runs(&[end], &Int64Array::from(vec![7]));
        let empty = FixedSizeListArray::try_new_with_length(
            item(DataType::Int8),
            0,
            arrow::array::new_empty_array(&DataType::Int8),
            None,
            len,
        );
        let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::from(&[]), None, len);
        vec![
            list(Arc::clone(&nulls)),
            list(Arc::clone(&seven)),
            nulls,
            seven,
            Arc::new(StructArray::new_empty_fields(len, None)),
            Arc::new(empty.unwrap()),
            Arc::new(bytes.unwrap()),
        ]
    }

    /// Promise of `--output x.parquet` and of `--checksum`: a column that would take for ever is
    /// refused; a hash comes at once or not at all.
    #[test]
    fn columns_without_an_end_are_refused() {
        for len in [(1 << 33) + 5, 1 << 40, isize::MAX.unsigned_abs()] {
            for column in long(len) {
                let batch = of(column);
                let told = ensure_writable(&batch).unwrap_err().to_string();
                assert!(
                    told.contains("column \"c\"") && told.contains(".arrows"),
                    "{told}"
                );
                let is_run = format!("{}", batch.column(0).data_type()).contains("RunEnd");
                match hash(&batch) {
                    Ok(_) => assert!(!is_run),
                    Err(error) => assert!(error.to_string().contains("runs of"), "{error}"),
                }
            }
            let options = RecordBatchOptions::new().with_row_count(Some(len));
            let schema = Arc::new(Schema::empty());
            let bare = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
            ensure_writable(&bare).unwrap_err();
            hash(&bare).unwrap();
        }
        for column in long(1 << 20) {
            ensure_writable(&of(column)).unwrap();
        }
    }

    /// Views that show the same values again count each shown value.
    #[test]
    fn views_of_the_same_values_are_counted() {
        let shown = |views: usize, size: i64| {
            let values: ArrayRef = Arc::new(NullArray::new(usize::try_from(size).unwrap()));
            let list = LargeListViewArray::new(
                Arc::new(Field::new("item", DataType::Null, true)),
                vec![0; views].into(),
                vec![size; views].into(),
                values,
                None,
            );
            of(Arc::new(list))
        };
        ensure_writable(&shown(100, 1000)).unwrap();
        ensure_writable(&shown(1000, 1 << 20)).unwrap_err();
        let told = hash(&shown(10_000, 1 << 20)).unwrap_err().to_string();
        assert!(told.contains("list views"), "{told}");
    }

    /// Promise of `--checksum`: long runs, and dictionaries of long values, are hashed in parts,
    /// and equal the plain values.
    #[test]
    fn long_runs_are_hashed_in_parts() {
        let rows = 3 * PIECE + 5;
        let first = PIECE + 1;
        let ends = [first, rows].map(|end| i64::try_from(end).unwrap());
        let plain = (0..rows).map(|row| (row < first).then_some(7));
        assert_eq!(
            hash(&of(runs(&ends, &Int64Array::from(vec![Some(7), None])))).unwrap(),
            hash(&of(Arc::new(plain.collect::<Int64Array>()))).unwrap()
        );
        // More bytes than one part.
        let words = StringArray::from(vec!["y".repeat(1 << 20).as_str()]);
        let keys = arrow::array::Int32Array::from(vec![0; 80]);
        let long = arrow::array::DictionaryArray::new(keys, Arc::new(words.clone()));
        let plain = StringArray::from(vec!["y".repeat(1 << 20).as_str(); 80]);
        let hashes = [
            of(Arc::new(long)),
            of(runs(&[80], &words)),
            of(Arc::new(plain)),
        ]
        .map(|batch| hash(&batch).unwrap());
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }

    /// Pieces have every row once, in order.
    #[test]
    fn pieces_are_the_batch() {
        let rows = 2 * PIECE + 3;
        let numbers: Int64Array = (0..i64::try_from(rows).unwrap()).collect();
        let batch = of(Arc::new(numbers));
        let sizes: Vec<_> = pieces(&batch).map(|piece| piece.num_rows()).collect();
        assert_eq!(sizes, [PIECE, PIECE, 3]);
        let all: Vec<_> = pieces(&batch).collect();
        assert_eq!(
            arrow::compute::concat_batches(&batch.schema(), &all).unwrap(),
            batch
        );
    }
}
