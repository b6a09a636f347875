# Arrow's C data, C device and C stream structs, field by field as in dipc.h.

struct ArrowSchema
    format::Ptr{UInt8}
    name::Ptr{UInt8}
    metadata::Ptr{UInt8}
    flags::Int64
    n_children::Int64
    children::Ptr{Ptr{ArrowSchema}}
    dictionary::Ptr{ArrowSchema}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

struct ArrowArray
    length::Int64
    null_count::Int64
    offset::Int64
    n_buffers::Int64
    n_children::Int64
    buffers::Ptr{Ptr{Cvoid}}
    children::Ptr{Ptr{ArrowArray}}
    dictionary::Ptr{ArrowArray}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

struct ArrowDeviceArray
    array::ArrowArray
    device_id::Int64
    device_type::Int32
    sync_event::Ptr{Cvoid}
    reserved::NTuple{3,Int64}
end

struct ArrowDeviceArrayStream
    device_type::Int32
    get_schema::Ptr{Cvoid}
    get_next::Ptr{Cvoid}
    get_last_error::Ptr{Cvoid}
    release::Ptr{Cvoid}
    private_data::Ptr{Cvoid}
end

const ARROW_FLAG_DICTIONARY_ORDERED = 1
const ARROW_FLAG_NULLABLE = 2
const ARROW_FLAG_MAP_KEYS_SORTED = 4
const ARROW_DEVICE_CPU = Int32(1)
const ARROW_DEVICE_CUDA = Int32(2)

function zeroed(::Type{T}) where {T}
    zero_bytes = zeros(UInt8, sizeof(T))
    return GC.@preserve zero_bytes unsafe_load(Ptr{T}(pointer(zero_bytes)))
end

# The address of one field of a struct that lies in C memory.
field_ptr(p::Ptr{T}, name::Symbol) where {T} = field_ptr(p, Val(name))
@generated function field_ptr(p::Ptr{T}, ::Val{name}) where {T,name}
    index = findfirst(==(name), fieldnames(T))
    return :(Ptr{$(fieldtype(T, index))}(p + $(fieldoffset(T, index))))
end
