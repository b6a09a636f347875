# Who keeps what alive, and what is not copied.

@testset "a vector keeps its batch alive, and nothing else does" begin
    serving() do server, uri
        Dipc.serve(server, "t", ((a = collect(n:n+9999), b = string.(1:10000)) for n in 1:3))
        first_column, text = let batch = first(Dipc.get(uri, "t"))
            batch.a, batch.b[9999]
        end
        collect_garbage()
        @test first_column == 1:10000 && text == "9999"
        first_column = text = nothing
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
        let column = Dipc.lendable(arena, collect(1:10000))
            finalizer(_ -> given_back[] = true, column.block)
            Dipc.serve(server, "lent", (a = column,))
        end
        batch = only(collect(Dipc.get(uri, "lent")))
        Dipc.withdraw(server, "lent")
        collect_garbage()
        @test !given_back[] && batch.a == 1:10000
        batch = nothing
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
        let stream = Dipc.get(uri, "endless")
            @test first(stream).a == [1]
        end
        @test comes_true() do
            collect_garbage()
            Dipc.stats(server).streams_active == 0
        end
    end
end
