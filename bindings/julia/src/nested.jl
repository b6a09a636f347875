# Vectors over a batch's memory, of nested and encoded types. A list is a view of a part of the
# vector that holds the elements of all.

"Lists with offsets of type `O`: list `i` ends where the next begins."
struct Lists{T,O,V<:AbstractVector} <: ArrowVector{T}
    offsets::Ptr{O}
    values::V
    column::Column
end
# What a list of a vector is.
element_part(values::V) where {V} = Base.promote_op(view, V, UnitRange{Int})
Lists(offsets::Ptr{O}, values::V, column) where {O,V} =
    Lists{element_part(values),O,V}(offsets, values, column)

Base.@propagate_inbounds function Base.getindex(v::Lists, i::Int)
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        at = v.column.offset + i
        return view(v.values, Int(unsafe_load(v.offsets, at))+1:Int(unsafe_load(v.offsets, at + 1)))
    end
end

"Lists that lie anywhere: offsets and sizes of type `O`."
struct ListViews{T,O,V<:AbstractVector} <: ArrowVector{T}
    offsets::Ptr{O}
    sizes::Ptr{O}
    values::V
    column::Column
end
ListViews(offsets::Ptr{O}, sizes::Ptr{O}, values::V, column) where {O,V} =
    ListViews{element_part(values),O,V}(offsets, sizes, values, column)

Base.@propagate_inbounds function Base.getindex(v::ListViews, i::Int)
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        at = v.column.offset + i
        first = Int(unsafe_load(v.offsets, at))
        return view(v.values, first+1:first+Int(unsafe_load(v.sizes, at)))
    end
end

"Lists of one size."
struct FixedLists{T,V<:AbstractVector} <: ArrowVector{T}
    size::Int
    values::V # of these rows alone
    column::Column
end
FixedLists(size, values::V, column) where {V} = FixedLists{element_part(values),V}(size, values, column)

Base.@propagate_inbounds function Base.getindex(v::FixedLists, i::Int)
    @boundscheck checkbounds(v, i)
    return view(v.values, (i-1)*v.size+1:i*v.size)
end

"Structs: named tuples of the children's elements."
struct Structs{T<:NamedTuple,C<:Tuple} <: ArrowVector{T}
    children::C
    column::Column
end
function Structs(names::Vector{Symbol}, children::Tuple, column)
    T = NamedTuple{Tuple(names),Tuple{map(eltype, children)...}}
    return Structs{T,typeof(children)}(children, column)
end
Base.@propagate_inbounds function Base.getindex(v::Structs{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    return T(map(child -> (@inbounds child[i]), v.children))
end

"""
    Dipc.MapView{K,V} <: AbstractDict{K,V}

One value of a map column: its pairs in their order. A key is looked for from the first pair on; that
Arrow's maps may hold a key twice is seen by iterating.
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
function Maps(offsets, keys::K, values::V, column) where {K,V}
    T = MapView{eltype(K),eltype(V),element_part(keys),element_part(values)}
    return Maps{T,K,V}(offsets, keys, values, column)
end
Base.@propagate_inbounds function Base.getindex(v::Maps{T}, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    GC.@preserve v begin
        at = v.column.offset + i
        rows = Int(unsafe_load(v.offsets, at))+1:Int(unsafe_load(v.offsets, at + 1))
        return T(view(v.keys, rows), view(v.values, rows))
    end
end

"Unions: each element is one of a child. Without offsets (sparse) it is that child's at the same row."
struct Unions{T,C<:Tuple} <: ArrowVector{T}
    ids::Ptr{Int8}
    offsets::Ptr{Int32}      # NULL: sparse
    which::NTuple{128,Int8}  # the child of each id
    children::C
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
struct Encoded{T,I<:AbstractVector,V<:AbstractVector{T}} <: ArrowVector{T}
    codes::I
    levels::V
    column::Column
end
Encoded(codes::I, levels::V, column) where {I,T,V<:AbstractVector{T}} =
    Encoded{T,I,V}(codes, levels, column)
Base.@propagate_inbounds function Base.getindex(v::Encoded, i::Int)
    @boundscheck checkbounds(v, i)
    return v.levels[Int(@inbounds v.codes[i])+1]
end

"""
    Dipc.levels(column)
    Dipc.codes(column)

The dictionary of a dictionary-encoded column, and the indices into it, which count from 0 and hold
anything where an element is missing.
"""
levels(v::Encoded) = v.levels
codes(v::Encoded) = v.codes
levels(v::Nullable) = levels(v.values)
codes(v::Nullable) = codes(v.values)

"Run-end encoded values: element `i` is the value of the first run that ends at `i` or later."
struct Runs{T,E<:AbstractVector,V<:AbstractVector{T}} <: ArrowVector{T}
    ends::E
    values::V
    column::Column
end
Runs(ends::E, values::V, column) where {E,T,V<:AbstractVector{T}} =
    Runs{T,E,V}(ends, values, column)
Base.@propagate_inbounds function Base.getindex(v::Runs, i::Int)
    @boundscheck checkbounds(v, i)
    return v.values[searchsortedfirst(v.ends, v.column.offset + i)]
end
