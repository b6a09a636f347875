# The tasks that serve: one that takes requests, and one for each request.

"""
    Dipc.Certificate

Who a client's certificate is for, which an authority of the server's has signed.

- `subject`: as in `"CN=alice, O=Example"`
- `names`: alternative names, each after its kind: `"DNS:a.example"`, `"IP:10.0.0.7"`
- `fingerprint`: SHA-256, in lower-case hexadecimal digits
"""
struct Certificate
    subject::String
    names::Vector{String}
    fingerprint::String
end

"""
    Dipc.Peer

Who asks, as the system told when the client connected. As text it is a line for logs: `string(peer)`
is `"pid 4711, uid 1000"`.

- `transport`: `"shm"`, `"tls"`, `"tcp"` or `"ucx"`
- `pid`, `uid`, `gid`: numbers of the client's process, its user and group; `nothing` over a
  network, which does not name processes. The `pid` is 0 if the process has none in this one's
  namespace
- `address`: `"10.0.0.7:40112"`; `nothing` over shm. A port does not show which user the client is
- `certificate`: the [`Dipc.Certificate`](@ref) that the client has shown over tls; otherwise `nothing`
"""
struct Peer
    transport::String
    pid::Union{Nothing,Int}
    uid::Union{Nothing,Int}
    gid::Union{Nothing,Int}
    address::Union{Nothing,String}
    text::String
    certificate::Union{Nothing,Certificate}
end
Base.print(io::IO, peer::Peer) = print(io, peer.text)

function Peer(request::Ptr{Cvoid})
    text(call) = String(text_out((buffer, size, out, error) -> ccall(call, Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), request, buffer, size, out, error)))
    # DIPC_PEER_PID, _UID and _GID.
    pid, uid, gid = map((1, 2, 3)) do which
        number = ccall(@c(dipc_request_peer_id), Int64, (Ptr{Cvoid}, Int32), request, which)
        number < 0 ? nothing : Int(number)
    end
    transport = text(@c(dipc_request_peer_transport))
    address = transport == "shm" ? nothing : text(@c(dipc_request_peer_address))
    certificate = transport == "tls" ? read_certificate(request) : nothing
    return Peer(transport, pid, uid, gid, address, text(@c(dipc_request_peer)), certificate)
end

function read_certificate(request)
    # DIPC_CERTIFICATE_SUBJECT, _NAMES and _FINGERPRINT.
    subject, names, fingerprint = try
        map((1, 2, 3)) do which
            String(text_out((buffer, size, out, error) -> ccall(@c(dipc_request_peer_certificate), Int32,
                (Ptr{Cvoid}, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
                request, which, buffer, size, out, error)))
        end
    catch exception
        exception isa DipcError && exception.status == ERR_NOT_FOUND || rethrow()
        return nothing
    end
    return Certificate(subject, isempty(names) ? String[] : String.(split(names, ", ")), fingerprint)
end

"""
    Dipc.Request

What a provider or an authorizer is told of the client: `Dipc.ticket(request)`, `Dipc.verb(request)`,
`Dipc.headers(request)`, `Dipc.columns(request)`, `Dipc.first_row(request)`, `Dipc.rows(request)`,
`Dipc.filter(request)`, `Dipc.time_left(request)`, `Dipc.peer(request)`, `Dipc.principal(request)`,
`Dipc.iscancelled(request)`, and `Dipc.cancel_fd(request)` to wait for that.
`Dipc.add_headers(request, headers)` adds headers to the answer.
"""
mutable struct Request
    pointer::Ptr{Cvoid}
    ticket::Vector{UInt8}
    verb::Symbol
    headers::Headers
    peer::Peer
    principal::Union{Nothing,String}
    source::Union{Nothing,Stream}    # the table of the client, once it was accepted
end

function Request(pointer::Ptr{Cvoid})
    ticket = text_out((buffer, size, out, error) -> ccall(@c(dipc_request_ticket), Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), pointer, buffer, size, out, error))
    verb = ccall(@c(dipc_request_verb), Int32, (Ptr{Cvoid},), pointer)
    return Request(pointer, ticket, Base.get(VERBS, verb, :unknown),
                   read_headers(@c(dipc_request_headers), pointer), Peer(pointer), read_principal(pointer), nothing)
end

# The C request, while there is one.
function live(request::Request)
    request.pointer == C_NULL && throw(DipcError(ERR_INVALID_ARGUMENT, "the request is over"))
    return request.pointer
end

"""
    Dipc.ticket(request) -> Vector{UInt8}
"""
ticket(request::Request) = copy(request.ticket)

"""
    Dipc.verb(request) -> Symbol

What the client wants of the ticket: `:get`, its table; `:put`, to send a table, which
[`Dipc.source`](@ref) accepts; `:exchange`, both at once; `:describe`, a description of it; `:list`,
the tickets that begin with it. Only a handler, which serves every ticket, is asked for more than
tables.
"""
verb(request::Request) = request.verb

"""
    Dipc.headers(request) -> Dipc.Headers

The headers that the client sent with its request.
"""
headers(request::Request) = request.headers

"""
    Dipc.columns(request) -> Union{Nothing,Vector{String}}

The columns that the client wants, in its order; `nothing`: all. A provider gives the whole table,
and the library selects from it without a copy, unless the provider calls
[`Dipc.take_selection`](@ref).
"""
function columns(request::Request)
    pointer = live(request)
    ccall(@c(dipc_request_selects_columns), Bool, (Ptr{Cvoid},), pointer) || return nothing
    count = ccall(@c(dipc_request_column_count), Csize_t, (Ptr{Cvoid},), pointer)
    return String[String(indexed_text(@c(dipc_request_column), pointer, i)) for i in 1:count]
end

"""
    Dipc.first_row(request) -> Int

The first row that the client wants, counting from 0.
"""
first_row(request::Request) = Int(ccall(@c(dipc_request_first_row), UInt64, (Ptr{Cvoid},), live(request)))

"""
    Dipc.rows(request) -> Union{Nothing,Int}

The most rows that the client wants; `nothing`: all up to the end.
"""
function rows(request::Request)
    count = ccall(@c(dipc_request_rows), UInt64, (Ptr{Cvoid},), live(request))
    return count == ALL_ROWS ? nothing : Int(count)
end

"""
    Dipc.filter(request) -> Union{Nothing,Vector{UInt8}}

The filter that the client wants rows to pass; [`Dipc.first_row`](@ref) and [`Dipc.rows`](@ref)
count the rows that pass: the bytes of a `substrait.ExtendedExpression`, which are not checked yet;
`nothing`: all rows pass.
"""
function filter(request::Request)
    pointer = live(request)
    message = text_out((buffer, size, out, error) -> ccall(@c(dipc_request_filter), Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), pointer, buffer, size, out, error))
    return isempty(message) ? nothing : message
end

"""
    Dipc.take_selection(request)

Says that the provider itself selects: the table that it gives has only the columns of
[`Dipc.columns`](@ref), in their order, and only the wanted rows.
"""
take_selection(request::Request) = check(e -> ccall(@c(dipc_request_take_selection), Int32,
    (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), live(request), e))

"""
    Dipc.time_left(request) -> Union{Nothing,Dates.Nanosecond}

How long the client still waits for the end of the stream: zero once its deadline has passed or the
request is over, `nothing` if it has set no deadline.
"""
function time_left(request::Request)
    left = ccall(@c(dipc_request_time_left_ns), UInt64, (Ptr{Cvoid},), request.pointer)
    return left == FOREVER ? nothing : Nanosecond(min(left, typemax(Int64)))
end

"""
    Dipc.add_headers(request, headers)

Adds headers (any iterator of pairs, see [`Dipc.Headers`](@ref)) to the answer, at most 32 KiB in
all. The client gets them with the schema; those that are added later go with a failure of the
stream. If the request fails before its schema the client gets none.
"""
function add_headers(request::Request, headers)
    with_headers(Headers(headers)) do handle
        check(e -> ccall(@c(dipc_request_add_headers), Int32,
                         (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), live(request), handle, e))
    end
    return
end

"""
    Dipc.peer(request) -> Dipc.Peer

Who asks.
"""
peer(request::Request) = request.peer

"""
    Dipc.iscancelled(request::Dipc.Request) -> Bool

Whether the client has gone or has cancelled, so that more batches are of no use.
"""
iscancelled(request::Request) = request.pointer == C_NULL ||
    ccall(@c(dipc_request_is_cancelled), UInt8, (Ptr{Cvoid},), request.pointer) != 0

"""
    Dipc.cancel_fd(request::Dipc.Request) -> RawFD

A descriptor that is readable once `Dipc.iscancelled(request)` is true: `poll_fd` of `FileWatching` waits
for it. It is the request's: not to be closed or read from, and gone when the provider's stream is over.
"""
cancel_fd(request::Request) = descriptor(@c(dipc_request_cancel_fd), live(request))

"""
    Dipc.source_schema(request) -> Dipc.Schema

The schema of the table that the client sends, before [`Dipc.source`](@ref) accepts that one.
"""
function source_schema(request::Request)
    out = Ref(zeroed(ArrowSchema))
    wait_for_source(request, @c(dipc_request_source_schema), out)
    return taken_schema(out)
end

"""
    Dipc.source(request) -> Dipc.Stream

Accepts the table that the client sends, and gives it: from now on batches come, as fast as they are
taken. If the verb is `:put` the handler reads it to its end, and returns: then the client's
[`Dipc.put`](@ref) does. If it is `:exchange` the handler gives the answer, which may be an iterator
that reads the client's table. A table that its client leaves or fails ends with an exception, never
normally.
"""
function source(request::Request)
    out = Ref(zeroed(ArrowDeviceArrayStream))
    wait_for_source(request, @c(dipc_request_source), out)
    request.source = Stream(out, Cancel(), read_schema(out))
    return request.source
end

function wait_for_source(request, call, out)
    GC.@preserve out check_waiting(() -> fail(request, InterruptException()), call, live(request),
                                   Base.unsafe_convert(Ptr{eltype(out)}, out))
    return
end

"""
    Dipc.set_label(request, label)

Makes the figures count the request under `label`, of 1 to 128 bytes ([`Dipc.stats_text`](@ref)).
Call it before the stream begins. Otherwise the label is the ticket, or "(handler)" for what a
handler serves. Choose few: each
label has figures of its own.
"""
function set_label(request::Request, label::AbstractString)
    check(e -> ccall(@c(dipc_request_set_label), Int32, (Ptr{Cvoid}, Cstring, Ptr{Ptr{Cvoid}}),
                     live(request), label, e))
    return
end

"""
    Dipc.result(request, batches, bytes="")

Tells the client that a part of its table is safe, whatever happens to the rest: so many `batches`,
from the first on. `bytes`, at most 32 KiB, are for the client's program. [`Dipc.next_result`](@ref)
gives both there.
"""
function result(request::Request, batches::Integer, bytes = "")
    data = ticket_bytes(bytes)
    check(e -> ccall(@c(dipc_request_result), Int32, (Ptr{Cvoid}, UInt64, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}),
                     live(request), batches, data, length(data), e))
    return
end

# How often releases are looked for: while a request is being answered, and otherwise. The release
# of a published table wakes no task.
const DRAIN_NS = UInt64(100_000_000)
const IDLE_NS = UInt64(1_000_000_000)

# Takes requests until the server stops.
function accept_requests(server::Server)
    enter(server; anyway = true)
    try
        while true
            try
                accept_request(server) || break
            catch exception
                if !(exception isa InterruptException)
                    give_up(server)
                    rethrow()
                end
                pass_on(server, exception)
            end
        end
    finally
        drain_releases(server)
        leave(server)
    end
    return
end

# Nobody takes requests any more. Clients are told so, rather than wait for ever.
function give_up(server)
    ccall(@c(dipc_server_stop), Int32, (Ptr{Cvoid}, UInt64, Ptr{Ptr{Cvoid}}), server.pointer, 0, C_NULL)
    return
end

function accept_request(server)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    status = try
        check(e -> ccall(@c(dipc_server_next_request), Int32,
            (Ptr{Cvoid}, UInt64, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
            server.pointer, 0, C_NULL, out, e))
    catch exception
        exception isa DipcError && exception.status == ERR_STOPPED && return false
        rethrow()
    end
    drain_releases(server)
    if status == OK
        server.active += 1
        undecided = server.authorizer !== nothing && is_undecided(out[])
        request = Request(out[])
        undecided ? (@async decide(server, request)) : (@async answer(server, request))
    else
        collect_exports()
        patience = server.active > 0 ? DRAIN_NS : IDLE_NS
        wait_readable(descriptor(@c(dipc_server_request_fd), server.pointer); until = time_ns() + patience)
    end
    return true
end

# Julia gives an interrupt to whichever task runs. It is meant for the program, not for a task of
# the server.
function pass_on(server, exception)
    owner = server.owner
    istaskdone(owner) || owner === current_task() || schedule(owner, exception; error = true)
    return
end

# Releases what clients have given back.
function drain_releases(server)
    count = Ref{Csize_t}(0)
    check(e -> ccall(@c(dipc_server_drain_releases), Int32,
                     (Ptr{Cvoid}, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), server.pointer, count, e))
    count[] > 0 && collect_exports()
    return
end

# Serves one client, to the end or to a failure, of which the client is told.
function answer(server::Server, request::Request)
    enter(server; anyway = true)
    opened = nothing
    try
        open = request.verb === :get ? Base.get(server.tables, request.ticket, server.handler) :
               server.handler
        open === nothing && throw(DipcError(ERR_NOT_FOUND, "the ticket was withdrawn"))
        opened = open(request)
        request.verb === :put && return finish(request)
        start(request, opened.schema)
        is_complete(request) || send_parts(server, request, opened.parts)
        finish(request)
    catch exception
        # This also runs if the client has gone. Then nobody is told, which does no harm.
        fail(request, exception)
        exception isa InterruptException && pass_on(server, exception)
    finally
        release(request)
        opened === nothing || opened.close()
        # The client's next request on this connection waits for that.
        request.source === nothing || close(request.source)
        collect_exports()
        server.active -= 1
        leave(server)
    end
    return
end

# Sends batches, until the client has all rows that it wants.
function send_parts(server, request, parts)
    for (node, metadata) in parts
        send(request, node, metadata)
        drain_releases(server)
        is_complete(request) && return
        # A client in this process must be able to run too.
        yield()
    end
    return
end

# Frees a request, which is answered.
function release(request::Request)
    pointer, request.pointer = request.pointer, C_NULL
    ccall(@c(dipc_request_free), Cvoid, (Ptr{Cvoid},), pointer)
    return
end

start(request, schema) = with_schema(schema) do c
    check(e -> ccall(@c(dipc_request_start), Int32,
        (Ptr{Cvoid}, Ptr{ArrowSchema}, Int32, Ptr{Ptr{Cvoid}}), request.pointer, c, ARROW_DEVICE_CPU, e))
end

function send(request, node, pairs)
    metadata = isempty(pairs) ? UInt8[] : write_metadata(pairs)
    array = export_array(node)
    try
        GC.@preserve metadata patiently(request) do error
            ccall(@c(dipc_request_push), Int32,
                  (Ptr{Cvoid}, Ptr{ArrowDeviceArray}, Ptr{UInt8}, Csize_t, UInt64, Ptr{Ptr{Cvoid}}),
                  request.pointer, array, isempty(metadata) ? C_NULL : pointer(metadata),
                  length(metadata), 0, error)
        end
    finally
        # If the library took it, there is nothing left to release.
        release_export(array)
    end
    return
end

is_complete(request) = ccall(@c(dipc_request_is_complete), Bool, (Ptr{Cvoid},), request.pointer)

finish(request::Request) = patiently(request) do error
    ccall(@c(dipc_request_finish), Int32, (Ptr{Cvoid}, UInt64, Ptr{Ptr{Cvoid}}), request.pointer, 0, error)
end

# Repeats a call that does not wait, until its answer is not that the client has no room.
function patiently(call, request::Request)
    error = Ref{Ptr{Cvoid}}(C_NULL)
    while true
        status = call(error)
        status == OK && return
        failure = take_error(status, error[])
        status == ERR_TIMEOUT || throw(failure)
        error[] = C_NULL
        wait_readable(descriptor(@c(dipc_request_fd), request.pointer))
    end
end

function fail(request::Request, exception; other = ERR_PROVIDER)
    code, text = reason(exception, other)
    ccall(@c(dipc_request_fail), Int32, (Ptr{Cvoid}, Int32, Cstring, Ptr{Ptr{Cvoid}}),
          request.pointer, code, text, C_NULL)
    return
end

# Status and text of an exception, for the other side; `other` is the status of one that has none.
function reason(exception, other = ERR_PROVIDER)
    code = exception isa DipcError ? exception.status : other
    text = exception isa DipcError ? exception.text :
           exception isa InterruptException ? "the provider was interrupted" : sprint(showerror, exception)
    # It is C's text, in UTF-8.
    return code, Base.filter(c -> c != '\0' && isvalid(c), text)
end
