# Descriptions of tables: asking for them, and giving them.

"""
    Dipc.Endpoint(ticket; uris=String[], rows=nothing, bytes=nothing)

Where a part of a table is, or one table of a list.

- `ticket::Vector{UInt8}`: what to ask for; text or bytes
- `uris::Vector{String}`: servers that have it, the best one first; none: the server that was asked
- `rows`, `bytes`: how large the part is; `nothing` if that is not known
"""
struct Endpoint
    ticket::Vector{UInt8}
    uris::Vector{String}
    rows::Union{Nothing,Int}
    bytes::Union{Nothing,Int}
end
Endpoint(ticket; uris = String[], rows = nothing, bytes = nothing) =
    Endpoint(ticket_bytes(ticket), uri_list(uris), total(rows), total(bytes))

"""
    Dipc.Description(; schema=nothing, rows=nothing, bytes=nothing, batches=nothing, endpoints=[])

What a ticket stands for, as [`Dipc.describe`](@ref) gives it and handlers answer with it.

- `schema`: a [`Dipc.Schema`](@ref)
- `rows`, `bytes`, `batches`: totals of the whole table; bytes are those of its buffers
- `endpoints`: the [`Dipc.Endpoint`](@ref)s that have the table's parts
- `headers`: the [`Dipc.Headers`](@ref) of the server's answer

What is not known is `nothing`.
"""
struct Description
    schema::Union{Nothing,Schema}
    rows::Union{Nothing,Int}
    bytes::Union{Nothing,Int}
    batches::Union{Nothing,Int}
    endpoints::Vector{Endpoint}
    headers::Headers
end
Description(; schema = nothing, rows = nothing, bytes = nothing, batches = nothing,
            endpoints = Endpoint[]) =
    Description(schema, total(rows), total(bytes), total(batches), collect(Endpoint, endpoints),
                Headers())

total(::Nothing) = nothing
total(value::Integer) =
    value >= 0 ? Int(value) : throw(ArgumentError("a total may not be negative: $value"))
total(value) =
    throw(ArgumentError("a total is a whole number or nothing, and this is $(repr(value))"))

const UNKNOWN = typemax(UInt64)
from_total(value::UInt64) = value > typemax(Int) ? nothing : Int(value)
to_total(value) = value === nothing ? UNKNOWN : UInt64(value)

const TOTAL_ROWS, TOTAL_BYTES, TOTAL_BATCHES = Int32(1), Int32(2), Int32(3)

"""
    Dipc.describe(uri, ticket; options...) -> Dipc.Description

Asks a server what a ticket stands for: schema, totals, and where its parts are. The table itself
is not sent. The options are those of [`Dipc.get`](@ref).

The server can describe a table that it was given whole. For other tickets of its own it knows what
[`Dipc.set_description`](@ref) said; for all further tickets its handler answers.
"""
function describe(uri, ticket; options...)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    ask(:describe, uri, ticket; options...) do request, error
        ccall(@c(dipc_pending_try_description), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
              request, out, error)
    end
    try
        return read_description(out[])
    finally
        ccall(@c(dipc_description_free), Cvoid, (Ptr{Cvoid},), out[])
    end
end

"""
    Dipc.list(uri, prefix=""; options...) -> Dipc.Stream

Asks a server for its tickets that begin with `prefix` (text or bytes). If there are none, its
handler answers. The options are those of [`Dipc.get`](@ref).

The answer is a table with a row for each ticket. Its columns are `descriptor` (the ticket's bytes),
`uris` (servers that have it; none: this server), `rows` and `bytes` (`missing` if not known):

    tables = Dipc.table(Dipc.list("shm:@demo"))
    println(String.(tables.descriptor))
"""
list(uri, prefix = ""; options...) = ask_for_stream(:list, uri, prefix; options...)

function read_description(handle)
    whole(number) = from_total(ccall(@c(dipc_description_total), UInt64, (Ptr{Cvoid}, Int32),
                                     handle, number))
    count = ccall(@c(dipc_description_endpoint_count), Csize_t, (Ptr{Cvoid},), handle)
    return Description(described_schema(handle), whole(TOTAL_ROWS), whole(TOTAL_BYTES),
                       whole(TOTAL_BATCHES), [read_endpoint(handle, i) for i in 1:Int(count)],
                       read_headers(@c(dipc_description_headers), handle))
end

function described_schema(handle)
    out = Ref(zeroed(ArrowSchema))
    try
        check(e -> ccall(@c(dipc_description_schema), Int32,
                         (Ptr{Cvoid}, Ptr{ArrowSchema}, Ptr{Ptr{Cvoid}}), handle, out, e))
    catch exception
        exception isa DipcError && exception.status == ERR_NOT_FOUND || rethrow()
        return nothing
    end
    return taken_schema(out)
end

function read_endpoint(handle, i)
    part(number) = from_total(ccall(@c(dipc_description_endpoint_total), UInt64,
                                    (Ptr{Cvoid}, Csize_t, Int32), handle, i - 1, number))
    count = ccall(@c(dipc_description_endpoint_uri_count), Csize_t, (Ptr{Cvoid}, Csize_t),
                  handle, i - 1)
    uris = String[String(text_out((buffer, size, out, error) -> ccall(
        @c(dipc_description_endpoint_uri), Int32,
        (Ptr{Cvoid}, Csize_t, Csize_t, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
        handle, i - 1, k - 1, buffer, size, out, error))) for k in 1:Int(count)]
    return Endpoint(indexed_text(@c(dipc_description_endpoint_descriptor), handle, i), uris,
                    part(TOTAL_ROWS), part(TOTAL_BYTES))
end

# Runs `use(pointer)` with a description as the library takes it.
function with_description(use, description::Description)
    setters = Any[]
    description.schema === nothing || push!(setters, (handle, error) ->
        with_schema(description.schema) do c
            ccall(@c(dipc_description_set_schema), Int32,
                  (Ptr{Cvoid}, Ptr{ArrowSchema}, Ptr{Ptr{Cvoid}}), handle, c, error)
        end)
    for (number, value) in (TOTAL_ROWS => description.rows, TOTAL_BYTES => description.bytes,
                            TOTAL_BATCHES => description.batches)
        push!(setters, (handle, error) -> ccall(@c(dipc_description_set_total), Int32,
            (Ptr{Cvoid}, Int32, UInt64, Ptr{Ptr{Cvoid}}), handle, number, to_total(value), error))
    end
    append!(setters, (endpoint_setter(endpoint) for endpoint in description.endpoints))
    return with_handle(use, @c(dipc_description_new), @c(dipc_description_free), setters)
end

endpoint_setter(endpoint) = (handle, error) -> begin
    uris = endpoint.uris
    pointers = Ptr{UInt8}[pointer_to_text(text, "a URI") for text in uris]
    GC.@preserve uris ccall(@c(dipc_description_add_endpoint), Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Ptr{UInt8}}, Csize_t, UInt64, UInt64,
         Ptr{Ptr{Cvoid}}), handle, endpoint.ticket, length(endpoint.ticket), pointers, length(pointers),
        to_total(endpoint.rows), to_total(endpoint.bytes), error)
end

# A description as the table that goes to the client. The library makes it.
function Batch(description::Description)
    stream = Ref(zeroed(ArrowDeviceArrayStream))
    with_description(description) do handle
        check(e -> ccall(@c(dipc_description_to_stream), Int32,
            (Ptr{Cvoid}, Ptr{ArrowDeviceArrayStream}, Ptr{Ptr{Cvoid}}), handle, stream, e))
    end
    out = Ref(zeroed(ArrowDeviceArray))
    GC.@preserve stream out begin
        p = Base.unsafe_convert(Ptr{ArrowDeviceArrayStream}, stream)
        try
            schema = read_schema(stream)
            status = ccall(stream[].get_next, Cint, (Ptr{Cvoid}, Ptr{Cvoid}), p,
                           Base.unsafe_convert(Ptr{ArrowDeviceArray}, out))
            status == 0 || throw(stream_error(p))
            return Batch(schema, Owner(out))
        finally
            ccall(stream[].release, Cvoid, (Ptr{Cvoid},), p)
        end
    end
end
