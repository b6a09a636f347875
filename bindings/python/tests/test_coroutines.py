"""Coroutines serve on the running loop, asyncio's or uvloop's, without a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pyarrow as pa
import pytest
import uvloop

import dipc
from conftest import STREAMS, WAIT, are_fewer, new_address, no_helpers, scripts, table, threads

SERVE = """
import asyncio, dipc, os, pyarrow as pa, sys, uvloop

ended = []

def batch(index=0):
    return pa.record_batch({"n": range(10 * index, 10 * index + 10)})

async def get(request):
    kind, _, number = request.ticket.decode().partition("/")
    try:
        if kind == "threads":
            yield pa.record_batch({"n": [len(os.listdir("/proc/self/task"))]})
        elif kind == "ended":
            yield pa.record_batch({"n": pa.array(ended, pa.int64())})
        elif kind == "stuck":
            yield batch()
            await asyncio.Event().wait()
        else:
            for index in range(int(number)):
                if kind == "slow":
                    await asyncio.sleep(0.005)
                yield batch(index)
    finally:
        if kind == "stuck":
            ended.append(int(number))

async def main():
    async with dipc.Server() as server:
        server.set_handler(get)
        print(server.listen(sys.argv[1]))
        print(server.listen("tcp://127.0.0.1:0"), flush=True)
        end = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, end.set)
        await end.wait()

loop = uvloop.new_event_loop() if sys.argv[2] == "uvloop" else asyncio.new_event_loop()
# What takes long is said on a loaded machine, where each test is in Python's development mode.
loop.slow_callback_duration = 60
loop.run_until_complete(main())
loop.close()
"""


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def uris(request, tmp_path_factory):
    with scripts(tmp_path_factory.mktemp("serving")) as start:
        process = start(SERVE, new_address(), request.param)
        found = {"shm": process.stdout.readline().strip(), "tcp": process.stdout.readline().strip()}
        assert all(found.values()), process.communicate(timeout=WAIT)
        yield found
        assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


@pytest.fixture(params=["shm", "tcp"])
def uri(request, uris):
    return uris[request.param]


def numbers(uri, ticket, **options):
    return dipc.get(uri, ticket, **options).read_all()["n"].to_pylist()


def test_many_clients_of_one_thread(uri):
    before = numbers(uri, "threads")[0]
    readers = [dipc.get(uri, "slow/50") for _ in range(STREAMS)]
    assert are_fewer(numbers(uri, "threads")[0], before)
    for reader in readers:
        assert reader.read_all()["n"].to_pylist() == list(range(500))


def test_a_client_that_takes_its_time(uri):
    """The loop serves others while one client takes nothing."""
    with dipc.get(uri, "fast/1000", window=(2, 1 << 20)) as reader:
        for index in range(20):
            assert numbers(uri, f"fast/{index + 1}") == list(range(10 * index + 10))
            assert pa.record_batch(next(reader))["n"][0].as_py() == 10 * index
        assert reader.read_all()["n"].to_pylist() == list(range(200, 10_000))


def test_the_task_of_a_client_that_goes_is_cancelled(uri):
    mine = id(uri) % 1000 + (500_000 if uri.startswith("tcp") else 0)
    with dipc.get(uri, f"stuck/{mine}") as reader:
        next(reader)
        assert mine not in numbers(uri, "ended")
    for _ in range(WAIT * 1000):
        if mine in numbers(uri, "ended"):
            return
    raise AssertionError("the task was not cancelled")


async def served(server, obj, ticket="x"):
    """What a client gets of a server of the same loop."""
    server.serve(ticket, obj)
    return await (await dipc.aget(server.uri, ticket)).aread_all()


def new_server(**options):
    server = dipc.Server(**options)
    server.uri = server.listen(new_address())
    return server


def test_what_coroutines_may_give(run):
    expected = table(1000)

    async def a_table(request):
        await asyncio.sleep(0)
        assert request.ticket == b"a_table"
        return expected

    async def a_list():
        return expected.to_batches(max_chunksize=10)

    async def a_generator():
        return (batch for batch in expected.to_batches(max_chunksize=10))

    async def batches():
        for batch in expected.to_batches(max_chunksize=10):
            await asyncio.sleep(0)
            yield batch

    async def an_async_generator():
        return batches()

    class Callable:
        async def __call__(self, request):
            assert request.ticket == b"object"
            return expected

    async def main():
        async with new_server() as server:
            for obj in (a_table, a_list, a_generator, batches, an_async_generator):
                assert await served(server, obj, obj.__name__) == expected

            async def a_reader(request):
                assert request.peer.transport == "shm"
                return await dipc.aget(server.uri, "batches")

            assert await served(server, a_reader, "a reader") == expected
            assert await served(server, Callable(), "object") == expected
            # A function, which has a thread, can be served on the same server.
            assert await served(server, lambda: expected, "a function") == expected
            assert await served(server, table(7), "an object") == table(7)

    run(main())


def test_one_loop_is_both_sides_without_a_thread(run):
    async def batches():
        for index in range(200):
            yield table(10, index)

    async def main():
        async with new_server() as server:
            server.serve("x", batches)
            readers = [await dipc.aget(server.uri, "x") for _ in range(STREAMS)]
            before = threads()
            with no_helpers():
                tasks = [asyncio.ensure_future(reader.aread_all()) for reader in readers]
                most = before
                while not all(task.done() for task in tasks):
                    await asyncio.sleep(0)
                    most = max(most, threads())
            assert {task.result().num_rows for task in tasks} == {2000}
            assert are_fewer(most, before)

    run(main())


def test_streams_of_a_loop_share_a_connection(run):
    """Rule S10, and Promise of Client: `connections` says whether they do."""

    async def main():
        async with new_server() as server:
            server.publish("x", table(10, 0))
            for options, made in (({}, 1), ({"connections": 0}, STREAMS)):
                with dipc.Client(**options) as client:
                    asked = (client.aget(server.uri, "x") for _ in range(STREAMS))
                    readers = await asyncio.gather(*asked)
                    assert client.stats.connections_made == made
                    for reader in readers:
                        assert (await reader.aread_all()).num_rows == 10

    run(main())


def test_failures_reach_the_client(run):
    async def raises():
        raise ValueError("out of paper")

    async def fails():
        yield table(10)
        raise dipc.BusyError("out of ink")

    async def nothing():
        for _ in ():
            yield

    async def wrong():
        return 42

    async def other_schemas():
        yield table(1)
        yield pa.table({"x": [1]})

    async def main():
        async with new_server() as server:
            for obj, kind, match in (
                (raises, dipc.ProviderError, "ValueError: out of paper"), (fails, dipc.BusyError, "out of ink"),
                (nothing, dipc.ProviderError, "gave no batch"), (wrong, dipc.ProviderError, "cannot serve int"),
                (other_schemas, dipc.InvalidDataError, "columns of the stream"),
            ):  # fmt: skip
                with pytest.raises(kind, match=match):
                    await served(server, obj, obj.__name__)

    run(main())


def test_handlers_are_coroutines(run):
    async def get(request):
        request.add_headers({"left": str(request.time_left > 50)})
        return pa.table({"ticket": [request.ticket]})

    async def describe(request):
        return dipc.Description(num_rows=1, endpoints=[dipc.Endpoint(request.ticket)])

    async def list_tickets(request):
        yield dipc.Endpoint(request.ticket + b"1")
        yield dipc.Endpoint(request.ticket + b"2")

    async def main():
        async with new_server() as server:
            server.set_handler(get, describe=describe, list_tickets=list_tickets)
            reader = await dipc.aget(server.uri, "any", deadline=60)
            assert reader.headers == {"left": b"True"}
            assert (await reader.aread_all()).to_pylist() == [{"ticket": b"any"}]
            assert (await dipc.adescribe(server.uri, "any")).num_rows == 1
            listed = await (await dipc.alist_tickets(server.uri, "q")).aread_all()
            assert listed["descriptor"].to_pylist() == [b"q1", b"q2"]
            # One of them may be a function.
            server.set_handler(get, describe=lambda: dipc.Description(num_rows=2))
            assert (await dipc.adescribe(server.uri, "any")).num_rows == 2
            with pytest.raises(dipc.UnsupportedError, match="but its table"):
                await dipc.alist_tickets(server.uri, "q")
            server.set_handler(None)
            with pytest.raises(dipc.NotFoundError):
                await dipc.aget(server.uri, "any")

    run(main())


def test_memory_comes_back_while_nobody_asks(run):
    async def main():
        async with new_server() as server:
            made = dipc.Arena().copy(table())

            async def batches():
                for _ in range(3):
                    yield made

            got = await served(server, batches)
            assert server.stats.lent_outstanding > 0
            del got
            while server.stats.lent_outstanding > 0:
                await asyncio.sleep(0.001)

    run(main())


@pytest.mark.parametrize("end", ["aclose", "close", "astop", "cancel"])
def test_the_server_ends_while_coroutines_serve(run, end):
    ended = []

    async def stuck():
        try:
            yield table(10)
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main():
        server = new_server()
        server.serve("x", stuck)
        reader = await dipc.aget(server.uri, "x")
        assert len(await reader.__anext__()) == 10
        task = asyncio.ensure_future(reader.__anext__())
        await asyncio.sleep(0)
        if end == "aclose":
            await server.aclose()
            assert ended == [True]
        elif end == "close":
            server.close()
        elif end == "astop":
            await server.astop(0.1)
        else:
            next(one for one in asyncio.all_tasks() if "Coroutines._serve" in repr(one)).cancel()
        with pytest.raises((dipc.StoppedError, dipc.DisconnectedError, dipc.CancelledError)):
            await task
        while not ended:
            await asyncio.sleep(0.001)
        await server.aclose()

    run(main())


def test_a_coroutine_waits_for_its_client_to_go(run):
    """By the request's descriptor, which has the loop cancel the task all the same."""
    told = []

    async def waits(request):
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(request.cancel_fd, gone.set)
        try:
            yield table(10)
            await gone.wait()
        finally:
            loop.remove_reader(request.cancel_fd)
            told.append(request.cancelled)

    async def main():
        async with new_server() as server:
            server.serve("x", waits)
            async with await dipc.aget(server.uri, "x") as reader:
                assert len(await reader.__anext__()) == 10
            while not told:
                await asyncio.sleep(0.001)
            assert told == [True]

    run(main())


def test_astop_lets_streams_end(run):
    async def slow():
        for index in range(20):
            await asyncio.sleep(0.005)
            yield table(10, 10 * index)

    async def main():
        async with new_server() as server:
            server.serve("x", slow)
            reader = await dipc.aget(server.uri, "x")
            task = asyncio.ensure_future(reader.aread_all())
            await server.astop(WAIT)
            assert (await task).num_rows == 200

    run(main())


def test_a_server_outlives_its_loop():
    async def coroutine():
        return table(10)

    async def first():
        server.serve("x", coroutine)
        assert (await (await dipc.aget(server.uri, "x")).aread_all()).num_rows == 10

    async def second():
        server.set_handler(coroutine)
        assert (await (await dipc.aget(server.uri, "y")).aread_all()).num_rows == 10
        with pytest.raises(dipc.StoppedError, match="loop"):
            await dipc.aget(server.uri, "x")

    with new_server() as server:
        with pytest.raises(RuntimeError, match="call this in a coroutine"):
            server.serve("x", coroutine)
        with pytest.raises(RuntimeError, match="call this in a coroutine"):
            server.set_handler(coroutine)
        assert server.tickets == []
        asyncio.run(first())
        asyncio.run(second())


def test_threads_ask_a_loop(run):
    """Also a ticket of a loop that does not take the requests itself."""

    async def batches():
        yield table(10)

    async def main():
        async with new_server() as server:
            server.serve("x", batches)
            ready, end = threading.Event(), threading.Event()

            async def other():
                server.serve("y", batches)
                ready.set()
                while not end.is_set():
                    await asyncio.sleep(0.001)

            thread = threading.Thread(target=lambda: asyncio.run(other()))
            thread.start()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, ready.wait, WAIT)
            for ticket in ("x", "y"):
                found = await loop.run_in_executor(None, lambda ticket=ticket: dipc.get(server.uri, ticket).read_all())
                assert found.num_rows == 10
            end.set()
            thread.join(WAIT)

    run(main())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request):
    loop = request.param()
    yield loop
    loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["a stream", "a decision"])
def test_a_loop_that_is_closed_ends_what_it_serves(loop, how):
    """Streams under way and new requests get an error, the server is not ready, and its stop ends."""
    entered = threading.Event()

    async def stuck():
        entered.set()
        yield table(10)
        await asyncio.Event().wait()

    async def undecided(_request):
        entered.set()
        await asyncio.Event().wait()

    async def begin():
        server = dipc.Server(authorizer=undecided if how == "a decision" else None)
        server.serve("x", stuck)
        return server, server.listen(new_address())

    async def asked():
        while not entered.is_set():
            await asyncio.sleep(0.001)

    server, uri = loop.run_until_complete(begin())
    with server:
        assert server.is_ready
        with concurrent.futures.ThreadPoolExecutor() as pool:
            client = pool.submit(lambda: dipc.get(uri, "x").read_all())
            loop.run_until_complete(asked())
            loop.close()
            with pytest.raises(dipc.StoppedError, match="the event loop that serves the ticket is closed"):
                client.result(WAIT)
        with pytest.raises(dipc.StoppedError, match="the event loop that serves the ticket is closed"):
            dipc.get(uri, "x")
        assert not server.is_ready
        server.stop(WAIT)


def test_a_server_goes_on_beside_a_closed_loop(loop):
    """What threads and another loop serve is served on, whichever loop has taken the requests."""

    async def batches():
        yield table(10)

    async def serve(server, ticket):
        server.serve(ticket, batches)

    async def ask(uri):
        return (await (await dipc.aget(uri, "other")).aread_all()).num_rows

    with new_server() as server:
        loop.run_until_complete(serve(server, "x"))
        other = asyncio.new_event_loop()
        other.run_until_complete(serve(server, "other"))
        loop.close()
        assert server.is_ready
        assert other.run_until_complete(ask(server.uri)) == 10
        other.close()
        with pytest.raises(dipc.StoppedError):
            dipc.get(server.uri, "other")
        assert not server.is_ready
        server.serve("threads", lambda: table(10))
        assert server.is_ready
        assert dipc.get(server.uri, "threads").read_all().num_rows == 10
