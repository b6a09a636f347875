# The Arrow type of a Julia type.

const FORMAT_OF = IdDict{Type,String}(
    (type => format for (format, type) in PRIMITIVE_FORMATS)...,
    Bool => "b", Date => "tdD", DateTime => "tsm:", Time => "ttn", Month => "tiM", Missing => "n",
    Nothing => "n",
)
const UNIT_LETTER = Dict(type => letter for (letter, type) in TIMESTAMP_UNITS)

"""
    field_of(name, T, values) -> Field

The field for a column or a child of element type `T`. `values` are looked at if `T` does not say
enough (`Any`, a byte vector's width).
"""
function field_of(name, ::Type{T}, values) where {T}
    nullable = T >: Missing || T >: Nothing
    plain = nonmissingtype(Base.nonnothingtype(T))
    plain === Union{} && return Field(name, T === Union{} ? "n" : FORMAT_OF[Missing]; nullable = true)
    haskey(FORMAT_OF, plain) && return Field(name, FORMAT_OF[plain]; nullable = nullable)
    if !isconcretetype(plain) && !has_format(plain)
        return field_of_values(name, plain, nullable, values)
    end
    format, children = format_of(plain, present(values))
    return Field(name, format; nullable = nullable, children = children)
end

# An abstract Julia type that nevertheless stands for one Arrow type.
has_format(::Type{T}) where {T} = T <: Union{AbstractString,AbstractVector,AbstractDict,Symbol}

# If the element type is too wide, the values themselves decide: one type, or a union of several.
function field_of_values(name, plain, nullable, values)
    found = unique!([typeof(value) for value in values])
    here = Base.filter(type -> !(type <: Union{Missing,Nothing,Hidden}), found)
    nullable |= any(type -> type <: Union{Missing,Nothing}, found)
    isempty(here) && return Field(name, "n")
    joined = joined_type(here)
    joined === nothing || return field_of(name, nullable ? Union{joined,Missing} : joined, values)
    fields = Field[]
    for type in here
        field = field_of(string(nameof(type)), type, Iterators.filter(value -> value isa type, values))
        any(known -> known.format == field.format, fields) || push!(fields, field)
    end
    length(fields) > 127 && throw(NoFormat(plain))
    length(fields) == 1 && return Field(name, fields[1].format; nullable = nullable,
                                        children = fields[1].children)
    # Unions have no bitmap; a child of its own holds the missing values.
    nullable && push!(fields, Field("null", "n"))
    return Field(name, "+ud:" * join(0:length(fields)-1, ','); nullable = nullable, children = fields)
end

# One type for all values that changes none of them; `nothing` if there is no such type.
function joined_type(types)
    length(types) == 1 && return types[1]
    for family in (AbstractString, AbstractDict)
        all(type -> type <: family, types) && return typejoin(types...)
    end
    all(type -> type <: Union{Symbol,AbstractString}, types) && return AbstractString
    if all(type -> type <: AbstractVector, types)
        return AbstractVector{typejoin(map(eltype, types)...)}
    end
    return nothing
end

# A type, perhaps deep within a column, that has no Arrow type.
struct NoFormat <: Exception
    type::Type
end

# `field_of` for a column; its error names the column.
function field_of_column(name, T, values)
    try
        return field_of(name, T, values)
    catch exception
        exception isa NoFormat || rethrow()
        throw(ArgumentError("column $name: $(exception.type) has no Arrow type; give a column of" *
            " numbers, text, dates, vectors, named tuples or dictionaries, or a Dipc.Schema that says what" *
            " to make of it"))
    end
end

# The values that are not missing.
present(values) = Iterators.filter(value -> !(value isa Union{Missing,Nothing,Hidden}), values)

# The format of a type, and the fields of its children.
format_of(::Type{<:Union{AbstractString,Symbol,Char}}, values) = "u", Field[]
format_of(::Type{<:AbstractVector{UInt8}}, values) = "z", Field[]
format_of(::Type{NTuple{N,UInt8}}, values) where {N} = "w:$N", Field[]
format_of(::Type{Timestamp{U,Z}}, values) where {U,Z} =
    "ts$(UNIT_LETTER[U]):$(Z === nothing ? "" : Z)", Field[]
format_of(::Type{Decimal{P,S,T}}, values) where {P,S,T} =
    (T === Int128 ? "d:$P,$S" : "d:$P,$S,$(8sizeof(T))"), Field[]
format_of(::Type{<:AbstractVector{T}}, values) where {T} =
    "+l", [field_of("item", T, Iterators.flatten(values))]
format_of(::Type{NTuple{N,T}}, values) where {N,T} =
    "+w:$N", [field_of("item", T, Iterators.flatten(values))]
function format_of(::Type{T}, values) where {T<:NamedTuple}
    isconcretetype(T) || throw(NoFormat(T))
    return "+s", [field_of(name, fieldtype(T, name), (value[name] for value in values))
                  for name in fieldnames(T)]
end
function format_of(::Type{<:AbstractDict{K,V}}, values) where {K,V}
    key = field_of("key", K, Iterators.flatten(Base.keys(value) for value in values))
    value = field_of("value", V, Iterators.flatten(Base.values(value) for value in values))
    key.nullable && throw(ArgumentError("the keys of a map may not be missing: $K"))
    return "+m", [Field("entries", "+s"; nullable = false, children = [key, value])]
end
format_of(::Type{T}, values) where {T} = throw(NoFormat(T))
