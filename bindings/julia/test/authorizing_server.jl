# The server of test_authorizing.jl, in a process of its own: prints its URIs, and serves until its
# input ends. ARGS[2] is a folder with certificates, or empty.

import Dipc

function decide(request)
    ticket = String(Dipc.ticket(request))
    Dipc.verb(request) === :get && startswith(ticket, "secret") &&
        throw(Dipc.DipcError(Dipc.ERR_NOT_FOUND, "not for you"))
    ticket == "fails" && error("out of paper")
    ticket == "busy" && throw(Dipc.DipcError(Dipc.ERR_BUSY, "come again"))
    ticket == "wrong" && return 7
    # Others are asked about meanwhile.
    ticket == "slow" && sleep(0.5)
    certificate = Dipc.peer(request).certificate
    certificate === nothing || return certificate.subject
    return haskey(Dipc.headers(request), "user") ? Dipc.headers(request)["user"] : nothing
end

function handle(request)
    if Dipc.verb(request) === :put
        rows = sum(batch -> length(batch.n), Dipc.source(request))
        Dipc.result(request, 1, "$(Dipc.principal(request)) $rows")
    end
    certificate = Dipc.peer(request).certificate
    shown = certificate === nothing ? "none" :
        join([certificate.subject; certificate.names; string(length(certificate.fingerprint))], " ")
    return (principal = [something(Dipc.principal(request), missing)], certificate = [shown])
end

const FILES = isempty(ARGS[2]) ? nothing : name -> joinpath(ARGS[2], name)
const OPTIONS = FILES === nothing ? NamedTuple() :
    (tls = (FILES("server.pem"), FILES("server.key")), tls_client_ca = FILES("ca.pem"))

Dipc.Server(ARGS[1]; authorizer = decide, OPTIONS...) do server
    for ticket in ("a", "b", "secret plans")
        Dipc.serve(server, ticket, (n = [1, 2],))
    end
    Dipc.serve(handle, server)
    println(Dipc.uri(server))
    println(FILES === nothing ? "" : Dipc.listen(server, "tls://127.0.0.1:0"))
    flush(stdout)
    # Each line asks for the certificates to be read again.
    for _ in eachline(stdin)
        Dipc.reload_tls(server)
        println("again")
        flush(stdout)
    end
end
