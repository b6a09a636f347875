# Serving Julia's own tables, and fetching them.

# What a value and the view of it that comes back have in common.
comparable(x) = x
comparable(x::AbstractVector) = map(comparable, collect(x))
comparable(x::Tuple) = collect(x)
comparable(x::NamedTuple) = map(comparable, x)
comparable(x::AbstractDict) = Dict(pairs(x))

@testset "a table of every Julia type that has an Arrow type" begin
    table = (
        int = [1, 2, 3], small = Int8[1, -1, 0], half = Float16[1, 2, 3], float = [0.5, NaN, Inf],
        flag = [true, false, true], some = [1, missing, 3], none = [missing, missing, missing],
        text = ["one", "", "zwölf"], some_text = ["a", missing, nothing], symbol = [:a, :b, :c],
        bytes = [UInt8[1], UInt8[], UInt8[2, 3]], uuid = [ntuple(UInt8, 16), ntuple(UInt8, 16), ntuple(UInt8, 16)],
        date = [Date(2020, 2, 29), Date(0), Date(9999)], moment = fill(DateTime(2020, 1, 1, 2, 3, 4, 5), 3),
        time = fill(Time(1, 2, 3, 4, 5, 6), 3), span = Nanosecond.([1, 2, 3]), months = Month.([1, -2, 3]),
        decimal = [Dipc.Decimal(9, 2, n) for n in 1:3], lists = [[1, 2], Int[], [3]],
        nested = [[["x"], missing], missing, []], pair = [(1.0, 2.0) for _ in 1:3],
        struct_ = [(a = 1, b = "x"), (a = 2, b = "y"), (a = 3, b = "z")],
        some_struct = [(a = 1, b = "x"), missing, (a = 3, b = "z")],
        dict = [Dict("k" => 1), Dict{String,Int}(), Dict("l" => 2)],
        mixed = Any[1, "two", missing], interval = fill(Dipc.MonthDayNano(1, 2, 3), 3),
        zoned = fill(Dipc.Timestamp{Microsecond,Symbol("Europe/Paris")}(5), 3), range = 1:3,
    )
    serving() do server, uri
        Dipc.serve(server, "all", table)
        batch = only(collect(Dipc.get(uri, "all")))
        @test Dipc.nrows(batch) == 3 && propertynames(batch) == keys(table)
        for name in keys(table)
            column = map(value -> value === nothing ? missing : value isa Symbol ? string(value) : value, table[name])
            name == :mixed || @test isequal(map(comparable, collect(batch[name])), map(comparable, column))
        end
        @test isequal(collect(batch.mixed), [1, "two", missing])
        @test batch.int isa Dipc.Primitive{Int} && eltype(batch.some) == Union{Int,Missing}
        @test_throws ArgumentError batch.nothing_of_that_name
    end
end

import Sockets

@testset "a server listens by a socket that listens already" begin
    socket = Sockets.listen(Sockets.localhost, 0)
    fd = ccall(:dup, Cint, (RawFD,), Base._fd(socket))
    # Julia would take the connections.
    close(socket)
    server = Dipc.Server()
    Dipc.serve(server, "numbers", (n = [1, 2, 3],))
    uri = Dipc.listen_fd(server, :tcp, fd)
    @test occursin("tcp://127.0.0.1:", uri)
    @test collect(only(collect(Dipc.get(uri, "numbers"))).n) == [1, 2, 3]
    @test_throws Dipc.DipcError Dipc.listen_fd(server, :tcp, -1)
    close(server)
end

@testset "a server that drains leads elsewhere" begin
    serving() do drains, uri
        serving() do other, elsewhere
            for server in (drains, other)
                Dipc.serve(server, "table", (a = [1, 2],))
                @test Dipc.is_ready(server)
            end
            Dipc.drain(drains, elsewhere)
            @test !Dipc.is_ready(drains)
            @test Dipc.nrows(only(collect(Dipc.get(uri, "table")))) == 2
            Dipc.drain(drains)
            error = try Dipc.get(uri, "table") catch exception; exception end
            @test error isa Dipc.DipcError && occursin("the server drains", error.text)
        end
    end
end

@testset "iterators, functions and requests" begin
    serving() do server, uri
        Dipc.serve(server, "parts", [(a = [1, 2],), (a = [3, missing],)])
        @test isequal(Dipc.table(Dipc.get(uri, "parts")).a, [1, 2, 3, missing])
        asked = []
        Dipc.serve(server, b"\xff\x00") do request
            push!(asked, Dipc.ticket(request), string(Dipc.peer(request)))
            ((a = [n],) for n in 1:3)
        end
        for _ in 1:2
            @test Dipc.table(Dipc.get(uri, b"\xff\x00")).a == 1:3
        end
        @test asked[1] == [0xff, 0x00] && occursin("pid", asked[2])
        # A provider may fetch from its own server.
        Dipc.serve(() -> Dipc.get(uri, "parts"), server, "chained")
        @test length(collect(Dipc.get(uri, "chained"))) == 2
        Dipc.withdraw(server, "parts")
        @test status(() -> Dipc.get(uri, "parts")) == Dipc.ERR_NOT_FOUND
        @test status(() -> Dipc.serve(server, "chained", (a = [1],))) == Dipc.ERR_ALREADY_EXISTS
    end
end

@testset "several clients at once, more than there are threads in libuv's pool" begin
    serving() do server, uri
        n, arrived, go = 8, Ref(0), Base.Event()
        Dipc.serve(server, "slow") do
            arrived[] += 1
            arrived[] == n && notify(go)
            wait(go) # each waits until all have asked
            (a = [1, 2, 3],)
        end
        tasks = [@async(Dipc.table(Dipc.get(uri, "slow")).a) for _ in 1:n]
        @test all(task -> fetch(task) == 1:3, tasks)
    end
end

@testset "metadata of a batch, and schemas of the caller's" begin
    serving() do server, uri
        schema = Dipc.Schema([Dipc.Field("d", "i"; metadata = ["k" => "v"],
            dictionary = Dipc.Field("", "u"))]; metadata = ["table" => "yes"])
        Dipc.serve(server, "encoded", (d = ["x", "y", missing, "x"],); schema = schema)
        batch = only(collect(Dipc.get(uri, "encoded")))
        @test Dipc.schema(batch) == schema
        @test isequal(collect(batch.d), ["x", "y", missing, "x"])
        @test Dipc.levels(batch.d) == ["x", "y"] && Dipc.codes(batch.d)[[1, 2, 4]] == [0, 1, 0]
    end
end
