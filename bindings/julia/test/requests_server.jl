# The server of test_requests.jl, in a process of its own: prints its URIs, and serves until its
# input ends.

import Dipc
using Dates

# Answers with what the request said: its headers come back, and a few more.
function handle(request)
    ticket = String(Dipc.ticket(request))
    Dipc.verb(request) === :describe && return described(ticket)
    Dipc.verb(request) === :list && return Dipc.Description(endpoints = [
        Dipc.Endpoint(ticket * "1"; rows = 4), Dipc.Endpoint(ticket * "2"; uris = "shm:@there")])
    Dipc.add_headers(request, Dipc.headers(request))
    left = Dipc.time_left(request)
    said = left === nothing ? "forever" : Nanosecond(0) < left <= Minute(10) ? "minutes" : "other"
    Dipc.add_headers(request, ["left" => said, "ticket" => ticket])
    if ticket == "who"
        peer = Dipc.peer(request)
        Dipc.add_headers(request, [string(name) => string(getfield(peer, name)) for name in fieldnames(Dipc.Peer)])
        Dipc.add_headers(request, "log" => string(peer))
    end
    ticket == "refuse" && throw(Dipc.DipcError(Dipc.ERR_PERMISSION, "not today"))
    if ticket == "slow"
        while !Dipc.iscancelled(request)
            sleep(0.01)
        end
    end
    ticket == "late" && return failing(request)
    return (a = [1, 2, 3],)
end

# A batch, and then a failure with a header of its own.
failing(request) = Channel() do batches
    put!(batches, (a = [1],))
    Dipc.add_headers(request, "why" => UInt8[0xff, 0x00])
    error("too late")
end

function described(ticket)
    ticket == "unknown" && throw(Dipc.DipcError(Dipc.ERR_NOT_FOUND, "never heard of it"))
    ticket == "table instead" && return (a = [1],)
    schema = Dipc.Schema([Dipc.Field("a", "l"), Dipc.Field("b", "u")]; metadata = ["k" => "v"])
    return Dipc.Description(schema = schema, rows = 10, batches = 3, endpoints = [
        Dipc.Endpoint(ticket; rows = 4),
        Dipc.Endpoint(b"\xff\x00"; uris = ["shm:@there", "tcp://there:1"], rows = 6, bytes = 100)])
end

Dipc.Server(ARGS[1]) do server
    Dipc.serve(server, "table", (a = [1, missing], b = ["x", "y"]))
    Dipc.serve(() -> ((a = [n],) for n in 1:3), server, "made")
    Dipc.set_description(server, "made", Dipc.Description(rows = 3))
    Dipc.serve(() -> (a = [1],), server, "silent")
    Dipc.serve(handle, server)
    println(Dipc.uri(server))
    println(Dipc.listen(server, "tcp://127.0.0.1:0"))
    flush(stdout)
    read(stdin)
end
