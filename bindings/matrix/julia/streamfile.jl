# Arrow IPC stream files, read and written with libdipc's own machines: a file is what a receiver is
# given and a sender gives, message by message. For the matrix peer and for tests of the package.

module StreamFile

using Libdl
import Dipc

c_function(name) = Libdl.dlsym(Dipc.functions().handle, name)

# The tag that a request has; any number that cannot be taken for a body's will do.
const WANT_DATA = 0x00000DEADBA0BAB0
const URI = "shm:@file?want_data=$(WANT_DATA)&free_data=1000000000000"

const METADATA, TAGGED = 1, 2
const GET = 1
const CONTINUATION = typemax(UInt32)

"""
    read_batches(path) -> (Dipc.Schema, Vector{Dipc.Batch})
"""
function read_batches(path)
    bytes = Base.read(path)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    ticket = UInt8[0x74]
    uris = [URI]
    GC.@preserve uris begin
        pointers = [pointer(uris[1])]
        Dipc.check(e -> ccall(c_function(:dipc_receiver_new), Int32,
            (Ptr{Ptr{UInt8}}, Csize_t, Int32, Ptr{UInt8}, Csize_t, Ptr{UInt8}, Ptr{Cvoid},
             Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), pointers, 1, GET, ticket, 1, C_NULL, C_NULL, out, e))
    end
    receiver = out[]
    try
        Dipc.check(e -> ccall(c_function(:dipc_receiver_start), Int32,
            (Ptr{Cvoid}, UInt64, Ptr{Ptr{Cvoid}}), receiver, time_ns(), e))
        return feed(receiver, bytes)
    finally
        ccall(c_function(:dipc_receiver_free), Cvoid, (Ptr{Cvoid},), receiver)
    end
end

function feed(receiver, bytes)
    schema, batches = nothing, Dipc.Batch[]
    at, sequence = 1, UInt32(0)
    number() = (at += 4; reinterpret(UInt32, bytes[at-4:at-1])[1])
    while at + 4 <= length(bytes) + 1
        len = number()
        len == CONTINUATION && (len = number())
        len == 0 && break
        message = vcat(UInt8[METADATA], reinterpret(UInt8, [sequence]), bytes[at:at+len-1])
        at += len
        Dipc.check(e -> ccall(c_function(:dipc_receiver_handle_metadata), Int32,
            (Ptr{Cvoid}, UInt64, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}),
            receiver, time_ns(), message, length(message), e))
        packed = expected_bytes(receiver)
        if packed !== nothing
            body = bytes[at:at+packed-1]
            at += packed
            Dipc.check(e -> ccall(c_function(:dipc_receiver_handle_tagged), Int32,
                (Ptr{Cvoid}, UInt64, UInt64, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}),
                receiver, time_ns(), UInt64(sequence), body, length(body), e))
        end
        schema === nothing && (schema = read_schema(receiver))
        batch = next_batch(receiver, schema)
        batch === nothing || push!(batches, batch)
        sequence += UInt32(1)
    end
    schema === nothing && error("the file holds no schema")
    return schema, batches
end

# The length of the body that belongs to the header that was given last.
function expected_bytes(receiver)
    sequence, packed, list = Ref{UInt32}(0), Ref{UInt64}(0), Ref{UInt64}(0)
    status = Dipc.check(e -> ccall(c_function(:dipc_receiver_poll_expected), Int32,
        (Ptr{Cvoid}, Ptr{UInt32}, Ptr{UInt64}, Ptr{UInt64}, Ptr{Ptr{Cvoid}}),
        receiver, sequence, packed, list, e))
    return status == Dipc.OK ? Int(packed[]) : nothing
end

function read_schema(receiver)
    out = Ref(Dipc.zeroed(Dipc.ArrowSchema))
    Dipc.check(e -> ccall(c_function(:dipc_receiver_schema), Int32,
        (Ptr{Cvoid}, Ptr{Dipc.ArrowSchema}, Ptr{Ptr{Cvoid}}), receiver, out, e))
    GC.@preserve out begin
        p = Base.unsafe_convert(Ptr{Dipc.ArrowSchema}, out)
        schema = Dipc.Schema(p)
        Dipc.release_schema(p)
        return schema
    end
end

function next_batch(receiver, schema)
    out = Ref(Dipc.zeroed(Dipc.ArrowDeviceArray))
    status = Dipc.check(e -> ccall(c_function(:dipc_receiver_next), Int32,
        (Ptr{Cvoid}, Ptr{Dipc.ArrowDeviceArray}, Ptr{Ptr{Cvoid}}), receiver, out, e))
    return status == Dipc.OK ? Dipc.Batch(schema, Dipc.Owner(out)) : nothing
end

"""
    write_batches(path, schema, batches)
"""
function write_batches(path, schema, batches)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    Dipc.check(e -> ccall(c_function(:dipc_sender_new), Int32,
        (Cstring, Int32, Ptr{Ptr{Cvoid}}, Ptr{Ptr{Cvoid}}), URI, 1, out, e))
    sender = out[]
    try
        open(path, "w") do io
            ticket = UInt8[0x74]
            Dipc.check(e -> ccall(c_function(:dipc_sender_handle_tagged), Int32,
                (Ptr{Cvoid}, UInt64, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}), sender, WANT_DATA, ticket, 1, e))
            Dipc.with_schema(schema) do c
                Dipc.check(e -> ccall(c_function(:dipc_sender_start), Int32,
                    (Ptr{Cvoid}, Ptr{Dipc.ArrowSchema}, Int32, Ptr{Ptr{Cvoid}}),
                    sender, c, Dipc.ARROW_DEVICE_CPU, e))
            end
            take_messages(io, sender)
            for batch in batches
                array = Dipc.export_array(Dipc.build_batch(schema, batch))
                try
                    Dipc.check(e -> ccall(c_function(:dipc_sender_send_batch), Int32,
                        (Ptr{Cvoid}, Ptr{Dipc.ArrowDeviceArray}, Ptr{UInt8}, Csize_t, Ptr{Ptr{Cvoid}}),
                        sender, array, C_NULL, 0, e))
                    take_messages(io, sender)
                finally
                    Dipc.release_export(array)
                    Dipc.collect_exports()
                end
            end
            write(io, CONTINUATION, UInt32(0))
        end
    finally
        ccall(c_function(:dipc_sender_free), Cvoid, (Ptr{Cvoid},), sender)
        Dipc.collect_exports()
    end
    return
end

# Writes what the sender has to send: headers as they come, each with its body behind it.
function take_messages(io, sender)
    class, tag, count = Ref{Int32}(0), Ref{UInt64}(0), Ref{Csize_t}(0)
    parts, lens = Ref{Ptr{Ptr{UInt8}}}(C_NULL), Ref{Ptr{Csize_t}}(C_NULL)
    while Dipc.OK == Dipc.check(e -> ccall(c_function(:dipc_sender_poll_transmit), Int32,
        (Ptr{Cvoid}, Ptr{Int32}, Ptr{UInt64}, Ptr{Ptr{Ptr{UInt8}}}, Ptr{Ptr{Csize_t}}, Ptr{Csize_t},
         Ptr{Ptr{Cvoid}}), sender, class, tag, parts, lens, count, e))
        buffer = IOBuffer()
        for i in 1:count[]
            unsafe_write(buffer, unsafe_load(parts[], i), unsafe_load(lens[], i))
        end
        bytes = take!(buffer)
        if class[] == METADATA
            header = bytes[6:end] # after the kind and the number
            append!(header, zeros(UInt8, mod(-length(header), 8)))
            write(io, CONTINUATION, UInt32(length(header)), header)
        elseif class[] == TAGGED
            write(io, bytes)
        else
            error("the sender gives up: $(String(bytes))")
        end
    end
end

end
