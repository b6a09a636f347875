# The library's log goes to Julia's Logging, though it comes on a thread that is not Julia's.

import Logging

# Keeps what it is given.
struct Kept <: Logging.AbstractLogger
    level::Logging.LogLevel
    events::Vector{NamedTuple{(:level, :text, :group, :target),Tuple{Logging.LogLevel,String,Symbol,String}}}
end
Kept(level) = Kept(level, [])
Logging.min_enabled_level(logger::Kept) = logger.level
Logging.shouldlog(logger::Kept, level, _module, group, id) = _module === Dipc && group === id
Logging.handle_message(logger::Kept, level, text, _module, group, id, file, line; target) =
    push!(logger.events, (level = level, text = text, group = group, target = target))

# Serves and fetches a table, and fails to fetch another one.
function use_the_library()
    serving() do server, uri
        Dipc.serve(server, "numbers", (n = [1, 2, 3],))
        collect(Dipc.get(uri, "numbers"))
        @test status(() -> Dipc.get(uri, "nothing of that name")) == Dipc.ERR_NOT_FOUND
    end
end

@testset "events come with their level, target and text, until the log is stopped" begin
    kept = Kept(Logging.Info)
    Dipc.set_logger(kept)
    use_the_library()
    Dipc.set_logger(nothing)
    audit = filter(event -> event.target == "dipc::audit", kept.events)
    @test !isempty(audit) && all(event -> event.level == Logging.Info && event.group === Symbol("dipc::audit"), audit)
    @test any(event -> occursin("numbers", event.text), audit)
    @test any(event -> occursin("nothing of that name", event.text), kept.events)
    @test all(event -> event.level >= Logging.Info && isvalid(event.text), kept.events)
    # The descriptor of the pipe is closed, and nothing comes any more.
    count = length(kept.events)
    use_the_library()
    @test length(kept.events) == count && Dipc.CURRENT_LOG[] === nothing
    Dipc.set_logger(nothing)
end

@testset "the level is the logger's, or what is asked for" begin
    quiet, all_of_it = Kept(Logging.Error), Kept(Dipc.Trace)
    Dipc.set_logger(quiet)
    use_the_library()
    # The second one replaces the first, which has got all of its own.
    Dipc.set_logger(all_of_it)
    use_the_library()
    Dipc.set_logger(nothing)
    @test isempty(quiet.events)
    @test Dipc.Trace in map(event -> event.level, all_of_it.events)
    some = Kept(Dipc.Trace)
    Dipc.set_logger(some; level = Logging.Debug)
    use_the_library()
    Dipc.set_logger(nothing)
    @test unique(sort(map(event -> event.level, some.events))) ⊆ [Logging.Debug, Logging.Info, Logging.Warn, Logging.Error]
    @test Logging.Debug in map(event -> event.level, some.events)
    @test map(Dipc.log_number, [Logging.LogLevel(5000), Logging.Error, Logging.Warn, Logging.LogLevel(1),
                                Logging.Info, Logging.Debug, Dipc.Trace, Logging.LogLevel(-5000)]) == [1, 1, 2, 2, 3, 4, 5, 5]
end

# The collector runs while the library's thread is in the callback.
@testset "many events, and many collections" begin
    kept = Kept(Dipc.Trace)
    Dipc.set_logger(kept)
    serving() do server, uri
        Dipc.serve(() -> ((n = [k],) for k in 1:200), server, "parts")
        for _ in 1:5
            @test length(collect(Dipc.get(uri, "parts"))) == 200
            GC.gc()
        end
    end
    Dipc.set_logger(nothing)
    @test length(kept.events) > 1000 && all(event -> startswith(event.target, "dipc"), kept.events)
end

# A logger that fails, and one that stops the log.
struct Failing <: Logging.AbstractLogger
    calls::Base.RefValue{Int}
    stops::Bool
end
Logging.min_enabled_level(::Failing) = Logging.Info
Logging.shouldlog(::Failing, arguments...) = true
function Logging.handle_message(logger::Failing, arguments...; options...)
    logger.calls[] += 1
    logger.stops && return Dipc.set_logger(nothing)
    error("no room")
end

@testset "a logger may fail, and may stop the log" begin
    for stops in (false, true)
        failing = Failing(Ref(0), stops)
        Dipc.set_logger(failing)
        use_the_library()
        @test comes_true(() -> failing.calls[] > (stops ? 0 : 1))
        @test stops == (Dipc.CURRENT_LOG[] === nothing)
        Dipc.set_logger(nothing)
    end
end

# What was logged before the end of a program is not lost, also where Julia interprets.
@testset "a program's last events, with $compile" for compile in ("yes", "min")
    program = """
        import Dipc, Logging
        Logging.global_logger(Logging.ConsoleLogger(stdout, Logging.Info))
        Dipc.set_logger()
        server = Dipc.Server("$(address())")
        Dipc.serve(server, "numbers", (n = [1],))
        collect(Dipc.get(Dipc.uri(server), "numbers"))"""
    said = read(`$JULIA --compile=$compile -e $program`, String)
    @test occursin("numbers", said) && occursin("target = \"dipc", said)
end
