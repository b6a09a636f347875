"""Tables of real libraries go in, and come out as they were."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import pathlib
import struct

import duckdb
import nanoarrow
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dipc
from conftest import ROOT, new_address, table
from dipc import _abi, _capsule

GOLDEN = pathlib.Path(os.environ.get("DIPC_GOLDEN", ROOT / "../shared/golden")) / "streams"
FILES = {path.name: path for path in [*(ROOT / "tests/vectors").glob("*.arrows"), *GOLDEN.glob("*.stream")]}

# How each library holds one table, and how it reads a reader.
LIBRARIES = {
    "pyarrow": (lambda made: made, pa.table),
    "polars": (pl.from_arrow, pl.DataFrame),
    "duckdb": (duckdb.from_arrow, lambda reader: duckdb.from_arrow(pa.table(reader))),
    "pandas": (lambda made: made.to_pandas(), lambda reader: pa.table(reader).to_pandas()),
    "nanoarrow": (nanoarrow.ArrayStream, nanoarrow.ArrayStream),
}


def same(one, other):
    """Whether two tables have the same rows, whichever library's string type and chunks they have."""
    one, other = (pa.table(made).combine_chunks() for made in (one, other))
    return one.num_rows == other.num_rows and one.to_pydict() == other.to_pydict()


@pytest.mark.parametrize("fetcher", LIBRARIES)
@pytest.mark.parametrize("maker", LIBRARIES)
@pytest.mark.parametrize("how", ["publish", "serve"])
def test_every_library_serves_and_fetches(server, maker, fetcher, how):
    made = table()
    getattr(server, how)("table", LIBRARIES[maker][0](made))
    assert same(LIBRARIES[fetcher][1](dipc.get(server.uri, "table")), made)


def test_duckdb_queries_a_reader(server):
    server.publish("table", table(100))
    reader = dipc.get(server.uri, "table")
    assert duckdb.sql("SELECT sum(number) FROM reader").fetchall() == [(4950,)]
    del reader


@pytest.mark.parametrize("name", FILES)
def test_every_type_arrives(server, name):
    with pa.ipc.open_stream(FILES[name].read_bytes()) as reader:
        schema, batches = reader.schema, list(reader)
    server.publish("published", pa.RecordBatchReader.from_batches(schema, batches))
    server.serve("served", lambda: pa.RecordBatchReader.from_batches(schema, batches))
    for ticket in ("published", "served"):
        received = pa.RecordBatchReader.from_stream(dipc.get(server.uri, ticket))
        assert received.schema.equals(schema, check_metadata=True)
        assert list(received) == batches
        # Batch by batch, through this package's own schemas.
        with dipc.get(server.uri, ticket) as reader:
            assert pa.schema(reader.schema).equals(schema, check_metadata=True)
            assert [pa.record_batch(batch) for batch in reader] == batches


def test_golden_files_are_there():
    """If golden streams are missing, says in the report that a part of the test was left out."""
    if not GOLDEN.is_dir():
        pytest.skip(f"no folder {GOLDEN}: DIPC_GOLDEN names another")
    assert len(FILES) > 50


def test_providers_of_every_shape(server):
    made = table(100)
    halves = [made.slice(0, 60), made.slice(60)]
    batches = made.to_batches(max_chunksize=30)
    asked = []

    def generator(request):
        asked.append((request.ticket, request.cancelled))
        yield from batches

    class Object:
        def method(self):
            return made

    server.serve("table", made)
    server.serve("batch", made.to_batches()[0])
    server.serve("list", batches)
    server.serve("function", lambda: made)
    server.serve("method", Object().method)
    server.serve("iterator", lambda: iter(batches))
    server.serve("tables", lambda: halves)
    server.serve("polars", lambda: (pl.DataFrame(half) for half in halves))
    server.serve("generator", generator)
    server.serve("own batches", lambda: dipc.get(server.uri, "generator"))
    server.serve("own batches, by one", lambda: (batch for batch in dipc.get(server.uri, "generator")))
    for ticket in server.tickets:
        for _ in range(2):
            assert same(dipc.get(server.uri, ticket), made), ticket
    assert asked[0] == (b"generator", False)


def test_a_stream_serves_one_client(server):
    """A stream is read once; the second client is told so, and gets no empty table."""
    server.publish("table", table(10))
    for stream in (table(10).to_reader(), nanoarrow.ArrayStream(table(10)), dipc.get(server.uri, "table")):
        server.serve("stream", stream)
        assert pa.table(dipc.get(server.uri, "stream")).num_rows == 10
        with pytest.raises(dipc.ProviderError, match="an earlier client has read"):
            dipc.get(server.uri, "stream")
        server.withdraw("stream")


def test_a_client_that_holds_the_gil_gets_a_c_stream(server):
    """As polars before 1.37 does: it waits in this process, and the server needs no Python to go on."""
    server.serve("table", table())
    reader = dipc.get(server.uri, "table")
    stream = _capsule.take(reader.__arrow_c_device_stream__(), _abi.ArrowDeviceArrayStream)
    # PyDLL keeps the GIL during a call.
    get_next = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(stream.get_next)
    rows = 0
    while True:
        batch = _abi.ArrowDeviceArray()
        assert get_next(ctypes.addressof(stream), ctypes.addressof(batch)) == 0
        if _abi.is_released(batch):
            break
        rows += batch.array.length
        _abi.release(batch)
    _abi.release(stream)
    assert rows == 10_000


def test_batches_keep_their_custom_metadata(server):
    """Through this package's own readers, however they are passed on; C streams carry none."""
    sent = [{}, {b"k": b"v"}, {b"": b"", b"long": b"x" * 1000}]

    def encoded(metadata):
        parts = [part for pair in metadata.items() for part in pair]
        return struct.pack("=i", len(metadata)) + b"".join(struct.pack("=i", len(part)) + part for part in parts)

    def generate():
        for metadata in sent:
            schema, array = table(10).to_batches()[0].__arrow_c_device_array__()
            yield dipc.Batch(
                _capsule.take(array, _abi.ArrowDeviceArray),
                dipc.Schema(_capsule.take(schema, _abi.ArrowSchema)),
                encoded(metadata) if metadata else b"",
            )

    server.serve("made", generate)
    server.serve("passed on", lambda: dipc.get(server.uri, "made"))
    server.serve("by one", lambda: (batch for batch in dipc.get(server.uri, "made")))
    for ticket in server.tickets:
        with dipc.get(server.uri, ticket) as reader:
            assert [batch.metadata for batch in reader] == sent, ticket


def test_a_schema_can_be_taken_any_number_of_times(server):
    server.publish("table", table(1))
    with dipc.get(server.uri, "table") as reader:
        schema = reader.schema
    del reader
    gc.collect()
    for _ in range(3):
        assert pa.schema(schema) == table(1).schema
        assert nanoarrow.Schema(schema).n_fields == 2
    assert schema.names == ["number", "text"]
    assert [field.format for field in schema.children] == ["l", "u"]
    assert schema == dipc.get(server.uri, "table").schema


def test_children_of_a_schema_outlive_it():
    """Arrow's C data interface lets a consumer move a child out of its parent."""
    source = pa.schema([pa.field("a", pa.list_(pa.int8()), metadata={"k": "v"}), pa.field("b", pa.utf8())])
    parent = _abi.ArrowSchema()
    source._export_to_c(ctypes.addressof(parent))
    exported = dipc.Schema(parent).export()
    pointers = (ctypes.c_void_p * 2).from_address(exported.children)
    child = _abi.move(_abi.ArrowSchema.from_address(pointers[0]))
    _abi.release(exported)
    gc.collect()
    assert pa.Field._import_from_c(ctypes.addressof(child)).equals(source.field(0), check_metadata=True)


def test_a_batch_can_be_taken_any_number_of_times(server):
    """Its consumers share its memory, which outlives the batch."""
    vector = pa.ipc.open_stream((ROOT / "tests/vectors/nested_dictionaries.arrows").read_bytes()).read_all()
    server.publish("nested", vector)
    server.publish("table", table())
    for ticket, made in (("nested", vector), ("table", table())):
        batches = list(dipc.get(server.uri, ticket))
        taken = [pa.record_batch(batch) for batch in batches for _ in range(3)]
        assert server.stats.lent_outstanding > 0 or ticket == "nested"
        del batches
        gc.collect()
        assert all(pa.Table.from_batches(taken[first::3]).equals(made) for first in range(3))
        column = taken[0].column(0)
        del taken
        gc.collect()
        column.validate(full=True)


def test_batches_outlive_reader_and_server():
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.publish("table", table())
        with dipc.get(uri, "table") as reader:
            batches = list(reader)
    del reader
    gc.collect()
    assert same(pa.Table.from_batches([pa.record_batch(batch) for batch in batches]), table())


def test_an_array_in_an_arena_is_lent_without_a_copy(server):
    arena = dipc.Arena()
    block = arena.alloc(8 * 100_000)
    numbers = np.frombuffer(block, dtype=np.int64)
    numbers[:] = np.arange(100_000)
    column = pa.Array.from_buffers(pa.int64(), 100_000, [None, pa.py_buffer(block)])
    server.publish("arena", pa.table({"x": column}))
    server.publish("copied", arena.copy(table()))
    arena.close()
    before = server.stats
    got = pa.table(dipc.get(server.uri, "arena"))
    assert got["x"].to_numpy()[-1] == 99_999
    assert same(dipc.get(server.uri, "copied"), table())
    after = server.stats
    assert after.bytes_copied == before.bytes_copied
    assert after.bytes_lent - before.bytes_lent >= 800_000


def test_connections_are_kept_or_not(server):
    """Promise of Client: `max_idle` and `idle_timeout` say whether a connection serves the next stream."""
    server.publish("t", table())
    for options, made in (({"idle_timeout": 3600, "max_idle": 1}, 1), ({"max_idle": 0}, 2), ({"idle_timeout": 0}, 2)):
        with dipc.Client(**options) as client:
            for _ in range(2):
                assert same(client.get(server.uri, "t"), table())
            assert client.stats.connections_made == made
    with pytest.raises(dipc.InvalidArgumentError):
        dipc.Client(max_idle=-1)


def test_slices_take_about_what_is_their_own(server):
    """Promise of docs/security.md, "Slices": bytes outside a slice are sent along only if they are few."""
    rows = 100_000
    texts = pa.array(f"the text of row {row}" for row in range(rows))
    lists = pa.array([row, row + 1] for row in range(rows))
    starts, sizes = pa.array(range(0, 2 * rows, 2), pa.int32()), pa.array([2] * rows, pa.int32())
    list_views = pa.ListViewArray.from_arrays(starts, sizes, lists.flatten())
    which, where = pa.array([0] * rows, pa.int8()), pa.array(range(rows), pa.int32())
    union = pa.UnionArray.from_dense(which, where, [texts])
    columns = {"text": texts, "view": texts.cast(pa.string_view()), "list": lists}
    whole = pa.table(columns | {"list view": list_views, "union": union})
    server.publish("slices", pa.Table.from_batches(whole.to_batches(1000)))
    got = pa.table(dipc.get(server.uri, "slices"))
    assert got == whole
    got.validate(full=True)
    stats = server.stats
    moved = stats.bytes_copied + stats.bytes_lent + stats.bytes_sent
    assert whole.nbytes < moved < 2 * whole.nbytes


def test_an_arena_gets_its_blocks_back():
    arena = dipc.Arena(region_bytes=1 << 20, max_bytes=2 << 20)
    block = arena.alloc(1000)
    assert (block.nbytes, block.format, block.readonly) == (1000, "B", False)
    block[:5] = b"hello"
    assert bytes(block[:5]) == b"hello"
    assert arena.stats.used_bytes >= 1000
    buffer = pa.py_buffer(block[:5])
    del block
    gc.collect()
    assert (bytes(buffer), arena.stats.used_bytes > 0) == (b"hello", True)
    with pytest.raises(MemoryError, match="max_bytes|limit"):
        arena.alloc(4 << 20)
    del buffer
    gc.collect()
    assert arena.stats.used_bytes == 0
    assert arena.alloc(0).nbytes == 0


def test_memory_of_python_is_released(server):
    """The server's thread releases what clients gave back, also while it waits for requests."""
    released = asyncio.run(_release(server))
    assert released


async def _release(server):
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    class Owner(bytearray):
        def __del__(self):
            loop.call_soon_threadsafe(done.set)

    def provide():
        column = pa.Array.from_buffers(pa.int8(), 100_000, [None, pa.py_buffer(Owner(100_000))])
        return pa.table({"x": column})

    server.serve("python's", provide)
    reader = await dipc.aget(server.uri, "python's")
    assert (await reader.aread_all()).num_rows == 100_000
    del reader
    gc.collect()
    await asyncio.wait_for(done.wait(), 30)
    return True


def test_read_all_is_what_is_left(server):
    """A reader gives its figures at any time, and no batch after its end."""
    server.publish("table", pa.Table.from_batches(table(1000).to_batches(max_chunksize=100)))
    reader = dipc.get(server.uri, "table")
    assert next(reader).num_rows == 100
    left = reader.read_all()
    assert left.equals(table(900, 100))
    assert (reader.stats.rows, reader.stats.batches) == (1000, 10)
    assert (reader.read_all().num_rows, next(reader, None)) == (0, None)
    reader.close()
    # Only the table has its memory.
    assert left.equals(table(900, 100))


def test_two_locations(server):
    """Metadata from one URI, bodies from the other."""
    server.publish("table", table())
    uris = [server.location("metadata"), server.location("data")]
    assert same(dipc.get(uris, "table"), table())


def test_device_streams(server):
    """`__arrow_c_device_stream__`, which this package's own servers take too."""
    server.publish("table", table())

    class DeviceOnly:
        def __init__(self, reader):
            self._reader = reader

        def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
            return self._reader.__arrow_c_device_stream__(requested_schema, **kwargs)

    server.serve("again", lambda: DeviceOnly(dipc.get(server.uri, "table")))
    reader = dipc.get(server.uri, "again")
    assert reader.device_type == 1
    batch = next(reader)
    assert (batch.device_type, len(batch), batch.num_columns) == (1, 10_000, 2)
    assert pa.record_batch(batch).num_rows == 10_000


def test_an_arena_copies_empty_slices():
    """Promise of Arena.copy: it takes what pyarrow.table() takes, also chunks without rows behind the first row."""
    arena = dipc.Arena()
    for column in (pa.array(["a", "b", "c"]), pa.array(["a", "b", "a"]).dictionary_encode(), pa.array([1, 2, 3])):
        for begin in range(4):
            empty = column.slice(begin, 0)
            whole = pa.table({"c": pa.chunked_array([empty, column, empty])})
            assert arena.copy(whole) == whole
            nothing = pa.table({"c": pa.chunked_array([empty, empty])})
            assert arena.copy(nothing) == nothing
