"""How a server's tickets are served from Python.

The library's pull form is used: threads of this package take requests, run the provider, and push its
batches; the library never calls into Python. A provider may block, or fetch from its own server. And
when the interpreter ends no thread of the library can be inside it: a thread with frames of the library
below Python's would be torn down with them.

Arrays that clients have given back are released here too, for their memory may belong to Python.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import inspect
import logging
import threading
import traceback
from ctypes import c_int32, c_size_t, c_void_p
from typing import Any, Callable, NamedTuple

from . import _abi, _errors, _headers, _library, _native, _source, _wait
from ._arguments import FOREVER
from ._cancel import Token
from ._description import Description
from ._handle import Handle
from ._headers import Headers, HeadersLike

log = logging.getLogger("dipc")

Provider = Callable[["Request"], Any]

_checked, _plain = _library.checked, _library.plain
_next_request, _drain = _checked("dipc_server_next_request"), _checked("dipc_server_drain_releases")
_stat = _checked("dipc_server_stat")
_ticket, _peer = _checked("dipc_request_ticket"), _checked("dipc_request_peer")
_peer_transport, _peer_address = _checked("dipc_request_peer_transport"), _checked("dipc_request_peer_address")
_peer_id = _plain("dipc_request_peer_id")
_start, _push = _checked("dipc_request_start"), _checked("dipc_request_push")
_finish, _fail = _checked("dipc_request_finish"), _checked("dipc_request_fail")
_cancel_fd = _checked("dipc_request_cancel_fd")
_verb, _time_left = _plain("dipc_request_verb"), _plain("dipc_request_time_left_ns")
_request_headers, _add_headers = _checked("dipc_request_headers"), _checked("dipc_request_add_headers")
_is_cancelled, _request_free = _plain("dipc_request_is_cancelled"), _plain("dipc_request_free")

_LENT_OUTSTANDING = 8  # DIPC_SERVER_STAT_LENT_OUTSTANDING
_DRAIN_NS = 20_000_000
"""While clients hold memory, how long what they give back waits to be released."""


class Verb(enum.IntEnum):
    """What a client wants with a ticket: DIPC_VERB_* of dipc.h that a server answers."""

    GET = 1
    DESCRIBE = 4
    LIST = 5


class Peer(NamedTuple):
    """Who asks, as the system told when the client connected; as text, a line for logs: "pid 4711, uid 1000"."""

    transport: str
    """By which the client came: "shm", "tcp" or "ucx"."""
    pid: int | None
    """Number of the client's process. 0 where it has none in this process's namespace.

    It and the two below are None over tcp and ucx, which do not tell."""
    uid: int | None
    """Number of the process's user."""
    gid: int | None
    """Number of the process's group."""
    address: str | None
    """The client's address, as "10.0.0.7:40112"; None over shm. A port says nothing of the user behind it."""
    text: str
    """A line for logs."""

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
    return Peer(_library.text_of(_peer_transport, request), pid, uid, gid, address, _library.text_of(_peer, request))


class Request:
    """A stream that a client asks for, as a provider or a handler sees it."""

    def __init__(self, pointer: c_void_p) -> None:
        self.handle = Handle("request", pointer, _request_free)
        self._ticket = _library.bytes_of(_ticket, pointer, size=256)
        self.verb: int = _verb(pointer)
        """For this package: a :class:`Verb`."""

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

        The client gets those with the schema that are added before the first batch; later ones go with a
        failure. One that fails before its schema has no reader, and gets none.
        """
        with Headers(headers).handle() as added, self.handle as pointer:
            _add_headers(pointer, added)

    @property
    def time_left(self) -> float | None:
        """Seconds that the client still waits for the stream's end, 0 once they have passed.

        None where it has set no deadline.
        """
        with self.handle as pointer:
            left: int = _time_left(pointer)
        return None if left == FOREVER else left / 1e9

    @functools.cached_property
    def peer(self) -> Peer:
        """Who asks."""
        with self.handle as pointer:
            return _peer_of(pointer)

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

        It is the request's: not to be closed or read from, and gone when the stream is over.
        """
        out = c_int32()
        with self.handle as pointer:
            _cancel_fd(pointer, ctypes.byref(out))
        return out.value


def provider(obj: Any) -> Provider:
    """What a ticket is served from, as a function of the request.

    Raises TypeError for what cannot be served, so that it is found where it is written.
    """
    if _source.is_arrow(obj):
        return _Once(obj) if _source.is_read_once(obj) else lambda _request: obj
    if callable(obj):
        try:
            signature = inspect.signature(obj)
        except (TypeError, ValueError):
            # Functions of C may have none; they are taken to need nothing.
            return lambda _request: obj()
        if _binds(signature):
            return lambda _request: obj()
        if _binds(signature, None):
            return obj  # type: ignore[no-any-return]
        raise TypeError(f"the provider {obj!r} must take no argument or one, the request; it takes {signature}")
    if isinstance(obj, (list, tuple)) and all(_source.is_arrow(batch) for batch in obj):
        return lambda _request: obj
    raise TypeError(f"cannot serve {type(obj).__name__}: give {_source.KINDS}, or a function that returns one of these")


def handler(get: Any, describe: Any, list_tickets: Any) -> Provider:
    """What serves every ticket that has nothing of its own, by a function for each verb, or None."""
    functions = {Verb.GET: get, Verb.DESCRIBE: describe, Verb.LIST: list_tickets}
    for function in functions.values():
        if function is not None and (_source.is_arrow(function) or not callable(function)):
            raise TypeError(f"a handler is a function of the request, not {type(function).__name__}")
    answers: dict[int, Provider] = {
        verb: provider(function) for verb, function in functions.items() if function is not None
    }

    def handle(request: Request) -> Any:
        answer = answers.get(request.verb)
        if answer is None:
            raise _errors.UnsupportedError("the server says nothing of this ticket but its table")
        return answer(request)

    return handle


def _answer(request: Request, given: Any) -> _source.Source:
    """What a provider or handler gave, as batches."""
    if request.verb == Verb.GET:
        return _source.open_source(given)
    if request.verb == Verb.LIST:
        given = Description(endpoints=given)
    if not isinstance(given, Description):
        raise TypeError(f"a ticket is described by a dipc.Description, not {type(given).__name__}")
    return _source.StreamSource(given.to_stream())


class _Once:
    """A stream, for the first client."""

    def __init__(self, stream: Any) -> None:
        self._streams = [stream]

    def __call__(self, _request: Request) -> Any:
        try:
            return self._streams.pop()
        except IndexError:
            raise _errors.ProviderError(
                "the ticket is served from a stream, which an earlier client has read: "
                "serve a table, or a function that makes the stream anew"
            ) from None


def _binds(signature: inspect.Signature, *arguments: object) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def text_of(error: BaseException) -> str:
    """An exception as the client reads it: the words of ours, type and words of others."""
    if isinstance(error, _errors.DipcError):
        return error.text
    lines = traceback.format_exception_only(type(error), error)
    return " ".join("".join(lines).split("\n")).strip().replace("\0", "\\0")


class Pump:
    """The threads behind one server: one that takes requests, and one for each stream under way."""

    def __init__(self, server: Handle) -> None:
        self._server = server
        self._token = Token()
        # By ticket; None: the handler of every other ticket.
        self._providers: dict[bytes | None, Provider] = {}
        self._condition = threading.Condition()
        self._running = 0
        self._started = False

    def add(self, ticket: bytes | None, serve: Callable[[], object], provide: Provider) -> None:
        """Serves a ticket, or every other one: calls `serve`, which tells the library."""
        with self._condition:
            before = self._providers.get(ticket)
            # First here, for a client may ask as soon as the library knows.
            self._providers[ticket] = provide
            try:
                serve()
            except BaseException:
                if before is None:
                    del self._providers[ticket]
                else:
                    self._providers[ticket] = before
                raise
            if not self._started:
                self._started = True
                self._begin(self._take_requests)

    def remove(self, ticket: bytes | None) -> None:
        with self._condition:
            self._providers.pop(ticket, None)

    def stop(self) -> None:
        """No more requests are taken."""
        self._token.trigger()

    def join(self, timeout: float) -> bool:
        """Waits for the threads, but for the calling one. False where a provider has not returned in time."""
        mine = 1 if getattr(_current, "pump", None) is self else 0
        with self._condition:
            return self._condition.wait_for(lambda: self._running <= mine, timeout)

    def _begin(self, work: Callable[[], None]) -> None:
        def run() -> None:
            _current.pump = self
            try:
                work()
            except Exception:
                log.exception("a thread that serves tickets failed")

        def done() -> None:
            _current.pump = None
            with self._condition:
                self._running -= 1
                self._condition.notify_all()

        with self._condition:
            self._running += 1
        try:
            _wait.start(run, done)
        except BaseException:
            with self._condition:
                self._running -= 1
            raise

    def _take_requests(self) -> None:
        try:
            with self._server as server, self._token.handle as cancel:
                while True:
                    lent = _library.number_of(_stat, server, _LENT_OUTSTANDING)
                    self._drain(server)
                    pointer = c_void_p()
                    timeout = _DRAIN_NS if lent else FOREVER
                    if _next_request(server, timeout, cancel, ctypes.byref(pointer)) == 0:
                        self._accept(Request(pointer))
        except (_errors.CancelledError, _errors.StoppedError, _errors.ClosedError):
            pass

    def _accept(self, request: Request) -> None:
        """Serves a request on a thread of its own."""
        try:
            self._begin(functools.partial(self._serve, request))
        except RuntimeError as error:
            log.warning("ticket %s is refused: %s", request.ticket, error)
            with request.handle as pointer:
                _tell(pointer, _errors.OutOfResourcesError(f"the server cannot start a thread: {error}"))

    @staticmethod
    def _drain(server: c_void_p) -> None:
        _drain(server, ctypes.byref(c_size_t()))

    def _serve(self, request: Request) -> None:
        """One stream, from the provider's call to its end."""
        try:
            with request.handle as pointer:
                try:
                    self._send(request, pointer)
                except _ClientGoneError:
                    log.debug("%s: the client is gone (%s)", request.ticket, request.peer)
                except BaseException as error:
                    log.exception("the provider of ticket %s failed", request.ticket)
                    _tell(pointer, error)
        finally:
            request.handle.close()
            try:
                with self._server as server:
                    self._drain(server)
            except _errors.DipcError:
                # Closed meanwhile, which drained.
                pass

    def _send(self, request: Request, pointer: c_void_p) -> None:
        with self._condition:
            # The library itself describes and lists tickets, but for those of the handler.
            own = request.ticket if request.verb == Verb.GET else None
            provide = self._providers.get(own, self._providers.get(None))
        if provide is None:
            raise _errors.NotFoundError("the ticket was withdrawn")
        source = _answer(request, provide(request))
        try:
            if isinstance(source, _source.StreamSource):
                _send_stream(pointer, source)
            else:
                _send_batches(pointer, source)
        finally:
            source.close()


def _send_stream(request: c_void_p, source: _source.StreamSource) -> None:
    """Sends a C stream whole, without the GIL.

    A busy interpreter does not slow it down, and a client in this process that holds the GIL while it waits
    for the stream, as some libraries do, still gets it.
    """
    error, status = c_void_p(), c_int32()
    schema, stream = ctypes.addressof(source.schema), ctypes.addressof(source.stream)
    outcome = _native.send(request, schema, stream, ctypes.byref(status), ctypes.byref(error))
    if outcome == 1:
        raise source.failure()
    if outcome == 2:
        _client(_raise, _library.raised(error, status.value))


def _raise(error: BaseException) -> int:
    raise error


def _send_batches(request: c_void_p, source: _source.Source) -> None:
    """Sends batches one by one, as Python gives them."""
    _client(_start, request, ctypes.addressof(source.schema), source.device_type)
    while (found := source.next()) is not None:
        batch, metadata = found
        try:
            _client(_push, request, ctypes.addressof(batch), metadata or None, len(metadata), FOREVER)
        finally:
            # Nothing, where it was pushed.
            _abi.release(batch)
    _client(_finish, request, FOREVER)


def _tell(request: c_void_p, error: BaseException) -> None:
    """Gives the client an exception as the reason why its stream ends."""
    status = error.status if isinstance(error, _errors.DipcError) else _errors.Status.PROVIDER
    # Text with lone surrogates is no UTF-8.
    _fail(request, status, text_of(error).encode(errors="replace"))


class _ClientGoneError(Exception):
    """The stream ended at the other side. Apart from the same errors of a provider that fetches itself."""


_current = threading.local()


def _client(call: Callable[..., int], *arguments: Any) -> None:
    """A call that sends to the client."""
    try:
        call(*arguments)
    except (_errors.CancelledError, _errors.DisconnectedError, _errors.StoppedError) as error:
        raise _ClientGoneError from error
