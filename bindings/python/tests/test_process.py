"""Fork, the end of the interpreter, and collected objects."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, new_address, table

FORK = """
import dipc, os, pyarrow as pa, sys
uri = sys.argv[1]
server, arena, client = dipc.Server(), dipc.Arena(), dipc.Client()
server.serve("mine", pa.table({"x": [1]}))
mine = server.listen(uri + "-mine")
reader = dipc.get(uri, "table")
batch = next(reader)
child = os.fork()
if child == 0:
    for use in (lambda: next(reader), lambda: server.listen(uri + "-other"), lambda: client.get(uri, "table"),
                lambda: arena.alloc(1), lambda: server.stats, reader.__arrow_c_stream__):
        try:
            use()
            os._exit(1)
        except dipc.ForkedError as error:
            assert error.status is dipc.Status.FORKED
    # Closing does nothing; the child has its own client, and may have a server.
    reader.close(); server.close(); client.close()
    assert dipc.get(uri, "table").read_all().num_rows == 10
    assert pa.table(dipc.get(mine, "mine")).num_rows == 1
    with dipc.Server() as other:
        other.publish("x", pa.table({"x": [1, 2]}))
        assert dipc.get(other.listen(uri + "-other"), "x").read_all().num_rows == 2
    del reader, server, client, arena, batch
    # The ordinary end of an interpreter.
    sys.exit(42)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 42, status
# The parent's are as they were.
assert pa.record_batch(batch).num_rows == 10
assert list(reader) == []
assert pa.table(dipc.get(mine, "mine")).num_rows == 1
print("good")
"""


def test_fork(server, script):
    """The child is told that what its parent made is of no use, and can make its own."""
    server.publish("table", table(10))
    process = script(FORK, server.uri.split("?")[0])
    out, errors = process.communicate(timeout=WAIT)
    assert (out, process.returncode) == ("good\n", 0), errors


# Each leaves something open at the interpreter's end.
ENDS = {
    "a half-read reader": "reader = dipc.get(uri, 'endless'); next(reader)",
    "a kept batch": "batch = next(dipc.get(uri, 'endless'))",
    "a stream that pyarrow holds": "reader = pyarrow.RecordBatchReader.from_stream(dipc.get(uri, 'endless'))",
    "capsules": "one = dipc.get(uri, 'endless'); kept = next(one).__arrow_c_array__(), one.__arrow_c_stream__()",
    "an open server": "server.publish('x', pyarrow.table({'x': [1]})); reader = dipc.get(server.listen(mine), 'x')",
    "a provider that computes": """
def compute():
    started.set()
    while True:
        pass
server.serve('x', compute)
threading.Thread(target=fetch, args=(server.listen(mine), 'x'), daemon=True).start()
started.wait()
""",
    "a provider that waits": """
def wait():
    started.set()
    threading.Event().wait()
server.serve('x', wait)
threading.Thread(target=fetch, args=(server.listen(mine), 'x'), daemon=True).start()
started.wait()
""",
    "a provider that sends": """
def send():
    while True:
        yield pyarrow.table({'x': range(1000)})
server.serve('x', send)
reader = dipc.get(server.listen(mine), 'x'); next(reader)
""",
    "memory of Python's that a client holds": """
server.serve('x', lambda: pyarrow.table({'x': pyarrow.Array.from_buffers(pyarrow.int8(), 100_000,
    [None, pyarrow.py_buffer(bytearray(100_000))])}))
batch = next(dipc.get(server.listen(mine), 'x'))
""",
    "a thread that waits": """
threading.Thread(target=fetch, args=(uri, 'stuck'), daemon=True).start()
with dipc.Server() as other:
    other.listen(mine)
""",
    "an arena's block": "arena = dipc.Arena(); block = arena.alloc(1000)",
    "an exception": "reader = dipc.get(uri, 'endless'); next(reader); sys.exit('an exception')",
}

END = """
import dipc, pyarrow, sys, threading
uri, mine = sys.argv[1], sys.argv[1].split("?")[0] + "-mine"
server, started = dipc.Server(), threading.Event()
def fetch(*arguments):
    try:
        dipc.get(*arguments)
    except dipc.DipcError:
        pass
{what}
print("ends", flush=True)
"""


@pytest.mark.parametrize("what", ENDS)
def test_the_interpreter_ends_well(server, script, what):
    """With whatever open: no crash, no hang, and nothing printed."""
    let_go = threading.Event()
    server.serve("endless", lambda: (table(1000) for _ in iter(int, 1)))
    server.serve("stuck", lambda: let_go.wait(WAIT))
    process = script(END.format(what=ENDS[what]), server.uri)
    out, errors = process.communicate(timeout=WAIT)
    let_go.set()
    expected = ("", "an exception\n", 1) if what == "an exception" else ("ends\n", "", 0)
    assert (out, errors, process.returncode) == expected


def test_a_server_ends_at_sigint(script):
    """The usual way to stop a serving script."""
    process = script(
        "import dipc, sys\n"
        "with dipc.Server() as server:\n"
        "    try:\n"
        "        print(server.listen(sys.argv[1]), flush=True)\n"
        "        sys.stdin.read()\n"
        "    except KeyboardInterrupt:\n"
        "        print('stopped')\n",
        new_address(),
    )
    assert process.stdout.readline().startswith("shm:@")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WAIT) == ("stopped\n", "")


def test_collected_servers_and_readers_are_closed():
    other = dipc.Server()
    uri = other.listen(new_address())
    ended = threading.Event()

    def endless():
        try:
            while True:
                yield table(10)
        finally:
            ended.set()

    other.serve("endless", endless)
    reader = dipc.get(uri, "endless")
    next(reader)
    del reader
    gc.collect()
    assert ended.wait(WAIT)
    # Closed on a thread of its own, whose end nothing tells: the address is free once it is.
    del other
    gc.collect()
    for _ in range(WAIT * 100):
        try:
            dipc.get(uri, "endless").close()
        except dipc.UnreachableError:
            break
        except dipc.DipcError:
            # It is just stopping.
            time.sleep(0.01)
    else:
        pytest.fail("the server still listens")


def test_many_streams_at_once():
    """More than the helper threads that there were before; each gets its own table."""
    with dipc.Server() as server:
        uri = server.listen(new_address())
        for number in range(8):
            server.serve(str(number), lambda number=number: table(1000, number))
        wrong = []

        def fetch(number):
            for _ in range(10):
                got = pa.table(dipc.get(uri, str(number % 8)))
                if got != table(1000, number % 8):
                    wrong.append(number)

        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert wrong == []
        assert server.stats.streams_served == 160


def others_are_awake():
    """True while a thread of this process other than the caller runs."""
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            with open(f"/proc/self/task/{thread}/stat") as stat:
                # The state follows the name.
                if stat.read().rpartition(")")[2].split()[0] == "R":
                    return True
    return False


def test_what_a_client_gives_back_late_is_released():
    """Without another request that would wake the server's thread: it was asleep when the batches were lent."""
    arena = dipc.Arena()
    runs, lends = threading.Event(), threading.Event()

    def provide():
        runs.set()
        assert lends.wait(WAIT)
        yield arena.copy(table(100_000))

    with dipc.Server() as server:
        server.serve("x", provide)
        uri = server.listen(new_address())
        got = []
        client = threading.Thread(target=lambda: got.append(dipc.get(uri, "x").read_all()))
        client.start()
        # The thread that takes requests waits for the next one, and the others for this test.
        assert runs.wait(WAIT)
        end = time.monotonic() + WAIT
        while others_are_awake() and time.monotonic() < end:
            time.sleep(0.01)
        lends.set()
        client.join(WAIT)
        while server.stats.streams_active:
            time.sleep(0.01)
        assert arena.stats.used_bytes > 0
        got.clear()
        gc.collect()
        end = time.monotonic() + WAIT
        while arena.stats.used_bytes and time.monotonic() < end:
            time.sleep(0.01)
        assert arena.stats.used_bytes == 0
