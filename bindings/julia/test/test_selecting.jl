# Columns and rows of a get.

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
