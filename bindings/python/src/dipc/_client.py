"""Fetching and sending."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from ctypes import c_char_p, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from . import _abi, _arguments, _description, _library, _process, _put, _source, _wait
from ._arguments import Ticket, Uris
from ._cancel import Cancel, Token
from ._description import Description
from ._handle import Handle, Setting, make, options
from ._headers import Headers, HeadersLike
from ._put import ExchangeOptions, PutOptions, Taken, Writer
from ._reader import Reader
from ._schema import Schema
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

_checked, _plain = _library.checked, _library.plain
_get, _list = _checked("dipc_client_get"), _checked("dipc_client_list")
_describe = _checked("dipc_client_describe")
_put_open, _exchange = _checked("dipc_client_put_open"), _checked("dipc_client_exchange")
_stat = _checked("dipc_client_stat")

T = TypeVar("T")

_VALIDATION = {"auto": 0, "structure": 1, "full": 2}


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
    :param max_idle: How many of them are kept for each server; 8 by default.
    :param transport: What single transports know, as ``{"ucx.TLS": "tcp"}``.
    """

    def __init__(
        self,
        *,
        any_user: bool = False,
        idle_timeout: float | None = None,
        max_idle: int | None = None,
        transport: Mapping[str, str] | None = None,
    ) -> None:
        values: list[Setting] = [
            ("any_user", (bool(any_user),)),
            *_arguments.some_seconds({"idle_timeout": idle_timeout}),
            *_arguments.some({"max_idle": max_idle}),
            *_arguments.transport(transport or {}),
        ]
        with options("client_options", values, _checked, _plain("dipc_client_options_free")) as pointer:
            self._handle = make("client", _checked("dipc_client_new"), _plain("dipc_client_free"), pointer)

    def get(
        self,
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
        """Asks a server for a ticket. Returns once the schema is there.

        :param uri: The server's URI, or two: one for metadata and one for bodies.
        :param ticket: What is asked for. Text is taken as UTF-8.
        :param headers: Headers for the server's provider or handler, as ``{"traceparent": "00-…"}``, or pairs where
            a key comes more than once; see :class:`Headers`. Those of its answer are :attr:`Reader.headers`.
        :param send_secrets: Send the header "authorization" also where others may read the connection: over tcp
            beyond the loopback interface, and over ucx. Without it such a request raises PermissionError, and
            nothing is sent.
        :param deadline: Seconds that the whole stream may take, from now to its end; then it fails with
            TimeoutError. The server sees what is left of them. None by default.
        :param cancel: Ends this call and the stream from another thread.
        :param connect_timeout: Seconds that connecting may take, up to the server's first answer; 10 by
            default.
        :param stall_timeout: Seconds that the server may say nothing while something is waited for; for
            ever by default, and a server that dies is noticed all the same.
        :param window: How many batches, and how many bytes, the server may run ahead; 16 and 256 MiB by
            default.
        :param lent_limit_bytes: The most bytes of copies that the server lends at once; 1 GiB by default.
        :param message_limit_bytes: The most memory that one message may take here beside its body: for
            buffers unpacked, copies to be checked, the schema, and the stream's dictionaries together; or as
            much as its body has, where that is more. A message that needs more raises OutOfMemoryError.
            512 MiB by default, and 16 GiB for a server of the same user.
        :param connections: How many connections carry the stream, where the transport can spread it (tcp);
            1 by default.
        :param spin: Seconds that a thread looks for the next batch before it sleeps; 0 by default.
        :param device: Where batches shall be: "cpu", "cuda" or "cuda:1" for a GPU, or "as-sent": where the
            server has them, if this process reaches that without a copy, otherwise on the host. Batches on a
            GPU go on by ``__arrow_c_device_stream__`` and ``__arrow_c_device_array__``.
        :param validation: How much of what arrives is checked: "structure", "full" (values too), or "auto",
            which is "structure" for a server of the same user and "full" for others.
        :raises DipcError: one of its subclasses, as NotFoundError, UnreachableError, TimeoutError.
        """
        token, open_ = self._prepare_get(
            uri,
            ticket,
            headers,
            send_secrets,
            deadline,
            cancel,
            connect_timeout,
            stall_timeout,
            window,
            lent_limit_bytes,
            message_limit_bytes,
            connections,
            spin,
            device,
            validation,
        )
        return _wait.call(open_, token.trigger)

    async def aget(
        self,
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
        """:meth:`get` for coroutines: cancelling the task cancels the call."""
        token, open_ = self._prepare_get(
            uri,
            ticket,
            headers,
            send_secrets,
            deadline,
            cancel,
            connect_timeout,
            stall_timeout,
            window,
            lent_limit_bytes,
            message_limit_bytes,
            connections,
            spin,
            device,
            validation,
        )
        return await _wait.acall(open_, token.trigger)

    def describe(
        self,
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
        """Asks a server what a ticket stands for, without the table.

        A published table's schema and totals are known. What is known of other tickets the server's host has
        said (:meth:`Server.set_description`), or says in its handler (:meth:`Server.set_handler`).

        The parameters are those of :meth:`get`.

        :raises DipcError: as :meth:`get`; UnsupportedError for a server that is older than descriptions.
        """
        values = self._limits(send_secrets, deadline, connect_timeout, stall_timeout)
        token, ask = self._prepare(_described, uri, ticket, headers, cancel, values)
        return _wait.call(ask, token.trigger)

    async def adescribe(
        self,
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
        """:meth:`describe` for coroutines: cancelling the task cancels the call."""
        values = self._limits(send_secrets, deadline, connect_timeout, stall_timeout)
        token, ask = self._prepare(_described, uri, ticket, headers, cancel, values)
        return await _wait.acall(ask, token.trigger)

    def list_tickets(
        self,
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
        """Asks a server for its tickets that begin with a prefix. Where none does, its handler answers.

        The answer is a table with a row for each ticket. Its columns are ``descriptor`` (binary: the ticket),
        ``uris`` (list of utf8: the servers that have it; none: this one), ``rows`` and ``bytes`` (int64, null
        where not known).

        The other parameters are those of :meth:`get`.

        :raises DipcError: as :meth:`get`; UnsupportedError for a server that is older than lists.
        """
        values = self._limits(send_secrets, deadline, connect_timeout, stall_timeout)
        token, ask = self._prepare(_listed, uri, prefix, headers, cancel, values)
        return _wait.call(ask, token.trigger)

    async def alist_tickets(
        self,
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
        """:meth:`list_tickets` for coroutines: cancelling the task cancels the call."""
        values = self._limits(send_secrets, deadline, connect_timeout, stall_timeout)
        token, ask = self._prepare(_listed, uri, prefix, headers, cancel, values)
        return await _wait.acall(ask, token.trigger)

    def put(self, uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
        """Sends a table to a server, and waits until the server's host has taken all of it.

        The server accepts or refuses before anything is sent. Memory of an :class:`Arena` is lent over shm, not copied.

        :param uri: The server's URI.
        :param ticket: What the table is for the server's host: a name, for example. Text is taken as UTF-8.
        :param obj: A table, batch or stream of any library that speaks Arrow's PyCapsule interface, or an iterable of
            batches. What an iterable raises fails the table with its text, and is raised here.
        :param options: See :class:`PutOptions`: headers, deadline, cancel, compression and others.
        :raises DipcError: as :meth:`get`, and what the server's host refuses or fails the table with.
            UnsupportedError for a server that takes no tables. DisconnectedError where the connection ends before the
            last word: whether the host has taken the table is not known then.
        """
        source = _source.open_source(obj)
        try:
            # Moved, for a thread may still need it when this call has ended.
            schema = Schema(_abi.move(source.schema))
            with self._open(uri, ticket, schema, source.device_type, options) as writer:
                writer.write_source(source)
                return Taken(writer.finish(), list(writer.results()))
        finally:
            source.close()

    async def aput(self, uri: str, ticket: Ticket, obj: Any, **options: Unpack[PutOptions]) -> Taken:
        """:meth:`put` for coroutines; `obj` may also be an async iterable of batches.

        Cancelling the task fails the table.
        """
        source = await _source.open_async(obj)
        try:
            schema = Schema(_abi.move(source.schema))
            async with await self._aopen(uri, ticket, schema, source.device_type, options) as writer:
                await writer.awrite_source(source)
                return Taken(await writer.afinish(), [result async for result in writer.aresults()])
        finally:
            await source.aclose()

    def open_put(
        self, uri: str, ticket: Ticket, schema: Any, *, device: str = "cpu", **options: Unpack[PutOptions]
    ) -> Writer:
        """Push form of :meth:`put`: returns once the server accepts a table of a schema.

        :param schema: A schema of any library that speaks Arrow's PyCapsule interface.
        :param device: Where the batches are: "cpu", "cuda" or "cuda:1".
        """
        return self._open(uri, ticket, _description.taken(schema), _device_type(device), options)

    async def aopen_put(
        self, uri: str, ticket: Ticket, schema: Any, *, device: str = "cpu", **options: Unpack[PutOptions]
    ) -> Writer:
        """:meth:`open_put` for coroutines."""
        return await self._aopen(uri, ticket, _description.taken(schema), _device_type(device), options)

    def exchange(
        self, uri: str, ticket: Ticket, schema: Any, *, device: str = "cpu", **options: Unpack[ExchangeOptions]
    ) -> tuple[Writer, Reader]:
        """Sends a table of a schema and receives one, on the same connection at once.

        An error at either side ends both tables at both sides; so does a reader that is closed before its end.
        :meth:`Writer.finish` waits until the server's host has ended its own table too: read that one before or
        meanwhile. :attr:`Reader.schema` waits for the server's schema, which may come with its first batch only.

        The parameters are those of :meth:`open_put`.

        :raises DipcError: as :meth:`put`; UnsupportedError for a server that exchanges no tables.
        """
        token, open_ = self._prepare_exchange(uri, ticket, schema, device, options)
        return _wait.call(open_, token.trigger)

    async def aexchange(
        self, uri: str, ticket: Ticket, schema: Any, *, device: str = "cpu", **options: Unpack[ExchangeOptions]
    ) -> tuple[Writer, Reader]:
        """:meth:`exchange` for coroutines."""
        token, open_ = self._prepare_exchange(uri, ticket, schema, device, options)
        return await _wait.acall(open_, token.trigger)

    def _open(self, uri: str, ticket: Ticket, schema: Schema, device_type: int, options: PutOptions) -> Writer:
        token, open_ = self._prepare_put(_opening(schema, device_type), uri, ticket, options)
        return _wait.call(open_, token.trigger)

    async def _aopen(self, uri: str, ticket: Ticket, schema: Schema, device_type: int, options: PutOptions) -> Writer:
        token, open_ = self._prepare_put(_opening(schema, device_type), uri, ticket, options)
        return await _wait.acall(open_, token.trigger)

    def _prepare_put(
        self, ask: Callable[..., T], uri: str, ticket: Ticket, options: PutOptions
    ) -> tuple[Token, Callable[[], T]]:
        """:meth:`_prepare` for a table from here."""
        values, headers = _put.settings(options), options.get("headers", ())
        return self._prepare(ask, uri, ticket, headers, options.get("cancel"), values, "put_options")

    def _prepare_exchange(
        self, uri: str, ticket: Ticket, schema: Any, device: str, options: ExchangeOptions
    ) -> tuple[Token, Callable[[], tuple[Writer, Reader]]]:
        spin, stall_timeout = options.pop("spin", None), options.get("stall_timeout")
        values = _answer_settings(
            options.pop("window", None), options.pop("lent_limit_bytes", None), spin, options.pop("validation", "auto")
        )
        values += _arguments.some_seconds({"stall_timeout": stall_timeout})
        ask = _exchanging(_description.taken(schema), _device_type(device), values, spin or 0.0)
        return self._prepare_put(ask, uri, ticket, options)

    def _prepare_get(
        self,
        uri: Uris,
        ticket: Ticket,
        headers: HeadersLike,
        send_secrets: bool,
        deadline: float | None,
        cancel: Cancel | None,
        connect_timeout: float | None,
        stall_timeout: float | None,
        window: tuple[int, int] | None,
        lent_limit_bytes: int | None,
        message_limit_bytes: int | None,
        connections: int | None,
        spin: float | None,
        device: str,
        validation: str,
    ) -> tuple[Token, Callable[[], Reader]]:
        """:meth:`_prepare` for a table."""
        values: list[Setting] = [
            ("device", _arguments.device(device, as_sent=True)),
            *_answer_settings(window, lent_limit_bytes, spin, validation),
            *self._limits(send_secrets, deadline, connect_timeout, stall_timeout),
            *_arguments.some({"message_limit_bytes": message_limit_bytes}),
        ]
        if connections is not None:
            values.append(("connections", (_arguments.count(connections, "connections", 2**32 - 1),)))
        fetch = functools.partial(_fetched, spin=spin or 0.0)
        return self._prepare(fetch, uri, ticket, headers, cancel, values)

    @staticmethod
    def _limits(
        send_secrets: bool, deadline: float | None, connect_timeout: float | None, stall_timeout: float | None
    ) -> list[Setting]:
        """Settings of every request."""
        return [
            ("send_secrets", (bool(send_secrets),)),
            *_arguments.some_seconds(
                {"deadline": deadline, "connect_timeout": connect_timeout, "stall_timeout": stall_timeout}
            ),
        ]

    def _prepare(
        self,
        ask: Callable[..., T],
        uri: Uris,
        ticket: Ticket,
        headers: HeadersLike,
        cancel: Cancel | None,
        values: list[Setting],
        kind: str = "get_options",
    ) -> tuple[Token, Callable[[], T]]:
        """Checks the arguments; gives the call's token, and the call, which is made by `ask`."""
        uris, ticket_, headers_ = _arguments.uris_bytes(uri), _arguments.ticket_bytes(ticket), Headers(headers)
        token = Token()
        if cancel is not None:
            cancel.link(token)

        def call() -> T:
            # Made here, and not by the main thread: a Ctrl-C that finds it in a collected handle's end is lost.
            settings = _settings(kind, values, headers_)
            with self._handle as client, settings as set_, token.handle as cancel_:
                arguments = (client, (c_char_p * len(uris))(*uris), len(uris), ticket_, len(ticket_), set_, cancel_)
                return ask(token, arguments)

        return token, call

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


def _answer_settings(
    window: tuple[int, int] | None, lent_limit_bytes: int | None, spin: float | None, validation: str
) -> list[Setting]:
    """Settings of a table from a server."""
    values: list[Setting] = [
        ("validation", (_arguments.choice(validation, "validation", _VALIDATION),)),
        *_arguments.some_seconds({"spin": spin}),
        *_arguments.some({"lent_limit_bytes": lent_limit_bytes}),
    ]
    if window is not None:
        batches, bytes_ = window
        numbers = (
            _arguments.count(batches, "the window's batches"),
            _arguments.count(bytes_, "the window's bytes"),
        )
        values.append(("window", numbers))
    return values


def _device_type(device: str) -> int:
    return _arguments.device(device, as_sent=False)[0]


def _settings(kind: str, values: list[Setting], headers: Headers) -> Handle:
    """The options of one request."""
    free = _plain(f"dipc_{kind}_free")
    if not headers:
        # A server that does not know headers refuses a request that has some.
        return options(kind, values, _checked, free)
    with headers.handle() as pointer:
        return options(kind, [*values, ("headers", (pointer,))], _checked, free)


def _fetched(token: Token, arguments: tuple[Any, ...], call: Callable[..., int] = _get, *, spin: float = 0.0) -> Reader:
    struct = _abi.ArrowDeviceArrayStream()
    call(*arguments, ctypes.addressof(struct))
    return Reader(Stream(struct, token, spin))


def _opening(schema: Schema, device_type: int) -> Callable[..., Writer]:
    """Asks a server to take a table."""

    def open_(token: Token, arguments: tuple[Any, ...]) -> Writer:
        pointer, struct = c_void_p(), schema.export()
        try:
            _put_open(*arguments, ctypes.addressof(struct), device_type, ctypes.byref(pointer))
        finally:
            _abi.release(struct)
        return Writer(pointer, token, schema)

    return open_


def _exchanging(
    schema: Schema, device_type: int, values: list[Setting], spin: float
) -> Callable[..., tuple[Writer, Reader]]:
    """Asks a server to exchange tables. `values` are settings of the server's table."""

    def open_(token: Token, arguments: tuple[Any, ...]) -> tuple[Writer, Reader]:
        pointer, struct, answers = c_void_p(), schema.export(), _abi.ArrowDeviceArrayStream()
        outs = (ctypes.byref(pointer), ctypes.addressof(answers))
        try:
            with _settings("get_options", values, Headers()) as set_:
                *request, cancel = arguments
                _exchange(*request, set_, cancel, ctypes.addressof(struct), device_type, *outs)
        finally:
            _abi.release(struct)
        writer = Writer(pointer, token, schema)
        return writer, Reader(Stream(answers, token, spin, has_schema=False))

    return open_


def _listed(token: Token, arguments: tuple[Any, ...]) -> Reader:
    return _fetched(token, arguments, _list)


def _described(_token: Token, arguments: tuple[Any, ...]) -> Description:
    return _description.read(_describe, *arguments)


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
