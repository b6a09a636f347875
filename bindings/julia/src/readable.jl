# Waiting for a descriptor of the library in Julia's event loop, without a thread.

# The descriptor that `call(pointer, out, error)` gives.
function descriptor(call, pointer)
    out = Ref{Int32}(-1)
    check(e -> ccall(call, Int32, (Ptr{Cvoid}, Ptr{Int32}, Ptr{Ptr{Cvoid}}), pointer, out, e))
    return RawFD(out[])
end

# Waits until a descriptor is readable, or until `time_ns()` is `until`. The watch ends with the
# wait, because the owner may close the descriptor then.
function wait_readable(fd::RawFD; until = FOREVER)
    watcher = FileWatching.FDWatcher(fd, true, false)
    # See `waiting` in worker.jl: an interrupt is for the task that waits, and a task sees it only
    # when it is woken. So the clock wakes this task without an event.
    seconds = min(INTERRUPT_SECONDS, max(0, Int128(until) - time_ns()) / 1e9)
    clock = Timer(seconds; interval = INTERRUPT_SECONDS)
    clock.cond = watcher.watcher.notify
    try
        while true
            try
                wait(watcher)
                return
            catch exception
                # The clock's notification has another type than an event.
                exception isa Union{TypeError,MethodError} || rethrow()
                time_ns() >= until && return
            end
        end
    finally
        close(clock)
        close(watcher)
    end
end
