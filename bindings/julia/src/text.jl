# Text where it lies.

"""
    Dipc.StringView <: AbstractString

Text in the memory of a batch, which it keeps alive. It works wherever an `AbstractString` does;
`String(s)` copies it.
"""
struct StringView <: AbstractString
    pointer::Ptr{UInt8}
    bytes::Int
    owner::Any # keeps the memory
end

Base.ncodeunits(s::StringView) = s.bytes
Base.codeunit(::StringView) = UInt8
Base.pointer(s::StringView) = s.pointer
Base.sizeof(s::StringView) = s.bytes
Base.@propagate_inbounds function Base.codeunit(s::StringView, i::Int)
    @boundscheck checkbounds(s, i)
    return GC.@preserve s unsafe_load(s.pointer, i)
end

# The bytes after the first of a character: 10xxxxxx.
iscontinuation(byte::UInt8) = byte & 0xc0 == 0x80

# How many bytes the character that begins with `byte` should have.
expected_bytes(byte::UInt8) =
    byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf8 ? 4 : 1

# How many bytes the character at `i` has: fewer than it should have, if the text is cut off there.
function character_bytes(s::StringView, i::Int)
    bytes = 1
    while bytes < expected_bytes(codeunit(s, i)) && i + bytes <= s.bytes &&
        iscontinuation(codeunit(s, i + bytes))
        bytes += 1
    end
    return bytes
end

function Base.isvalid(s::StringView, i::Int)
    checkbounds(Bool, s, i) || return false
    iscontinuation(codeunit(s, i)) || return true
    # A continuation byte begins a (bad) character of its own if no character reaches it.
    for first in i-1:-1:max(1, i - 3)
        iscontinuation(codeunit(s, first)) && continue
        return first + character_bytes(s, first) <= i
    end
    return true
end

function Base.iterate(s::StringView, i::Int = 1)
    i > s.bytes && return nothing
    bytes = character_bytes(s, i)
    bits = UInt32(0)
    for k in 0:bytes-1
        bits |= UInt32(codeunit(s, i + k)) << (24 - 8k)
    end
    return reinterpret(Char, bits), i + bytes
end

Base.String(s::StringView) = GC.@preserve s unsafe_string(s.pointer, s.bytes)
Base.string(s::StringView) = String(s)
Base.convert(::Type{String}, s::StringView) = String(s)
Base.print(io::IO, s::StringView) = (GC.@preserve s unsafe_write(io, s.pointer, s.bytes); nothing)

same_bytes(a, b) = ncodeunits(a) == ncodeunits(b) && GC.@preserve a b ccall(
    :memcmp, Cint, (Ptr{UInt8}, Ptr{UInt8}, Csize_t), pointer(a), pointer(b), ncodeunits(a)) == 0
Base.:(==)(a::StringView, b::StringView) = same_bytes(a, b)
Base.:(==)(a::StringView, b::String) = same_bytes(a, b)
Base.:(==)(a::String, b::StringView) = same_bytes(a, b)
