//! The messages of Substrait that a filter is made of, with the numbers of their fields.
//!
//! The crates that have all of Substrait need `protoc` to build.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExtendedExpression {
    #[prost(message, repeated, tag = "2")]
    pub(super) extensions: Vec<Extension>,
    #[prost(message, repeated, tag = "3")]
    pub(super) expressions: Vec<ExpressionReference>,
    #[prost(message, optional, tag = "4")]
    pub(super) base_schema: Option<NamedStruct>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Extension {
    #[prost(message, optional, tag = "1")]
    pub(super) data_type: Option<Declaration>,
    #[prost(message, optional, tag = "3")]
    pub(super) function: Option<Declaration>,
}

/// The name of a function or a type, and the number by which the expression refers to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Declaration {
    #[prost(uint32, tag = "2")]
    pub(super) anchor: u32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExpressionReference {
    #[prost(message, optional, tag = "1")]
    pub(super) expression: Option<Expression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamedStruct {
    /// Names of all fields, those of a struct's fields right behind its own.
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) fields: Option<StructType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Expression {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 6, 8, 11")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(message, tag = "1")]
    Literal(Literal),
    #[prost(message, tag = "2")]
    Selection(FieldReference),
    #[prost(message, tag = "3")]
    ScalarFunction(ScalarFunction),
    #[prost(message, tag = "6")]
    IfThen(IfThen),
    #[prost(message, tag = "8")]
    SingularOrList(OrList),
    #[prost(message, tag = "11")]
    Cast(Box<Cast>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScalarFunction {
    #[prost(uint32, tag = "1")]
    pub(super) reference: u32,
    #[prost(message, repeated, tag = "4")]
    pub(super) arguments: Vec<Argument>,
    #[prost(message, repeated, tag = "5")]
    pub(super) options: Vec<FunctionOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Argument {
    #[prost(message, optional, tag = "3")]
    pub(super) value: Option<Expression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FunctionOption {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) preference: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IfThen {
    #[prost(message, repeated, tag = "1")]
    pub(super) clauses: Vec<IfClause>,
    #[prost(message, optional, boxed, tag = "2")]
    pub(super) otherwise: Option<Box<Expression>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IfClause {
    #[prost(message, optional, tag = "1")]
    pub(super) condition: Option<Expression>,
    #[prost(message, optional, tag = "2")]
    pub(super) then: Option<Expression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OrList {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) value: Option<Box<Expression>>,
    #[prost(message, repeated, tag = "2")]
    pub(super) options: Vec<Expression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Cast {
    #[prost(message, optional, tag = "1")]
    pub(super) to: Option<Type>,
    #[prost(message, optional, tag = "2")]
    pub(super) input: Option<Expression>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FieldReference {
    #[prost(message, optional, tag = "1")]
    pub(super) direct: Option<Segment>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Segment {
    #[prost(message, optional, boxed, tag = "2")]
    pub(super) field: Option<Box<StructField>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StructField {
    #[prost(int32, tag = "1")]
    pub(super) field: i32,
    #[prost(message, optional, boxed, tag = "2")]
    pub(super) child: Option<Box<Segment>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Literal {
    #[prost(
        oneof = "Value",
        tags = "1, 2, 3, 5, 7, 10, 11, 12, 13, 16, 20, 24, 29, 34, 35, 37"
    )]
    pub(super) value: Option<Value>,
    /// Of a number: 1 if it has no sign.
    #[prost(uint32, tag = "51")]
    pub(super) variation: u32,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(bool, tag = "1")]
    Boolean(bool),
    #[prost(int32, tag = "2")]
    I8(i32),
    #[prost(int32, tag = "3")]
    I16(i32),
    #[prost(int32, tag = "5")]
    I32(i32),
    #[prost(int64, tag = "7")]
    I64(i64),
    #[prost(float, tag = "10")]
    Fp32(f32),
    #[prost(double, tag = "11")]
    Fp64(f64),
    #[prost(string, tag = "12")]
    String(String),
    #[prost(bytes = "vec", tag = "13")]
    Binary(Vec<u8>),
    /// Days.
    #[prost(int32, tag = "16")]
    Date(i32),
    #[prost(message, tag = "20")]
    Interval(Interval),
    #[prost(message, tag = "24")]
    Decimal(Decimal),
    #[prost(message, tag = "29")]
    Null(Type),
    #[prost(message, tag = "34")]
    Timestamp(Precise),
    #[prost(message, tag = "35")]
    TimestampTz(Precise),
    #[prost(message, tag = "37")]
    Time(Precise),
}

/// A length of time.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Interval {
    #[prost(int32, tag = "1")]
    pub(super) days: i32,
    #[prost(int32, tag = "2")]
    pub(super) seconds: i32,
    /// Digits of a second's fraction that `subseconds` counts.
    #[prost(int32, optional, tag = "4")]
    pub(super) precision: Option<i32>,
    #[prost(int64, tag = "5")]
    pub(super) subseconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Decimal {
    /// Sixteen bytes, the lowest first, in two's complement.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) value: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub(super) precision: i32,
    #[prost(int32, tag = "3")]
    pub(super) scale: i32,
}

/// A time in units of a second's fraction with `precision` digits.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Precise {
    #[prost(int32, tag = "1")]
    pub(super) precision: i32,
    #[prost(int64, tag = "2")]
    pub(super) value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Type {
    #[prost(oneof = "TypeKind", tags = "1, 2, 3, 5, 7, 10, 11, 25, 30")]
    pub(super) kind: Option<TypeKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum TypeKind {
    #[prost(message, tag = "1")]
    Bool(Plain),
    #[prost(message, tag = "2")]
    I8(Plain),
    #[prost(message, tag = "3")]
    I16(Plain),
    #[prost(message, tag = "5")]
    I32(Plain),
    #[prost(message, tag = "7")]
    I64(Plain),
    #[prost(message, tag = "10")]
    Fp32(Plain),
    #[prost(message, tag = "11")]
    Fp64(Plain),
    #[prost(message, tag = "25")]
    Struct(StructType),
    #[prost(message, tag = "30")]
    Declared(DeclaredType),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Plain {
    /// Of a number: 1 if it has no sign.
    #[prost(uint32, tag = "1")]
    pub(super) variation: u32,
}

/// A type that the message declares.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct DeclaredType {
    #[prost(uint32, tag = "1")]
    pub(super) reference: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StructType {
    #[prost(message, repeated, tag = "1")]
    pub(super) types: Vec<Type>,
}
