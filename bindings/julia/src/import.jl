# A C array as vectors, by the format of its field.

const PRIMITIVE_FORMATS = Dict{String,DataType}(
    "c" => Int8, "C" => UInt8, "s" => Int16, "S" => UInt16, "i" => Int32, "I" => UInt32,
    "l" => Int64, "L" => UInt64, "e" => Float16, "f" => Float32, "g" => Float64,
    "tDs" => Second, "tDm" => Millisecond, "tDu" => Microsecond, "tDn" => Nanosecond,
    "tiD" => DayTime, "tin" => MonthDayNano,
)
const TIMESTAMP_UNITS =
    Dict('s' => Second, 'm' => Millisecond, 'u' => Microsecond, 'n' => Nanosecond)
const DECIMAL_STORAGE = Dict(32 => Int32, 64 => Int64, 128 => Int128, 256 => Int256)

"""
    vector(column::Column) -> AbstractVector

The column as a vector, with `missing` if its field allows nulls or the data has some.
"""
vector(column::Column) = Base.invokelatest(vector_now, column)::AbstractVector

# Only the format says which type of vector this is. `vector` hides that from the compiler, which
# would otherwise infer the types of all possible vectors.
function vector_now(column::Column)
    values = values_vector(column)
    # These types have no bitmap.
    values isa Union{Nulls,Unions,Runs} && return values
    nullable = column.field.nullable || validity(column) != C_NULL
    return nullable ? Nullable(values, column) : values
end

function values_vector(column::Column)
    format = column.field.format
    column.field.dictionary === nothing || return encoded(column)
    haskey(PRIMITIVE_FORMATS, format) &&
        return Primitive{PRIMITIVE_FORMATS[format]}(column, buffer(column, 2))
    startswith(format, "+") && return nested(column, format)
    startswith(format, "t") && return temporal(column, format)
    startswith(format, "d:") && return decimals(column, format)
    startswith(format, "w:") &&
        return FixedBytes(buffer(column, 2), parse(Int, parameter(format)), column)
    format == "b" && return Bits(buffer(column, 2), column)
    format == "n" && return Nulls(column)
    format == "u" && return offsets(StringView, Int32, column)
    format == "U" && return offsets(StringView, Int64, column)
    format == "z" && return offsets(Bytes, Int32, column)
    format == "Z" && return offsets(Bytes, Int64, column)
    format == "vu" && return Views{StringView}(buffer(column, 2), column)
    format == "vz" && return Views{Bytes}(buffer(column, 2), column)
    return unknown_format(column)
end

unknown_format(column) = throw(DipcError(ERR_UNSUPPORTED,
    "column $(column.field.name): this package does not know the Arrow type \"$(column.field.format)\""))

offsets(::Type{E}, ::Type{O}, column) where {E,O} =
    Offsets{E,O}(buffer(column, 2), buffer(column, 3), column)

function decimals(column, format)
    numbers = parameters(format)
    precision, scale = numbers[1], numbers[2]
    bits = length(numbers) == 3 ? numbers[3] : 128
    haskey(DECIMAL_STORAGE, bits) || return unknown_format(column)
    return Primitive{Decimal{precision,scale,DECIMAL_STORAGE[bits]}}(column, buffer(column, 2))
end

function temporal(column, format)
    data = buffer(column, 2)
    mapped(T, make, S) = Mapped{T}(make, Primitive{S}(column, data), column)
    format == "tdD" && return mapped(Date, date_of_days, Int32)
    format == "tdm" && return mapped(DateTime, datetime_of_ms, Int64)
    format == "tiM" && return mapped(Month, Month, Int32)
    format == "tts" && return mapped(Time, TimeOf(1_000_000_000), Int32)
    format == "ttm" && return mapped(Time, TimeOf(1_000_000), Int32)
    format == "ttu" && return mapped(Time, TimeOf(1_000), Int64)
    format == "ttn" && return mapped(Time, TimeOf(1), Int64)
    if length(format) >= 4 && format[1:2] == "ts" && haskey(TIMESTAMP_UNITS, format[3])
        zone = parameter(format)
        unit = TIMESTAMP_UNITS[format[3]]
        unit == Millisecond && isempty(zone) && return mapped(DateTime, datetime_of_ms, Int64)
        return Primitive{Timestamp{unit,isempty(zone) ? nothing : Symbol(zone)}}(column, data)
    end
    return unknown_format(column)
end

function nested(column, format)
    format == "+s" && return structs(column)
    format == "+r" && return runs(column)
    startswith(format, "+u") && return unions(column, format)
    if format == "+m"
        entries = child(column, 1)
        return Maps(Ptr{Int32}(buffer(column, 2)), struct_child(entries, 1), struct_child(entries, 2),
                    column)
    end
    if startswith(format, "+w:")
        size = parse(Int, parameter(format))
        return FixedLists(size, vector(child(column, 1, column.offset * size, column.length * size)),
                          column)
    end
    format in ("+l", "+L", "+vl", "+vL") || return unknown_format(column)
    O = format in ("+l", "+vl") ? Int32 : Int64
    values = vector(child(column, 1))
    first = Ptr{O}(buffer(column, 2))
    return format in ("+l", "+L") ? Lists(first, values, column) :
           ListViews(first, Ptr{O}(buffer(column, 3)), values, column)
end

# The rows of a struct's child are counted from the struct's own first.
struct_child(column, i) = vector(child(column, i, column.offset, column.length))

structs(column) = Structs(unique_names(column.field.children),
    AbstractVector[struct_child(column, i) for i in eachindex(column.field.children)], column)

# Names as symbols, all different: Arrow allows a name twice, named tuples do not.
function unique_names(fields)
    names, seen = Symbol[], Set{String}()
    for field in fields
        name, n = field.name, 1
        while name in seen
            name = "$(field.name)_$n"
            n += 1
        end
        push!(seen, name)
        push!(names, Symbol(name))
    end
    return names
end

function unions(column, format)
    dense = startswith(format, "+ud:")
    text = parameter(format)
    ids = isempty(text) ? Int[] : parse.(Int, split(text, ','))
    children = AbstractVector[dense ? vector(child(column, i)) : struct_child(column, i)
                              for i in eachindex(ids)]
    which = ntuple(code -> Int8(something(findfirst(==(code - 1), ids), 0)), 128)
    T = Union{map(element_type, children)...}
    return Unions{T}(buffer(column, 1), dense ? buffer(column, 2) : C_NULL, which, children, column)
end

encoded(column) = Encoded(Primitive{PRIMITIVE_FORMATS[column.field.format]}(column, buffer(column, 2)),
                          vector(dictionary(column)), column)

runs(column) = Runs(values_vector(child(column, 1)), vector(child(column, 2)), column)
