# Handles of the library, options and cancellation.

abstract type Handle end

# The C handle; throws if it cannot be used.
function raw(handle::Handle)
    pointer = handle.pointer
    pointer == C_NULL && throw(DipcError(ERR_STOPPED, "the $(kind(handle)) is closed"))
    return pointer
end

Base.isopen(handle::Handle) = handle.pointer != C_NULL

# Handles that other threads may still use when they are closed. Clients and servers have the fields
# `calls`, `closed` and `lock`, and are freed when the last call has ended.
abstract type SharedHandle <: Handle end

Base.isopen(handle::SharedHandle) = !handle.closed

# Begins a use of the handle; if the handle is closed, only with `anyway`. Returns whether it was
# open.
function enter(handle::SharedHandle; closing = false, anyway = closing)
    return lock(handle.lock) do
        was_open = !handle.closed
        was_open || anyway || throw(DipcError(ERR_STOPPED, "the $(kind(handle)) is closed"))
        handle.closed |= closing
        handle.calls += 1
        return was_open
    end
end

function leave(handle::SharedHandle)
    last = lock(handle.lock) do
        handle.calls -= 1
        handle.closed && handle.calls == 0 && handle.pointer != C_NULL
    end
    last && free(handle)
    return
end

function using_handle(use, handle::SharedHandle)
    enter(handle)
    try
        return use(handle.pointer)
    finally
        leave(handle)
    end
end

const FOREVER = typemax(UInt64)

"""
    nanoseconds(time) -> UInt64

A time to wait, as the library wants it: a `Dates` period, a number of seconds, or `nothing` for no
limit.
"""
nanoseconds(::Nothing) = FOREVER
function nanoseconds(time::Period)
    time >= zero(time) || throw(ArgumentError("a time to wait may not be negative: $time"))
    return UInt64(Dates.value(convert(Nanosecond, time)))
end
function nanoseconds(time::Real)
    time >= 0 || throw(ArgumentError("a time to wait may not be negative: $time"))
    return time >= 1.8e10 ? FOREVER : round(UInt64, time * 1e9)
end

# Runs `use(pointer)` with options, headers or a description that `new` makes, after each call
# `set(pointer, error)` of the setters.
function with_handle(use, new, free, setters)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    check(error -> ccall(new, Int32, (Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), out, error))
    handle = out[]
    try
        for set in setters
            check(error -> set(handle, error))
        end
        return use(handle)
    finally
        ccall(free, Cvoid, (Ptr{Cvoid},), handle)
    end
end

# Setters, by the type of their value.
set_u64(setter, value) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, UInt64, Ptr{Ptr{Cvoid}}), options, value, error)
set_i32(setter, value) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, Int32, Ptr{Ptr{Cvoid}}), options, value, error)
set_bool(setter, value) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, UInt8, Ptr{Ptr{Cvoid}}), options, value, error)
set_text(setter, text) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, Cstring, Ptr{Ptr{Cvoid}}), options, text, error)
set_texts(setter, one, other) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, Cstring, Cstring, Ptr{Ptr{Cvoid}}), options, one, other, error)

set_pair(setter, one, other) = (options, error) ->
    ccall(setter, Int32, (Ptr{Cvoid}, UInt64, UInt64, Ptr{Ptr{Cvoid}}), options, one, other, error)

# Setters for options of single transports: pairs of "scheme.option" and its value.
transport_setters(setter, transport::Pair) = transport_setters(setter, (transport,))
transport_setters(setter, transport) =
    Any[set_texts(setter, string(name), string(value)) for (name, value) in transport]

# The names of an option's values, at their numbers.
const BODIES = (auto = 0, packed = 1, lent = 2)
const COMPRESSIONS = (none = 0, lz4 = 1, zstd = 2)
const VALIDATIONS = (auto = 0, structure = 1, full = 2)

# One of the names that an option takes, as its number.
function named_option(option, names, value)
    haskey(names, value) || throw(ArgumentError(
        "$option is :$value and should be one of $(join(map(n -> ":$n", keys(names)), ", "))"))
    return names[value]
end

"""
    Dipc.Cancel()

Ends the calls and streams that it is given to, with `Dipc.ERR_CANCELLED`. One token may be given to
any number of them; once it is triggered it stays so.
"""
mutable struct Cancel <: Handle
    pointer::Ptr{Cvoid}
    # Tokens of single streams, which are triggered with this one. Each stream has its own token, so
    # that an interrupt ends only that stream.
    followers::Vector{WeakRef}
    lock::ReentrantLock

    function Cancel()
        out = Ref{Ptr{Cvoid}}(C_NULL)
        check(e -> ccall(@c(dipc_cancel_new), Int32, (Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), out, e))
        return finalizer(new(out[], WeakRef[], ReentrantLock())) do token
            ccall(@c(dipc_cancel_free), Cvoid, (Ptr{Cvoid},), token.pointer)
        end
    end
end
kind(::Cancel) = "token"

"""
    Dipc.cancel(token::Dipc.Cancel)

Ends every call and stream that the token was given to, now and later. Any task may call it.
"""
function cancel(token::Cancel)
    check(e -> ccall(@c(dipc_cancel_trigger), Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), token.pointer, e))
    for follower in lock(() -> copy(token.followers), token.lock)
        follower.value === nothing || cancel(follower.value::Cancel)
    end
    return
end

# Triggers `token` with `leader`, even if that has happened already.
function follow(token::Cancel, leader::Cancel)
    lock(leader.lock) do
        filter!(follower -> follower.value !== nothing, leader.followers)
        push!(leader.followers, WeakRef(token))
    end
    iscancelled(leader) && cancel(token)
    return
end

"""
    Dipc.iscancelled(token::Dipc.Cancel) -> Bool
"""
iscancelled(token::Cancel) =
    ccall(@c(dipc_cancel_is_triggered), UInt8, (Ptr{Cvoid},), token.pointer) != 0
