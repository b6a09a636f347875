"""
    Dipc

Moves Apache Arrow tables between processes without serialising them: the Julia side of libdipc.

    server = Dipc.Server("shm:@demo")                         # in one process
    Dipc.serve(server, "numbers", (id = 1:3, name = ["one", "two", missing]))

    for batch in Dipc.get("shm:@demo", "numbers")             # in another
        println(sum(batch.id))
    end

See [`Dipc.get`](@ref), [`Dipc.Server`](@ref), [`Dipc.serve`](@ref), [`Dipc.DipcError`](@ref). The
package calls libdipc's C interface (`dipc.h`) and has no part of the protocol itself. Nothing is
exported: names are used with `Dipc.` before them.
"""
module Dipc

using Dates
import FileWatching
using Libdl
import Logging

# Each file needs what comes before it.
include("library.jl")    # finding libdipc, its functions
include("status.jl")     # statuses, DipcError
include("abi.jl")        # Arrow's C structs
include("worker.jl")     # calls that wait, off Julia's own threads
include("readable.jl")   # waiting for a descriptor in Julia's event loop
include("handles.jl")    # handles, options, cancellation
include("headers.jl")    # headers of requests and answers
include("values.jl")     # values that Julia has no type for
include("text.jl")       # views of text
include("schema.jl")     # fields, schemas, Arrow's format strings
include("column.jl")     # memory of a batch, and who keeps it
include("vectors.jl")    # vectors over it: flat types
include("nested.jl")     # vectors over it: nested and encoded types
include("import.jl")     # a C array as vectors
include("batch.jl")      # batches: named columns
include("device.jl")     # batches on a device
include("arena.jl")      # memory that can be lent
include("infer.jl")      # the Arrow type of a Julia type
include("build.jl")      # vectors as buffers: flat types
include("compose.jl")    # vectors as buffers: nested and encoded types
include("export.jl")     # buffers as C structs, and when they are given back
include("client.jl")     # Client, get, Stream
include("pending.jl")    # requests that wait in Julia's event loop
include("describe.jl")   # describe, list, Description
include("tables.jl")     # what can be served; Tables.jl
include("server.jl")     # Server
include("figures.jl")    # all its figures
include("serve.jl")      # serve, publish
include("answer.jl")     # the tasks that serve
include("authorize.jl")  # the decision about each request
include("put.jl")        # Put, put
include("exchange.jl")   # exchange
include("log.jl")        # the log

function __init__()
    watch_for_tables()
    # In reverse order: so the log also has what servers log at their end.
    atexit(stop_log)
    atexit(stop_open_servers)
    return
end

end
