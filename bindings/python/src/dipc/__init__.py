"""libdipc: Arrow tables between processes, machines and GPUs without serialising them.

    import dipc, pyarrow

    with dipc.Server() as server:                        # one process
        server.publish("table", pyarrow.table({"x": [1, 2, 3]}))
        print(server.listen("shm:@demo"))
        ...

    table = pyarrow.table(dipc.get("shm:@demo", "table"))   # another

Objects of any library that speaks Arrow's PyCapsule interface go in and come out: pyarrow, polars, duckdb,
pandas, nanoarrow. The package needs none of them, and nothing but the shared library libdipc.
"""

from __future__ import annotations

import logging

from . import _library
from ._arena import Arena, ArenaStats, DeviceBlock
from ._arguments import Ticket, Uris
from ._cancel import Cancel
from ._client import Client, ClientStats, shared_client
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
from ._reader import Batch, Reader
from ._request import Peer, Request
from ._schema import Schema
from ._server import Server, ServerStats
from ._stream import StreamStats

__all__ = [
    "AddressInUseError",
    "AlreadyExistsError",
    "Arena",
    "ArenaStats",
    "Batch",
    "BusyError",
    "Cancel",
    "CancelledError",
    "Client",
    "ClientStats",
    "ClosedError",
    "Description",
    "DeviceBlock",
    "DipcError",
    "DisconnectedError",
    "Endpoint",
    "ForkedError",
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
    "Reader",
    "Request",
    "Schema",
    "Server",
    "ServerStats",
    "Status",
    "StoppedError",
    "StreamStats",
    "Ticket",
    "TimeoutError",
    "UnreachableError",
    "UnsupportedError",
    "Uris",
    "adescribe",
    "aget",
    "alist_tickets",
    "check_transport",
    "describe",
    "get",
    "library_path",
    "library_version",
    "list_tickets",
    "status_name",
]

# A library prints nothing: without this, Python's logging writes warnings to stderr.
logging.getLogger("dipc").addHandler(logging.NullHandler())


def get(
    uri: Uris,
    ticket: Ticket,
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
    window: tuple[int, int] | None = None,
    lent_limit_bytes: int | None = None,
    message_limit_bytes: int | None = None,
    connections: int | None = None,
    spin: float | None = None,
    device: str = "cpu",
    validation: str = "auto",
) -> Reader:
    """Asks a server for a ticket, by a :class:`Client` that the process shares; see :meth:`Client.get`."""
    return shared_client().get(
        uri,
        ticket,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
        window=window,
        lent_limit_bytes=lent_limit_bytes,
        message_limit_bytes=message_limit_bytes,
        connections=connections,
        spin=spin,
        device=device,
        validation=validation,
    )


async def aget(
    uri: Uris,
    ticket: Ticket,
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
    window: tuple[int, int] | None = None,
    lent_limit_bytes: int | None = None,
    message_limit_bytes: int | None = None,
    connections: int | None = None,
    spin: float | None = None,
    device: str = "cpu",
    validation: str = "auto",
) -> Reader:
    """:func:`get` for coroutines: cancelling the task cancels the call."""
    return await shared_client().aget(
        uri,
        ticket,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
        window=window,
        lent_limit_bytes=lent_limit_bytes,
        message_limit_bytes=message_limit_bytes,
        connections=connections,
        spin=spin,
        device=device,
        validation=validation,
    )


def describe(
    uri: Uris,
    ticket: Ticket,
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
) -> Description:
    """Asks a server what a ticket stands for, without the table; see :meth:`Client.describe`."""
    return shared_client().describe(
        uri,
        ticket,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
    )


async def adescribe(
    uri: Uris,
    ticket: Ticket,
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
) -> Description:
    """:func:`describe` for coroutines: cancelling the task cancels the call."""
    return await shared_client().adescribe(
        uri,
        ticket,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
    )


def list_tickets(
    uri: Uris,
    prefix: Ticket = b"",
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
) -> Reader:
    """Asks a server for its tickets that begin with a prefix, as a table; see :meth:`Client.list_tickets`."""
    return shared_client().list_tickets(
        uri,
        prefix,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
    )


async def alist_tickets(
    uri: Uris,
    prefix: Ticket = b"",
    *,
    headers: HeadersLike = (),
    send_secrets: bool = False,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    connect_timeout: float | None = None,
    stall_timeout: float | None = None,
) -> Reader:
    """:func:`list_tickets` for coroutines: cancelling the task cancels the call."""
    return await shared_client().alist_tickets(
        uri,
        prefix,
        headers=headers,
        send_secrets=send_secrets,
        deadline=deadline,
        cancel=cancel,
        connect_timeout=connect_timeout,
        stall_timeout=stall_timeout,
    )


def check_transport(scheme: str) -> None:
    """Raises UnsupportedError where a transport, as "ucx", does not work here: what is missing, and how to get it."""
    _library.checked("dipc_transport_available")(scheme.encode())


def library_path() -> str:
    """Which libdipc was loaded: a path, or a name that the system's loader resolved."""
    return _library.path


def library_version() -> str:
    """The version of the libdipc that was loaded: "0.1.0"."""
    return _library.version
