# The interface of Tables.jl for batches and streams. Included if `Dipc` and `Tables` are modules.

Dipc.TABLES[] = Tables

Tables.istable(::Type{<:Dipc.Batch}) = true
Tables.columnaccess(::Type{<:Dipc.Batch}) = true
Tables.columns(batch::Dipc.Batch) = batch
Tables.columnnames(batch::Dipc.Batch) = Dipc.names(batch)
Tables.getcolumn(batch::Dipc.Batch, i::Int) = batch[i]
Tables.getcolumn(batch::Dipc.Batch, name::Symbol) = batch[name]
Tables.schema(batch::Dipc.Batch) = Tables.Schema(Dipc.names(batch), map(eltype, Dipc.columns(batch)))

# A stream is a table in parts. Asked for whole columns it is read to its end.
Tables.istable(::Type{<:Dipc.Stream}) = true
Tables.columnaccess(::Type{<:Dipc.Stream}) = true
Tables.columns(stream::Dipc.Stream) = Dipc.table(stream)
Tables.partitions(stream::Dipc.Stream) = stream
