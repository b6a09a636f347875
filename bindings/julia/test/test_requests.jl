# Headers and deadlines of requests, and headers of answers; handlers, descriptions and lists.

function with_requests_server(use)
    script = joinpath(@__DIR__, "requests_server.jl")
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

function headers_and_deadlines(uri)
    asked = ["traceparent" => "00-0af7-b7ad-01", "twice" => "1", "twice" => b"\xff\x00"]
    stream = Dipc.get(uri, "any query"; headers = asked, deadline = Minute(10))
    answer = Dipc.headers(stream)
    @test length(answer) == 5 && answer[1:3] == Dipc.Headers(asked)
    @test answer["traceparent"] == "00-0af7-b7ad-01"
    @test Dipc.getall(answer, "twice") == ["1", "\xff\x00"]
    @test codeunits(answer[3].second) == [0xff, 0x00]
    @test answer["left"] == "minutes" && answer["ticket"] == "any query"
    @test Dipc.table(stream).a == 1:3
    @test Dipc.headers(stream) == answer
    close(stream)
    @test status(() -> Dipc.headers(stream)) == Dipc.ERR_CANCELLED

    # A request with neither headers nor a deadline. A ticket with its own provider is not asked of
    # the handler.
    answer = Dipc.headers(Dipc.get(uri, "another"))
    @test answer == ["left" => "forever", "ticket" => "another"]
    @test isempty(Dipc.headers(Dipc.get(uri, "table"; headers = Dict("k" => "v"))))

    # With a failure come the headers that were added since the schema.
    stream = Dipc.get(uri, "late")
    @test !haskey(Dipc.headers(stream), "why")
    @test status(() -> collect(stream)) == Dipc.ERR_PROVIDER
    @test Dipc.headers(stream)["why"] == "\xff\x00"
    @test status(() -> Dipc.get(uri, "refuse")) == Dipc.ERR_PERMISSION

    error = thrown(() -> Dipc.get(uri, "slow"; deadline = 0.2))
    @test error.status == Dipc.ERR_TIMEOUT && occursin("deadline", error.text)
end

function descriptions_and_lists(uri)
    table = Dipc.describe(uri, "table")
    @test (table.rows, table.batches) == (2, 1) && table.bytes > 0
    @test table.schema == Dipc.schema(Dipc.get(uri, "table"))
    endpoint = only(table.endpoints)
    @test String(copy(endpoint.ticket)) == "table" && isempty(endpoint.uris)
    @test (endpoint.rows, endpoint.bytes) == (table.rows, table.bytes)
    @test isempty(table.headers)

    made = Dipc.describe(uri, "made")
    @test (made.schema, made.rows, made.bytes, made.batches) == (nothing, 3, nothing, nothing)
    @test only(made.endpoints).rows == 3
    silent = Dipc.describe(uri, "silent")
    @test (silent.schema, silent.rows, only(silent.endpoints).rows) == (nothing, nothing, nothing)

    # The rest is the handler's.
    far = Dipc.describe(uri, "far"; deadline = Minute(10))
    @test (far.rows, far.bytes, far.batches) == (10, nothing, 3)
    @test string(far.schema) == "Dipc.Schema(a: l, b: u)" && far.schema.metadata == ["k" => "v"]
    @test [endpoint.ticket for endpoint in far.endpoints] == [b"far", b"\xff\x00"]
    @test far.endpoints[2].uris == ["shm:@there", "tcp://there:1"]
    @test [(e.rows, e.bytes) for e in far.endpoints] == [(4, nothing), (6, 100)]
    @test thrown(() -> Dipc.describe(uri, "unknown")).text == "the server: never heard of it"
    error = thrown(() -> Dipc.describe(uri, "table instead"))
    @test error.status == Dipc.ERR_UNSUPPORTED && occursin("Dipc.Description", error.text)

    tickets(list) = map(ticket -> String(collect(ticket)), list.descriptor)
    own = Dipc.table(Dipc.list(uri))
    @test tickets(own) == ["made", "silent", "table"] && isequal(own.rows, [3, missing, 2])
    @test tickets(Dipc.table(Dipc.list(uri, b"ta"))) == ["table"]
    others = Dipc.table(Dipc.list(uri, "x"))
    @test tickets(others) == ["x1", "x2"] && isequal(others.rows, [4, missing])
    @test others.uris == [String[], ["shm:@there"]]
end

function who_asks(uri)
    said = Dipc.headers(Dipc.get(uri, "who"))
    ids = map(name -> said[name], ("pid", "uid", "gid"))
    if startswith(uri, "shm")
        @test (said["transport"], said["address"]) == ("shm", "nothing")
        @test ids == map(string, (getpid(), ccall(:getuid, Cuint, ()), ccall(:getgid, Cuint, ())))
        @test said["log"] == "pid $(ids[1]), uid $(ids[2])"
    else
        @test said["transport"] == "tcp" && all(==("nothing"), ids)
        @test occursin(r"^127\.0\.0\.1:\d+$", said["address"]) && occursin(said["address"], said["log"])
    end
    # Nobody else reads these connections.
    secret = "authorization" => "Bearer 42"
    @test length(collect(Dipc.get(uri, "any"; checksums = true))) == length(collect(Dipc.get(uri, "any")))
    for send_secrets in (false, true)
        stream = Dipc.get(uri, "any"; headers = secret, send_secrets = send_secrets)
        @test Dipc.headers(stream)["authorization"] == "Bearer 42"
    end
end

@testset "over shm and tcp" begin
    with_requests_server() do uri
        who_asks(uri)
        headers_and_deadlines(uri)
        descriptions_and_lists(uri)
    end
end

@testset "headers are a vector with keys" begin
    headers = Dipc.Headers(["a" => "1", "b" => UInt8[0xfe], "a" => "3"])
    @test headers["a"] == "1" && get(headers, "c", nothing) === nothing && haskey(headers, "b")
    @test Dipc.getall(headers, "a") == ["1", "3"] && isempty(Dipc.getall(headers, "c"))
    @test_throws KeyError headers["c"]
    @test !isvalid(headers["b"]) && headers[2] == ("b" => "\xfe")
    @test Dipc.Headers("a" => "1") == ["a" => "1"] && isempty(Dipc.Headers())
end

@testset "handlers come and go" begin
    serving() do server, uri
        @test status(() -> Dipc.get(uri, "t")) == Dipc.ERR_NOT_FOUND
        @test status(() -> Dipc.describe(uri, "t")) == Dipc.ERR_NOT_FOUND
        @test isempty(Dipc.table(Dipc.list(uri)).descriptor)
        Dipc.serve(() -> (a = [1],), server)
        @test Dipc.table(Dipc.get(uri, "t")).a == [1]
        @test status(() -> Dipc.describe(uri, "t")) == Dipc.ERR_UNSUPPORTED
        asked = nothing
        Dipc.serve(server) do request
            asked = request
            (a = [2],)
        end
        @test Dipc.table(Dipc.get(uri, "t"; headers = "k" => "v", deadline = 600)).a == [2]
        # The data of a request can still be read after its end.
        @test comes_true(() -> Dipc.iscancelled(asked))
        @test Dipc.ticket(asked) == b"t" && Dipc.verb(asked) === :get
        @test Dipc.headers(asked)["k"] == "v" && Dipc.time_left(asked) == Nanosecond(0)
        @test status(() -> Dipc.add_headers(asked, "k" => "v")) == Dipc.ERR_INVALID_ARGUMENT
        Dipc.withdraw(server)
        @test status(() -> Dipc.get(uri, "t")) == Dipc.ERR_NOT_FOUND
    end
end

@testset "a table takes the place of another one, whose stream goes on" begin
    for scheme in ("shm", "tcp")
        serving() do server, shm
            uri = scheme == "shm" ? shm : Dipc.listen(server, "tcp://127.0.0.1:0")
            old = [(a = collect(1000n+1:1000n+1000),) for n in 0:49]
            Dipc.replace(server, "t", (part for part in old)) # what was not there is added
            Dipc.serve(() -> old, server, "made")
            streams = [Dipc.get(uri, ticket; window = (1, 1)) for ticket in ("t", "made")]
            for ticket in ("t", "made")
                @test status(() -> Dipc.serve(server, ticket, (a = [7],))) ==
                      Dipc.ERR_ALREADY_EXISTS
                Dipc.replace(server, ticket, (a = [7],))
                @test Dipc.table(Dipc.get(uri, ticket)).a == [7]
                @test Dipc.describe(uri, ticket).rows == 1
            end
            for stream in streams
                @test Dipc.table(stream).a == 1:50_000
            end
            # The caller may give another schema.
            Dipc.replace(server, "t", [(b = ["x"],), (b = ["y"],)];
                         schema = Dipc.Schema([Dipc.Field("b", "U")]; metadata = ["k" => "v"]))
            stream = Dipc.get(uri, "t")
            @test Dipc.schema(stream).metadata == ["k" => "v"] && Dipc.table(stream).b == ["x", "y"]
            # What cannot be sent changes nothing.
            @test thrown(() -> Dipc.replace(server, "t", 7)) isa ArgumentError
            @test thrown(() -> Dipc.replace(server, "t", () -> (a = [1],))) isa ArgumentError
            @test status(() -> Dipc.replace(server, zeros(UInt8, 1 << 21), (a = [1],))) ==
                  Dipc.ERR_INVALID_ARGUMENT
            @test Dipc.table(Dipc.get(uri, "t")).b == ["x", "y"]
            streams = stream = nothing
        end
        @test comes_true(() -> (collect_garbage(); Dipc.collect_exports() == 0))
    end
end

@testset "metadata of a single batch is served" begin
    serving() do server, uri
        Dipc.serve(server, "plain", (a = [1],))
        plain = only(collect(Dipc.get(uri, "plain")))
        batch = Dipc.Batch(Dipc.names(plain), Dipc.columns(plain), 1, Dipc.schema(plain),
                           ["k" => "v"])
        Dipc.serve(server, "one", batch)
        @test Dipc.metadata(only(collect(Dipc.get(uri, "one")))) == ["k" => "v"]
        Dipc.replace(server, "one", plain)
        @test isempty(Dipc.metadata(only(collect(Dipc.get(uri, "one")))))
    end
end

@testset "what has no Arrow type is told by the name of its column" begin
    serving() do server, uri
        for wrong in ([1 => 2], [[1 => 2]], [(a = 1 => 2,)], Any[1 => 2], [Dict("k" => (1 => 2))])
            exception = thrown(() -> Dipc.serve(server, "wrong", (fine = [1], wrong = wrong)))
            @test exception isa ArgumentError
            @test startswith(exception.msg, "column wrong: Pair{Int64,Int64} has no Arrow type")
        end
    end
end

@testset "wrong arguments" begin
    serving() do server, uri
        for wrong in ("text", 7, ["k" => 7], [:k => "v"], (k = "v",))
            @test thrown(() -> Dipc.get(uri, "t"; headers = wrong)) isa ArgumentError
        end
        for wrong in ("Key", "dipc-key", "", "k"^256)
            @test status(() -> Dipc.get(uri, "t"; headers = wrong => "v")) ==
                  Dipc.ERR_INVALID_ARGUMENT
        end
        @test status(() -> Dipc.get(uri, "t"; headers = "k" => zeros(UInt8, 65 << 10))) ==
              Dipc.ERR_INVALID_ARGUMENT
        @test thrown(() -> Dipc.get(uri, "t"; deadline = -1)) isa ArgumentError
        @test thrown(() -> Dipc.get(uri, "t"; deadline = "soon")) isa MethodError
        @test thrown(() -> Dipc.describe(uri, 7)) isa ArgumentError
        @test thrown(() -> Dipc.list(uri, 7)) isa ArgumentError
        @test thrown(() -> Dipc.Description(rows = -1)) isa ArgumentError
        @test thrown(() -> Dipc.Endpoint("t"; bytes = "many")) isa ArgumentError
        @test thrown(() -> Dipc.serve(server, 7)) isa MethodError
        nothing_known = Dipc.Description()
        @test status(() -> Dipc.set_description(server, "t", nothing_known)) == Dipc.ERR_NOT_FOUND
        broken = Dipc.Description(schema = Dipc.Schema([Dipc.Field("a", "no format")]))
        Dipc.serve(() -> (a = [1],), server, "t")
        @test status(() -> Dipc.set_description(server, "t", broken)) == Dipc.ERR_INVALID_DATA
        Dipc.serve(_ -> nothing_known, server, "description")
        @test status(() -> Dipc.get(uri, "description")) == Dipc.ERR_PROVIDER
    end
    server = Dipc.Server(address())
    close(server)
    @test status(() -> Dipc.serve(() -> (a = [1],), server)) == Dipc.ERR_STOPPED
    @test status(() -> Dipc.replace(server, "t", (a = [1],))) == Dipc.ERR_STOPPED
    @test status(() -> Dipc.withdraw(server)) == Dipc.ERR_STOPPED
    @test comes_true(() -> Dipc.collect_exports() == 0)
end

# Certificates, over tls.
@testset "certificates" begin
    if Sys.which("openssl") === nothing
        @info "skipped: openssl is not there"
    else
        script = joinpath(@__DIR__, "../../../tests/certificates.sh")
        mktempdir() do folder
            run(`$script $folder`)
            file(name) = joinpath(folder, name)
            server = Dipc.Server(tls = (file("server.pem"), file("server.key")), tls_client_ca = file("ca.pem"))
            try
                uri = Dipc.listen(server, "tls://127.0.0.1:0")
                Dipc.serve(server, "table", (a = [1, 2, 3],))
                ask(; options...) = Dipc.table(Dipc.get(uri, "table"; client = Dipc.Client(; options...))).a
                alice = (file("alice.pem"), file("alice.key"))
                @test ask(tls_ca = file("ca.pem"), tls = alice) == 1:3
                @test status(() -> ask(tls_ca = file("ca.pem"))) == Dipc.ERR_PERMISSION
                @test status(() -> ask(tls = alice)) == Dipc.ERR_PERMISSION
                @test status(() -> ask(tls_ca = file("ca.pem"), tls = alice, tls_server_name = "elsewhere")) ==
                      Dipc.ERR_PERMISSION
            finally
                close(server)
            end
        end
    end
end
