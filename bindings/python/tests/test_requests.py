"""What a request carries beside its ticket, what its answer carries, and what a server says without a table.

The server is a process of its own, over shared memory and tcp.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, new_address, scripts, table

SERVE = """
import dipc, pyarrow as pa, select, sys

def describe(request):
    if request.ticket == b"absent":
        raise dipc.NotFoundError("no such query")
    if request.ticket == b"nothing":
        return dipc.Description()
    if request.ticket == b"wrong":
        return pa.table({"x": [1]})
    request.add_headers({"from": "describe"})
    near = dipc.Endpoint(request.ticket, num_rows=4)
    far = dipc.Endpoint("far", ["shm:@there", "tcp://there:1"], num_rows=6, num_bytes=100)
    return dipc.Description(pa.schema([("n", pa.int64())]), num_rows=10, num_batches=3, endpoints=[near, far])

def list_tickets(request):
    yield dipc.Endpoint(request.ticket + b"/1", num_rows=4)
    yield dipc.Endpoint("2", "tcp://there:1")

def get(request):
    if request.ticket == b"absent":
        raise dipc.NotFoundError("no such query")
    left = request.time_left
    left = "forever" if left is None else "a minute" if 50 < left <= 60 else str(left)
    request.add_headers([*request.headers.pairs, ("left", left)])
    request.add_headers({"ticket": request.ticket})
    if request.ticket == b"who":
        return pa.table({name: [value] for name, value in {**request.peer._asdict(), "log": str(request.peer)}.items()})
    if request.ticket == b"slow":
        select.select([request.cancel_fd], [], [])
    return batches(request)

def batches(request):
    yield pa.record_batch({"n": range(10)})
    if request.ticket == b"stalls":
        select.select([request.cancel_fd], [], [])
    if request.ticket == b"fails":
        request.add_headers({"late": b"\\0"})
        raise dipc.BusyError("out of paper")

with dipc.Server() as server:
    server.publish("table/a", pa.table({"n": range(10)}))
    server.publish("table/b", pa.table({"x": ["one"]}))
    server.serve("provided", lambda: pa.table({"n": range(5)}))
    server.set_description("provided", dipc.Description(pa.schema([("n", pa.int64())]), num_rows=5))
    server.serve("unsaid", lambda: pa.table({"n": range(5)}))
    server.set_handler(get, describe=describe, list_tickets=list_tickets)
    print(server.listen(sys.argv[1]))
    print(server.listen("tcp://127.0.0.1:0"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def uris(tmp_path_factory):
    with scripts(tmp_path_factory.mktemp("serving")) as start:
        process = start(SERVE, new_address())
        found = {"shm": process.stdout.readline().strip(), "tcp": process.stdout.readline().strip()}
        assert all(found.values()), process.communicate(timeout=WAIT)
        yield found
        assert (process.communicate(timeout=WAIT), process.returncode) == (("", ""), 0)


@pytest.fixture(params=["shm", "tcp"])
def uri(request, uris):
    return uris[request.param]


def test_headers_cross_both_ways(uri):
    """Binary values and repeated keys, in order, and next to them what the handler adds."""
    sent = [("traceparent", "00-0af7"), ("twice", b"\0\xff"), ("empty", b""), ("twice", "2"), ("large", bytes(10_000))]
    reader = dipc.get(uri, b"a query\0", headers=sent)
    assert reader.headers.pairs == (
        ("traceparent", b"00-0af7"), ("twice", b"\0\xff"), ("empty", b""), ("twice", b"2"), ("large", bytes(10_000)),
        ("left", b"forever"), ("ticket", b"a query\0"),
    )  # fmt: skip
    assert reader.headers["twice"] == b"\0\xff"
    assert reader.headers.get_all("twice") == [b"\0\xff", b"2"]
    headers = reader.headers
    assert reader.read_all().num_rows == 10
    reader.close()
    assert reader.headers == headers
    # Without headers; and those of an answer go on with the next request as they came.
    assert dipc.get(uri, "x").headers == {"left": b"forever", "ticket": b"x"}
    again = dipc.get(uri, "y", headers=headers).headers
    assert again.get_all("ticket") == [b"a query\0", b"y"]


def test_headers_outlive_what_was_handed_over(uri):
    reader = dipc.get(uri, "x", headers={"key": "value"})
    assert pa.table(reader).num_rows == 10
    assert reader.headers["key"] == b"value"


def test_headers_that_come_with_a_failure(uri):
    for read in (lambda reader: reader.read_all(), list):
        reader = dipc.get(uri, "fails")
        with pytest.raises(dipc.BusyError, match="out of paper"):
            read(reader)
        assert list(reader.headers) == ["left", "ticket", "late"]
        assert reader.headers["late"] == b"\0"


def test_a_ticket_of_its_own_comes_before_the_handler(uri):
    reader = dipc.get(uri, "table/a", headers={"key": "value"})
    assert reader.headers == {}
    assert reader.read_all() == pa.table({"n": range(10)})
    assert dipc.get(uri, "provided").read_all().num_rows == 5


def test_deadlines(uri):
    """The server sees them; a stream that is not at its end by then fails, before its schema or later."""
    assert dipc.get(uri, "x", deadline=60).headers["left"] == b"a minute"
    for ticket in ("slow", "stalls"):
        with pytest.raises(dipc.TimeoutError, match="deadline"):
            dipc.get(uri, ticket, deadline=0.2).read_all()
    with pytest.raises(TimeoutError):
        dipc.get(uri, "x", deadline=0).read_all()


def test_the_server_knows_who_asks(uri):
    found = dipc.get(uri, "who").read_all().to_pylist()[0]
    ids = (found["pid"], found["uid"], found["gid"])
    if found["transport"] == "shm":
        assert (ids, found["address"]) == ((os.getpid(), os.getuid(), os.getgid()), None)
        assert found["log"] == f"pid {os.getpid()}, uid {os.getuid()}"
    else:
        assert (found["transport"], ids) == ("tcp", (None, None, None))
        host, port = found["address"].rsplit(":", 1)
        assert (host, 0 < int(port) < 65536) == ("127.0.0.1", True)
        assert found["address"] in found["log"]
    assert found["text"] == found["log"]


def own_address():
    """One that other machines can reach; a loopback address if there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        try:
            made.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return made.getsockname()[0]


def test_secrets_are_sent_where_nobody_reads_them():
    secret = {"authorization": "Bearer 42"}
    with dipc.Server(allow_remote=True) as server:
        server.set_handler(lambda request: pa.table({"sent": [request.headers["authorization"]]}))
        for host in ("127.0.0.1", own_address()):
            uri = server.listen(f"tcp://{host}:0")
            assert dipc.get(uri, "x", headers=secret, send_secrets=True).read_all()["sent"][0].as_py() == b"Bearer 42"
            if host == "127.0.0.1":
                assert dipc.get(uri, "x", headers=secret).read_all().num_rows == 1
                continue
            for ask in (dipc.get, dipc.describe, dipc.list_tickets):
                with pytest.raises(PermissionError, match="send_secrets"):
                    ask(uri, "x", headers=secret)


def test_messages_have_checksums():
    table = pa.table({"n": [1, 2, 3]})
    with dipc.Server() as server:
        server.publish("t", table)
        uri = server.listen("tcp://127.0.0.1:0")
        assert dipc.get(uri, "t", checksums=True).read_all() == table
        baseline = uri.replace("dipc=1&", "")
        with pytest.raises(dipc.UnsupportedError, match="no checksums"):
            dipc.get(baseline, "t", checksums=True)


def test_a_handler_refuses(uri):
    for ask in (dipc.get, dipc.describe):
        with pytest.raises(dipc.NotFoundError, match="no such query"):
            ask(uri, "absent")
    with pytest.raises(dipc.ProviderError, match=r"by a dipc\.Description, not Table"):
        dipc.describe(uri, "wrong")


def test_a_published_table_is_described(uri):
    found = dipc.describe(uri, "table/a")
    assert pa.schema(found.schema) == pa.schema([("n", pa.int64())])
    assert (found.num_rows, found.num_batches, found.headers) == (10, 1, {})
    assert found.num_bytes >= 80
    assert found.endpoints == (dipc.Endpoint("table/a", num_rows=10, num_bytes=found.num_bytes),)


def test_a_providers_ticket_is_described(uri):
    schema = pa.schema([("n", pa.int64())])
    assert dipc.describe(uri, "provided") == dipc.Description(
        schema, num_rows=5, endpoints=[dipc.Endpoint("provided", num_rows=5)]
    )
    assert dipc.describe(uri, "unsaid") == dipc.Description(endpoints=[dipc.Endpoint("unsaid")])


def test_a_handler_describes(uri):
    found = dipc.describe(uri, "any", headers={"key": "value"}, deadline=WAIT)
    assert (found.num_rows, found.num_bytes, found.num_batches) == (10, None, 3)
    assert found.schema.names == ["n"]
    assert found.headers == {"from": b"describe"}
    near, far = found.endpoints
    assert near == dipc.Endpoint(b"any", num_rows=4)
    assert (far.ticket, far.uris, far.num_rows, far.num_bytes) == (b"far", ("shm:@there", "tcp://there:1"), 6, 100)
    nothing = dipc.describe(uri, "nothing")
    assert nothing == dipc.Description()
    assert nothing.schema is None


def test_tickets_are_listed(uri):
    assert pa.table(dipc.list_tickets(uri))["descriptor"].to_pylist() == [
        b"provided",
        b"table/a",
        b"table/b",
        b"unsaid",
    ]
    rows = dipc.list_tickets(uri, "table/").read_all().to_pylist()
    assert [(row["descriptor"], row["uris"], row["rows"]) for row in rows] == [
        (b"table/a", [], 10),
        (b"table/b", [], 1),
    ]
    # Those of the handler.
    assert dipc.list_tickets(uri, b"q").read_all().to_pylist() == [
        {"descriptor": b"q/1", "uris": [], "rows": 4, "bytes": None},
        {"descriptor": b"2", "uris": ["tcp://there:1"], "rows": None, "bytes": None},
    ]


def test_coroutines_ask_too(uri):
    async def ask():
        async with await dipc.aget(uri, "x", headers={"key": "value"}, deadline=60) as reader:
            assert (reader.headers["key"], reader.headers["left"]) == (b"value", b"a minute")
        assert (await dipc.adescribe(uri, "table/a")).num_rows == 10
        found = await (await dipc.alist_tickets(uri, "table/")).aread_all()
        assert found.num_rows == 2
        with pytest.raises(dipc.TimeoutError):
            await dipc.aget(uri, "slow", deadline=0.2)

    asyncio.run(ask())


def test_a_request_is_cancelled_and_a_client_asks_too(uri):
    cancel = dipc.Cancel()
    cancel.trigger()
    with dipc.Client() as client:
        assert client.describe(uri, "table/a").num_rows == 10
        for ask in (client.describe, client.list_tickets):
            with pytest.raises(dipc.CancelledError):
                ask(uri, "table/a", cancel=cancel)


@pytest.mark.parametrize("address", [None, "tcp://127.0.0.1:0"])
def test_a_table_is_replaced_under_a_stream_that_goes_on(server, address):
    uri = server.listen(address) if address else server.uri
    old, new = [table(1000, 1000 * index) for index in range(50)], table(7)
    server.publish("t", old)
    reader = dipc.get(uri, "t", window=(1, 1))
    first = pa.record_batch(next(reader))
    with pytest.raises(dipc.AlreadyExistsError, match="withdraw or replace"):
        server.publish("t", new)
    server.replace("t", new)
    assert dipc.get(uri, "t").read_all() == new
    rest = reader.read_all()
    assert pa.concat_tables([pa.Table.from_batches([first]), rest]) == pa.concat_tables(old)
    # One that was not there is added.
    server.replace("u", new)
    assert dipc.get(uri, "u").read_all() == new


def test_a_provider_is_replaced_without_a_gap(server):
    """Whoever asks meanwhile gets the old table or the new one; the provider's stream goes on."""
    go_on = threading.Event()

    def provide():
        yield table(10)
        go_on.wait(WAIT)
        yield table(10, 10)

    server.serve("t", provide)
    reader = dipc.get(server.uri, "t")
    next(reader)
    wrong = []

    def fetch():
        for _ in range(50):
            try:
                dipc.get(server.uri, "t").close()
            except dipc.DipcError as error:
                wrong.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.replace("t", table(7))
    for thread in threads:
        thread.join(WAIT)
    assert wrong == []
    assert dipc.get(server.uri, "t").read_all() == table(7)
    go_on.set()
    assert reader.read_all() == table(10, 10)
    server.withdraw("t")
    with pytest.raises(dipc.NotFoundError):
        dipc.get(server.uri, "t")


def test_handlers_come_and_go(server):
    def ticket_of(ticket):
        return dipc.get(server.uri, ticket).read_all()["ticket"][0].as_py()

    def missing():
        for ask in (dipc.get, dipc.describe):
            with pytest.raises(dipc.NotFoundError, match="no ticket `any`"):
                ask(server.uri, "any")
        assert dipc.list_tickets(server.uri).read_all().num_rows == 0

    missing()
    with pytest.raises(dipc.NotFoundError, match="no ticket"):
        server.set_description("any", dipc.Description())
    server.set_handler(lambda request: pa.table({"ticket": [request.ticket]}))
    assert (ticket_of("any"), server.tickets) == (b"any", [])
    for ask in (dipc.describe, dipc.list_tickets):
        with pytest.raises(dipc.UnsupportedError, match="but its table"):
            ask(server.uri, "any")
    server.set_handler(lambda: pa.table({"ticket": ["the second"]}))
    assert ticket_of("any") == "the second"
    for wrong in (42, table(1), lambda one, two: None):
        for arguments in ({"get": wrong}, {"get": table, "describe": wrong}, {"get": table, "list_tickets": wrong}):
            with pytest.raises(TypeError):
                server.set_handler(**arguments)
    assert ticket_of("any") == "the second"
    server.set_handler(None)
    missing()


def test_headers_are_a_mapping():
    headers = dipc.Headers([("a", "1"), ("b", bytearray(b"2")), ("a", memoryview(b"3"))])
    assert headers.pairs == (("a", b"1"), ("b", b"2"), ("a", b"3"))
    assert (list(headers), len(headers), "b" in headers, "c" in headers) == (["a", "b"], 2, True, False)
    assert dict(headers) == {"a": b"1", "b": b"2"}
    assert (headers.get_all("a"), headers.get_all("c"), headers.get("c")) == ([b"1", b"3"], [], None)
    with pytest.raises(KeyError):
        headers["c"]
    assert headers == dipc.Headers(headers)
    assert headers != {"a": b"1", "b": b"2"}
    assert dipc.Headers({"a": "1"}) == {"a": b"1"}
    assert dipc.Headers() == {}
    assert repr(dipc.Headers({"a": "1"})) == "dipc.Headers([('a', b'1')])"


def test_wrong_types_are_refused(server):
    server.publish("x", table(1))
    ask = (dipc.get, dipc.describe, dipc.list_tickets)
    for wrong in (42, "ab", ["ab"], [("a", "b", "c")], {1: "b"}, {"a": 1}, {"a": None}):
        with pytest.raises(TypeError):
            dipc.Headers(wrong)
        for call in ask:
            with pytest.raises(TypeError):
                call(server.uri, "x", headers=wrong)
    for wrong in ({"Key": ""}, {"dipc-key": ""}, {"": ""}, {"a\0": ""}, {"a": bytes(65 << 10)}):
        for call in ask:
            with pytest.raises(dipc.InvalidArgumentError):
                call(server.uri, "x", headers=wrong)
    for call in ask:
        with pytest.raises(TypeError, match="deadline"):
            call(server.uri, "x", deadline="1")
        with pytest.raises(dipc.InvalidArgumentError, match="deadline"):
            call(server.uri, "x", deadline=-1)
        with pytest.raises(TypeError, match="ticket"):
            call(server.uri, 42)
    for kind in (dipc.Description, lambda **totals: dipc.Endpoint("x", **totals)):
        for wrong in ("1", 1.5, True):
            with pytest.raises(TypeError, match="num_rows"):
                kind(num_rows=wrong)
        for wrong in (-1, 2**63):
            with pytest.raises(dipc.InvalidArgumentError, match="num_bytes"):
                kind(num_bytes=wrong)
    for wrong in (lambda: dipc.Description(42), lambda: dipc.Description(endpoints=["x"]), lambda: dipc.Endpoint(42),
                  lambda: dipc.Endpoint("x", [42]), lambda: server.set_description("x", table(1)),
                  lambda: server.replace("x", 42), lambda: server.replace(42, table(1))):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()
    assert dipc.get(server.uri, "x").read_all() == table(1)


def test_a_server_that_drains_leads_elsewhere():
    with dipc.Server() as drains, dipc.Server() as other:
        assert not drains.is_ready
        uri, elsewhere = (server.listen(new_address()) for server in (drains, other))
        for server in (drains, other):
            server.publish("table", table(10))
            assert server.is_ready
        with socket.create_server(("127.0.0.1", 0)) as listener:
            with pytest.raises(dipc.InvalidArgumentError, match="another family"):
                other.listen_fd("shm", listener.fileno())
            tcp = other.listen_fd("tcp", listener.fileno())
        for named in (elsewhere, tcp):
            drains.drain([named])
            assert not drains.is_ready
            assert dipc.get(uri, "table").read_all() == table(10)
        drains.drain()
        with pytest.raises(dipc.BusyError, match="the server drains"):
            dipc.get(uri, "table")
    assert not other.is_ready


def test_a_stream_is_given_to_one_client():
    """Another one would find nothing left of it, and take that for an empty table."""
    streams = {}

    def get(request):
        return streams.setdefault(request.ticket, table(10).to_reader())

    async def coroutine(request):
        return get(request)

    async def main():
        async with dipc.Server() as server:
            uri = server.listen(new_address())
            server.set_handler(coroutine)
            assert (await (await dipc.aget(uri, "coroutine")).aread_all()).num_rows == 10
            with pytest.raises(dipc.ProviderError, match="make one anew for each client"):
                await dipc.aget(uri, "coroutine")

    asyncio.run(main())
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.set_handler(get)
        assert dipc.get(uri, "thread").read_all().num_rows == 10
        with pytest.raises(dipc.ProviderError, match="make one anew for each client"):
            dipc.get(uri, "thread")
        # One that is made anew may lie where an earlier one has lain.
        server.set_handler(lambda: table(10).to_reader())
        for _ in range(100):
            assert dipc.get(uri, "anew").read_all().num_rows == 10


def test_a_request_names_its_verb():
    verbs = []
    with dipc.Server(authorizer=lambda request: verbs.append(request.verb)) as server:
        server.publish("x", table(10))
        uri = server.listen(new_address())
        dipc.get(uri, "x").read_all()
        dipc.list_tickets(uri)
    assert all(isinstance(verb, dipc.Verb) for verb in verbs)
    assert verbs[0] is dipc.Verb.GET
    assert dipc.Verb.LIST in verbs
