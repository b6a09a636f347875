# Fields and schemas, as Arrow's C data interface describes them.

"""
    Dipc.Field(name, format; nullable=true, children=Field[], dictionary=nothing, metadata=[], flags=0)

One column, or one child of a nested one.

- `format`: the type, as Arrow's C data interface spells it: `"l"` is Int64, `"tsn:UTC"` a timestamp
- `dictionary`: for a dictionary-encoded field, the field of the values; `format` is the type of the
indices
- `metadata`: pairs of text, kept in their order
"""
struct Field
    name::String
    format::String
    nullable::Bool
    flags::Int64 # of the C struct, without "nullable"
    metadata::Vector{Pair{String,String}}
    children::Vector{Field}
    dictionary::Union{Nothing,Field}
end

function Field(name, format; nullable = true, flags = 0, metadata = Pair{String,String}[],
               children = Field[], dictionary = nothing)
    return Field(String(name), String(format), nullable, flags,
                 Pair{String,String}[String(k) => String(v) for (k, v) in metadata],
                 children, dictionary)
end

"""
    Dipc.Schema(fields; metadata=[])

The columns of a table.
"""
struct Schema
    fields::Vector{Field}
    metadata::Vector{Pair{String,String}}
end
Schema(fields; metadata = []) = Schema(collect(Field, fields), Field("", "+s"; metadata = metadata).metadata)

for type in (Field, Schema)
    same = [:(a.$name == b.$name) for name in fieldnames(type)]
    @eval Base.:(==)(a::$type, b::$type) = $(foldr((x, y) -> :($x && $y), same))
    @eval Base.hash(a::$type, h::UInt) = hash(($((:(a.$name) for name in fieldnames(type))...),), h)
end

# A schema is a struct to the C data interface.
as_field(schema::Schema) = Field("", "+s", false, 0, schema.metadata, schema.fields, nothing)

function Base.show(io::IO, field::Field)
    print(io, field.name, ": ")
    field.dictionary === nothing || print(io, "dictionary of ", field.dictionary.format, " by ")
    print(io, field.format)
    isempty(field.children) || print(io, "{", join(field.children, ", "), "}")
    field.nullable || print(io, " not null")
end
Base.show(io::IO, schema::Schema) = print(io, "Dipc.Schema(", join(schema.fields, ", "), ")")

# The part of a format after its colon: "42" of "w:42".
parameter(format) = String(split(format, ':'; limit = 2)[2])
parameters(format) = parse.(Int, split(parameter(format), ','))

# Metadata is a count and then lengths and bytes, in the machine's own order.
function read_metadata(p::Ptr{UInt8})
    pairs = Pair{String,String}[]
    p == C_NULL && return pairs
    at = p
    number() = (n = unsafe_load(Ptr{Int32}(at)); at += 4; n)
    text() = (n = number(); s = unsafe_string(at, n); at += n; s)
    for _ in 1:number()
        key = text()
        push!(pairs, key => text())
    end
    return pairs
end

function write_metadata(pairs)
    io = IOBuffer()
    Base.write(io, Int32(length(pairs)))
    for pair in pairs, text in pair
        Base.write(io, Int32(ncodeunits(text)), text)
    end
    return take!(io)
end

# Reads a C schema; it stays the caller's.
function Field(p::Ptr{ArrowSchema})
    c = unsafe_load(p)
    return Field(
        c.name == C_NULL ? "" : unsafe_string(c.name), unsafe_string(c.format),
        c.flags & ARROW_FLAG_NULLABLE != 0, c.flags & ~ARROW_FLAG_NULLABLE,
        read_metadata(c.metadata), [Field(unsafe_load(c.children, i)) for i in 1:c.n_children],
        c.dictionary == C_NULL ? nothing : Field(c.dictionary))
end

function Schema(p::Ptr{ArrowSchema})
    field = Field(p)
    return Schema(field.children, field.metadata)
end

function release_schema(p::Ptr{ArrowSchema})
    release = unsafe_load(field_ptr(p, Val(:release)))
    release == C_NULL || ccall(release, Cvoid, (Ptr{ArrowSchema},), p)
    return
end

# A C schema for the time of one call: `use(p)` may read it. Its memory belongs to Julia, so there
# is nothing to release, and its release is a function that does nothing.
function with_schema(use, schema::Schema)
    keep = Any[]
    GC.@preserve keep use(c_schema!(keep, as_field(schema)))
end

# `free(NULL)` for the struct: the memory is the caller's.
release_nothing(p::Ptr{ArrowSchema})::Cvoid =
    (unsafe_store!(field_ptr(p, Val(:release)), C_NULL); nothing)

function c_schema!(keep, field::Field)
    text(s) = (push!(keep, s); pointer(s))
    children = [c_schema!(keep, child) for child in field.children]
    metadata = isempty(field.metadata) ? nothing : write_metadata(field.metadata)
    dictionary = field.dictionary === nothing ? C_NULL : c_schema!(keep, field.dictionary)
    c = Ref(ArrowSchema(
        text(field.format), text(field.name), metadata === nothing ? C_NULL : text(metadata),
        field.flags | (field.nullable ? ARROW_FLAG_NULLABLE : 0), length(children),
        isempty(children) ? C_NULL : text(children), dictionary,
        @cfunction(release_nothing, Cvoid, (Ptr{ArrowSchema},)), C_NULL))
    push!(keep, c)
    return Base.unsafe_convert(Ptr{ArrowSchema}, c)
end
