"""Options of the suite, and what its tests share."""

from __future__ import annotations

import itertools
import os
import pathlib

import pyarrow as pa
import pytest

import dipc
from peers import FOUND, NAMES, ROOT, SCHEMES, Peer, peer, unavailable

GOLDEN = pathlib.Path(os.environ.get("DIPC_GOLDEN", ROOT / "../shared/golden")) / "streams"
FILES = {path.name: path for path in [*sorted((ROOT / "tests/vectors").glob("*.arrows")), *sorted(GOLDEN.glob("*"))]}
SAMPLE = 2
"""Files of each server by default; no two servers then have the same."""

_numbers = itertools.count()


def new_address(scheme):
    """An address to listen at, which no other server of the suite has."""
    return f"shm:@dipc-matrix-{os.getpid()}-{next(_numbers)}" if scheme == "shm" else f"{scheme}://127.0.0.1:0"


def pytest_addoption(parser):
    parser.addoption("--all-files", action="store_true", help="every file with every pair, rather than a sample")


def pytest_report_header():
    lines = [f"matrix: {name}: {found}" for name, found in FOUND.items() if isinstance(found, str)]
    if not GOLDEN.is_dir():
        lines.append(f"matrix: golden streams are left out: no folder {GOLDEN} (DIPC_GOLDEN names another)")
    return lines


def sample(config, name):
    """The files that a server serves: a table of many batches, and some or all of the others."""
    others = list(FILES)
    if not config.getoption("--all-files"):
        mine = others[NAMES.index(name) :: len(NAMES)]
        others = mine[:: len(mine) // SAMPLE][:SAMPLE]
    return ["made", *others]


def pytest_generate_tests(metafunc):
    if "served" in metafunc.fixturenames:
        pairs = [(scheme, name, file) for scheme in SCHEMES for name in NAMES for file in sample(metafunc.config, name)]
        metafunc.parametrize("served", pairs, ids="-".join, indirect=True, scope="module")
    if "serving_long" in metafunc.fixturenames:
        pairs = [(scheme, name) for scheme in SCHEMES for name in NAMES]
        metafunc.parametrize("serving_long", pairs, ids="-".join, indirect=True)
    if "scheme" in metafunc.fixturenames:
        metafunc.parametrize("scheme", SCHEMES, indirect=True)
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", NAMES, indirect=True)


@pytest.fixture(scope="session")
def reasons():
    return {scheme: unavailable(scheme) for scheme in SCHEMES}


def ensure_available(scheme, reasons):
    if reasons[scheme]:
        pytest.skip(f"{scheme}: {reasons[scheme]}")


@pytest.fixture
def scheme(request, reasons):
    ensure_available(request.param, reasons)
    return request.param


@pytest.fixture
def client(request) -> Peer:
    return peer(request.param)


@pytest.fixture
def command() -> Peer:
    return peer("dipc")


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


@pytest.fixture(scope="module")
def served(request, reasons, made):
    """A server of one file; its name, its file and its URI. Shared by all clients."""
    scheme, name, file = request.param
    ensure_available(scheme, reasons)
    path = made if file == "made" else FILES[file]
    with peer(name).serve(new_address(scheme), path) as server:
        server.name, server.path = name, path
        yield server


@pytest.fixture
def serving_long(request, reasons, long):
    """A server of the long table, for one test."""
    scheme, name = request.param
    ensure_available(scheme, reasons)
    with peer(name).serve(new_address(scheme), long) as server:
        server.name, server.path = name, long
        yield server


@pytest.fixture
def own_server(scheme):
    """A server in this process, whose figures tests can read."""
    with dipc.Server() as server:
        server.uri = server.listen(new_address(scheme))
        yield server
