# Fetching tables.

"""
    Dipc.Client(; any_user=false, idle_timeout=60, max_idle=8, connections=16, options...)

Fetches tables, and keeps connections for the next one. `Dipc.get` makes one for all calls that are
not given one. `close(client)` leaves its streams and batches valid.

- `any_user`: whether to trust servers of other users of this machine
- `idle_timeout`: seconds or a `Dates` period for which a connection without a stream is kept; `nothing`: for ever
- `max_idle`: how many of them are kept for each server
- `connections`: the most connections to one server that takes many streams on one; further streams
  share them. 0: each stream has its own
- `tls_ca`: path of the authorities, in PEM, whose certificates tls servers may have; otherwise the system's
- `tls`: paths of the client's certificate and of its key, `(certificate, key)`, for servers that ask for one
- `tls_server_name`: the name that a server's certificate must have; otherwise the host of the URI
- `transport`: settings of single transports, as pairs: `["ucx.TLS" => "tcp", "tcp.keepalive" => 30]`
"""
mutable struct Client <: SharedHandle
    pointer::Ptr{Cvoid}
    calls::Int     # that run now, and need the pointer
    closed::Bool
    lock::Threads.SpinLock

    function Client(; any_user::Bool = false, idle_timeout = 60, max_idle::Integer = 8,
                    connections::Integer = 16, tls_ca = nothing, tls = nothing, tls_server_name = nothing, transport = ())
        out = Ref{Ptr{Cvoid}}(C_NULL)
        setters = Any[
            set_bool(@c(dipc_client_options_set_any_user), any_user),
            set_u64(@c(dipc_client_options_set_idle_timeout_ns), nanoseconds(idle_timeout)),
            set_u64(@c(dipc_client_options_set_max_idle), max_idle),
            set_u64(@c(dipc_client_options_set_connections), connections),
        ]
        tls_ca === nothing || push!(setters, set_text(@c(dipc_client_options_set_tls_ca), tls_ca))
        tls === nothing || push!(setters, set_texts(@c(dipc_client_options_set_tls), tls...))
        tls_server_name === nothing ||
            push!(setters, set_text(@c(dipc_client_options_set_tls_server_name), tls_server_name))
        append!(setters, transport_setters(@c(dipc_client_options_set_transport), transport))
        with_handle(@c(dipc_client_options_new), @c(dipc_client_options_free), setters) do options
            check(e -> ccall(@c(dipc_client_new), Int32,
                (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), options, out, e))
        end
        # At the end of the program a call may still run, on its own thread.
        return finalizer(client -> client.calls == 0 && client.pointer != C_NULL && free(client),
                         new(out[], 0, false, Threads.SpinLock()))
    end
end
kind(::Client) = "client"

function free(client::Client)
    pointer, client.pointer = client.pointer, C_NULL
    ccall(@c(dipc_client_free), Cvoid, (Ptr{Cvoid},), pointer)
    return
end

function Base.close(client::Client)
    enter(client; closing = true)
    leave(client)
    return
end

"""
    Dipc.stats(client) -> NamedTuple

Streams asked for and connections made so far, and connections that are kept for the next stream.
"""
stats(client::Client) = using_handle(client) do handle
    NamedTuple{(:streams, :connections_made, :connections_idle)}(
        ntuple(i -> stat(@c(dipc_client_stat), handle, i), 3))
end

const DEFAULT_CLIENT = Ref{Union{Nothing,Client}}(nothing)
const DEFAULT_CLIENT_LOCK = ReentrantLock()

default_client() = lock(DEFAULT_CLIENT_LOCK) do
    client = DEFAULT_CLIENT[]
    if client === nothing || !isopen(client)
        client = DEFAULT_CLIENT[] = Client()
    end
    return client
end

"""
    Dipc.Stream

The batches of a table, in their order, as [`Dipc.get`](@ref) gives them: an iterator of
[`Dipc.Batch`](@ref). Batches outlive it. `close(stream)` before the end cancels it at the server; so
does an InterruptException (Ctrl-C) while it waits. One task at a time iterates it.
"""
mutable struct Stream
    stream::Base.RefValue{ArrowDeviceArrayStream}
    token::Cancel
    schema::Union{Nothing,Schema}    # nothing until the server's first message
    lock::ReentrantLock
    ended::Bool
    turn_ends::UInt64    # when other tasks have their turn, though batches are there
    spin::UInt64         # nanoseconds that it looks for a batch before it sleeps

    Stream(stream, token, schema = nothing; spin = nothing) =
        finalizer(release_stream, new(stream, token, schema, ReentrantLock(), false, 0,
                                      spin === nothing ? 0 : nanoseconds(spin)))
end

Base.IteratorSize(::Type{Stream}) = Base.SizeUnknown()
Base.eltype(::Type{Stream}) = Union{Batch,DeviceBatch}

# The schema of an exchange's answer may come late: then a thread waits for it.
function schema(stream::Stream)
    stream.schema === nothing || return stream.schema
    return using_stream(stream) do p
        if stream.schema === nothing
            stream.schema = read_schema(stream.stream, (call, out) ->
                waiting(() -> cancel(stream.token), call, p, out))
        end
        return stream.schema
    end
end

Base.isopen(stream::Stream) = released(stream) === false
Base.show(io::IO, stream::Stream) =
    print(io, "Dipc.Stream(", isopen(stream) ? "open" : "closed",
          stream.schema === nothing ? "" : ", $(stream.schema)", ")")

released(stream::Stream) = stream.stream[].release == C_NULL
stream_pointer(stream::Stream) = Base.unsafe_convert(Ptr{ArrowDeviceArrayStream}, stream.stream)

"""
    Dipc.get(uri, ticket; options...) -> Dipc.Stream

Asks a server for a ticket, and returns once the schema is there.

- `uri`: the server's URI, or a tuple of two: for metadata and for bodies
- `ticket`: text or bytes
- `client`: a [`Dipc.Client`](@ref)
- `cancel`: a [`Dipc.Cancel`](@ref), which ends this call and the stream
- `connect_timeout`: seconds or a `Dates` period, up to the server's first answer (10 s). If the
  provider takes longer, the server first sends a note that the request has arrived. The note counts
  as the answer; after it only `deadline` and `stall_timeout` end the wait
- `stall_timeout`: how long the server may say nothing (no limit)
- `deadline`: how long the whole stream may take, from the request on; then it fails with
  `Dipc.ERR_TIMEOUT`. The server sees what is left (no limit)
- `send_secrets`: whether to send the header `authorization` also where others may read the
  connection: over tcp beyond the loopback interface, and over ucx. Otherwise such a request fails
  with `Dipc.ERR_PERMISSION`, and nothing is sent (false)
- `checksums`: whether each message has a checksum where a network could change it unseen: over tcp
  and ucx. A stream whose bytes were changed fails with `Dipc.ERR_PROTOCOL` (false)
- `headers`: [`Dipc.Headers`](@ref) for the server's provider, or any iterator of pairs; at most
  64 KiB
- `columns`: names of the columns that are wanted, in this order (all). Others are not sent. Without a name: rows without
  columns. `Dipc.ERR_INVALID_ARGUMENT` if the table does not have a column, or has several of the name
- `first_row`, `rows`: the first row that is wanted, counting from 0 (0), and the most rows (all). Batches outside the
  range are not sent
- `filter`: a condition that rows must pass, which the server evaluates before it counts rows (none): the bytes of a
  `substrait.ExtendedExpression` of booleans. `Dipc.ERR_INVALID_ARGUMENT` if it is malformed or the table does not
  have a column, `Dipc.ERR_UNSUPPORTED` if filters do not support it or the server knows none
- `window`: `(batches, bytes)` that the server may send before they are taken (16, 256 MiB)
- `lent_limit_bytes`: the most memory of copies that the server may lend at once (1 GiB)
- `message_limit_bytes`: the most memory that one message may take here beside its body, unpacked, copied to be
  checked, or as dictionaries of the stream (512 MiB; 16 GiB for servers of the same user)
- `device`: where arrays shall be: `:host`, `:cuda` or `(:cuda, n)` for a CUDA device, or `:as_sent`:
  where the server has them, if this process reaches that without a copy, otherwise on the host. Batches
  on a device are [`Dipc.DeviceBatch`](@ref)es
- `validation`: `:structure`, `:full` (values as well), or `:auto`: full for servers of other users
- `connections`: how many connections carry the stream, if the transport can spread it: tcp (1)
- `spin`: how long a task that waits for a batch looks for it before it sleeps, with a whole core (0)

    for batch in Dipc.get("shm:@demo", "numbers")
        println(sum(skipmissing(batch.price)))
    end

Throws a [`Dipc.DipcError`](@ref), here and while it is iterated. While it waits other tasks run, and
Ctrl-C (an InterruptException) ends it.
"""
get(uri, ticket; options...) = ask_for_stream(:get, uri, ticket; options...)

function ask_for_stream(verb, uri, ticket; spin = nothing, options...)
    out = Ref(zeroed(ArrowDeviceArrayStream))
    token = ask(verb, uri, ticket; spin = spin, options...) do request, error
        ccall(@c(dipc_pending_try_stream), Int32,
              (Ptr{Cvoid}, Ptr{ArrowDeviceArrayStream}, Ptr{Ptr{Cvoid}}), request, out, error)
    end
    return Stream(out, token, read_schema(out); spin = spin)
end

# Asks a server, and takes its answer by `take(request, error)`. Returns the token of the answer.
function ask(take, verb, uri, ticket; client::Client = default_client(), cancel = nothing, options...)
    token = token_of(cancel)
    with_address(uri, ticket) do uris, n_uris, name, n_bytes
        with_handle(@c(dipc_get_options_new), @c(dipc_get_options_free), get_setters(; options...)) do set
            await_answer(take, client) do handle, out, error
                ccall(@c(dipc_client_start), Int32,
                      (Ptr{Cvoid}, Int32, Ptr{Ptr{UInt8}}, Csize_t, Ptr{UInt8}, Csize_t, Ptr{Cvoid}, Ptr{Cvoid},
                       Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
                      handle, findfirst(==(verb), VERBS), uris, n_uris, name, n_bytes, set, token.pointer, out, error)
            end
        end
    end
    return token
end

function get_setters(; connect_timeout = nothing, stall_timeout = nothing, deadline = nothing, headers = (),
                     send_secrets::Bool = false, checksums::Bool = false, window = nothing,
                     lent_limit_bytes = nothing, message_limit_bytes = nothing, device = :host, validation::Symbol = :auto,
                     spin = nothing, connections = nothing, columns = nothing, first_row = 0, rows = nothing,
                     filter::Union{Nothing,AbstractVector{UInt8}} = nothing)
    setters = Any[
        set_i32(@c(dipc_get_options_set_validation), named_option("validation", VALIDATIONS, validation)),
        set_bool(@c(dipc_get_options_set_send_secrets), send_secrets),
        set_bool(@c(dipc_get_options_set_checksums), checksums),
    ]
    for (setter, time) in (
        @c(dipc_get_options_set_connect_timeout_ns) => connect_timeout,
        @c(dipc_get_options_set_stall_timeout_ns) => stall_timeout,
        @c(dipc_get_options_set_deadline_ns) => deadline,
        @c(dipc_get_options_set_spin_ns) => spin,
    )
        time === nothing || push!(setters, set_u64(setter, nanoseconds(time)))
    end
    asked = Headers(headers)
    isempty(asked) || push!(setters, (options, error) -> with_headers(asked) do handle
        ccall(@c(dipc_get_options_set_headers), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
              options, handle, error)
    end)
    lent_limit_bytes === nothing || push!(setters,
        set_u64(@c(dipc_get_options_set_lent_limit_bytes), lent_limit_bytes))
    message_limit_bytes === nothing || push!(setters,
        set_u64(@c(dipc_get_options_set_message_limit_bytes), message_limit_bytes))
    window === nothing || push!(setters, set_pair(@c(dipc_get_options_set_window), window...))
    columns === nothing || push!(setters, set_columns(columns))
    (first_row == 0 && rows === nothing) ||
        push!(setters, set_pair(@c(dipc_get_options_set_range), first_row, rows === nothing ? ALL_ROWS : rows))
    filter === nothing || push!(setters, set_filter(collect(UInt8, filter)))
    connections === nothing || push!(setters, (options, error) ->
        ccall(@c(dipc_get_options_set_connections), Int32, (Ptr{Cvoid}, UInt32, Ptr{Ptr{Cvoid}}),
              options, connections, error))
    device_type, device_id = device_option(device)
    push!(setters, (options, error) ->
        ccall(@c(dipc_get_options_set_device), Int32, (Ptr{Cvoid}, Int32, Int64, Ptr{Ptr{Cvoid}}),
              options, device_type, device_id, error))
    return setters
end

const ALL_ROWS = typemax(UInt64)

function set_columns(columns)
    columns isa AbstractString &&
        throw(ArgumentError("columns are a list of names, and \"$columns\" is one: give [\"$columns\"]"))
    names = String[String(name) for name in columns]
    return (options, error) -> GC.@preserve names begin
        pointers = Ptr{UInt8}[pointer_to_text(name, "the name of a column") for name in names]
        ccall(@c(dipc_get_options_set_columns), Int32, (Ptr{Cvoid}, Ptr{Ptr{UInt8}}, Csize_t, Ptr{Ptr{Cvoid}}),
              options, pointers, length(pointers), error)
    end
end

set_filter(message) = (options, error) -> ccall(@c(dipc_get_options_set_filter), Int32,
    (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}), options, message, length(message), error)

# Reads the schema of a C stream; `call` makes the call, which waits if the schema is not there yet.
function read_schema(stream, call = nothing)
    out = Ref(zeroed(ArrowSchema))
    GC.@preserve stream out begin
        p = Base.unsafe_convert(Ptr{ArrowDeviceArrayStream}, stream)
        c = Base.unsafe_convert(Ptr{ArrowSchema}, out)
        status = call === nothing ? ccall(stream[].get_schema, Cint, (Ptr{Cvoid}, Ptr{Cvoid}), p, c) :
                 call(stream[].get_schema, c)
        status == 0 || throw(stream_error(p))
    end
    return taken_schema(out)
end

# Reads a C schema that the library gave, and releases it.
function taken_schema(out)
    GC.@preserve out begin
        c = Base.unsafe_convert(Ptr{ArrowSchema}, out)
        try
            return Schema(c)
        finally
            release_schema(c)
        end
    end
end

# The error with which a stream of the library has failed.
function stream_error(p::Ptr{ArrowDeviceArrayStream})
    error = Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(@c(dipc_stream_status), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), p, error)
    return take_error(status, error[])
end

function Base.iterate(stream::Stream, _ = nothing)
    batch = next_batch(stream)
    return batch === nothing ? nothing : (batch, nothing)
end

function next_batch(stream::Stream)
    # Without the lock, because a task that runs meanwhile may want it.
    time_ns() >= stream.turn_ends && let_others_run(yield, stream)
    lock(stream.lock)
    try
        stream.ended && return nothing
        released(stream) && throw(DipcError(ERR_CANCELLED, "the stream is closed"))
        out = Ref(zeroed(ArrowDeviceArray))
        p = stream_pointer(stream)
        GC.@preserve stream next_struct(stream, p, out)
        out[].array.release == C_NULL && (stream.ended = true; return nothing)
        owner = Owner(out)
        stream.schema === nothing && (stream.schema = read_schema(stream.stream))
        out[].device_type == ARROW_DEVICE_CPU ||
            return DeviceBatch(owner, stream.schema, batch_metadata(p))
        return Batch(stream.schema, owner, batch_metadata(p))
    finally
        unlock(stream.lock)
    end
end

const STREAM_STATS = (:rows, :batches, :bytes_lent, :bytes_copied, :bytes_received, :bytes_copied_on_device,
                      :bytes_staged, :batches_here)

# How long a task takes batches that are there before other tasks run.
const TURN_NS = UInt64(1_000_000)

# Writes the next batch to `out`, and waits for it in Julia's event loop.
function next_struct(stream::Stream, p, out)
    looks_until = stream.spin == 0 ? UInt64(0) : time_ns() + min(stream.spin, UInt64(1) << 62)
    while true
        # Before the call: if the call finds nothing, the descriptor then becomes readable when
        # something comes.
        fd = descriptor(@c(dipc_stream_fd), p)
        status = check(e -> ccall(@c(dipc_stream_try_next), Int32,
            (Ptr{Cvoid}, Ptr{ArrowDeviceArray}, Ptr{Ptr{Cvoid}}), p, out, e))
        status == NOTHING || return
        try
            let_others_run(() -> time_ns() < looks_until ? yield() : wait_readable(fd), stream)
        catch
            # An interrupt, above all.
            cancel(stream.token)
            rethrow()
        end
    end
end

function let_others_run(wait, stream)
    wait()
    stream.turn_ends = time_ns() + TURN_NS
    return
end

function batch_metadata(p)
    bytes = text_out((buffer, size, out, error) -> ccall(@c(dipc_stream_metadata), Int32,
        (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), p, buffer, size, out, error))
    isempty(bytes) && return Pair{String,String}[]
    return GC.@preserve bytes read_metadata(pointer(bytes))
end

"""
    Dipc.headers(stream) -> Dipc.Headers

The headers of the server's answer: those that came with the schema and, once the stream has failed,
those that came with the failure.
"""
headers(stream::Stream) = using_stream(p -> read_headers(@c(dipc_stream_headers), p), stream)

"""
    close(stream::Dipc.Stream)

Ends the stream; before its end that cancels it, even if another task waits for a batch. Batches
that were taken stay valid.
"""
function Base.close(stream::Stream)
    # A task that waits for a batch has the lock.
    stream.ended || released(stream) || cancel(stream.token)
    lock(() -> release_stream(stream), stream.lock)
    return
end

function release_stream(stream::Stream)
    released(stream) && return
    # The call writes NULL to the struct's release.
    GC.@preserve stream ccall(stream.stream[].release, Cvoid, (Ptr{Cvoid},), stream_pointer(stream))
    return
end

"""
    Dipc.stats(stream) -> NamedTuple

What has come so far: rows, batches, and bytes of bodies that were lent, copied here, received
through the connection, copied here on a device, or staged: copied here between the host and a
device. `batches_here` is the number of batches that have come and were not taken yet.
"""
stats(stream::Stream) = using_stream(stream) do p
    NamedTuple{STREAM_STATS}(ntuple(i -> stat(@c(dipc_stream_stat), p, i), length(STREAM_STATS)))
end

# Runs `use(pointer)` with an open stream; no other task uses the stream meanwhile.
using_stream(use, stream::Stream) = lock(stream.lock) do
    released(stream) && throw(DipcError(ERR_CANCELLED, "the stream is closed"))
    GC.@preserve stream use(stream_pointer(stream))
end

function stat(call, pointer, number)
    out = Ref{UInt64}(0)
    check(e -> ccall(call, Int32, (Ptr{Cvoid}, Int32, Ptr{UInt64}, Ptr{Ptr{Cvoid}}),
                     pointer, number, out, e))
    return Int(out[])
end
