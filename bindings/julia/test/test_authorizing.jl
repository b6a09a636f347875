# Who may do what: the host's authorizer, and certificates; and what clients may hold.

# The path of a folder with certificates, or "" if openssl is not there.
function certificates()
    if Sys.which("openssl") === nothing
        skipped("certificates", "openssl is not there")
        return ""
    end
    folder = mktempdir()
    run(`$(joinpath(ROOT, "tests", "certificates.sh")) $folder`)
    return folder
end

function with_authorizing_server(use, folder)
    script = joinpath(@__DIR__, "authorizing_server.jl")
    server = open(`$JULIA $script $(address()) $folder`, "r+")
    uris = [readline(server), readline(server)]
    @test startswith(uris[1], "shm:")
    try
        use(server, uris...)
    finally
        close(server.in)
        @test success(server)
    end
end

# Handlers see the name that the authorizer gives, and a refusal has its status and text.
function requests_are_decided(get, uri)
    for _ in 1:2
        for (ticket, code, words) in (("secret plans", Dipc.ERR_NOT_FOUND, "not for you"),
                                      ("fails", Dipc.ERR_PERMISSION, "out of paper"),
                                      ("wrong", Dipc.ERR_PERMISSION, "a Int64"),
                                      ("busy", Dipc.ERR_BUSY, "come again"))
            error = thrown(() -> get(uri, ticket))
            @test error.status == code && occursin(words, error.text)
            @test (error.retry_after === nothing) == (code != Dipc.ERR_BUSY)
        end
        @test Dipc.table(get(uri, "a")).n == [1, 2]
    end
    # One that takes its time holds up nobody.
    slow = @async Dipc.table(get(uri, "slow"))
    @test Dipc.table(get(uri, "a")).n == [1, 2]
    @test length(fetch(slow).certificate) == 1
end

function only_what_a_client_may_get_is_shown(uri)
    listed = Dipc.table(Dipc.list(uri))
    @test map(ticket -> String(collect(ticket)), listed.descriptor) == ["a", "b"]
    @test status(() -> Dipc.describe(uri, "secret plans")) == Dipc.ERR_NOT_FOUND
end

function certificates_are_shown(server, uri, folder)
    ca = joinpath(folder, "ca.pem")
    own = (joinpath(folder, "alice.pem"), joinpath(folder, "alice.key"))
    client = Dipc.Client(tls_ca = ca, tls = own)
    get(uri, ticket) = Dipc.get(uri, ticket; client = client)
    requests_are_decided(get, uri)
    said = Dipc.table(get(uri, "who"))
    @test said.principal == ["CN=alice"]
    @test said.certificate == ["CN=alice IP:127.0.0.1 DNS:alice.example 64"]
    # Read again, the server's certificate is another: alice's own, which is for the same address.
    for kind in ("pem", "key")
        cp(joinpath(folder, "alice.$kind"), joinpath(folder, "server.$kind"); force = true)
    end
    write(server, "\n")
    @test readline(server) == "again"
    for (name, expected) in (("alice.example", nothing), ("server.example", Dipc.ERR_PERMISSION))
        later = Dipc.Client(tls_ca = ca, tls = own, tls_server_name = name)
        @test status(() -> Dipc.table(Dipc.get(uri, "who"; client = later))) === expected
        close(later)
    end
    close(client)
end

# Past each bound the next client is refused, and told when to ask again.
function bounds_are_kept(limit; options...)
    Dipc.Server("tcp://127.0.0.1:0"; options...) do server
        Dipc.serve(() -> ((n = [1],) for _ in Iterators.repeated(1)), server, "endless")
        uri = Dipc.uri(server)
        first, second = Dipc.Client(), Dipc.Client()
        stream = Dipc.get(uri, "endless"; client = first)
        error = thrown(() -> Dipc.get(uri, "endless"; client = second))
        @test error.status == Dipc.ERR_BUSY && occursin("$limit allows", error.text)
        @test Nanosecond(0) < error.retry_after < Minute(1)
        close(stream)
        foreach(close, (first, second))
    end
end

@testset "authorizer" begin
    folder = certificates()
    with_authorizing_server(folder) do server, shm, tls
        requests_are_decided(Dipc.get, shm)
        only_what_a_client_may_get_is_shown(shm)
        said = Dipc.table(Dipc.get(shm, "who"; headers = ["user" => "alice"]))
        @test said.principal == ["alice"] && said.certificate == ["none"]
        @test isequal(Dipc.table(Dipc.get(shm, "who")).principal, [missing])
        _, results = Dipc.put(shm, "numbers", (n = [1, 2, 3],); headers = ["user" => "alice"])
        @test String(results[1].bytes) == "alice 3"
        isempty(tls) || certificates_are_shown(server, tls, folder)
    end
    @test thrown(() -> Dipc.Server(authorizer = "alice")) isa ArgumentError
end

@testset "bounds" begin
    bounds_are_kept("max_streams"; max_streams = 1, credit_timeout = Inf)
    bounds_are_kept("max_connections"; max_connections = 1)
    # A limit that would shut out everybody is refused.
    made(; options...) = thrown(() -> close(Dipc.Server(; options...)))
    for name in (:max_connections, :max_connections_per_peer, :max_streams_per_peer,
                 :max_streams_per_connection, :credit_timeout, :handshake_timeout, :request_timeout, :idle_timeout)
        error = made(; (name => 0,)...)
        @test error.status == Dipc.ERR_INVALID_ARGUMENT
        @test occursin("$name is 0", Base.replace(error.text, " timeout" => "_timeout"))
        @test made(; (name => 10,)...) === nothing
    end
    for name in (:credit_timeout, :handshake_timeout, :request_timeout, :idle_timeout)
        @test made(; (name => Inf,)...) === nothing
    end
    @test made(max_request_bytes = 0) === nothing
    serving() do server, uri
        @test thrown(() -> Dipc.get(uri, "nothing")).retry_after === nothing
    end
end
