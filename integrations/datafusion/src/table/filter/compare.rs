//! Comparisons.
//!
//! DataFusion orders floats totally: NaN is equal to itself, and lies, by its sign, above or below
//! all numbers; -0 lies below 0. Servers compare as arithmetic does: NaN is not comparable, and -0
//! is 0. If these differences can matter, the message asks for more rows than DataFusion wants.

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::Operator;

use super::translate::{Term, Translator, float, is_exact};
use super::types::{is_alike, is_comparable};

impl Translator<'_> {
    pub(super) fn comparison(&mut self, op: Operator, left: Term, right: Term) -> Option<Term> {
        let name = name(op)?;
        if !is_comparable(&left.of) || !is_alike(&left.of, &right.of) {
            return None;
        }
        match left.of.is_floating() {
            true => self.of_floats(op, name, left, right),
            false => self.call(name, vec![left, right], DataType::Boolean),
        }
    }

    fn of_floats(
        &mut self,
        op: Operator,
        name: &'static str,
        left: Term,
        right: Term,
    ) -> Option<Term> {
        let sides = [&left, &right];
        let literals = sides.iter().filter_map(|side| side.literal.as_ref());
        let (literals, others): (Vec<_>, Vec<_>) = (
            literals.collect(),
            sides.iter().filter(|side| side.literal.is_none()).collect(),
        );
        let is_number = |value| float(value).is_some_and(|value| !value.is_nan());
        if others.is_empty() || !literals.iter().all(|value| is_number(value)) {
            return None;
        }
        let is_exact = literals.iter().any(|value| is_exact(value));
        let unordered: Vec<Term> = others.into_iter().map(|side| (*side).clone()).collect();
        let name = match op {
            Operator::Lt if !is_exact => "lte",
            Operator::Gt if !is_exact => "gte",
            Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom
                if !is_exact =>
            {
                return None;
            }
            _ => name,
        };
        let is_ordering = matches!(
            op,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        let mut any = vec![self.call(name, vec![left, right], DataType::Boolean)?];
        if is_ordering || unordered.len() == 2 {
            for side in unordered {
                any.push(self.call("is_nan", vec![side], DataType::Boolean)?);
            }
        }
        let is_wider = is_ordering || !is_exact;
        let term = match any.len() {
            1 => any.pop()?,
            _ => self.call("or", any, DataType::Boolean)?,
        };
        Some(Term { is_wider, ..term })
    }
}

fn name(op: Operator) -> Option<&'static str> {
    Some(match op {
        Operator::Eq => "equal",
        Operator::NotEq => "not_equal",
        Operator::Lt => "lt",
        Operator::LtEq => "lte",
        Operator::Gt => "gt",
        Operator::GtEq => "gte",
        Operator::IsDistinctFrom => "is_distinct_from",
        Operator::IsNotDistinctFrom => "is_not_distinct_from",
        _ => return None,
    })
}
