# Requests of a client that wait in Julia's event loop, without a thread.

# The verbs of dipc.h, at their numbers.
const VERBS = [:get, :put, :exchange, :describe, :list]

# Asks a server by `start(client, out, error)`, waits for its answer, and takes the answer by
# `take(request, error)`. If an exception comes in meanwhile, an interrupt above all, the request
# ends.
function await_answer(start, take, client::Client)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    using_handle(handle -> check(error -> start(handle, out, error)), client)
    try
        fd = descriptor(@c(dipc_pending_fd), out[])
        while check(error -> take(out[], error)) == NOTHING
            wait_readable(fd)
        end
    finally
        ccall(@c(dipc_pending_free), Cvoid, (Ptr{Cvoid},), out[])
    end
    return
end

# Each answer has its own token, so that an interrupt ends only that answer.
function token_of(cancel)
    token = Cancel()
    cancel === nothing || follow(token, cancel)
    return token
end

# Runs `use(uris, n_uris, name, n_bytes)` with the URIs and the ticket in the form that the library
# takes.
function with_address(use, uri, ticket)
    uris = uri_list(uri)
    name = ticket_bytes(ticket)
    pointers = Ptr{UInt8}[pointer_to_text(text, "a URI") for text in uris]
    return GC.@preserve uris name use(pointers, length(uris), name, length(name))
end

ticket_bytes(ticket::AbstractString) = Vector{UInt8}(String(ticket))
ticket_bytes(ticket::AbstractVector{UInt8}) = Vector{UInt8}(ticket)
ticket_bytes(ticket) = throw(ArgumentError("a ticket is text or bytes, and this is a $(typeof(ticket))"))

uri_list(uri::AbstractString) = String[uri]
uri_list(uris) = collect(String, uris)

function pointer_to_text(text::String, what)
    '\0' in text && throw(ArgumentError("$what may not hold the character \\0"))
    return pointer(text)
end
