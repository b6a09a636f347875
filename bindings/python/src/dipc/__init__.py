"""libdipc: Arrow tables between processes, machines and GPUs without serialising them.

    import dipc, pyarrow

    with dipc.Server() as server:                        # one process
        server.publish("table", pyarrow.table({"x": [1, 2, 3]}))
        print(server.listen("shm:@demo"))
        ...

    table = dipc.get("shm:@demo", "table").read_all()    # another

Objects of any library that speaks Arrow's PyCapsule interface go in and come out: pyarrow, polars, duckdb,
pandas, nanoarrow. The package needs none of them, and nothing but the shared library libdipc.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

# The log is imported first, so that it ends last.
from . import _library, _log, duckdb, flight, polars
from ._arena import Arena, ArenaStats, DeviceBlock
from ._arguments import Device, DeviceOrAsSent, Filter, Ticket, Uris
from ._cancel import Cancel
from ._client import Client, ClientStats, shared_client
from ._column import Column
from ._description import Description, Endpoint
from ._errors import (
    AddressInUseError,
    AlreadyExistsError,
    BusyError,
    CancelledError,
    ClosedError,
    DipcError,
    DisconnectedError,
    ForkedError,
    InvalidArgumentError,
    InvalidDataError,
    InvalidUriError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    OutOfResourcesError,
    PanicError,
    PermissionError,
    ProtocolError,
    ProviderError,
    Status,
    StoppedError,
    TimeoutError,
    UnreachableError,
    UnsupportedError,
)
from ._headers import Headers, HeadersLike
from ._library import LibraryError, status_name
from ._options import ExchangeOptions, GetOptions, PutOptions, RequestOptions
from ._put import PutStats, Result, Taken, Writer
from ._reader import Batch, Reader
from ._request import Certificate, Peer, Request, Verb
from ._schema import Schema
from ._server import Server, ServerStats
from ._stream import StreamStats

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "AddressInUseError",
    "AlreadyExistsError",
    "Arena",
    "ArenaStats",
    "Batch",
    "BusyError",
    "Cancel",
    "CancelledError",
    "Certificate",
    "Client",
    "ClientStats",
    "ClosedError",
    "Column",
    "Description",
    "Device",
    "DeviceBlock",
    "DeviceOrAsSent",
    "DipcError",
    "DisconnectedError",
    "Endpoint",
    "ExchangeOptions",
    "Filter",
    "ForkedError",
    "GetOptions",
    "Headers",
    "HeadersLike",
    "InvalidArgumentError",
    "InvalidDataError",
    "InvalidUriError",
    "IoError",
    "LibraryError",
    "NotFoundError",
    "OutOfMemoryError",
    "OutOfResourcesError",
    "PanicError",
    "Peer",
    "PermissionError",
    "ProtocolError",
    "ProviderError",
    "PutOptions",
    "PutStats",
    "Reader",
    "Request",
    "RequestOptions",
    "Result",
    "Schema",
    "Server",
    "ServerStats",
    "Status",
    "StoppedError",
    "StreamStats",
    "Taken",
    "Ticket",
    "TimeoutError",
    "UnreachableError",
    "UnsupportedError",
    "Uris",
    "Verb",
    "Writer",
    "adescribe",
    "aexchange",
    "aget",
    "alist_tickets",
    "aopen_put",
    "aput",
    "check_transport",
    "describe",
    "duckdb",
    "exchange",
    "flight",
    "get",
    "library_path",
    "library_version",
    "list_tickets",
    "open_put",
    "polars",
    "put",
    "refresh_log",
    "status_name",
]

# A library prints nothing: without this, Python's logging writes warnings to stderr.
logging.getLogger("dipc").addHandler(logging.NullHandler())


def get(uri: Uris, ticket: Ticket, **options: Unpack[GetOptions]) -> Reader:
    """Asks a server for a ticket, by a :class:`Client` that the process shares; see :meth:`Client.get`."""
    return shared_client().get(uri, ticket, **options)


async def aget(uri: Uris, ticket: Ticket, **options: Unpack[GetOptions]) -> Reader:
    """:func:`get` for coroutines: cancelling the task cancels the call."""
    return await shared_client().aget(uri, ticket, **options)


def describe(uri: Uris, ticket: Ticket, **options: Unpack[RequestOptions]) -> Description:
    """Asks a server what a ticket stands for, without the table; see :meth:`Client.describe`."""
    return shared_client().describe(uri, ticket, **options)


async def adescribe(uri: Uris, ticket: Ticket, **options: Unpack[RequestOptions]) -> Description:
    """:func:`describe` for coroutines: cancelling the task cancels the call."""
    return await shared_client().adescribe(uri, ticket, **options)


def list_tickets(uri: Uris, prefix: Ticket = b"", **options: Unpack[RequestOptions]) -> Reader:
    """Asks a server for its tickets that begin with a prefix, as a table; see :meth:`Client.list_tickets`."""
    return shared_client().list_tickets(uri, prefix, **options)


async def alist_tickets(uri: Uris, prefix: Ticket = b"", **options: Unpack[RequestOptions]) -> Reader:
    """:func:`list_tickets` for coroutines: cancelling the task cancels the call."""
    return await shared_client().alist_tickets(uri, prefix, **options)


def put(uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
    """Sends a table to a server, which takes it by its handler; see :meth:`Client.put`."""
    return shared_client().put(uri, ticket, obj, **options)


async def aput(uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
    """:func:`put` for coroutines: cancelling the task fails the table."""
    return await shared_client().aput(uri, ticket, obj, **options)


def open_put(uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[PutOptions]) -> Writer:
    """Sends a table batch by batch; see :meth:`Client.open_put`."""
    return shared_client().open_put(uri, ticket, schema, device=device, **options)


async def aopen_put(
    uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[PutOptions]
) -> Writer:
    """:func:`open_put` for coroutines."""
    return await shared_client().aopen_put(uri, ticket, schema, device=device, **options)


def exchange(
    uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[ExchangeOptions]
) -> tuple[Writer, Reader]:
    """Sends a table and receives one at once; see :meth:`Client.exchange`."""
    return shared_client().exchange(uri, ticket, schema, device=device, **options)


async def aexchange(
    uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[ExchangeOptions]
) -> tuple[Writer, Reader]:
    """:func:`exchange` for coroutines."""
    return await shared_client().aexchange(uri, ticket, schema, device=device, **options)


def check_transport(scheme: str) -> None:
    """Raises UnsupportedError if a transport, as "ucx", does not work here: what is missing, and how to get it."""
    _library.checked("dipc_transport_available")(scheme.encode())


def refresh_log() -> None:
    """Applies the levels of Python's ``logging`` to the library's log.

    A new Client or Server does so too. Each request applies the levels and handlers of the logger ``dipc`` and of the
    loggers above it, but not those of the loggers below it, such as ``dipc.audit``.
    """
    _log.refresh()


def library_path() -> str:
    """Which libdipc was loaded: a path, or a name that the system's loader resolved."""
    return _library.path


def library_version() -> str:
    """The version of the libdipc that was loaded: "0.1.0"."""
    return _library.version
