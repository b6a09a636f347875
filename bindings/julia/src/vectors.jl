# Vectors over a batch's memory, of flat types. No vector copies its content; each element is made
# when it is read. All are read-only: the memory is shared with the server.

"""
    Dipc.ArrowVector{T} <: AbstractVector{T}

A column of a batch, where it lies. `collect(v)` or `copy(v)` makes a `Vector` of it.
"""
abstract type ArrowVector{T} <: AbstractVector{T} end

Base.IndexStyle(::Type{<:ArrowVector}) = IndexLinear()
Base.size(v::ArrowVector) = (v.column.length,)
Base.copy(v::ArrowVector) = collect(v)

# What an imported vector was made from, or nothing for any other vector.
source(v::ArrowVector) = v.column
source(v) = nothing

"""
    Dipc.Primitive{T} <: DenseVector{T}

Values of fixed width, one after the other in a batch's memory: `pointer(v)` is the first. The
vector can be given to C, and to every function that only reads a `DenseVector`.
"""
struct Primitive{T} <: DenseVector{T}
    pointer::Ptr{T}
    length::Int
    owner::Any # a Column, or what else keeps the memory
end
Primitive{T}(column::Column, p::Ptr) where {T} =
    Primitive{T}(Ptr{T}(p) + column.offset * sizeof(T), column.length, column)

source(v::Primitive) = v.owner isa Column ? v.owner : nothing
Base.size(v::Primitive) = (v.length,)
Base.IndexStyle(::Type{<:Primitive}) = IndexLinear()
Base.strides(::Primitive) = (1,)
Base.elsize(::Type{Primitive{T}}) where {T} = sizeof(T)
Base.unsafe_convert(::Type{Ptr{T}}, v::Primitive{T}) where {T} = v.pointer
Base.pointer(v::Primitive) = v.pointer
Base.copy(v::Primitive) = collect(v)
Base.@propagate_inbounds function Base.getindex(v::Primitive{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return GC.@preserve v load(v.pointer, i)
end

# Memory that comes from elsewhere is aligned to 8 bytes, and Julia reads wider values as if they
# were aligned to their own width.
@inline load(p::Ptr{T}, i::Int) where {T} = unsafe_load(p, i)
@inline load(p::Ptr{T}, i::Int) where {T<:Union{Int128,Decimal}} = load_bytes(p, i)
@inline function load_bytes(p::Ptr{T}, i::Int) where {T}
    value = Ref{T}()
    GC.@preserve value unsafe_copyto!(Ptr{UInt8}(Base.unsafe_convert(Ptr{T}, value)),
                                      Ptr{UInt8}(p) + (i - 1) * sizeof(T), sizeof(T))
    return value[]
end

"Booleans, a bit each."
struct Bits <: ArrowVector{Bool}
    pointer::Ptr{UInt8}
    column::Column
end
Base.@propagate_inbounds function Base.getindex(v::Bits, i::Int)
    @boundscheck checkbounds(v, i)
    return GC.@preserve v bit(v.pointer, v.column.offset + i - 1)
end

"""
    Dipc.Nullable{T,V} <: AbstractVector{Union{T,Missing}}

The values `V`, with `missing` for each value that the bitmap marks as null. `parent(v)` is the
vector without the bitmap: it has an arbitrary value in place of each null. `Dipc.nullcount(v)` is
the number of nulls.
"""
struct Nullable{T,V<:AbstractVector{T}} <: ArrowVector{Union{T,Missing}}
    values::V
    bits::Ptr{UInt8} # NULL: all are there
    column::Column
end
Nullable(values::AbstractVector{T}, column::Column) where {T} =
    Nullable{T,typeof(values)}(values, validity(column), column)

Base.parent(v::Nullable) = v.values
Base.@propagate_inbounds function Base.getindex(v::Nullable, i::Int)
    @boundscheck checkbounds(v, i)
    return GC.@preserve v v.bits == C_NULL || bit(v.bits, v.column.offset + i - 1) ?
        (@inbounds v.values[i]) : missing
end

"""
    Dipc.nullcount(column) -> Int

How many elements of a vector are missing.
"""
nullcount(v::Nullable) = v.bits == C_NULL ? 0 :
    GC.@preserve v count(i -> !bit(v.bits, v.column.offset + i), 0:length(v)-1)
nullcount(v) = count(ismissing, v)

"A column of the type null: nothing but `missing`."
struct Nulls <: ArrowVector{Missing}
    column::Column
end
Base.@propagate_inbounds function Base.getindex(v::Nulls, i::Int)
    @boundscheck checkbounds(v, i)
    return missing
end

"Text or bytes (`E`) with offsets of type `O`."
struct Offsets{E,O} <: ArrowVector{E}
    offsets::Ptr{O}
    data::Ptr{UInt8}
    column::Column
end
const Bytes = Primitive{UInt8}

Base.@propagate_inbounds function Base.getindex(v::Offsets{E}, i::Int) where {E}
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        at = v.column.offset + i
        first, past = unsafe_load(v.offsets, at), unsafe_load(v.offsets, at + 1)
        return E(v.data + first, past - first, v.column)
    end
end

"Text or bytes (`E`) by views: short ones lie in the view itself, others in one of many buffers."
struct Views{E} <: ArrowVector{E}
    views::Ptr{UInt8}
    column::Column
end

const VIEW_BYTES = 16
const INLINE_BYTES = 12

Base.@propagate_inbounds function Base.getindex(v::Views{E}, i::Int) where {E}
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        view = v.views + (v.column.offset + i - 1) * VIEW_BYTES
        bytes = unsafe_load(Ptr{Int32}(view))
        bytes <= INLINE_BYTES && return E(view + 4, bytes, v.column)
        index, offset = unsafe_load(Ptr{Int32}(view + 8)), unsafe_load(Ptr{Int32}(view + 12))
        return E(Ptr{UInt8}(buffer(v.column, 3 + index)) + offset, bytes, v.column)
    end
end

"Bytes of one width."
struct FixedBytes <: ArrowVector{Bytes}
    data::Ptr{UInt8}
    width::Int
    column::Column
end
Base.@propagate_inbounds function Base.getindex(v::FixedBytes, i::Int)
    @boundscheck checkbounds(v, i)
    return Bytes(v.data + (v.column.offset + i - 1) * v.width, v.width, v.column)
end

"""
    Dipc.Mapped{T,F,V} <: AbstractVector{T}

Values of fixed width that Julia stores in another way: `F` makes each value when it is read.
`parent(v)` has the stored values.
"""
struct Mapped{T,F,V} <: ArrowVector{T}
    make::F
    values::V
    column::Column
end
Mapped{T}(make::F, values::V, column) where {T,F,V} = Mapped{T,F,V}(make, values, column)
Base.parent(v::Mapped) = v.values
Base.@propagate_inbounds function Base.getindex(v::Mapped{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return v.make(@inbounds v.values[i])::T
end

# Days and milliseconds from Julia's own first day to Arrow's.
const EPOCH_DAYS = Dates.value(Date(1970))
const EPOCH_MILLISECONDS = Dates.value(DateTime(1970))

date_of_days(days::Int32) = Date(Dates.UTD(EPOCH_DAYS + days))
datetime_of_ms(ms::Int64) = DateTime(Dates.UTM(EPOCH_MILLISECONDS + ms))
# Times of Julia count nanoseconds.
struct TimeOf
    nanoseconds::Int64
end
# Julia's constructor turns 24:00, which Arrow allows, into 0:00. So the number itself is kept.
function (unit::TimeOf)(count)
    nanoseconds = Ref(count * unit.nanoseconds)
    return GC.@preserve nanoseconds unsafe_load(Ptr{Time}(Base.unsafe_convert(Ptr{Int64}, nanoseconds)))
end
