# The guide's examples and the example programs do what they say.

@testset "the guide" begin
    guide = read(joinpath(ROOT, "docs", "guide", "julia.md"), String)
    # All blocks of one page are one program.
    code = join((m[1] for m in eachmatch(r"```julia\n(.*?)```"s, guide)), "\n")
    said = read(`$JULIA -e $code`, String)
    # The log comes last.
    printed, logged = split(said, r"(?=┌)"; limit = 2)
    @test occursin("target = \"dipc::audit\"", logged)
    @test printed == """
        3 rows, sum 6, last name missing
        $(sum(n -> n^2, 1:5000))
        "part" => "1", "part" => "2", "part" => "3"
        numbers, squares, thirds
        1.5e6
        Oslo, Rome
        10000, 10201
        ada pays 3
        ada may ask
        cities: 3, numbers: 3, prices: 1000000, squares: 5000
        1 row of id, name
        taken: 1, 3 rows are safe
        doubled: 2, 4, 6
        the server has no ticket `nothing of that name`
        [12502500, 12502500]
        """
end

@testset "the programs" begin
    uri = address()
    examples = joinpath(dirname(@__DIR__), "examples")
    server = open(`$JULIA $(joinpath(examples, "serve.jl")) $uri`, "r")
    @test startswith(readline(server), uri)
    @test read(`$JULIA $(joinpath(examples, "get.jl")) $uri weather`, String) ==
        "Oslo\t-3.5\nRome\t18.25\nLima\tmissing\n"
    @test !success(pipeline(`$JULIA $(joinpath(examples, "get.jl")) $uri nothing`; stderr = devnull))
    kill(server, Base.SIGINT)
    @test success(server)
end
