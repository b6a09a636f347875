# Vectors as Arrow buffers, of nested and encoded types: the elements' parts are gathered into
# vectors, which are built in their turn.

function build_nested(field, format, @nospecialize(values))
    format == "+r" && return build_runs(field, values)
    startswith(format, "+u") && return build_union(field, format, values)
    bits, nulls = bitmap(field, values)
    format == "+s" && return build_struct(field, values, bits, nulls)
    format in ("+l", "+m") && return build_lists(field, Int32, values, bits, nulls)
    format == "+L" && return build_lists(field, Int64, values, bits, nulls)
    format == "+vl" && return build_list_views(field, Int32, values, bits, nulls)
    format == "+vL" && return build_list_views(field, Int64, values, bits, nulls)
    startswith(format, "+w:") && return build_fixed_lists(field, values, bits, nulls)
    throw(ArgumentError("column $(field.name): this package does not know the Arrow type \"$format\""))
end

# The elements of a list, or of a map.
elements(list::Union{AbstractVector,Tuple}) = list
elements(map::AbstractDict) = collect(pairs(map))
elements(map::MapView) = [map.keys[i] => map.values[i] for i in 1:length(map)]
elements(other) = throw(ArgumentError("a $(typeof(other)) is no list and no dictionary"))

# All elements in one vector, whose type is as narrow as theirs, and the place where each list
# begins.
function flatten(@nospecialize(values))
    ends = Int[0]
    all = []
    for value in values
        isnull(value) || append!(all, elements(value))
        push!(ends, length(all))
    end
    return narrowed(all), ends
end

# The same values in a vector of their own type, because loops over a vector of Any are slow.
narrowed(values) = isempty(values) ? values : identity.(values)

function list_offsets(field, ::Type{O}, ends) where {O}
    last(ends) <= typemax(O) || throw(ArgumentError("column $(field.name) holds more than" *
        " $(typemax(O)) elements of lists: serve it in several batches"))
    return convert(Vector{O}, ends)
end

function build_lists(field, ::Type{O}, @nospecialize(values), bits, nulls) where {O}
    all, ends = flatten(values)
    return Node(length(values), nulls, (bits, list_offsets(field, O, ends));
                children = [build(field.children[1], all)])
end

function build_list_views(field, ::Type{O}, @nospecialize(values), bits, nulls) where {O}
    all, ends = flatten(values)
    offsets = list_offsets(field, O, ends)
    return Node(length(values), nulls, (bits, offsets[1:end-1], diff(offsets));
                children = [build(field.children[1], all)])
end

function build_fixed_lists(field, @nospecialize(values), bits, nulls)
    size = parse(Int, parameter(field.format))
    all = []
    for (i, value) in enumerate(values)
        list = isnull(value) ? fill(hidden, size) : elements(value)
        length(list) == size || throw(ArgumentError(
            "column $(field.name) holds lists of $size, and its element $i has $(length(list))"))
        append!(all, list)
    end
    return Node(length(values), nulls, (bits,); children = [build(field.children[1], narrowed(all))])
end

function build_struct(field, @nospecialize(values), bits, nulls)
    names = unique_names(field.children)
    children = [build(child, narrowed(Any[isnull(value) ? hidden : part_of(value, names[i], i)
                                          for value in values]))
                for (i, child) in enumerate(field.children)]
    return Node(length(values), nulls, (bits,); children = children)
end

# One field of a struct value: of a named tuple by name, so that the order of its fields does not
# matter.
part_of(value::NamedTuple, name, i) = haskey(value, name) ? value[name] : throw(
    ArgumentError("a struct has no $name: $value"))
part_of(pair::Pair, name, i) = pair[i]
part_of(value::AbstractDict, name, i) = value[name]
part_of(value, name, i) = getproperty(value, name)

function build_union(field, format, @nospecialize(values))
    ids = parse.(Int8, split(parameter(format), ','; keepempty = false))
    which = Int[child_for(field, ids, value, i) for (i, value) in enumerate(values)]
    type_ids = Int8[ids[child] for child in which]
    plain = Any[value isa UnionValue ? value.value : value for value in values]
    if startswith(format, "+us:")
        parts = [narrowed(Any[which[i] == child ? plain[i] : hidden for i in eachindex(plain)])
                 for child in eachindex(ids)]
        children = [build(field.children[child], parts[child]) for child in eachindex(ids)]
        return Node(length(values), 0, (type_ids,); children = children)
    end
    counts = zeros(Int32, length(ids))
    offsets = Vector{Int32}(undef, length(values))
    for (i, child) in enumerate(which)
        offsets[i] = counts[child]
        counts[child] += 1
    end
    children = [build(field.children[child], narrowed(plain[which.==child])) for child in eachindex(ids)]
    return Node(length(values), 0, (type_ids, offsets); children = children)
end

# The child for a value: the child that the value names, or the first child of its type.
function child_for(field, ids, @nospecialize(value), i)
    at = value isa UnionValue ? findfirst(==(value.id), ids) :
         value === hidden ? firstindex(ids) : findfirst(child -> takes(child, value), field.children)
    at === nothing && throw(ArgumentError(
        "column $(field.name): no child of the union takes its element $i, $(repr(value))"))
    return at
end

function takes(field::Field, @nospecialize(value))
    isnull(value) && return field.nullable || field.format == "n"
    field.dictionary === nothing || return takes(field.dictionary, value)
    format = field.format
    haskey(PRIMITIVE_FORMATS, format) && return value isa PRIMITIVE_FORMATS[format]
    kind = first(format) == '+' ? format[1:2] : first(format) == 't' ? format[1:3] : format[1:1]
    T = Base.get(JULIA_KINDS, kind, nothing)
    T === nothing || return value isa T
    try
        return field_of("", typeof(value), [value]).format == format
    catch exception
        # A value that no Arrow type can hold has no child.
        exception isa NoFormat || rethrow()
        return false
    end
end

const JULIA_KINDS = Dict{String,Type}(
    "b" => Bool, "u" => Union{AbstractString,Symbol,Char}, "U" => Union{AbstractString,Symbol,Char},
    "z" => AbstractVector{UInt8}, "Z" => AbstractVector{UInt8}, "w" => AbstractVector{UInt8},
    "v" => Union{AbstractString,AbstractVector{UInt8}}, "d" => Decimal, "tdD" => Date,
    "tdm" => DateTime, "tiM" => Month, "tts" => Time, "ttm" => Time, "ttu" => Time, "ttn" => Time,
    "+s" => NamedTuple, "+l" => AbstractVector, "+L" => AbstractVector, "+w" => AbstractVector,
    "+v" => AbstractVector, "+m" => AbstractDict,
)

function build_dictionary(field, @nospecialize(values))
    T = PRIMITIVE_FORMATS[field.format]
    levels, code_of = [], Dict{Any,T}()
    codes = Vector{Union{T,Missing}}(undef, length(values))
    for (i, value) in enumerate(values)
        codes[i] = isnull(value) ? missing : get!(code_of, value) do
            length(levels) <= typemax(T) || throw(ArgumentError("column $(field.name) has more" *
                " different values than its indices of type $T can count"))
            push!(levels, value)
            T(length(levels) - 1)
        end
    end
    bits, nulls = bitmap(field, Any[isnull(value) ? value : true for value in values])
    data = fixed(Storage{T}(identity), codes)
    return Node(length(values), nulls, (bits, data);
                dictionary = build(field.dictionary, narrowed(levels)))
end

function build_runs(field, @nospecialize(values))
    T = PRIMITIVE_FORMATS[field.children[1].format]
    ends, firsts = T[], []
    for (i, value) in enumerate(values)
        if !isempty(firsts) && isequal(last(firsts), value)
            ends[end] = i
        else
            push!(ends, i)
            push!(firsts, value)
        end
    end
    return Node(length(values), 0, ();
                children = [Node(length(ends), 0, (nothing, ends)), build(field.children[2], narrowed(firsts))])
end
