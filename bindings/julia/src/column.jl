# The memory of a batch, and who keeps it.

# An array that the library gave. Every view of its memory refers to the owner. When no view is
# left, the finalizer releases the array, on the thread of the collector. The library allows that:
# it only queues the release, and calls no Julia code.
mutable struct Owner
    array::Base.RefValue{ArrowDeviceArray}

    function Owner(array::Base.RefValue{ArrowDeviceArray})
        return finalizer(release_owner, new(array))
    end
end

function release_owner(owner::Owner)
    array = owner.array
    GC.@preserve array begin
        p = Ptr{ArrowArray}(Base.unsafe_convert(Ptr{ArrowDeviceArray}, array))
        release = unsafe_load(field_ptr(p, Val(:release)))
        release == C_NULL || ccall(release, Cvoid, (Ptr{ArrowArray},), p)
    end
    return
end

# One column of a batch, or a child of a column, as it came. A vector is a view of it, and serving
# the vector again hands it on without a copy.
mutable struct Column
    field::Field
    array::ArrowArray
    offset::Int # of the first row, in the array's buffers
    length::Int
    owner::Owner
end

buffer(column::Column, i) = unsafe_load(column.array.buffers, i)

# A child, from the parent's row `offset` on.
function child(column::Column, i, offset = 0, length = nothing)
    array = unsafe_load(unsafe_load(column.array.children, i))
    rows = length === nothing ? array.length - offset : length
    # The library checks what comes; this check is for streams that it was told not to check.
    0 <= offset && 0 <= rows && offset + rows <= array.length || throw(DipcError(ERR_INVALID_DATA,
        "column $(column.field.name): a child has $(array.length) rows and $(offset + rows) are used"))
    return Column(column.field.children[i], array, array.offset + offset, rows, column.owner)
end

function dictionary(column::Column)
    array = unsafe_load(column.array.dictionary)
    return Column(column.field.dictionary, array, array.offset, array.length, column.owner)
end

# The address of the bitmap that says which rows are not null; NULL if none is null.
function validity(column::Column)
    array = column.array
    array.n_buffers == 0 && return Ptr{UInt8}(C_NULL)
    return array.null_count == 0 ? Ptr{UInt8}(C_NULL) : Ptr{UInt8}(buffer(column, 1))
end

@inline bit(bits::Ptr{UInt8}, i::Int) = (unsafe_load(bits, (i >> 3) + 1) >> (i & 7)) & 0x01 != 0
