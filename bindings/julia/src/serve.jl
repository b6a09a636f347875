# Serving tables. A whole table is published: the library serves it by itself. What is made on
# request is served in the pull form: tasks of Julia's ask for requests, push batches and drain
# releases. So no thread of the library ever enters Julia for it.

"""
    Dipc.serve(server, ticket, table; schema=nothing)
    Dipc.serve(f, server, ticket; schema=nothing)
    Dipc.serve(f, server; schema=nothing)

Serves a ticket (text or bytes) or, without one, every ticket that is not served by itself: queries,
commands, keys of partitions. Several clients may fetch it, also at once.

- a named tuple of vectors, a [`Dipc.Batch`](@ref) or, if Tables.jl is loaded, any table: one batch
- an iterator of them, such as a vector or a [`Dipc.Stream`](@ref): a batch each, made when the
  client has room. An iterator that can be used only once serves only the first client.
- a function, called as `f()` or `f(request)` for each client: what it returns is served, and its
  exception is the stream's error, with its text. `Dipc.ticket(request)` is what was asked for and
  `Dipc.iscancelled(request)` whether the client has gone.

The function of `Dipc.serve(f, server)` is the server's handler, and replaces the one before. It is
asked for more than tables, as `Dipc.verb(request)` says: if that is `:describe` it returns a
[`Dipc.Description`](@ref) of the ticket, and if it is `:list` one whose endpoints are the tickets
that begin with `Dipc.ticket(request)`. If it is `:put` the function takes the client's table by
[`Dipc.source`](@ref), and its result is ignored. If it returns a table without taking the client's,
the client gets `Dipc.ERR_UNSUPPORTED`.

`schema` says which Arrow types the columns become; otherwise their element types do. Vectors of
numbers without `missing`, of `Dipc.ArenaVector`s and columns that came from a server are not copied
by Julia; do not change them while they are served.
"""
serve(provider::Function, server::Server, ticket; schema = nothing) =
    serve_pulled(server, ticket, opener(provider, schema))

serve(server::Server, ticket, provider::Function; schema = nothing) =
    serve(provider, server, ticket; schema = schema)

function serve(provider::Function, server::Server; schema = nothing)
    using_handle(server) do handle
        # Before the first request can come.
        server.handler = opener(provider, schema)
        check(e -> ccall(@c(dipc_server_set_handler_pull), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
                         handle, e))
    end
    start_answering(server)
    return
end

# What a provider gives for a request.
opener(provider, schema) = request -> begin
    given = applicable(provider, request) ? provider(request) : provider()
    if request.verb === :put
        request.source === nothing && throw(DipcError(ERR_UNSUPPORTED, "the server's handler takes no tables:" *
            " it should answer the verb :put by Dipc.source"))
        return nothing
    end
    request.verb in (:get, :exchange) || return open_description(given)
    opened = open_table(given, schema)
    # A stream that was made for this client ends with it.
    given isa Union{Stream,Channel} || return opened
    return Opened(opened.schema, opened.parts, () -> close(given))
end

open_description(description::Description) = open_table(Batch(description), nothing)
open_description(_) = throw(DipcError(ERR_UNSUPPORTED, "the server's handler gives tables only:" *
    " it should answer the verbs :describe and :list by a Dipc.Description"))

function serve(server::Server, ticket, table; schema = nothing)
    # A single table is built once, for all clients; so an error in it is thrown at once.
    if is_one_table(table)
        return publish(server, ticket, table; schema = schema)
    end
    can_iterate(table) || throw(ArgumentError("a $(typeof(table)) cannot be" *
        " served: give a named tuple of vectors, an iterator of them, or a function"))
    return serve_pulled(server, ticket, request -> open_table(table, schema))
end

"""
    Dipc.publish(server, ticket, table; schema=nothing)

Gives a whole table to the server: a single one, or all tables of an iterator as its batches. The
library then serves it by itself, on its own threads, to any number of clients, and knows its schema
and totals. This call reads an iterator to its end; [`Dipc.serve`](@ref) reads it anew for each
client.
"""
publish(server::Server, ticket, table; schema = nothing) =
    give_whole(@c(dipc_server_publish), server, ticket, open_table(table, schema))

"""
    Dipc.replace(server, ticket, table; schema=nothing)

Puts a table, or all tables of an iterator as its batches, in the place of what the ticket stood
for, if anything. The ticket is known at every moment, and running streams go on with the old table.
"""
replace(server::Server, ticket, table; schema = nothing) =
    give_whole(@c(dipc_server_replace), server, ticket, open_table(table, schema))

"""
    Dipc.set_description(server, ticket, description::Dipc.Description)

Says what a ticket stands for, to clients that ask by [`Dipc.describe`](@ref) or
[`Dipc.list`](@ref). This is for iterators and functions: the server can describe whole tables
without it. Without endpoints, the ticket itself is the only endpoint.
"""
function set_description(server::Server, ticket, description::Description)
    name = ticket_bytes(ticket)
    using_handle(server) do server_handle
        with_description(description) do handle
            check(e -> ccall(@c(dipc_server_set_description), Int32,
                (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
                server_handle, name, length(name), handle, e))
        end
    end
    return
end

can_iterate(object) = applicable(iterate, object) && !(object isa Union{Number,AbstractString})

# What one client gets: a schema, and an iterator of (array, custom metadata).
struct Opened
    schema::Schema
    parts::Any
    close::Any
end
Opened(schema, parts) = Opened(schema, parts, () -> nothing)

function open_table(object, schema)
    if is_one_table(object)
        table = as_table(object)
        chosen = schema === nothing ? schema_of(table) : schema
        return Opened(chosen, [part(chosen, object)])
    end
    if object isa Stream
        return Opened(something(schema, Dipc.schema(object)), (part(something(schema, Dipc.schema(object)), batch)
                                                         for batch in object))
    end
    can_iterate(object) || throw(ArgumentError("a $(typeof(object)) is no table: give a named tuple" *
        " of vectors, or an iterator of them"))
    first = iterate(object)
    if schema === nothing
        first === nothing && throw(ArgumentError("there is no batch to tell the schema from: give one"))
        # Later parts may have nulls if the first has none.
        schema = schema_of(as_table(first[1]); nullable = true)
    end
    chosen = schema
    return Opened(chosen, (part(chosen, batch) for batch in Continued(object, first)))
end

# The rest of an iteration whose first step was made.
struct Continued
    object::Any
    first::Any
end
Base.IteratorSize(::Type{Continued}) = Base.SizeUnknown()
Base.iterate(c::Continued) = c.first
Base.iterate(c::Continued, state) = iterate(c.object, state)

function as_table(object)
    table = table_columns(object)
    table === nothing && throw(ArgumentError("a batch is a named tuple of vectors, and this is a" *
        " $(typeof(object))"))
    return table
end

part(schema::Schema, object) = (build_batch(schema, as_table(object)), metadata_of(object))

# Has the library serve the whole table, by dipc_server_publish or dipc_server_replace.
function give_whole(call, server, ticket, opened)
    name = ticket_bytes(ticket)
    # The parts may be an iterator that can be used only once.
    parts = collect(opened.parts)
    schema = library_schema(opened.schema)
    arrays = ArrowDeviceArray[export_array(node)[] for (node, _) in parts]
    try
        for (i, (_, pairs)) in enumerate(parts)
            isempty(pairs) || set_metadata!(arrays, i, write_metadata(pairs))
        end
        using_handle(server) do handle
            check(e -> ccall(call, Int32, (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{ArrowSchema},
                                           Ptr{ArrowDeviceArray}, Csize_t, Ptr{Ptr{Cvoid}}),
                             handle, name, length(name), schema, arrays, length(arrays), e))
            # For requests that came before the ticket was replaced.
            server.tables[name] = request -> Opened(opened.schema, parts)
        end
    finally
        # If the library took them, there is nothing left to release.
        GC.@preserve schema release_schema(Base.unsafe_convert(Ptr{ArrowSchema}, schema))
        foreach(array -> release_export(Ref(array)), arrays)
    end
    start_answering(server)
    return
end

set_metadata!(arrays, i, bytes) = check(e -> GC.@preserve arrays ccall(@c(dipc_batch_set_metadata), Int32,
    (Ptr{ArrowDeviceArray}, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}), pointer(arrays, i), bytes, length(bytes), e))

# A C schema in memory of the library's own: it keeps the schema of a published table, and may
# release it on any thread.
function library_schema(schema::Schema)
    out = Ref(zeroed(ArrowSchema))
    with_description(Description(schema = schema)) do handle
        check(e -> ccall(@c(dipc_description_schema), Int32,
                         (Ptr{Cvoid}, Ptr{ArrowSchema}, Ptr{Ptr{Cvoid}}), handle, out, e))
    end
    return out
end

function serve_pulled(server, ticket, open)
    name = ticket_bytes(ticket)
    using_handle(server) do handle
        haskey(server.tables, name) && throw(DipcError(ERR_ALREADY_EXISTS,
            "the ticket \"$(String(copy(name)))\" is served already: withdraw or replace it"))
        # Before the first request can come.
        server.tables[name] = open
        try
            check(e -> ccall(@c(dipc_server_serve_pull), Int32,
                (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}), handle, name, length(name), e))
        catch
            delete!(server.tables, name)
            rethrow()
        end
    end
    start_answering(server)
    return
end

start_answering(server) = server.task === nothing && (server.task = @async accept_requests(server))
