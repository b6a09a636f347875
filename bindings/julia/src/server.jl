# A server: where it listens, and how it ends. What it serves is in serve.jl.

"""
    Dipc.Server([uri]; options...)

Serves tables to clients; listens at `uri` if one is given. See [`Dipc.serve`](@ref).

    server = Dipc.Server("shm:@demo")
    Dipc.serve(server, "numbers", (id = 1:3, name = ["one", "two", missing]))
    println(Dipc.uri(server))
    wait(server)                  # until close(server), or Ctrl-C

- `max_streams`: streams served at once; one more is refused with `Dipc.ERR_BUSY`, or waits until
  its `deadline`. An eighth of the places, but at most 64, is only for processes of the server's own
  user, over shm (64)
- `max_providers`: streams that providers serve at once, including streams whose clients have gone
  (`max_streams` and 64 more)
- `authorizer`: decides about each request before anything is done for it: a function of the
  [`Dipc.Request`](@ref), called in a task of its own. It returns `nothing` or a name for the client, which
  handlers see as [`Dipc.principal`](@ref)`(request)`, or throws what refuses the request: a
  `Dipc.DipcError`, whose status and text the client gets; any other exception refuses with
  `Dipc.ERR_PERMISSION` and its text. For a list or a description it is also called with the verb `:get` for
  each ticket that the answer would show. By default whoever can connect may do everything
- `max_connections`: connections in all; one more client is refused with `Dipc.ERR_BUSY` (as many as
  take half of the files that the process may open: a connection over shm takes two, one over tcp a
  file for each socket)
- `max_connections_per_peer`, `max_streams_per_peer`: the most connections, and the most streams at
  once, of one other machine or user (half)
- `max_streams_per_connection`: streams at once on one connection, for clients that share
connections (`max_streams`)
- `max_request_bytes`: the most memory of requests of more than 64 KiB that have come in part, of all clients
  together (64 MiB)
- `credit_timeout`: how long a stream may wait for its client to take batches while the server has
  no place for other clients; then the stream fails (30 s). `Inf`, here and below: no limit
- `handshake_timeout`: time for the handshake of tls, and until all connections of one stream have
  come (10 s)
- `request_timeout`: from a connection to the end of its first request (30 s)
- `idle_timeout`: how long, up to twice this, a connection is kept over which nothing is asked for (10 min)
- `max_region_bytes`: the most memory of regions for lent copies, including those that clients keep
(16 GiB)
- `region_bytes`, `region_idle`: size of one region, and how long an unused one is kept (64 MiB, 10 s)
- `inline_bytes`: up to which size a body travels as bytes (4096)
- `lent_limit_bytes`: the most bytes of copies lent to one connection (1 GiB)
- `any_user`: whether to admit clients of other users of this machine (false)
- `allow_remote`: whether to listen on tcp where other machines can connect. Otherwise such an address fails with
  `Dipc.ERR_PERMISSION`: tcp has neither encryption nor authentication (false)
- `trusted_network`: whether every process that can reach this server's network is trusted.
  Otherwise every ucx address fails with `Dipc.ERR_PERMISSION`: every process that connects there
  can read and write the memory of this process (false)
- `tls`: paths of the server's certificate and of its key, `(certificate, key)`, in PEM, for addresses
  that begin with `tls://`
- `tls_client_ca`: path of authorities, in PEM: tls clients must have a certificate of one of them
- `body`: `:auto`; `:packed`: always as bytes; `:lent`: lent wherever that is possible, including
  small bodies and the bodies of clients without libdipc's extension
- `compression`: `:none`, `:lz4` or `:zstd`; compressed bodies travel as bytes
- `put_window`: `(batches, bytes)` that a client may send before they are taken (16, 256 MiB)
- `put_validation`: how a client's arrays are checked: `:structure`, `:full` (values as well), or `:auto`: full for
  clients of other users
- `put_stall_timeout`: how long a client may say nothing while its batches are waited for; then
  [`Dipc.source`](@ref) fails with `Dipc.ERR_TIMEOUT` (no limit)
- `put_message_limit_bytes`: the most memory that one message of a client may take beside its body (512 MiB; 16 GiB
  for clients of the same user)
- `spin`: how long a thread of the server's looks for the next request before it sleeps, with a whole core (0)
- `transport`: settings of single transports, as pairs: `["ucx.TLS" => "tcp", "tcp.keepalive" => 30]`

`Dipc.Server(f, uri; options...)`, also as a `do` block, closes the server when `f(server)` returns.
A program that computes without ever waiting should `yield()` now and then: tasks serve what is made
on request.
"""
mutable struct Server <: SharedHandle
    pointer::Ptr{Cvoid}
    calls::Int     # that run now, and need the pointer
    closed::Bool
    lock::Threads.SpinLock
    tables::Dict{Vector{UInt8},Any}    # ticket => request -> batches
    handler::Any                       # the same for every other ticket, or nothing
    authorizer::Any                    # request -> name or nothing, or nothing
    active::Int                        # requests being answered
    owner::Task                        # who is told of interrupts
    task::Union{Nothing,Task}

    function Server(uri = nothing; max_streams = nothing, max_providers = nothing, authorizer = nothing,
                    max_connections = nothing, max_connections_per_peer = nothing,
                    max_streams_per_peer = nothing, max_streams_per_connection = nothing,
                    max_request_bytes = nothing, credit_timeout = nothing,
                    handshake_timeout = nothing, request_timeout = nothing, idle_timeout = nothing,
                    max_region_bytes = nothing,
                    region_bytes = nothing, region_idle = nothing, inline_bytes = nothing,
                    lent_limit_bytes = nothing, any_user::Bool = false, body::Symbol = :auto,
                    tls = nothing, tls_client_ca = nothing, compression::Symbol = :none,
                    allow_remote::Bool = false, trusted_network::Bool = false, spin = nothing,
                    put_window = nothing, put_validation::Symbol = :auto, put_stall_timeout = nothing,
                    put_message_limit_bytes = nothing, transport = ())
        ensure_authorizer(authorizer)
        out = Ref{Ptr{Cvoid}}(C_NULL)
        setters = Any[
            set_bool(@c(dipc_server_options_set_any_user), any_user),
            set_bool(@c(dipc_server_options_set_authorizer_pull), authorizer !== nothing),
            set_bool(@c(dipc_server_options_set_allow_remote), allow_remote),
            set_bool(@c(dipc_server_options_set_trusted_network), trusted_network),
            set_i32(@c(dipc_server_options_set_body), named_option("body", BODIES, body)),
            set_i32(@c(dipc_server_options_set_compression),
                    named_option("compression", COMPRESSIONS, compression)),
            set_i32(@c(dipc_server_options_set_put_validation),
                    named_option("put_validation", VALIDATIONS, put_validation)),
        ]
        for (setter, value) in (
            @c(dipc_server_options_set_max_streams) => max_streams,
            @c(dipc_server_options_set_max_providers) => max_providers,
            @c(dipc_server_options_set_max_connections) => max_connections,
            @c(dipc_server_options_set_max_connections_per_peer) => max_connections_per_peer,
            @c(dipc_server_options_set_max_streams_per_peer) => max_streams_per_peer,
            @c(dipc_server_options_set_max_streams_per_connection) => max_streams_per_connection,
            @c(dipc_server_options_set_max_request_bytes) => max_request_bytes,
            @c(dipc_server_options_set_credit_timeout_ns) => time_option(credit_timeout),
            @c(dipc_server_options_set_handshake_timeout_ns) => time_option(handshake_timeout),
            @c(dipc_server_options_set_request_timeout_ns) => time_option(request_timeout),
            @c(dipc_server_options_set_idle_timeout_ns) => time_option(idle_timeout),
            @c(dipc_server_options_set_max_region_bytes) => max_region_bytes,
            @c(dipc_server_options_set_region_bytes) => region_bytes,
            @c(dipc_server_options_set_region_idle_ns) => time_option(region_idle),
            @c(dipc_server_options_set_inline_bytes) => inline_bytes,
            @c(dipc_server_options_set_lent_limit_bytes) => lent_limit_bytes,
            @c(dipc_server_options_set_spin_ns) => time_option(spin),
            @c(dipc_server_options_set_put_stall_timeout_ns) => time_option(put_stall_timeout),
            @c(dipc_server_options_set_put_message_limit_bytes) => put_message_limit_bytes,
        )
            value === nothing || push!(setters, set_u64(setter, value))
        end
        put_window === nothing || push!(setters, set_pair(@c(dipc_server_options_set_put_window), put_window...))
        append!(setters, transport_setters(@c(dipc_server_options_set_transport), transport))
        tls === nothing || push!(setters, set_texts(@c(dipc_server_options_set_tls), tls...))
        tls_client_ca === nothing ||
            push!(setters, set_text(@c(dipc_server_options_set_tls_client_ca), tls_client_ca))
        with_handle(@c(dipc_server_options_new), @c(dipc_server_options_free), setters) do options
            check(e -> ccall(@c(dipc_server_new), Int32,
                (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), options, out, e))
        end
        server = new(out[], 0, false, Threads.SpinLock(), Dict{Vector{UInt8},Any}(), nothing,
                     authorizer, 0, current_task(), nothing)
        push!(OPEN_SERVERS, server)
        # Clients of whole tables wait for the decision, too.
        authorizer === nothing || start_answering(server)
        if uri !== nothing
            try
                listen(server, uri)
            catch
                close(server)
                rethrow()
            end
        end
        return server
    end
end
kind(::Server) = "server"

time_option(time) = time === nothing ? nothing : nanoseconds(time)

function Server(use::Function, uri = nothing; options...)
    server = Server(uri; options...)
    try
        return use(server)
    finally
        close(server)
    end
end

Base.show(io::IO, server::Server) =
    print(io, "Dipc.Server(", isopen(server) ? "open, $(length(server.tables)) tickets" : "closed", ")")

function free(server::Server)
    pointer, server.pointer = server.pointer, C_NULL
    ccall(@c(dipc_server_free), Cvoid, (Ptr{Cvoid},), pointer)
    collect_exports()
    return
end

const URI_BYTES = 1024

"""
    Dipc.reload_tls(server)

Reads the server's certificates again: new connections use them. If a file cannot be used this
throws, and the server goes on with what it had.
"""
function reload_tls(server::Server)
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_reload_tls), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), handle, e))
    end
    return
end

"""
    Dipc.listen(server, uri) -> String

Listens at one more address, `"shm:@name"` or `"shm:/path"` or another transport's, and gives the
whole URI for clients.
"""
function listen(server::Server, uri::AbstractString)
    buffer = Vector{UInt8}(undef, URI_BYTES)
    size = Ref{Csize_t}(0)
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_listen), Int32,
            (Ptr{Cvoid}, Cstring, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
            handle, uri, buffer, length(buffer), size, e))
    end
    return String(buffer[1:size[]])
end

"""
    Dipc.listen_fd(server, scheme, fd) -> String

Takes the descriptor of a socket that listens already, such as one from a service manager
(LISTEN_FDS), and gives the whole URI for clients. `scheme` is `:shm`, `:tcp` or `:tls`. The server
closes the descriptor, unless this throws.
"""
function listen_fd(server::Server, scheme::Symbol, fd::Integer)
    buffer = Vector{UInt8}(undef, URI_BYTES)
    size = Ref{Csize_t}(0)
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_listen_fd), Int32,
            (Ptr{Cvoid}, Cstring, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
            handle, String(scheme), fd, buffer, length(buffer), size, e))
    end
    return String(buffer[1:size[]])
end

"""
    Dipc.is_ready(server) -> Bool

Whether the server takes requests: it listens, and neither drains nor was closed.
"""
function is_ready(server::Server)
    isopen(server) || return false
    return using_handle(server) do handle
        ccall(@c(dipc_server_is_ready), Bool, (Ptr{Cvoid},), handle)
    end
end

"""
    Dipc.drain(server, elsewhere...)

Refuses requests from now on, while streams under way go on; `close` ends them. Clients ask at the URIs
`elsewhere`, best first.
"""
function drain(server::Server, elsewhere::AbstractString...)
    uris = String[elsewhere...]
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_drain), Int32, (Ptr{Cvoid}, Ptr{Cstring}, Csize_t, Ptr{Ptr{Cvoid}}),
            handle, uris, length(uris), e))
    end
    return
end

"""
    Dipc.uri(server; role=:both) -> String

The URI of the first address that the server listens at. `role` may be `:metadata` or `:data`, for
clients that take two URIs.
"""
function uri(server::Server; role::Symbol = :both)
    number = named_option("role", (both = 0, metadata = 1, data = 2), role)
    return String(using_handle(server) do handle
        text_out((buffer, size, out, error) -> ccall(@c(dipc_server_location), Int32,
            (Ptr{Cvoid}, Int32, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
            handle, number, buffer, size, out, error))
    end)
end

"""
    Dipc.withdraw(server, ticket)
    Dipc.withdraw(server)

Stops serving a ticket or, without one, every ticket that has nothing of its own. Streams under way
go on.
"""
function withdraw(server::Server, ticket)
    name = ticket_bytes(ticket)
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_withdraw), Int32,
            (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}), handle, name, length(name), e))
    end
    delete!(server.tables, name)
    return
end

function withdraw(server::Server)
    using_handle(server) do handle
        check(e -> ccall(@c(dipc_server_set_handler), Int32,
            (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, UInt32, Ptr{Ptr{Cvoid}}),
            handle, C_NULL, C_NULL, C_NULL, 0, e))
    end
    server.handler = nothing
    return
end

"""
    Dipc.tickets(server) -> Vector{Vector{UInt8}}

The tickets that the server serves now, in the order of their bytes; `String(ticket)` is one as text. What a
handler answers for is not among them.
"""
function tickets(server::Server)
    found = Vector{UInt8}[]
    using_handle(server) do handle
        while true
            try
                push!(found, indexed_text(@c(dipc_server_ticket), handle, length(found) + 1))
            catch exception
                exception isa DipcError && exception.status == ERR_NOT_FOUND || rethrow()
                return
            end
        end
    end
    return found
end

"""
    close(server::Dipc.Server; timeout=0)

Stops the server. Streams under way may go on for `timeout` (seconds, or a `Dates` period); then they
are cut. Batches that clients hold stay valid.
"""
function Base.close(server::Server; timeout = 0)
    was_open = enter(server; closing = true)
    try
        was_open || return
        delete!(OPEN_SERVERS, server)
        # The library ends the remaining streams by itself; nothing waits for them.
        try
            check_waiting(() -> nothing, @c(dipc_server_stop), server.pointer, nanoseconds(timeout))
        catch exception
            exception isa DipcError && exception.status == ERR_TIMEOUT || rethrow()
        end
        server.task === nothing || wait(server.task)
    finally
        leave(server)
    end
    return
end

# A program that ends with servers open: their sockets are removed, their clients told.
const OPEN_SERVERS = Set{Server}()
function stop_open_servers()
    for server in OPEN_SERVERS
        ccall(@c(dipc_server_stop), Int32, (Ptr{Cvoid}, UInt64, Ptr{Ptr{Cvoid}}), server.pointer, 0, C_NULL)
    end
end

"""
    wait(server::Dipc.Server)

Waits until the server is closed, by another task or by Ctrl-C (an InterruptException).
"""
Base.wait(server::Server) = server.task === nothing ? nothing : wait(server.task)

"""
    Dipc.stats(server) -> NamedTuple

Figures: connections and streams now, streams and batches so far, bytes of bodies lent, copied and
sent so far, buffers not yet given back, bytes of regions now, and, so far, bytes of bodies copied
within a GPU's memory and from there to the host. Then, all so far: rows sent; batches, rows and
bytes that clients sent; connections accepted and not accepted; requests finished, failed and
refused; rows of the batches that tables and providers gave, including rows that a filter or a range
left out.
"""
stats(server::Server) = using_handle(server) do handle
    NamedTuple{(:connections, :streams_active, :streams_served, :batches, :bytes_lent, :bytes_copied,
                :bytes_sent, :lent_outstanding, :region_bytes, :bytes_copied_on_device, :bytes_staged,
                :rows, :batches_received, :rows_received, :bytes_received, :connections_opened,
                :connections_refused, :requests_finished, :requests_failed, :requests_refused,
                :rows_read)}(
        ntuple(i -> stat(@c(dipc_server_stat), handle, i), 21))
end

"""
    Dipc.stats_text(server) -> String

All figures, with their histograms and by ticket, in Prometheus' text format, version 0.0.4.
"""
stats_text(server::Server) = using_handle(server) do handle
    String(text_out((buffer, size, out, error) -> ccall(@c(dipc_server_stats_text), Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), handle, buffer, size, out, error)))
end
