# Values of Arrow's types that Julia and its standard library have no type for. Each is laid out as
# in Arrow's memory, so that vectors of these values are views of that memory.

"""
    Dipc.Int256

A signed integer of 256 bits, as Arrow's widest decimals are made of. `BigInt(x)` and
`Dipc.Int256(n)` convert; it does no arithmetic.
"""
struct Int256
    limbs::NTuple{4,UInt64} # least significant first
end

function Int256(n::Integer)
    -big(2)^255 <= n < big(2)^255 || throw(InexactError(:Int256, Int256, n))
    bits = mod(big(n), big(2)^256)
    return Int256(ntuple(i -> UInt64((bits >> 64(i - 1)) & typemax(UInt64)), 4))
end

function Base.BigInt(x::Int256)
    bits = sum(big(limb) << 64(i - 1) for (i, limb) in enumerate(x.limbs))
    return x.limbs[4] >> 63 == 0 ? bits : bits - big(2)^256
end

Base.show(io::IO, x::Int256) = print(io, BigInt(x))

"""
    Dipc.Decimal{P,S,T}

A decimal number of at most `P` digits, `S` of them after the point: `Dipc.unscaled(d) / 10^S`. `T`
is what it is stored in: `Int32`, `Int64`, `Int128` or `Dipc.Int256`.

    Dipc.Decimal{9,2,Int128}(12345)    # 123.45
    Dipc.Decimal(9, 2, 12345)          # the same

`Rational(d)`, `Float64(d)` and `string(d)` convert; `==` and `hash` compare the numbers.
"""
struct Decimal{P,S,T} <: Real
    value::T
    Decimal{P,S,T}(unscaled) where {P,S,T} = new{P,S,T}(unscaled isa T ? unscaled : T(unscaled))
end
Decimal(precision::Integer, scale::Integer, unscaled::Integer) =
    Decimal{Int(precision),Int(scale),precision <= 38 ? Int128 : Int256}(unscaled)

"""
    Dipc.unscaled(d::Dipc.Decimal) -> Integer

The digits of a decimal without its point: 12345 for 123.45.
"""
unscaled(d::Decimal) = d.value
unscaled(d::Decimal{P,S,Int256}) where {P,S} = BigInt(d.value)

Base.Rational(d::Decimal{P,S}) where {P,S} =
    S >= 0 ? big(unscaled(d)) // big(10)^S : big(unscaled(d)) * big(10)^-S // big(1)
(::Type{F})(d::Decimal) where {F<:AbstractFloat} = F(Rational(d))
Base.BigFloat(d::Decimal) = BigFloat(Rational(d))
Base.:(==)(a::Decimal, b::Decimal) = Rational(a) == Rational(b)
Base.:(==)(a::Decimal{P,S}, b::Decimal{P,S}) where {P,S} = unscaled(a) == unscaled(b)
Base.:(==)(a::Decimal, b::Real) = Rational(a) == b
Base.:(==)(a::Real, b::Decimal) = b == a
Base.:<(a::Decimal, b::Decimal) = Rational(a) < Rational(b)
Base.isless(a::Decimal, b::Decimal) = a < b
Base.hash(d::Decimal, h::UInt) = hash(Rational(d), h)

function Base.string(d::Decimal{P,S}) where {P,S}
    n = unscaled(d)
    S <= 0 && return string(n, "0"^(n == 0 ? 0 : -S))
    digits = lpad(string(abs(big(n))), S + 1, '0')
    return string(n < 0 ? "-" : "", digits[1:end-S], ".", digits[end-S+1:end])
end
Base.show(io::IO, d::Decimal) = print(io, string(d))

"""
    Dipc.Timestamp{U,Z}

A moment: `Dates.value(t)` counts units `U` (`Second`, `Millisecond`, `Microsecond` or `Nanosecond`)
since 1970. Without a zone (`Z === nothing`) it is a time of the clock on the wall; with one (a
`Symbol`) it counts in UTC, and `Z` says where it is to be shown. `DateTime(t)` is the same moment,
in UTC, cut off to milliseconds.
"""
struct Timestamp{U<:Period,Z}
    value::Int64
end

Dates.value(t::Timestamp) = t.value
Timestamp{U}(value::Integer) where {U<:Period} = Timestamp{U,nothing}(value)
Base.isless(a::Timestamp{U,Z}, b::Timestamp{U,Z}) where {U,Z} = a.value < b.value

const EPOCH = DateTime(1970)
const PER_SECOND = Dict(Second => 1, Millisecond => 1_000, Microsecond => 1_000_000,
                        Nanosecond => 1_000_000_000)

function Dates.DateTime(t::Timestamp{U}) where {U}
    per_second = PER_SECOND[U]
    milliseconds = per_second <= 1000 ? Base.checked_mul(t.value, 1000 ÷ per_second) :
                   fld(t.value, per_second ÷ 1000)
    return EPOCH + Millisecond(milliseconds)
end

function Base.show(io::IO, t::Timestamp{U,Z}) where {U,Z}
    seconds, rest = fldmod(t.value, PER_SECOND[U])
    print(io, EPOCH + Second(seconds))
    digits = length(string(PER_SECOND[U])) - 1
    digits > 0 && print(io, ".", lpad(rest, digits, '0'))
    Z === nothing || print(io, "Z[", Z, "]")
end

"""
    Dipc.DayTime(days, milliseconds)

An interval of days and milliseconds, which are not added up: a day may have 23 hours.
"""
struct DayTime
    days::Int32
    milliseconds::Int32
end

"""
    Dipc.MonthDayNano(months, days, nanoseconds)

An interval of calendar months, days and nanoseconds.
"""
struct MonthDayNano
    months::Int32
    days::Int32
    nanoseconds::Int64
end

Dates.CompoundPeriod(i::DayTime) = Day(i.days) + Millisecond(i.milliseconds)
Dates.CompoundPeriod(i::MonthDayNano) = Month(i.months) + Day(i.days) + Nanosecond(i.nanoseconds)

"""
    Dipc.UnionValue(id, value)

A value of a union together with the type id of its child, for unions in which the value alone does
not say which child it belongs to.
"""
struct UnionValue{T}
    id::Int8
    value::T
end
