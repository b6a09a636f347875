"""Coroutines connect, and wait for a server's answer, on the running loop, without a thread of Python's."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import threading
import time

import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, new_address, no_helpers, table

SCHEMA = table(1).schema

REQUESTS = {
    "get": lambda uri, **options: dipc.aget(uri, "table", **options),
    "describe": lambda uri, **options: dipc.adescribe(uri, "table", **options),
    "list": dipc.alist_tickets,
    "put": lambda uri, **options: dipc.aput(uri, "table", table(10), **options),
    "open_put": lambda uri, **options: dipc.aopen_put(uri, "table", SCHEMA, **options),
    "exchange": lambda uri, **options: dipc.aexchange(uri, "table", SCHEMA, **options),
}


@pytest.fixture(params=REQUESTS)
def ask(request):
    return REQUESTS[request.param]


@pytest.fixture
def silent():
    """The URI of a server that takes connections and never says anything, and its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}", listener


def python_threads():
    """The threads of this process without those that the library, or the kernel for uvloop's io_uring, has named."""
    found = set()
    for thread in pathlib.Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not name.startswith(("dipc-", "iou-")):
            found.add((thread.name, name.strip()))
    return found


async def accepted(listener):
    """The next connection on which the client has sent something."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    connection, _ = await loop.sock_accept(listener)
    connection.setblocking(False)
    assert await loop.sock_recv(connection, 1)
    return connection


def test_no_thread_of_python_connects(silent, run, ask):
    uri, listener = silent

    async def main():
        known, before = threading.enumerate(), python_threads()
        with no_helpers():
            tasks = [asyncio.ensure_future(ask(uri)) for _ in range(4)]
            connections = [await accepted(listener) for _ in tasks]
            assert threading.enumerate() == known
            # A thread of the library has its name a moment after it begins.
            until = time.monotonic() + WAIT / 2
            while python_threads() - before and time.monotonic() < until:
                await asyncio.sleep(0.01)
            assert python_threads() - before == set()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with pytest.raises(asyncio.CancelledError):
                    await task
        for connection in connections:
            connection.close()

    run(main())


def test_a_token_ends_a_request(silent, run, ask):
    uri, listener = silent

    async def main():
        cancel = dipc.Cancel()
        task = asyncio.ensure_future(ask(uri, cancel=cancel))
        connection = await accepted(listener)
        threading.Thread(target=cancel.trigger).start()
        with pytest.raises(dipc.CancelledError):
            await task
        connection.close()
        with pytest.raises(dipc.CancelledError):
            await ask(uri, cancel=cancel)

    run(main())


def test_connecting_takes_no_longer_than_it_may(silent, run, ask):
    with pytest.raises(dipc.TimeoutError):
        run(ask(silent[0], connect_timeout=0.05))


def test_nobody_listens(run, ask):
    with pytest.raises(dipc.UnreachableError):
        run(ask(new_address()))


def test_a_loop_ends_while_a_request_waits(silent, ask):
    """The request ends with the coroutine, which nobody awaits to its end."""
    uri, listener = silent

    async def main():
        task = asyncio.ensure_future(ask(uri))
        return task, await accepted(listener)

    task, connection = asyncio.run(main())
    assert task.cancelled()
    connection.close()


def test_the_loop_runs_while_a_provider_thinks(server, run):
    let_go = threading.Event()
    server.serve("slow", lambda: (let_go.wait(WAIT), table(10))[1])

    async def main():
        task = asyncio.ensure_future(dipc.aget(server.uri, "slow"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        let_go.set()
        assert (await (await task).aread_all()) == table(10)

    run(main())


def test_a_stream_is_cancelled_after_its_request(server, run):
    """By its reader, from another thread, even if another library reads it."""
    let_go, waiting = threading.Event(), threading.Event()

    def reading():
        yield table(10)
        waiting.set()
        let_go.wait(WAIT)

    async def main():
        return await dipc.aget(server.uri, "reading")

    server.serve("reading", reading)
    reader = run(main())
    imported = pa.RecordBatchReader.from_stream(reader)
    assert imported.read_next_batch().num_rows == 10
    canceller = threading.Thread(target=lambda: (waiting.wait(WAIT), reader.cancel()))
    canceller.start()
    with pytest.raises(OSError, match="cancel"):
        imported.read_next_batch()
    canceller.join(WAIT)
    let_go.set()


def test_many_requests_at_once(server, run):
    server.publish("table", table(10))

    async def main():
        with no_helpers():
            readers = await asyncio.gather(*(dipc.aget(server.uri, "table") for _ in range(100)))
            assert [len(batch) for reader in readers async for batch in reader] == [10] * 100
            found = await asyncio.gather(*(dipc.adescribe(server.uri, "table") for _ in range(20)))
            assert {description.num_rows for description in found} == {10}
            with pytest.raises(dipc.NotFoundError):
                await dipc.aget(server.uri, "nowhere")

    run(main())


@pytest.mark.parametrize("call", [dipc.get, dipc.describe, dipc.list_tickets])
def test_an_option_that_is_none(server, call):
    with pytest.raises(TypeError, match="windows"):
        call(server.uri, "table", windows=(1, 1))


def test_a_window_is_a_pair(server):
    with pytest.raises(TypeError, match=r"window is 0: give \(batches, bytes\)"):
        dipc.get(server.uri, "table", window=0)
