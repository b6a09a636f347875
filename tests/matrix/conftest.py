"""Options of the suite, and what its tests share."""

from __future__ import annotations

import itertools
import os
import pathlib

import pyarrow as pa
import pytest

import dipc
from peers import FOUND, PEERS, ROOT, SCHEMES, UNAVAILABLE_SCHEMES, Peer

GOLDEN = pathlib.Path(os.environ.get("DIPC_GOLDEN", ROOT / "../shared/golden")) / "streams"
FILES = {path.name: path for path in [*sorted((ROOT / "tests/vectors").glob("*.arrows")), *sorted(GOLDEN.glob("*"))]}
_numbers = itertools.count()


def new_address(scheme):
    """An address to listen at, which no other server of the suite has."""
    return f"shm:@dipc-matrix-{os.getpid()}-{next(_numbers)}" if scheme == "shm" else f"{scheme}://127.0.0.1:0"


def pytest_addoption(parser):
    parser.addoption("--all-files", action="store_true", help="every file with every pair, rather than a sample")
    parser.addoption("--all-peers", action="store_true", help="a language or transport that is missing is a failure")


def sample(config, number):
    """The files of one server: every file, or one that no other server has."""
    files = list(FILES)
    return files if config.getoption("--all-files") else [files[number * len(files) // 20 % len(files)]]


def is_close(server, sender):
    """Whether a pair has everything, also where no option asks for it: each language with itself and with Python."""
    return server == sender or "python" in (server, sender)


def pairs(config, scheme):
    """Servers, and who sends to them: each with each over shared memory, and the close ones over other transports."""
    is_whole = scheme == "shm" or config.getoption("--all-files")
    return [
        (scheme, server, sender)
        for server, sender in itertools.product(PEERS, PEERS)
        if is_whole or is_close(server, sender)
    ]


def pytest_generate_tests(metafunc):
    """Every pair of what is there; what is not is told by test_here.py."""
    schemes = [scheme for scheme in SCHEMES if UNAVAILABLE_SCHEMES[scheme] is None]
    each = list(itertools.product(schemes, PEERS))
    ways = {
        "served": [(*one, file) for number, one in enumerate(each) for file in sample(metafunc.config, number)],
        "served_made": [(*one, "made") for one in each],
        "served_long": [(*one, "long") for one in each],
    }
    for way, what in ways.items():
        if way in metafunc.fixturenames:
            # One server at a time, for all clients; a separate server for each test that may kill
            # it.
            scope = "function" if way == "served_long" else "module"
            metafunc.parametrize(way, what, ids="-".join, indirect=True, scope=scope)
    if "taking" in metafunc.fixturenames:
        found = [pair for scheme in schemes for pair in pairs(metafunc.config, scheme)]
        # One object for each server: it stays while the next test has the same one.
        servers = {pair[:2]: pair[:2] for pair in found}
        metafunc.parametrize(
            ("taking", "sender"),
            [(servers[pair[:2]], PEERS[pair[2]]) for pair in found],
            ids=["-".join(pair) for pair in found],
            indirect=["taking"],
            scope="module",
        )
    if "scheme" in metafunc.fixturenames:
        metafunc.parametrize("scheme", schemes)
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", PEERS.values(), ids=PEERS)


@pytest.fixture
def command() -> Peer:
    if "dipc" not in PEERS:
        pytest.skip(FOUND["dipc"])
    return PEERS["dipc"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A stream file of many batches, larger than any window: 500 of 1000 rows."""
    path = tmp_path_factory.mktemp("made") / "made.arrows"
    rows = 1000
    with pa.ipc.new_stream(path, pa.schema([("number", pa.int64()), ("text", pa.utf8())])) as writer:
        for first in range(0, 500 * rows, rows):
            numbers = range(first, first + rows)
            writer.write_batch(pa.record_batch({"number": numbers, "text": [f"row {n}" for n in numbers]}))
    return path


@pytest.fixture(scope="session")
def long(tmp_path_factory):
    """A stream file of 5000 batches, 100 MB, which takes a while."""
    path = tmp_path_factory.mktemp("long") / "long.arrows"
    batch = pa.record_batch({"number": range(1000), "text": ["row " * 3] * 1000})
    with pa.ipc.new_stream(path, batch.schema) as writer:
        for _ in range(5000):
            writer.write_batch(batch)
    return path


def serve(made_files, what):
    """A server of one file, for a fixture; it has its name, its file and its URI."""
    scheme, name, file = what
    path = made_files.get(file) or FILES[file]
    with PEERS[name].serve(new_address(scheme), path) as server:
        server.name, server.path = name, path
        yield server


@pytest.fixture(scope="session")
def made_files(made, long):
    return {"made": made, "long": long}


@pytest.fixture(scope="module")
def served(request, made_files):
    """A server of each file, shared by all clients."""
    yield from serve(made_files, request.param)


@pytest.fixture(scope="module")
def served_made(request, made_files):
    """A server of the table of many batches, shared by all clients."""
    yield from serve(made_files, request.param)


@pytest.fixture
def served_long(request, made_files):
    """A server of the long table, which the test may kill."""
    yield from serve(made_files, request.param)


@pytest.fixture(scope="module")
def taking(request, tmp_path_factory):
    """A server that takes tables, shared by all who send to it."""
    scheme, name = request.param
    taken = tmp_path_factory.mktemp("taken")
    with PEERS[name].serve(new_address(scheme), FILES["integers.arrows"], taken) as server:
        server.name = name
        yield server


@pytest.fixture
def files(request, taking, sender):
    """What a pair sends: every file; a third of them where that takes Julia, which is slow, too long."""
    files, pair = list(FILES.values()), (taking.name, sender.name)
    if request.config.getoption("--all-files") or is_close(*pair) or "julia" not in pair:
        return files
    return files[sum(map(list(PEERS).index, pair)) % 3 :: 3]


@pytest.fixture
def own_server(scheme):
    """A server in this process, whose figures tests can read."""
    with dipc.Server(trusted_network=True) as server:
        server.uri = server.listen(new_address(scheme))
        yield server
