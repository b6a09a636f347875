# Arrays that lie on a device: where they are wanted, and what a stream of them gives.

"""
    Dipc.DeviceBatch

A record batch that lies on a device, which Julia cannot look into: `Dipc.nrows`, `Dipc.schema` and
`Dipc.metadata` say what it is, `Dipc.device` where it lies, and `pointer(batch)` is its C struct
`ArrowDeviceArray`, for libraries that read it there. Such a library waits for the struct's
`sync_event`, if there is one, and must not release the struct: its memory lives as long as the
batch.
"""
struct DeviceBatch
    owner::Owner
    schema::Schema
    metadata::Vector{Pair{String,String}}
end

nrows(batch::DeviceBatch) = Int(batch.owner.array[].array.length)
schema(batch::DeviceBatch) = batch.schema
metadata(batch::DeviceBatch) = batch.metadata
Base.pointer(batch::DeviceBatch) = Base.unsafe_convert(Ptr{ArrowDeviceArray}, batch.owner.array)
Base.show(io::IO, batch::DeviceBatch) =
    print(io, "Dipc.DeviceBatch(", nrows(batch), " rows on ", device(batch), ")")

"""
    Dipc.device(batch) -> Symbol or Tuple

Where a batch lies: `:host`, `(:cuda, n)`, or Arrow's numbers of another device.
"""
device(::Batch) = :host
function device(batch::DeviceBatch)
    array = batch.owner.array[]
    return (array.device_type == ARROW_DEVICE_CUDA ? :cuda : array.device_type, array.device_id)
end

# Arrow's type and number of the device that an option names.
device_option(device::Symbol) =
    (Int32(named_option("device", (host = 1, cuda = 2, as_sent = 0), device)), Int64(0))
function device_option(device::Tuple{Symbol,Integer})
    device[1] === :cuda ||
        throw(ArgumentError("device is $device: only CUDA devices have numbers, as in (:cuda, 0)"))
    return (ARROW_DEVICE_CUDA, Int64(device[2]))
end
device_option(device) =
    throw(ArgumentError("device is $(repr(device)): give :host, :cuda, (:cuda, n) or :as_sent"))
