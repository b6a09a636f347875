//! What is known of the driver.

use std::collections::HashSet;
use std::sync::Arc;

use adbc_core::constants::ADBC_VERSION_1_1_0;
use adbc_core::error::Result;
use adbc_core::options::InfoCode;
use adbc_core::schemas::GET_INFO_SCHEMA;
use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array, UnionArray,
    new_empty_array,
};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::results::{ResultSet, one};

/// A value of the result set's union.
enum Value {
    Text(String),
    Flag(bool),
    Number(i64),
}

/// The values that this driver has, in the order of their codes.
fn known() -> [(InfoCode, Value); 9] {
    let text = |text: &str| Value::Text(text.to_owned());
    let version = env!("CARGO_PKG_VERSION");
    // Drivers write this version with a letter before it.
    let arrow = format!("v{}", arrow::ARROW_VERSION);
    let adbc = i64::from(ADBC_VERSION_1_1_0);
    [
        (InfoCode::VendorName, text("libdipc")),
        (InfoCode::VendorVersion, text(version)),
        (InfoCode::VendorArrowVersion, text(&arrow)),
        (InfoCode::VendorSql, Value::Flag(false)),
        (InfoCode::VendorSubstrait, Value::Flag(false)),
        (InfoCode::DriverName, text("ADBC driver of libdipc")),
        (InfoCode::DriverVersion, text(version)),
        (InfoCode::DriverArrowVersion, text(&arrow)),
        (InfoCode::DriverAdbcVersion, Value::Number(adbc)),
    ]
}

/// The known ones of `codes`; `None`: all.
pub(crate) fn result_set(codes: Option<&HashSet<InfoCode>>) -> Result<ResultSet> {
    let is_wanted = |code: &InfoCode| codes.is_none_or(|codes| codes.contains(code));
    let (mut names, mut kinds, mut offsets) = (vec![], vec![], vec![]);
    let (mut texts, mut flags, mut numbers) = (vec![], vec![], vec![]);
    for (code, value) in known().into_iter().filter(|(code, _)| is_wanted(code)) {
        names.push(u32::from(&code));
        let (kind, before) = match value {
            Value::Text(text) => (0, place(&mut texts, text)),
            Value::Flag(flag) => (1, place(&mut flags, flag)),
            Value::Number(number) => (2, place(&mut numbers, number)),
        };
        kinds.push(kind);
        offsets.push(before);
    }

    let DataType::Union(fields, _) = GET_INFO_SCHEMA.field(1).data_type() else {
        let text = "the values of AdbcConnectionGetInfo are no union in adbc_core";
        return Err(ArrowError::SchemaError(text.to_owned()).into());
    };
    let mut children: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(texts)),
        Arc::new(BooleanArray::from(flags)),
        Arc::new(Int64Array::from(numbers)),
    ];
    let others = fields.iter().skip(children.len());
    children.extend(others.map(|(_, field)| new_empty_array(field.data_type())));
    let values = UnionArray::try_new(fields.clone(), kinds.into(), Some(offsets.into()), children)?;
    let columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(names)), Arc::new(values)];
    Ok(one(RecordBatch::try_new(GET_INFO_SCHEMA.clone(), columns)?))
}

/// Adds a value; gives its place.
fn place<T>(values: &mut Vec<T>, value: T) -> i32 {
    values.push(value);
    // There are nine values at most.
    i32::try_from(values.len()).unwrap_or(i32::MAX) - 1
}
