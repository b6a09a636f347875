# Each option reaches the library, and a value that the library refuses is an exception.

# The package has all functions of dipc.h that set options of servers, clients, gets and puts,
# except those for forms that Julia does not use.
@testset "each option of dipc.h" begin
    header = read(joinpath(ROOT, "include", "dipc.h"), String)
    pattern = r"dipc_status (dipc_(?:server|client|get|put|arena)_options_set_\w+)\("
    found = Set(Symbol(m[1]) for m in eachmatch(pattern, header))
    # Decisions are made in the pull form; parts of other servers are asked for one by one.
    other_forms = Set([:dipc_server_options_set_authorizer, :dipc_get_options_set_trusted_network])
    @test length(found) > 50
    here = filter(name -> occursin("_options_set_", string(name)), Dipc.FUNCTION_NAMES)
    @test setdiff(found, other_forms) == Set(here)
end

@testset "servers" begin
    Dipc.Server(address(); put_window = (4, 1 << 20), put_validation = :full, put_stall_timeout = 5,
                put_message_limit_bytes = 1 << 20, spin = Microsecond(10), body = :lent,
                transport = ["tcp.keepalive" => 30], max_streams = 8, max_region_bytes = 1 << 28) do server
        Dipc.serve(request -> sum(batch -> sum(batch.n), Dipc.source(request)), server)
        @test first(Dipc.put(Dipc.uri(server), "any", ((n = [k],) for k in 1:10))) == 10
    end
    for (options, error) in (
        (put_window = (0, 1),) => Dipc.ERR_INVALID_ARGUMENT,
        (transport = "pigeon.wings" => 2,) => Dipc.ERR_INVALID_ARGUMENT,
        (transport = ["tcp.keepalive" => "soon"],) => Dipc.ERR_INVALID_ARGUMENT,
    )
        @test status(() -> Dipc.Server(; options...)) == error
    end
    for options in ((body = :later,), (put_validation = :none,), (spin = -1,))
        @test thrown(() -> Dipc.Server(; options...)) isa ArgumentError
    end
end

@testset "a client that says nothing is not waited for" begin
    failed = Ref{Any}(nothing)
    serving(put_stall_timeout = 0.05) do server, uri
        Dipc.serve(server) do request
            try
                foreach(identity, Dipc.source(request))
            catch exception
                failed[] = exception
                rethrow()
            end
        end
        put = Dipc.open_put(uri, "any", Dipc.Schema([Dipc.Field("n", "l")]))
        @test comes_true(() -> failed[] !== nothing)
        @test failed[] isa Dipc.DipcError && failed[].status == Dipc.ERR_TIMEOUT
        close(put)
    end
end

@testset "networks are for those who ask" begin
    @test status(() -> Dipc.Server("tcp://0.0.0.0:0")) == Dipc.ERR_PERMISSION
    Dipc.Server("tcp://0.0.0.0:0"; allow_remote = true) do server
        Dipc.serve(server, "n", (n = [1, 2],))
        port = match(r":(\d+)", Dipc.uri(server))[1]
        @test Dipc.is_ready(server) && parse(Int, port) > 0
    end
    if Dipc.transport_error("ucx") === nothing
        @test status(() -> Dipc.Server("ucx://127.0.0.1:0")) == Dipc.ERR_PERMISSION
        close(Dipc.Server("ucx://127.0.0.1:0"; trusted_network = true, transport = "ucx.TLS" => "tcp"))
    else
        skipped("the options of ucx", Dipc.transport_error("ucx").text)
    end
end

@testset "clients and streams" begin
    @test status(() -> Dipc.Client(transport = "pigeon.wings" => 2)) == Dipc.ERR_INVALID_ARGUMENT
    client = Dipc.Client(transport = ["tcp.keepalive" => 30])
    Dipc.Server("tcp://127.0.0.1:0") do server
        Dipc.serve(() -> ((n = fill(k, 1000),) for k in 1:20), server, "parts")
        ask(; options...) = Dipc.table(Dipc.get(Dipc.uri(server), "parts"; client = client, options...)).n
        # Over several connections batches come in their order.
        whole = repeat(1:20; inner = 1000)
        @test ask(connections = 3) == ask(spin = Millisecond(1)) == ask(spin = Inf) == whole
        @test status(() -> ask(connections = 0)) == status(() -> ask(connections = 65)) == Dipc.ERR_INVALID_ARGUMENT
        # The server counts each of them, and the client those that belong together once.
        made = Dipc.stats(client)
        @test made.streams >= 3 && made.connections_idle <= made.connections_made
        @test 0 < made.connections_made <= Dipc.stats(server).connections_opened - 2
        @test thrown(() -> ask(spin = -1)) isa ArgumentError
    end
    close(client)
end
