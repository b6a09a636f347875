"""Who may do what, and what a client may hold: the host's authorizer and the server's bounds.

The server is a process of its own, over shared memory and tls.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import socket
import subprocess
import threading

import pyarrow as pa
import pytest

import dipc
from conftest import ROOT, WAIT, new_address, scripts, table

SERVE = """
import builtins, dipc, pyarrow as pa, sys

def decide(request):
    if request.verb == dipc.Verb.GET and request.ticket.startswith(b"secret"):
        raise builtins.PermissionError("not for you")
    if request.ticket == b"fails":
        raise ValueError("out of paper")
    if request.ticket == b"busy":
        raise dipc.BusyError("come again")
    if request.ticket == b"wrong":
        return 7
    if request.peer.certificate is not None:
        return request.peer.certificate.subject
    return request.headers.get("user", b"").decode() or None

def said(request):
    peer = request.peer
    return pa.table({"principal": [request.principal], "uid": [peer.uid], "address": [peer.address]})

def take(request):
    taken = request.source().read_all()
    request.result(1, f"{request.principal} {len(taken)}")

with dipc.Server(authorizer=decide, tls=(sys.argv[2], sys.argv[3]), tls_client_ca=sys.argv[4]) as server:
    for ticket in ("a", "b", "secret plans"):
        server.publish(ticket, pa.table({"n": [1, 2]}))
    server.set_handler(said, put=take, describe=lambda request: dipc.Description(num_rows=3))
    print(server.listen(sys.argv[1]))
    print(server.listen("tls://127.0.0.1:0"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there")
    folder = tmp_path_factory.mktemp("pki")
    subprocess.run([ROOT / "tests/certificates.sh", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def uris(pki, tmp_path_factory):
    with scripts(tmp_path_factory.mktemp("deciding")) as start:
        files = [str(pki / name) for name in ("server.pem", "server.key", "ca.pem")]
        process = start(SERVE, new_address(), *files)
        found = {"shm": process.stdout.readline().strip(), "tls": process.stdout.readline().strip()}
        assert all(found.values()), process.communicate(timeout=WAIT)
        yield found
        assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


@pytest.fixture(params=["shm", "tls"])
def uri(request, uris):
    return uris[request.param]


@pytest.fixture(scope="module")
def client(pki):
    with dipc.Client(tls_ca=pki / "ca.pem", tls=(pki / "alice.pem", pki / "alice.key")) as client:
        yield client


def test_handlers_see_who_the_authorizer_says_that_it_is(uris, client):
    """By a header over shm, by the certificate over tls."""
    told = client.get(uris["shm"], "who", headers={"user": "alice"}).read_all().to_pylist()
    assert told == [{"principal": "alice", "uid": os.getuid(), "address": None}]
    assert client.get(uris["shm"], "who").read_all()["principal"].to_pylist() == [None]
    (told,) = client.get(uris["tls"], "who").read_all().to_pylist()
    assert (told["principal"], told["uid"]) == ("CN=alice", None)
    assert told["address"].startswith("127.0.0.1:")
    taken = client.put(uris["shm"], "numbers", table(10), headers={"user": "alice"})
    assert taken.results[0].data == b"alice 10"


def test_a_refusal_has_its_status_and_text(uri, client):
    for _ in range(2):
        with pytest.raises(dipc.PermissionError, match="not for you"):
            client.get(uri, "secret plans")
        with pytest.raises(dipc.PermissionError, match="ValueError: out of paper"):
            client.get(uri, "fails")
        with pytest.raises(dipc.PermissionError, match="a principal is text, not int"):
            client.get(uri, "wrong")
        with pytest.raises(dipc.BusyError, match="come again") as failure:
            client.describe(uri, "busy")
        assert failure.value.retry_after > 0
        with pytest.raises(dipc.PermissionError, match="out of paper"):
            client.put(uri, "fails", table(10))
        assert client.get(uri, "a").read_all().num_rows == 2


def test_only_what_a_client_may_get_is_shown(uri, client):
    assert client.list_tickets(uri).read_all()["descriptor"].to_pylist() == [b"a", b"b"]
    with pytest.raises(dipc.NotFoundError):
        client.describe(uri, "secret plans")


def test_a_slow_decision_holds_up_nobody():
    asked, go = threading.Semaphore(0), threading.Event()

    def decide(request):
        if request.ticket == b"slow":
            asked.release()
            go.wait(WAIT)

    failures = []

    def get(uri):
        try:
            dipc.get(uri, "slow")
        except dipc.DipcError as error:
            failures.append(error)

    with dipc.Server(authorizer=decide) as server:
        uri = server.listen(new_address())
        server.publish("t", table(10))
        server.publish("slow", table(10))
        threads = [threading.Thread(target=get, args=[uri]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert asked.acquire(timeout=WAIT)
        assert dipc.get(uri, "t").read_all() == table(10)
        go.set()
        for thread in threads:
            thread.join(WAIT)
        assert failures == []


LEAVE = """
import dipc, pyarrow as pa, sys, threading

deciding = threading.Event()

def decide(request):
    deciding.set()
    threading.Event().wait()

server = dipc.Server(authorizer=decide)
server.publish("t", pa.table({"n": [1]}))
print(server.listen(sys.argv[1]), flush=True)
deciding.wait()
"""


def test_a_program_ends_while_its_authorizer_decides(script):
    """Its client is told, and nothing hangs."""
    process = script(LEAVE, new_address())
    uri = process.stdout.readline().strip()
    with pytest.raises((dipc.StoppedError, dipc.DisconnectedError)):
        dipc.get(uri, "t")
    assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


def test_coroutines_serve_what_the_authorizer_allows():
    async def name(request):
        await asyncio.sleep(0)
        return pa.table({"name": [request.principal]})

    async def main():
        async with dipc.Server(authorizer=lambda request: "alice" if request.ticket == b"t" else 1 / 0) as server:
            server.serve("t", name)
            server.serve("u", name)
            uri = server.listen(new_address())
            reader = await dipc.aget(uri, "t")
            assert (await reader.aread_all())["name"].to_pylist() == ["alice"]
            with pytest.raises(dipc.PermissionError, match="ZeroDivisionError"):
                await dipc.aget(uri, "u")

    asyncio.run(main())


def test_a_coroutine_decides():
    """On its loop, for several requests at once, for published tables too; an exception refuses."""
    both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None

    async def decide(request):
        assert threading.current_thread() is threading.main_thread()
        if request.ticket == b"both" and request.verb == dipc.Verb.GET and both is not None:
            await asyncio.wait_for(both.wait(), WAIT)
        await asyncio.sleep(0)
        if request.ticket == b"secret":
            raise dipc.PermissionError("not for you")
        if request.ticket == b"fails":
            raise ValueError("out of paper")
        return request.headers.get("user", b"").decode() or None

    async def name(request):
        return pa.table({"name": [request.principal]})

    def name_on_a_thread(request):
        return pa.table({"name": [request.principal]})

    async def main():
        async with dipc.Server(authorizer=decide) as server:
            server.publish("both", table())
            server.serve("loop", name)
            server.serve("thread", name_on_a_thread)
            uri = server.listen(new_address())
            await asyncio.gather(*(dipc.aget(uri, "both") for _ in range(2)))
            for ticket in ("loop", "thread"):
                reader = await dipc.aget(uri, ticket, headers={"user": "alice"})
                assert (await reader.aread_all())["name"].to_pylist() == ["alice"]
            with pytest.raises(dipc.PermissionError, match="not for you"):
                await dipc.aget(uri, "secret")
            with pytest.raises(dipc.PermissionError, match="out of paper"):
                await dipc.aget(uri, "fails")

    asyncio.run(main())


def test_a_server_ends_while_a_coroutine_decides():
    """Its client is told, the coroutine is cancelled, and nothing hangs."""
    ended = []

    async def main():
        asked = asyncio.Event()

        async def decide(_request):
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        async with dipc.Server(authorizer=decide) as server:
            server.publish("t", table())
            uri = server.listen(new_address())
            waits = asyncio.ensure_future(dipc.aget(uri, "t"))
            await asyncio.wait_for(asked.wait(), WAIT)
            await server.aclose()
            with pytest.raises((dipc.StoppedError, dipc.DisconnectedError, dipc.UnreachableError)):
                await waits

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert ended == [True]


def test_what_is_no_authorizer():
    async def decide(_request):
        pass

    async def decide_twice(_request):
        yield None

    with pytest.raises(TypeError, match="not str"):
        dipc.Server(authorizer="alice")
    with pytest.raises(TypeError, match="async generator"):
        dipc.Server(authorizer=decide_twice)
    with pytest.raises(RuntimeError, match="running loop"):
        dipc.Server(authorizer=decide)


@pytest.fixture
def own_address():
    """An address of this machine whose clients count as another machine: those of loopback have no bounds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, contextlib.suppress(OSError):
        # Nothing is sent.
        asking.connect(("192.0.2.1", 9))
        return asking.getsockname()[0]
    pytest.skip("this machine has no address but loopback")


def refusal(address, bounds):
    """How a server refuses a second stream."""
    hold = threading.Event()

    def endless(request):
        while not (request.cancelled or hold.is_set()):
            yield table(10)

    with dipc.Server(**bounds, credit_timeout=math.inf, allow_remote=True) as server:
        server.serve("endless", endless)
        uri = server.listen(f"tcp://{address}:0")
        busy = pytest.raises(dipc.BusyError)
        with dipc.Client() as first, dipc.Client() as second, first.get(uri, "endless"), busy as failure:
            second.get(uri, "endless")
    assert 0 < failure.value.retry_after < WAIT
    return str(failure.value)


def test_a_busy_server_says_when_to_ask_again():
    assert "max_streams allows" in refusal("127.0.0.1", {"max_streams": 1})
    assert "max_connections allows" in refusal("127.0.0.1", {"max_connections": 1})
    with pytest.raises(dipc.NotFoundError) as failure, dipc.Server() as server:
        dipc.get(server.listen(new_address()), "nowhere")
    assert failure.value.retry_after is None


def test_a_peer_has_bounds_of_its_own(own_address):
    for name in ("max_streams_per_peer", "max_connections_per_peer"):
        assert f"{name} allows" in refusal(own_address, {name: 1})


def test_limits_that_are_none():
    for name in ("max_connections", "max_connections_per_peer", "max_streams_per_peer", "max_streams_per_connection"):
        with pytest.raises(dipc.InvalidArgumentError, match=name):
            dipc.Server(**{name: 0})
    for name in ("credit", "handshake", "request", "idle"):
        with pytest.raises(dipc.InvalidArgumentError, match=f"{name} timeout is 0"):
            dipc.Server(**{f"{name}_timeout": 0})
        dipc.Server(**{f"{name}_timeout": math.inf}).close()
    dipc.Server(max_request_bytes=0).close()
    with pytest.raises(TypeError, match="number of seconds"):
        dipc.Server(idle_timeout="soon")
