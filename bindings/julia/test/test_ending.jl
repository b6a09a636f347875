# How streams end before their end: failures, cancellation, interrupts, and peers that die.

using FileWatching

endless(server) = Dipc.serve(() -> Iterators.repeated((a = collect(1:1000),)), server, "endless")

@testset "an exception of a provider is the stream's error" begin
    serving() do server, uri
        Dipc.serve(() -> error("no such luck"), server, "fails")
        exception = thrown(() -> Dipc.get(uri, "fails"))
        @test exception.status == Dipc.ERR_PROVIDER && occursin("no such luck", exception.text)
        Dipc.serve(() -> ((a = [n < 2 ? n : error("too late")],) for n in 1:2), server, "later")
        stream = Dipc.get(uri, "later")
        @test iterate(stream)[1].a == [1]
        @test occursin("too late", thrown(() -> iterate(stream)).text)
        Dipc.serve(() -> throw(Dipc.DipcError(Dipc.ERR_PERMISSION, "not for you")), server, "mine")
        @test status(() -> Dipc.get(uri, "mine")) == Dipc.ERR_PERMISSION
        # The server goes on.
        Dipc.serve(server, "works", (a = [1],))
        @test Dipc.table(Dipc.get(uri, "works")).a == [1]
    end
end

@testset "wrong arguments" begin
    serving() do server, uri
        @test thrown(() -> Dipc.serve(server, "t", 7)) isa ArgumentError
        @test thrown(() -> Dipc.serve(server, 7, (a = [1],))) isa ArgumentError
        @test thrown(() -> Dipc.serve(server, "t", (a = [1, 2], b = [1]))) isa ArgumentError
        @test thrown(() -> Dipc.serve(server, "t", (a = [sin],))) isa ArgumentError
        @test thrown(() -> Dipc.get(uri, "t"; validation = :maybe)) isa ArgumentError
        @test status(() -> Dipc.get("nonsense", "t")) == Dipc.ERR_INVALID_URI
        @test status(() -> Dipc.get(address(), "t")) == Dipc.ERR_UNREACHABLE
        @test status(() -> Dipc.get(uri, "t")) == Dipc.ERR_NOT_FOUND
        @test status(() -> Dipc.Server(uri)) == Dipc.ERR_ADDRESS_IN_USE
    end
end

@testset "a server whose task has failed tells its clients" begin
    server = Dipc.Server(address())
    Dipc.serve(server, "numbers", (a = [1],))
    gate = Channel{Nothing}(1)
    Dipc.serve(() -> (take!(gate); (a = [1],)), server, "stuck")
    uri = Dipc.uri(server)
    @test Dipc.table(Dipc.get(uri, "numbers")).a == [1]
    asked = @async status(() -> Dipc.get(uri, "stuck"))
    while server.active == 0
        yield()
    end
    schedule(server.task, ErrorException("no such luck"); error = true)
    @test occursin("no such luck", sprint(showerror, thrown(() -> wait(server))))
    ends = (Dipc.ERR_STOPPED, Dipc.ERR_DISCONNECTED)
    @test fetch(asked) in ends
    @test status(() -> Dipc.get(uri, "numbers")) in (Dipc.ERR_UNREACHABLE, ends...)
    @test occursin("no such luck", sprint(showerror, thrown(() -> close(server))))
    put!(gate, nothing)
    while server.active > 0
        yield()
    end
end

@testset "use after close" begin
    server = Dipc.Server(address())
    client = Dipc.Client()
    foreach(close, (server, client, server, client))
    @test status(() -> Dipc.serve(server, "t", (a = [1],))) == Dipc.ERR_STOPPED
    @test status(() -> Dipc.get(address(), "t"; client = client)) == Dipc.ERR_STOPPED
    serving() do server, uri
        endless(server)
        stream = Dipc.get(uri, "endless")
        batch = first(stream)
        close(stream)
        @test status(() -> iterate(stream)) == Dipc.ERR_CANCELLED
        @test sum(batch.a) == 500500 # batches outlive their stream
    end
end

@testset "connections without a stream" begin
    serving() do server, uri
        Dipc.serve(_ -> (a = [1],), server, "one")
        for (options, kept) in ((idle_timeout = nothing, max_idle = 1) => 1, (max_idle = 0,) => 0,
                                (idle_timeout = 0,) => 0)
            client = Dipc.Client(; options...)
            foreach(identity, Dipc.get(uri, "one"; client = client))
            # The arrays of the stream keep theirs.
            @test comes_true(() -> (GC.gc(); Dipc.stats(server).connections == kept))
            close(client)
            @test comes_true(() -> Dipc.stats(server).connections == 0)
        end
    end
end

@testset "cancellation" begin
    @test_throws Dipc.DipcError Dipc.Server(; max_providers = 0)
    serving() do server, uri
        endless(server)
        token = Dipc.Cancel()
        stream = Dipc.get(uri, "endless"; cancel = token)
        foreach(identity, Iterators.take(stream, 3))
        Dipc.cancel(token)
        @test status(() -> foreach(identity, stream)) == Dipc.ERR_CANCELLED
        @test status(() -> Dipc.get(uri, "endless"; cancel = token)) == Dipc.ERR_CANCELLED
        # Also of a call that waits; the server learns of it. The stream before counts as active until it has
        # learned of that one.
        @test comes_true(() -> Dipc.stats(server).streams_active == 0)
        before, told, after = nothing, nothing, nothing
        Dipc.serve(server, "waits") do request
            fd = Dipc.cancel_fd(request)
            before = FileWatching.poll_fd(fd, 0; readable = true).readable
            told = FileWatching.poll_fd(fd, 60; readable = true).readable
            after = Dipc.iscancelled(request)
            (a = [1],)
        end
        token = Dipc.Cancel()
        task = @async status(() -> Dipc.get(uri, "waits"; cancel = token))
        # Not before the provider has looked.
        @test comes_true(() -> before !== nothing)
        Dipc.cancel(token)
        @test fetch(task) == Dipc.ERR_CANCELLED
        @test comes_true(() -> after !== nothing)
        @test (before, told, after) == (false, true, true)
    end
end

@testset "an interrupt ends a wait" begin
    serving() do server, uri
        forever = Base.Event()
        Dipc.serve(() -> (wait(forever); (a = [1],)), server, "never")
        task = @async thrown(() -> Dipc.get(uri, "never"))
        @test comes_true(() -> Dipc.stats(server).streams_active > 0)
        schedule(task, InterruptException(); error = true)
        @test fetch(task) isa InterruptException
        notify(forever)
    end
end

@testset "Ctrl-C in a program that waits" begin
    serving() do server, uri
        forever = Base.Event()
        Dipc.serve(() -> (wait(forever); (a = [1],)), server, "never")
        # The first get waits, too, and so compiles what the second one needs: an interrupt is for a
        # program that waits, and Julia 1.5 does not always survive one in its compiler.
        Dipc.serve(() -> (sleep(2); (a = [1],)), server, "first")
        program = "import Dipc; Base.exit_on_sigint(false)
            Dipc.table(Dipc.get(\"$uri\", \"first\"))
            try Dipc.get(\"$uri\", \"never\") catch e println(typeof(e)) end"
        process = open(`$JULIA -e $program`, "r")
        @test comes_true(() -> Dipc.stats(server).streams_served == 2)
        kill(process, Base.SIGINT)
        @test readline(process) == "InterruptException"
        notify(forever)
        @test success(process)
    end
end

@testset "a server that is killed" begin
    uri = address()
    program = "import Dipc; server = Dipc.Server(\"$uri\")
        Dipc.serve(() -> Iterators.repeated((a = collect(1:1000),)), server, \"endless\")
        println(1); flush(stdout); wait(server)"
    process = open(`$JULIA -e $program`, "r")
    @test readline(process) == "1"
    stream = Dipc.get(uri, "endless")
    batch = first(stream)
    kill(process, Base.SIGKILL)
    @test status(() -> foreach(identity, stream)) == Dipc.ERR_DISCONNECTED
    @test sum(batch.a) == 500500 # what was taken stays
end

@testset "a client that is killed" begin
    serving() do server, uri
        endless(server)
        program = "import Dipc; kept = []
            for batch in Dipc.get(\"$uri\", \"endless\") push!(kept, batch); println(1); flush(stdout); end"
        process = open(`$JULIA -e $program`, "r")
        @test readline(process) == "1"
        kill(process, Base.SIGKILL)
        @test comes_true(() -> Dipc.stats(server).streams_active == 0)
        @test comes_true(() -> (Dipc.drain(server); Dipc.collect_exports() == 0))
    end
end
