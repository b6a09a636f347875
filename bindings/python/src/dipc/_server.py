"""Serving."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Callable, NamedTuple

from . import _abi, _afterlife, _arguments, _errors, _library, _log, _provider, _serving, _source, _wait
from ._arguments import Body, Compression, Path, Role, Ticket
from ._description import Description, Endpoint
from ._handle import Handle, Setting, make, options
from ._options import BODIES, COMPRESSIONS
from ._provider import authorizer_of
from ._request import Authorizer, Verb

_checked, _plain = _library.checked, _library.plain
_listen, _location = _checked("dipc_server_listen"), _checked("dipc_server_location")
_listen_fd, _drain = _checked("dipc_server_listen_fd"), _checked("dipc_server_drain")
_is_ready = _plain("dipc_server_is_ready")
_reload_tls = _checked("dipc_server_reload_tls")
_serve_pull, _publish = _checked("dipc_server_serve_pull"), _checked("dipc_server_publish")
_replace, _set_description = _checked("dipc_server_replace"), _checked("dipc_server_set_description")
_set_handler, _set_handler_pull = _checked("dipc_server_set_handler"), _checked("dipc_server_set_handler_pull")
_withdraw, _ticket = _checked("dipc_server_withdraw"), _checked("dipc_server_ticket")
_stat, _stop = _checked("dipc_server_stat"), _checked("dipc_server_stop")
_stats_text = _checked("dipc_server_stats_text")

_ROLES = {"both": 0, "metadata": 1, "data": 2}

_MOMENT = 2.0
"""Seconds that a stopped server's threads get to notice that their clients are gone."""


class ServerStats(NamedTuple):
    """What a server has done; ``connections``, ``streams_active``, ``lent_outstanding`` and ``region_bytes`` are of
    this moment; the others count since the start."""

    connections: int
    streams_active: int
    streams_served: int
    batches: int
    bytes_lent: int
    """Body bytes lent where they lay."""
    bytes_copied: int
    """Body bytes copied on the host: into shared memory that is lent, or bodies of up to 1 KiB that are sent."""
    bytes_sent: int
    """Body bytes sent through connections."""
    lent_outstanding: int
    """Buffers lent and not yet given back."""
    region_bytes: int
    """Bytes of regions for copies."""
    bytes_copied_on_device: int
    """Body bytes copied within a GPU's memory and lent from there."""
    bytes_staged: int
    """Body bytes copied from a GPU's memory to the host's, then lent or sent."""
    rows: int
    """Rows of the batches sent."""
    batches_received: int
    """Record batches that clients sent."""
    rows_received: int
    """Their rows."""
    bytes_received: int
    """Body bytes that clients sent, lent ones included."""
    connections_opened: int
    """Connections accepted."""
    connections_refused: int
    """Connections that were not accepted."""
    requests_finished: int
    """Requests that have ended well."""
    requests_failed: int
    """Requests that were begun and have ended otherwise."""
    requests_refused: int
    """Requests that were refused."""
    rows_read: int
    """Rows of the batches that tables and providers gave, those included that a filter or a range left out."""


class Server:
    """Serves tables to clients. Any thread may use it, also several at once.

    Use it in a ``with`` or ``async with`` block, or close it. An open one is closed soon after it is collected, by
    another thread, so that its address may still be in use for a moment, and when the
    interpreter ends.

    :param max_streams: How many streams are served at once; 64 by default. One more is refused as busy, or waits for a
        place if it has a `deadline`. An eighth of the places, but at most 64, is only for processes of the server's own
        user, over shm.
    :param max_providers: How many streams functions may serve at once, including streams whose clients have gone; by
        default `max_streams` and 64 more. A function that waits should also wait for :attr:`Request.cancel_fd`.
    :param max_region_bytes: The most shared memory for copies, including copies that clients keep; 16 GiB by default.
        The memory of an arena does not count.
    :param region_bytes: The size of one piece of it; 64 MiB by default.
    :param region_idle: Seconds that an unused piece is kept; 10 by default.
    :param inline_bytes: Up to which size a body travels as bytes; 4096 by default.
    :param lent_limit_bytes: The most bytes of copies lent to one connection; 1 GiB by default.
    :param authorizer: Decides about each request before anything is done for it: a function of the :class:`Request`,
        called on threads of this package, also several at once. It returns None or a name for the client, which
        handlers see as :attr:`Request.principal`, or raises an exception that refuses the request: PermissionError, or
        another :class:`DipcError`, whose status and text the client gets; any other exception refuses too, with its
        text. A coroutine function decides on the running loop, without a thread. For a list or a description it is also
        called for each ticket that the answer would show, with the verb ``Verb.GET``. By default whoever can connect
        may do everything.
    :param max_connections: How many connections the server keeps; by default as many as take half of the files that the
        process may open: a connection over shm takes two, one over tcp a file for each socket. One more client is
        refused as busy.
    :param max_connections_per_peer: How many connections one other machine or user may have; half of `max_connections`
    by default.
    :param max_streams_per_peer: How many streams one other machine or user may have at once; half of `max_streams` by
        default.
    :param max_streams_per_connection: How many streams one connection carries at once, for clients that share
        connections; `max_streams` by default. With 1, each stream has a connection.
    :param max_request_bytes: The most memory of requests of more than 64 KiB that have come in part, of all clients
        together; 64 MiB by default.
    :param credit_timeout: Seconds that a stream may wait for its client to take batches while the server has no place
        for other clients; then the stream fails; 30 by default. ``math.inf``, here and below: no limit.
    :param handshake_timeout: Seconds for the handshake of tls, and until all connections of one stream have come; 10 by
        default.
    :param request_timeout: Seconds from a connection to the end of its first request; 30 by default.
    :param idle_timeout: Seconds, up to twice as many, that a connection is kept over which nothing is asked for; 600 by
        default.
    :param any_user: Admit clients of every user of this machine, not only of the user that runs this process.
    :param allow_remote: Let `listen` take tcp addresses that other machines can reach: there is neither
        encryption nor authentication.
    :param trusted_network: Let `listen` take ucx addresses: every process that can reach one can read and
        write this process's memory.
    :param tls: Paths of the server's certificate and of its key, in PEM, for addresses that begin with tls://.
    :param tls_client_ca: Path of authorities, in PEM: tls clients must have a certificate of one of them.
    :param spin: Seconds that the I/O thread looks for work before it sleeps; 0 by default.
    :param transport: Options of single transports, such as ``{"ucx.TLS": "tcp"}``.
    :param body: "auto", "packed" (bodies are always sent as bytes) or "lent" (wherever possible).
    :param compression: "none", "lz4" or "zstd"; compressed bodies travel as bytes.
    """

    def __init__(
        self,
        *,
        max_streams: int | None = None,
        max_providers: int | None = None,
        authorizer: Authorizer | None = None,
        max_connections: int | None = None,
        max_connections_per_peer: int | None = None,
        max_streams_per_peer: int | None = None,
        max_streams_per_connection: int | None = None,
        max_request_bytes: int | None = None,
        credit_timeout: float | None = None,
        handshake_timeout: float | None = None,
        request_timeout: float | None = None,
        idle_timeout: float | None = None,
        max_region_bytes: int | None = None,
        region_bytes: int | None = None,
        region_idle: float | None = None,
        inline_bytes: int | None = None,
        lent_limit_bytes: int | None = None,
        any_user: bool = False,
        allow_remote: bool = False,
        trusted_network: bool = False,
        tls: tuple[Path, Path] | None = None,
        tls_client_ca: Path | None = None,
        spin: float | None = None,
        transport: Mapping[str, str] | None = None,
        body: Body = "auto",
        compression: Compression = "none",
    ) -> None:
        _log.refresh()
        decides = authorizer_of(authorizer)
        values: list[Setting] = [
            ("authorizer_pull", (authorizer is not None,)),
            ("any_user", (bool(any_user),)),
            ("allow_remote", (bool(allow_remote),)),
            ("trusted_network", (bool(trusted_network),)),
            ("body", (_arguments.choice(body, "body", BODIES),)),
            ("compression", (_arguments.choice(compression, "compression", COMPRESSIONS),)),
            *_arguments.some(
                {
                    "max_streams": max_streams,
                    "max_providers": max_providers,
                    "max_connections": max_connections,
                    "max_connections_per_peer": max_connections_per_peer,
                    "max_streams_per_peer": max_streams_per_peer,
                    "max_streams_per_connection": max_streams_per_connection,
                    "max_request_bytes": max_request_bytes,
                    "max_region_bytes": max_region_bytes,
                    "region_bytes": region_bytes,
                    "inline_bytes": inline_bytes,
                    "lent_limit_bytes": lent_limit_bytes,
                }
            ),
            *_arguments.some_seconds(
                {
                    "region_idle": region_idle,
                    "spin": spin,
                    "credit_timeout": credit_timeout,
                    "handshake_timeout": handshake_timeout,
                    "request_timeout": request_timeout,
                    "idle_timeout": idle_timeout,
                }
            ),
            *_arguments.files({"tls": tls, "tls_client_ca": tls_client_ca}),
            *_arguments.transport(transport or {}),
        ]
        with options("server_options", values, _checked, _plain("dipc_server_options_free")) as pointer:
            self._handle = make("server", _checked("dipc_server_new"), _plain("dipc_server_free"), pointer)
        self._pump = _serving.Pump(self._handle, decides)
        # Closes it when this object dies.
        self._life = _afterlife.when_dead(functools.partial(_shut, self._handle, self._pump))

    def listen(self, uri: str) -> str:
        """Listens at an address, as ``shm:@name``, and gives the URI for clients. May be called again."""
        with self._handle as server:
            return _library.text_of(_listen, server, _arguments.uri_bytes(uri))

    def listen_fd(self, scheme: str, fd: int) -> str:
        """Takes a socket that listens already, such as one from a service manager, and gives the URI.

        :param scheme: "shm" for a Unix stream socket, "tcp" or "tls" for a TCP socket.
        :param fd: the descriptor, which stays the caller's: the server has its own.
        """
        own = os.dup(fd)
        try:
            with self._handle as server:
                return _library.text_of(_listen_fd, server, scheme.encode(), own)
        except _errors.DipcError:
            # A call that fails has not taken the descriptor.
            os.close(own)
            raise

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests: it listens, and neither drains nor was closed.

        False, too, once the event loops of all coroutines that serve, or decide, are closed.
        """
        try:
            with self._handle as server:
                return bool(_is_ready(server)) and not self._pump.is_lost
        except _errors.DipcError:
            return False

    def drain(self, elsewhere: Sequence[str] = ()) -> None:
        """Refuses requests from now on, while streams under way go on. Then :meth:`close` it.

        :param elsewhere: URIs of servers where clients may ask instead, best first.
        """
        uris = _arguments.uris_bytes(elsewhere)
        with self._handle as server:
            _drain(server, (ctypes.c_char_p * len(uris))(*uris), len(uris))

    def reload_tls(self) -> None:
        """Reads the certificates again: new connections use them.

        :raises DipcError: if a file cannot be used; the server goes on with what it had.
        """
        with self._handle as server:
            _reload_tls(server)

    def location(self, role: Role = "both") -> str:
        """The URI of the first address, for one role: "both", "metadata" or "data"."""
        with self._handle as server:
            return _library.text_of(_location, server, _arguments.choice(role, "role", _ROLES))

    def serve(self, ticket: Ticket, obj: Any) -> None:
        """Serves a ticket from an object, or from what a function returns for each client.

        `obj` is a table, batch or stream of any library that speaks Arrow's PyCapsule interface, a list of
        such batches, or a function that returns one of these or is a generator of batches. A function is
        called for each client, without arguments or with the :class:`Request`, on a thread of its own: it
        may block. What it raises is the client's error, with its text.

        A coroutine function, or an async generator of batches, runs on the loop that runs now, as a task for each
        client, which is cancelled if the client goes. No thread has a part in it. It may also return a :class:`Reader`,
        or another async iterable of batches. Once the loop is closed, clients get StoppedError, including those in the
        middle of a stream.

        An object is asked for its batches anew for each client; a stream (such as a RecordBatchReader) therefore serves
        one client only. See :meth:`publish` for tables that many clients fetch.
        """
        ticket = _arguments.ticket_bytes(ticket)
        answers: _provider.Answers = {Verb.GET: _provider.provider(obj)}
        with self._handle as server:
            self._pump.add(ticket, lambda: _serve_pull(server, ticket, len(ticket)), answers)

    def publish(self, ticket: Ticket, obj: Any) -> None:
        """Serves a table that can be fetched any number of times, by many clients at once.

        Reads all of `obj` now, which holds its buffers, without copying them, until the ticket is withdrawn
        and the last client has given them back. No Python runs when a client fetches it.
        """
        self._put(_publish, ticket, obj)

    def replace(self, ticket: Ticket, obj: Any) -> None:
        """Like :meth:`publish`, but replaces what the ticket stood for, if anything.

        The ticket is known at every moment, and running streams go on with the old table. A function or table of
        :meth:`serve` that is replaced is held until the ticket is withdrawn, because a client may just have asked for
        it.
        """
        self._put(_replace, ticket, obj)

    def _put(self, put: Callable[..., int], ticket: Ticket, obj: Any) -> None:
        ticket = _arguments.ticket_bytes(ticket)
        source = _source.open_source(obj)
        batches: list[_abi.ArrowDeviceArray] = []
        arrays = None
        try:
            while (found := source.next()) is not None:
                batches.append(found[0])
            arrays = (_abi.ArrowDeviceArray * max(1, len(batches)))(*batches)
            with self._handle as server:
                put(
                    server, ticket, len(ticket), ctypes.addressof(source.schema), ctypes.addressof(arrays), len(batches)
                )
        finally:
            for index, batch in enumerate(batches):
                # Those that were moved say so in `arrays`, even if Ctrl-C came just then.
                if arrays is None or not _abi.is_released(arrays[index]):
                    _abi.release(batch)
            source.close()

    def set_handler(
        self,
        get: Callable[..., Any] | None = None,
        *,
        put: Callable[..., Any] | None = None,
        exchange: Callable[..., Any] | None = None,
        describe: Callable[..., Description] | None = None,
        list_tickets: Callable[..., Iterable[Endpoint]] | None = None,
    ) -> None:
        """Serves every ticket that is not served by itself: queries, commands, keys of partitions.

        The functions are called like those of :meth:`serve`, without arguments or with the :class:`Request`, whose
        ticket says what the client asks for. A handler set before is replaced, and its streams go on.

        Without any function there is no handler from now on.

        :param get: Gives the table, as a function of :meth:`serve`. Without it the client gets NotFoundError.
        :param put: Takes the table that a client sends, by :meth:`Request.source`, and returns None when it has read
            all of it: then the client's :func:`dipc.put` returns. What it raises is the client's error. A coroutine
            function runs on the loop that runs now. Without it the client gets UnsupportedError.
        :param exchange: Gives a table, as `get`, and takes one meanwhile, by :meth:`Request.source`, which is read to
            its end before the given one ends. Without it the client gets UnsupportedError.
        :param describe: Answers :func:`dipc.describe`. Without it the client gets UnsupportedError.
        :param list_tickets: Answers :func:`dipc.list_tickets` if no ticket of the server begins with
            the prefix, which is the request's ticket. Without it the client gets UnsupportedError.
        """
        answers = _provider.handler(get, describe, list_tickets, put, exchange)
        if not answers:
            with self._handle as server:
                _set_handler(server, None, None, None, 0)
            self._pump.remove(None)
            return
        with self._handle as server:
            self._pump.add(None, lambda: _set_handler_pull(server), answers)

    def set_description(self, ticket: Ticket, description: Description) -> None:
        """Says what a ticket of :meth:`serve` stands for, to clients that ask before they fetch.

        Without endpoints, the ticket itself is the only endpoint. Published tables need no such call.
        """
        ticket = _arguments.ticket_bytes(ticket)
        if not isinstance(description, Description):
            raise TypeError(f"a description is a dipc.Description, not {type(description).__name__}")
        with description.handle() as said, self._handle as server:
            _set_description(server, ticket, len(ticket), said)

    def withdraw(self, ticket: Ticket) -> None:
        """Stops serving a ticket. Streams under way go on."""
        ticket = _arguments.ticket_bytes(ticket)
        with self._handle as server:
            _withdraw(server, ticket, len(ticket))
        self._pump.remove(ticket)

    @property
    def tickets(self) -> list[bytes]:
        """The tickets served now, in byte order."""
        found: list[bytes] = []
        with self._handle as server:
            try:
                while True:
                    found.append(_library.bytes_of(_ticket, server, len(found), size=256))
            except _errors.NotFoundError:
                return found

    @property
    def stats(self) -> ServerStats:
        with self._handle as server:
            return ServerStats(
                *(_library.number_of(_stat, server, which) for which in range(1, len(ServerStats._fields) + 1))
            )

    @property
    def stats_text(self) -> str:
        """All figures, with their histograms and by label, in Prometheus' text format, version 0.0.4.

        A label is a ticket, or what :meth:`Request.set_label` says.
        """
        with self._handle as server:
            return _library.text_of(_stats_text, server, size=1 << 16)

    def stop(self, timeout: float = 10.0) -> None:
        """Takes no new clients, and waits for streams under way; after `timeout` seconds they are cut.

        Raises TimeoutError if a provider had still not returned a moment after the cut. Batches that
        clients hold stay valid.
        """
        _wait.call(self._prepare_stop(timeout), _nothing)

    async def astop(self, timeout: float = 10.0) -> None:
        """:meth:`stop` for coroutines.

        Use it if coroutines of the running loop serve tickets: :meth:`stop` would block their loop.
        """
        await _wait.acall(self._prepare_stop(timeout), _nothing)

    def _prepare_stop(self, timeout: float) -> Callable[[], None]:
        deadline = _arguments.nanoseconds(timeout, "timeout")

        def stop() -> None:
            with self._handle as server:
                _stop(server, deadline)

        self._pump.stop()
        return stop

    def close(self) -> None:
        """Stops at once, cutting streams under way, and releases everything. May be called again."""
        _wait.call(functools.partial(_shut, self._handle, self._pump), _nothing)

    async def aclose(self) -> None:
        """:meth:`close` for coroutines. When it returns, the coroutines that serve have ended."""
        await _wait.acall(functools.partial(_shut, self._handle, self._pump), _nothing)
        await self._pump.ended(_MOMENT)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _shut(handle: Handle, pump: _serving.Pump) -> None:
    """Closes a server, once."""
    try:
        pump.stop()
        pump.cut()
        with handle as server:
            _stop(server, 0)
    except (_errors.ForkedError, _errors.ClosedError):
        # The child of a fork has no server.
        return
    except _errors.TimeoutError:
        # A provider is still running: nobody gets what it sends.
        pass
    pump.join(_MOMENT)
    handle.close()


def _nothing() -> None:
    pass
