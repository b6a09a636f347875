//! The message of a condition, once the table's columns are known.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringArray,
    new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use dipc::{Filter, FilterBuilder, FilterExpression};

use super::{Condition, Term};

impl Condition {
    /// The extended expression of Substrait for tables of `schema`.
    ///
    /// # Errors
    ///
    /// The text names the column that there is not, the literal that its column cannot have, or
    /// what filters cannot do with the types.
    pub fn message(&self, schema: &SchemaRef) -> Result<Vec<u8>> {
        let mut builder = FilterBuilder::new(schema);
        let root = encode(&mut builder, &self.0, None)?;
        let message = builder.finish(root);
        // The server would refuse this too; here the error comes before it is asked.
        Filter::parse(&message, schema)?;
        Ok(message)
    }
}

/// The expression for a term. A literal takes the type of the column `beside` it.
fn encode(
    builder: &mut FilterBuilder,
    of: &Term,
    beside: Option<&DataType>,
) -> Result<FilterExpression> {
    let arguments = match of {
        Term::Column(path) => return Ok(builder.column(path)?.0),
        Term::Call(_, arguments) | Term::AnyOf(arguments) => arguments,
        value => return Ok(FilterExpression::literal(&array(value, beside)?)?),
    };
    let beside = match of {
        Term::Call(name, _) if !compares(name) => None,
        _ => beside_of(builder, arguments)?,
    };
    let mut encoded = Vec::with_capacity(arguments.len());
    for argument in arguments {
        encoded.push(encode(builder, argument, beside.as_ref())?);
    }
    Ok(match of {
        Term::Call(name, _) => builder.call(name, encoded),
        _ => {
            let options = encoded.split_off(1);
            let value = encoded.pop().context("a list without a value")?;
            FilterExpression::any_of(value, options)
        }
    })
}

/// Whether the arguments of a function are values of one type.
fn compares(name: &str) -> bool {
    !matches!(name, "and" | "or" | "xor" | "not" | "like" | "ilike")
        && !matches!(name, "add" | "subtract" | "multiply" | "divide" | "modulus")
}

/// The type of the first column among `arguments`.
fn beside_of(builder: &mut FilterBuilder, arguments: &[Term]) -> Result<Option<DataType>> {
    let mut columns = arguments.iter().filter_map(|argument| match argument {
        Term::Column(path) => Some(path),
        _ => None,
    });
    let column = columns.next().map(|path| builder.column(path));
    Ok(column.transpose()?.map(|(_, of)| of))
}

/// One row with the value of a literal.
fn array(of: &Term, beside: Option<&DataType>) -> Result<ArrayRef> {
    if let (Some(DataType::Duration(_)), false) = (beside, *of == Term::Null) {
        bail!(
            "a condition has no form for durations: it compares such a column with another one of \
             durations, or asks IS NULL"
        );
    }
    match of {
        Term::Number(digits) => number(digits),
        Term::Boolean(value) => Ok(Arc::new(BooleanArray::from(vec![*value]))),
        Term::Null => match beside {
            Some(beside) => Ok(new_null_array(beside, 1)),
            None => bail!("NULL stands beside a column alone: IS NULL asks whether there is none"),
        },
        Term::Text(text) => match beside {
            Some(beside) => as_written(text, beside),
            None => cast(text, &DataType::Utf8),
        },
        Term::Date(text) => exactly(text, &DataType::Date32),
        Term::Time(text) => cast(text, &DataType::Time64(unit_of(text)?)),
        Term::Timestamp(text) => {
            let zone = match beside {
                Some(DataType::Timestamp(_, zone)) => zone.clone(),
                _ => None,
            };
            cast(text, &DataType::Timestamp(unit_of(text)?, zone))
        }
        Term::Column(_) | Term::Call(..) | Term::AnyOf(_) => bail!("no literal"),
    }
}

/// A text beside a column of type `to`: the value of that type, or one of a finer type if the text
/// has more digits. The server compares both exactly.
fn as_written(text: &str, to: &DataType) -> Result<ArrayRef> {
    let finest = match finest(text, to)? {
        None => return cast(text, to),
        Some(finest) => finest,
    };
    // A text that cannot be read in the finer type, such as a far date, has no digits for it.
    match (finest, cast(text, to)) {
        (Ok(finest), Ok(plain)) if is_same(&plain, &finest) => Ok(plain),
        (Ok(finest), _) => Ok(finest),
        (Err(_), Ok(plain)) if !has_fraction(text) => Ok(plain),
        (Err(error), Ok(_)) | (Err(_), Err(error)) => Err(error),
    }
}

/// A text in a type that keeps all its digits; `None` if type `to` keeps them or refuses the text.
fn finest(text: &str, to: &DataType) -> Result<Option<Result<ArrayRef>>> {
    Ok(match to {
        DataType::Date32 | DataType::Date64 => {
            Some(cast(text, &DataType::Timestamp(unit_of(text)?, None)))
        }
        DataType::Timestamp(_, zone) => Some(cast(
            text,
            &DataType::Timestamp(unit_of(text)?, zone.clone()),
        )),
        DataType::Time32(_) | DataType::Time64(_) => {
            Some(cast(text, &DataType::Time64(unit_of(text)?)))
        }
        of if of.is_decimal() => Some(
            match text.contains(['e', 'E']) && text.trim().parse::<f64>().is_ok() {
                true => Err(anyhow!("'{text}': write a decimal without an exponent")),
                false => number(text.trim()).map_err(|_| no_value(text, to)),
            },
        ),
        // As a number without quotes.
        of if of.is_floating() => number(text).ok().map(Ok),
        _ => None,
    })
}

/// Whether a value is the same in a finer type.
fn is_same(plain: &ArrayRef, finest: &ArrayRef) -> bool {
    let there = cast_with_options(plain, finest.data_type(), &CastOptions::default());
    there.is_ok_and(|there| there.as_ref() == finest.as_ref())
}

/// Whether a text has more than a date or a whole number.
fn has_fraction(text: &str) -> bool {
    text.contains([':', '.', 'e', 'E'])
}

/// A text as a value of type `to`, which has all its digits.
fn exactly(text: &str, to: &DataType) -> Result<ArrayRef> {
    let value = as_written(text, to)?;
    match value.data_type() == to {
        true => Ok(value),
        false => Err(no_value(text, to)),
    }
}

/// A text as a value of type `to`. A time without an offset is in UTC if `to` has a zone, whose
/// name is no part of the value.
fn cast(text: &str, to: &DataType) -> Result<ArrayRef> {
    let to = match to {
        DataType::Timestamp(unit, Some(_)) => &DataType::Timestamp(*unit, Some("+00:00".into())),
        to => to,
    };
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let value = match (to, text.split_once([' ', 'T'])) {
        // Seconds may be left out, as in times of day.
        (DataType::Timestamp(..), Some((_, time))) if time.len() == 5 && time.contains(':') => {
            StringArray::from(vec![format!("{text}:00")])
        }
        _ => StringArray::from(vec![text]),
    };
    cast_with_options(&value, to, &strict).map_err(|_| no_value(text, to))
}

fn no_value(text: &str, of: &DataType) -> anyhow::Error {
    anyhow!("'{text}' is no value of type {of}")
}

/// The unit of a time as it is written.
fn unit_of(text: &str) -> Result<TimeUnit> {
    let fraction = text.rsplit_once('.').map_or("", |(_, fraction)| fraction);
    match fraction
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(fraction.len())
    {
        0..=6 => Ok(TimeUnit::Microsecond),
        7..=9 => Ok(TimeUnit::Nanosecond),
        _ => bail!("'{text}': times have at most 9 digits behind the point"),
    }
}

/// A number as it is written: whole, with a fraction, or with an exponent.
fn number(text: &str) -> Result<ArrayRef> {
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(Arc::new(Int64Array::from(vec![whole])));
    }
    if text.contains(['e', 'E']) {
        let value = text.parse::<f64>();
        let value = value.map_err(|error| anyhow!("{text}: {error}"))?;
        return Ok(Arc::new(Float64Array::from(vec![value])));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let most = || anyhow!("{text}: a number has at most 38 digits");
    let value = digits.parse::<i128>().map_err(|_| most())?;
    let scale = i8::try_from(fraction.len()).map_err(|_| most())?;
    let digits = value
        .unsigned_abs()
        .checked_ilog10()
        .map_or(1, |log| log + 1);
    let precision = u8::try_from(digits).map_err(|_| most())?;
    let precision = precision.max(scale.unsigned_abs());
    let array = Decimal128Array::from(vec![value]);
    let array = array.with_precision_and_scale(precision, scale);
    array
        .map(|array| Arc::new(array) as Arc<dyn Array>)
        .map_err(|_| most())
}
