# Waiting for a descriptor of the library in Julia's event loop, without a thread.

# The descriptor that `call(pointer, out, error)` gives.
function descriptor(call, pointer)
    out = Ref{Int32}(-1)
    check(e -> ccall(call, Int32, (Ptr{Cvoid}, Ptr{Int32}, Ptr{Ptr{Cvoid}}), pointer, out, e))
    return RawFD(out[])
end

# Waits until a descriptor is readable, or until `time_ns()` is `until`. It is watched no longer than
# that, for its owner may close it then.
function wait_readable(fd::RawFD; until = FOREVER)
    watcher = FileWatching.FDWatcher(fd, true, false)
    # See `waiting` in worker.jl: an interrupt is for the task that waits, and seen only by one that
    # is woken. So the clock notifies of nothing what this task waits for.
    seconds = min(INTERRUPT_SECONDS, max(0, Int128(until) - time_ns()) / 1e9)
    clock = Timer(seconds; interval = INTERRUPT_SECONDS)
    clock.cond = watcher.watcher.notify
    try
        while true
            try
                wait(watcher)
                return
            catch exception
                # The clock's notification is of another type than an event.
                exception isa Union{TypeError,MethodError} || rethrow()
                time_ns() >= until && return
            end
        end
    finally
        close(clock)
        close(watcher)
    end
end
