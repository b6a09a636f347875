# Finding the library: what is wrong is said, with the path that was looked at.

# What Julia prints in a process that is told to load another library.
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

# A package of one file, for a program that has its folder in LOAD_PATH.
write_package(folder, name, code) = write(joinpath(folder, "$name.jl"), "module $name\n$code\nend\n")
project_version(file) = match(r"^version = \"(.*?)\""m, read(file, String))[1]

@testset "libdipc_jll, where it is loaded" begin
    mktempdir() do folder
        write_package(folder, "libdipc_jll", "libdipc_path = \"\"\n__init__() = global libdipc_path = ENV[\"JLL\"]")
        program = "push!(LOAD_PATH, ARGS[1]); import Dipc, libdipc_jll; print(Dipc.library())"
        says(variables...) = read(pipeline(ignorestatus(addenv_pairs(
            `$JULIA -e $program $folder`, ("DIPC_PREFIX" => "", variables...))); stderr = devnull), String)
        # What a variable names comes first.
        @test says("DIPC_LIBRARY" => "", "JLL" => Dipc.library()) == Dipc.library()
        @test says("DIPC_LIBRARY" => "", "JLL" => "/nowhere/libdipc.so") == ""
        @test says("DIPC_LIBRARY" => Dipc.library(), "JLL" => "/nowhere/libdipc.so") == Dipc.library()
    end
end

# BinaryBuilder is not in Julia's own libraries: a stand-in reports what it is asked for.
@testset "the recipe of libdipc_jll" begin
    mktempdir() do folder
        write_package(folder, "BinaryBuilder", """
            export GitSource, Platform, LibraryProduct, Dependency, build_tarballs
            struct GitSource url::String; commit::String end
            struct Platform text::String; Platform(arch, os; libc) = new("\$arch-\$os-\$libc") end
            struct LibraryProduct name::String; variable::Symbol end
            struct Dependency name::String end
            function build_tarballs(args, name::String, version::VersionNumber, sources::Vector{GitSource},
                                    script::String, platforms::Vector{Platform}, products::Vector{LibraryProduct},
                                    dependencies::Vector{Dependency}; compilers::Vector{Symbol},
                                    julia_compat::String, preferred_rust_version::VersionNumber)
                println(name, " ", version, " ", preferred_rust_version)
                println(join((p.text for p in platforms), " "))
                println(join((p.name for p in products), " "))
                print(script)
            end""")
        recipe = joinpath(PACKAGE, "jll", "build_tarballs.jl")
        code = "push!(LOAD_PATH, ARGS[1]); popfirst!(ARGS); include(\"$recipe\")"
        head, platforms, products, script = split(read(`$JULIA -e $code $folder`, String), "\n"; limit = 4)
        cargo = read(joinpath(ROOT, "Cargo.toml"), String)
        rust = match(r"^rust-version = \"(.*?)\""m, cargo)[1]
        @test head == "libdipc $(project_version(joinpath(ROOT, "Cargo.toml"))) $(VersionNumber(rust))"
        @test platforms == "x86_64-linux-glibc aarch64-linux-glibc" && products == "libdipc"
        @test success(`bash -n -c $(String(script))`)
        for name in ("include/dipc.h", "include/dipc_machines.h", "LICENSE")
            @test occursin(name, script) && isfile(joinpath(ROOT, name))
        end
        @test project_version(joinpath(PACKAGE, "Project.toml")) == project_version(joinpath(ROOT, "Cargo.toml"))
    end
end

# Julia's package manager takes the package, in an environment of its own and without a network.
@testset "Pkg takes the package" begin
    mktempdir() do folder
        registry = mkpath(joinpath(folder, "depot", "registries", "Empty"))
        write(joinpath(registry, "Registry.toml"), """
            name = "Empty"
            uuid = "8f2c31ab-70f5-4e0c-9f6e-1b8a5c0d3e21"
            repo = ""
            [packages]
            """)
        program = """
            import Pkg
            Pkg.activate(ARGS[1])
            Pkg.develop(Pkg.PackageSpec(path = ARGS[2]))
            import Dipc
            print(Dipc.version())"""
        command = `$(Base.julia_cmd()[1]) --startup-file=no -O0 -e $program $(joinpath(folder, "project")) $PACKAGE`
        said = read(pipeline(addenv_pairs(command,
            ("JULIA_DEPOT_PATH" => joinpath(folder, "depot"), "JULIA_PKG_SERVER" => "")); stderr = devnull), String)
        @test endswith(said, string(Dipc.version()))
    end
end
