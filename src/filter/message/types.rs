//! Types, as casts, typed nulls and the base schema name them.

use prost::bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Type {
    #[prost(
        oneof = "kind::Kind",
        tags = "1, 2, 3, 5, 7, 10, 11, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29, \
                30, 32, 33, 34, 35, 36"
    )]
    pub(in crate::filter) kind: Option<kind::Kind>,
}

pub(in crate::filter) mod kind {
    use super::{
        Bytes, DecimalType, ListType, MapType, Oneof, Plain, Sized, StructType, UserDefinedType,
    };

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::filter) enum Kind {
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
        #[prost(message, tag = "12")]
        String(Plain),
        #[prost(message, tag = "13")]
        Binary(Plain),
        #[prost(message, tag = "14")]
        Timestamp(Plain),
        #[prost(message, tag = "16")]
        Date(Plain),
        #[prost(message, tag = "17")]
        Time(Plain),
        #[prost(bytes = "bytes", tag = "19")]
        IntervalYear(Bytes),
        #[prost(bytes = "bytes", tag = "20")]
        IntervalDay(Bytes),
        #[prost(message, tag = "21")]
        FixedChar(Sized),
        #[prost(message, tag = "22")]
        VarChar(Sized),
        #[prost(message, tag = "23")]
        FixedBinary(Sized),
        #[prost(message, tag = "24")]
        Decimal(DecimalType),
        #[prost(message, tag = "25")]
        Struct(StructType),
        #[prost(message, tag = "27")]
        List(Box<ListType>),
        #[prost(message, tag = "28")]
        Map(Box<MapType>),
        #[prost(message, tag = "29")]
        TimestampTz(Plain),
        #[prost(message, tag = "30")]
        UserDefined(UserDefinedType),
        #[prost(message, tag = "32")]
        Uuid(Plain),
        #[prost(message, tag = "33")]
        PrecisionTimestamp(Sized),
        #[prost(message, tag = "34")]
        PrecisionTimestampTz(Sized),
        #[prost(bytes = "bytes", tag = "35")]
        IntervalCompound(Bytes),
        #[prost(message, tag = "36")]
        PrecisionTime(Sized),
    }
}

/// A type without parameters.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Plain {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) variation: u32,
}

/// A type with one parameter: a length in bytes or characters, or the digits of a second's
/// fraction.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Sized {
    #[prost(int32, tag = "1")]
    pub(in crate::filter) size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct DecimalType {
    #[prost(int32, tag = "1")]
    pub(in crate::filter) scale: i32,
    #[prost(int32, tag = "2")]
    pub(in crate::filter) precision: i32,
    #[prost(uint32, tag = "3")]
    pub(in crate::filter) variation: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct StructType {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::filter) types: Vec<Type>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct ListType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(in crate::filter) item: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct MapType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(in crate::filter) key: Option<Box<Type>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub(in crate::filter) value: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct UserDefinedType {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) reference: u32,
}
