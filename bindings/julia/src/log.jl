# The library's log, into Julia's Logging.
#
# The library logs on a thread of its own, which Julia before 1.9 cannot be entered on. So the callback
# touches nothing of Julia's: it writes each event to a pipe, and a task reads them there. A full pipe
# stops the callback, and the library drops events meanwhile and tells how many.

"""
    Dipc.Trace

The level of events about single messages; the other levels are those of Logging.
"""
const Trace = Logging.LogLevel(-2000)

# The levels of dipc.h, at their numbers.
const LOG_LEVELS = (Logging.Error, Logging.Warn, Logging.Info, Logging.Debug, Trace)

# The number of the most detailed level that is not below `level`.
log_number(level) = something(findlast(known -> known >= level, LOG_LEVELS), 1)

# What the callback needs: C memory, like that of a Job.
struct LogPipe
    fd::Int
    write::Ptr{Cvoid}    # addresses of C functions
    strlen::Ptr{Cvoid}
    memcpy::Ptr{Cvoid}
    errno::Ptr{Cvoid}
    close::Ptr{Cvoid}
    free::Ptr{Cvoid}
end

# An event is three Int32 (level, bytes of target and of text), then target and text.
const LOG_HEAD_BYTES = 12
const LOG_TARGET_BYTES = 256
const LOG_TEXT_BYTES = 8192

const EINTR = Int32(Libc.EINTR)

# As for `release_array`: every function that is called here is C's or inlined.
function log_event(pipe::Ptr{LogPipe}, level::Int32, target::Ptr{UInt8}, text::Ptr{UInt8})::Cvoid
    fixed = unsafe_load(pipe)
    record = Ptr{UInt8}(pipe) + sizeof(LogPipe)
    in_target = min(ccall(fixed.strlen, Csize_t, (Ptr{UInt8},), target), Csize_t(LOG_TARGET_BYTES))
    in_text = min(ccall(fixed.strlen, Csize_t, (Ptr{UInt8},), text), Csize_t(LOG_TEXT_BYTES))
    unsafe_store!(Ptr{Int32}(record), level, 1)
    unsafe_store!(Ptr{Int32}(record), in_target % Int32, 2)
    unsafe_store!(Ptr{Int32}(record), in_text % Int32, 3)
    ccall(fixed.memcpy, Ptr{UInt8}, (Ptr{UInt8}, Ptr{UInt8}, Csize_t), record + LOG_HEAD_BYTES, target, in_target)
    ccall(fixed.memcpy, Ptr{UInt8}, (Ptr{UInt8}, Ptr{UInt8}, Csize_t),
          record + LOG_HEAD_BYTES + in_target, text, in_text)
    rest = Csize_t(LOG_HEAD_BYTES) + in_target + in_text
    while rest > 0
        state = gc_enter()
        written = ccall(fixed.write, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), fixed.fd % Cint, record, rest)
        failed = written < 0 && ccall(fixed.errno, Cint, ()) != EINTR
        gc_leave(state)
        failed && break
        if written > 0
            record += written
            rest -= written % Csize_t
        end
    end
    return
end

# The finalizer closes the pipe, so its reader finds the end.
function log_ended(pipe::Ptr{LogPipe})::Cvoid
    fixed = unsafe_load(pipe)
    ccall(fixed.close, Cint, (Cint,), fixed.fd % Cint)
    ccall(fixed.free, Cvoid, (Ptr{LogPipe},), pipe)
    return
end

# A log that is read: the logger for its events, and the task that is told of interrupts.
mutable struct Log
    logger::Logging.AbstractLogger
    fd::RawFD
    owner::Task
    task::Union{Nothing,Task}
end

const CURRENT_LOG = Ref{Union{Nothing,Log}}(nothing)

"""
    Dipc.set_logger(logger = Logging.current_logger(); level = Logging.min_enabled_level(logger))
    Dipc.set_logger(nothing)

Sends what the library logs, from `level` up, to a logger of Logging's; `nothing` stops that. The
library logs nothing until this is called. The levels are those of Logging and [`Dipc.Trace`](@ref).
An event has the module `Dipc`, and as its group and keyword `target` the part of the library that
logs, as `"dipc::transport::shm"` or, for an audit, `"dipc::audit"`. The text of an event that
belongs to a request ends with verb, ticket and peer in parentheses.

A task hands the events on, in their order. Returns once the previous logger has got all of its
events.
"""
function set_logger(logger::Logging.AbstractLogger = Logging.current_logger();
                    level = Logging.min_enabled_level(logger))
    number = log_number(level)
    ends = open_pipe()
    pipe = Ptr{LogPipe}(Libc.malloc(sizeof(LogPipe) + LOG_HEAD_BYTES + LOG_TARGET_BYTES + LOG_TEXT_BYTES))
    unsafe_store!(pipe, LogPipe(ends[2], cglobal(:write), cglobal(:strlen), cglobal(:memcpy),
                                cglobal(:jl_errno), cglobal(:close), cglobal(:free)))
    # The function is compiled now, because the library's thread could not compile it.
    precompile(log_event, (Ptr{LogPipe}, Int32, Ptr{UInt8}, Ptr{UInt8}))
    precompile(log_ended, (Ptr{LogPipe},))
    try
        set_log(number, @cfunction(log_event, Cvoid, (Ptr{LogPipe}, Int32, Ptr{UInt8}, Ptr{UInt8})), pipe,
                @cfunction(log_ended, Cvoid, (Ptr{LogPipe},)))
    catch
        log_ended(pipe)
        ccall(:close, Cint, (Cint,), ends[1])
        rethrow()
    end
    log = Log(logger, RawFD(ends[1]), current_task(), nothing)
    log.task = @async read_log(log)
    before, CURRENT_LOG[] = CURRENT_LOG[], log
    wait_for(before)
    return
end

function set_logger(::Nothing)
    before, CURRENT_LOG[] = CURRENT_LOG[], nothing
    # If no library could be loaded, there is nothing to stop.
    before === nothing && return
    set_log(1, C_NULL, C_NULL, C_NULL)
    wait_for(before)
    return
end

set_log(level, callback, userdata, finalizer) = check(e -> ccall(@c(dipc_log_set), Int32,
    (Int32, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}), level, callback, userdata, finalizer, e))

# A logger may stop the log, or set another one.
wait_for(log) = log === nothing || log.task === current_task() || wait(log.task)

# At the end of the program a logger that does not return is not waited for.
function stop_log()
    log = CURRENT_LOG[]
    log === nothing && return
    CURRENT_LOG[] = nothing
    set_log(1, C_NULL, C_NULL, C_NULL)
    timedwait(() -> istaskdone(log.task), 2.0; pollint = 0.01)
    return
end

# Linux's numbers, which are the same on x86-64 and aarch64.
const O_CLOEXEC, O_NONBLOCK, F_SETFL = Cint(0o2000000), Cint(0o4000), Cint(4)

# A pipe whose end for reading does not wait.
function open_pipe()
    ends = Vector{Cint}(undef, 2)
    ccall(:pipe2, Cint, (Ptr{Cint}, Cint), ends, O_CLOEXEC) == 0 ||
        throw(DipcError(ERR_OUT_OF_RESOURCES, "cannot open a pipe for the log", Libc.errno()))
    ccall(:fcntl, Cint, (Cint, Cint, Clong...), ends[1], F_SETFL, O_NONBLOCK)
    return ends
end

# Reads events until the library has let go of the pipe.
function read_log(log::Log)
    unread = UInt8[]
    chunk = Vector{UInt8}(undef, 1 << 16)
    try
        while true
            try
                size = ccall(:read, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), log.fd, chunk, length(chunk))
                size == 0 && return
                if size > 0
                    append!(unread, view(chunk, 1:size))
                    hand_on!(log.logger, unread)
                else
                    wait_for_log(log.fd)
                end
            catch exception
                # An interrupt is meant for the program, not for this task.
                exception isa InterruptException || rethrow()
                pass_on(log, exception)
            end
        end
    finally
        ccall(:close, Cint, (Cint,), log.fd)
    end
end

function wait_for_log(fd)
    watcher = FileWatching.FDWatcher(fd, true, false)
    try
        wait(watcher)
    finally
        close(watcher)
    end
end

# Takes the complete events out of `unread`.
function hand_on!(logger, unread)
    while length(unread) >= LOG_HEAD_BYTES
        level, in_target, in_text = reinterpret(Int32, unread[1:LOG_HEAD_BYTES])
        text_at = LOG_HEAD_BYTES + in_target
        size = text_at + in_text
        length(unread) < size && return
        target = String(unread[LOG_HEAD_BYTES+1:text_at])
        text = String(unread[text_at+1:size])
        deleteat!(unread, 1:Int(size))
        log_to(logger, LOG_LEVELS[clamp(level, 1, length(LOG_LEVELS))], target, text)
    end
    return
end

function log_to(logger, level, target, text)
    group = Symbol(target)
    try
        Logging.min_enabled_level(logger) <= level || return
        Logging.shouldlog(logger, level, Dipc, group, group) || return
        Logging.handle_message(logger, level, text, Dipc, group, group, nothing, nothing; target = target)
    catch exception
        exception isa InterruptException && rethrow()
        # Nobody can be told of a logger that fails. It may take the next event.
    end
    return
end
