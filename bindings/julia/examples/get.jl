# Prints a table: julia --project=bindings/julia bindings/julia/examples/get.jl URI TICKET
import Dipc

try
    for batch in Dipc.get(ARGS[1], ARGS[2])
        for row in 1:Dipc.nrows(batch)
            println(join((column[row] for column in batch), "\t"))
        end
    end
catch exception
    exception isa Dipc.DipcError || rethrow()
    println(stderr, exception.text)
    exit(1)
end
