# Memory that can be lent to clients without a copy.

"""
    Dipc.Arena(; region_bytes=nothing, max_bytes=nothing)

Memory that a client on the same machine maps, so that serving what lies in it copies nothing.

    arena = Dipc.Arena()
    v = Dipc.alloc(arena, Float64, 1_000_000)    # a DenseVector, to be filled and served

- `region_bytes`: size of one region; a larger vector gets a region of its own (default 64 MiB)
- `max_bytes`: bound on all regions; past it `Dipc.alloc` fails with `Dipc.ERR_OUT_OF_MEMORY`

A client that was lent one vector can read the whole region it lies in: an arena is as public as the
most public ticket whose vectors lie in it.
"""
mutable struct Arena <: Handle
    pointer::Ptr{Cvoid}

    function Arena(; region_bytes = nothing, max_bytes = nothing)
        out = Ref{Ptr{Cvoid}}(C_NULL)
        setters = Any[]
        region_bytes === nothing ||
            push!(setters, set_u64(@c(dipc_arena_options_set_region_bytes), region_bytes))
        max_bytes === nothing ||
            push!(setters, set_u64(@c(dipc_arena_options_set_max_bytes), max_bytes))
        with_handle(@c(dipc_arena_options_new), @c(dipc_arena_options_free), setters) do options
            check(e -> ccall(@c(dipc_arena_new), Int32,
                (Int32, Int64, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}),
                ARROW_DEVICE_CPU, 0, options, out, e))
        end
        return finalizer(close, new(out[]))
    end
end
kind(::Arena) = "arena"

"""
    close(arena::Dipc.Arena)

After this the arena gives no more memory. Vectors made before stay valid.
"""
function Base.close(arena::Arena)
    pointer, arena.pointer = arena.pointer, C_NULL
    pointer == C_NULL || ccall(@c(dipc_arena_free), Cvoid, (Ptr{Cvoid},), pointer)
    return
end

# A block. It is given back when nothing uses it any more.
mutable struct Block
    pointer::Ptr{Cvoid}

    function Block(arena::Arena, bytes::Integer)
        out = Ref{Ptr{Cvoid}}(C_NULL)
        check(e -> ccall(@c(dipc_arena_alloc), Int32,
            (Ptr{Cvoid}, Csize_t, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), raw(arena), bytes, out, e))
        return finalizer(new(out[])) do block
            # NULL instead of the arena lets the library find it, even if it is closed. The block is
            # in use, so this cannot fail.
            ccall(@c(dipc_arena_dealloc), Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}),
                  C_NULL, block.pointer, C_NULL)
        end
    end
end

"""
    Dipc.ArenaVector{T} <: DenseVector{T}

A vector in an arena's memory; made by [`Dipc.alloc`](@ref) and [`Dipc.lendable`](@ref).
"""
struct ArenaVector{T} <: DenseVector{T}
    pointer::Ptr{T}
    length::Int
    block::Block
end

Base.size(v::ArenaVector) = (v.length,)
Base.IndexStyle(::Type{<:ArenaVector}) = IndexLinear()
Base.strides(::ArenaVector) = (1,)
Base.elsize(::Type{ArenaVector{T}}) where {T} = sizeof(T)
Base.unsafe_convert(::Type{Ptr{T}}, v::ArenaVector{T}) where {T} = v.pointer
Base.pointer(v::ArenaVector) = v.pointer
Base.copy(v::ArenaVector) = collect(v)
Base.@propagate_inbounds function Base.getindex(v::ArenaVector, i::Int)
    @boundscheck checkbounds(v, i)
    return GC.@preserve v unsafe_load(v.pointer, i)
end
Base.@propagate_inbounds function Base.setindex!(v::ArenaVector{T}, value, i::Int) where {T}
    @boundscheck checkbounds(v, i)
    GC.@preserve v unsafe_store!(v.pointer, convert(T, value), i)
    return v
end

"""
    Dipc.alloc(arena, T, n) -> Dipc.ArenaVector{T}

A vector of `n` elements of fixed width; what it holds is not defined. Fails with
`Dipc.ERR_OUT_OF_MEMORY`.
"""
function alloc(arena::Arena, ::Type{T}, n::Integer) where {T}
    isbitstype(T) || throw(ArgumentError("$T has no fixed width: it cannot lie in an arena"))
    n >= 0 || throw(ArgumentError("a vector cannot have $n elements"))
    block = Block(arena, Base.checked_mul(n, sizeof(T)))
    return ArenaVector{T}(Ptr{T}(block.pointer), n, block)
end

"""
    Dipc.lendable(arena, values) -> Dipc.ArenaVector

A copy of a vector of fixed-width elements that can be lent.
"""
lendable(arena::Arena, values::AbstractVector{T}) where {T} =
    copyto!(alloc(arena, T, length(values)), values)

"""
    Dipc.usedbytes(arena), Dipc.mappedbytes(arena) -> Int

Bytes of vectors in use, and of all regions, taken from the system.
"""
usedbytes(arena::Arena) = arena_stat(arena, 1)
mappedbytes(arena::Arena) = arena_stat(arena, 2)

function arena_stat(arena, stat)
    out = Ref{UInt64}(0)
    check(e -> ccall(@c(dipc_arena_stat), Int32, (Ptr{Cvoid}, Int32, Ptr{UInt64}, Ptr{Ptr{Cvoid}}),
                     raw(arena), stat, out, e))
    return Int(out[])
end
