# Vectors over a batch's memory, of nested and encoded types. A list is a view of a part of one
# vector, which holds the elements of all lists.
#
# The type of a vector names the types of the vectors inside it only if those are flat. Nested
# vectors are held as `AbstractVector`s: otherwise the types, and the time to compile them, would
# grow exponentially with the depth.

isflat(::Type) = false
isflat(::Type{<:Union{Primitive,Bits,Offsets,Views,FixedBytes,Mapped,Nulls}}) = true
isflat(::Type{<:Nullable{<:Any,V}}) where {V} = isflat(V)

# The type that a field for such a vector has.
held(::V) where {T,V<:AbstractVector{T}} = isflat(V) ? V : AbstractVector

# The element type that the type of a list or a struct names. From a certain depth on it names none,
# because Julia would take very long to compare such types.
const MOST_NESTING = 4
nesting(field::Field) = 1 + maximum([0; Int[nesting(child) for child in field.children]]) +
    (field.dictionary === nothing ? 0 : nesting(field.dictionary))
element_type(values) = nesting(source(values).field) > MOST_NESTING ? Any : eltype(values)

"""
    Dipc.FlatList{T,V}, Dipc.NestedList{T} <: AbstractVector{T}

One value of a list column: a part of the vector that holds the elements of all lists. Lists of
numbers without nulls are [`Dipc.Primitive`](@ref)s.
"""
struct FlatList{T,V<:AbstractVector{T}} <: AbstractVector{T}
    values::V
    before::Int
    length::Int
end
struct NestedList{T} <: AbstractVector{T}
    values::AbstractVector
    before::Int
    length::Int
end
const ListValue = Union{FlatList,NestedList}

Base.size(list::ListValue) = (list.length,)
Base.IndexStyle(::Type{<:ListValue}) = IndexLinear()
Base.@propagate_inbounds function Base.getindex(list::ListValue, i::Int)
    @boundscheck checkbounds(list, i)
    return list.values[list.before+i]
end

# The type of a list of a vector's elements, and the list of the `length` elements after the first
# `before` ones.
list_type(values::V) where {T,V<:AbstractVector{T}} =
    V <: Primitive ? V : isflat(V) ? FlatList{T,V} : NestedList{element_type(values)}
function list_of(::Type{L}, values, before, length) where {L}
    checkbounds(values, before+1:before+length)
    return L(values, before, length)
end
function list_of(::Type{Primitive{T}}, values, before, length) where {T}
    checkbounds(values, before+1:before+length)
    return Primitive{T}(values.pointer + before * sizeof(T), length, values.owner)
end

"Lists with offsets of type `O`: list `i` ends where the next begins."
struct Lists{T,O,V<:AbstractVector} <: ArrowVector{T}
    offsets::Ptr{O}
    values::V
    column::Column
end
Lists(offsets::Ptr{O}, values, column) where {O} =
    Lists{list_type(values),O,held(values)}(offsets, values, column)

# Where list `i` of a column begins, from 0, and how many elements it has.
@inline function extent(offsets::Ptr, column, i)
    at = column.offset + i
    first = Int(unsafe_load(offsets, at))
    return first, Int(unsafe_load(offsets, at + 1)) - first
end

Base.@propagate_inbounds function Base.getindex(v::Lists{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return GC.@preserve v list_of(T, v.values, extent(v.offsets, v.column, i)...)
end

"Lists that lie anywhere: offsets and sizes of type `O`."
struct ListViews{T,O,V<:AbstractVector} <: ArrowVector{T}
    offsets::Ptr{O}
    sizes::Ptr{O}
    values::V
    column::Column
end
ListViews(offsets::Ptr{O}, sizes::Ptr{O}, values, column) where {O} =
    ListViews{list_type(values),O,held(values)}(offsets, sizes, values, column)

Base.@propagate_inbounds function Base.getindex(v::ListViews{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    at = v.column.offset + i
    return GC.@preserve v list_of(T, v.values, Int(unsafe_load(v.offsets, at)),
                                  Int(unsafe_load(v.sizes, at)))
end

"Lists of one size."
struct FixedLists{T,V<:AbstractVector} <: ArrowVector{T}
    size::Int
    values::V # of these rows alone
    column::Column
end
FixedLists(size, values, column) =
    FixedLists{list_type(values),held(values)}(size, values, column)

Base.@propagate_inbounds function Base.getindex(v::FixedLists{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return list_of(T, v.values, (i - 1) * v.size, v.size)
end

"Structs: named tuples of the children's elements."
struct Structs{T<:NamedTuple,C<:Tuple} <: ArrowVector{T}
    children::C
    column::Column
end
function Structs(names::Vector{Symbol}, children::Vector, column)
    T = NamedTuple{Tuple(names),Tuple{map(element_type, children)...}}
    return Structs{T,Tuple{map(held, children)...}}(Tuple(children), column)
end
Base.@propagate_inbounds function Base.getindex(v::Structs{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return T(map(child -> (@inbounds child[i]), v.children))
end

"""
    Dipc.MapView{K,V} <: AbstractDict{K,V}

One value of a map column: its pairs in their order. A key is searched from the first pair on.
Arrow's maps may hold a key twice: iterate to see all its pairs.
"""
struct MapView{K,V,KS<:AbstractVector{K},VS<:AbstractVector{V}} <: AbstractDict{K,V}
    keys::KS
    values::VS
end
Base.length(m::MapView) = length(m.keys)
Base.iterate(m::MapView, i::Int = 1) = i > length(m) ? nothing : (m.keys[i] => m.values[i], i + 1)
function Base.get(m::MapView, key, default)
    at = findfirst(isequal(key), m.keys)
    return at === nothing ? default : m.values[at]
end
Base.haskey(m::MapView, key) = any(isequal(key), m.keys)
Base.keys(m::MapView) = m.keys
Base.values(m::MapView) = m.values

"Maps: lists of keys and of values with the same offsets."
struct Maps{T,K<:AbstractVector,V<:AbstractVector} <: ArrowVector{T}
    offsets::Ptr{Int32}
    keys::K
    values::V
    column::Column
end
function Maps(offsets, keys, values, column)
    lists = list_type(keys), list_type(values)
    T = MapView{map(eltype, lists)...,lists...}
    return Maps{T,held(keys),held(values)}(offsets, keys, values, column)
end
Base.@propagate_inbounds function Base.getindex(v::Maps{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    where_it_lies = GC.@preserve v extent(v.offsets, v.column, i)
    return T(list_of(fieldtype(T, :keys), v.keys, where_it_lies...),
             list_of(fieldtype(T, :values), v.values, where_it_lies...))
end

"Unions: each element is one of a child. Without offsets (sparse) it is that child's at the same row."
struct Unions{T} <: ArrowVector{T}
    ids::Ptr{Int8}
    offsets::Ptr{Int32}      # NULL: sparse
    which::NTuple{128,Int8}  # the child of each id
    children::Vector{AbstractVector}
    column::Column
end
Base.@propagate_inbounds function Base.getindex(v::Unions{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        at = v.column.offset + i
        child = v.children[v.which[unsafe_load(v.ids, at)+1]]
        return child[v.offsets == C_NULL ? i : Int(unsafe_load(v.offsets, at)) + 1]::T
    end
end

"""
    Dipc.typeid(column, i) -> Int8

The type id of element `i` of a union column.
"""
function typeid(v::Unions, i::Int)
    checkbounds(v, i)
    return GC.@preserve v unsafe_load(v.ids, v.column.offset + i)
end

"""
    Dipc.Encoded{T,I,V} <: AbstractVector{T}

A dictionary-encoded column: element `i` is `Dipc.levels(v)[Dipc.codes(v)[i] + 1]`.
"""
struct Encoded{T,I<:AbstractVector,V<:AbstractVector} <: ArrowVector{T}
    codes::I
    levels::V
    column::Column
end
Encoded(codes::I, levels, column) where {I} =
    Encoded{element_type(levels),I,held(levels)}(codes, levels, column)
Base.@propagate_inbounds function Base.getindex(v::Encoded, i::Int)
    @boundscheck checkbounds(v, i)
    return v.levels[Int(@inbounds v.codes[i])+1]
end

"""
    Dipc.levels(column)
    Dipc.codes(column)

The dictionary of a dictionary-encoded column, and the indices into it. They count from 0; the index
of a missing element has an arbitrary value.
"""
levels(v::Encoded) = v.levels
codes(v::Encoded) = v.codes
levels(v::Nullable) = levels(v.values)
codes(v::Nullable) = codes(v.values)

"Run-end encoded values: element `i` is the value of the first run that ends at `i` or later."
struct Runs{T,E<:AbstractVector,V<:AbstractVector} <: ArrowVector{T}
    ends::E
    values::V
    column::Column
end
Runs(ends::E, values, column) where {E} =
    Runs{element_type(values),E,held(values)}(ends, values, column)
Base.@propagate_inbounds function Base.getindex(v::Runs, i::Int)
    @boundscheck checkbounds(v, i)
    return v.values[searchsortedfirst(v.ends, v.column.offset + i)]
end
