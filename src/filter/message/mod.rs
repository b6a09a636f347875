//! The messages of Substrait that a filter may consist of, with the numbers of their fields.
//!
//! Expressions inside other expressions stay bytes ([`Bytes`], slices of the message) until the
//! parser reads them. The parser counts levels and nodes itself. `prost` would stop at 100 nested
//! messages, which is a third as many nested expressions. Kinds that filters do not support are
//! here too, so that an error can name them.

mod literals;
mod types;

use prost::bytes::Bytes;
use prost::{Message, Oneof};

pub(super) use literals::*;
pub(super) use types::*;

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct ExtendedExpression {
    /// Files of functions and types, by their addresses. Older messages name the files in this way.
    #[prost(message, repeated, tag = "1")]
    pub(in crate::filter) extension_uris: Vec<ExtensionFile>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::filter) extensions: Vec<Extension>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::filter) referred_expr: Vec<ExpressionReference>,
    #[prost(message, optional, tag = "4")]
    pub(in crate::filter) base_schema: Option<NamedStruct>,
    #[prost(message, optional, tag = "5")]
    pub(in crate::filter) advanced_extensions: Option<AdvancedExtension>,
    /// The same files by their names. Newer messages name the files in this way.
    #[prost(message, repeated, tag = "8")]
    pub(in crate::filter) extension_urns: Vec<ExtensionFile>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct AdvancedExtension {
    /// May change the meaning of the message.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) enhancement: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct ExtensionFile {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) anchor: u32,
    #[prost(string, tag = "2")]
    pub(in crate::filter) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Extension {
    #[prost(oneof = "extension::Kind", tags = "1, 2, 3")]
    pub(in crate::filter) kind: Option<extension::Kind>,
}

pub(in crate::filter) mod extension {
    use super::{Declaration, Oneof};

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::filter) enum Kind {
        #[prost(message, tag = "1")]
        Type(Declaration),
        #[prost(message, tag = "2")]
        TypeVariation(Declaration),
        #[prost(message, tag = "3")]
        Function(Declaration),
    }
}

/// A name of a file that the expression refers to by a number.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Declaration {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) uri: u32,
    #[prost(uint32, tag = "2")]
    pub(in crate::filter) anchor: u32,
    #[prost(string, tag = "3")]
    pub(in crate::filter) name: String,
    #[prost(uint32, tag = "4")]
    pub(in crate::filter) urn: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct ExpressionReference {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(in crate::filter) expression: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) measure: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct NamedStruct {
    /// Names of all fields. The names of a struct's fields come right after its own.
    #[prost(string, repeated, tag = "1")]
    pub(in crate::filter) names: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::filter) fields: Option<StructType>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Expression {
    #[prost(
        oneof = "expression::Kind",
        tags = "1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17"
    )]
    pub(in crate::filter) kind: Option<expression::Kind>,
}

pub(in crate::filter) mod expression {
    use super::{Bytes, Oneof};

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::filter) enum Kind {
        #[prost(bytes = "bytes", tag = "1")]
        Literal(Bytes),
        #[prost(bytes = "bytes", tag = "2")]
        Selection(Bytes),
        #[prost(bytes = "bytes", tag = "3")]
        ScalarFunction(Bytes),
        #[prost(bytes = "bytes", tag = "5")]
        WindowFunction(Bytes),
        #[prost(bytes = "bytes", tag = "6")]
        IfThen(Bytes),
        #[prost(bytes = "bytes", tag = "7")]
        SwitchExpression(Bytes),
        #[prost(bytes = "bytes", tag = "8")]
        SingularOrList(Bytes),
        #[prost(bytes = "bytes", tag = "9")]
        MultiOrList(Bytes),
        #[prost(bytes = "bytes", tag = "10")]
        Enum(Bytes),
        #[prost(bytes = "bytes", tag = "11")]
        Cast(Bytes),
        #[prost(bytes = "bytes", tag = "12")]
        Subquery(Bytes),
        #[prost(bytes = "bytes", tag = "13")]
        Nested(Bytes),
        #[prost(bytes = "bytes", tag = "14")]
        DynamicParameter(Bytes),
        #[prost(bytes = "bytes", tag = "15")]
        Lambda(Bytes),
        #[prost(bytes = "bytes", tag = "16")]
        LambdaInvocation(Bytes),
        #[prost(bytes = "bytes", tag = "17")]
        ExecutionContextVariable(Bytes),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct ScalarFunction {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) reference: u32,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::filter) arguments: Vec<Argument>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::filter) options: Vec<FunctionOption>,
}

/// An argument; `value` is an expression.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Argument {
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(in crate::filter) value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct FunctionOption {
    #[prost(string, tag = "1")]
    pub(in crate::filter) name: String,
    /// Best first.
    #[prost(string, repeated, tag = "2")]
    pub(in crate::filter) preference: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct IfThen {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::filter) ifs: Vec<IfClause>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) otherwise: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct IfClause {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(in crate::filter) condition: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) then: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct OrList {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(in crate::filter) value: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(in crate::filter) options: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Cast {
    #[prost(message, optional, tag = "1")]
    pub(in crate::filter) to: Option<Type>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) input: Option<Bytes>,
    /// 0 unspecified, 1 null, 2 error.
    #[prost(int32, tag = "3")]
    pub(in crate::filter) failure: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct FieldReference {
    #[prost(message, optional, tag = "1")]
    pub(in crate::filter) direct: Option<Segment>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(in crate::filter) masked: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(in crate::filter) expression: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(in crate::filter) outer: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(in crate::filter) lambda: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Segment {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(in crate::filter) map_key: Option<Bytes>,
    #[prost(message, optional, boxed, tag = "2")]
    pub(in crate::filter) field: Option<Box<StructField>>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(in crate::filter) list_element: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct StructField {
    #[prost(int32, tag = "1")]
    pub(in crate::filter) field: i32,
    #[prost(message, optional, boxed, tag = "2")]
    pub(in crate::filter) child: Option<Box<Segment>>,
}
