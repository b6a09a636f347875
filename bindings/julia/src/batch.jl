# Batches: columns by name.

"""
    Dipc.Batch

A record batch: columns of one length. `batch.name`, `batch[:name]`, `batch["name"]` and `batch[1]`
give a column; `propertynames(batch)` the names; `NamedTuple(batch)` all columns, which is a table to
everything that knows Tables.jl. `Dipc.nrows`, `Dipc.schema` and `Dipc.metadata` say the rest.

Columns are views of memory that the server shares. Each column by itself keeps the batch's memory
alive. A name that the schema has twice gets a number at its end the second time.
"""
struct Batch
    names::Vector{Symbol}
    columns::Vector{AbstractVector}
    rows::Int
    schema::Schema
    metadata::Vector{Pair{String,String}}
end

function Batch(schema::Schema, owner::Owner, metadata = Pair{String,String}[])
    whole = Column(as_field(schema), owner.array[].array, owner.array[].array.offset,
                   owner.array[].array.length, owner)
    columns = AbstractVector[struct_child(whole, i) for i in eachindex(schema.fields)]
    return Batch(unique_names(schema.fields), columns, whole.length, schema, metadata)
end

"""
    Dipc.nrows(batch) -> Int
"""
nrows(batch::Batch) = getfield(batch, :rows)

"""
    Dipc.metadata(batch) -> Vector{Pair{String,String}}

The custom metadata that came with this batch alone; the table's is `Dipc.schema(batch).metadata`.
"""
metadata(batch::Batch) = getfield(batch, :metadata)

"""
    Dipc.schema(batch_or_stream) -> Dipc.Schema
"""
schema(batch::Batch) = getfield(batch, :schema)

"""
    Dipc.with_metadata(table, pairs) -> Dipc.TableWithMetadata

A table with custom metadata of its own, text pairs, which go with its batch alone: for everything that takes
tables or iterators of them. The metadata of a schema are for all batches together.
"""
with_metadata(table, pairs) = TableWithMetadata(table, text_pairs(pairs))

"""
    Dipc.TableWithMetadata

What [`Dipc.with_metadata`](@ref) makes.
"""
struct TableWithMetadata
    table::Any
    metadata::Vector{Pair{String,String}}
end

text_pairs(pair::Pair) = text_pairs((pair,))
text_pairs(pairs) = Pair{String,String}[String(key) => String(value) for (key, value) in pairs]

# The metadata of one batch, for each kind of object that can be served.
metadata_of(batch::Batch) = metadata(batch)
metadata_of(table::TableWithMetadata) = table.metadata
metadata_of(_) = Pair{String,String}[]

names(batch::Batch) = getfield(batch, :names)
columns(batch::Batch) = getfield(batch, :columns)

Base.propertynames(batch::Batch) = Tuple(names(batch))
Base.keys(batch::Batch) = Tuple(names(batch))
Base.haskey(batch::Batch, name::Symbol) = name in names(batch)
Base.length(batch::Batch) = length(columns(batch))
Base.iterate(batch::Batch, i = 1) = iterate(columns(batch), i)
Base.eltype(::Type{Batch}) = AbstractVector
Base.getindex(batch::Batch, i::Integer) = columns(batch)[i]
Base.getindex(batch::Batch, name::AbstractString) = batch[Symbol(name)]
function Base.getindex(batch::Batch, name::Symbol)
    at = findfirst(==(name), names(batch))
    at === nothing && throw(KeyError(name))
    return columns(batch)[at]
end
function Base.getproperty(batch::Batch, name::Symbol)
    haskey(batch, name) || throw(ArgumentError(
        "the batch has no column $name; it has $(join(names(batch), ", "))"))
    return batch[name]
end
Base.NamedTuple(batch::Batch) = NamedTuple{Tuple(names(batch))}(Tuple(columns(batch)))
Base.pairs(batch::Batch) = (name => column for (name, column) in zip(names(batch), columns(batch)))
Base.show(io::IO, batch::Batch) =
    print(io, "Dipc.Batch(", nrows(batch), " rows: ", join(schema(batch).fields, ", "), ")")

"""
    Dipc.table(batches) -> NamedTuple

All batches as one table of `Vector`s of the columns, copied: for small results. `batches` is a
stream or a vector of batches.
"""
function table(batches)
    all = collect(Batch, batches)
    isempty(all) && return table(batches, schema(batches))
    return NamedTuple{Tuple(names(all[1]))}(Tuple(
        reduce(vcat, [batch[i] for batch in all]) for i in 1:length(all[1])))
end
# There is no batch that could tell the element types.
table(::Any, schema::Schema) =
    NamedTuple{Tuple(unique_names(schema.fields))}(Tuple(Union{}[] for _ in schema.fields))
