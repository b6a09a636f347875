# Statuses and errors.

# The numbers of dipc.h, which are never used again for another meaning; a test compares them.
const STATUSES = (
    ERR_NULL_ARGUMENT = -1, ERR_INVALID_ARGUMENT = -2, ERR_INVALID_URI = -3, ERR_UNSUPPORTED = -4,
    ERR_NOT_FOUND = -5, ERR_ALREADY_EXISTS = -6, ERR_ADDRESS_IN_USE = -7, ERR_UNREACHABLE = -8,
    ERR_PERMISSION = -9, ERR_PROTOCOL = -10, ERR_DISCONNECTED = -11, ERR_CANCELLED = -12,
    ERR_TIMEOUT = -13, ERR_BUSY = -14, ERR_OUT_OF_MEMORY = -15, ERR_OUT_OF_RESOURCES = -16,
    ERR_IO = -17, ERR_INVALID_DATA = -18, ERR_PROVIDER = -19, ERR_STOPPED = -20, ERR_FORKED = -21,
    ERR_PANIC = -22, ERR_POISONED = -23, ERR_BUFFER_TOO_SMALL = -24,
)
for (name, number) in pairs(STATUSES)
    @eval const $name = Int32($number)
end

const OK = Int32(0)
const NOTHING = Int32(1)

"""
    DipcError

Why a call failed.

- `status::Int32`: one of `Dipc.ERR_NOT_FOUND`, `Dipc.ERR_TIMEOUT` and the other statuses of `dipc.h`
- `text::String`: the cause and, if there is one, the remedy
- `os_errno::Int32`: the errno of the system call behind it, 0 if there is none
- `retry_after`: a `Dates.Nanosecond`, the time to wait before a busy server is asked again; wait
  longer each time; `nothing` if the server has not said. A call with a deadline asks again by
  itself
"""
struct DipcError <: Exception
    status::Int32
    text::String
    os_errno::Int32
    retry_after::Union{Nothing,Nanosecond}
end
DipcError(status, text, os_errno = 0) = DipcError(status, text, os_errno, nothing)

Base.showerror(io::IO, error::DipcError) =
    print(io, "DipcError(", status_name(error.status), "): ", error.text)

"""
    Dipc.status_name(status) -> String

The name of a status, or of an error's, as in `dipc.h`: `"DIPC_ERR_TIMEOUT"`.
"""
function status_name(status::Integer)
    status == OK && return "DIPC_OK"
    # This does not call the library, because the error may be that the library cannot be loaded.
    for (name, number) in pairs(STATUSES)
        number == status && return "DIPC_$name"
    end
    return "DIPC_UNKNOWN"
end
status_name(error::DipcError) = status_name(error.status)

# Takes what a call wrote to its `dipc_error **` and frees it.
function take_error(status, error::Ptr{Cvoid})
    error == C_NULL && return DipcError(status, status_name(status))
    text = unsafe_string(ccall(@c(dipc_error_text), Cstring, (Ptr{Cvoid},), error))
    os_errno = ccall(@c(dipc_error_os_errno), Int32, (Ptr{Cvoid},), error)
    after = ccall(@c(dipc_error_retry_after_ns), UInt64, (Ptr{Cvoid},), error)
    ccall(@c(dipc_error_free), Cvoid, (Ptr{Cvoid},), error)
    return DipcError(status, text, os_errno, after == 0 ? nothing : Nanosecond(min(after, typemax(Int64))))
end

# Runs `call(error)`, where `error` is the call's last argument, and throws if it fails. Gives
# the status: OK, or NOTHING.
function check(call)
    error = Ref{Ptr{Cvoid}}(C_NULL)
    status = call(error)
    status < 0 && throw(take_error(status, error[]))
    return status
end

# A text that comes out into the caller's buffer: `call(buffer, size, out_len, error)`.
function text_out(call)
    size = Ref{Csize_t}(0)
    check(error -> call(C_NULL, 0, size, error))
    while true
        buffer = Vector{UInt8}(undef, size[] + 1)
        status = GC.@preserve buffer call(pointer(buffer), length(buffer), size, C_NULL)
        status == OK && return buffer[1:size[]]
        # The text may have become longer meanwhile.
        status == ERR_BUFFER_TOO_SMALL || check(error -> status)
    end
end

"""
    Dipc.transport_error(scheme) -> Union{Nothing,DipcError}

`nothing` if the transport of URIs like `"shm:…"` works on this machine; otherwise what is
missing and how to get it.
"""
function transport_error(scheme::AbstractString)
    error = Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(@c(dipc_transport_available), Int32, (Cstring, Ptr{Ptr{Cvoid}}), scheme, error)
    return status < 0 ? take_error(status, error[]) : nothing
end
