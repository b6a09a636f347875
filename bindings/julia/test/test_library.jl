# Finding the library: what is wrong is said, with the path that was looked at.

# What a Julia says that is told to load another library.
load_says(variables...) = read(addenv_pairs(`$JULIA -e 'import Dipc
    try Dipc.version() catch e print(Dipc.status_name(e), " ", e.text) end'`, variables), String)
addenv_pairs(command, variables) = setenv(command, merge(Dict(ENV), Dict(variables...)))

@testset "a library that is not there" begin
    said = load_says("DIPC_LIBRARY" => "/nowhere/libdipc.so", "DIPC_PREFIX" => "")
    @test startswith(said, "DIPC_ERR_UNSUPPORTED cannot load libdipc: tried /nowhere/libdipc.so")
    @test occursin("DIPC_PREFIX", said)
end

@testset "a library that is another one, or of another version" begin
    mktempdir() do folder
        compiler = Sys.which("cc")
        if compiler === nothing
            skipped("libraries of other versions", "there is no cc")
            return
        end
        for (code, text) in ("int other(void) { return 0; }" => "is not libdipc",
                             "unsigned dipc_version(void) { return 2003004; }" => "is libdipc 2.3.4",
                             "unsigned dipc_version(void) { return 1000; }" => "it is older than this package")
            file = joinpath(folder, "lib$(hash(code)).so")
            open(io -> print(io, code), pipeline(`$compiler -shared -fPIC -x c -o $file -`), "w")
            said = load_says("DIPC_LIBRARY" => file)
            @test occursin(file, said) && occursin(text, said)
        end
    end
end

@testset "statuses are those of dipc.h" begin
    header = read(joinpath(ROOT, "include", "dipc.h"), String)
    found = Dict(m[1] => parse(Int, m[2]) for m in eachmatch(r"#define DIPC_(ERR_\w+) (-\d+)", header))
    @test found == Dict(string(name) => number for (name, number) in pairs(Dipc.STATUSES))
    for (name, number) in pairs(Dipc.STATUSES)
        @test unsafe_string(ccall(Dipc.functions().dipc_status_name, Cstring, (Int32,), number)) == "DIPC_$name"
    end
    major = match(r"#define DIPC_VERSION_MAJOR (\d+)", header)[1]
    minor = match(r"#define DIPC_VERSION_MINOR (\d+)", header)[1]
    @test Dipc.HEADER_VERSION == VersionNumber("$major.$minor")
    @test Dipc.transport_error("shm") === nothing
    @test Dipc.transport_error("pigeon").status == Dipc.ERR_UNSUPPORTED
end
