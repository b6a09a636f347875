# The form of canonical.py, of the values that this package gives.

escaped(text) = sprint() do io
    for c in text
        c < ' ' || c in ('"', '\\') ? print(io, "\\u", string(UInt16(c); base = 16, pad = 4)) : print(io, c)
    end
end
bits(x) = string(x; base = 16, pad = 2sizeof(x))

form(field, ::Missing) = "null"
form(field, x::Bool) = string(x)
form(field, x::Integer) = string(x)
form(field, x::Float16) = bits(reinterpret(UInt16, x))
form(field, x::Float32) = bits(reinterpret(UInt32, x))
form(field, x::Float64) = bits(reinterpret(UInt64, x))
form(field, x::AbstractString) = "\"$(escaped(x))\""
form(field, x::AbstractVector{UInt8}) = field.format in ("+l", "+L", "+vl", "+vL") ? list(field, x) : "x'$(bytes2hex(x))'"
form(field, x::Dipc.Decimal{P,S}) where {P,S} = "$(Dipc.unscaled(x))e-$S"
form(field, x::Date) = string(Dates.value(x - Date(1970)))
form(field, x::DateTime) = string(Dates.value(x - DateTime(1970)))
form(field, x::Dipc.Timestamp) = string(Dates.value(x))
form(field, x::Union{Second,Millisecond,Microsecond,Nanosecond}) = string(Dates.value(x))
form(field, x::Time) = string(Dates.value(x) ÷ Dict("tts" => 10^9, "ttm" => 10^6, "ttu" => 10^3, "ttn" => 1)[field.format])
form(field, x::Month) = "$(Dates.value(x))M0d0n"
form(field, x::Dipc.DayTime) = "$(x.days)d$(x.milliseconds)ms"
form(field, x::Dipc.MonthDayNano) = "$(x.months)M$(x.days)d$(x.nanoseconds)n"
form(field, x::AbstractVector) = list(field, x)
form(field, x::NamedTuple) =
    "{" * join((form(typed(child, y), y) for (child, y) in zip(field.children, x)), ",") * "}"
function form(field, x::AbstractDict)
    key, value = field.children[1].children
    return "<" * join(("$(form(typed(key, k), k))=>$(form(typed(value, v), v))" for (k, v) in pairs(x)), ",") * ">"
end
list(field, x) = "[" * join((form(typed(field.children[1], y), y) for y in x), ",") * "]"

# The field that says what a value is: of a dictionary's or a run's values, of a union's child.
typed(field, x) =
    field.dictionary !== nothing ? typed(field.dictionary, x) :
    field.format == "+r" ? typed(field.children[2], x) :
    startswith(field.format, "+u") && x !== missing ?
        typed(first(child for child in field.children if Dipc.takes(child, x)), x) : field

function canonical(batches)
    io = IOBuffer()
    for batch in batches
        println(io, "batch ", Dipc.nrows(batch))
        for (field, column) in zip(Dipc.schema(batch).fields, batch)
            println(io, "column ", field.name)
            foreach(x -> println(io, form(typed(field, x), x)), column)
        end
    end
    return String(take!(io))
end
