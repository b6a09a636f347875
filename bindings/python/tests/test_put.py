"""Tables that a client sends, to a server in a process of its own, over shared memory and tcp."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, new_address, no_helpers, scripts, table

SERVE = """
import asyncio, dipc, pyarrow as pa, sys, threading, time

told = []
kept = []

def numbers(batch):
    return pa.record_batch(batch)["number"].to_pylist()

def put(request):
    kind = request.ticket.decode()
    if kind == "refuse":
        assert request.source_schema().names == ["number", "text"]
        raise dipc.PermissionError("not this one")
    if kind == "nothing":
        return None
    if kind == "generates":
        return iter(())
    if kind == "kept":
        kept.append(request.source())
        return None
    if kind == "headers":
        request.add_headers({"user": request.headers["user"]})
    if kind == "left":
        # The next request of a client comes after the end of the table that it has left.
        return told_of_the_left(request)
    rows = batches = 0
    with request.source() as reader:
        for batch in reader:
            found = numbers(batch)
            assert found == list(range(rows, rows + len(found)))
            rows, batches = rows + len(found), batches + 1
            if kind == "half" and batches == 3:
                return None
            if kind == "fails" and batches == 3:
                raise dipc.OutOfResourcesError("the disk is full")
            if kind == "results":
                request.result(batches, b"row %d" % rows)
    if kind == "whole":
        request.result(batches, f"{rows} rows, metadata {batch.metadata.get(b'k')}")
    return None

def told_of_the_left(request):
    reader = request.source()
    try:
        rows = sum(len(batch) for batch in reader)
    except dipc.DipcError as error:
        told.append(f"{type(error).__name__}: {error}")
        raise
    told.append(f"{rows} rows")

def get(request):
    while not told:
        pass
    return pa.table({"told": [told.pop()]})

def echo(request):
    reader = request.source()
    assert request.ticket == b"echo", request.ticket
    for batch in reader:
        yield batch

async def aput(request):
    kind = request.ticket.decode()
    if kind == "refuse":
        assert (await request.asource_schema()).names == ["number", "text"]
        raise dipc.PermissionError("not this one")
    rows = batches = 0
    async with await request.asource() as reader:
        async for batch in reader:
            found = numbers(batch)
            assert found == list(range(rows, rows + len(found)))
            rows, batches = rows + len(found), batches + 1
            if kind == "half" and batches == 3:
                return
            if kind == "results":
                request.result(batches, b"row %d" % rows)
    request.result(batches, f"{rows} rows on {threading.active_count()} threads")

async def aecho(request):
    async for batch in await request.asource():
        yield batch

async def coroutines():
    async with dipc.Server() as server:
        server.set_handler(put=aput, exchange=aecho)
        print(server.listen(sys.argv[1]))
        print(server.listen("tcp://127.0.0.1:0"), flush=True)
        end = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, end.set)
        await end.wait()
        # The last request may still be ending.
        for _ in range(1000):
            if server.stats.streams_active:
                await asyncio.sleep(0.01)
        assert server.stats.streams_active == 0

if sys.argv[2] == "threads":
    with dipc.Server() as server:
        server.set_handler(get, put=put, exchange=echo)
        print(server.listen(sys.argv[1]))
        print(server.listen("tcp://127.0.0.1:0"), flush=True)
        sys.stdin.read()
        for _ in range(1000):
            if server.stats.streams_active:
                time.sleep(0.01)
        assert server.stats.streams_active == 0
else:
    loop = asyncio.new_event_loop()
    loop.slow_callback_duration = 60
    loop.run_until_complete(coroutines())
    loop.close()
"""


@pytest.fixture(scope="module", params=["threads", "coroutines"])
def uris(request, tmp_path_factory):
    with scripts(tmp_path_factory.mktemp("taking")) as start:
        process = start(SERVE, new_address(), request.param)
        found = {"shm": process.stdout.readline().strip(), "tcp": process.stdout.readline().strip()}
        assert all(found.values()), process.communicate(timeout=WAIT)
        found["by"] = request.param
        yield found
        assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


@pytest.fixture(params=["shm", "tcp"])
def uri(request, uris):
    return uris[request.param]


@pytest.fixture
def by_threads(uris):
    if uris["by"] != "threads":
        pytest.skip("the handler by threads says it")


BATCHES = 40
ROWS = 500


def batches(number=BATCHES, memory=None):
    for index in range(number):
        batch = table(ROWS, ROWS * index)
        yield batch if memory is None else memory.copy(batch)


SCHEMA = table(1).schema


def test_a_table_crosses(uri):
    whole = pa.concat_tables(list(batches()))
    for obj in (whole, whole.to_reader(), whole.to_batches()[0], list(batches()), batches()):
        rows = obj.num_rows if hasattr(obj, "num_rows") else BATCHES * ROWS
        taken = dipc.put(uri, "whole", obj, deadline=WAIT)
        assert taken.results[-1].batches == taken.batches > 0
        assert taken.results[-1].data.startswith(b"%d rows" % rows)


def test_a_table_without_batches_crosses(uri):
    assert dipc.put(uri, "any", SCHEMA.empty_table()).batches == 0
    with pytest.raises(ValueError, match="gave no batch"):
        dipc.put(uri, "any", [])


def test_batches_cross_one_by_one(uri):
    with dipc.open_put(uri, "results", SCHEMA, compression="none", body="auto", connections=1) as writer:
        for batch in batches(3):
            writer.write(batch)
        assert [writer.next_result(WAIT) for _ in range(3)] == [(n, b"row %d" % (n * ROWS)) for n in (1, 2, 3)]
        with pytest.raises(dipc.TimeoutError, match="in time"):
            writer.next_result(0.01)
        assert writer.stats.batches == 3
        assert writer.finish() == 3
        assert writer.finish() == 3
        with pytest.raises(dipc.InvalidArgumentError, match="finished already"):
            writer.write(table())
    with pytest.raises(dipc.ClosedError):
        writer.write(table())


def test_the_end_of_the_block_ends_the_table(uri):
    with dipc.open_put(uri, "any", SCHEMA) as writer:
        for batch in batches(3):
            writer.write(batch)
    with pytest.raises(dipc.ClosedError):
        _ = writer.stats


def test_results_come_while_another_thread_writes(uri):
    results = []
    with dipc.open_put(uri, "results", SCHEMA) as writer:
        reader = threading.Thread(target=lambda: results.extend(writer.results()))
        reader.start()
        for batch in batches():
            writer.write(batch)
        assert writer.finish() == BATCHES
        reader.join(WAIT)
    assert [result.batches for result in results if result.data.startswith(b"row ")] == [*range(1, BATCHES + 1)]


def test_a_refusal_comes_before_the_first_batch(uri):
    asked = []

    def rows():
        yield table(ROWS)
        asked.append("a second batch")
        yield table(ROWS, ROWS)

    for _ in range(2):
        with pytest.raises(dipc.PermissionError, match="not this one"):
            dipc.put(uri, "refuse", rows())
        with pytest.raises(dipc.PermissionError, match="not this one"):
            dipc.open_put(uri, "refuse", SCHEMA)
    assert asked == []


def test_a_host_leaves_half(uri):
    endless = (table(ROWS, ROWS * index) for index in range(1 << 40))
    with pytest.raises(dipc.ProviderError, match="before its end"):
        dipc.put(uri, "half", endless)


@pytest.mark.usefixtures("by_threads")
def test_a_host_fails(uri):
    def endless():
        return (table(ROWS, ROWS * index) for index in range(1 << 40))

    with pytest.raises(dipc.OutOfResourcesError, match="the disk is full"):
        dipc.put(uri, "fails", endless())
    with pytest.raises(dipc.ProviderError, match="before its end"):
        dipc.put(uri, "kept", endless())
    with pytest.raises(dipc.ProviderError, match="did not take"):
        dipc.put(uri, "nothing", table())
    with pytest.raises(dipc.ProviderError, match="returns None, not"):
        dipc.put(uri, "generates", table())


@pytest.mark.usefixtures("by_threads")
def test_a_client_leaves_half(uri):
    def told():
        return dipc.get(uri, "told").read_all()["told"][0].as_py()

    def broken():
        yield from batches(3)
        raise ValueError("out of ink")

    with pytest.raises(ValueError, match="out of ink"):
        dipc.put(uri, "left", broken())
    assert told() == "ProviderError: ValueError: out of ink"
    with dipc.open_put(uri, "left", SCHEMA) as writer:
        writer.write(table())
        writer.fail(dipc.InvalidDataError("a bad row"))
        with pytest.raises(dipc.InvalidDataError, match="a bad row"):
            writer.finish()
    assert told() == "InvalidDataError: a bad row"
    for leave in (dipc.Writer.close, dipc.Writer.cancel, lambda _writer: None):
        writer = dipc.open_put(uri, "left", SCHEMA)
        writer.write(table())
        leave(writer)
        del writer
        assert told().startswith(("CancelledError", "DisconnectedError"))


@pytest.mark.usefixtures("by_threads")
def test_headers_go_both_ways(uri):
    with dipc.open_put(uri, "headers", SCHEMA, headers={"user": "me"}) as writer:
        writer.write(table())
        writer.finish()
        assert writer.headers["user"] == b"me"


def test_an_arenas_memory_is_lent_and_comes_back(uris):
    arena = dipc.Arena()
    for scheme in ("shm", "tcp"):
        with dipc.open_put(uris[scheme], "any", SCHEMA) as writer:
            for batch in batches(memory=arena):
                writer.write(batch)
            writer.finish()
            stats = writer.stats
            assert (stats.bytes_lent > 0, stats.bytes_sent == 0) == ((scheme == "shm"),) * 2
            assert stats.bytes_copied == 0
        del batch
    for _ in range(1000):
        if arena.stats.used_bytes == 0:
            break
        threading.Event().wait(0.01)
    assert arena.stats.used_bytes == 0


def test_wrong_arguments_are_found_here(uri):
    with pytest.raises(TypeError, match="no option 'colour'"):
        dipc.put(uri, "any", table(), colour="blue")
    with pytest.raises(ValueError, match="compression"):
        dipc.put(uri, "any", table(), compression="zip")
    with pytest.raises(TypeError, match="__arrow_c_schema__"):
        dipc.open_put(uri, "any", 7)
    with dipc.open_put(uri, "any", SCHEMA) as writer, pytest.raises(ValueError, match="columns of the stream"):
        writer.write(pa.table({"n": [1]}))


def test_batches_of_other_columns_are_refused(uri, server):
    """Promise of a table: each batch has the first one's columns, by name, order and type; metadata may differ."""
    first, second = pa.record_batch({"price": [1], "amount": [10]}), pa.record_batch({"amount": [30], "price": [3]})
    difference = 'column 1 is "amount" and not "price"'
    with pytest.raises(dipc.InvalidDataError, match=difference):
        dipc.put(uri, "any", [first, second])
    with pytest.raises(dipc.InvalidDataError, match=difference), dipc.open_put(uri, "any", first.schema) as writer:
        writer.write(first)
        writer.write(second)
    with pytest.raises(dipc.InvalidDataError, match=difference):
        server.publish("t", [first, second])
    noted = first.replace_schema_metadata({"note": "1"})
    server.publish("t", [first, noted])
    assert dipc.get(server.uri, "t").read_all() == pa.Table.from_batches([first, first])
    inner = [pa.record_batch({"s": [{name: 1}]}) for name in ("a", "b")]
    with pytest.raises(dipc.InvalidDataError, match='"s" has the field "b" in the place of "a"'):
        server.publish("nested", inner)


def test_nulls_in_a_column_declared_without_are_refused(uri, server):
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    batch = pa.record_batch([pa.array([1, None])], schema=strict)
    with pytest.raises(dipc.InvalidDataError, match="declares the column without nulls"):
        dipc.put(uri, "any", batch)
    server.serve("t", lambda: batch)
    with pytest.raises(dipc.InvalidDataError, match="declares the column without nulls"):
        dipc.get(server.uri, "t").read_all()


def test_a_server_without_a_handler_takes_none(server):
    with pytest.raises(dipc.UnsupportedError):
        dipc.put(server.uri, "any", table())
    server.set_handler(lambda: table(1))
    with pytest.raises(dipc.UnsupportedError, match="takes no tables"):
        dipc.put(server.uri, "any", table())
    with pytest.raises(dipc.UnsupportedError, match="exchanges no tables"):
        dipc.exchange(server.uri, "any", SCHEMA)
    server.set_handler(put=lambda request: request.source().read_all() and None)
    with pytest.raises(dipc.NotFoundError, match="gives no table"):
        dipc.get(server.uri, "any")
    assert dipc.put(server.uri, "any", table()).batches == 1
    server.set_handler()
    with pytest.raises(dipc.UnsupportedError):
        dipc.put(server.uri, "any", table())


def test_coroutines_send(uri, run):
    async def rows():
        for batch in batches():
            await asyncio.sleep(0)
            yield batch

    async def main():
        taken = await dipc.aput(uri, "results", rows())
        assert taken.batches == BATCHES
        assert [found.batches for found in taken.results if found.data.startswith(b"row ")][-1] == BATCHES
        async with await dipc.aopen_put(uri, "results", SCHEMA) as writer:
            with no_helpers():
                read = asyncio.ensure_future(results(writer))
                await asyncio.sleep(0.01)
                for batch in batches():
                    await writer.awrite(batch)
                assert await writer.afinish() == BATCHES
                assert [*range(1, BATCHES + 1)] == [found.batches for found in (await read)[:BATCHES]]
        with pytest.raises(dipc.PermissionError, match="not this one"):
            await dipc.aput(uri, "refuse", table())
        with pytest.raises(dipc.ProviderError, match="before its end"):
            await dipc.aput(uri, "half", (table(ROWS, ROWS * index) for index in range(1 << 40)))

    async def results(writer):
        return [result async for result in writer.aresults()]

    run(main())


def test_a_task_is_cancelled_while_it_waits(uri, run):
    async def main():
        writer = await dipc.aopen_put(uri, "results", SCHEMA)
        await writer.awrite(table(ROWS))
        assert (await writer.anext_result()).batches == 1
        task = asyncio.ensure_future(writer.anext_result())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The table goes on.
        await writer.awrite(table(ROWS, ROWS))
        assert (await writer.anext_result()).batches == 2
        task = asyncio.ensure_future(writer.anext_result())
        await asyncio.sleep(0.01)
        writer.cancel()
        with pytest.raises(dipc.CancelledError):
            await task
        writer.close()

    run(main())


def test_tables_are_exchanged(uri):
    writer, reader = dipc.exchange(uri, "echo", SCHEMA, window=(4, 1 << 20), validation="full", stall_timeout=WAIT)
    with writer, reader:
        for batch in batches():
            writer.write(batch)
            assert pa.table(pa.record_batch(next(reader))) == batch
        assert reader.schema.names == SCHEMA.names
        assert writer.finish() == BATCHES
        assert next(reader, None) is None


def test_a_reader_is_shown_without_a_wait(uri):
    writer, reader = dipc.exchange(uri, "echo", SCHEMA)
    with writer, reader:
        # The server may say its schema with its first batch.
        assert repr(reader).startswith("<dipc.Reader")
        writer.write(table(ROWS))
        next(reader)
        assert repr(reader) == f"<dipc.Reader of {reader.schema!r}>"
        writer.finish()


def test_coroutines_exchange_tables(uri, run):
    async def main():
        writer, reader = await dipc.aexchange(uri, "echo", SCHEMA)
        async with writer, reader:
            read = asyncio.ensure_future(reader.aread_all())
            for batch in batches():
                await writer.awrite(batch)
            assert await writer.afinish() == BATCHES
            assert (await read).num_rows == BATCHES * ROWS

    run(main())


def test_either_table_of_an_exchange_is_left(uri):
    writer, reader = dipc.exchange(uri, "echo", SCHEMA)
    writer.write(table(ROWS))
    writer.close()
    with pytest.raises(dipc.DipcError):
        for _ in reader:
            pass
    writer, reader = dipc.exchange(uri, "echo", SCHEMA)
    writer.write(table(ROWS))
    reader.close()
    with pytest.raises(dipc.DipcError):
        writer.finish()
