# Tables that a client and a server exchange, and clients that ask in Julia's event loop. The server is a
# process of its own.

import Sockets

# Answers by the ticket: each batch doubled, doubled and once more, all after the end, or an
# exception.
const EXCHANGE_SERVER = """
    import Dipc
    doubled(batch) = (n = 2 .* batch.n,)
    function answer(request)
        Dipc.verb(request) === :exchange || error("not asked for")
        ticket = String(Dipc.ticket(request))
        ticket == "refuse" && throw(Dipc.DipcError(Dipc.ERR_PERMISSION, "not this one"))
        @assert Dipc.source_schema(request).fields[1].name == "n"
        source = Dipc.source(request)
        ticket == "late" && return map(doubled, collect(source))
        Channel() do batches
            for (i, batch) in enumerate(source)
                ticket == "broken" && i == 3 && error("a torn tape")
                ticket == "early" && i == 3 && return
                put!(batches, doubled(batch))
                ticket == "twice" && put!(batches, doubled(batch))
            end
        end
    end
    Dipc.Server(ARGS[1]) do server
        Dipc.serve(answer, server; schema = Dipc.Schema([Dipc.Field("n", "l"; nullable = false)]))
        println(Dipc.uri(server))
        println(Dipc.listen(server, "tcp://127.0.0.1:0"))
        flush(stdout)
        read(stdin)
    end"""

const EXCHANGE_SCHEMA = Dipc.Schema([Dipc.Field("n", "l"; nullable = false)])
exchange_batch(i) = (n = collect(100i+1:100i+100),)

function tables_are_exchanged(uri)
    for (ticket, times) in ("once" => 1, "twice" => 2, "late" => 1)
        Dipc.exchange(uri, ticket, EXCHANGE_SCHEMA; window = (2, 1 << 20)) do put, answers
            writer = @async begin
                foreach(i -> write(put, exchange_batch(i)), 0:39)
                Dipc.finish(put)
            end
            @test sum(sum(batch.n) for batch in answers) == times * sum(2:2:8000)
            @test fetch(writer) == 40
            @test Dipc.schema(answers) == EXCHANGE_SCHEMA
        end
    end
    # One task writes and reads in turn. Answers can still be read after the end of the put.
    put, answers = Dipc.exchange(uri, "once", EXCHANGE_SCHEMA)
    @test occursin("open", sprint(show, answers))
    write(put, exchange_batch(0))
    @test Dipc.schema(answers) == EXCHANGE_SCHEMA
    @test iterate(answers)[1].n == 2:2:200
    write(put, exchange_batch(1))
    @test Dipc.finish(put) == 2
    close(put)
    @test iterate(answers)[1].n == 202:2:400
    @test iterate(answers) === nothing
    @test comes_true(() -> Dipc.collect_exports() == 0)
end

function exchanges_fail(uri)
    refused = thrown(() -> Dipc.exchange(uri, "refuse", EXCHANGE_SCHEMA))
    @test refused.status == Dipc.ERR_PERMISSION && occursin("not this one", refused.text)
    put, answers = Dipc.exchange(uri, "broken", EXCHANGE_SCHEMA)
    foreach(i -> write(put, exchange_batch(i)), 0:2)
    broken = thrown(() -> collect(answers))
    @test broken.status == Dipc.ERR_PROVIDER && occursin("a torn tape", broken.text)
    @test status(() -> Dipc.finish(put)) == Dipc.ERR_PROVIDER
    # The server may end first.
    put, answers = Dipc.exchange(uri, "early", EXCHANGE_SCHEMA)
    foreach(i -> write(put, exchange_batch(i)), 0:2)
    @test length(collect(answers)) == 2
    close(put)
    # A table that one side leaves ends on both sides.
    put, answers = Dipc.exchange(uri, "once", EXCHANGE_SCHEMA)
    write(put, exchange_batch(0))
    waiting = @async status(() -> collect(answers))
    sleep(0.05)
    close(put)
    @test fetch(waiting) in (Dipc.ERR_CANCELLED, Dipc.ERR_DISCONNECTED)
    put, answers = Dipc.exchange(uri, "once", EXCHANGE_SCHEMA)
    close(answers)
    @test status(() -> Dipc.finish(put)) == Dipc.ERR_CANCELLED
    thrown_here = thrown(() -> Dipc.exchange((put, answers) -> error("out of ink"), uri, "once", EXCHANGE_SCHEMA))
    @test thrown_here isa ErrorException
    # The connection serves the next one.
    Dipc.exchange((put, answers) -> Dipc.finish(put), uri, "late", EXCHANGE_SCHEMA)
    @test comes_true(() -> Dipc.collect_exports() == 0)
end

let server = open(`$JULIA -e $EXCHANGE_SERVER $(address())`, "r+")
    uris = [readline(server), readline(server)]
    try
        for uri in uris
            tables_are_exchanged(uri)
            exchanges_fail(uri)
        end
    finally
        close(server.in)
        @test success(server)
    end
end

@testset "a client that connects lets other tasks run, without a thread of Julia's" begin
    # Nobody answers here.
    deaf = Sockets.listen(0)
    uri = "tcp://127.0.0.1:$(Int(Sockets.getsockname(deaf)[2]))"
    ask(use) = @async status(use)
    token = Dipc.Cancel()
    asking = [
        ask(() -> Dipc.get(uri, "t"; connect_timeout = 60, cancel = token)),
        ask(() -> Dipc.describe(uri, "t"; connect_timeout = 60, cancel = token)),
        ask(() -> Dipc.open_put(uri, "t", EXCHANGE_SCHEMA; connect_timeout = 60, cancel = token)),
        ask(() -> Dipc.exchange(uri, "t", EXCHANGE_SCHEMA; connect_timeout = 60, cancel = token)),
    ]
    late = ask(() -> Dipc.get(uri, "t"; connect_timeout = 0.2))
    interrupted = ask(() -> Dipc.get(uri, "t"; connect_timeout = 60))
    @test fetch(late) == Dipc.ERR_TIMEOUT
    @test !any(istaskdone, asking)
    schedule(interrupted, InterruptException(); error = true)
    @test fetch(interrupted) isa InterruptException
    Dipc.cancel(token)
    @test all(task -> fetch(task) == Dipc.ERR_CANCELLED, asking)
    close(deaf)
end
