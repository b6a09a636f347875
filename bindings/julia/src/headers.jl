# Headers of requests and of answers.

"""
    Dipc.Headers(pairs)

Headers: a vector of `key => value` in the order in which they were given. A key may come several
times.

- `headers[key]`: the first value with that key, or a `KeyError`; `get(headers, key, default)` and
  `haskey(headers, key)` work as for a dictionary
- `Dipc.getall(headers, key)`: all values with that key

Values are `String`s, which hold any bytes: `codeunits(value)` are the bytes, and `isvalid(value)`
says whether they are text.

Whatever takes headers takes any iterator of pairs, such as a `Dict` or a vector. Keys are text of
the characters a to z, 0 to 9, `-`, `_` and `.`; values are text or bytes.
"""
struct Headers <: AbstractVector{Pair{String,String}}
    pairs::Vector{Pair{String,String}}

    Headers(pairs) = new(Pair{String,String}[header(pair) for pair in pairs])
end
Headers() = Headers(())
Headers(pair::Pair) = Headers((pair,))

header(pair::Pair) = header_key(pair.first) => header_value(pair.second)
header(other) = throw(ArgumentError(
    "headers are pairs, as in [\"key\" => \"value\"], and this is $(repr(other))"))

header_key(key::AbstractString) = String(key)
header_key(key) = throw(ArgumentError("the key of a header is text, and this is $(repr(key))"))

header_value(value::AbstractString) = String(value)
header_value(value::AbstractVector{UInt8}) = String(Vector{UInt8}(value))
header_value(value) =
    throw(ArgumentError("the value of a header is text or bytes, and this is a $(typeof(value))"))

Base.size(headers::Headers) = size(headers.pairs)
Base.IndexStyle(::Type{Headers}) = IndexLinear()
Base.getindex(headers::Headers, i::Int) = headers.pairs[i]

function Base.getindex(headers::Headers, key::AbstractString)
    at = findfirst(pair -> pair.first == key, headers.pairs)
    at === nothing && throw(KeyError(key))
    return headers.pairs[at].second
end
Base.haskey(headers::Headers, key::AbstractString) = any(pair -> pair.first == key, headers.pairs)
Base.get(headers::Headers, key::AbstractString, default) =
    haskey(headers, key) ? headers[key] : default

"""
    Dipc.getall(headers, key) -> Vector{String}

All values of a key, in their order; none if no header has the key.
"""
getall(headers::Headers, key::AbstractString) =
    String[pair.second for pair in headers if pair.first == key]

# Runs `use(pointer)` with headers as the library takes them.
function with_headers(use, headers::Headers)
    setters = Any[(handle, error) -> ccall(@c(dipc_headers_add), Int32,
        (Ptr{Cvoid}, Cstring, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}),
        handle, key, value, sizeof(value), error) for (key, value) in headers]
    return with_handle(use, @c(dipc_headers_new), @c(dipc_headers_free), setters)
end

# The headers of something of the library's, which `call` gives a copy of.
function read_headers(call, object)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    check(e -> ccall(call, Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), object, out, e))
    handle = out[]
    try
        count = ccall(@c(dipc_headers_count), Csize_t, (Ptr{Cvoid},), handle)
        return Headers([String(indexed_text(@c(dipc_headers_key), handle, i)) =>
                        String(indexed_text(@c(dipc_headers_value), handle, i)) for i in 1:count])
    finally
        ccall(@c(dipc_headers_free), Cvoid, (Ptr{Cvoid},), handle)
    end
end

# Text number `i` of a handle's, counted from 1.
indexed_text(call, handle, i) = text_out((buffer, size, out, error) -> ccall(call, Int32,
    (Ptr{Cvoid}, Csize_t, Ptr{UInt8}, Csize_t, Ptr{Csize_t}, Ptr{Ptr{Cvoid}}),
    handle, i - 1, buffer, size, out, error))
