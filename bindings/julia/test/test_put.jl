# Tables that a client sends, to a server in a process of its own.

function with_put_server(use)
    script = joinpath(@__DIR__, "put_server.jl")
    server = open(`$JULIA $script $(address())`, "r+")
    uris = [readline(server), readline(server)]
    @test startswith(uris[1], "shm:") && startswith(uris[2], "tcp:")
    try
        foreach(use, uris)
    finally
        close(server.in)
        @test success(server)
    end
end

const PUT_SCHEMA = Dipc.Schema([Dipc.Field("n", "l"; nullable = false)])
put_batch(i) = (n = collect(500i+1:500i+500),)
put_batches(count) = (put_batch(i) for i in 0:count-1)
told(uri) = only(only(Dipc.get(uri, "told")).told)

function tables_cross(uri)
    batches, results = Dipc.put(uri, "whole", put_batches(40); deadline = 60, compression = :lz4)
    @test batches == 40 && only(results).batches == 40 && String(only(results).bytes) == "20000 rows"
    @test first(Dipc.put(uri, "one", put_batch(0))) == 1

    Dipc.open_put(uri, "results", PUT_SCHEMA; headers = ["user" => "me"], body = :packed) do put
        for i in 0:2
            write(put, put_batch(i))
            result = Dipc.next_result(put)
            @test result.batches == i + 1 && String(result.bytes) == "row $(500i + 500)"
        end
        @test Dipc.stats(put).batches == 3
        @test Dipc.finish(put) == 3
        @test Dipc.headers(put)["user"] == "me"
        @test status(() -> write(put, put_batch(3))) == Dipc.ERR_INVALID_ARGUMENT
    end

    # A task reads results while another writes; the end of the block ends the table.
    reader = nothing
    Dipc.open_put(uri, "results", PUT_SCHEMA) do put
        reader = @async begin
            count = 0
            while Dipc.next_result(put) !== nothing
                count += 1
            end
            count
        end
        foreach(i -> write(put, put_batch(i)), 0:39)
        Dipc.finish(put)
        @test fetch(reader) == 41
    end
    @test comes_true(() -> Dipc.collect_exports() == 0)
end

function tables_fail(uri)
    endless = (put_batch(i) for i in 0:1<<40)
    fails(name) = thrown(() -> Dipc.put(uri, name, endless))
    @test fails("refuse").status == Dipc.ERR_PERMISSION && occursin("not this one", fails("refuse").text)
    @test fails("half").status == Dipc.ERR_PROVIDER && occursin("before its end", fails("half").text)
    @test fails("nothing").status == Dipc.ERR_UNSUPPORTED && occursin("Dipc.source", fails("nothing").text)

    # What the client throws fails the table; so does a put that is closed.
    @test thrown(() -> Dipc.put(uri, "left", (i < 3 ? put_batch(i) : throw(ErrorException("out of ink")) for i in 0:3))) isa
          ErrorException
    @test occursin("out of ink", told(uri))
    put = Dipc.open_put(uri, "left", PUT_SCHEMA)
    write(put, put_batch(0))
    waiting = @async status(() -> Dipc.next_result(put))
    sleep(0.05)
    close(put)
    @test fetch(waiting) in (Dipc.ERR_CANCELLED, Dipc.ERR_DISCONNECTED)
    @test !isempty(told(uri))
    @test status(() -> write(put, put_batch(1))) == Dipc.ERR_STOPPED
    @test comes_true(() -> Dipc.collect_exports() == 0)
end

function arenas_are_lent(uri)
    startswith(uri, "shm:") || return
    arena = Dipc.Arena()
    Dipc.open_put(uri, "whole", PUT_SCHEMA) do put
        for i in 0:9
            # Bodies of up to 4 KiB are sent.
            n = Dipc.alloc(arena, Int, 5000)
            n .= 5000i+1:5000i+5000
            write(put, (n = n,))
        end
        Dipc.finish(put)
        figures = Dipc.stats(put)
        @test figures.bytes_lent > 0 && figures.bytes_copied == figures.bytes_sent == 0
    end
    # The server's collector lets go of the batches.
    @test comes_true(() -> (collect(Dipc.get(uri, "garbage")); Dipc.collect_exports() == 0))
end

with_put_server() do uri
    tables_cross(uri)
    tables_fail(uri)
    arenas_are_lent(uri)
end
