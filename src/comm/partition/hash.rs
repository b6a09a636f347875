//! The hash that sends rows with equal keys to one rank. `docs/communicator-hash.md` specifies it.
//!
//! It is equal on all machines, in all languages and in all versions, so nothing here may change
//! the hash of a value. It depends on values alone: dictionaries, runs, views and slices hash as
//! the values that they stand for.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeListArray,
    GenericListArray, GenericListViewArray, MapArray, OffsetSizeTrait, RunArray, StructArray,
    UnionArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeType, DataType, Float16Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, RunEndIndexType,
};
use twox_hash::XxHash3_64;

use super::fixed;
use crate::error::{Error, Result};

/// The hash of a null of any type.
pub const NULL: u64 = 0x9ae1_6a3b_2f90_404f;

/// The hash of a value without parts: of no bytes, and of a struct without children. It is the
/// XXH3-64 of no bytes.
pub const EMPTY: u64 = 0x2d06_8005_38d3_94c2;

/// The hash of two hashes, which depends on their order.
pub const fn mix(left: u64, right: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;
    let mut mixed = left.rotate_left(29).wrapping_mul(ODD).wrapping_add(right);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(SPREAD);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(SPREAD);
    mixed ^ (mixed >> 32)
}

/// The rank of a row with this hash. It is less than `ranks`, unless `ranks` is 0.
pub fn rank_of(hash: u64, ranks: u32) -> u32 {
    let rank = (u128::from(hash) * u128::from(ranks)) >> 64;
    u32::try_from(rank).unwrap_or(0)
}

/// The hash of each row of these columns. Without columns the result is empty.
///
/// # Errors
///
/// `InvalidArgument`: the columns differ in length.
pub fn hash_rows(columns: &[ArrayRef]) -> Result<Vec<u64>> {
    let Some((first, others)) = columns.split_first() else {
        return Ok(Vec::new());
    };
    let mut hashes = hash_column(first)?;
    for column in others {
        if column.len() != hashes.len() {
            return Err(Error::invalid_argument(format!(
                "a key column has {} rows and another {}: all columns of a batch have as many",
                column.len(),
                hashes.len()
            )));
        }
        mix_into(&mut hashes, &hash_column(column)?);
    }
    Ok(hashes)
}

fn mix_into(hashes: &mut [u64], others: &[u64]) {
    for (hash, &other) in hashes.iter_mut().zip(others) {
        *hash = mix(*hash, other);
    }
}

macro_rules! floats {
    ($array:expr, $of:ty, $nan:literal) => {{
        let canonical = |value: &<$of as ArrowPrimitiveType>::Native| {
            let bits = value.to_bits();
            let magnitude = bits << 1;
            match (value.is_nan(), magnitude) {
                (true, _) => $nan,
                // Both zeros.
                (false, 0) => 0,
                (false, _) => bits,
            }
        };
        let values = $array.as_primitive::<$of>().values();
        let hash = |value| of_bytes(&canonical(value).to_le_bytes());
        values.iter().map(hash).collect()
    }};
}

/// The hash of each value of a column.
fn hash_column(array: &dyn Array) -> Result<Vec<u64>> {
    let of = array.data_type();
    let mut hashes = match of {
        DataType::Float16 => floats!(array, Float16Type, 0x7e00),
        DataType::Float32 => floats!(array, Float32Type, 0x7fc0_0000),
        DataType::Float64 => floats!(array, Float64Type, 0x7ff8_0000_0000_0000),
        DataType::Null => vec![NULL; array.len()],
        DataType::Boolean => booleans(array.as_boolean()),
        DataType::Utf8 => bytes(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => bytes(array.as_string::<i64>().iter()),
        DataType::Utf8View => bytes(array.as_string_view().iter()),
        DataType::Binary => bytes(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => bytes(array.as_binary::<i64>().iter()),
        DataType::BinaryView => bytes(array.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().iter()),
        DataType::Struct(_) => structs(array.as_struct())?,
        DataType::List(_) => lists(array.as_list::<i32>())?,
        DataType::LargeList(_) => lists(array.as_list::<i64>())?,
        DataType::ListView(_) => list_views(array.as_list_view::<i32>())?,
        DataType::LargeListView(_) => list_views(array.as_list_view::<i64>())?,
        DataType::FixedSizeList(_, _) => fixed_size_lists(array.as_fixed_size_list())?,
        DataType::Map(_, _) => maps(array.as_map())?,
        DataType::Union(_, _) => unions(array.as_union())?,
        DataType::Dictionary(_, _) => dictionaries(array)?,
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => runs(array.as_run::<Int16Type>())?,
            DataType::Int32 => runs(array.as_run::<Int32Type>())?,
            _ => runs(array.as_run::<Int64Type>())?,
        },
        _ => match of.primitive_width() {
            Some(width) => fixed_width(array, width)?,
            None => return Err(unknown(of)),
        },
    };
    if let Some(nulls) = array.nulls() {
        set_nulls(&mut hashes, nulls);
    }
    Ok(hashes)
}

fn set_nulls(hashes: &mut [u64], nulls: &NullBuffer) {
    if nulls.null_count() == 0 {
        return;
    }
    for (hash, valid) in hashes.iter_mut().zip(nulls) {
        // Without a branch, which the processor could not predict where nulls are irregular.
        let kept = u64::from(valid).wrapping_neg();
        *hash = (*hash & kept) | (NULL & !kept);
    }
}

#[inline]
fn of_bytes(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Values whose canonical bytes are those in memory: little-endian integers.
fn fixed_width(array: &dyn Array, width: usize) -> Result<Vec<u64>> {
    fn each<const WIDTH: usize>(bytes: &[u8]) -> Vec<u64> {
        let (values, _) = bytes.as_chunks::<WIDTH>();
        values.iter().map(|value| of_bytes(value)).collect()
    }
    let data = array.to_data();
    let bytes = fixed::bytes(&data, width).ok_or_else(|| unknown(array.data_type()))?;
    Ok(match width {
        1 => each::<1>(bytes),
        2 => each::<2>(bytes),
        4 => each::<4>(bytes),
        8 => each::<8>(bytes),
        16 => each::<16>(bytes),
        32 => each::<32>(bytes),
        _ => return Err(unknown(array.data_type())),
    })
}

fn unknown(of: &DataType) -> Error {
    Error::unsupported(format!(
        "a key column has type {of}, which has no hash: choose another key, or a column of \
         destinations"
    ))
}

fn booleans(array: &BooleanArray) -> Vec<u64> {
    let (no, yes) = (of_bytes(&[0]), of_bytes(&[1]));
    let values = array.values().iter();
    values.map(|value| if value { yes } else { no }).collect()
}

fn bytes<T: AsRef<[u8]>>(values: impl Iterator<Item = Option<T>>) -> Vec<u64> {
    let hash = |value: Option<T>| value.map_or(NULL, |bytes| of_bytes(bytes.as_ref()));
    values.map(hash).collect()
}

fn structs(array: &StructArray) -> Result<Vec<u64>> {
    match array.columns() {
        [] => Ok(vec![EMPTY; array.len()]),
        columns => hash_rows(columns),
    }
}

/// The hash of a list with items of these hashes.
fn list(items: &[u64]) -> u64 {
    let length = of_bytes(&(items.len() as u64).to_le_bytes());
    items.iter().copied().fold(length, mix)
}

/// The hash of the list of each range of items. `None` is a null: its range means nothing.
fn ranges(
    values: &dyn Array,
    of: impl Iterator<Item = Option<(usize, usize)>> + Clone,
) -> Result<Vec<u64>> {
    // A slice of a list array still has all items.
    let used = of.clone().flatten().filter(|(first, end)| first < end);
    let (first, end) = used.fold((usize::MAX, 0), |(least, most), (first, end)| {
        (least.min(first), most.max(end))
    });
    let least = first.min(end);
    let items = hash_column(&values.slice(least, end - least))?;
    let hash = |range: Option<(usize, usize)>| match range {
        None => NULL,
        Some((first, end)) if first >= end => list(&[]),
        Some((first, end)) => list(items.get(first - least..end - least).unwrap_or_default()),
    };
    Ok(of.map(hash).collect())
}

/// The ranges of lists that lie one after the other.
fn between<'a, O: ArrowNativeType>(
    offsets: &'a [O],
    array: &'a dyn Array,
) -> impl Iterator<Item = Option<(usize, usize)>> + Clone + 'a {
    offsets
        .windows(2)
        .enumerate()
        .map(|(row, pair)| match pair {
            [first, end] if array.is_valid(row) => Some((first.as_usize(), end.as_usize())),
            _ => None,
        })
}

fn lists<O: OffsetSizeTrait>(array: &GenericListArray<O>) -> Result<Vec<u64>> {
    ranges(array.values(), between(array.offsets(), array))
}

fn maps(array: &MapArray) -> Result<Vec<u64>> {
    ranges(array.entries(), between(array.offsets(), array))
}

fn list_views<O: OffsetSizeTrait>(array: &GenericListViewArray<O>) -> Result<Vec<u64>> {
    let pairs = array.offsets().iter().zip(array.sizes().iter());
    let rows = pairs.enumerate().map(|(row, (first, size))| {
        let first = first.as_usize();
        let range = (first, first.saturating_add(size.as_usize()));
        array.is_valid(row).then_some(range)
    });
    ranges(array.values(), rows)
}

fn fixed_size_lists(array: &FixedSizeListArray) -> Result<Vec<u64>> {
    let size = usize::try_from(array.value_length()).unwrap_or(0);
    let rows = (0..array.len()).map(|row| {
        let range = (row * size, (row + 1) * size);
        array.is_valid(row).then_some(range)
    });
    ranges(array.values(), rows)
}

fn unions(array: &UnionArray) -> Result<Vec<u64>> {
    let mut hashes = vec![NULL; array.len()];
    let mut ids = array.type_ids().to_vec();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let rows = array.type_ids().iter().enumerate();
        let rows = rows.filter(|(_, of)| **of == id);
        let places = rows.map(|(row, _)| (row, array.value_offset(row)));
        let (least, end) = places
            .clone()
            .fold((usize::MAX, 0), |(least, end), (_, at)| {
                (least.min(at), end.max(at + 1))
            });
        // A slice of a dense union still has all values.
        let values = hash_column(&array.child(id).slice(least, end - least))?;
        let id = of_bytes(&id.to_le_bytes());
        for (row, at) in places {
            if let (Some(hash), Some(value)) = (hashes.get_mut(row), values.get(at - least)) {
                *hash = mix(id, *value);
            }
        }
    }
    Ok(hashes)
}

fn dictionaries(array: &dyn Array) -> Result<Vec<u64>> {
    let dictionary = array.as_any_dictionary();
    let values = dictionary.values();
    if values.is_empty() {
        return Ok(vec![NULL; array.len()]);
    }
    if values.len() / 2 > array.len() {
        // A short slice of a long dictionary: only the values in use are worth a hash.
        let used = arrow::compute::take(values, dictionary.keys(), None);
        let used = used.map_err(|cause| Error::invalid_data(cause.to_string()))?;
        return hash_column(&used);
    }
    let values = hash_column(values)?;
    let keys = dictionary.normalized_keys().into_iter();
    // The key of a null is any number.
    let hash = |key: usize| values.get(key).copied().unwrap_or(NULL);
    Ok(keys.map(hash).collect())
}

fn runs<R: RunEndIndexType>(array: &RunArray<R>) -> Result<Vec<u64>> {
    let values = hash_column(&array.values_slice())?;
    let mut hashes = Vec::with_capacity(array.len());
    for (end, hash) in array.run_ends().sliced_values().zip(values) {
        hashes.resize(end.as_usize().min(array.len()), hash);
    }
    Ok(hashes)
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
