# Functions that may run on a thread that is not Julia's must not allocate, because a collection
# that begins there crashes. This prints what 1000 calls of each such function allocate. Run by
# test_memory.jl.

import Dipc

# It holds a `ccall`, so that it is compiled in every mode and allocates nothing itself.
function allocated(f::Ptr{Cvoid}, p::Ptr{Cvoid})
    allocated = 0
    for _ in 1:2 # the first time things are compiled
        before = Base.gc_num()
        for _ in 1:1000
            ccall(f, Cvoid, (Ptr{Cvoid},), p)
        end
        allocated = Base.GC_Diff(Base.gc_num(), before).allocd
    end
    return allocated
end

# An array with a child and a dictionary, whose release does nothing, so that they are there each time.
function arrays(nothing_done::Ptr{Cvoid})
    parent, other, flag = (Ptr{Cvoid}(Libc.calloc(1, 256)) for _ in 1:3)
    array(n, children, dictionary, release) = Dipc.ArrowArray(0, 0, 0, 0, n, C_NULL, children, dictionary,
                                                              release, flag)
    list = Ptr{Ptr{Cvoid}}(Libc.calloc(1, sizeof(Ptr)))
    unsafe_store!(list, other)
    unsafe_store!(Ptr{Dipc.ArrowArray}(other), array(0, C_NULL, C_NULL, nothing_done))
    unsafe_store!(Ptr{Dipc.ArrowArray}(parent), array(1, list, other, C_NULL))
    return parent
end

function job()
    go, job = Libc.calloc(1, Dipc.SEMAPHORE_BYTES), Libc.calloc(1, sizeof(Dipc.Job))
    ccall(:uv_sem_init, Cint, (Ptr{Cvoid}, Cuint), go, 2000) == 0 || error("uv_sem_init failed")
    unsafe_store!(Ptr{Dipc.Job}(job), Dipc.Job(go, C_NULL, cglobal(:uv_sem_wait), cglobal(:uv_async_send),
                                               C_NULL, 0, 0, ntuple(_ -> UInt(0), 3)))
    return job
end

# A function that does nothing with its argument.
const NOTHING_DONE = cglobal(:uv_version)

println("release ", allocated(Dipc.release_function(), arrays(NOTHING_DONE)))
println("work ", allocated(Dipc.work_function(), job()))
