# Serves a table until Ctrl-C: julia --project=bindings/julia bindings/julia/examples/serve.jl URI
import Dipc

Base.exit_on_sigint(false)
Dipc.Server(ARGS[1]) do server
    Dipc.serve(server, "weather", (city = ["Oslo", "Rome", "Lima"], celsius = [-3.5, 18.25, missing]))
    println(Dipc.uri(server))
    flush(stdout)
    try
        wait(server)
    catch exception
        exception isa InterruptException || rethrow()
    end
end
