# The Julia side of the matrix: one server, and clients that fetch, cancel and send.
#
#   julia peer.jl serve URI FILE [--block]
#   julia peer.jl get URI TICKET OUT
#   julia peer.jl cancel URI TICKET N
#   julia peer.jl put URI TICKET FILE ...
#   julia peer.jl exchange URI TICKET FILE OUT ...
#
# Run it with `peer`, which finds Julia and the package.

import Dipc
include("streamfile.jl")

function main(arguments)
    verb = isempty(arguments) ? "" : arguments[1]
    verb == "serve" && length(arguments) >= 3 && return serve(arguments[2], arguments[3])
    verb == "get" && length(arguments) == 4 && return get(arguments[2:4]...)
    verb == "cancel" && length(arguments) == 4 &&
        return cancel(arguments[2], arguments[3], parse(Int, arguments[4]))
    verb == "put" && length(arguments) >= 4 && length(arguments) % 2 == 0 &&
        return send_all(put, arguments[2], Iterators.partition(arguments[3:end], 2))
    verb == "exchange" && length(arguments) >= 5 && length(arguments) % 3 == 2 &&
        return send_all(exchange, arguments[2], Iterators.partition(arguments[3:end], 3))
    println(stderr, "usage: peer serve URI FILE | get URI TICKET OUT | cancel URI TICKET N | ",
            "put URI TICKET FILE ... | exchange URI TICKET FILE OUT ...")
    return 2
end

function serve(uri, file)
    # First of all: who knows the URI may end this program at once.
    over = watch_for_end()
    schema, batches = StreamFile.read_batches(file)
    Dipc.Server() do server
        Dipc.serve(server, "table", batches; schema = schema)
        Dipc.serve(() -> Iterators.repeated(first(batches)), server, "endless"; schema = schema)
        Dipc.serve(server, "broken"; schema = schema) do
            (n == 1 ? first(batches) : error("the provider failed on purpose") for n in 1:2)
        end
        Dipc.serve(request -> answer(server, request), server)
        println(Dipc.listen(server, uri))
        flush(stdout)
        while !OVER[]
            wait(over)
        end
    end
    return 0
end

# Takes any table and serves it from then on, and gives that of an exchange back.
function answer(server, request)
    verb, ticket = Dipc.verb(request), Dipc.ticket(request)
    verb === :put && return Dipc.replace(server, ticket, Dipc.source(request))
    verb === :exchange && return Dipc.source(request)
    throw(Dipc.DipcError(Dipc.ERR_NOT_FOUND, "there is no ticket $(String(ticket))"))
end

const SIGTERM = 15
const SIG_UNBLOCK = 1
const SIGNAL_HANDLE = Libc.calloc(1, 1024) # a uv_signal_t and more
# Whether standard input has ended, or SIGTERM has come; a condition forgets what nobody waits for.
const OVER = Ref(false)
const WATCHED = Ref{Any}(nothing)

# A condition that is notified when OVER is set. Of SIGTERM libuv tells: `peer` has Julia leave it alone.
function watch_for_end()
    over = WATCHED[] = Base.AsyncCondition()
    # Julia keeps it blocked for a thread of its own; the main thread's handler comes before that one.
    set = zeros(UInt64, 16)
    set[1] = UInt64(1) << (SIGTERM - 1)
    callback = @cfunction((handle, number) -> (set_over(); nothing), Cvoid, (Ptr{Cvoid}, Cint))
    ccall(:uv_signal_init, Cint, (Ptr{Cvoid}, Ptr{Cvoid}), Base.eventloop(), SIGNAL_HANDLE) == 0 &&
        ccall(:uv_signal_start, Cint, (Ptr{Cvoid}, Ptr{Cvoid}, Cint), SIGNAL_HANDLE, callback, SIGTERM) == 0 ||
        error("cannot watch for SIGTERM")
    ccall(:pthread_sigmask, Cint, (Cint, Ptr{UInt64}, Ptr{UInt64}), SIG_UNBLOCK, set, C_NULL)
    @async begin
        read(stdin)
        set_over()
    end
    return over
end

function set_over()
    OVER[] = true
    ccall(:uv_async_send, Cint, (Ptr{Cvoid},), Base.unsafe_convert(Ptr{Cvoid}, WATCHED[]))
end

# Runs a client. Gives the exit status.
function attempt(run)
    try
        run()
        return 0
    catch exception
        exception isa Dipc.DipcError || rethrow()
        println("error ", Dipc.status_name(exception), " ", exception.text)
        return 3
    end
end

rows(batches) = sum(Int[Dipc.nrows(batch) for batch in batches])
print_counts(rows, batches) = println("rows=", rows, " batches=", batches)

get(uri, ticket, out) = attempt() do
    stream = Dipc.get(uri, ticket)
    batches = collect(stream)
    StreamFile.write_batches(out, Dipc.schema(stream), batches)
    print_counts(rows(batches), length(batches))
end

# One after another, each by its words.
send_all(send, uri, each) = maximum([attempt(() -> send(uri, words...)) for words in each])

function put(uri, ticket, file)
    schema, batches = StreamFile.read_batches(file)
    taken, _ = Dipc.put(uri, ticket, batches; schema = schema)
    print_counts(rows(batches), taken)
end

function exchange(uri, ticket, file, out)
    schema, batches = StreamFile.read_batches(file)
    schema, received = Dipc.exchange(uri, ticket, schema) do put, answers
        reading = @async collect(answers)
        foreach(batch -> write(put, batch), batches)
        Dipc.finish(put)
        (Dipc.schema(answers), fetch(reading))
    end
    StreamFile.write_batches(out, schema, received)
    print_counts(rows(received), length(received))
end

function cancel(uri, ticket, count)
    stream = Dipc.get(uri, ticket)
    foreach(identity, Iterators.take(stream, count))
    close(stream)
    println("cancelled after ", count)
    return 0
end

exit(main(ARGS))
