# Sending tables to a server.

"""
    Dipc.Put

A table on its way to a server, as [`Dipc.open_put`](@ref) gives it. `write(put, table)` sends a batch,
[`Dipc.next_result`](@ref) gives what the server says on the way, and [`Dipc.finish`](@ref) ends the
table. `close(put)` before that fails it. One task may ask for results while another writes.
"""
mutable struct Put <: SharedHandle
    pointer::Ptr{Cvoid}
    calls::Int     # that run now, and need the pointer
    closed::Bool
    lock::Threads.SpinLock
    schema::Schema
    token::Cancel

    Put(pointer, schema, token) =
        finalizer(put -> put.calls == 0 && put.pointer != C_NULL && free(put),
                  new(pointer, 0, false, Threads.SpinLock(), schema, token))
end
kind(::Put) = "put"
schema(put::Put) = put.schema
Base.show(io::IO, put::Put) = print(io, "Dipc.Put(", isopen(put) ? "open" : "closed", ", ", put.schema, ")")

function free(put::Put)
    pointer, put.pointer = put.pointer, C_NULL
    ccall(@c(dipc_put_free), Cvoid, (Ptr{Cvoid},), pointer)
    return
end

"""
    Dipc.put(uri, ticket, table; schema=nothing, options...) -> (batches, results)

Sends a table to a server, and waits until the server's program has taken all of it. Gives the number
of batches, and the results on the way as [`Dipc.next_result`](@ref) gives them. The server accepts or
refuses before a batch is sent.

- `ticket`: what the table is for the server's program, a name for example: text or bytes
- `table`: anything that [`Dipc.serve`](@ref) takes, except functions. An exception of an iterator
  fails the table with its text
- `options`: those of [`Dipc.open_put`](@ref)
"""
function put(uri, ticket, table; schema = nothing, options...)
    opened = open_table(table, schema)
    return open_put(uri, ticket, opened.schema; options...) do sent
        for (node, metadata) in opened.parts
            push_batch(sent, node, metadata)
        end
        batches = finish(sent)
        results = NamedTuple{(:batches, :bytes),Tuple{Int,Vector{UInt8}}}[]
        while (result = next_result(sent)) !== nothing
            push!(results, result)
        end
        return batches, results
    end
end

"""
    Dipc.open_put(uri, ticket, schema::Dipc.Schema; options...) -> Dipc.Put
    Dipc.open_put(f, uri, ticket, schema; options...)

Asks a server to take a table of a schema; returns once it has accepted. With a function, also as a
`do` block, the table fails with what `f(put)` throws, and is finished if it has not been.

- `client`, `cancel`, `connect_timeout`, `stall_timeout`, `deadline`, `headers`, `send_secrets`,
  `checksums`: as for [`Dipc.get`](@ref)
- `body`, `compression`: as for [`Dipc.Server`](@ref)
- `connections`: how many connections carry the table, if the transport can spread it: tcp (1)
"""
function open_put(uri, ticket, schema::Schema; client::Client = default_client(), cancel = nothing, options...)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    token = token_of(cancel)
    take(request, error) = ccall(@c(dipc_pending_try_put), Int32,
        (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), request, out, error)
    with_address(uri, ticket) do uris, n_uris, name, n_bytes
        with_handle(@c(dipc_put_options_new), @c(dipc_put_options_free), put_setters(; options...)) do set
            with_schema(schema) do c
                await_answer(take, client) do handle, pending, error
                    ccall(@c(dipc_client_start_put), Int32,
                          (Ptr{Cvoid}, Ptr{Ptr{UInt8}}, Csize_t, Ptr{UInt8}, Csize_t, Ptr{Cvoid}, Ptr{Cvoid},
                           Ptr{ArrowSchema}, Int32, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
                          handle, uris, n_uris, name, n_bytes, set, token.pointer, c, ARROW_DEVICE_CPU,
                          pending, error)
                end
            end
        end
    end
    return Put(out[], schema, token)
end

open_put(use::Function, uri, ticket, schema::Schema; options...) =
    until_finished(use, open_put(uri, ticket, schema; options...))

# Runs `use(put)`, then finishes the put; an exception fails the put.
function until_finished(use, put::Put)
    try
        given = use(put)
        is_over(put) || finish(put)
        return given
    catch exception
        isopen(put) && fail(put, exception)
        rethrow()
    finally
        close(put)
    end
end

function put_setters(; connect_timeout = nothing, stall_timeout = nothing, deadline = nothing, headers = (),
                     send_secrets::Bool = false, checksums::Bool = false, body::Symbol = :auto, compression::Symbol = :none,
                     connections::Integer = 1)
    setters = Any[
        set_bool(@c(dipc_put_options_set_send_secrets), send_secrets),
        set_bool(@c(dipc_put_options_set_checksums), checksums),
        set_i32(@c(dipc_put_options_set_body), named_option("body", BODIES, body)),
        set_i32(@c(dipc_put_options_set_compression),
                named_option("compression", COMPRESSIONS, compression)),
        (options, error) -> ccall(@c(dipc_put_options_set_connections), Int32,
                                  (Ptr{Cvoid}, UInt16, Ptr{Ptr{Cvoid}}), options, connections, error),
    ]
    for (setter, time) in (
        @c(dipc_put_options_set_connect_timeout_ns) => connect_timeout,
        @c(dipc_put_options_set_stall_timeout_ns) => stall_timeout,
        @c(dipc_put_options_set_deadline_ns) => deadline,
    )
        time === nothing || push!(setters, set_u64(setter, nanoseconds(time)))
    end
    sent = Headers(headers)
    isempty(sent) || push!(setters, (options, error) -> with_headers(sent) do handle
        ccall(@c(dipc_put_options_set_headers), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
              options, handle, error)
    end)
    return setters
end

"""
    write(put::Dipc.Put, table)

Sends a table as a batch. Other tasks run while it waits for a slow server.
"""
function Base.write(put::Put, table)
    push_batch(put, part(put.schema, table)...)
    return
end

function push_batch(put::Put, node, pairs)
    metadata = isempty(pairs) ? UInt8[] : write_metadata(pairs)
    array = export_array(node)
    try
        GC.@preserve metadata patiently(put) do pointer_, error
            ccall(@c(dipc_put_push), Int32,
                  (Ptr{Cvoid}, Ptr{ArrowDeviceArray}, Ptr{UInt8}, Csize_t, UInt64, Ptr{Ptr{Cvoid}}),
                  pointer_, array, isempty(metadata) ? C_NULL : pointer(metadata), length(metadata), 0, error)
        end
    finally
        # If the library took it, there is nothing left to release.
        release_export(array)
        collect_exports()
    end
    return
end

"""
    Dipc.next_result(put) -> Union{Nothing,NamedTuple}

Waits until the server's program says that a part of the table is safe, whatever happens to the
rest: so many `batches`, from the first on, and the `bytes` that go with the result. `nothing` once
it has taken the whole table and all results were given. Results can be asked for after
[`Dipc.finish`](@ref) too.
"""
function next_result(put::Put)
    batches = Ref{UInt64}(0)
    bytes = UInt8[]
    status = patiently(put) do pointer, error
        status = ccall(@c(dipc_put_next_result), Int32, (Ptr{Cvoid}, UInt64, Ptr{UInt64}, Ptr{Ptr{Cvoid}}),
                       pointer, 0, batches, error)
        status == OK && (bytes = text_out((buffer, size, out, failure) -> ccall(@c(dipc_put_result), Int32,
            (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), pointer, buffer, size, out, failure)))
        return status
    end
    return status == NOTHING ? nothing : (batches = Int(batches[]), bytes = bytes)
end

"""
    Dipc.finish(put) -> Int

Ends the table, and waits until the server's program has taken all of it. Gives the number of batches.
"""
function finish(put::Put)
    batches = Ref{UInt64}(0)
    patiently(put) do pointer, error
        ccall(@c(dipc_put_finish), Int32, (Ptr{Cvoid}, UInt64, Ptr{UInt64}, Ptr{Ptr{Cvoid}}),
              pointer, 0, batches, error)
    end
    collect_exports()
    return Int(batches[])
end

"""
    Dipc.fail(put, exception)

Ends the table with an error, whose text the server's program sees. After the end it does nothing.
"""
fail(put::Put, exception) = using_handle(put) do pointer
    code, text = reason(exception)
    check(e -> ccall(@c(dipc_put_fail), Int32, (Ptr{Cvoid}, Int32, Cstring, Ptr{Ptr{Cvoid}}),
                     pointer, code, text, e))
    return
end

"""
    Dipc.headers(put) -> Dipc.Headers

The headers of the server's answers so far.
"""
headers(put::Put) = using_handle(pointer -> read_headers(@c(dipc_put_headers), pointer), put)

"""
    Dipc.stats(put) -> NamedTuple

What was sent so far: batches, and bytes of bodies that were lent, copied here, or sent through the
connection; and how many buffers the server has not given back.
"""
stats(put::Put) = using_handle(put) do pointer
    NamedTuple{(:batches, :bytes_lent, :bytes_copied, :bytes_sent, :lent_outstanding)}(
        ntuple(i -> stat(@c(dipc_put_stat), pointer, i), 5))
end

"""
    close(put::Dipc.Put)

Fails the table, unless it has ended. Batches that the server still has are kept until it gives them
back.
"""
function Base.close(put::Put)
    enter(put; closing = true)
    # Ends the call of a task that waits. After the end of the table, the answer of an exchange may
    # still be read.
    put.pointer == C_NULL || is_over(put.pointer) || cancel(put.token)
    leave(put)
    return
end

is_over(put::Put) = !isopen(put) || using_handle(is_over, put)
is_over(pointer::Ptr{Cvoid}) = ccall(@c(dipc_put_is_over), UInt8, (Ptr{Cvoid},), pointer) != 0

# The call of another task may clear the descriptor: after this time a task looks without it.
const LOOK_NS = UInt64(100_000_000)

# Repeats a call that does not wait, until its answer is not that it would have to wait. Gives its
# status.
patiently(call, put::Put) = using_handle(put) do pointer
    error = Ref{Ptr{Cvoid}}(C_NULL)
    while true
        # Before the call: if the call finds nothing, the descriptor then becomes readable when
        # something comes.
        fd = descriptor(@c(dipc_put_fd), pointer)
        status = call(pointer, error)
        status >= 0 && return status
        failure = take_error(status, error[])
        error[] = C_NULL
        status == ERR_TIMEOUT && !is_over(pointer) || throw(failure)
        wait_readable(fd; until = time_ns() + LOOK_NS)
    end
end
