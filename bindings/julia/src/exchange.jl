# Tables both ways at once.

"""
    Dipc.exchange(uri, ticket, schema::Dipc.Schema; options...) -> (Dipc.Put, Dipc.Stream)
    Dipc.exchange(f, uri, ticket, schema; options...)

Sends a table of a schema to a server and gets one from it at the same time, on one connection;
returns once the server has accepted. One task may write to the put while another iterates the
stream, and either table may end first. [`Dipc.finish`](@ref) waits until the server has ended its
table, too: iterate the stream to its end before or meanwhile. An exception at either side ends both
tables at both sides, and so does `close` of one of them before its end.

With a function, also as a `do` block, the tables fail with what `f(put, stream)` throws, and the put is
finished if it has not been.

- `window`, `lent_limit_bytes`, `message_limit_bytes`, `validation`, `spin`: for the server's table,
  as for [`Dipc.get`](@ref)
- the other options are those of [`Dipc.open_put`](@ref)

    Dipc.exchange("shm:@demo", "doubled", Dipc.Schema([Dipc.Field("n", "l")])) do put, doubled
        write(put, (n = [1, 2, 3],))
        println(iterate(doubled)[1].n)
        Dipc.finish(put)
    end
"""
function exchange(uri, ticket, schema::Schema; client::Client = default_client(), cancel = nothing,
                  stall_timeout = nothing, window = nothing, lent_limit_bytes = nothing,
                  message_limit_bytes = nothing, validation::Symbol = :auto, spin = nothing, options...)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    answers = Ref(zeroed(ArrowDeviceArrayStream))
    token = token_of(cancel)
    sent = put_setters(; stall_timeout = stall_timeout, options...)
    answered = get_setters(; stall_timeout = stall_timeout, window = window, lent_limit_bytes = lent_limit_bytes,
                           message_limit_bytes = message_limit_bytes, validation = validation, spin = spin)
    take(request, error) = ccall(@c(dipc_pending_try_exchange), Int32,
        (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{ArrowDeviceArrayStream}, Ptr{Ptr{Cvoid}}), request, out, answers, error)
    with_address(uri, ticket) do uris, n_uris, name, n_bytes
        with_handle(@c(dipc_put_options_new), @c(dipc_put_options_free), sent) do set
            with_handle(@c(dipc_get_options_new), @c(dipc_get_options_free), answered) do answer_set
                with_schema(schema) do c
                    await_answer(take, client) do handle, pending, error
                        ccall(@c(dipc_client_start_exchange), Int32,
                              (Ptr{Cvoid}, Ptr{Ptr{UInt8}}, Csize_t, Ptr{UInt8}, Csize_t, Ptr{Cvoid}, Ptr{Cvoid},
                               Ptr{Cvoid}, Ptr{ArrowSchema}, Int32, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
                              handle, uris, n_uris, name, n_bytes, set, answer_set, token.pointer, c,
                              ARROW_DEVICE_CPU, pending, error)
                    end
                end
            end
        end
    end
    return Put(out[], schema, token), Stream(answers, token; spin = spin)
end

function exchange(use::Function, uri, ticket, schema::Schema; options...)
    put, stream = exchange(uri, ticket, schema; options...)
    try
        return until_finished(put -> use(put, stream), put)
    finally
        close(stream)
    end
end
