"""Coroutines read streams on the running loop, asyncio's or uvloop's, without a thread."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import dipc
from conftest import STREAMS, WAIT, are_fewer, new_address, no_helpers, scripts, table, threads

SERVE = """
import dipc, pyarrow as pa, sys, time

def batches(number, pause, start=0):
    for index in range(number):
        time.sleep(pause)
        yield pa.record_batch({"n": range(10 * index, 10 * index + 10)})

def stuck(request):
    yield pa.record_batch({"n": range(10)})
    while not request.cancelled:
        time.sleep(0.001)

def fails():
    yield pa.record_batch({"n": range(10)})
    raise ValueError("out of paper")

with dipc.Server() as server:
    server.publish("table", [pa.record_batch({"n": range(10 * index, 10 * index + 10)}) for index in range(1000)])
    server.serve("slow", lambda: batches(20, 0.005))
    server.serve("endless", lambda: batches(1 << 40, 0))
    server.serve("stuck", stuck)
    server.serve("fails", fails)
    print(server.listen(sys.argv[1]))
    print(server.listen("tcp://127.0.0.1:0"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def uris(tmp_path_factory):
    with scripts(tmp_path_factory.mktemp("serving")) as start:
        process = start(SERVE, new_address())
        found = {"shm": process.stdout.readline().strip(), "tcp": process.stdout.readline().strip()}
        assert all(found.values()), process.communicate(timeout=WAIT)
        yield found
        assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


@pytest.fixture(params=["shm", "tcp"])
def uri(request, uris):
    return uris[request.param]


async def rows(reader):
    """Those of a reader, each in its place."""
    count = 0
    async for batch in reader:
        assert pa.record_batch(batch)["n"].to_pylist() == list(range(count, count + len(batch)))
        count += len(batch)
    return count


async def comes_true(holds):
    while not holds():
        await asyncio.sleep(0.001)


async def waiting(uri):
    """A reader of "stuck" whose one batch was read, and a task that waits for the next."""
    reader = await dipc.aget(uri, "stuck")
    assert len(await reader.__anext__()) == 10
    task = asyncio.ensure_future(reader.__anext__())
    await asyncio.sleep(0.01)
    return reader, task


def test_many_streams_on_one_loop_need_no_thread(uri, run):
    async def main():
        # Connecting has threads.
        readers = [await dipc.aget(uri, "slow") for _ in range(STREAMS)]
        before = threads()
        with no_helpers():
            tasks = [asyncio.ensure_future(rows(reader)) for reader in readers]
            most = before
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0.01)
                most = max(most, threads())
        assert [task.result() for task in tasks] == [200] * STREAMS
        assert are_fewer(most, before)

    run(main())


@pytest.mark.parametrize("spin", [None, 0.001])
def test_the_main_thread_waits_without_another(uri, spin):
    # Connecting has a thread.
    reader = dipc.get(uri, "slow", spin=spin)
    count = 0
    with no_helpers():
        for batch in reader:
            assert pa.record_batch(batch)["n"].to_pylist() == list(range(count, count + 10))
            count += len(batch)
    assert count == 200


def test_a_fast_stream_lets_others_run(uri, run):
    async def read_on(reader):
        async for _ in reader:
            pass

    async def main():
        async with await dipc.aget(uri, "endless") as fast, await dipc.aget(uri, "slow") as slow:
            task = asyncio.ensure_future(read_on(fast))
            assert await rows(slow) == 200
            assert not task.done()
            task.cancel()

    run(main())


def test_a_whole_table(uri, run):
    async def main():
        assert await rows(await dipc.aget(uri, "table")) == 10_000
        for ticket, count in (("table", 10_000), ("slow", 200)):
            found = await (await dipc.aget(uri, ticket)).aread_all()
            assert found == pa.table({"n": range(count)})

    run(main())


@pytest.mark.parametrize("take", ["iteration", "aread_all"])
def test_a_failure_has_its_exception(uri, run, take):
    async def main():
        reader = await dipc.aget(uri, "fails")
        with pytest.raises(dipc.ProviderError, match="out of paper"):
            await (rows(reader) if take == "iteration" else reader.aread_all())

    run(main())


def test_a_cancelled_wait_takes_nothing(uri, run):
    """A task that is cancelled, as by a time limit, leaves the stream as it was, at whatever moment that is."""

    async def main():
        reader = await dipc.aget(uri, "slow")
        count = 0
        while True:
            try:
                batch = await asyncio.wait_for(reader.__anext__(), 0.002)
            except asyncio.TimeoutError:
                pass
            except StopAsyncIteration:
                break
            else:
                assert pa.record_batch(batch)["n"][0].as_py() == count
                count += len(batch)
        assert count == 200

    run(main())


@pytest.mark.parametrize("end", ["read on", "close"])
def test_what_a_cancelled_task_waited_for_comes_to_the_next(server, run, end):
    go_on = threading.Event()

    def provide():
        yield table(10)
        go_on.wait(WAIT)
        yield table(20)

    async def main():
        server.serve("x", provide)
        reader = await dipc.aget(server.uri, "x")
        assert len(await reader.__anext__()) == 10
        task = asyncio.ensure_future(reader.__anext__())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        if end == "close":
            # No loop watches the descriptor: it can be closed.
            reader.close()
        else:
            assert [len(batch) async for batch in reader] == [20]

    run(main())


def test_a_cancelled_aread_all_ends_the_stream(uri, run):
    async def main():
        reader = await dipc.aget(uri, "stuck")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.aread_all(), 0.02)
        with pytest.raises(dipc.CancelledError):
            await reader.__anext__()

    run(main())


@pytest.mark.parametrize("closer", ["task", "thread"])
def test_a_stream_is_closed_while_a_coroutine_waits(uri, run, closer):
    async def main():
        for _ in range(20):
            reader, task = await waiting(uri)
            if closer == "task":
                reader.close()
            else:
                thread = threading.Thread(target=reader.close)
                thread.start()
            with pytest.raises((dipc.ClosedError, dipc.CancelledError)):
                await task
            if closer == "thread":
                thread.join(WAIT)
            assert reader.stats.rows == 10
            # Its descriptor's number serves the next.

    run(main())


def test_cancelling_from_a_thread(uri, run):
    async def main():
        reader, task = await waiting(uri)
        threading.Thread(target=reader.cancel).start()
        with pytest.raises(dipc.CancelledError):
            await task

    run(main())


def test_a_deadline_passes_while_a_coroutine_waits(uri, run):
    async def main():
        with pytest.raises(dipc.TimeoutError, match="deadline"):
            await rows(await dipc.aget(uri, "stuck", deadline=0.2))

    run(main())


def test_a_server_dies_while_a_coroutine_waits(run, script):
    process = script(SERVE, new_address())
    uris = [process.stdout.readline().strip() for _ in range(2)]

    async def main():
        tasks = [(await waiting(uri))[1] for uri in uris]
        process.kill()
        for task in tasks:
            with pytest.raises(dipc.DisconnectedError):
                await task

    run(main())


def test_a_stream_that_a_coroutine_waits_for_is_not_handed_over(uri, run):
    async def main():
        reader, task = await waiting(uri)
        with pytest.raises(dipc.InvalidArgumentError, match="a coroutine waits"):
            pa.table(reader)
        reader.cancel()
        with pytest.raises(dipc.CancelledError):
            await task
        assert pa.RecordBatchReader.from_stream(reader).schema == pa.schema([("n", pa.int64())])

    run(main())


def test_several_coroutines_read_one_stream(uri, run):
    async def main():
        reader = await dipc.aget(uri, "slow")
        found = []

        async def take():
            async for batch in reader:
                found.append(pa.record_batch(batch)["n"][0].as_py())

        await asyncio.gather(*(take() for _ in range(5)))
        assert sorted(found) == list(range(0, 200, 10))

    run(main())


def test_loops_of_several_threads_read_one_stream(uri):
    reader, found = dipc.get(uri, "slow"), []

    async def take():
        async for batch in reader:
            found.append(pa.record_batch(batch)["n"][0].as_py())

    readers = [threading.Thread(target=lambda: asyncio.run(take())) for _ in range(3)]
    # One that waits in the library.
    readers.append(
        threading.Thread(target=lambda: found.extend(pa.record_batch(batch)["n"][0].as_py() for batch in reader))
    )
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join(WAIT)
    assert sorted(found) == list(range(0, 200, 10))


def test_a_reader_outlives_its_loop(uri):
    async def first(reader):
        return len(await reader.__anext__())

    async def begin():
        _, task = await waiting(uri)
        task.cancel()

    asyncio.run(begin())
    with dipc.get(uri, "slow") as reader:
        assert asyncio.run(first(reader)) == 10
        assert asyncio.run(first(reader)) == 10
        assert sum(len(batch) for batch in reader) == 180
