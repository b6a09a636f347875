"""Waiting ends when it should: Ctrl-C, cancel tokens, asyncio, timeouts, dead peers."""

from __future__ import annotations

import asyncio
import select
import signal
import socket
import threading
import time

import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, new_address, table


@pytest.fixture
def stuck(server):
    """Tickets whose providers wait: "opening" before the schema, "reading" after one batch."""
    let_go, waiting = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        let_go.wait(WAIT)

    def reading():
        yield table(10)
        wait()
        yield table(10)

    def opening():
        wait()
        return table(10)

    server.serve("opening", opening)
    server.serve("reading", reading)
    server.waiting = waiting
    yield server
    let_go.set()


@pytest.fixture
def new_server():
    """Makes servers that listen."""
    made = []

    def make(**options):
        server = dipc.Server(**options)
        made.append(server)
        server.uri = server.listen(new_address())
        return server

    yield make
    for server in made:
        server.close()


# The key is a name; the value is the code that a script runs until it waits.
USES = {
    "get": "dipc.get(uri, 'opening')",
    "iteration": "list(dipc.get(uri, 'reading'))",
    "read_all": "dipc.get(uri, 'reading').read_all()",
    "asyncio get": "asyncio.run(dipc.aget(uri, 'opening'))",
    "asyncio iteration": "asyncio.run(everything())",
}

# read_all would import pyarrow, and an import that is interrupted warns.
CTRL_C = """
import asyncio, dipc, pyarrow, sys
uri = sys.argv[1]
async def everything():
    async with await dipc.aget(uri, 'reading') as reader:
        return [batch async for batch in reader]
try:
    {use}
except KeyboardInterrupt:
    print("interrupted")
print("goes on:", dipc.get(uri, "good").read_all().num_rows)
"""


@pytest.mark.parametrize("use", USES)
def test_ctrl_c_interrupts(stuck, script, use):
    """At once, though the provider never goes on; the process then works as before."""
    stuck.publish("good", table(3))
    process = script(CTRL_C.format(use=USES[use]), stuck.uri)
    assert stuck.waiting.wait(WAIT)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=WAIT)
    assert out == "interrupted\ngoes on: 3\n", errors
    assert process.returncode == 0


# Python's own handler notes the signal on this thread, and the main thread sleeps on.
DEAF = """
import signal, sys, threading
def interrupt():
    sys.stdin.readline()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt).start()
"""


@pytest.mark.parametrize("use", USES)
def test_ctrl_c_is_heard_that_does_not_wake_the_main_thread(stuck, script, use):
    stuck.publish("good", table(3))
    process = script(DEAF + CTRL_C.format(use=USES[use]), stuck.uri)
    assert stuck.waiting.wait(WAIT)
    out, errors = process.communicate("\n", timeout=WAIT)
    assert (out, errors) == ("interrupted\ngoes on: 3\n", "")


def test_ctrl_c_is_heard_at_any_moment(stuck, script):
    """Also in the one before the main thread sleeps, which a signal does not wake then."""
    stuck.publish("good", table(3))
    for step in range(16):
        stuck.waiting.clear()
        process = script(CTRL_C.format(use=USES["read_all"]), stuck.uri)
        assert stuck.waiting.wait(WAIT)
        moment = time.perf_counter() + step * 75e-6
        while time.perf_counter() < moment:
            pass
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=WAIT)
        assert out == "interrupted\ngoes on: 3\n", errors


HANDLER = """
import dipc, signal, sys
def handle(number, frame):
    print("handled", flush=True)
signal.signal(signal.SIGUSR1, handle)
batches = []
for batch in dipc.get(sys.argv[1], "reading"):
    batches.append(batch)
print(sum(batch.num_rows for batch in batches))
"""


def test_a_handler_that_raises_nothing_lets_the_wait_go_on(server, script):
    """As Python's own calls do (PEP 475): the handler runs at once, and the stream is unharmed."""
    waiting, let_go = threading.Event(), threading.Event()

    def provide():
        yield table(10)
        waiting.set()
        let_go.wait(WAIT)
        yield table(10)

    server.serve("reading", provide)
    process = script(HANDLER, server.uri)
    assert waiting.wait(WAIT)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "handled\n"
    let_go.set()
    out, errors = process.communicate(timeout=WAIT)
    assert out == "20\n", errors


@pytest.mark.parametrize("thread", ["main", "other"])
def test_cancel_tokens(stuck, thread):
    """A token ends the call and the stream, whichever thread waits."""

    def run(use):
        raised = []

        def catch():
            try:
                use()
            except dipc.DipcError as error:
                raised.append(error)

        cancel_when_waiting = threading.Thread(target=lambda: (stuck.waiting.wait(WAIT), cancel.trigger()))
        cancel_when_waiting.start()
        if thread == "main":
            catch()
        else:
            waiter = threading.Thread(target=catch)
            waiter.start()
            waiter.join(WAIT)
        cancel_when_waiting.join(WAIT)
        assert [type(error) for error in raised] == [dipc.CancelledError]
        stuck.waiting.clear()

    cancel = dipc.Cancel()
    run(lambda: dipc.get(stuck.uri, "opening", cancel=cancel))
    assert cancel.triggered
    with pytest.raises(dipc.CancelledError):
        dipc.get(stuck.uri, "reading", cancel=cancel)
    cancel = dipc.Cancel()
    run(lambda: list(dipc.get(stuck.uri, "reading", cancel=cancel)))


def test_cancel_reaches_a_stream_that_another_library_reads(stuck):
    reader = dipc.get(stuck.uri, "reading")
    imported = pa.RecordBatchReader.from_stream(reader)
    assert imported.read_next_batch().num_rows == 10
    canceller = threading.Thread(target=lambda: (stuck.waiting.wait(WAIT), reader.cancel()))
    canceller.start()
    with pytest.raises(OSError, match="cancel"):
        imported.read_next_batch()
    canceller.join()


def test_closing_ends_a_wait_in_another_thread(stuck):
    reader = dipc.get(stuck.uri, "reading")
    closer = threading.Thread(target=lambda: (stuck.waiting.wait(WAIT), reader.close()))
    closer.start()
    # Cancelled while it waits; closed, if it was about to.
    with pytest.raises((dipc.CancelledError, dipc.ClosedError)):
        list(reader)
    closer.join(WAIT)
    assert not closer.is_alive()


def test_waiting_releases_the_gil(stuck):
    """Another thread runs Python while this one waits without a helper."""
    reader = dipc.get(stuck.uri, "reading")
    waiter = threading.Thread(target=lambda: pytest.raises(dipc.CancelledError, list, reader))
    waiter.start()
    assert stuck.waiting.wait(WAIT)
    reader.cancel()
    waiter.join(WAIT)
    assert not waiter.is_alive()


def test_asyncio(server):
    server.serve("three", lambda: (table(10) for _ in range(3)))

    async def main():
        reader = await dipc.aget(server.uri, "three")
        async with reader:
            rows = [len(batch) async for batch in reader]
        assert rows == [10, 10, 10]
        with pytest.raises(dipc.ClosedError):
            await reader.__anext__()
        many = await asyncio.gather(*(dipc.aget(server.uri, "three") for _ in range(10)))
        tables = await asyncio.gather(*(reader.aread_all() for reader in many))
        assert {table.num_rows for table in tables} == {30}
        with pytest.raises(dipc.NotFoundError):
            await dipc.aget(server.uri, "nowhere")

    asyncio.run(main())


def test_asyncio_cancels(stuck):
    """A cancelled task ends the call, and the server's stream; the loop runs meanwhile."""

    async def reading():
        async with await dipc.aget(stuck.uri, "reading") as reader:
            async for _ in reader:
                pass

    async def main():
        for work in (dipc.aget(stuck.uri, "opening"), reading()):
            task = asyncio.ensure_future(work)
            while not stuck.waiting.is_set():
                await asyncio.sleep(0)
            stuck.waiting.clear()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(dipc.aget(stuck.uri, "opening"), 0.01)

    asyncio.run(main())


def test_a_provider_sees_that_its_client_is_gone(server):
    ended = threading.Event()

    def provide(request):
        try:
            while not request.cancelled:
                yield table(10)
        finally:
            ended.set()

    server.serve("endless", provide)
    with dipc.get(server.uri, "endless") as reader:
        next(reader)
    assert ended.wait(WAIT)


def test_a_provider_can_wait_for_its_client_to_go(server):
    """Beside something else, by a descriptor, which says nothing while the client is there."""
    early, late = [], threading.Event()
    never, _never = socket.socketpair()

    def provide(request):
        early.extend(select.select([request.cancel_fd], [], [], 0)[0])
        yield table(10)
        if select.select([never, request.cancel_fd], [], [], WAIT)[0] == [request.cancel_fd]:
            late.set()

    server.serve("waits", provide)
    with dipc.get(server.uri, "waits") as reader:
        next(reader)
    assert late.wait(WAIT)
    assert early == []
    never.close()
    _never.close()


def test_stuck_providers_hold_no_place(new_server):
    """The place of a client that has gone is free; how many providers may be stuck so is bounded."""
    server = new_server(max_streams=1, max_providers=3)
    let_go = threading.Event()
    server.serve("stuck", lambda: (let_go.wait(WAIT), table(10))[1])
    server.serve("good", table(3))
    try:
        for _ in range(3):
            assert dipc.get(server.uri, "good").read_all().num_rows == 3
            with pytest.raises(TimeoutError):
                dipc.get(server.uri, "stuck", stall_timeout=0.05)
            comes_true(lambda: server.stats.streams_active == 0)
        with pytest.raises(dipc.BusyError, match="max_providers"):
            dipc.get(server.uri, "good")
    finally:
        let_go.set()


def comes_true(holds):
    for _ in range(WAIT * 100):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come true")


def test_stall_timeout(stuck):
    with pytest.raises(TimeoutError) as late:
        dipc.get(stuck.uri, "opening", stall_timeout=0.05)
    assert late.value.status is dipc.Status.TIMEOUT


SERVER = """
import dipc, pyarrow, sys, threading
server = dipc.Server()
def endless():
    batch = pyarrow.table({"x": range(100_000)})
    if sys.argv[2] == "arena":
        batch = dipc.Arena().copy(batch)
    while True:
        yield batch
server.serve("endless", endless)
def stuck():
    print("stuck", flush=True)
    threading.Event().wait()
server.serve("stuck", stuck)
print(server.listen(sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("memory", ["arena", "copied"])
def test_a_killed_server_is_an_error(script, memory):
    process = script(SERVER, new_address(), memory)
    uri = process.stdout.readline().strip()
    reader = dipc.get(uri, "endless")
    kept = [next(reader) for _ in range(3)]
    waiter_failed = []

    def wait():
        try:
            dipc.get(uri, "stuck")
        except dipc.DisconnectedError as error:
            waiter_failed.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert process.stdout.readline() == "stuck\n"
    process.kill()
    process.wait()
    waiter.join(WAIT)
    assert len(waiter_failed) == 1
    with pytest.raises(ConnectionError) as dead:
        for _ in reader:
            pass
    assert isinstance(dead.value, dipc.DisconnectedError)
    # What was received before stays readable.
    assert pa.record_batch(kept[0]).column(0)[99_999].as_py() == 99_999


CLIENT = """
import dipc, sys
reader = dipc.get(sys.argv[1], "endless")
kept = [next(reader) for _ in range(3)]
print("has them", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_gives_back_what_it_held(server, script):
    ended = threading.Event()
    made = dipc.Arena().copy(table())

    def endless():
        try:
            while True:
                yield made
        finally:
            ended.set()

    server.serve("endless", endless)
    process = script(CLIENT, server.uri)
    assert process.stdout.readline() == "has them\n"
    assert server.stats.lent_outstanding > 0
    process.kill()
    process.wait()
    assert ended.wait(WAIT)
    # The stream has ended; what was lent comes back with the connection, which has a thread of its own.
    for _ in range(WAIT * 100):
        if server.stats.connections == 0:
            break
        time.sleep(0.01)
    assert server.stats.lent_outstanding == 0
