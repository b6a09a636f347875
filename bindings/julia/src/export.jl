# Arrays as C structs, and their release.
#
# The library may release an array on any thread, and Julia before 1.9 can be entered on its own
# threads only. So a release runs no Julia code: it sets a byte of C memory. `collect_exports` looks
# for arrays whose bytes are all set and lets go of their memory.

# An array that was handed to the library, with all its children.
mutable struct Export
    node::Node            # what keeps the buffers alive
    memory::Ptr{UInt8}    # one block: a byte for each array, then structs and lists of pointers
    arrays::Int
end

const EXPORTS = Export[]
const EXPORTS_LOCK = ReentrantLock()

# With `--compile=min` Julia compiles only functions that hold a `ccall` themselves, and interprets
# all others, which allocates: on a thread that is not Julia's the next collection would then crash.
# So the calls below are written as `ccall`s; every other function that is called here must be
# inlined.
function release_array(p::Ptr{ArrowArray})::Cvoid
    array = unsafe_load(p)
    for i in 1:array.n_children
        child = unsafe_load(array.children, i)
        # A child that was moved elsewhere is released by its new owner.
        release = unsafe_load(field_ptr(child, Val(:release)))
        release == C_NULL || ccall(release, Cvoid, (Ptr{ArrowArray},), child)
    end
    if array.dictionary != C_NULL
        release = unsafe_load(field_ptr(array.dictionary, Val(:release)))
        release == C_NULL || ccall(release, Cvoid, (Ptr{ArrowArray},), array.dictionary)
    end
    unsafe_store!(field_ptr(p, Val(:release)), C_NULL)
    # All reads of the buffers happened before this.
    Threads.atomic_fence()
    unsafe_store!(Ptr{UInt8}(array.private_data), 0x01)
    return
end

function release_function()
    # The function is compiled now, because a thread of the library could not compile it.
    precompile(release_array, (Ptr{ArrowArray},))
    return @cfunction(release_array, Cvoid, (Ptr{ArrowArray},))
end

count_arrays(node::Node) = 1 + sum(Int[count_arrays(child) for child in node.children]) +
    (node.dictionary === nothing ? 0 : count_arrays(node.dictionary))
count_pointers(node::Node) = length(node.buffers) + length(node.children) +
    sum(Int[count_pointers(child) for child in node.children]) +
    (node.dictionary === nothing ? 0 : count_pointers(node.dictionary))

"""
    export_array(node) -> Base.RefValue{ArrowDeviceArray}

The node as a C array, to be moved to the library or released. Until it is released the node is kept
alive.
"""
function export_array(node::Node)
    arrays = count_arrays(node)
    flags = cld(arrays, 8) * 8
    memory = Ptr{UInt8}(Libc.calloc(1, flags + arrays * sizeof(ArrowArray) +
                                       count_pointers(node) * sizeof(Ptr)))
    memory == C_NULL && throw(OutOfMemoryError())
    writer = Writer(memory, Ptr{ArrowArray}(memory + flags),
        Ptr{Ptr{Cvoid}}(memory + flags + arrays * sizeof(ArrowArray)), release_function())
    array = put_array!(writer, node)
    lock(() -> push!(EXPORTS, Export(node, memory, arrays)), EXPORTS_LOCK)
    return Ref(ArrowDeviceArray(array, -1, ARROW_DEVICE_CPU, C_NULL, (0, 0, 0)))
end

# Where in the block the next flag, struct and pointer go.
mutable struct Writer
    flag::Ptr{UInt8}
    array::Ptr{ArrowArray}
    pointer::Ptr{Ptr{Cvoid}}
    release::Ptr{Cvoid}
end

function put_pointers!(writer, pointers)
    first = writer.pointer
    for (i, p) in enumerate(pointers)
        unsafe_store!(first, p, i)
    end
    writer.pointer += length(pointers) * sizeof(Ptr)
    return first
end

function put_array!(writer, node::Node)
    flag = writer.flag
    writer.flag += 1
    children = Ptr{Cvoid}[put_child!(writer, child) for child in node.children]
    dictionary = node.dictionary === nothing ? C_NULL : put_child!(writer, node.dictionary)
    return ArrowArray(node.length, node.null_count, node.offset, length(node.buffers),
        length(node.children), put_pointers!(writer, node.buffers), put_pointers!(writer, children),
        dictionary, writer.release, flag)
end

function put_child!(writer, node::Node)
    p = writer.array
    writer.array += sizeof(ArrowArray)
    unsafe_store!(p, put_array!(writer, node))
    return p
end

# Releases an array that the library did not take.
function release_export(array::Base.RefValue{ArrowDeviceArray})
    release = array[].array.release
    GC.@preserve array release == C_NULL ||
        ccall(release, Cvoid, (Ptr{Cvoid},), Base.unsafe_convert(Ptr{ArrowDeviceArray}, array))
    return
end

# Lets go of everything that was released. Returns how many arrays are not released yet.
function collect_exports()
    lock(EXPORTS_LOCK) do
        filter!(EXPORTS) do given
            given_back(given) || return true
            Libc.free(given.memory)
            return false
        end
        return length(EXPORTS)
    end
end

given_back(given::Export) = all(i -> unsafe_load(given.memory, i) == 0x01, 1:given.arrays) &&
    (Threads.atomic_fence(); true)
