//! Expressions of DataFusion as those of Substrait.
//!
//! A translated expression means the same on both sides, and cannot fail for a row. This is needed
//! because DataFusion may skip a condition for rows that another condition has dropped, but the
//! server evaluates all conditions.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions::{core, math, string};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{Between, BinaryExpr, Case, Expr, Like, Operator};

use dipc::crossing::arrow_59::{Entrance, schema_in};
use dipc::{FilterBuilder, FilterExpression};

use super::types::{is_alike, is_comparable, is_text, plain, widens};

/// Most levels of expressions in expressions, and most expressions, that a server takes.
const MOST_LEVELS: usize = 64;
const MOST_EXPRESSIONS: usize = 1024;

/// Translates the expressions of one message.
#[derive(Debug)]
pub(super) struct Translator<'a> {
    table: &'a Schema,
    pub(super) builder: FilterBuilder,
    expressions: usize,
}

/// An expression of the message.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) expression: FilterExpression,
    /// Its type, without dictionaries and runs.
    pub(super) of: DataType,
    pub(super) literal: Option<ScalarValue>,
    pub(super) levels: usize,
    /// Whether more rows pass this condition than in DataFusion.
    pub(super) is_wider: bool,
}

impl<'a> Translator<'a> {
    /// `None` if the table has a column that cannot be named.
    pub(super) fn new(table: &'a Schema) -> Option<Self> {
        Some(Self {
            table,
            builder: FilterBuilder::new(&Arc::new(schema_in(table).ok()?)),
            expressions: 0,
        })
    }

    /// The expression; `None` if it has no translation.
    pub(super) fn term(&mut self, expr: &Expr, level: usize) -> Option<Term> {
        if level >= MOST_LEVELS {
            return None;
        }
        let level = level + 1;
        match expr {
            Expr::Alias(alias) => self.term(&alias.expr, level),
            Expr::Column(column) => self.field(&[&column.name]),
            Expr::Literal(value, _) => self.literal(value),
            Expr::BinaryExpr(binary) => self.binary(binary, level),
            Expr::Not(inner) => self.test("not", inner, level),
            Expr::IsTrue(inner) => self.test("is_true", inner, level),
            Expr::IsNotTrue(inner) => self.test("is_not_true", inner, level),
            Expr::IsFalse(inner) => self.test("is_false", inner, level),
            Expr::IsNotFalse(inner) => self.test("is_not_false", inner, level),
            Expr::IsUnknown(inner) => self.test("is_null", inner, level),
            Expr::IsNotUnknown(inner) => self.test("is_not_null", inner, level),
            Expr::IsNull(inner) => self.unary("is_null", inner, level),
            Expr::IsNotNull(inner) => self.unary("is_not_null", inner, level),
            Expr::Negative(inner) => {
                let term = self.term(inner, level)?;
                let of = term.of.clone();
                calculates(&of).then(|| self.wrapping("negate", vec![term], of))?
            }
            Expr::Between(between) => self.between(between, level),
            Expr::Like(like) => self.like(like, level),
            Expr::InList(list) => self.in_list(list, level),
            Expr::Case(case) => self.case(case, level),
            Expr::Cast(cast) => self.cast(&cast.expr, cast.field.data_type(), level),
            Expr::TryCast(cast) => self.cast(&cast.expr, cast.field.data_type(), level),
            Expr::ScalarFunction(call) => self.function(call, level),
            _ => None,
        }
    }

    /// A call of a function that the server knows.
    pub(super) fn call(
        &mut self,
        name: &'static str,
        arguments: Vec<Term>,
        of: DataType,
    ) -> Option<Term> {
        self.call_with(name, arguments, of, None)
    }

    fn call_with(
        &mut self,
        name: &'static str,
        arguments: Vec<Term>,
        of: DataType,
        options: Option<(&'static str, &'static str)>,
    ) -> Option<Term> {
        let is_wider = arguments.iter().any(|it| it.is_wider);
        // If more rows pass a condition than in DataFusion, fewer pass its opposite.
        if is_wider && !matches!(name, "and" | "or") {
            return None;
        }
        let levels = arguments.iter().map(|it| it.levels).max();
        let arguments = arguments.into_iter().map(|it| it.expression);
        let call = self.builder.call_with(name, arguments, options);
        let term = self.counted(call, of, levels.unwrap_or(0))?;
        Some(Term { is_wider, ..term })
    }

    /// A call whose result keeps its lowest bits if it does not fit, as in DataFusion.
    fn wrapping(&mut self, name: &'static str, arguments: Vec<Term>, of: DataType) -> Option<Term> {
        self.call_with(name, arguments, of, Some(("overflow", "SILENT")))
    }

    /// An expression over others of `levels`; `None` if it has too many levels or parts for a
    /// server.
    fn counted(
        &mut self,
        expression: FilterExpression,
        of: DataType,
        levels: usize,
    ) -> Option<Term> {
        self.expressions += 1;
        let fits = self.expressions <= MOST_EXPRESSIONS && levels < MOST_LEVELS;
        fits.then_some(Term {
            expression,
            of,
            literal: None,
            levels: levels + 1,
            is_wider: false,
        })
    }

    /// The column at this path: its name, then names of fields of structs.
    fn field(&mut self, path: &[&str]) -> Option<Term> {
        let (column, _) = self.builder.column(path).ok()?;
        let (top, names) = path.split_first()?;
        let mut of = self.table.field_with_name(top).ok()?.data_type();
        for name in names {
            let DataType::Struct(fields) = of else {
                return None;
            };
            of = fields.find(name)?.1.data_type();
        }
        self.counted(column, plain(of).clone(), 0)
    }

    fn literal(&mut self, value: &ScalarValue) -> Option<Term> {
        let value = bare(value);
        let term = self.counted(literal(value)?, value.data_type(), 0)?;
        let literal = Some(value.clone());
        Some(Term { literal, ..term })
    }

    fn unary(&mut self, name: &'static str, inner: &Expr, level: usize) -> Option<Term> {
        let term = self.term(inner, level)?;
        self.call(name, vec![term], DataType::Boolean)
    }

    /// A function of a condition.
    fn test(&mut self, name: &'static str, inner: &Expr, level: usize) -> Option<Term> {
        let term = self.condition(inner, level)?;
        self.call(name, vec![term], DataType::Boolean)
    }

    pub(super) fn condition(&mut self, expr: &Expr, level: usize) -> Option<Term> {
        let term = self.term(expr, level)?;
        (term.of == DataType::Boolean).then_some(term)
    }

    fn binary(&mut self, binary: &BinaryExpr, level: usize) -> Option<Term> {
        let BinaryExpr { left, op, right } = binary;
        let name = match op {
            Operator::And | Operator::Or => return self.joined(binary, level),
            Operator::Plus => "add",
            Operator::Minus => "subtract",
            Operator::Multiply => "multiply",
            Operator::Divide => "divide",
            Operator::Modulo => "modulus",
            _ => {
                let (left, right) = (self.term(left, level)?, self.term(right, level)?);
                return self.comparison(*op, left, right);
            }
        };
        let (left, right) = (self.term(left, level)?, self.term(right, level)?);
        let of = left.of.clone();
        let divides = matches!(op, Operator::Divide | Operator::Modulo);
        let can_fail = divides && of.is_integer() && !right.divides();
        if of != right.of || !calculates(&of) || can_fail {
            return None;
        }
        self.wrapping(name, vec![left, right], of)
    }

    /// A chain of `and` or `or`, as one call.
    fn joined(&mut self, binary: &BinaryExpr, level: usize) -> Option<Term> {
        let name = match binary.op {
            Operator::And => "and",
            _ => "or",
        };
        let mut rights = vec![&*binary.right];
        let mut first = &*binary.left;
        while let Expr::BinaryExpr(inner) = first
            && inner.op == binary.op
        {
            rights.push(&inner.right);
            first = &inner.left;
        }
        let all = std::iter::once(first).chain(rights.into_iter().rev());
        let terms = all
            .map(|it| self.condition(it, level))
            .collect::<Option<_>>();
        self.call(name, terms?, DataType::Boolean)
    }

    fn between(&mut self, between: &Between, level: usize) -> Option<Term> {
        let value = self.term(&between.expr, level)?;
        let (low, high) = (
            self.term(&between.low, level)?,
            self.term(&between.high, level)?,
        );
        let (name, lower, upper) = match between.negated {
            false => ("and", Operator::GtEq, Operator::LtEq),
            true => ("or", Operator::Lt, Operator::Gt),
        };
        let lower = self.comparison(lower, value.clone(), low)?;
        let upper = self.comparison(upper, value, high)?;
        self.call(name, vec![lower, upper], DataType::Boolean)
    }

    fn like(&mut self, like: &Like, level: usize) -> Option<Term> {
        let text = self.term(&like.expr, level)?;
        let pattern = self.term(&like.pattern, level)?;
        let is_known = matches!(like.escape_char, None | Some('\\'));
        if !is_known || pattern.literal.is_none() || !is_text(&text.of) || !is_text(&pattern.of) {
            return None;
        }
        let name = match like.case_insensitive {
            false => "like",
            true => "ilike",
        };
        let found = self.call(name, vec![text, pattern], DataType::Boolean)?;
        self.negated(found, like.negated)
    }

    fn negated(&mut self, term: Term, is_negated: bool) -> Option<Term> {
        match is_negated {
            false => Some(term),
            true => self.call("not", vec![term], DataType::Boolean),
        }
    }

    fn in_list(&mut self, list: &InList, level: usize) -> Option<Term> {
        let value = self.term(&list.expr, level)?;
        let mut options = Vec::with_capacity(list.list.len());
        for option in &list.list {
            let Expr::Literal(option, _) = option else {
                return None;
            };
            let is_known = option.is_null() || !value.of.is_floating() || is_exact(option);
            if !is_alike(&value.of, plain(&option.data_type())) || !is_known {
                return None;
            }
            options.push(literal(option)?);
        }
        if !is_comparable(&value.of) || value.is_wider {
            return None;
        }
        let levels = value.levels.max(1);
        let members = FilterExpression::any_of(value.expression, options);
        let found = self.counted(members, DataType::Boolean, levels)?;
        self.negated(found, list.negated)
    }

    fn case(&mut self, case: &Case, level: usize) -> Option<Term> {
        let base = match &case.expr {
            Some(base) => Some(self.term(base, level)?),
            None => None,
        };
        let (mut clauses, mut results, mut levels) = (Vec::new(), Vec::new(), 0);
        for (when, then) in &case.when_then_expr {
            let condition = match &base {
                None => self.condition(when, level)?,
                Some(base) => {
                    let value = self.term(when, level)?;
                    self.comparison(Operator::Eq, base.clone(), value)?
                }
            };
            let then = self.term(then, level)?;
            if condition.is_wider || then.is_wider {
                return None;
            }
            levels = levels.max(condition.levels).max(then.levels);
            results.push(then.of);
            clauses.push((condition.expression, then.expression));
        }
        let mut otherwise = None;
        if let Some(expr) = &case.else_expr {
            let term = self.term(expr, level)?;
            if term.is_wider {
                return None;
            }
            levels = levels.max(term.levels);
            results.push(term.of);
            otherwise = Some(term.expression);
        }
        let of = alike(&results)?;
        self.counted(FilterExpression::if_then(clauses, otherwise), of, levels)
    }

    /// A cast that keeps all values.
    fn cast(&mut self, inner: &Expr, to: &DataType, level: usize) -> Option<Term> {
        let (term, to) = (self.term(inner, level)?, plain(to));
        // Values of other widths do not become binary of a fixed one.
        let is_fixed = matches!(to, DataType::FixedSizeBinary(_));
        if term.of == *to || is_alike(&term.of, to) && !is_fixed {
            // The server compares these as they are.
            let of = to.clone();
            return Some(Term { of, ..term });
        }
        if !widens(&term.of, to) {
            return None;
        }
        let levels = term.levels;
        let named = Schema::new(vec![Field::new("", to.clone(), true)]);
        let named = schema_in(&named).ok()?;
        let cast = term.expression.cast(named.field(0).data_type()).ok()?;
        self.counted(cast, to.clone(), levels)
    }

    fn function(&mut self, call: &ScalarFunction, level: usize) -> Option<Term> {
        let function = &call.func;
        if *function == core::get_field() {
            return self.field(&path(&call.args, level)?);
        }
        let known = [
            (string::starts_with(), "starts_with"),
            (string::ends_with(), "ends_with"),
            (string::contains(), "contains"),
            (string::lower(), "lower"),
            (string::upper(), "upper"),
            (math::isnan(), "is_nan"),
            (core::coalesce(), "coalesce"),
        ];
        // Compares the function itself, because a session may have another function of this name.
        let (_, name) = known.into_iter().find(|(known, _)| known == function)?;
        let arguments = call.args.iter().map(|it| self.term(it, level));
        let arguments = arguments.collect::<Option<Vec<_>>>()?;
        let types: Vec<_> = arguments.iter().map(|it| it.of.clone()).collect();
        let are_texts = types.iter().all(is_text);
        let of = match name {
            "coalesce" => alike(&types)?,
            "is_nan" => types[..]
                .first()?
                .is_floating()
                .then_some(DataType::Boolean)?,
            "lower" | "upper" => are_texts.then(|| types.first().cloned())??,
            _ => are_texts.then_some(DataType::Boolean)?,
        };
        self.call(name, arguments, of)
    }
}

/// The path of the field that `get_field` with these arguments gives.
fn path(arguments: &[Expr], level: usize) -> Option<Vec<&str>> {
    let (base, names) = arguments.split_first()?;
    let mut path = match base {
        Expr::Column(column) => vec![&*column.name],
        Expr::ScalarFunction(inner) if level < MOST_LEVELS && inner.func == core::get_field() => {
            path(&inner.args, level + 1)?
        }
        _ => return None,
    };
    for name in names {
        let Expr::Literal(name, _) = name else {
            return None;
        };
        path.push(name.try_as_str()??);
    }
    Some(path)
}

impl Term {
    /// An integer by which every other one can be divided.
    fn divides(&self) -> bool {
        let value = self.literal.as_ref().map(ScalarValue::to_string);
        value.is_some_and(|value| !matches!(&*value, "0" | "-1" | "NULL"))
    }
}

/// Numbers that both sides calculate with in the same way.
fn calculates(of: &DataType) -> bool {
    of.is_integer() || matches!(of, DataType::Float32 | DataType::Float64)
}

/// Whether the float is equal to the same values on both sides.
pub(super) fn is_exact(value: &ScalarValue) -> bool {
    float(value).is_some_and(|value| value != 0.0 && !value.is_nan())
}

pub(super) fn float(value: &ScalarValue) -> Option<f64> {
    match bare(value) {
        ScalarValue::Float16(value) => value.map(Into::into),
        ScalarValue::Float32(value) => value.map(Into::into),
        ScalarValue::Float64(value) => *value,
        _ => None,
    }
}

/// The common type of these types, if their values can be used in place of each other unchanged.
fn alike(types: &[DataType]) -> Option<DataType> {
    let known = types.iter().find(|of| !of.is_null())?;
    let mut all = types.iter().filter(|of| !of.is_null());
    let is_known = is_comparable(known) && all.all(|of| is_alike(known, of));
    is_known.then(|| known.clone())
}

/// The literal with this value; `None` if messages have none for it.
fn literal(value: &ScalarValue) -> Option<FilterExpression> {
    let value = bare(value).to_array().ok()?;
    let batch = RecordBatch::try_from_iter_with_nullable([("", value, true)]).ok()?;
    let batch = Entrance::new(&batch.schema()).ok()?.batch(batch).ok()?;
    FilterExpression::literal(batch.column(0)).ok()
}

/// The value without the encoding of its column.
fn bare(value: &ScalarValue) -> &ScalarValue {
    match value {
        ScalarValue::Dictionary(_, value) | ScalarValue::RunEndEncoded(_, _, value) => bare(value),
        value => value,
    }
}
