# Who keeps what alive, and what is not copied. Objects that shall be collected are used in separate
# functions, because the variables of a test live to its end.

@noinline function outlives_its_batch(uri)
    column, text = taken_columns(uri)
    collect_garbage()
    return column == 1:10000 && text == "9999"
end
@noinline function taken_columns(uri)
    batch = first(Dipc.get(uri, "t"))
    return batch.a, batch.b[9999]
end

@noinline function serve_lendable(server, arena, given_back)
    column = Dipc.lendable(arena, collect(1:10000))
    finalizer(_ -> given_back[] = true, column.block)
    Dipc.serve(server, "lent", (a = column,))
end
@noinline function kept_by_the_client(server, uri, given_back)
    batch = only(collect(Dipc.get(uri, "lent")))
    Dipc.withdraw(server, "lent")
    collect_garbage()
    return !given_back[] && batch.a == 1:10000
end

@noinline first_value(uri, ticket) = first(Dipc.get(uri, ticket)).a[1]

@testset "a vector keeps its batch alive, and nothing else does" begin
    serving() do server, uri
        Dipc.serve(server, "t", ((a = collect(n:n+9999), b = string.(1:10000)) for n in 1:3))
        @test outlives_its_batch(uri)
        @test comes_true() do
            collect_garbage()
            Dipc.stats(server).lent_outstanding == 0
        end
        @test comes_true(() -> (Dipc.drain(server); Dipc.collect_exports() == 0))
    end
end

@testset "a table that is served is kept until clients have given it back" begin
    serving() do server, uri
        given_back = Ref(false)
        arena = Dipc.Arena(region_bytes = 1 << 20)
        serve_lendable(server, arena, given_back)
        @test kept_by_the_client(server, uri, given_back)
        @test comes_true() do
            collect_garbage()
            given_back[]
        end
        @test comes_true(() -> Dipc.usedbytes(arena) == 0)
        close(arena)
    end
end

@testset "an arena's memory is lent where it lies" begin
    serving() do server, uri
        arena = Dipc.Arena()
        column = Dipc.lendable(arena, rand(100_000))
        Dipc.serve(server, "lent", (a = column,))
        stream = Dipc.get(uri, "lent")
        batch = only(collect(stream))
        @test batch.a == column
        @test Dipc.stats(server).bytes_copied == 0 && Dipc.stats(server).bytes_lent >= 800_000
        @test Dipc.stats(stream).bytes_lent >= 800_000
        @test Dipc.stats(server).rows == 100_000
        @test occursin("\ndipc_rows_sent_total{ticket=\"lent\"} 100000\n", Dipc.stats_text(server))
    end
    @test status(() -> Dipc.alloc(Dipc.Arena(max_bytes = 1 << 20), Int, 1 << 30)) == Dipc.ERR_OUT_OF_MEMORY
    @test thrown(() -> Dipc.alloc(Dipc.Arena(), String, 1)) isa ArgumentError
end

@testset "what is exported is not copied where it has Arrow's layout" begin
    values = rand(1000)
    node = Dipc.build(Dipc.Field("x", "g"; nullable = false), values)
    @test node.buffers[2] == pointer(values)
    array = Dipc.export_array(node)
    @test Dipc.collect_exports() >= 1
    Dipc.release_export(array)
    @test array[].array.release == C_NULL
    @test Dipc.collect_exports() == 0
end

@testset "streams that nobody closes are closed" begin
    serving() do server, uri
        Dipc.serve(() -> Iterators.repeated((a = [1],)), server, "endless")
        @test first_value(uri, "endless") == 1
        @test comes_true() do
            collect_garbage()
            Dipc.stats(server).streams_active == 0
        end
    end
end

@testset "what runs on threads of others allocates nothing, whether Julia compiles or interprets" begin
    for compile in ("min", "yes")
        script = joinpath(@__DIR__, "allocations.jl")
        @test read(`$JULIA --compile=$compile $script`, String) == "release 0\nwork 0\n"
    end
end

@testset "arrays come to where they are wanted" begin
    serving() do server, uri
        Dipc.serve(server, "t", (a = collect(1:100_000),))
        for device in (:host, :as_sent)
            stream = Dipc.get(uri, "t"; device = device)
            batch = only(collect(stream))
            @test batch.a == 1:100_000 && Dipc.device(batch) === :host
            @test (Dipc.stats(stream).bytes_staged, Dipc.stats(stream).bytes_copied_on_device) == (0, 0)
        end
        for wrong in (:floppy, (:host, 1), 7)
            @test thrown(() -> Dipc.get(uri, "t"; device = wrong)) isa ArgumentError
        end
        @test status(() -> Dipc.get(uri, "t"; device = (:cuda, -1))) == Dipc.ERR_INVALID_ARGUMENT
        nowhere = "shm:@dipc-nobody-listens-here"
        error = thrown(() -> Dipc.get(nowhere, "t"; device = (:cuda, 0)))
        # On a machine with a driver the error is that there is no server.
        @test error.status == Dipc.ERR_UNREACHABLE ||
              (error.status == Dipc.ERR_UNSUPPORTED && occursin("libcuda.so.1", sprint(showerror, error)))
    end
end
