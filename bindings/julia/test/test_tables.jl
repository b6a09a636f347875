# Tables.jl, where a program has loaded it; here a package of that name and UUID stands for it.

@test Dipc.TABLES[] === nothing
push!(LOAD_PATH, joinpath(@__DIR__, "Tables"))
import Tables

# A table of somebody else's.
struct OwnTable
    n::Int
end
Tables.istable(::Type{OwnTable}) = true
Tables.columns(table::OwnTable) = (a = 1:table.n, b = string.(1:table.n))

@testset "batches and streams are tables" begin
    @test Dipc.TABLES[] === Tables
    serving() do server, uri
        Dipc.serve(server, "own", OwnTable(3))
        stream = Dipc.get(uri, "own")
        @test Tables.istable(stream) && Tables.columnaccess(typeof(stream))
        batch = first(Tables.partitions(stream))
        @test Tables.istable(batch) && Tables.columnnames(batch) == [:a, :b]
        @test Tables.getcolumn(Tables.columns(batch), :a) == Tables.getcolumn(batch, 1) == 1:3
        @test Tables.schema(batch).types[1] == Int
        @test Tables.columns(Dipc.get(uri, "own")) == (a = [1, 2, 3], b = ["1", "2", "3"])
        # The parts of a partitioned table are the parts of the stream.
        Dipc.serve(() -> (OwnTable(n) for n in 1:2), server, "parts")
        @test Dipc.table(Dipc.get(uri, "parts")).a == [1, 1, 2]
    end
end
