# Calls of the library that wait, made on threads of their own, so that Julia's other tasks run on
# and an InterruptException can come in. The task that waits is woken by libuv. Streams and requests
# wait without a thread (readable.jl, pending.jl); only the end of a server, and a client's first
# message, wait here.
#
# Such a thread runs `work`, which uses nothing of Julia: no allocation, no lookup, no exception.
# Julia before 1.9 allows no more on a thread that it has not made; `@threadcall` of Base works in
# the same way. `@threadcall` itself cannot be used. It has four threads in all, so four streams
# that wait for each other's providers would wait for ever; and an interrupt breaks its bookkeeping.

# The data that is shared with the thread. It is C memory, so that it never moves and outlives the
# Julia side.
struct Job
    go::Ptr{Cvoid}         # uv_sem_t: there is something to do
    done::Ptr{Cvoid}       # uv_async_t of the AsyncCondition that the task waits for
    sem_wait::Ptr{Cvoid}   # addresses of libuv's functions
    async_send::Ptr{Cvoid}
    call::Ptr{Cvoid}       # what to call; NULL ends the thread
    result::Int
    finished::Int
    arguments::NTuple{3,UInt}
end

mutable struct Worker
    job::Ptr{Job}
    done::Base.AsyncCondition
end

# Bytes that are enough for a uv_sem_t on every system.
const SEMAPHORE_BYTES = 256

# Every function that is called here takes up to three pointers or 64-bit numbers and gives an int.
# A function that takes fewer ignores the rest.
@inline call_with(f::Ptr{Cvoid}, a::NTuple{3,UInt}) = ccall(f, Int32, (UInt, UInt, UInt), a[1], a[2], a[3])

# From 1.9 on Julia adopts the thread; then its collector would wait until a waiting call returns.
@static if VERSION >= v"1.9"
    @inline gc_enter() = ccall(:jl_gc_safe_enter, Int8, ())
    @inline gc_leave(state) = ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
else
    @inline gc_enter() = Int8(0)
    @inline gc_leave(state) = nothing
end

function work(job::Ptr{Job})::Cvoid
    fixed = unsafe_load(job)
    while true
        state = gc_enter()
        ccall(fixed.sem_wait, Cvoid, (Ptr{Cvoid},), fixed.go)
        now = unsafe_load(job)
        if now.call == C_NULL
            gc_leave(state)
            break
        end
        result = call_with(now.call, now.arguments)
        gc_leave(state)
        unsafe_store!(field_ptr(job, Val(:result)), Int(result))
        Threads.atomic_fence()
        unsafe_store!(field_ptr(job, Val(:finished)), 1)
        ccall(fixed.async_send, Int32, (Ptr{Cvoid},), fixed.done)
    end
    return
end

function work_function()
    # The function is compiled now, because the thread could not compile it.
    precompile(work, (Ptr{Job},)) && precompile(call_with, (Ptr{Cvoid}, NTuple{3,UInt}))
    return @cfunction(work, Cvoid, (Ptr{Job},))
end

function start_worker()
    entry = work_function()
    done = Base.AsyncCondition()
    go = Libc.calloc(1, SEMAPHORE_BYTES)
    job = Ptr{Job}(Libc.calloc(1, sizeof(Job)))
    ccall(:uv_sem_init, Cint, (Ptr{Cvoid}, Cuint), go, 0) == 0 || error("uv_sem_init failed")
    unsafe_store!(job, Job(go, Base.unsafe_convert(Ptr{Cvoid}, done), cglobal(:uv_sem_wait),
        cglobal(:uv_async_send), C_NULL, 0, 0, ntuple(_ -> UInt(0), 3)))
    thread = Ref{UInt}(0)
    status = ccall(:uv_thread_create, Cint, (Ptr{UInt}, Ptr{Cvoid}, Ptr{Cvoid}), thread, entry, job)
    status == 0 || throw(DipcError(ERR_OUT_OF_RESOURCES, "cannot start a thread to wait on"))
    return Worker(job, done)
end

# How often a task that waits looks whether it was interrupted.
const INTERRUPT_SECONDS = 0.2

# Workers without work. One call has one worker; there are never more than calls at one time.
const IDLE_WORKERS = Worker[]
const IDLE_LOCK = ReentrantLock()

"""
    waiting(on_interrupt, call, arguments...) -> Int32

Calls `call`, a C function that may wait, while other tasks run. The arguments are pointers and
numbers; the caller keeps alive what they point to. If an exception comes in meanwhile (an
InterruptException above all), `on_interrupt()` is called, which has to make the call end. This
waits for that end, and then the exception goes on.
"""
function waiting(on_interrupt, call::Ptr{Cvoid}, arguments...)
    worker = lock(() -> isempty(IDLE_WORKERS) ? nothing : pop!(IDLE_WORKERS), IDLE_LOCK)
    worker === nothing && (worker = start_worker())
    job = worker.job
    words = ntuple(i -> i <= length(arguments) ? UInt(arguments[i]) : UInt(0), 3)
    fixed = unsafe_load(job)
    unsafe_store!(job, Job(fixed.go, fixed.done, fixed.sem_wait, fixed.async_send, call,
                           0, 0, words))
    ccall(:uv_sem_post, Cvoid, (Ptr{Cvoid},), fixed.go)
    # Julia 1.5 sees an interrupt only when something else wakes it: a clock does, often enough for
    # a person's Ctrl-C. The clock wakes this task, so that this task gets the interrupt.
    clock = Timer(INTERRUPT_SECONDS; interval = INTERRUPT_SECONDS)
    clock.cond = worker.done.cond
    caught = nothing
    while unsafe_load(field_ptr(job, Val(:finished))) == 0
        try
            wait(worker.done)
        catch exception
            # The exception that the clock of an earlier call throws when it is closed.
            exception isa EOFError && continue
            # The call still uses the caller's memory: never leave before it has ended.
            caught === nothing && on_interrupt()
            caught = exception
        end
    end
    close(clock)
    Threads.atomic_fence()
    result = unsafe_load(field_ptr(job, Val(:result)))
    lock(() -> push!(IDLE_WORKERS, worker), IDLE_LOCK)
    caught === nothing || throw(caught)
    return Int32(result)
end

# Like `check`, for calls that wait; `call` takes an error last.
function check_waiting(on_interrupt, call, arguments...)
    error = Ref{Ptr{Cvoid}}(C_NULL)
    status = GC.@preserve error waiting(on_interrupt, call, arguments...,
                                        Base.unsafe_convert(Ptr{Ptr{Cvoid}}, error))
    status < 0 && throw(take_error(status, error[]))
    return status
end
