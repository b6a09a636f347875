"""Killed and interrupted peers, in every language."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

import dipc
from conftest import new_address
from peers import PEERS, WAIT, read


class Held:
    """A client that was stopped, by SIGSTOP, in mid-stream: it has begun to write, and the table goes on."""

    def __init__(self, client, server, out):
        self._client = client
        # The command serves only files, so its table is long instead of endless.
        self.process = client.start_get(server.uri, "table" if server.name == "dipc" else "endless", out)
        for _ in range(WAIT * 200):
            if self.process.poll() is not None or (out.exists() and out.stat().st_size > 0):
                break
            time.sleep(0.005)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)

    def let_go(self):
        """What becomes of the client now."""
        self.process.send_signal(signal.SIGCONT)
        return self._client.finish(self.process)

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def hold(client, tmp_path):
    """Makes a held client."""
    if client.name == "dipc":
        pytest.skip("the command shows its table at the end: it has tests of its own")
    with contextlib.ExitStack() as stack:

        def start(server):
            held = Held(client, server, tmp_path / "out.arrows")
            stack.callback(held.close)
            assert held.process.poll() is None, client.finish(held.process)
            return held

        yield start


@pytest.mark.parametrize("server", PEERS.values(), ids=[f"shm-{name}" for name in PEERS])
def test_a_server_that_must_end_at_once(server, made):
    """SIGTERM right after the URI was told ends it well, which `serve` asserts."""
    with server.serve(new_address("shm"), made) as serving:
        assert serving.uri.startswith("shm:")


def test_a_killed_server(served_long, hold):
    """Its client says so, rather than that the table is over."""
    held = hold(served_long)
    served_long.kill()
    got = held.let_go()
    assert (got.code, got.status) == (3, "DIPC_ERR_DISCONNECTED"), got.text


def test_a_killed_client(served_long, hold):
    """Its server serves on."""
    held = hold(served_long)
    held.process.kill()
    held.process.wait()
    schema, batches = read(served_long.path)
    with dipc.get(served_long.uri, "table") as reader:
        assert sum(len(batch) for batch in reader) == sum(batch.num_rows for batch in batches)
        assert pa.schema(reader.schema) == schema


def serve_in_turn(server):
    """Serves a table without end, which says when 40 batches, more than any window, are under way."""
    under_way, ended = threading.Event(), threading.Event()
    made = dipc.Arena().copy({"number": range(10_000)})

    def provide():
        try:
            for number in range(1 << 40):
                if number == 40:
                    under_way.set()
                yield made
        finally:
            ended.set()

    server.serve("table", provide)
    return under_way, ended


def wait_until_nothing_is_lent(server):
    """The end of a connection has an event of its own inside the library, which no call waits for."""
    for _ in range(WAIT * 100):
        stats = server.stats
        if (stats.connections, stats.lent_outstanding, stats.streams_active) == (0, 0, 0):
            return
        time.sleep(0.01)
    pytest.fail(f"something of a killed client's stays: {server.stats}")


def test_what_a_killed_client_held_comes_back(own_server, client):
    """Rule F4, at a server that can tell: nothing stays lent."""
    under_way, ended = serve_in_turn(own_server)
    process = client.start_get(own_server.uri, "table", "/dev/null" if client.name != "dipc" else None)
    try:
        assert under_way.wait(WAIT), client.finish(process).text
    finally:
        process.kill()
        process.communicate()
    assert ended.wait(WAIT)
    wait_until_nothing_is_lent(own_server)


def test_the_command_is_interrupted(own_server, command):
    """Ctrl-C ends `dipc get` in mid-stream, and its server's stream."""
    under_way, ended = serve_in_turn(own_server)
    process = command.start_get(own_server.uri, "table", None)
    assert under_way.wait(WAIT)
    process.send_signal(signal.SIGINT)
    assert command.finish(process).code != 0
    assert ended.wait(WAIT)
    wait_until_nothing_is_lent(own_server)


ENDLESS = """
import dipc, itertools, sys
def endless():
    batch = dipc.Arena().copy({"number": range(10_000)})
    for number in itertools.count():
        if number == 40:
            print("under way", flush=True)
        yield batch
server = dipc.Server(trusted_network=True)
server.serve("table", endless)
print(server.listen(sys.argv[1]), flush=True)
sys.stdin.read()
"""


def test_the_server_of_the_command_is_killed(scheme, command):
    """`dipc get` fails, where it was in mid-stream."""
    words = [sys.executable, "-c", ENDLESS, new_address(scheme)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        process = command.start_get(server.stdout.readline().strip(), "table", None)
        assert server.stdout.readline() == "under way\n"
        server.kill()
        assert command.finish(process).code == 1
