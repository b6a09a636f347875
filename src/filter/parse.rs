//! From a message to the tree of a filter.

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Fields};
use prost::Message;
use prost::bytes::Bytes;

use super::coerce::{convert, operands, unify, unify_results};
use super::extensions::Extensions;
use super::function::{Function, Overflow, Text, of_arrow, of_substrait};
use super::literal;
use super::members::Members;
use super::message::expression::Kind;
use super::message::{
    Cast, Expression, FieldReference, FunctionOption, IfThen, Literal, OrList, ScalarFunction,
};
use super::names::Names;
use super::node::Node;
use super::types::arrow_type;
use super::value::{Column, view};
use super::{MOST_LEVELS, MOST_NODES};
use crate::error::{Error, Result};

/// Up to this many options of a list, each option is compared with all rows. A longer list becomes
/// a set, in which each row is looked up.
const FEW_OPTIONS: usize = 12;

/// The state of the parser between expressions.
pub(super) struct Parser<'a> {
    pub(super) extensions: Extensions,
    pub(super) names: Names,
    /// The table's columns.
    pub(super) fields: &'a Fields,
    /// The columns that the expression has named so far, each once.
    pub(super) columns: Vec<Column>,
    /// How many more expressions there may be.
    pub(super) nodes_left: usize,
}

/// Decodes a part of the filter's message.
pub(super) fn decode<T: Message + Default>(bytes: Bytes) -> Result<T> {
    T::decode(bytes)
        .map_err(|error| Error::invalid_argument(format!("the filter's message: {error}")))
}

impl<'a> Parser<'a> {
    pub(super) fn new(extensions: Extensions, names: Names, fields: &'a Fields) -> Self {
        Self {
            extensions,
            names,
            fields,
            columns: Vec::new(),
            nodes_left: MOST_NODES,
        }
    }

    /// The expression in `bytes`, which lies in `level` others.
    pub(super) fn expression(&mut self, bytes: Bytes, level: usize) -> Result<Node> {
        if level >= MOST_LEVELS {
            return Err(Error::invalid_argument(format!(
                "the filter is nested in more than {MOST_LEVELS} levels: a long list of values can be \
                 one singular_or_list, and a function \"and\" or \"or\" has any number of arguments"
            )));
        }
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or_else(|| {
            Error::invalid_argument(format!("the filter has more than {MOST_NODES} expressions"))
        })?;
        let kind = decode::<Expression>(bytes)?.kind;
        let name = match kind {
            Some(Kind::Literal(bytes)) => {
                let literal = literal::array(decode::<Literal>(bytes)?, &self.extensions)?;
                return Ok(Node::Literal(literal));
            }
            Some(Kind::Selection(bytes)) => return self.field(decode(bytes)?),
            Some(Kind::ScalarFunction(bytes)) => return self.function(decode(bytes)?, level),
            Some(Kind::IfThen(bytes)) => return self.if_then(decode(bytes)?, level),
            Some(Kind::SingularOrList(bytes)) => return self.or_list(decode(bytes)?, level),
            Some(Kind::Cast(bytes)) => return self.cast(decode(bytes)?, level),
            None => {
                return Err(Error::unsupported(
                    "the filter has an expression that is empty, or of a newer Substrait",
                ));
            }
            Some(Kind::WindowFunction(_)) => "window_function",
            Some(Kind::SwitchExpression(_)) => "switch_expression",
            Some(Kind::MultiOrList(_)) => "multi_or_list",
            Some(Kind::Enum(_)) => "enum",
            Some(Kind::Subquery(_)) => "subquery",
            Some(Kind::Nested(_)) => "nested",
            Some(Kind::DynamicParameter(_)) => "dynamic_parameter",
            Some(Kind::Lambda(_)) => "lambda",
            Some(Kind::LambdaInvocation(_)) => "lambda_invocation",
            Some(Kind::ExecutionContextVariable(_)) => "execution_context_variable",
        };
        Err(Error::unsupported(format!(
            "filters do not support expressions of kind {name}, but literal, selection, \
             scalar_function, if_then, singular_or_list and cast"
        )))
    }

    /// An expression that must be there; `what` names it in the error.
    fn needed(&mut self, bytes: Option<Bytes>, what: &str, level: usize) -> Result<Node> {
        let bytes = bytes
            .ok_or_else(|| Error::invalid_argument(format!("the filter has {what} missing")))?;
        self.expression(bytes, level + 1)
    }

    fn field(&mut self, reference: FieldReference) -> Result<Node> {
        let other = [
            (reference.masked.is_some(), "masks of fields"),
            (
                reference.expression.is_some(),
                "fields of other expressions",
            ),
            (reference.outer.is_some(), "fields of outer queries"),
            (reference.lambda.is_some(), "parameters of lambdas"),
        ];
        if let Some((_, what)) = other.iter().find(|(is, _)| *is) {
            return Err(Error::unsupported(format!("filters do not support {what}")));
        }
        let mut path = Vec::new();
        let mut next = reference.direct;
        while let Some(segment) = next {
            if segment.map_key.is_some() || segment.list_element.is_some() {
                return Err(Error::unsupported(
                    "filters do not support elements of lists and maps",
                ));
            }
            let field = segment.field.ok_or_else(|| {
                Error::invalid_argument("a field reference of the filter is empty")
            })?;
            path.push(field.field);
            next = field.child.map(|child| *child);
        }
        let (places, field) = self.names.resolve(&path, self.fields)?;
        let column = Column::new(places, field);
        let known = self.columns.iter().position(|known| known.is(&column));
        let data_type = column.data_type().clone();
        let index = known.unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        });
        Ok(Node::Column { index, data_type })
    }

    fn function(&mut self, call: ScalarFunction, level: usize) -> Result<Node> {
        let number = call.reference;
        let declared = self.extensions.function(number).ok_or_else(|| {
            Error::invalid_argument(format!(
                "the filter calls function number {number}, which it does not declare"
            ))
        })?;
        let name = declared.name.clone();
        let function = match declared.of_arrow {
            true => of_arrow(&name),
            false => of_substrait(&name),
        };
        let function = function.ok_or_else(|| {
            Error::unsupported(format!("filters do not support the function \"{name}\""))
        })?;
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in call.arguments {
            let value = argument.value.ok_or_else(|| {
                Error::unsupported(format!(
                    "filters do not support an argument of \"{name}\" that is no value"
                ))
            })?;
            arguments.push(self.expression(value, level + 1)?);
        }
        bind(function, arguments, &call.options)
            .map_err(|error| error.context(format_args!("function \"{name}\"")))
    }

    fn if_then(&mut self, message: IfThen, level: usize) -> Result<Node> {
        let mut conditions = Vec::with_capacity(message.ifs.len());
        let mut results = Vec::with_capacity(message.ifs.len() + 1);
        for clause in message.ifs {
            let condition = self.needed(clause.condition, "a condition", level)?;
            conditions.push(condition);
            results.push(self.needed(clause.then, "the result of a condition", level)?);
        }
        results.push(match message.otherwise {
            Some(bytes) => self.expression(bytes, level + 1)?,
            None => Node::Literal(new_null_array(&DataType::Null, 1)),
        });
        let mut results = unify_results(results)?.into_iter();
        let mut arguments = Vec::with_capacity(2 * conditions.len() + 1);
        for condition in booleans(conditions)? {
            arguments.push(condition);
            arguments.extend(results.next());
        }
        arguments.extend(results);
        Node::call(Function::IfThen, arguments)
    }

    fn or_list(&mut self, message: OrList, level: usize) -> Result<Node> {
        let value = self.needed(message.value, "the value of a list", level)?;
        let mut nodes = vec![value];
        for option in message.options {
            // Literals do not count as expressions: all rows are compared with all of them at once.
            let kind = decode::<Expression>(option.clone())?.kind;
            nodes.push(match kind {
                Some(Kind::Literal(bytes)) => {
                    Node::Literal(literal::array(decode(bytes)?, &self.extensions)?)
                }
                _ => self.expression(option, level + 1)?,
            });
        }
        let nodes = unify(nodes)?;
        let of = nodes.first().map(|node| node.data_type().clone());
        let options = nodes.iter().skip(1);
        let literals: Option<Vec<ArrayRef>> = options
            .map(|node| match node {
                Node::Literal(array) => Some(array.clone()),
                _ => None,
            })
            .collect();
        match (literals, of) {
            (Some(literals), Some(of)) if literals.len() > FEW_OPTIONS && !of.is_null() => {
                let members = Members::new(&literals).map_err(super::failed)?;
                let value = nodes.into_iter().take(1).collect();
                Node::call(Function::Member(members.into()), value)
            }
            _ => Node::call(Function::AnyOf, nodes),
        }
    }

    fn cast(&mut self, message: Cast, level: usize) -> Result<Node> {
        let null = match message.failure {
            // 0 is unspecified. It is treated as 2, an error, because an error hides nothing.
            0 | 2 => false,
            1 => true,
            other => {
                return Err(Error::unsupported(format!(
                    "filters do not know failure behavior {other} of a cast"
                )));
            }
        };
        let to = message
            .to
            .ok_or_else(|| Error::invalid_argument("the filter has a cast without a type"))?;
        let to = arrow_type(&to, &self.extensions)?;
        let input = self.needed(message.input, "the input of a cast", level)?;
        let from = input.data_type();
        if *from == to {
            return Ok(input);
        }
        // Each row of a type of fixed width would be as wide as the message claims.
        let fixed = matches!(to, DataType::FixedSizeBinary(_));
        let to = view(to);
        if fixed || from.is_nested() || !can_cast_types(from, &to) {
            return Err(Error::unsupported(format!(
                "filters do not cast {from} to {to}"
            )));
        }
        if *from == to {
            return Ok(input);
        }
        Node::call(Function::Cast { to, null }, vec![input])
    }
}

/// A call of `function`, with its operands converted to one type and its options applied.
fn bind(function: Function, mut nodes: Vec<Node>, options: &[FunctionOption]) -> Result<Node> {
    if let (Function::Text(Text::Like | Text::LikeAnyCase), 3) = (&function, nodes.len()) {
        check_escape(nodes.pop())?;
    }
    let (least, most) = function.arguments();
    let count = nodes.len();
    if count < least || count > most {
        return Err(Error::invalid_argument(match least == most {
            true => format!("{count} arguments where {least} are needed"),
            false => format!("{count} arguments where {least} or more are needed"),
        }));
    }
    let function = with_options(function, options)?;
    let nodes = match &function {
        Function::Compare(_) | Function::Between | Function::Same(_) => unify(nodes)?,
        Function::Arithmetic(_, _) => operands(nodes)?,
        Function::Coalesce => unify_results(nodes)?,
        Function::And
        | Function::Or
        | Function::StrictAnd
        | Function::StrictOr
        | Function::Xor
        | Function::Not
        | Function::Is { .. } => booleans(nodes)?,
        Function::Text(test) => texts(*test, nodes)?,
        _ => nodes,
    };
    // A test that ignores case becomes a pattern.
    match (function, any_case(options)) {
        (Function::Text(test), true) => ignore_case(test, nodes),
        (function, _) => Node::call(function, nodes),
    }
}

/// `function`, changed by its options. The first known preference of each option counts.
fn with_options(mut function: Function, options: &[FunctionOption]) -> Result<Function> {
    for option in options {
        let Some(first) = option.preference.first() else {
            continue;
        };
        let known = option.preference.iter().find_map(|preference| {
            match (&function, option.name.as_str(), preference.as_str()) {
                (Function::Arithmetic(what, _), "overflow", "ERROR") => {
                    Some(Function::Arithmetic(*what, Overflow::Error))
                }
                (Function::Arithmetic(what, _), "overflow", "SILENT") => {
                    Some(Function::Arithmetic(*what, Overflow::Wrap))
                }
                (Function::Negate(_), "overflow", "ERROR") => {
                    Some(Function::Negate(Overflow::Error))
                }
                (Function::Negate(_), "overflow", "SILENT") => {
                    Some(Function::Negate(Overflow::Wrap))
                }
                (Function::Text(test), "case_sensitivity", _) if case(preference).is_some() => {
                    Some(Function::Text(*test))
                }
                _ => None,
            }
        });
        function = known.ok_or_else(|| {
            Error::unsupported(format!(
                "filters do not support the option {} = {first}",
                option.name
            ))
        })?;
    }
    Ok(function)
}

/// Whether a preference of `case_sensitivity` ignores case.
fn case(preference: &str) -> Option<bool> {
    match preference {
        "CASE_SENSITIVE" => Some(false),
        "CASE_INSENSITIVE" => Some(true),
        _ => None,
    }
}

fn any_case(options: &[FunctionOption]) -> bool {
    let mut options = options
        .iter()
        .filter(|option| option.name == "case_sensitivity");
    options.any(|option| option.preference.iter().find_map(|name| case(name)) == Some(true))
}

fn booleans(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let boolean = |node: Node| match node.data_type() {
        DataType::Boolean => Ok(node),
        DataType::Null => convert(node, &DataType::Boolean),
        other => Err(Error::unsupported(format!(
            "{other} where a boolean is needed"
        ))),
    };
    nodes.into_iter().map(boolean).collect()
}

/// The text and the pattern of a test.
fn texts(test: Text, nodes: Vec<Node>) -> Result<Vec<Node>> {
    let mut nodes = unify(nodes)?;
    if nodes
        .iter()
        .any(|node| matches!(node.data_type(), DataType::FixedSizeBinary(_)))
    {
        nodes = unify_results(nodes)?;
    }
    if nodes.iter().all(|node| node.data_type().is_null()) {
        let text = |node| convert(node, &DataType::Utf8View);
        nodes = nodes.into_iter().map(text).collect::<Result<_>>()?;
    }
    match (test, nodes.get(1)) {
        // A pattern that differs from row to row would be compiled for each row.
        (Text::Like | Text::LikeAnyCase, Some(pattern)) if !matches!(pattern, Node::Literal(_)) => {
            Err(Error::unsupported("a pattern that is no literal"))
        }
        _ => Ok(nodes),
    }
}

/// The test by a pattern that ignores case. The text searched for must be a literal.
fn ignore_case(test: Text, mut nodes: Vec<Node>) -> Result<Node> {
    let Some(Node::Literal(searched)) = nodes.pop() else {
        return Err(Error::unsupported(
            "a search that ignores case, for a text that is no literal",
        ));
    };
    let pattern = text_of(&searched)?.map(|text| {
        let escaped = text
            .replace('\\', "\\\\")
            .replace('%', "\\%")
            .replace('_', "\\_");
        match test {
            Text::StartsWith => format!("{escaped}%"),
            Text::EndsWith => format!("%{escaped}"),
            Text::Contains => format!("%{escaped}%"),
            Text::Like | Text::LikeAnyCase => text,
        }
    });
    let pattern: ArrayRef = std::sync::Arc::new(arrow::array::StringArray::from(vec![pattern]));
    nodes.push(convert(
        Node::Literal(pattern),
        &searched.data_type().clone(),
    )?);
    Node::call(Function::Text(Text::LikeAnyCase), nodes)
}

/// The text of a literal; `None` if it is null.
fn text_of(literal: &ArrayRef) -> Result<Option<String>> {
    if !matches!(
        literal.data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
    ) {
        let of = literal.data_type();
        return Err(Error::unsupported(format!("{of} where a text is needed")));
    }
    let views = arrow::compute::cast(literal, &DataType::Utf8View).map_err(super::failed)?;
    Ok(views
        .as_string_view()
        .iter()
        .next()
        .flatten()
        .map(str::to_owned))
}

/// Checks the third argument of `like`, the escape character. The kernels know only `\`.
fn check_escape(escape: Option<Node>) -> Result<()> {
    let known = match &escape {
        Some(Node::Literal(literal)) => text_of(literal)?.is_none_or(|text| text == "\\"),
        _ => false,
    };
    match known {
        true => Ok(()),
        false => Err(Error::unsupported("an escape character other than \\")),
    }
}
