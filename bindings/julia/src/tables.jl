# The objects that can be served, and the support for Tables.jl, which this package does not depend
# on.

# The module Tables, once the program has loaded it.
const TABLES = Ref{Union{Nothing,Module}}(nothing)
const TABLES_ID = Base.PkgId(Base.UUID("bd369af6-aec1-5ad0-b16a-f7cc5008161c"), "Tables")
const TABLES_METHODS = joinpath(@__DIR__, "tables_methods.jl")

# From 1.9 on Julia loads ext/DipcTablesExt.jl by itself.
@static if VERSION >= v"1.9"
    watch_for_tables() = nothing
else
    function watch_for_tables()
        haskey(Base.loaded_modules, TABLES_ID) && return connect_tables()
        push!(Base.package_callbacks, id -> id == TABLES_ID && connect_tables())
        return
    end

    function connect_tables()
        glue = Core.eval(Dipc, Expr(:module, true, :TablesGlue, quote end))
        Core.eval(glue, :(const Dipc = $Dipc; const Tables = $(Base.loaded_modules[TABLES_ID])))
        Base.include(glue, TABLES_METHODS)
        return
    end
end

# A table as names and columns; `nothing` if the object is no table.
table_columns(batch::Batch) = batch
table_columns(table::TableWithMetadata) = table_columns(table.table)
table_columns(table::NamedTuple) = all(column -> column isa AbstractVector, values(table)) ? table : nothing
function table_columns(table)
    tables = TABLES[]
    tables === nothing && return nothing
    Base.invokelatest(tables.istable, table) || return nothing
    columns = Base.invokelatest(tables.columns, table)
    names = Tuple(Symbol.(Base.invokelatest(tables.columnnames, columns)))
    return NamedTuple{names}(Tuple(
        Base.invokelatest(tables.getcolumn, columns, i) for i in eachindex(names)))
end

# Whether an object is one table, rather than an iterator of tables.
function is_one_table(object)
    object isa Union{Batch,TableWithMetadata} && return true
    object isa NamedTuple && return table_columns(object) !== nothing
    object isa AbstractVector && !isempty(object) && all(part -> part isa Union{Batch,NamedTuple,TableWithMetadata} &&
        table_columns(part) !== nothing, object) && return false
    object isa Union{Stream,Channel,Base.Generator} && return false
    tables = TABLES[]
    return tables !== nothing && Base.invokelatest(tables.istable, object)
end

"""
    schema_of(table; nullable=false) -> Dipc.Schema

The schema that a table is served with if none is given: from the element types of its columns.
`nullable` makes every column nullable. This is for tables that come in parts: later parts may have
nulls even if the first part has none.
"""
schema_of(batch::Batch; nullable = false) = schema(batch)
function schema_of(table::NamedTuple; nullable = false)
    return Schema([column_field(name, column, nullable) for (name, column) in pairs(table)])
end

function column_field(name, column, nullable)
    known = source(column)
    field = known === nothing ? field_of_column(string(name), eltype(column), column) : known.field
    return Field(string(name), field.format, field.nullable || nullable, field.flags, field.metadata,
                 field.children, field.dictionary)
end

# One table as a record batch of a schema: columns by position, and by name if names are given.
function build_batch(schema::Schema, table)
    columns = collect(AbstractVector, values_of(table))
    length(columns) == length(schema.fields) || throw(ArgumentError(
        "the table has $(length(columns)) columns and its schema $(length(schema.fields))"))
    expected = unique_names(schema.fields)
    for (name, field) in zip(names_of(table), expected)
        name == field || throw(ArgumentError("the table has the column $name where its schema has $field"))
    end
    rows = table isa Batch ? nrows(table) : isempty(columns) ? 0 : length(columns[1])
    for (column, name) in zip(columns, expected)
        length(column) == rows || throw(ArgumentError(
            "column $name has $(length(column)) rows, and the first one $rows"))
    end
    children = [build(field, column) for (field, column) in zip(schema.fields, columns)]
    return Node(rows, 0, (nothing,); children = children)
end

values_of(batch::Batch) = columns(batch)
values_of(table::NamedTuple) = values(table)
names_of(batch::Batch) = names(batch)
names_of(table::NamedTuple) = keys(table)
