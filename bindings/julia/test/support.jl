# What the tests share.

using Dates, Test
import Dipc

const START = time()
const ROOT = normpath(joinpath(@__DIR__, "..", "..", ".."))
include(joinpath(ROOT, "bindings", "matrix", "julia", "streamfile.jl"))
include("canonical.jl")

# The command and the Python that the package is compared with; if one is not there the tests that
# need it are skipped, and say so.
from_prefix(path) = haskey(ENV, "DIPC_PREFIX") ? joinpath(ENV["DIPC_PREFIX"], path) : ""
const COMMAND = get(ENV, "DIPC_COMMAND", from_prefix("bin/dipc"))
const PYTHON = get(ENV, "DIPC_PYTHON", joinpath(ROOT, ".tools", "venv", "bin", "python"))
const CANONICAL = joinpath(@__DIR__, "canonical.py")

skipped(what, why) = println("skipped: $what, for $why")

# Every stream file: the vectors of the repository, and Arrow's golden streams where they are.
function stream_files()
    vectors = joinpath(ROOT, "tests", "vectors")
    golden = joinpath(get(ENV, "DIPC_GOLDEN", joinpath(ROOT, "..", "shared", "golden")), "streams")
    files = [joinpath(vectors, name) for name in readdir(vectors) if endswith(name, ".arrows")]
    isdir(golden) || skipped("the golden streams", "there is no folder $golden (DIPC_GOLDEN names another)")
    isdir(golden) && append!(files, joinpath(golden, name) for name in readdir(golden))
    return filter(file -> occursin(get(ENV, "DIPC_TEST_FILES", ""), file), files)
end

# An address of this process alone.
const COUNT = Ref(0)
address() = "shm:@dipc-julia-test-$(getpid())-$(COUNT[] += 1)"

# Serves for the time of `use(server, uri)`.
function serving(use; options...)
    uri = address()
    Dipc.Server(server -> use(server, uri), uri; options...)
end

# What a call throws.
function thrown(call)
    try
        call()
    catch exception
        return exception
    end
    return nothing
end
status(call) = (exception = thrown(call); exception isa Dipc.DipcError ? exception.status : exception)

# Waits for something that other tasks and threads bring about. The time only bounds a failing test.
function comes_true(condition)
    deadline = time() + 120
    while !condition()
        time() > deadline && return false
        sleep(0.01)
    end
    return true
end

# A whole collection, finalizers included.
collect_garbage() = (GC.gc(true); GC.gc(true))

# Runs Julia with the package, for programs of their own.
const PACKAGE = dirname(@__DIR__)
const JULIA = `$(Base.julia_cmd()[1]) --startup-file=no -O0 --project=$PACKAGE`
