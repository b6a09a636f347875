"""Flight as the control plane, against pyarrow's Flight client and server."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import streams

COMMAND = os.environ.get("DIPC_COMMAND", str(streams.ROOT / "target/debug/dipc"))
EXAMPLES = streams.ROOT / "examples/flight"
FILES = streams.files()
REUSE = "arrow-flight-reuse-connection://?"

pytestmark = pytest.mark.skipif(
    not pathlib.Path(COMMAND).exists(), reason=f"no {COMMAND}: DIPC_COMMAND names another"
)


def table(path):
    schema, batches = streams.read(path)
    return pa.Table.from_batches(batches, schema)


def same(one, other):
    """A table without columns keeps its rows in its batches alone."""
    return one.equals(other, check_metadata=True) or (not one.schema.names and not other.schema.names)


@contextmanager
def serving(*arguments):
    """`dipc serve`; the lines that it prints, up to that of Flight, by their first words."""
    process = subprocess.Popen([COMMAND, "serve", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        told = {}
        while not ("flight" in told if "--flight" in arguments else "data" in told):
            word, uri = process.stdout.readline().split()
            told[word] = uri
        yield told
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


def address():
    address.last += 1
    return f"shm:@dipc-pytest-flight-{os.getpid()}-{address.last}"


address.last = 0


class Tables(flight.FlightServerBase):
    """pyarrow's Flight server, over every file, with the locations that a test wants."""

    def __init__(self, locations=()):
        super().__init__("grpc://127.0.0.1:0")
        self.uri = f"grpc://127.0.0.1:{self.port}"
        self.locations = list(locations)

    def get_flight_info(self, context, descriptor):
        name = descriptor.path[0] if descriptor.path else descriptor.command
        if name.decode() not in FILES:
            raise flight.FlightServerError(f"no such table: {name}")
        schema, _ = streams.read(FILES[name.decode()])
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(name, self.locations)], -1, -1)

    def do_get(self, context, ticket):
        schema, batches = streams.read(FILES[ticket.ticket.decode()])
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, batches))


def get(uri, name, *arguments):
    """`dipc get`, compared with the file; what it reports, and what it logs."""
    done = subprocess.run(
        [COMMAND, "get", uri, name, "--json", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module", params=[[], ["--arena"]], ids=["files", "arena"])
def server(request):
    arguments = [f"{name}={path}" for name, path in FILES.items()]
    with serving("--flight", "127.0.0.1:0", "--listen", address(), *request.param, *arguments) as told:
        yield told


@pytest.fixture(scope="module")
def client(server):
    with flight.connect(server["flight"]) as client:
        yield client


@pytest.mark.parametrize("name", FILES)
def test_serve(client, name):
    """Issue 4, point 6: pyarrow's client, which knows nothing of libdipc, gets every table by DoGet."""
    expected = table(FILES[name])
    descriptor = flight.FlightDescriptor.for_path(name)
    info = client.get_flight_info(descriptor)
    assert info.schema.equals(expected.schema, check_metadata=True)
    assert client.get_schema(descriptor).schema.equals(expected.schema, check_metadata=True)
    [endpoint] = info.endpoints
    got = client.do_get(endpoint.ticket).read_all()
    assert got.schema.equals(expected.schema, check_metadata=True)
    assert got.num_rows == expected.num_rows
    assert same(got, expected)


def test_locations(server, client):
    """libdipc's addresses come first, as they were announced, and then the server's own connection."""
    infos = {info.descriptor.path[0].decode(): info for info in client.list_flights()}
    assert sorted(infos) == sorted(FILES)
    for name, info in infos.items():
        [endpoint] = info.endpoints
        assert endpoint.ticket.ticket.decode() == name
        assert [location.uri.decode() for location in endpoint.locations] == [server["ready"], REUSE]


def test_refusals(client):
    """What is not there, or not answered, says so and names what is."""
    with pytest.raises(pa.ArrowException, match='no table "nobody"'):
        client.get_flight_info(flight.FlightDescriptor.for_path("nobody"))
    with pytest.raises(pa.ArrowException, match="no table"):
        client.do_get(flight.Ticket(b"nobody")).read_all()
    with pytest.raises(pa.ArrowException, match="2 parts"):
        client.get_schema(flight.FlightDescriptor.for_path("a", "b"))
    with pytest.raises(pa.ArrowException, match="ListFlights, GetFlightInfo"):
        list(client.do_action(flight.Action("anything", b"")))
    assert list(client.list_flights(b"no table begins so")) == []


@pytest.mark.parametrize("name", FILES)
def test_get(tmp_path, name):
    """Issue 4, point 6: `dipc get` of a table that pyarrow's server sends by DoGet."""
    # pyarrow renames the fields of maps, so the result may differ from the vector.
    expected = tmp_path / "expected.arrows"
    schema, batches = streams.read(FILES[name])
    with pa.ipc.new_stream(expected, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with Tables() as server:
        report, _ = get(server.uri, name, "--verify", str(expected))
    assert report["verified"]["equal"]
    assert report["taken"] == [{"by": "DoGet", "from": [server.uri]}]


def test_mixed_locations():
    """The first location that works is taken: an address of nobody, then libdipc's pair of URIs."""
    name, path = next(iter(FILES.items()))
    nobody = "shm:@dipc-pytest-nobody"
    with serving("--listen", address(), "--roles", f"{name}={path}") as told:
        pair = [told["metadata"], told["data"]]
        for locations, by, taken in [
            ([told["ready"], REUSE], "libdipc", [told["ready"]]),
            ([nobody, *pair, REUSE], "libdipc", pair),
            ([nobody, pair[0], REUSE], "DoGet", None),
        ]:
            with Tables(locations) as server:
                report, log = get(server.uri, name, "--verify", str(path))
                assert report["taken"] == [{"by": by, "from": taken or [server.uri]}]
                assert ("skipped" in log) == (locations[0] == nobody)


def test_unknown_and_gone():
    """The server's own words come through, and one that is gone is said to be."""
    with Tables() as server:
        done = subprocess.run([COMMAND, "get", server.uri, "nobody"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "no such table" in done.stderr
    done = subprocess.run([COMMAND, "get", server.uri, "nobody"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is the Flight server running" in done.stderr


@contextmanager
def example_server(scheme, *arguments):
    """The example's server, with libdipc at an address of `scheme`; its URI and its data's scheme."""
    listen = {"shm": [], "tcp": ["--listen", "tcp://127.0.0.1:0"], "ucx": ["--listen", "ucx://127.0.0.1:0"]}[scheme]
    words = [sys.executable, str(EXAMPLES / "server.py"), *listen, *trust(scheme), *arguments]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        word, uri = server.stdout.readline().split()
        assert word == "ready"
        yield uri
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0


def trust(scheme):
    return ["--trusted-network"] if scheme == "ucx" else []


def need(scheme):
    done = subprocess.run([COMMAND, "info", "--json"], capture_output=True, text=True, check=True)
    [transport] = [one for one in json.loads(done.stdout)["transports"] if one["name"] == scheme]
    if not transport["available"]:
        pytest.skip(transport["reason"])


@pytest.fixture(scope="session")
def go_client(tmp_path_factory):
    """The words that run the client in Go."""
    prefix = os.environ.get("DIPC_PREFIX")
    if shutil.which("go") is None or prefix is None:
        pytest.skip("no Go, or no DIPC_PREFIX: it names an installed tree")
    program = tmp_path_factory.mktemp("go") / "client"
    library = f"{prefix}/lib"
    environment = {**os.environ, "PKG_CONFIG_PATH": f"{library}/pkgconfig", "CGO_LDFLAGS": f"-Wl,-rpath,{library}"}
    subprocess.run(["go", "build", "-o", program, "."], cwd=EXAMPLES / "go", env=environment, check=True)
    return [str(program)]


@pytest.fixture(params=["python", "go"])
def example(request):
    """A client of the examples, as a function."""
    if request.param == "python":
        words = [sys.executable, str(EXAMPLES / "client.py")]
    else:
        words = request.getfixturevalue("go_client")
    return lambda *arguments: subprocess.run([*words, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("pair", [[], ["--pair"]], ids=["one", "pair"])
@pytest.mark.parametrize("scheme", ["shm", "tcp", "ucx"])
def test_examples(scheme, pair, example):
    """Issue 4, point 6: the examples work with each other and with the command, over each transport."""
    need(scheme)
    with example_server(scheme, *pair) as uri:
        report, _ = get(uri, "squares", *trust(scheme))
        assert report["rows"] == 1000
        [taken] = report["taken"]
        assert (taken["by"], len(taken["from"])) == ("libdipc", 2 if pair else 1)
        assert all(location.startswith(f"{scheme}:") for location in taken["from"])
        done = example(*trust(scheme), uri, "words")
        assert done.returncode == 0, done.stderr
        # The Python example prints the table, the Go example the lengths of its batches.
        assert "three" in done.stdout or done.stdout == "3 rows\n"
        assert f" from {' '.join(taken['from'])}" in done.stderr
        assert example(uri, "nobody").returncode == 1


def test_example_falls_back(example):
    """A client of the examples passes over an address of nobody."""
    name = next(iter(FILES))
    with Tables(["shm:@dipc-pytest-nobody", REUSE]) as plain:
        done = example(plain.uri, name)
        assert done.returncode == 0, done.stderr
        assert "skipped shm:@dipc-pytest-nobody" in done.stderr and f" from {REUSE}" in done.stderr


def test_example_takes_no_ucx_on_a_server_s_word(example):
    """Who did not say that the network is trusted gets the table by DoGet."""
    need("ucx")
    with example_server("ucx") as uri:
        done = example(uri, "words")
        assert done.returncode == 0, done.stderr
        assert "skipped ucx:" in done.stderr and f" from {REUSE}" in done.stderr
