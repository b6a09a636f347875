"""What a client asks for, as a provider or a handler sees it."""

from __future__ import annotations

import builtins
import ctypes
import enum
import functools
import logging
import traceback
from collections.abc import Awaitable
from ctypes import c_int32, c_void_p
from typing import Any, Callable, NamedTuple

from . import _abi, _arguments, _errors, _headers, _library, _log, _wait
from ._arguments import FOREVER
from ._handle import Handle
from ._headers import Headers, HeadersLike
from ._reader import Reader
from ._schema import Schema
from ._stream import Stream, is_foreign

log = logging.getLogger("dipc")

_checked, _plain = _library.checked, _library.plain
_ticket, _peer = _checked("dipc_request_ticket"), _checked("dipc_request_peer")
_peer_transport, _peer_address = _checked("dipc_request_peer_transport"), _checked("dipc_request_peer_address")
_peer_id, _peer_certificate = _plain("dipc_request_peer_id"), _checked("dipc_request_peer_certificate")
_principal, _set_principal = _checked("dipc_request_principal"), _checked("dipc_request_set_principal")
_is_undecided, _allow = _plain("dipc_request_is_undecided"), _checked("dipc_request_allow")
_fail, _cancel_fd = _checked("dipc_request_fail"), _checked("dipc_request_cancel_fd")
_verb, _time_left = _plain("dipc_request_verb"), _plain("dipc_request_time_left_ns")
_request_headers, _add_headers = _checked("dipc_request_headers"), _checked("dipc_request_add_headers")
_source_schema, _source = _checked("dipc_request_source_schema"), _checked("dipc_request_source")
_result, _set_label = _checked("dipc_request_result"), _checked("dipc_request_set_label")
_selects_columns, _column_count = _plain("dipc_request_selects_columns"), _plain("dipc_request_column_count")
_column, _take_selection = _checked("dipc_request_column"), _checked("dipc_request_take_selection")
_filter = _checked("dipc_request_filter")
_first_row, _rows = _plain("dipc_request_first_row"), _plain("dipc_request_rows")
_is_cancelled, _request_free = _plain("dipc_request_is_cancelled"), _plain("dipc_request_free")


class Verb(enum.IntEnum):
    """What a client wants with a ticket: DIPC_VERB_* of dipc.h that a server answers."""

    GET = 1
    PUT = 2
    EXCHANGE = 3
    DESCRIBE = 4
    LIST = 5


class Certificate(NamedTuple):
    """Whom a client's certificate names; an authority that the server trusts has signed it."""

    subject: str
    """As in "CN=alice, O=Example"."""
    names: list[str]
    """Alternative names, each after its kind: "DNS:a.example", "IP:10.0.0.7", "URI:spiffe://example/a"."""
    fingerprint: str
    """SHA-256, in lower-case hexadecimal digits."""


class Peer(NamedTuple):
    """Who asks, as the system told when the client connected; as text, a line for logs: "pid 4711, uid 1000"."""

    transport: str
    """The transport by which the client came: "shm", "tls", "tcp" or "ucx"."""
    pid: int | None
    """Number of the client's process. 0 where it has none in this process's namespace.

    This and the next two are None over a network, which does not name processes."""
    uid: int | None
    """Number of the process's user."""
    gid: int | None
    """Number of the process's group."""
    address: str | None
    """The client's address, as "10.0.0.7:40112"; None over shm. A port does not show which user the client is."""
    text: str
    """A line for logs."""
    certificate: Certificate | None = None
    """The certificate that the client has shown over tls."""

    def __str__(self) -> str:
        return self.text


_PEER_IDS = (1, 2, 3)  # DIPC_PEER_PID, _UID and _GID


def _peer_of(request: c_void_p) -> Peer:
    ids = (_peer_id(request, which) for which in _PEER_IDS)
    pid, uid, gid = (None if number < 0 else number for number in ids)
    try:
        address = _library.text_of(_peer_address, request)
    except _errors.NotFoundError:
        address = None
    transport, text = _library.text_of(_peer_transport, request), _library.text_of(_peer, request)
    return Peer(transport, pid, uid, gid, address, text, _certificate_of(request) if transport == "tls" else None)


def _certificate_of(request: c_void_p) -> Certificate | None:
    try:
        # DIPC_CERTIFICATE_SUBJECT, _NAMES and _FINGERPRINT.
        subject, names, fingerprint = (_library.text_of(_peer_certificate, request, which) for which in (1, 2, 3))
    except _errors.NotFoundError:
        return None
    return Certificate(subject, names.split(", ") if names else [], fingerprint)


class Request:
    """A stream that a client asks for, or a table that it sends, as a provider, a handler or an authorizer sees it."""

    def __init__(self, pointer: c_void_p) -> None:
        self.handle: Handle = Handle("request", pointer, _request_free)
        self._ticket = _library.bytes_of(_ticket, pointer, size=256)
        self.verb: Verb = Verb(_verb(pointer))
        """What the client wants."""
        self._reader: Reader | None = None

    def close(self) -> None:
        """For this package: ends the request, which is answered."""
        if self._reader is not None:
            # The client's next request on this connection waits for this.
            self._reader.close()
        self.handle.close()

    @property
    def ticket(self) -> bytes:
        """What the client asks for."""
        return self._ticket

    @functools.cached_property
    def headers(self) -> Headers:
        """Headers that came with the request."""
        with self.handle as pointer:
            return _headers.read(_request_headers, pointer)

    def add_headers(self, headers: HeadersLike) -> None:
        """Adds headers to the answer, 32 KiB in all: :attr:`Reader.headers` at the client.

        Headers that are added before the first batch go with the schema; later ones go with a failure. A client whose
        stream fails before its schema has no reader, and gets none.
        """
        with Headers(headers).handle() as added, self.handle as pointer:
            _add_headers(pointer, added)

    def set_label(self, label: str) -> None:
        """Makes :attr:`Server.stats_text` count the request under `label`, 1 to 128 bytes.

        Call it before the stream begins. Otherwise the label is the ticket, or "(handler)" for what a handler
        serves. Choose few: each label has figures of its own.
        """
        with self.handle as pointer:
            _set_label(pointer, label.encode())

    def source_schema(self) -> Schema:
        """The schema of the table that the client sends, before :meth:`source` accepts the table."""
        struct = _abi.ArrowSchema()
        with self.handle as pointer:
            _source_schema(pointer, ctypes.addressof(struct))
        return Schema(struct)

    async def asource_schema(self) -> Schema:
        """:meth:`source_schema` for coroutines."""
        return await _wait.acall(self.source_schema, _nothing)

    def source(self) -> Reader:
        """Accepts the table that the client sends, and gives it: from now on batches come, as fast as they are read.

        Read it to its end: leaving it earlier fails the table for the client. If the client leaves or fails the table,
        the reader raises an exception and never ends normally. Batches stay valid when request and client are gone.
        """
        struct = _abi.ArrowDeviceArrayStream()
        with self.handle as pointer:
            _source(pointer, ctypes.addressof(struct))
        stream = Stream(struct, _Refusal(self), 0.0, is_cancelled_by_close=False, is_foreign=is_foreign(struct))
        self._reader = Reader(stream)
        return self._reader

    async def asource(self) -> Reader:
        """:meth:`source` for coroutines."""
        return await _wait.acall(self.source, _nothing)

    def result(self, batches: int, data: _arguments.Data = b"") -> None:
        """Tells the client that a part of its table is safe, whatever happens to the rest: :class:`Result` there.

        :param batches: The number of safe batches, from the first on.
        :param data: For the client's program, at most 32 KiB.
        """
        batches, data = _arguments.count(batches, "batches"), _arguments.data_bytes(data, "data")
        with self.handle as pointer:
            _result(pointer, batches, data, len(data))

    @property
    def time_left(self) -> float | None:
        """Seconds that the client still waits for the stream's end, 0 once they have passed.

        None if it has set no deadline.
        """
        with self.handle as pointer:
            left: int = _time_left(pointer)
        return None if left == FOREVER else left / 1e9

    @functools.cached_property
    def columns(self) -> list[str] | None:
        """The columns that the client wants, in its order; None: all.

        A provider gives the whole table, and the library selects from it without a copy. A provider that can read less
        calls :meth:`take_selection`.
        """
        with self.handle as pointer:
            if not _selects_columns(pointer):
                return None
            return [_library.text_of(_column, pointer, index) for index in range(_column_count(pointer))]

    @functools.cached_property
    def filter(self) -> bytes | None:
        """The filter that rows must pass; None: all rows pass.

        A ``substrait.ExtendedExpression``, which is not checked yet. The library filters what a provider gives. A
        provider that can read less calls :meth:`take_selection`; ``pyarrow.compute.Expression.from_substrait`` reads
        the filter.
        """
        with self.handle as pointer:
            return _library.bytes_of(_filter, pointer, size=1024) or None

    @functools.cached_property
    def first_row(self) -> int:
        """The first row that the client wants, counting from 0 those that pass :attr:`filter`."""
        with self.handle as pointer:
            first: int = _first_row(pointer)
        return first

    @functools.cached_property
    def rows(self) -> int | None:
        """How many rows the client wants, if there are as many; None: all up to the end."""
        with self.handle as pointer:
            rows: int = _rows(pointer)
        return None if rows == FOREVER else rows

    def take_selection(self) -> None:
        """Says that the provider itself selects: it gives only :attr:`columns`, in their order, and only the wanted
        rows.

        The order is: first :attr:`filter`, which may read other columns; then the range of rows; then the columns.

        :raises InvalidArgumentError: the stream has begun.
        """
        with self.handle as pointer:
            _take_selection(pointer)

    @functools.cached_property
    def peer(self) -> Peer:
        """Who asks."""
        with self.handle as pointer:
            return _peer_of(pointer)

    @functools.cached_property
    def principal(self) -> str | None:
        """The name that the server's authorizer has given the client; None if it has given none."""
        try:
            with self.handle as pointer:
                return _library.text_of(_principal, pointer)
        except _errors.NotFoundError:
            return None

    @property
    def undecided(self) -> bool:
        """For this package: whether the authorizer is to be asked."""
        with self.handle as pointer:
            return bool(_is_undecided(pointer))

    def allow(self, principal: Any) -> None:
        """For this package: the authorizer's consent, with the name that it gave. TypeError: the name is none."""
        name = None if principal is None else _arguments.text_bytes(principal, "a principal")
        with self.handle as pointer:
            if name is not None:
                _set_principal(pointer, name)
            _allow(pointer)

    @property
    def cancelled(self) -> bool:
        """Whether the client has gone or has cancelled, so that more batches are of no use."""
        try:
            with self.handle as pointer:
                return bool(_is_cancelled(pointer))
        except (_errors.ClosedError, _errors.ForkedError):
            return True

    @property
    def cancel_fd(self) -> int:
        """A descriptor that is readable once :attr:`cancelled` is true, for ``select`` and the like.

        The request owns it: do not close it or read from it. It is closed when the stream is over.
        """
        out = c_int32()
        with self.handle as pointer:
            _cancel_fd(pointer, ctypes.byref(out))
        return out.value


class _Refusal:
    """Ends a client's table by failing its request."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def trigger(self) -> None:
        try:
            with self._request.handle as pointer:
                tell(pointer, _errors.CancelledError("the server's host has cancelled the table"))
        except (_errors.ClosedError, _errors.ForkedError):
            # It is over.
            pass


def _nothing() -> None:
    pass


def text_of(error: BaseException) -> str:
    """The text of an exception for the client: for one of ours its text, for others type and text."""
    if isinstance(error, _errors.DipcError):
        return error.text
    lines = traceback.format_exception_only(type(error), error)
    return " ".join("".join(lines).split("\n")).strip().replace("\0", "\\0")


def tell(request: c_void_p, error: BaseException) -> None:
    """Gives the client an exception as the reason why its stream ends."""
    status = error.status if isinstance(error, _errors.DipcError) else _errors.Status.PROVIDER
    # Text with lone surrogates is not UTF-8.
    _fail(request, status, text_of(error).encode(errors="replace"))


_ANSWERS = (
    _errors.AlreadyExistsError, _errors.BusyError, _errors.InvalidArgumentError, _errors.NotFoundError,
    _errors.PermissionError, _errors.UnsupportedError,
)  # fmt: skip
"""Exceptions that a host raises as its answer to a request, rather than because of a fault of its own."""
_answers, _stops = _log.Lines(), _log.Lines()


def log_failure(request: Request, error: BaseException) -> None:
    """Logs why a request fails: an answer in one line, a fault of the host with its stack."""
    said = (request.ticket, text_of(error))
    if isinstance(error, _ANSWERS) and not isinstance(error, _errors.ClosedError):
        _answers.say(logging.INFO, "ticket %s is refused: %s", *said)
    elif isinstance(error, (_errors.OutOfResourcesError, _errors.StoppedError)):
        _stops.say(logging.WARNING, "ticket %s is refused: %s", *said)
    else:
        log.error("the provider of ticket %s failed", request.ticket, exc_info=error)


def refuse(request: Request, error: BaseException) -> None:
    """Refuses a request that is to be decided. An exception that is not ours gets the status of a refusal."""
    if not isinstance(error, _errors.DipcError):
        error = _errors.PermissionError(str(error) if isinstance(error, builtins.PermissionError) else text_of(error))
    with request.handle as pointer:
        tell(pointer, error)


def refuse_for(request: Request, error: BaseException) -> None:
    """Refuses a request because its authorizer raised an exception. Logs the exception if it is no answer."""
    if not isinstance(error, (_errors.DipcError, builtins.PermissionError)):
        log.error("the authorizer failed; the request for ticket %s is refused", request.ticket, exc_info=error)
    refuse(request, error)


Authorizer = Callable[[Request], "str | Awaitable[str | None] | None"]
"""Decides about a request: raises what refuses it, or returns the client's name or None."""


class ClientGoneError(Exception):
    """The stream ended at the other side. Not to be mixed up with the same errors of a provider that itself fetches."""


def send(call: Callable[..., int], *arguments: Any) -> None:
    """A call that sends to the client."""
    try:
        call(*arguments)
    except (_errors.CancelledError, _errors.DisconnectedError, _errors.StoppedError) as error:
        raise ClientGoneError from error
