"""Tables of Flight servers, by libdipc or by DoGet: against pyarrow's server."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pyarrow as pa
import pytest
from pyarrow import flight

import dipc
from conftest import WAIT, table

REUSE = "arrow-flight-reuse-connection://?"
NOBODY = "shm:@dipc-python-nobody"
ROWS = 1000


class Tables(flight.FlightServerBase):
    """Serves :func:`table` by each name, with the locations that a test wants for each endpoint."""

    def __init__(self, *endpoints, schemas=None):
        super().__init__("grpc://127.0.0.1:0")
        self.uri = f"grpc://127.0.0.1:{self.port}"
        self.endpoints = endpoints or ([],)
        self.tables = {b"x": table(ROWS), **(schemas or {})}
        self.asked = []
        self.let_go = threading.Event()

    def get_flight_info(self, _context, descriptor):
        self.asked.append(descriptor)
        name = descriptor.path[0] if descriptor.path else descriptor.command
        if name == b"nobody":
            raise KeyError("there is no such table")
        if name == b"no rows":
            return flight.FlightInfo(self.tables[b"x"].schema, descriptor, [], 0, 0)
        tickets = list(self.tables)
        endpoints = [
            flight.FlightEndpoint(tickets[number % len(tickets)], locations)
            for number, locations in enumerate(self.endpoints)
        ]
        return flight.FlightInfo(self.tables[b"x"].schema, descriptor, endpoints, -1, -1)

    def do_get(self, context, ticket):
        if ticket.ticket == b"fails":
            raise flight.FlightUnauthorizedError("not you")
        if ticket.ticket == b"endless":
            return flight.GeneratorStream(table(ROWS).schema, self.endless(context))
        return flight.RecordBatchStream(self.tables[ticket.ticket])

    def endless(self, context):
        try:
            while not context.is_cancelled():
                yield from table(ROWS).to_batches()
        finally:
            # A call that is cancelled while it sends drops its generator.
            self.let_go.set()


@contextlib.contextmanager
def serving(*endpoints, **options):
    with Tables(*endpoints, **options) as tables:
        yield tables
        tables.let_go.set()


@pytest.fixture
def lent(server):
    """A server of libdipc with the same table."""
    server.publish("x", table(ROWS))
    return server


def test_by_libdipc_where_a_location_says_so(lent):
    """The first location that works is taken; the ticket is the endpoint's."""
    with serving([lent.uri, REUSE]) as tables:
        reader = dipc.flight.get(tables.uri, "x")
        assert reader.schema == table(ROWS).schema
        assert reader.ways == [("libdipc", (lent.uri,))]
        assert reader.read_all() == table(ROWS)
    assert lent.stats.streams_served == 1


def test_by_two_addresses(lent):
    """A location for metadata and one for bodies are one way (rules U3 and R4); a single one of them is no way."""
    pair = [lent.location("metadata"), lent.location("data")]
    for locations in (pair, pair[::-1]):
        with serving([*locations, REUSE]) as tables:
            reader = dipc.flight.get(tables.uri, "x")
            assert reader.ways == [("libdipc", tuple(locations))]
            assert reader.read_all() == table(ROWS)
    with serving([pair[0], REUSE]) as tables:
        assert dipc.flight.get(tables.uri, "x").ways == [("DoGet", (REUSE,))]
    with serving([pair[1]]) as tables, pytest.raises(dipc.InvalidUriError, match="data stream only"):
        dipc.flight.get(tables.uri, "x")


def test_by_do_get(caplog):
    """A server without libdipc: its location is absent, its own connection, or another server."""
    with serving() as plain:
        assert dipc.flight.get(plain.uri, "x").read_all() == table(ROWS)
        for locations, taken in (
            ([], REUSE),
            ([REUSE], REUSE),
            ([NOBODY, "s3://bucket/x", plain.uri], plain.uri),
        ):
            caplog.clear()
            with serving(locations) as tables:
                reader = dipc.flight.get(tables.uri, "x")
                assert reader.ways == [("DoGet", (taken,))]
                assert reader.read_all() == table(ROWS)
            skipped = [record.getMessage() for record in caplog.records if record.name == "dipc.flight"]
            assert len(skipped) == max(len(locations) - 1, 0)
            assert all(text.startswith("skipped") for text in skipped)
    assert "no server listens at" in skipped[0]
    assert "`s3:`" in skipped[1]


def test_no_location_works():
    """The error is that of the last location, and says how many there were."""
    none_works = pytest.raises(dipc.UnsupportedError, match=r"none of the 2 locations .* `gopher:`")
    with serving([NOBODY, "gopher://x"]) as tables, none_works:
        dipc.flight.get(tables.uri, "x")
    with serving([NOBODY]) as tables, pytest.raises(dipc.UnreachableError, match=f"^{NOBODY}: "):
        dipc.flight.get(tables.uri, "x")


def test_ucx_is_taken_on_a_trusted_network_alone():
    """A Flight server's word is not enough to let a peer into this process's memory."""
    uri = "ucx://127.0.0.1:1"
    with serving([uri]) as tables:
        with pytest.raises(dipc.PermissionError, match="trusted_network=True"):
            dipc.flight.get(tables.uri, "x")
        # The address is used, but nobody listens there, or this machine has no UCX.
        with pytest.raises((dipc.UnreachableError, dipc.UnsupportedError, dipc.TimeoutError, dipc.InvalidUriError)):
            dipc.flight.get(tables.uri, "x", trusted_network=True, connect_timeout=5)
    with serving([uri, REUSE]) as tables:
        assert dipc.flight.get(tables.uri, "x").read_all() == table(ROWS)


def test_descriptors():
    """Text is a path, bytes are a command, and objects of pyarrow's are taken as they are."""
    path, command = flight.FlightDescriptor.for_path, flight.FlightDescriptor.for_command
    with serving() as tables:
        for given, asked in (
            ("x", path("x")),
            (["x", "y"], path("x", "y")),
            (b"x", command(b"x")),
            (command(b"x"), command(b"x")),
        ):
            assert dipc.flight.get(tables.uri, given).read_all() == table(ROWS)
            assert tables.asked[-1] == asked
        with flight.connect(tables.uri) as client:
            info = client.get_flight_info(path("x"))
            for location in (client, flight.Location(tables.uri)):
                assert dipc.flight.get(location, info).read_all() == table(ROWS)
            assert len(tables.asked) == 5
            # It is still open.
            client.get_flight_info(path("x"))


def test_parts_come_one_after_the_other(lent):
    """A table of several endpoints is one; none is begun before it is read."""
    with serving([lent.uri], [REUSE], []) as tables:
        with dipc.flight.get(tables.uri, "x") as reader:
            assert len(reader.ways) == 1
            assert pa.Table.from_batches(list(reader)) == pa.concat_tables([table(ROWS)] * 3)
            assert [way.by for way in reader.ways] == ["libdipc", "DoGet", "DoGet"]
            assert list(reader) == []
        assert dipc.flight.get(tables.uri, "x").read_all() == pa.concat_tables([table(ROWS)] * 3)
        # By another library.
        assert pa.table(dipc.flight.get(tables.uri, "x")) == pa.concat_tables([table(ROWS)] * 3)
        frame = dipc.flight.get(tables.uri, "x").to_pandas()
        assert frame.shape == (3 * ROWS, 2)


def test_a_table_without_rows():
    with serving() as tables:
        reader = dipc.flight.get(tables.uri, "no rows")
        assert reader.read_all() == table(ROWS).schema.empty_table()
        assert reader.ways == []


def test_parts_have_the_same_columns():
    """Another type is refused; another nullability or metadata is not."""
    metadata = table(ROWS).replace_schema_metadata({"key": "value"})
    with serving([], [], schemas={b"y": metadata}) as tables:
        assert dipc.flight.get(tables.uri, "x").read_all() == pa.concat_tables([table(ROWS)] * 2)
    with serving([], [], schemas={b"y": pa.table({"number": [1.5], "text": ["x"]})}) as tables:
        reader = dipc.flight.get(tables.uri, "x")
        with pytest.raises(dipc.ProtocolError, match="different columns"):
            reader.read_all()


def test_failures_are_exceptions_of_the_package():
    """The exception is libdipc's for the same status, with Flight's as the cause."""
    with serving([], schemas={b"fails": table(1)}) as tables:
        with pytest.raises(dipc.NotFoundError, match=r"(?s)no such table.* a command is given as bytes") as caught:
            dipc.flight.get(tables.uri, "nobody")
        assert isinstance(caught.value.__cause__, pa.ArrowKeyError)
        with pytest.raises(dipc.NotFoundError) as caught:
            dipc.flight.get(tables.uri, b"nobody")
        assert "given as bytes" not in str(caught.value)
        info = flight.FlightInfo(
            table(1).schema, flight.FlightDescriptor.for_path("x"), [flight.FlightEndpoint(b"fails", [])], -1, -1
        )
        with pytest.raises(dipc.PermissionError, match="not you"):
            dipc.flight.get(tables.uri, info)
        uri = tables.uri
    with pytest.raises(dipc.UnreachableError):
        dipc.flight.get(uri, "x")
    for wrong in ("grpc://", "nonsense"):
        with pytest.raises(dipc.DipcError):
            dipc.flight.get(wrong, "x")
    with pytest.raises(TypeError):
        dipc.flight.get(17, "x")
    with pytest.raises(TypeError, match="'no_such'"):
        dipc.flight.get(uri, "x", no_such=1)
    with pytest.raises(dipc.UnsupportedError, match="device"):
        dipc.flight.get(uri, "x", device="cuda")
    # A part that comes by DoGet would have all of them.
    for selection in ({"columns": ["number"]}, {"rows": 1}, {"filter": b"any"}):
        with pytest.raises(dipc.UnsupportedError, match="come whole"):
            dipc.flight.get(uri, "x", **selection)


@pytest.fixture
def endless():
    with serving() as tables:
        tables.tables = {b"endless": None, b"x": table(ROWS)}
        yield tables


def test_the_end_of_a_block_ends_do_get(endless):
    # A client that the caller owns; closing it would end the call too.
    with flight.connect(endless.uri) as client:
        with dipc.flight.get(client, "x") as reader:
            assert next(reader).num_rows == ROWS
        assert endless.let_go.wait(WAIT)
    assert list(reader) == []


def test_a_token_ends_do_get(endless):
    cancel = dipc.Cancel()
    reader = dipc.flight.get(endless.uri, "x", cancel=cancel)
    next(reader)
    threading.Timer(0.1, cancel.trigger).start()
    end = time.monotonic() + WAIT
    with pytest.raises(dipc.CancelledError):
        while time.monotonic() < end:
            next(reader)
    reader.close()


def test_a_deadline_ends_do_get_and_libdipc(endless, server):
    """The deadline counts for the whole table, from the call on."""
    server.serve("endless", lambda: (table(ROWS) for _ in iter(int, 1)))
    for locations in ([], [server.uri]):
        endless.endpoints = (locations,)
        with dipc.flight.get(endless.uri, "x", deadline=0.5) as reader, pytest.raises(dipc.TimeoutError):
            for _ in reader:
                pass


class Headers(flight.ServerMiddlewareFactory):
    """Keeps the headers of every call."""

    def __init__(self):
        self.seen = []

    def start_call(self, _info, headers):
        self.seen.append({key: values for key, values in headers.items() if key in ("user", "authorization")})


def test_headers_go_to_both(server):
    """With each call of Flight, and with libdipc's request."""
    seen = []
    server.set_handler(lambda request: seen.append(dict(request.headers)) or table(ROWS))
    keeps = Headers()

    class Tells(Tables):
        def __init__(self):
            flight.FlightServerBase.__init__(self, "grpc://127.0.0.1:0", middleware={"keeps": keeps})
            self.endpoints, self.tables, self.asked = ([], [server.uri]), {b"x": table(ROWS)}, []

    headers = {"user": "me", "authorization": "Bearer 1234"}
    with Tells() as tables:
        reader = dipc.flight.get(f"grpc://127.0.0.1:{tables.port}", "x", headers=headers)
        assert reader.read_all().num_rows == 2 * ROWS
    assert keeps.seen == [{"user": ["me"], "authorization": ["Bearer 1234"]}] * 2
    assert seen == [{key: value.encode() for key, value in headers.items()}]


def test_secrets_are_not_sent_where_others_could_read_them(caplog):
    """Neither to the server that is asked, nor to one that it names."""
    headers = {"authorization": "Bearer 1234"}
    with pytest.raises(dipc.PermissionError, match="send_secrets=True"):
        dipc.flight.get("grpc://192.0.2.1:5005", "x", headers=headers)
    with serving(["grpc://192.0.2.1:5005", REUSE]) as tables:
        reader = dipc.flight.get(tables.uri, "x", headers=headers)
        assert reader.ways == [("DoGet", (REUSE,))]
    [skipped] = [record for record in caplog.records if record.name == "dipc.flight"]
    assert (skipped.levelno, "send_secrets=True" in skipped.getMessage()) == (logging.WARNING, True)
