//! The condition of `--where`: an expression of SQL, which becomes the message of a filter.

mod message;
#[cfg(test)]
mod tests;

use anyhow::{Result, anyhow, bail};
use sqlparser::ast::{
    BinaryOperator, DataType, Expr, Ident, TypedString, UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

/// Most levels of a condition: those of a filter.
const MOST_LEVELS: usize = 64;

/// A condition on rows, before the columns are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition(Term);

/// A part of a condition.
#[derive(Debug, Clone, PartialEq)]
enum Term {
    /// A column, and below it fields of structs.
    Column(Vec<String>),
    /// A number as it is written, with its sign.
    Number(String),
    Text(String),
    Date(String),
    Time(String),
    Timestamp(String),
    Boolean(bool),
    Null,
    /// A function of filters.
    Call(&'static str, Vec<Term>),
    /// The first term equals one of the others.
    AnyOf(Vec<Term>),
}

impl Condition {
    /// Reads the text of `--where`.
    ///
    /// # Errors
    ///
    /// The text says where SQL is malformed, or which part of it a filter cannot have.
    pub fn parse(text: &str) -> Result<Self> {
        let malformed = |error| anyhow!("{error}");
        let mut parser = Parser::new(&GenericDialect)
            .try_with_sql(text)
            .map_err(malformed)?;
        let expression = parser.parse_expr().map_err(malformed)?;
        match parser.peek_token().token {
            Token::EOF => term(&expression, 0).map(Self),
            rest => bail!("a condition is one expression, and {rest} comes behind it"),
        }
    }
}

/// The term for an expression that lies in `level` others.
fn term(of: &Expr, level: usize) -> Result<Term> {
    if level > MOST_LEVELS {
        bail!("a condition has at most {MOST_LEVELS} levels");
    }
    let inner = |of: &Expr| term(of, level + 1);
    let call = |name, arguments: &[&Expr]| -> Result<Term> {
        let arguments = arguments.iter().map(|argument| inner(argument));
        Ok(Term::Call(name, arguments.collect::<Result<_>>()?))
    };
    let tested = match of {
        Expr::Nested(of) => return inner(of),
        Expr::Identifier(name) => return Ok(Term::Column(vec![name.value.clone()])),
        Expr::CompoundIdentifier(names) => {
            let names = names.iter().map(|Ident { value, .. }| value.clone());
            return Ok(Term::Column(names.collect()));
        }
        Expr::Value(value) => return literal(value),
        Expr::TypedString(text) => return typed(text),
        Expr::UnaryOp { op, expr } => return unary(*op, inner(expr)?, of),
        Expr::BinaryOp { left, op, right } => return binary((left, op, right), of, level),
        Expr::IsNull(of) => return call("is_null", &[of]),
        Expr::IsNotNull(of) => return call("is_not_null", &[of]),
        Expr::IsTrue(of) => return call("is_true", &[of]),
        Expr::IsNotTrue(of) => return call("is_not_true", &[of]),
        Expr::IsFalse(of) => return call("is_false", &[of]),
        Expr::IsNotFalse(of) => return call("is_not_false", &[of]),
        Expr::IsUnknown(of) => return call("is_null", &[of]),
        Expr::IsNotUnknown(of) => return call("is_not_null", &[of]),
        Expr::IsDistinctFrom(a, b) => return call("is_distinct_from", &[a, b]),
        Expr::IsNotDistinctFrom(a, b) => return call("is_not_distinct_from", &[a, b]),
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => (*negated, call("between", &[expr, low, high])?),
        Expr::InList {
            expr,
            list,
            negated,
        } => {
            let all = std::iter::once(&**expr).chain(list).map(inner);
            (*negated, Term::AnyOf(all.collect::<Result<_>>()?))
        }
        Expr::Like {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        } => {
            ensure_escape(escape_char.as_ref())?;
            (*negated, call("like", &[expr, pattern])?)
        }
        Expr::ILike {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        } => {
            ensure_escape(escape_char.as_ref())?;
            (*negated, call("ilike", &[expr, pattern])?)
        }
        other => return Err(unsupported(other)),
    };
    Ok(match tested {
        (false, test) => test,
        (true, test) => Term::Call("not", vec![test]),
    })
}

/// The error for what a filter cannot have.
fn unsupported(of: &Expr) -> anyhow::Error {
    let what = match of {
        Expr::Function(_)
        | Expr::Extract { .. }
        | Expr::Ceil { .. }
        | Expr::Floor { .. }
        | Expr::Position { .. }
        | Expr::Substring { .. }
        | Expr::Trim { .. }
        | Expr::Overlay { .. }
        | Expr::Convert { .. } => "functions",
        Expr::Subquery(_)
        | Expr::InSubquery { .. }
        | Expr::Exists { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. } => "sub-queries",
        Expr::Cast { .. } => "casts",
        Expr::Case { .. } => "CASE",
        Expr::Interval(_) => "intervals",
        _ => return anyhow!("{of}: a condition cannot have this"),
    };
    anyhow!("{of}: a condition cannot have {what}")
}

fn unary(op: UnaryOperator, operand: Term, of: &Expr) -> Result<Term> {
    Ok(match (op, operand) {
        (UnaryOperator::Not, operand) => Term::Call("not", vec![operand]),
        (UnaryOperator::Plus, number @ Term::Number(_)) => number,
        (UnaryOperator::Minus, Term::Number(digits)) => {
            Term::Number(match digits.strip_prefix('-') {
                Some(digits) => digits.to_owned(),
                None => format!("-{digits}"),
            })
        }
        (UnaryOperator::Minus, operand) => Term::Call("negate", vec![operand]),
        _ => return Err(unsupported(of)),
    })
}

fn binary(
    (left, op, right): (&Expr, &BinaryOperator, &Expr),
    of: &Expr,
    level: usize,
) -> Result<Term> {
    let name = match op {
        BinaryOperator::And | BinaryOperator::Or => return chain(left, op, right, level),
        BinaryOperator::Eq => "equal",
        BinaryOperator::NotEq => "not_equal",
        BinaryOperator::Lt => "lt",
        BinaryOperator::LtEq => "lte",
        BinaryOperator::Gt => "gt",
        BinaryOperator::GtEq => "gte",
        BinaryOperator::Xor => "xor",
        BinaryOperator::Plus => "add",
        BinaryOperator::Minus => "subtract",
        BinaryOperator::Multiply => "multiply",
        BinaryOperator::Divide => "divide",
        BinaryOperator::Modulo => "modulus",
        _ => return Err(unsupported(of)),
    };
    let operands = vec![term(left, level + 1)?, term(right, level + 1)?];
    Ok(Term::Call(name, operands))
}

/// One call for a chain of ANDs or of ORs, which may be longer than levels are deep.
fn chain(left: &Expr, op: &BinaryOperator, right: &Expr, level: usize) -> Result<Term> {
    let mut operands = vec![right];
    let mut rest = left;
    while let Expr::BinaryOp {
        left,
        op: same,
        right,
    } = rest
        && same == op
    {
        operands.push(right);
        rest = left;
    }
    operands.push(rest);
    let operands = operands.into_iter().rev().map(|of| term(of, level + 1));
    let name = match op {
        BinaryOperator::And => "and",
        _ => "or",
    };
    Ok(Term::Call(name, operands.collect::<Result<_>>()?))
}

fn literal(value: &ValueWithSpan) -> Result<Term> {
    Ok(match &value.value {
        Value::Number(digits, _) => Term::Number(digits.clone()),
        Value::SingleQuotedString(text) => Term::Text(text.clone()),
        Value::Boolean(value) => Term::Boolean(*value),
        Value::Null => Term::Null,
        other => bail!("{other}: literals are numbers, 'text', TRUE, FALSE, NULL, DATE '…', …"),
    })
}

fn typed(literal: &TypedString) -> Result<Term> {
    let Value::SingleQuotedString(text) = &literal.value.value else {
        bail!("{literal}: its text stands in single quotes");
    };
    let text = text.clone();
    Ok(match &literal.data_type {
        DataType::Date => Term::Date(text),
        DataType::Time(None, _) => Term::Time(text),
        DataType::Timestamp(None, _) => Term::Timestamp(text),
        _ => bail!("{literal}: typed literals are DATE '…', TIME '…' and TIMESTAMP '…'"),
    })
}

/// The only escape character of filters is the backslash.
fn ensure_escape(escape: Option<&ValueWithSpan>) -> Result<()> {
    match escape.map(|escape| &escape.value) {
        None => Ok(()),
        Some(Value::SingleQuotedString(text)) if text == "\\" => Ok(()),
        Some(other) => bail!("ESCAPE {other}: the character before a plain % or _ is \\"),
    }
}
