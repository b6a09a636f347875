# All tests of the package: julia --project=bindings/julia bindings/julia/test/runtests.jl [NAME...]
# bindings/julia/test.sh finds Julia, the library and what the tests compare with.

include("support.jl")

const PARTS = ["library", "values", "streams", "serving", "options", "publish", "requests", "selecting", "authorizing", "put", "exchange", "log", "loops", "ending", "memory",
               "tables", "examples"]
const CHOSEN = isempty(ARGS) ? PARTS : ARGS
@testset "Dipc" begin
    for part in CHOSEN
        @testset "$part" begin
            include("test_$part.jl")
        end
    end
end
