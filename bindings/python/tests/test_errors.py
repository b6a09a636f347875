"""Failures come as Python's exceptions, with the cause in words."""

from __future__ import annotations

import builtins
import gc
import math
import os
import subprocess
import sys

import nanoarrow
import pyarrow as pa
import pytest

import dipc
from conftest import new_address, table


def test_failures_are_pythons_own_kinds(server):
    with pytest.raises(dipc.NotFoundError, match="nowhere") as unknown:
        dipc.get(server.uri, "nowhere")
    assert isinstance(unknown.value, LookupError)
    assert unknown.value.status is dipc.Status.NOT_FOUND
    with pytest.raises(ConnectionError) as unreachable:
        dipc.get(new_address(), "x")
    assert isinstance(unreachable.value, dipc.UnreachableError)
    with pytest.raises(ValueError, match="scheme|URI") as uri:
        dipc.get("nonsense", "x")
    assert isinstance(uri.value, dipc.InvalidUriError)
    server.publish("x", table(1))
    with pytest.raises(dipc.AlreadyExistsError):
        server.publish("x", table(1))
    with pytest.raises(dipc.AlreadyExistsError):
        server.serve("x", table(1))
    assert pa.table(dipc.get(server.uri, "x")).num_rows == 1
    with dipc.Server() as second, pytest.raises(OSError) as used:
        second.listen(server.uri)
    assert isinstance(used.value, dipc.AddressInUseError)
    with pytest.raises(dipc.NotFoundError):
        server.withdraw("nowhere")
    with dipc.Server() as idle, pytest.raises(dipc.NotFoundError):
        idle.location()


def test_every_status_has_an_exception():
    for status in dipc.Status:
        if status < 0:
            error = dipc._errors.from_status(status, "why", 5)
            assert type(error) is not dipc.DipcError
            assert (error.status, error.text, str(error), error.os_errno) == (status, "why", "why", 5)
    newer = dipc._errors.from_status(-999, "why")
    assert (type(newer), newer.status) == (dipc.DipcError, -999)
    for ours, pythons in (
        (dipc.TimeoutError, builtins.TimeoutError),
        (dipc.PermissionError, builtins.PermissionError),
        (dipc.OutOfMemoryError, MemoryError),
        (dipc.InvalidDataError, ValueError),
        (dipc.DisconnectedError, ConnectionError),
    ):
        assert issubclass(ours, pythons)


def raise_error():
    raise KeyError("no such luck")


def raise_typed(request):
    raise dipc.PermissionError(f"{request.ticket.decode()} is not for you")


def fail_later():
    yield table(10)
    raise ValueError("out of\npaper: é漢")


def change_schema():
    yield pa.table({"amount": [1], "price": [2]})
    yield pa.table({"price": [2], "amount": [1]})


def give_nothing():
    yield from ()


@pytest.mark.parametrize(
    ("provider", "kind", "text"),
    [
        (raise_error, dipc.ProviderError, "KeyError: 'no such luck'"),
        (raise_typed, dipc.PermissionError, "ticket is not for you"),
        (fail_later, dipc.ProviderError, "ValueError: out of paper: é漢"),
        (change_schema, dipc.InvalidDataError, 'column 1 is "price" and not "amount"'),
        (give_nothing, dipc.ProviderError, "no batch, and so no schema"),
        (lambda: 42, dipc.ProviderError, "TypeError: cannot serve int"),
        (lambda: [42], dipc.ProviderError, "TypeError: cannot serve int"),
        (lambda: sys.exit(3), dipc.ProviderError, "SystemExit: 3"),
    ],
)
def test_what_a_provider_raises_is_the_clients_error(server, provider, kind, text, caplog):
    server.serve("ticket", provider)
    with pytest.raises(kind) as failure:
        dipc.get(server.uri, "ticket").read_all()
    assert text in failure.value.text
    # The server's own log has the traceback of a fault, and the server goes on.
    assert ("Traceback" in caplog.text) == (kind is not dipc.PermissionError)
    server.publish("good", table(1))
    assert pa.table(dipc.get(server.uri, "good")).num_rows == 1


def test_failures_reach_other_libraries(server):
    """A consumer of the C stream gets the provider's words too."""
    server.serve("ticket", fail_later)
    with pytest.raises(OSError, match="out of paper"):
        pa.table(dipc.get(server.uri, "ticket"))


def test_what_cannot_be_served_is_refused_at_once(server):
    for wrong in (42, "text", {"a": [1]}, None, [1, 2], iter([]), lambda one, two: None):
        with pytest.raises(TypeError, match="cannot serve|must take"):
            server.serve("x", wrong)
    for wrong in (42, "text", {"a": [1]}, None, [1]):
        with pytest.raises(TypeError, match="cannot serve"):
            server.publish("x", wrong)
    assert server.tickets == []


def test_wrong_types_are_refused(server):
    with pytest.raises(TypeError, match="ticket"):
        dipc.get(server.uri, 42)
    with pytest.raises(TypeError, match="URI"):
        dipc.get(42, "x") if False else dipc.get([42], "x")
    with pytest.raises(dipc.InvalidUriError):
        dipc.get([], "x")
    with pytest.raises(dipc.InvalidUriError, match="NUL"):
        dipc.get("shm:@a\0b", "x")
    for name, wrong in (
        ("connect_timeout", "1"),
        ("connect_timeout", True),
        ("window", (1.5, 1)),
        ("lent_limit_bytes", "1"),
    ):
        with pytest.raises(TypeError):
            dipc.get(server.uri, "x", **{name: wrong})
    for name, wrong in (
        ("connect_timeout", -1), ("stall_timeout", math.nan), ("window", (0, 1)), ("window", (-1, 1)),
        ("lent_limit_bytes", 2**64), ("message_limit_bytes", -1), ("connections", 2**32 + 1), ("connections", 0),
        ("spin", -1), ("device", "floppy"), ("device", "cuda:"), ("device", "cuda:-1"), ("device", "cuda:1 "),
        ("device", None), ("device", "cuda_host"), ("validation", None),
    ):  # fmt: skip
        with pytest.raises(dipc.InvalidArgumentError):
            dipc.get(server.uri, "x", **{name: wrong})
    for wrong in ({"max_streams": 0}, {"body": "square"}, {"compression": "rar"}, {"region_bytes": 0}):
        with pytest.raises(dipc.InvalidArgumentError):
            dipc.Server(**wrong)
    for kind in (dipc.Server, dipc.Client):
        with pytest.raises(dipc.InvalidArgumentError):
            kind(transport={"nowhere.key": "value"})
        for wrong in ({"ucx.TLS": 1}, {1: "tcp"}):
            with pytest.raises(TypeError, match="transport"):
                kind(transport=wrong)
    with pytest.raises(dipc.UnsupportedError, match="nowhere"):
        dipc.check_transport("nowhere")
    dipc.check_transport("shm")


def test_foreign_capsules_are_checked(server):
    class Wrong:
        def __arrow_c_stream__(self, requested_schema=None):
            return "no capsule"

    class Swapped:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.schema([]).__arrow_c_schema__()

    class Used:
        capsule = table(1).__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema=None):
            return self.capsule

    for wrong in (Wrong(), Swapped()):
        with pytest.raises(TypeError, match="arrow_array_stream"):
            server.publish("x", wrong)
    used = Used()
    server.publish("x", used)
    with pytest.raises(ValueError, match="used before"):
        server.publish("y", used)


def test_use_after_close(server):
    server.publish("x", table(10))
    reader = dipc.get(server.uri, "x")
    stats = reader.stats
    reader.close()
    reader.close()
    for use in (reader.__next__, reader.read_all, reader.__arrow_c_stream__, reader.__arrow_c_device_stream__):
        with pytest.raises(dipc.ClosedError, match="closed"):
            use()
    assert (reader.stats, reader.schema.names) == (stats, ["number", "text"])
    client = dipc.Client()
    reader = client.get(server.uri, "x")
    client.close()
    client.close()
    assert reader.read_all().num_rows == 10
    with pytest.raises(dipc.ClosedError, match="client"):
        client.get(server.uri, "x")
    with pytest.raises(ValueError, match="client"):
        client.stats
    arena = dipc.Arena()
    arena.close()
    with pytest.raises(dipc.ClosedError, match="arena"):
        arena.alloc(1)
    closed = dipc.Server()
    closed.close()
    closed.close()
    for use in (closed.location, lambda: closed.serve("x", table(1)), lambda: closed.tickets, lambda: closed.stats,
                lambda: closed.listen(new_address()), lambda: closed.publish("x", table(1))):  # fmt: skip
        with pytest.raises(dipc.ClosedError, match="server"):
            use()


def test_what_was_handed_over_is_gone(server):
    server.publish("x", table(10))
    reader = dipc.get(server.uri, "x")
    imported = pa.RecordBatchReader.from_stream(reader)
    for use in (reader.__next__, reader.read_all, reader.__arrow_c_stream__):
        with pytest.raises(dipc.ClosedError, match="another library"):
            use()
    reader.close()
    assert imported.read_all().num_rows == 10


def test_capsules_that_nobody_takes_are_released(server):
    """The stream inside is ended, and its server's stream with it."""
    server.serve("x", lambda: (table(10) for _ in iter(int, 1)))
    reader = dipc.get(server.uri, "x")
    capsule = reader.__arrow_c_stream__()
    del reader
    del capsule
    gc.collect()
    capsules = next(dipc.get(server.uri, "x")).__arrow_c_array__()
    del capsules
    gc.collect()
    server.stop(60)


def test_an_exception_under_way_is_kept(server):
    """Destroying an object while an exception passes must not lose the exception."""

    def leave(reader):
        batch = next(reader)
        held = (batch.__arrow_c_array__(), batch.schema.__arrow_c_schema__(), nanoarrow.Schema(batch.schema))
        stream = reader.__arrow_c_stream__()
        raise LookupError("mine", len(held), stream is None)

    server.publish("x", table(10))
    for _ in range(3):
        with pytest.raises(LookupError, match="mine"):
            leave(dipc.get(server.uri, "x"))


def test_a_table_may_go_while_it_is_served(server):
    """The server holds what is published, so the program may drop it."""
    made = table()
    server.publish("published", made)
    server.serve("served", made)
    readers = [dipc.get(server.uri, ticket) for ticket in ("published", "served")]
    del made
    gc.collect()
    server.withdraw("published")
    server.withdraw("served")
    for reader in readers:
        assert pa.table(reader) == table()
    for ticket in ("published", "served"):
        with pytest.raises(dipc.NotFoundError):
            dipc.get(server.uri, ticket)


def test_busy():
    with dipc.Server(max_streams=1) as server:
        uri = server.listen(new_address())
        server.serve("endless", lambda: (table(10) for _ in iter(int, 1)))
        with dipc.get(uri, "endless"), pytest.raises(dipc.BusyError):
            dipc.get(uri, "endless")


LOAD = "import dipc"


def load(environment, source=LOAD):
    given = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", source], env=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_missing_library_is_named():
    code, text = load({"DIPC_LIBRARY": "/nowhere/libdipc.so"})
    assert code == 1
    assert "LibraryError: libdipc was not found" in text
    assert "/nowhere/libdipc.so" in text
    assert "Install libdipc" in text
    # Without the variable every place is named, also that of the package.
    hide = "import os; os.environ.pop('DIPC_LIBRARY'); import ctypes; real = ctypes.CDLL\n"
    hide += "def none(name, *rest, **more):\n    raise OSError(f'{name}: not here')\nctypes.CDLL = none\nimport dipc"
    code, text = load({"DIPC_LIBRARY": "x"}, hide)
    assert code == 1
    assert "dipc/lib/libdipc.so.0.1: " in text
    assert "\n  libdipc.so.0.1: " in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("unsigned dipc_version(void) { return 1000; }", "is libdipc 0.1.0, but older than this package: it has no"),
        ("unsigned dipc_version(void) { return 2000; }", "is libdipc 0.2, and this package needs 0.1"),
        ("unsigned dipc_version(void) { return 1001000; }", "is libdipc 1.1, and this package needs 0.1"),
        ("int other;", "is not libdipc"),
    ],
)
def test_another_version_is_refused(tmp_path, source, words):
    other = tmp_path / "libdipc.so.0.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other)], input=source, text=True, check=True)
    code, text = load({"DIPC_LIBRARY": str(other)})
    assert code == 1
    assert f"LibraryError: {other} {words}" in text


def test_wrong_arguments_say_what_is_right():
    with pytest.raises(TypeError, match=r"no option 'client': call the method of the client, as dipc\.Client"):
        dipc.get("shm:@x", "x", client=None)
    with pytest.raises(TypeError, match="a URI is text, or a list of two, not NoneType"):
        dipc.get(None, "x")
