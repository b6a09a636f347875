# The program's authorizer decides about each request. A Julia task takes the request out of the
# server's queue and calls the authorizer, so no thread of the library has to call Julia.

# Throws if something cannot decide about requests.
function ensure_authorizer(authorizer)
    authorizer === nothing && return
    authorizer isa Function || !isempty(methods(authorizer)) ||
        throw(ArgumentError("an authorizer is a function of the request, not a $(typeof(authorizer))"))
    return
end

is_undecided(request::Ptr{Cvoid}) = ccall(@c(dipc_request_is_undecided), UInt8, (Ptr{Cvoid},), request) != 0

# Asks the host about a request, and tells the client if the request is refused.
function decide(server::Server, request::Request)
    enter(server; anyway = true)
    try
        given = server.authorizer(request)
        given isa Union{Nothing,AbstractString} || throw(ArgumentError(
            "an authorizer gives the client's name or nothing, not a $(typeof(given))"))
        given === nothing || check(e -> ccall(@c(dipc_request_set_principal), Int32,
            (Ptr{Cvoid}, Cstring, Ptr{Ptr{Cvoid}}), request.pointer, String(given), e))
        check(e -> ccall(@c(dipc_request_allow), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), request.pointer, e))
    catch exception
        fail(request, exception; other = ERR_PERMISSION)
        exception isa InterruptException && pass_on(server, exception)
    finally
        release(request)
        server.active -= 1
        leave(server)
    end
    return
end

"""
    Dipc.principal(request) -> Union{Nothing,String}

The name that the server's authorizer has given the client; `nothing` if it has given none.
"""
principal(request::Request) = request.principal

function read_principal(request::Ptr{Cvoid})
    try
        return String(text_out((buffer, size, out, error) -> ccall(@c(dipc_request_principal), Int32,
            (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}), request, buffer, size, out, error)))
    catch exception
        exception isa DipcError && exception.status == ERR_NOT_FOUND || rethrow()
        return nothing
    end
end
