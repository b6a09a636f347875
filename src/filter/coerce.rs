//! One common type for several values: those that are compared, and those of which one becomes the
//! result (the branches of a condition, the arguments of `coalesce`).
//!
//! A literal gets the type of the column beside it if that type can hold the literal's value. Other
//! values get the smallest type that can hold all of them.

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

use super::function::Function;
use super::node::Node;
use super::types::{decimal_of, digits};
use super::value::view;
use crate::error::{Error, Result};

/// `nodes` with one type for all.
pub(super) fn unify(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let target = target(&nodes)?;
    all_as(nodes, &target.data_type)
}

/// [`unify`] for the results of a function. Text and binary become views, which repeat a long value
/// without a copy of its bytes.
pub(super) fn unify_results(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let target = target(&nodes)?;
    if target.seconds.is_some() {
        return Err(unlike(&nodes));
    }
    all_as(nodes, &view(target.data_type))
}

/// Two operands of arithmetic. Literals keep their type: a number divided by 2.0 has a fraction.
/// Arrow's kernels take decimals of any scale, and times with durations, as they are.
pub(super) fn operands(nodes: Vec<Node>) -> Result<Vec<Node>> {
    use DataType::{Decimal128, Decimal256, Duration, Timestamp};
    if let [a, b] = &nodes[..] {
        match (a.data_type(), b.data_type()) {
            (Decimal128(_, _), Decimal128(_, _)) | (Decimal256(_, _), Decimal256(_, _)) => {
                return Ok(nodes);
            }
            (Timestamp(_, _) | Duration(_), Duration(_))
            | (Timestamp(_, _), Timestamp(_, _))
            | (Duration(_), Timestamp(_, _)) => return Ok(nodes),
            _ => {}
        }
    }
    let mut target = Target::default();
    for node in &nodes {
        target.add(node.data_type()).ok_or_else(|| unlike(&nodes))?;
    }
    if target.seconds.is_some() || class(&target.data_type) != Some(Class::Number) {
        return Err(Error::unsupported(format!(
            "filters do not calculate with {}",
            listed(&nodes)
        )));
    }
    all_as(nodes, &target.data_type)
}

fn all_as(nodes: Vec<Node>, to: &DataType) -> Result<Vec<Node>> {
    nodes.into_iter().map(|node| convert(node, to)).collect()
}

/// `node`, converted to the type `to`. A value that `to` cannot hold is an error.
pub(super) fn convert(node: Node, to: &DataType) -> Result<Node> {
    let from = node.data_type();
    if from == to {
        return Ok(node);
    }
    let timed = from.is_temporal() && matches!(to, DataType::Decimal128(_, _));
    let node = match timed {
        true => Node::call(Function::Seconds, vec![node])?,
        false => node,
    };
    if node.data_type() == to {
        return Ok(node);
    }
    let to = to.clone();
    Node::call(Function::Cast { to, null: false }, vec![node])
}

/// A type for several values.
struct Target {
    data_type: DataType,
    /// Set if `data_type` is a number of seconds, because times of different units are compared:
    /// the class of these times.
    seconds: Option<Class>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            data_type: DataType::Null,
            seconds: None,
        }
    }
}

impl Target {
    /// Widens the type, so that it can hold the values of `other` too; `None` if no type can hold
    /// all.
    fn add(&mut self, other: &DataType) -> Option<()> {
        if self.seconds.is_some() {
            if !other.is_null() {
                class(other).filter(|of| self.seconds == Some(*of))?;
                self.data_type = decimal(&digits_of(&self.data_type)?, &in_seconds(other))?;
            }
            return Some(());
        }
        let common = common(&self.data_type, other)?;
        if common.is_decimal() && self.data_type.is_temporal() {
            self.seconds = class(other);
        }
        self.data_type = common;
        Some(())
    }
}

fn target(nodes: &[Node]) -> Result<Target> {
    let literal = |node: &&Node| matches!(node, Node::Literal(_));
    let mut target = Target::default();
    for node in nodes.iter().filter(|node| !literal(node)) {
        target.add(node.data_type()).ok_or_else(|| unlike(nodes))?;
    }
    for node in nodes {
        if let Node::Literal(value) = node
            && !keeps(value, &target.data_type)
        {
            target.add(value.data_type()).ok_or_else(|| unlike(nodes))?;
        }
    }
    Ok(target)
}

fn unlike(nodes: &[Node]) -> Error {
    Error::unsupported(format!(
        "filters do not compare or join {}: write a value in the type of its column",
        listed(nodes)
    ))
}

/// The types of `nodes`, for the text of an error. A long list is cut.
fn listed(nodes: &[Node]) -> String {
    let mut types: Vec<_> = nodes
        .iter()
        .map(|node| node.data_type().to_string())
        .collect();
    types.dedup();
    types.truncate(4);
    types.join(" and ")
}

/// Whether a literal is the same value in type `to`.
fn keeps(value: &ArrayRef, to: &DataType) -> bool {
    let from = value.data_type();
    if from == to || from.is_null() {
        return true;
    }
    if class(from).is_none() || class(from) != class(to) {
        return false;
    }
    if value.null_count() > 0 {
        return true;
    }
    let lossy = CastOptions {
        safe: true,
        ..Default::default()
    };
    let there = cast_with_options(value, to, &lossy);
    let back = there.and_then(|there| cast_with_options(&there, from, &lossy));
    back.is_ok_and(|back| back.null_count() == 0 && back.as_ref() == value.as_ref())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Boolean,
    Number,
    Text,
    Binary,
    /// Dates, and times without a zone.
    Local,
    /// Times with a zone: points in time, whatever the zone.
    Zoned,
    TimeOfDay,
    Duration,
}

fn class(of: &DataType) -> Option<Class> {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Date64, Duration, FixedSizeBinary, LargeBinary,
        LargeUtf8, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    Some(match of {
        Boolean => Class::Boolean,
        Utf8 | LargeUtf8 | Utf8View => Class::Text,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => Class::Binary,
        Date32 | Date64 | Timestamp(_, None) => Class::Local,
        Timestamp(_, Some(_)) => Class::Zoned,
        Time32(_) | Time64(_) => Class::TimeOfDay,
        Duration(_) => Class::Duration,
        of if of.is_numeric() => Class::Number,
        _ => return None,
    })
}

/// The smallest type that can hold all values of `a` and `b`. For a float and a number of another
/// kind, it is the 64-bit float, although this type rounds long numbers.
fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{FixedSizeBinary, Null, Timestamp};
    if a == b {
        return Some(a.clone());
    }
    let class = match (a, b) {
        // Not the type of fixed width: in it, each null would take as much memory as a value.
        (Null, FixedSizeBinary(_)) | (FixedSizeBinary(_), Null) => Class::Binary,
        (Null, other) | (other, Null) => return Some(other.clone()),
        _ => class(a).filter(|&of| class(b) == Some(of))?,
    };
    match (class, a, b) {
        (Class::Number, _, _) => number(a, b),
        (Class::Text, _, _) => Some(DataType::Utf8View),
        (Class::Binary, _, _) => Some(DataType::BinaryView),
        (Class::Zoned, Timestamp(left, _), Timestamp(right, _)) if left == right => Some(a.clone()),
        (Class::Local | Class::Zoned | Class::TimeOfDay | Class::Duration, _, _) => {
            decimal(&in_seconds(a), &in_seconds(b))
        }
        (Class::Boolean, _, _) => None,
    }
}

fn number(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Float16, Float32, Float64};
    let float = |of: &DataType| matches!(of, Float16 | Float32 | Float64);
    Some(match (a, b) {
        (Float16, Float32) | (Float32, Float16) => Float32,
        _ if float(a) || float(b) => Float64,
        _ => match (integer(a), integer(b)) {
            (Some(left), Some(right)) => match both(left, right) {
                Some(of) => of,
                None => Decimal128(20, 0),
            },
            _ => return decimal(&digits_of(a)?, &digits_of(b)?),
        },
    })
}

/// Whether an integer type is signed, and its number of bits.
fn integer(of: &DataType) -> Option<(bool, u8)> {
    Some(match of {
        DataType::Int8 => (true, 8),
        DataType::Int16 => (true, 16),
        DataType::Int32 => (true, 32),
        DataType::Int64 => (true, 64),
        DataType::UInt8 => (false, 8),
        DataType::UInt16 => (false, 16),
        DataType::UInt32 => (false, 32),
        DataType::UInt64 => (false, 64),
        _ => return None,
    })
}

/// The smallest integer type that can hold the values of both. `None` for a signed type and the
/// unsigned type of 64 bits: no integer type can hold the values of both.
fn both((a_signed, a): (bool, u8), (b_signed, b): (bool, u8)) -> Option<DataType> {
    let needed = |signed: bool, bits: u8| match signed {
        true => bits,
        false => bits.saturating_mul(2),
    };
    let (signed, bits) = match a_signed == b_signed {
        true => (a_signed, a.max(b)),
        false => (true, needed(a_signed, a).max(needed(b_signed, b))),
    };
    Some(match (signed, bits) {
        (true, 8) => DataType::Int8,
        (true, 16) => DataType::Int16,
        (true, 32) => DataType::Int32,
        (true, 64) => DataType::Int64,
        (false, 8) => DataType::UInt8,
        (false, 16) => DataType::UInt16,
        (false, 32) => DataType::UInt32,
        (false, 64) => DataType::UInt64,
        _ => return None,
    })
}

/// The numbers of digits before and after the decimal point.
struct Digits {
    whole: i16,
    scale: i8,
}

fn digits_of(of: &DataType) -> Option<Digits> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    let whole = match of {
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => {
            return Some(Digits {
                whole: i16::from(*precision) - i16::from(*scale),
                scale: *scale,
            });
        }
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        _ => return None,
    };
    Some(Digits { whole, scale: 0 })
}

/// The digits of a time in seconds ([`Function::Seconds`]).
fn in_seconds(of: &DataType) -> Digits {
    let scale = match of {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) => digits(*unit),
        DataType::Time64(unit) | DataType::Duration(unit) => digits(*unit),
        DataType::Date64 => 3,
        _ => 0,
    };
    Digits {
        whole: 19 - i16::from(scale),
        scale,
    }
}

fn decimal(a: &Digits, b: &Digits) -> Option<DataType> {
    decimal_of(a.whole.max(b.whole), a.scale.max(b.scale))
}
