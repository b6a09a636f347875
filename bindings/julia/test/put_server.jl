# The server of test_put.jl, in a process of its own: prints its URIs, and serves until its input ends.

import Dipc

const TOLD = Channel{String}(100)

function take(request)
    if Dipc.ticket(request) == b"garbage"
        GC.gc()
        return (n = [1],)
    end
    Dipc.verb(request) === :get && return (told = [Base.take!(TOLD)],)
    Dipc.verb(request) === :put || error("not asked for")
    ticket = String(Dipc.ticket(request))
    if ticket == "refuse"
        @assert string(Dipc.source_schema(request)) == "Dipc.Schema(n: l)"
        throw(Dipc.DipcError(Dipc.ERR_PERMISSION, "not this one"))
    end
    ticket == "nothing" && return
    Dipc.add_headers(request, Dipc.headers(request))
    rows = batches = 0
    try
        for batch in Dipc.source(request)
            @assert batch.n == rows+1:rows+length(batch.n)
            rows += length(batch.n)
            batches += 1
            ticket == "half" && batches == 3 && return
            ticket == "results" && Dipc.result(request, batches, "row $rows")
        end
    catch exception
        ticket == "left" && put!(TOLD, exception isa Dipc.DipcError ? exception.text : "other")
        rethrow()
    end
    Dipc.result(request, batches, "$rows rows")
    return
end

Dipc.Server(ARGS[1]) do server
    Dipc.serve(take, server)
    println(Dipc.uri(server))
    println(Dipc.listen(server, "tcp://127.0.0.1:0"))
    flush(stdout)
    read(stdin)
end
