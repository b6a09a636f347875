"""Fetching and sending."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from . import _abi, _arguments, _asking, _description, _filter, _library, _log, _options, _process, _source
from ._arguments import Device, Path, Ticket, Uris
from ._description import Description
from ._handle import Setting, make, options
from ._options import ExchangeOptions, GetOptions, PutOptions, RequestOptions
from ._put import Taken, Writer
from ._reader import Reader
from ._request import Verb
from ._schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

_checked, _plain = _library.checked, _library.plain
_stat = _checked("dipc_client_stat")


class ClientStats(NamedTuple):
    """What a client has done."""

    streams: int
    connections_made: int
    connections_idle: int


class Client:
    """Fetches and sends tables, and keeps connections for the next one.

    :func:`dipc.get` uses one that the process shares; make your own for other options, or to close its
    connections. Any thread may use it, also several at once. Streams and batches outlive it.

    :param any_user: Take streams from servers of every user of this machine, not only of the user that
        runs this process.
    :param idle_timeout: Seconds for which a connection without a stream is kept for the next one; 60 by
        default.
    :param max_idle: How many such connections are kept for each server; 8 by default.
    :param connections: How many connections there are at most to one server that takes many streams on one: further
        streams share them. Streams that are awaited, or parts of a table, share from the start. 0: each stream has its
        own; 16 by default.
    :param tls: Paths of the client's certificate and of its key, in PEM, for servers that ask for one.
    :param tls_ca: Path of the authorities, in PEM, whose certificates servers may have; the system's by default.
    :param tls_server_name: The name that a server's certificate must have; the host of the URI by default.
    :param transport: Options of single transports, such as ``{"ucx.TLS": "tcp"}``.
    """

    def __init__(
        self,
        *,
        any_user: bool = False,
        idle_timeout: float | None = None,
        max_idle: int | None = None,
        connections: int | None = None,
        tls: tuple[Path, Path] | None = None,
        tls_ca: Path | None = None,
        tls_server_name: str | None = None,
        transport: Mapping[str, str] | None = None,
    ) -> None:
        _log.refresh()
        values: list[Setting] = [
            ("any_user", (bool(any_user),)),
            *_arguments.some_seconds({"idle_timeout": idle_timeout}),
            *_arguments.some({"max_idle": max_idle, "connections": connections}),
            *_arguments.files({"tls": tls, "tls_ca": tls_ca, "tls_server_name": tls_server_name}),
            *_arguments.transport(transport or {}),
        ]
        with options("client_options", values, _checked, _plain("dipc_client_options_free")) as pointer:
            self._handle = make("client", _checked("dipc_client_new"), _plain("dipc_client_free"), pointer)

    def get(self, uri: Uris, ticket: Ticket, **options: Unpack[GetOptions]) -> Reader:
        """Asks a server for a ticket. Returns once the schema is there.

        :param uri: The server's URI, or two: one for metadata and one for bodies.
        :param ticket: What is asked for. Text is taken as UTF-8.
        :param options: See :class:`GetOptions`: headers, deadline, cancel, columns, filter, window, device,
            validation and others.
        :raises DipcError: one of its subclasses, as NotFoundError, UnreachableError, TimeoutError.
        """
        unbound = _filter.unbound(ticket, options)
        if unbound is not None:
            with unbound.asking():
                description = self._describe(uri, ticket, unbound.question).call()
            options = unbound.bound(description)
        return self._get(uri, ticket, options).call()

    async def aget(self, uri: Uris, ticket: Ticket, **options: Unpack[GetOptions]) -> Reader:
        """:meth:`get` for coroutines, on the running loop: cancelling the task cancels the call."""
        unbound = _filter.unbound(ticket, options)
        if unbound is not None:
            with unbound.asking():
                description = await self._describe(uri, ticket, unbound.question).acall()
            options = unbound.bound(description)
        return await self._get(uri, ticket, options).acall()

    def _get(self, uri: Uris, ticket: Ticket, options: GetOptions) -> _asking.Request[Reader]:
        kind = _asking.Fetching(Verb.GET, options.get("spin"))
        return _asking.Request(self._handle, kind, uri, ticket, options, get_options=_options.of_get(options))

    def describe(self, uri: Uris, ticket: Ticket, **options: Unpack[RequestOptions]) -> Description:
        """Asks a server what a ticket stands for, without the table.

        A published table's schema and totals are known. For other tickets the server's host says what is known
        (:meth:`Server.set_description`, or its handler, :meth:`Server.set_handler`).

        The parameters are those of :meth:`get`; the options are :class:`RequestOptions`.

        :raises DipcError: as :meth:`get`; UnsupportedError for a server that is older than descriptions.
        """
        return self._describe(uri, ticket, options).call()

    async def adescribe(self, uri: Uris, ticket: Ticket, **options: Unpack[RequestOptions]) -> Description:
        """:meth:`describe` for coroutines, on the running loop: cancelling the task cancels the call."""
        return await self._describe(uri, ticket, options).acall()

    def _describe(self, uri: Uris, ticket: Ticket, options: RequestOptions) -> _asking.Request[Description]:
        settings = _options.of_request(options)
        return _asking.Request(self._handle, _asking.Describing(), uri, ticket, options, get_options=settings)

    def list_tickets(self, uri: Uris, prefix: Ticket = b"", **options: Unpack[RequestOptions]) -> Reader:
        """Asks a server for its tickets that begin with a prefix. If none does, its handler answers.

        The answer is a table with a row for each ticket. Its columns are ``descriptor`` (binary: the ticket),
        ``uris`` (list of utf8: the servers that have it; none: this one), ``rows`` and ``bytes`` (int64, null
        if not known).

        The other parameters are those of :meth:`get`; the options are :class:`RequestOptions`.

        :raises DipcError: as :meth:`get`; UnsupportedError for a server that is older than lists.
        """
        return self._list(uri, prefix, options).call()

    async def alist_tickets(self, uri: Uris, prefix: Ticket = b"", **options: Unpack[RequestOptions]) -> Reader:
        """:meth:`list_tickets` for coroutines, on the running loop: cancelling the task cancels the call."""
        return await self._list(uri, prefix, options).acall()

    def _list(self, uri: Uris, prefix: Ticket, options: RequestOptions) -> _asking.Request[Reader]:
        kind, settings = _asking.Fetching(Verb.LIST), _options.of_request(options)
        return _asking.Request(self._handle, kind, uri, prefix, options, get_options=settings)

    def put(self, uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
        """Sends a table to a server, and waits until the server's host has taken all of it.

        The server accepts or refuses before anything is sent. Memory of an :class:`Arena` is lent over shm, not copied.

        :param uri: The server's URI.
        :param ticket: What the table is for the server's host: a name, for example. Text is taken as UTF-8.
        :param obj: A table, batch or stream of any library that speaks Arrow's PyCapsule interface, or an iterable of
            batches. An exception of an iterable fails the table with its text, and is raised here.
        :param options: See :class:`PutOptions`: headers, deadline, cancel, compression and others.
        :raises DipcError: as :meth:`get`, and the errors by which the server's host refuses or fails the table.
            UnsupportedError for a server that takes no tables. DisconnectedError if the connection ends before the last
            answer; it is not known then whether the host has taken the table.
        """
        return put_whole(obj, lambda schema, device: self._open(uri, ticket, schema, device, options).call())

    async def aput(self, uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
        """:meth:`put` for coroutines; `obj` may also be an async iterable of batches.

        Cancelling the task fails the table.
        """
        return await aput_whole(obj, lambda schema, device: self._open(uri, ticket, schema, device, options).acall())

    def open_put(
        self, uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[PutOptions]
    ) -> Writer:
        """Push form of :meth:`put`: returns once the server accepts a table of a schema.

        :param schema: A schema of any library that speaks Arrow's PyCapsule interface.
        :param device: Where the batches are: "cpu", "cuda" or "cuda:1".
        """
        return self._open(uri, ticket, _description.taken(schema), _device_type(device), options).call()

    async def aopen_put(
        self, uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[PutOptions]
    ) -> Writer:
        """:meth:`open_put` for coroutines."""
        return await self._open(uri, ticket, _description.taken(schema), _device_type(device), options).acall()

    def exchange(
        self, uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[ExchangeOptions]
    ) -> tuple[Writer, Reader]:
        """Sends a table of a schema and receives one at the same time, on the same connection.

        An error at either side ends both tables at both sides; so does a reader that is closed before its end.
        :meth:`Writer.finish` waits until the server's host has ended its own table too: read the host's table before or
        meanwhile. :attr:`Reader.schema` waits for the server's schema, which may come with its first batch only.

        The parameters are those of :meth:`open_put`.

        :raises DipcError: as :meth:`put`; UnsupportedError for a server that exchanges no tables.
        """
        return self._exchange(uri, ticket, schema, device, options).call()

    async def aexchange(
        self, uri: str, ticket: Ticket, schema: Any, *, device: Device = "cpu", **options: Unpack[ExchangeOptions]
    ) -> tuple[Writer, Reader]:
        """:meth:`exchange` for coroutines."""
        return await self._exchange(uri, ticket, schema, device, options).acall()

    def _open(
        self, uri: str, ticket: Ticket, schema: Schema, device_type: int, options: PutOptions
    ) -> _asking.Request[Writer]:
        kind, settings = _asking.Putting(schema, device_type), _options.of_put(options)
        return _asking.Request(self._handle, kind, uri, ticket, options, put_options=settings)

    def _exchange(
        self, uri: str, ticket: Ticket, schema: Any, device: Device, options: ExchangeOptions
    ) -> _asking.Request[tuple[Writer, Reader]]:
        kind = _asking.Exchanging(_description.taken(schema), _device_type(device), options.get("spin"))
        own, answers = _options.of_put(options, ExchangeOptions), _options.of_answers(options)
        return _asking.Request(self._handle, kind, uri, ticket, options, put_options=own, get_options=answers)

    @property
    def stats(self) -> ClientStats:
        with self._handle as client:
            return ClientStats(*(_library.number_of(_stat, client, which) for which in (1, 2, 3)))

    def close(self) -> None:
        """Closes connections that no stream uses. May be called again."""
        self._handle.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def put_whole(obj: Any, opened: Callable[[Schema, int], Writer]) -> Taken:
    """For this package: sends a table by the writer that `opened` makes for its schema and type of device."""
    source = _source.open_source(obj)
    try:
        # The schema is moved, because a thread may still need it after this call has ended.
        schema = Schema(_abi.move(source.schema))
        with opened(schema, source.device_type) as writer:
            writer.write_source(source)
            return Taken(writer.finish(), list(writer.results()))
    finally:
        source.close()


async def aput_whole(obj: Any, opened: Callable[[Schema, int], Awaitable[Writer]]) -> Taken:
    """For this package: :func:`put_whole` for coroutines."""
    source = await _source.open_async(obj)
    try:
        schema = Schema(_abi.move(source.schema))
        async with await opened(schema, source.device_type) as writer:
            await writer.awrite_source(source)
            return Taken(await writer.afinish(), [result async for result in writer.aresults()])
    finally:
        await source.aclose()


def _device_type(device: Device) -> int:
    return _arguments.device(device, as_sent=False)[0]


_shared: Client | None = None


def shared_client() -> Client:
    """The client of :func:`dipc.get`, made at the first call."""
    global _shared
    if _shared is None:
        _shared = Client()
    return _shared


def _forget() -> None:
    # The child of a fork makes its own.
    global _shared
    _shared = None


_process.after_fork(_forget)
