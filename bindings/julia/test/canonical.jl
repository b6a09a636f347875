# The form of canonical.py, of the values that this package gives.

escaped(text) = sprint() do io
    for c in text
        c < ' ' || c in ('"', '\\') ? print(io, "\\u", string(UInt16(c); base = 16, pad = 4)) : print(io, c)
    end
end
bits(x) = string(x; base = 16, pad = 2sizeof(x))

form(field, ::Missing) = "null"
form(field, @nospecialize(x::Bool)) = string(x)
form(field, @nospecialize(x::Integer)) = string(x)
form(field, @nospecialize(x::Float16)) = bits(reinterpret(UInt16, x))
form(field, @nospecialize(x::Float32)) = bits(reinterpret(UInt32, x))
form(field, @nospecialize(x::Float64)) = bits(reinterpret(UInt64, x))
form(field, @nospecialize(x::AbstractString)) = "\"$(escaped(x))\""
form(field, @nospecialize(x::AbstractVector{UInt8})) = field.format in ("+l", "+L", "+vl", "+vL") ? list(field, x) : "x'$(bytes2hex(x))'"
form(field, x::Dipc.Decimal{P,S}) where {P,S} = "$(Dipc.unscaled(x))e-$S"
form(field, @nospecialize(x::Date)) = string(Dates.value(x - Date(1970)))
form(field, @nospecialize(x::DateTime)) = string(Dates.value(x - DateTime(1970)))
form(field, @nospecialize(x::Dipc.Timestamp)) = string(Dates.value(x))
form(field, @nospecialize(x::Union{Second,Millisecond,Microsecond,Nanosecond})) = string(Dates.value(x))
form(field, @nospecialize(x::Time)) = string(Dates.value(x) ÷ Dict("tts" => 10^9, "ttm" => 10^6, "ttu" => 10^3, "ttn" => 1)[field.format])
form(field, @nospecialize(x::Month)) = "$(Dates.value(x))M0d0n"
form(field, @nospecialize(x::Dipc.DayTime)) = "$(x.days)d$(x.milliseconds)ms"
form(field, @nospecialize(x::Dipc.MonthDayNano)) = "$(x.months)M$(x.days)d$(x.nanoseconds)n"
form(field, @nospecialize(x::AbstractVector)) = list(field, x)
form(field, @nospecialize(x::NamedTuple)) =
    "{" * join(String[form(typed(field.children[i], x[i]), x[i]) for i in 1:length(x)], ",") * "}"
function form(field, @nospecialize(x::AbstractDict))
    key, value = field.children[1].children
    parts = String[]
    for i in 1:length(x)
        k, v = x.keys[i], x.values[i]
        push!(parts, "$(form(typed(key, k), k))=>$(form(typed(value, v), v))")
    end
    return "<" * join(parts, ",") * ">"
end
list(field, @nospecialize(x)) = "[" * joined(field.children[1], x) * "]"
# Plain loops over anything: the types are many and the values few.
function joined(field, @nospecialize(x))
    parts = String[]
    for i in eachindex(x)
        y = x[i]
        push!(parts, form(typed(field, y), y))
    end
    return join(parts, ",")
end

# The field that says what a value is: of a dictionary's or a run's values, of a union's child.
typed(field, @nospecialize(x)) =
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
            print_column(io, field, column)
        end
    end
    return String(take!(io))
end

function print_column(io, field, @nospecialize(column))
    for i in 1:length(column)
        x = column[i]
        println(io, form(typed(field, x), x))
    end
end
