# All figures of a server, of one label, or of the process: dipc_server_stats, field by field.

"""
    Dipc.Histogram

How often values came, by size.

- `count`, `sum`: how many came, and their sum
- `buckets`, `bounds`: `buckets[i]` of them were not greater than `bounds[i]`, and greater than
  `bounds[i - 1]`; the last bound is `typemax(UInt64)`
"""
struct Histogram
    count::Int
    sum::Int
    buckets::Vector{Int}
    bounds::Vector{UInt64}
end
Base.show(io::IO, h::Histogram) = print(io, "Dipc.Histogram(", h.count, " values, sum ", h.sum, ")")

# The members of dipc_server_stats in their order: numbers, counts by status, histograms, later numbers.
const FIGURE_NUMBERS = (
    :connections, :connections_opened, :connections_closed, :connections_refused, :streams_active,
    :lent_outstanding, :region_bytes, :batches_sent, :rows_sent, :batches_received, :rows_received, :bytes_lent,
    :bytes_copied, :bytes_sent, :bytes_copied_on_device, :bytes_staged, :bytes_received, :requests_get,
    :requests_put, :requests_exchange, :requests_describe, :requests_list, :requests_finished,
)
const FIGURES_BY_STATUS = (:requests_failed, :requests_refused)
const FIGURE_HISTOGRAMS = (:first_batch_ns, :hand_over_ns, :request_bytes)
const LATER_NUMBERS = (:rows_read,)
const STATS_STATUSES = 64
const HISTOGRAM_BUCKETS = 130
const FIGURE_NAMES = (FIGURE_NUMBERS..., FIGURES_BY_STATUS..., FIGURE_HISTOGRAMS..., LATER_NUMBERS...)
# Each is of 64 bits.
const FIGURE_WORDS = length(FIGURE_NUMBERS) + length(FIGURES_BY_STATUS) * STATS_STATUSES +
                     length(FIGURE_HISTOGRAMS) * (2 + HISTOGRAM_BUCKETS) + length(LATER_NUMBERS)

"""
    Dipc.figures(server) -> NamedTuple
    Dipc.figures(server, label) -> NamedTuple
    Dipc.figures() -> NamedTuple

All figures of a server; of its requests with one label; of all servers of the process together,
closed ones included. They count from the start, except those of this moment: `connections`,
`streams_active`, `lent_outstanding` and `region_bytes`. The label is a ticket, what
[`Dipc.set_label`](@ref) has said, `"(handler)"`, `"(list)"` or `"(other)"`; a label under which
nothing was counted fails with `Dipc.ERR_NOT_FOUND`.

`requests_failed` and `requests_refused` are dictionaries from statuses, as `Dipc.ERR_BUSY`, to
counts; the key 0 counts statuses that the host made up. `first_batch_ns`, `hand_over_ns` and
`request_bytes` are [`Dipc.Histogram`](@ref)s. The other names are those of `dipc_server_stats` in
`dipc.h`.
"""
figures(server::Server) = using_handle(server) do handle
    read_figures((out, size, error) -> ccall(@c(dipc_server_get_stats), Int32,
        (Ptr{Cvoid}, Ptr{UInt64}, Csize_t, Ptr{Ptr{Cvoid}}), handle, out, size, error))
end
figures(server::Server, label::AbstractString) = using_handle(server) do handle
    read_figures((out, size, error) -> ccall(@c(dipc_server_get_label_stats), Int32,
        (Ptr{Cvoid}, Cstring, Ptr{UInt64}, Csize_t, Ptr{Ptr{Cvoid}}), handle, label, out, size, error))
end
figures() = read_figures((out, size, error) -> ccall(@c(dipc_process_get_stats), Int32,
    (Ptr{UInt64}, Csize_t, Ptr{Ptr{Cvoid}}), out, size, error))

function read_figures(call)
    words = zeros(UInt64, FIGURE_WORDS)
    check(error -> call(words, sizeof(words), error))
    left = Iterators.Stateful(words)
    next(count) = Int[min(word, typemax(Int)) for word in Iterators.take(left, count)]
    numbers = next(length(FIGURE_NUMBERS))
    by_status = map(FIGURES_BY_STATUS) do _
        # The count of status -14 is at place 14, counted from 0.
        Dict(Int32(1 - place) => count for (place, count) in enumerate(next(STATS_STATUSES)) if count > 0)
    end
    histograms = map(_ -> Histogram(next(2)..., next(HISTOGRAM_BUCKETS), histogram_bounds()), FIGURE_HISTOGRAMS)
    later = next(length(LATER_NUMBERS))
    return NamedTuple{FIGURE_NAMES}((numbers..., by_status..., histograms..., later...))
end

histogram_bounds() = UInt64[ccall(@c(dipc_histogram_upper_bound), UInt64, (Csize_t,), bucket)
                            for bucket in 0:HISTOGRAM_BUCKETS-1]
