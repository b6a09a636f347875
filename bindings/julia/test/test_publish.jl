# Whole tables, which the library serves by itself; tickets, metadata of batches, figures.

@testset "all tables of an iterator are published, and an iterator is gone through once" begin
    serving() do server, uri
        gone_through = Ref(0)
        parts = ((gone_through[] += 1; Dipc.with_metadata((a = [n, n + 1],), ["part" => "$n"])) for n in 1:3)
        Dipc.publish(server, "parts", parts)
        @test gone_through[] == 3
        for _ in 1:2
            batches = collect(Dipc.get(uri, "parts"))
            @test map(batch -> collect(batch.a), batches) == [[1, 2], [2, 3], [3, 4]]
            @test map(Dipc.metadata, batches) == [["part" => "1"], ["part" => "2"], ["part" => "3"]]
        end
        @test gone_through[] == 3
        # The server knows all of it.
        described = Dipc.describe(uri, "parts")
        @test described.rows == 6 && described.batches == 3
        @test status(() -> Dipc.publish(server, "parts", (a = [1],))) == Dipc.ERR_ALREADY_EXISTS
        @test thrown(() -> Dipc.publish(server, "none", Dipc.with_metadata(3, "k" => "v"))) isa ArgumentError
        # A table of the same memory takes its place, with metadata or without.
        Dipc.replace(server, "parts", Dipc.with_metadata((a = [7],), "k" => "v"))
        @test Dipc.metadata(only(collect(Dipc.get(uri, "parts")))) == ["k" => "v"]
        Dipc.replace(server, "parts", (a = [8],))
        @test isempty(Dipc.metadata(only(collect(Dipc.get(uri, "parts")))))
    end
    @test comes_true(() -> (collect_garbage(); Dipc.collect_exports() == 0))
end

@testset "metadata go with the batches of providers and puts" begin
    serving() do server, uri
        Dipc.serve(() -> (Dipc.with_metadata((a = [n],), "n" => "$n") for n in 1:2), server, "made")
        @test map(Dipc.metadata, collect(Dipc.get(uri, "made"))) == [["n" => "1"], ["n" => "2"]]
        came = []
        Dipc.serve(server) do request
            for batch in Dipc.source(request)
                push!(came, Dipc.metadata(batch))
            end
        end
        Dipc.open_put(uri, "any", Dipc.Schema([Dipc.Field("a", "l")])) do put
            write(put, Dipc.with_metadata((a = [1],), ["x" => "ä", "y" => ""]))
            write(put, (a = [2],))
        end
        @test came == [["x" => "ä", "y" => ""], []]
    end
end

@testset "tickets of a server" begin
    serving() do server, uri
        @test isempty(Dipc.tickets(server))
        Dipc.serve(server, "b", (a = [1],))
        Dipc.serve(() -> (a = [1],), server, b"\xff\x00")
        Dipc.publish(server, "a", [(a = [1],)])
        Dipc.serve(request -> (a = [1],), server)
        @test Dipc.tickets(server) == [b"a", b"b", b"\xff\x00"]
        Dipc.withdraw(server, "a")
        @test Dipc.tickets(server) == [b"b", b"\xff\x00"]
    end
end

# The struct that C writes has no names: dipc.h says which member is where.
@testset "the members of dipc_server_stats" begin
    header = read(joinpath(ROOT, "include", "dipc.h"), String)
    text = match(r"typedef struct dipc_server_stats \{(.*?)\} dipc_server_stats;"s, header)[1]
    members = [(m[1], Symbol(m[2]), m[3]) for m in eachmatch(r"^  (uint64_t|struct dipc_histogram) (\w+)(\[\w+\])?;"m, text)]
    @test Tuple(m[2] for m in members) == Dipc.FIGURE_NAMES
    kind(m) = m[1] == "uint64_t" ? m[3] === nothing ? :number : :by_status : :histogram
    @test map(kind, members) == [fill(:number, length(Dipc.FIGURE_NUMBERS));
        fill(:by_status, length(Dipc.FIGURES_BY_STATUS)); fill(:histogram, length(Dipc.FIGURE_HISTOGRAMS));
        fill(:number, length(Dipc.LATER_NUMBERS))]
    number(name) = parse(Int, match(Regex("#define $name (\\d+)"), header)[1])
    @test Dipc.STATS_STATUSES == number("DIPC_STATS_STATUSES")
    @test Dipc.HISTOGRAM_BUCKETS == number("DIPC_HISTOGRAM_BUCKETS")
end

@testset "figures of a server, of a label, and of the process" begin
    before = Dipc.figures()
    serving(max_streams = 8) do server, uri
        Dipc.publish(server, "numbers", ((n = collect(1:1000),) for _ in 1:3))
        Dipc.serve(server) do request
            Dipc.set_label(request, "mine")
            error("not today")
        end
        foreach(_ -> collect(Dipc.get(uri, "numbers")), 1:2)
        @test status(() -> Dipc.get(uri, "else")) == Dipc.ERR_PROVIDER
        @test comes_true(() -> sum(values(Dipc.figures(server).requests_failed)) == 1)
        all_of_it = Dipc.figures(server)
        @test all_of_it.requests_get == 3 && all_of_it.requests_finished == 2 && all_of_it.rows_sent == 6000
        @test all_of_it.requests_failed == Dict(Dipc.ERR_PROVIDER => 1) && isempty(all_of_it.requests_refused)
        @test all_of_it.rows_sent == Dipc.stats(server).rows
        @test all_of_it.rows_read == Dipc.stats(server).rows_read == 6000
        bytes = all_of_it.request_bytes
        @test bytes.count == sum(bytes.buckets) == 3 && bytes.sum >= 48_000
        @test issorted(bytes.bounds) && bytes.bounds[1] == 256 && bytes.bounds[end] == typemax(UInt64)
        numbers, mine = Dipc.figures(server, "numbers"), Dipc.figures(server, "mine")
        @test numbers.batches_sent == 6 && numbers.requests_finished == 2 && isempty(numbers.requests_failed)
        @test mine.batches_sent == 0 && mine.requests_failed == Dict(Dipc.ERR_PROVIDER => 1)
        @test status(() -> Dipc.figures(server, "nobody's")) == Dipc.ERR_NOT_FOUND
        @test Dipc.figures().rows_sent - before.rows_sent == 6000
    end
    # The figures of a closed server still count.
    @test Dipc.figures().rows_sent - before.rows_sent == 6000
end
