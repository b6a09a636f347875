//! Literals.

use prost::bytes::Bytes;
use prost::{Message, Oneof};

use super::Type;

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Literal {
    #[prost(
        oneof = "literal::Kind",
        tags = "1, 2, 3, 5, 7, 10, 11, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, \
                29, 30, 31, 32, 33, 34, 35, 36, 37"
    )]
    pub(in crate::filter) kind: Option<literal::Kind>,
    #[prost(uint32, tag = "51")]
    pub(in crate::filter) variation: u32,
}

pub(in crate::filter) mod literal {
    use super::{
        Bytes, DayTime, DecimalLiteral, Oneof, Precise, Type, UserDefinedLiteral, VarChar,
    };

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::filter) enum Kind {
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
        #[prost(bytes = "bytes", tag = "13")]
        Binary(Bytes),
        #[prost(int64, tag = "14")]
        Timestamp(i64),
        #[prost(int32, tag = "16")]
        Date(i32),
        #[prost(int64, tag = "17")]
        Time(i64),
        #[prost(bytes = "bytes", tag = "19")]
        IntervalYearToMonth(Bytes),
        #[prost(message, tag = "20")]
        IntervalDayToSecond(DayTime),
        #[prost(string, tag = "21")]
        FixedChar(String),
        #[prost(message, tag = "22")]
        VarChar(VarChar),
        #[prost(bytes = "bytes", tag = "23")]
        FixedBinary(Bytes),
        #[prost(message, tag = "24")]
        Decimal(DecimalLiteral),
        #[prost(bytes = "bytes", tag = "25")]
        Struct(Bytes),
        #[prost(bytes = "bytes", tag = "26")]
        Map(Bytes),
        #[prost(int64, tag = "27")]
        TimestampTz(i64),
        #[prost(bytes = "bytes", tag = "28")]
        Uuid(Bytes),
        #[prost(message, tag = "29")]
        Null(Type),
        #[prost(bytes = "bytes", tag = "30")]
        List(Bytes),
        #[prost(bytes = "bytes", tag = "31")]
        EmptyList(Bytes),
        #[prost(bytes = "bytes", tag = "32")]
        EmptyMap(Bytes),
        #[prost(message, tag = "33")]
        UserDefined(UserDefinedLiteral),
        #[prost(message, tag = "34")]
        PrecisionTimestamp(Precise),
        #[prost(message, tag = "35")]
        PrecisionTimestampTz(Precise),
        #[prost(bytes = "bytes", tag = "36")]
        IntervalCompound(Bytes),
        #[prost(message, tag = "37")]
        PrecisionTime(Precise),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct VarChar {
    #[prost(string, tag = "1")]
    pub(in crate::filter) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct DecimalLiteral {
    /// Sixteen bytes, the lowest first, in two's complement.
    #[prost(bytes = "bytes", tag = "1")]
    pub(in crate::filter) value: Bytes,
    #[prost(int32, tag = "2")]
    pub(in crate::filter) precision: i32,
    #[prost(int32, tag = "3")]
    pub(in crate::filter) scale: i32,
}

/// A time in units of a second's fraction with `precision` digits.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Precise {
    #[prost(int32, tag = "1")]
    pub(in crate::filter) precision: i32,
    #[prost(int64, tag = "2")]
    pub(in crate::filter) value: i64,
}

/// A length of time.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct DayTime {
    #[prost(int32, tag = "1")]
    pub(in crate::filter) days: i32,
    #[prost(int32, tag = "2")]
    pub(in crate::filter) seconds: i32,
    /// The fraction of a second in older messages, which lack `precision` and `subseconds`.
    #[prost(int32, optional, tag = "3")]
    pub(in crate::filter) microseconds: Option<i32>,
    #[prost(int32, tag = "4")]
    pub(in crate::filter) precision: i32,
    #[prost(int64, tag = "5")]
    pub(in crate::filter) subseconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct UserDefinedLiteral {
    #[prost(uint32, tag = "1")]
    pub(in crate::filter) reference: u32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::filter) value: Option<Any>,
}

/// A message of the type that its URL ends with.
#[derive(Clone, PartialEq, Message)]
pub(in crate::filter) struct Any {
    #[prost(string, tag = "1")]
    pub(in crate::filter) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in crate::filter) value: Bytes,
}
