"""Tables that an Arrow Flight server knows: fetched by libdipc if the server says so, otherwise by ``DoGet``.

    reader = dipc.flight.get("grpc://127.0.0.1:5005", "lineitem")
    table = reader.read_all()

A Flight server names locations for each part of a table. If one of them is an address of libdipc (``shm:…``,
``tls://…``, ``tcp://…``, ``ucx://…``), the part comes from there. Needs pyarrow: ``pip install libdipc[flight]``.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Union
from urllib.parse import parse_qs, urlsplit

from . import _errors, _flight_errors, _optional, _options
from ._client import Client, shared_client
from ._headers import Headers
from ._options import GetOptions
from ._reader import Reader as _DipcReader

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyarrow import flight
    from typing_extensions import Unpack

__all__ = ["Descriptor", "Reader", "Way", "get"]

Descriptor = Union[str, bytes, Sequence[str], "flight.FlightDescriptor", "flight.FlightInfo"]
"""Text is a path of one part, a sequence of texts a path, and bytes are a command."""

REUSE_CONNECTION = "arrow-flight-reuse-connection://?"
_DISSOCIATED = ("shm", "tls", "tcp", "ucx")
_AUTHORIZATION = "authorization"
_CONNECT_SECONDS = 10.0

_log = logging.getLogger("dipc.flight")


class Way(NamedTuple):
    """How a part of a table came."""

    by: str
    """"libdipc" or "DoGet"."""
    uris: tuple[str, ...]
    """The location, as the server named it: one URI, or two of libdipc."""


def get(
    location: str | flight.Location | flight.FlightClient,
    descriptor: Descriptor,
    *,
    trusted_network: bool = False,
    client: Client | None = None,
    connect: Mapping[str, Any] | None = None,
    **options: Unpack[GetOptions],
) -> Reader:
    """Asks a Flight server for a table. Returns once the schema is there.

    For each part of the table the first location is taken that works; the logger ``dipc.flight`` tells of those that
    were skipped. The parts come one after the other.

    :param location: The server, as "grpc://127.0.0.1:5005"; or a client of pyarrow's, which stays open.
    :param descriptor: The table: the text "lineitem" is a path of one part, bytes are a command. A ``FlightInfo`` is a
        server's answer that the caller already has.
    :param trusted_network: Take ucx addresses on the server's word: a peer there can read and write the memory of this
        process.
    :param client: The client for parts that come by libdipc; by default the client of :func:`dipc.get`.
    :param connect: Arguments of ``pyarrow.flight.connect``, as ``{"tls_root_certs": pem}``.
    :param options: Those of :func:`dipc.get`, for what comes by libdipc; batches lie on the host, and tables come
        whole. ``headers``, ``send_secrets``, ``deadline``, ``cancel`` and ``connect_timeout`` apply to calls of Flight
        too.
    :raises DipcError: one of its subclasses, as NotFoundError; also for failures of Flight, whose own exception is the
        cause.
    """
    pa_flight = _optional.load("pyarrow.flight", "flight")
    _options.of_get(options)
    if options.get("device", "cpu") != "cpu":
        raise _errors.UnsupportedError("tables of a Flight server come to the host: use dipc.get() for a device")
    if _options.selects(options):
        raise _errors.UnsupportedError(
            "tables of a Flight server come whole: columns, filter and rows are for dipc.get()"
        )
    asked = _Asked(pa_flight, location, client or shared_client(), trusted_network, connect or {}, options)
    try:
        return Reader(asked, asked.info(descriptor))
    except BaseException:
        asked.close()
        raise


class _Part(Protocol):
    """A part of a table, on its way."""

    schema: pa.Schema

    def next(self) -> pa.RecordBatch | None: ...

    def read_all(self) -> pa.Table: ...

    def close(self) -> None: ...


class Reader:
    """A table on its way in, from :func:`get`: batches of pyarrow's.

    Read it whole (:meth:`read_all`, :meth:`to_pandas`), iterate over it, or give it to a library that takes Arrow
    streams. It is read once. Use it in a ``with`` block, or close it, to end it early. One thread at a time.
    """

    schema: pa.Schema
    ways: list[Way]
    """How the parts that have begun came, in order."""

    def __init__(self, asked: _Asked, info: flight.FlightInfo) -> None:
        self._asked = asked
        self._rest = deque(info.endpoints)
        self.ways = []
        self._part: _Part | None = None
        if self._rest:
            self._part = self._begin()
            self.schema = self._part.schema
        elif info.schema is None:
            raise _errors.ProtocolError("the Flight server tells neither endpoints nor a schema")
        else:
            self.schema = info.schema

    def _begin(self) -> _Part:
        part, way = self._asked.fetch(self._rest.popleft())
        _log.info("fetching by %s from %s", way.by, " ".join(way.uris))
        self.ways.append(way)
        return part

    def _advance(self) -> None:
        """Goes from a part that has ended to the next."""
        assert self._part is not None
        self._part.close()
        self._part = None
        if not self._rest:
            self._asked.close()
            return
        self._part = self._begin()
        if _columns(self._part.schema) != _columns(self.schema):
            self.close()
            raise _errors.ProtocolError("the endpoints of the table have different columns: fetch each by itself")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        import pyarrow as pa

        while self._part is not None:
            batch = self._part.next()
            if batch is not None:
                return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            self._advance()
        raise StopIteration

    def read_all(self) -> pa.Table:
        """The rest of the table."""
        import pyarrow as pa

        batches = []
        while self._part is not None:
            batches += self._part.read_all().to_batches()
            self._advance()
        same = (pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) for batch in batches)
        return pa.Table.from_batches(same, self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The rest of the table, by ``pyarrow.Table.to_pandas(**options)``."""
        _optional.load("pandas", "pandas")
        return self.read_all().to_pandas(**options)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A PyCapsule of a stream that reads this one."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Ends the table, if it is not at its end. May be called again."""
        part, self._part = self._part, None
        self._rest.clear()
        if part is not None:
            part.close()
        self._asked.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dipc.flight.Reader of {', '.join(self.schema.names)}>"


class _Asked:
    """The Flight server that was asked, and how its tables are fetched."""

    def __init__(
        self,
        pa_flight: Any,
        location: str | flight.Location | flight.FlightClient,
        client: Client,
        trusted_network: bool,
        connect: Mapping[str, Any],
        options: GetOptions,
    ) -> None:
        self._flight, self._client, self._trusted_network = pa_flight, client, trusted_network
        self._connect_options = dict(connect)
        self._options = options.copy()
        self._headers = Headers(options.get("headers", ()))
        deadline = self._options.pop("deadline", None)
        self._ends = None if deadline is None else time.monotonic() + deadline
        self._is_ours = not isinstance(location, pa_flight.FlightClient)
        if self._is_ours:
            uri = location.uri.decode() if isinstance(location, pa_flight.Location) else location
            self._server = self._connect(uri)
        else:
            self._server = location

    def close(self) -> None:
        if self._is_ours:
            self._server.close()

    def _connect(self, uri: str) -> flight.FlightClient:
        if not isinstance(uri, str):
            raise TypeError(f"a location is text, or of pyarrow.flight, not {type(uri).__name__}")
        if _AUTHORIZATION in self._headers and not (self._options.get("send_secrets") or _is_private(uri)):
            raise _errors.PermissionError(
                f"the header {_AUTHORIZATION!r} is not sent to {uri}, where others could read it: use grpc+tls://, "
                "or send_secrets=True"
            )
        with _flight_errors.mapped():
            return self._flight.connect(uri, **self._connect_options)

    def _left(self) -> float | None:
        """Seconds until the deadline."""
        return None if self._ends is None else max(self._ends - time.monotonic(), 0.0)

    def _call_options(self, timeout: float | None) -> flight.FlightCallOptions:
        headers = [(key.encode(), value) for key, value in self._headers.pairs]
        return self._flight.FlightCallOptions(timeout=timeout, headers=headers)

    def info(self, descriptor: Descriptor) -> flight.FlightInfo:
        """What the server says about a table."""
        if isinstance(descriptor, self._flight.FlightInfo):
            return descriptor
        hint = ""
        if isinstance(descriptor, str):
            hint = f" (asked for the path [{descriptor!r}]; a command is given as bytes)"
            descriptor = [descriptor]
        if isinstance(descriptor, bytes):
            descriptor = self._flight.FlightDescriptor.for_command(descriptor)
        elif not isinstance(descriptor, self._flight.FlightDescriptor):
            descriptor = self._flight.FlightDescriptor.for_path(*descriptor)
        limits = (self._left(), self._options.get("connect_timeout") or _CONNECT_SECONDS)
        timeout = min(limit for limit in limits if limit is not None)
        with _flight_errors.mapped(hint):
            return self._server.get_flight_info(descriptor, self._call_options(timeout))

    def fetch(self, endpoint: flight.FlightEndpoint) -> tuple[_Part, Way]:
        """Begins a part of a table, by the first of its locations that works."""
        locations = [location.uri.decode(errors="replace") for location in endpoint.locations]
        last: _errors.DipcError | None = None
        for uris in _ways(locations):
            if last is not None:
                # The caller gets the last.
                _log.warning("skipped %s", last)
            try:
                return self._fetch_by(uris, endpoint.ticket)
            except _errors.CancelledError:
                raise
            except _errors.DipcError as error:
                error.args = (f"{' '.join(uris)}: {error}",)
                last = error
        assert last is not None
        if len(locations) > 1:
            last.args = (f"none of the {len(locations)} locations of the table works; the last one: {last}",)
        raise last

    def _fetch_by(self, uris: list[str], ticket: flight.Ticket) -> tuple[_Part, Way]:
        kind = _scheme(uris[0])
        if kind in _DISSOCIATED:
            if not self._trusted_network and any(_scheme(uri) == "ucx" for uri in uris):
                raise _errors.PermissionError(
                    "a peer on ucx can read and write this process's memory; trusted_network=True allows those that "
                    "the Flight server names"
                )
            _ensure_whole(uris)
            options = self._options.copy()
            options["deadline"] = self._left()
            reader = self._client.get(uris, ticket.ticket, **options)
            return _Dissociated(reader), Way("libdipc", tuple(uris))
        if uris[0] == REUSE_CONNECTION:
            return self._do_get(self._server, ticket), Way("DoGet", tuple(uris))
        if kind == "grpc" or kind.startswith("grpc+"):
            other = self._connect(uris[0])
            try:
                return self._do_get(other, ticket, owned=other), Way("DoGet", tuple(uris))
            except BaseException:
                other.close()
                raise
        raise _errors.UnsupportedError(f"nothing here can fetch from `{kind}:`")

    def _do_get(
        self, server: flight.FlightClient, ticket: flight.Ticket, owned: flight.FlightClient | None = None
    ) -> _Part:
        with _flight_errors.mapped():
            stream = server.do_get(ticket, self._call_options(self._left()))
            part = _DoGet(stream, owned)
            cancel = self._options.get("cancel")
            if cancel is not None:
                cancel.link(part)
            # Waits for the server.
            part.schema = stream.schema
        return part


class _Dissociated:
    """A part that comes by libdipc."""

    def __init__(self, reader: _DipcReader) -> None:
        import pyarrow as pa

        self._reader = reader
        self.schema = pa.schema(reader.schema)

    def next(self) -> pa.RecordBatch | None:
        import pyarrow as pa

        batch = next(self._reader, None)
        return None if batch is None else pa.record_batch(batch)

    def read_all(self) -> pa.Table:
        return self._reader.read_all()

    def close(self) -> None:
        self._reader.close()


class _DoGet:
    """A part that comes by DoGet."""

    schema: pa.Schema

    def __init__(self, stream: flight.FlightStreamReader, owned: flight.FlightClient | None) -> None:
        """Closes `owned` with it."""
        self._stream, self._owned = stream, owned
        self._is_over = False

    def next(self) -> pa.RecordBatch | None:
        with _flight_errors.mapped():
            try:
                # A message may have only metadata.
                while (batch := self._stream.read_chunk().data) is None:
                    pass
            except StopIteration:
                self._is_over = True
                return None
            return batch

    def read_all(self) -> pa.Table:
        with _flight_errors.mapped():
            table = self._stream.read_all()
        self._is_over = True
        return table

    def trigger(self) -> None:
        """Ends the call, from any thread."""
        self._stream.cancel()

    def close(self) -> None:
        if not self._is_over:
            self._stream.cancel()
        if self._owned is not None:
            self._owned.close()


def _scheme(uri: str) -> str:
    return uri.partition(":")[0]


def _ways(locations: list[str]) -> Iterator[list[str]]:
    """The ways to fetch an endpoint, in the server's order: one URI each, or the two of a pair.

    No location at all means the server that was asked.
    """
    rest = locations or [REUSE_CONNECTION]
    while rest:
        taken = 2 if len(rest) > 1 and _are_pair(rest[0], rest[1]) else 1
        yield rest[:taken]
        rest = rest[taken:]


def _role(uri: str) -> str | None:
    return parse_qs(uri.partition("?")[2]).get("dipc_role", [None])[0]


def _are_pair(first: str, second: str) -> bool:
    """Whether two URIs are the metadata and the data of one stream, in either order (rules U3 and R4)."""
    if any(_scheme(uri) not in _DISSOCIATED for uri in (first, second)):
        return False
    roles = {_role(first), _role(second)}
    if roles == {None}:
        # A server that is not libdipc names no roles: metadata comes first.
        return all(_scheme(uri) == "ucx" and "dipc" not in parse_qs(uri.partition("?")[2]) for uri in (first, second))
    return roles == {"metadata", "data"}


def _ensure_whole(uris: list[str]) -> None:
    role = _role(uris[0])
    if len(uris) == 1 and role in ("metadata", "data"):
        raise _errors.InvalidUriError(f"it serves the {role} stream only, and the location after it is not its partner")


def _is_private(uri: str) -> bool:
    """Whether nobody between this process and the server can read what is sent."""
    if _scheme(uri) in ("grpc+tls", "grpc+unix"):
        return True
    try:
        host = urlsplit(uri).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
