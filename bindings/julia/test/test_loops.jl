# Streams wait in Julia's event loop, on both sides, without a thread for each.

threads() = length(readdir("/proc/self/task"))

# Whether the threads are too few for one more per stream. The library closes descriptors on
# threads, which end.
const STREAMS = 10
are_fewer(threads, before) = threads < before + STREAMS ÷ 2

# The server, in a process of its own. A batch of "slow" comes each 5 ms.
const LOOPS_SERVER = """
    import Dipc
    slow(n) = Channel() do batches
        for k in 1:n
            sleep(0.005)
            put!(batches, (a = collect(10k-9:10k),))
        end
    end
    Dipc.Server(ARGS[1]) do server
        Dipc.serve(() -> slow(40), server, "slow")
        Dipc.serve(() -> Iterators.repeated((a = [1],)), server, "endless")
        Dipc.serve(server, "stuck") do request
            Channel() do batches
                put!(batches, (a = [1],))
                while !Dipc.iscancelled(request)
                    sleep(0.01)
                end
            end
        end
        Dipc.serve(() -> (a = [length(readdir("/proc/self/task"))],), server, "threads")
        println(Dipc.uri(server))
        println(Dipc.listen(server, "tcp://127.0.0.1:0"))
        flush(stdout)
        read(stdin)
    end"""

function with_loops_server(use)
    server = open(`$JULIA -e $LOOPS_SERVER $(address())`, "r+")
    uris = [readline(server), readline(server)]
    try
        use(server, uris)
    finally
        close(server.in)
        wait(server)
    end
end

# A stream whose one batch was taken, and a task that waits for the next.
function waiting_task(uri; options...)
    stream = Dipc.get(uri, "stuck"; options...)
    @test iterate(stream)[1].a == [1]
    task = @async status(() -> iterate(stream))
    sleep(0.02)
    @test !istaskdone(task)
    return stream, task
end

with_loops_server() do server, uris
    @testset "many streams of one thread, over $(split(uri, ':')[1])" for uri in uris
        idle = Dipc.table(Dipc.get(uri, "threads")).a[1]
        # A request needs threads, so those exist from now on.
        streams = [Dipc.get(uri, "slow") for _ in 1:STREAMS]
        before = threads()
        tasks = [@async(Dipc.table(stream).a) for stream in streams]
        most = before
        while !all(istaskdone, tasks)
            sleep(0.01)
            most = max(most, threads())
        end
        @test all(task -> fetch(task) == 1:400, tasks)
        @test are_fewer(most, before)
        # Nor does the server have one for each.
        streams = [Dipc.get(uri, "stuck") for _ in 1:STREAMS]
        @test are_fewer(Dipc.table(Dipc.get(uri, "threads")).a[1], idle)
        foreach(close, streams)
    end

    # Rule S10.
    @testset "streams of tasks share a connection, over $(split(uri, ':')[1])" for uri in uris
        for (options, made) in ((NamedTuple(), 1), ((connections = 0,), STREAMS))
            client = Dipc.Client(; options...)
            asked = [@async(Dipc.get(uri, "stuck"; client = client)) for _ in 1:STREAMS]
            streams = fetch.(asked)
            @test Dipc.stats(client).connections_made == made
            foreach(close, streams)
            close(client)
        end
    end

    @testset "a stream that never waits lets other tasks run" begin
        fast = Dipc.get(uris[1], "endless")
        task = @async status(() -> foreach(identity, fast))
        @test Dipc.table(Dipc.get(uris[1], "slow")).a == 1:400
        @test !istaskdone(task)
        close(fast)
        @test fetch(task) == Dipc.ERR_CANCELLED
        # At whatever moment it is closed.
        for pause in 0:20
            fast = Dipc.get(uris[1], "endless")
            task = @async status(() -> foreach(identity, fast))
            @test iterate(Dipc.get(uris[1], "slow"))[1].a == 1:10
            sleep(pause / 10_000)
            close(fast)
            @test fetch(task) == Dipc.ERR_CANCELLED
        end
    end

    @testset "what ends a wait, over $(split(uri, ':')[1])" for uri in uris
        stream, task = waiting_task(uri)
        close(stream)
        @test fetch(task) == Dipc.ERR_CANCELLED
        token = Dipc.Cancel()
        _, task = waiting_task(uri; cancel = token)
        Dipc.cancel(token)
        @test fetch(task) == Dipc.ERR_CANCELLED
        task = @async status(() -> collect(Dipc.get(uri, "stuck"; deadline = 0.5)))
        @test fetch(task) == Dipc.ERR_TIMEOUT
        stream, task = waiting_task(uri)
        schedule(task, InterruptException(); error = true)
        @test fetch(task) isa InterruptException
        @test status(() -> iterate(stream)) == Dipc.ERR_CANCELLED
        # The old descriptor is not watched any more, because another stream may have its number.
        @test Dipc.table(Dipc.get(uri, "slow")).a == 1:400
    end

    @testset "Ctrl-C while a stream waits" begin
        program = "import Dipc; Base.exit_on_sigint(false)
            waits(stream) = try iterate(stream) catch e; println(typeof(e)) end
            # The first one compiles what the second one needs.
            Dipc.table(Dipc.get(\"$(uris[1])\", \"slow\"))
            stream = Dipc.get(\"$(uris[1])\", \"stuck\")
            iterate(stream)
            # That task runs while the other one waits, and an interrupt would end it as well.
            @async (sleep(0.5); println(1); flush(stdout))
            waits(stream)"
        process = open(`$JULIA -e $program`, "r")
        @test readline(process) == "1"
        sleep(0.5)
        kill(process, Base.SIGINT)
        @test readline(process) == "InterruptException"
        @test success(process)
    end

    @testset "a server that dies while streams wait" begin
        tasks = [waiting_task(uri)[2] for uri in uris]
        kill(server, Base.SIGKILL)
        @test all(task -> fetch(task) == Dipc.ERR_DISCONNECTED, tasks)
    end
end

@testset "a client that takes its time" begin
    serving() do server, uri
        Dipc.serve(() -> ((a = [n],) for n in 1:1000), server, "t")
        stream = Dipc.get(uri, "t"; window = (1, 1))
        @test [iterate(stream)[1].a[1] for _ in 1:10] == 1:10
        # The first client has no room; others are served meanwhile.
        @test Dipc.table(Dipc.get(uri, "t")).a == 1:1000
        @test Dipc.table(stream).a == 11:1000
    end
end
