# Columns, rows and filters of a get.

const SELECTED = (n = collect(1:300), word = string.(1:300))

# The same table in each form: published, of a provider in one part and in several.
function with_forms(use)
    serving() do server, uri
        Dipc.publish(server, "published", SELECTED)
        Dipc.serve(server, "whole", SELECTED)
        parts() = ((n = SELECTED.n[i:i+99], word = SELECTED.word[i:i+99]) for i in 1:100:201)
        Dipc.serve(parts, server, "parts")
        use(server, uri, ("published", "whole", "parts"))
    end
end

@testset "columns and rows that are asked for come, and no others" begin
    with_forms() do server, uri, tickets
        for ticket in tickets
            stream = Dipc.get(uri, ticket; columns = ["word"], first_row = 150, rows = 100)
            @test startswith(string(Dipc.schema(stream)), "Dipc.Schema(word: u")
            @test reduce(vcat, [collect(batch.word) for batch in stream]) == SELECTED.word[151:250]
            stream = Dipc.get(uri, ticket; columns = (:word, :n), first_row = 290)
            @test reduce(vcat, [collect(batch.n) for batch in stream]) == 291:300
            @test isempty(collect(Dipc.get(uri, ticket; rows = 0)))
            none = Dipc.get(uri, ticket; columns = String[], first_row = 50, rows = 200)
            @test sum(Dipc.nrows, none) == 200
        end
    end
end

@testset "a column that is not there is named" begin
    with_forms() do server, uri, tickets
        for ticket in tickets
            error = thrown(() -> Dipc.get(uri, ticket; columns = ["n", "price"]))
            @test error.status == Dipc.ERR_INVALID_ARGUMENT
            @test occursin("\"price\"; the table has \"n\", \"word\"", error.text)
        end
        @test status(() -> Dipc.get(uri, "whole"; columns = ["n", "n"])) == Dipc.ERR_INVALID_ARGUMENT
        @test_throws ArgumentError Dipc.get(uri, "whole"; columns = "n")
    end
end

@testset "a provider may select by itself" begin
    serving() do server, uri
        seen = []
        Dipc.serve(server, "table") do request
            push!(seen, (Dipc.columns(request), Dipc.first_row(request), Dipc.rows(request)))
            Dipc.columns(request) === nothing && return SELECTED
            Dipc.take_selection(request)
            return (word = ["its own"],)
        end
        @test Dipc.table(Dipc.get(uri, "table")).n == 1:300
        @test Dipc.table(Dipc.get(uri, "table"; columns = ["word"], first_row = 7, rows = 5)).word == ["its own"]
        @test seen == [(nothing, 0, nothing), (["word"], 7, 5)]
    end
end

# n > 3, made by pyarrow for a schema of n: int64: bytes((pyarrow.compute.field("n") >
# 3).to_substrait(schema)).hex().
const ABOVE_THREE = hex2bytes(string(
    "0a5a125868747470733a2f2f6769746875622e636f6d2f7375627374726169742d696f2f7375627374726169",
    "742f626c6f622f6d61696e2f657874656e73696f6e732f66756e6374696f6e735f636f6d70617269736f6e2e",
    "79616d6c12061a041a0267741a2a0a1c1a1a1a040a021001220a1a0812060a021200220022061a040a023803",
    "1a0a65787072657373696f6e220b0a016e12060a043a0210013a10102c2a0c416365726f2032362e302e31"))

@testset "the rows that pass a filter come, and a range counts these" begin
    with_forms() do server, uri, tickets
        for ticket in tickets
            found = Dipc.get(uri, ticket; columns = ["n"], filter = ABOVE_THREE)
            @test reduce(vcat, [collect(batch.n) for batch in found]) == 4:300
            found = Dipc.get(uri, ticket; filter = ABOVE_THREE, first_row = 146, rows = 3)
            @test reduce(vcat, [collect(batch.word) for batch in found]) == ["150", "151", "152"]
            error = thrown(() -> Dipc.get(uri, ticket; filter = codeunits("no message")))
            @test error.status == Dipc.ERR_INVALID_ARGUMENT
            @test occursin("the filter's message", error.text)
        end
        @test status(() -> Dipc.get(uri, "whole"; filter = UInt8[])) == Dipc.ERR_INVALID_ARGUMENT
        @test_throws TypeError Dipc.get(uri, "whole"; filter = "n > 3")
    end
end

@testset "a provider sees the filter, and may take it upon itself" begin
    serving() do server, uri
        seen = []
        Dipc.serve(server, "table") do request
            push!(seen, Dipc.filter(request))
            seen[end] === nothing && return SELECTED
            Dipc.take_selection(request)
            return (n = [7], word = ["its own"])
        end
        @test Dipc.table(Dipc.get(uri, "table")).n == 1:300
        @test Dipc.table(Dipc.get(uri, "table"; filter = ABOVE_THREE)).word == ["its own"]
        @test seen == [nothing, ABOVE_THREE]
    end
end
