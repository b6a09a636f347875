# Every type of Arrow's, in and out: each stream file is read, served, fetched and written, and what
# comes is compared with what pyarrow reads and with what the dipc command reads.

# Values that do not refer to a batch's memory, in vectors without element types: so only the schema
# decides what is built.
plain(@nospecialize(x)) = x
plain(@nospecialize(x::AbstractString)) = String(x)
plain(@nospecialize(x::AbstractVector)) = plain_column(x)
plain(@nospecialize(x::NamedTuple)) = NamedTuple{keys(x)}(Tuple(Any[plain(x[i]) for i in 1:length(x)]))
plain(@nospecialize(x::AbstractDict)) = Any[plain(x.keys[i]) => plain(x.values[i]) for i in 1:length(x)]
plain(x::Dipc.Bytes) = collect(x)
function plain_column(@nospecialize(column))
    all = Any[]
    for i in 1:length(column)
        push!(all, column isa Dipc.Unions ? Dipc.UnionValue{Any}(Dipc.typeid(column, i), plain(column[i])) :
                   plain(column[i]))
    end
    return all
end

function rebuilt(batch)
    names = Tuple(Dipc.names(batch))
    return NamedTuple{names}(Tuple(plain_column(column) for column in Dipc.columns(batch)))
end

const FILES = stream_files()
const FOLDER = mktempdir()
const HAS_PYTHON = isfile(PYTHON)
const HAS_COMMAND = isfile(COMMAND)
HAS_PYTHON || skipped("the comparison with pyarrow", "there is no $PYTHON (DIPC_PYTHON names another)")
HAS_COMMAND || skipped("the comparison with the command", "there is no $COMMAND (DIPC_COMMAND names one)")
HAS_PYTHON && run(`$PYTHON $CANONICAL $FOLDER $FILES`)

# What pyarrow reads in a file; `nothing` if it cannot read the file.
function expected(name)
    HAS_PYTHON || return nothing
    text = read(joinpath(FOLDER, "$name.txt"), String)
    return startswith(text, "unreadable") ? nothing : text
end

# Whether there are two spellings of a value, which the command tells apart: a missing element of a
# dictionary may be a missing index or a missing level, one of a union may be of any child.
two_spellings(field) = field.dictionary !== nothing || startswith(field.format, "+u") ||
    any(two_spellings, field.children)

@testset "stream files" begin
    server_uri = address()
    written = String[]
    Dipc.Server(server_uri) do server
        for path in FILES
            name = basename(path)
            @testset "$name" begin
                get(ENV, "DIPC_TEST_PROGRESS", "") == "" || println(stderr, round(time() - START), " ", name)
                schema, batches = StreamFile.read_batches(path)
                text = canonical(batches)
                pyarrow = expected(name)
                pyarrow === nothing || @test text == pyarrow

                # Once as it came, without a copy, and once built anew, only from Julia's own
                # values.
                Dipc.serve(server, "handed on/$name", batches; schema = schema)
                Dipc.serve(server, "rebuilt/$name", NamedTuple[rebuilt(batch) for batch in batches]; schema = schema)
                # A named tuple without columns cannot say how many rows it has.
                for kind in (isempty(schema.fields) ? ("handed on",) : ("handed on", "rebuilt"))
                    stream = Dipc.get(server_uri, "$kind/$name")
                    @test Dipc.schema(stream) == schema
                    fetched = collect(stream)
                    @test canonical(fetched) == text
                    out = joinpath(FOLDER, "$kind $name")
                    StreamFile.write_batches(out, schema, fetched)
                    pyarrow === nothing || push!(written, out)
                    if HAS_COMMAND && !(kind == "rebuilt" && any(two_spellings, schema.fields))
                        @test success(pipeline(`$COMMAND get $server_uri $kind/$name --verify $path`;
                                               stdout = devnull))
                    end
                end
                if HAS_PYTHON && pyarrow !== nothing
                    @test success(`$PYTHON $CANONICAL --same $path $(joinpath(FOLDER, "handed on $name"))`)
                end
            end
        end
    end
    # What pyarrow reads in what Julia wrote.
    isempty(written) || run(`$PYTHON $CANONICAL $FOLDER $written`)
    for out in written
        original = replace(replace(basename(out), "handed on " => ""), "rebuilt " => "")
        @test read("$out.txt", String) == expected(original)
    end
end

@testset "intervals, of which pyarrow has no values" begin
    _, batches = StreamFile.read_batches(joinpath(ROOT, "tests", "vectors", "intervals.arrows"))
    @test map(Dipc.nrows, batches) == [13, 0, 70]
    for batch in batches, row in 0:Dipc.nrows(batch)-1
        # As tests/interop/made.rs makes them.
        @test batch.year_month[row+1] === (row % 3 == 1 ? missing : Month(37row - 400))
        @test batch.day_time[row+1] === (row % 4 == 2 ? missing : Dipc.DayTime(row - 20, 86_399_999 - 1_000_003row))
    end
end

# The rows of a batch, as a batch that looks into the same memory at an offset.
function sliced(batch, rows)
    columns = map(Dipc.columns(batch)) do column
        whole = Dipc.source(column)
        Dipc.vector(Dipc.Column(whole.field, whole.array, whole.offset + first(rows) - 1, length(rows), whole.owner))
    end
    return Dipc.Batch(Dipc.names(batch), columns, length(rows), Dipc.schema(batch), Dipc.metadata(batch))
end

@testset "rule A7: parts of columns are served right" begin
    serving() do server, uri
        for path in FILES
            schema, batches = StreamFile.read_batches(path)
            at = findfirst(batch -> Dipc.nrows(batch) > 4, batches)
            at === nothing && continue
            part = sliced(batches[at], 4:Dipc.nrows(batches[at])-1)
            Dipc.serve(server, basename(path), [part]; schema = schema)
            @test canonical(Dipc.get(uri, basename(path))) == canonical([part])
        end
    end
end
