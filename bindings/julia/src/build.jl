# Vectors as Arrow buffers, of flat types. What has Arrow's layout already is not copied.

# One array to be exported: the addresses of its buffers, and what keeps them alive.
struct Node
    length::Int
    null_count::Int
    offset::Int
    buffers::Vector{Ptr{Cvoid}}
    roots::Vector{Any}
    children::Vector{Node}
    dictionary::Union{Nothing,Node}
end

function Node(length::Int, null_count::Int, buffers::Tuple; children = Node[], dictionary = nothing)
    roots = Any[buffer for buffer in buffers if buffer !== nothing]
    pointers = Ptr{Cvoid}[buffer === nothing ? C_NULL : pointer(buffer) for buffer in buffers]
    return Node(length, null_count, 0, pointers, roots, children, dictionary)
end

# A filler for a child whose parent is missing. Nobody sees it, so a child that cannot be missing
# may have it too.
struct Hidden end
const hidden = Hidden()

isnull(value) = value === missing || value === nothing || value === hidden

"""
    build(field, values) -> Node

The values as an array of the field's type. Throws an `ArgumentError` that names the column, or what
the conversion of a value throws.
"""
build(field::Field, values::AbstractVector) = Base.invokelatest(build_now, field, values)::Node

# The loops over elements are compiled for each type of vector, but the code that chooses a loop
# only once. So `build` hides the types from the compiler, which would otherwise compile every
# choice for every type.
function build_now(field::Field, @nospecialize(values::AbstractVector))
    column = source(values)
    column !== nothing && same_layout(field, column.field) && return handed_on(column)
    field.dictionary === nothing || return build_dictionary(field, values)
    format = field.format
    startswith(format, "+") && return build_nested(field, format, values)
    format == "n" && return build_nulls(field, values)
    bits, nulls = bitmap(field, values)
    format == "b" && return Node(length(values), nulls, (bits, pack(values)))
    format in ("u", "z") && return build_offsets(field, Int32, values, bits, nulls)
    format in ("U", "Z") && return build_offsets(field, Int64, values, bits, nulls)
    format in ("vu", "vz") && return build_views(field, values, bits, nulls)
    startswith(format, "w:") &&
        return Node(length(values), nulls, (bits, fixed_bytes(field, values)))
    return Node(length(values), nulls, (bits, fixed(storage(field), values)))
end

# Whether arrays of one field can be used as arrays of the other.
same_layout(a::Field, b::Field) =
    a.format == b.format && length(a.children) == length(b.children) &&
    all(same_layout(x, y) for (x, y) in zip(a.children, b.children)) &&
    (a.dictionary === nothing) == (b.dictionary === nothing) &&
    (a.dictionary === nothing || same_layout(a.dictionary, b.dictionary)) &&
    (a.nullable || !b.nullable)

# A column that came from a server, as it is.
handed_on(column::Column) = handed_on(column.array, column.owner, column.offset, column.length)
function handed_on(array::ArrowArray, owner, offset = array.offset, length = array.length)
    children = [handed_on(unsafe_load(unsafe_load(array.children, i)), owner)
                for i in 1:array.n_children]
    whole = offset == array.offset && length == array.length
    return Node(length, whole ? array.null_count : -1, offset,
        [unsafe_load(array.buffers, i) for i in 1:array.n_buffers], Any[owner], children,
        array.dictionary == C_NULL ? nothing : handed_on(unsafe_load(array.dictionary), owner))
end

may_be_null(::Type{T}) where {T} = T >: Missing || T >: Nothing || T >: Hidden

# The validity bitmap, if one is needed, and the number of nulls.
function bitmap(field, values::AbstractVector{T}) where {T}
    may_be_null(T) || return nothing, 0
    nulls = 0
    bits = zeros(UInt8, cld(length(values), 8))
    for (i, value) in enumerate(values)
        if !isnull(value)
            bits[(i+7)>>3] |= 0x01 << ((i - 1) & 7)
        elseif field.nullable
            nulls += 1
        elseif value !== hidden
            throw(ArgumentError("column $(field.name) is not nullable and its element $i is $value"))
        end
    end
    return nulls == 0 ? (nothing, 0) : (bits, nulls)
end

function pack(values)
    bits = zeros(UInt8, cld(length(values), 8))
    for (i, value) in enumerate(values)
        isnull(value) || !convert(Bool, value) || (bits[(i+7)>>3] |= 0x01 << ((i - 1) & 7))
    end
    return bits
end

build_nulls(field, @nospecialize(values)) =
    all(isnull, values) ? Node(length(values), length(values), ()) :
    throw(ArgumentError("column $(field.name) is of the type null and has a value"))

# Values of fixed width: the type in which they are stored, and the function that converts a value
# to it.
struct Storage{T,F}
    make::F
end
Storage{T}(make::F) where {T,F} = Storage{T,F}(make)

fixed(::Storage{T}, values::DenseVector{T}) where {T} = values
function fixed(storage::Storage{T}, values) where {T}
    data = Vector{T}(undef, length(values))
    for (i, value) in enumerate(values)
        data[i] = isnull(value) ? zeroed(T) : convert(T, storage.make(value))
    end
    return data
end

function storage(field)
    format = field.format
    haskey(PRIMITIVE_FORMATS, format) &&
        return (T = PRIMITIVE_FORMATS[format]; Storage{T}(value -> convert(T, value)))
    format == "tdD" && return Storage{Int32}(days)
    format == "tdm" && return Storage{Int64}(milliseconds)
    format == "tiM" && return Storage{Int32}(value -> Dates.value(convert(Month, value)))
    format == "tts" && return Storage{Int32}(time_of(1_000_000_000))
    format == "ttm" && return Storage{Int32}(time_of(1_000_000))
    format == "ttu" && return Storage{Int64}(time_of(1_000))
    format == "ttn" && return Storage{Int64}(time_of(1))
    if startswith(format, "d:")
        numbers = parameters(format)
        T = DECIMAL_STORAGE[length(numbers) == 3 ? numbers[3] : 128]
        D = Decimal{numbers[1],numbers[2],T}
        return Storage{D}(value -> decimal(D, value))
    end
    if startswith(format, "ts") && haskey(TIMESTAMP_UNITS, format[3])
        U = TIMESTAMP_UNITS[format[3]]
        zone = parameter(format)
        # This method lets vectors of timestamps be stored without a conversion.
        U == Millisecond && isempty(zone) && return Storage{Int64}(milliseconds)
        T = Timestamp{U,isempty(zone) ? nothing : Symbol(zone)}
        return Storage{T}(value -> timestamp(T, value))
    end
    throw(ArgumentError("column $(field.name): this package does not know the Arrow type \"$format\""))
end

days(date::Date) = Dates.value(date) - EPOCH_DAYS
days(date) = days(Date(date))
milliseconds(time::DateTime) = Dates.value(time) - EPOCH_MILLISECONDS
milliseconds(time::Timestamp{Millisecond}) = time.value
milliseconds(time) = milliseconds(DateTime(time))
time_of(unit) = time -> exact(Dates.value(time::Time), unit)

timestamp(::Type{T}, time::T) where {T<:Timestamp} = time
timestamp(::Type{Timestamp{U,Z}}, time::Timestamp{U}) where {U,Z} = Timestamp{U,Z}(time.value)
function timestamp(::Type{Timestamp{U,Z}}, time) where {U,Z}
    count = milliseconds(time)
    per_second = PER_SECOND[U]
    return Timestamp{U,Z}(per_second >= 1000 ? Base.checked_mul(count, per_second ÷ 1000) :
                          exact(count, 1000 ÷ per_second))
end

function exact(count, unit)
    rest = rem(count, unit)
    rest == 0 || throw(InexactError(:exact, Int64, count // unit))
    return div(count, unit)
end

decimal(::Type{D}, value::D) where {D<:Decimal} = value
decimal(::Type{Decimal{P,S,T}}, value::Decimal{Q,S}) where {P,Q,S,T} =
    Decimal{P,S,T}(T(unscaled(value)))
function decimal(::Type{Decimal{P,S,T}}, value) where {P,S,T}
    scaled = Rational{BigInt}(value isa Decimal ? Rational(value) : value) * (big(10) // 1)^S
    return Decimal{P,S,T}(T(BigInt(scaled)))
end

# Bytes of text or of a blob.
bytes_of(value::AbstractString) = codeunits(value)
bytes_of(value::Union{Symbol,Char}) = codeunits(string(value))
bytes_of(value::AbstractVector{UInt8}) = value
bytes_of(value::NTuple{N,UInt8}) where {N} = value
bytes_of(value) = throw(ArgumentError("a $(typeof(value)) is neither text nor bytes"))

function build_offsets(field, ::Type{O}, values, bits, nulls) where {O}
    offsets = Vector{O}(undef, length(values) + 1)
    offsets[1] = 0
    total = 0
    for (i, value) in enumerate(values)
        total += isnull(value) ? 0 : length(bytes_of(value))
        total <= typemax(O) || throw(ArgumentError("column $(field.name) holds more than 2 GiB of" *
            " text or bytes: serve it in several batches, or with the format \"U\" or \"Z\""))
        offsets[i+1] = total
    end
    data = Vector{UInt8}(undef, total)
    for (i, value) in enumerate(values)
        isnull(value) || copyto!(data, Int(offsets[i]) + 1, bytes_of(value))
    end
    return Node(length(values), nulls, (bits, offsets, data))
end

function build_views(field, values, bits, nulls)
    views = zeros(UInt8, VIEW_BYTES * length(values))
    data = UInt8[]
    for (i, value) in enumerate(values)
        isnull(value) && continue
        bytes = collect(UInt8, bytes_of(value))
        at = VIEW_BYTES * (i - 1)
        put!(views, at, Int32(length(bytes)))
        if length(bytes) <= INLINE_BYTES
            copyto!(views, at + 5, bytes)
        else
            copyto!(views, at + 5, bytes, 1, 4)
            # The second number, which names the buffer, stays 0.
            put!(views, at + 12, Int32(length(data)))
            append!(data, bytes)
        end
    end
    return Node(length(values), nulls, (bits, views, data, Int64[length(data)]))
end

put!(bytes::Vector{UInt8}, at, number) =
    GC.@preserve bytes unsafe_store!(Ptr{typeof(number)}(pointer(bytes) + at), number)

function fixed_bytes(field, values)
    width = parse(Int, parameter(field.format))
    data = zeros(UInt8, width * length(values))
    for (i, value) in enumerate(values)
        isnull(value) && continue
        bytes = bytes_of(value)
        length(bytes) == width || throw(ArgumentError(
            "column $(field.name) holds $width bytes each, and its element $i has $(length(bytes))"))
        copyto!(data, width * (i - 1) + 1, bytes)
    end
    return data
end
