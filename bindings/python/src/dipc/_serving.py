"""How a server's tickets are served from Python.

The library's pull form is used: threads of this package take requests, run the provider, and push its batches; the
library never calls into Python. A provider may block, or fetch from its own server. And when the interpreter ends no
thread of the library can be inside it: a thread that has frames of the library below Python's would be destroyed in the
middle of them. Coroutines serve on their loop instead (see _coroutines.py).

Arrays that clients have given back are released here too, because their memory may belong to Python.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
from ctypes import c_int32, c_size_t, c_void_p
from typing import Callable

from . import _abi, _errors, _library, _native, _source, _wait
from ._arguments import FOREVER
from ._cancel import Token
from ._coroutines import Coroutines
from ._handle import Handle
from ._provider import Answers, OnLoop, Provider, answer, ensure_nothing
from ._request import Authorizer, ClientGoneError, Request, Verb, log_failure, refuse_for, send, tell

log = logging.getLogger("dipc")

_checked = _library.checked
_next_request, _drain = _checked("dipc_server_next_request"), _checked("dipc_server_drain_releases")
_stat = _checked("dipc_server_stat")
_start, _push, _finish = _checked("dipc_request_start"), _checked("dipc_request_push"), _checked("dipc_request_finish")
_is_complete = _library.plain("dipc_request_is_complete")

_LENT_OUTSTANDING = 8  # DIPC_SERVER_STAT_LENT_OUTSTANDING
_DRAIN_NS = 20_000_000
"""While clients hold memory: how long memory that they have given back waits until it is released."""
_LATER_NS = 1_000_000_000
"""The same if nothing is known to be held: a stream under way may lend something, and memory of a GPU is kept until
the process of a client that left has ended."""


class Pump:
    """The threads behind one server: one that takes requests, and one for each stream under way.

    If coroutines serve, their loop takes requests too. Tickets that they alone serve have no thread, until their
    loop is closed.
    """

    def __init__(self, server: Handle, authorizer: Authorizer | OnLoop | None = None) -> None:
        self._server = server
        self._authorizer = authorizer
        self._token = Token()
        # The key is the ticket; None: the handler of every other ticket.
        self._answers: dict[bytes | None, Answers] = {}
        self._coroutines = Coroutines(server, self._accept, self._start)
        self._condition = threading.Condition()
        self._running = 0
        # Clients of published tables wait for the decision too, so requests must be taken.
        self._started = authorizer is not None and not isinstance(authorizer, OnLoop)
        if isinstance(authorizer, OnLoop):
            self._coroutines.watch(authorizer.loop)
        elif self._started:
            self._begin(self._take_requests)

    def _start(self) -> None:
        """Starts the thread that takes requests, unless there is one."""
        with self._condition:
            if not self._started:
                self._started = True
                self._begin(self._take_requests)

    def add(self, ticket: bytes | None, serve: Callable[[], object], answers: Answers) -> None:
        """Serves a ticket, or every other one: calls `serve`, which tells the library."""
        with self._condition:
            before = self._answers.get(ticket)
            # Recorded here first, because a client may ask as soon as the library knows the ticket.
            self._answers[ticket] = answers
            try:
                serve()
            except BaseException:
                if before is None:
                    del self._answers[ticket]
                else:
                    self._answers[ticket] = before
                raise
            loops = [provide.loop for provide in answers.values() if isinstance(provide, OnLoop)]
            if loops:
                self._coroutines.watch(loops[0])
            if len(loops) < len(answers):
                self._start()

    def remove(self, ticket: bytes | None) -> None:
        with self._condition:
            self._answers.pop(ticket, None)

    @property
    def is_lost(self) -> bool:
        """Whether the server can serve nothing: every loop of its coroutines, or the authorizer's loop, is closed."""
        with self._condition:
            providers = [provide for answers in self._answers.values() for provide in answers.values()]
        return _is_closed(self._authorizer) or (bool(providers) and all(map(_is_closed, providers)))

    def stop(self) -> None:
        """No more requests are taken."""
        with self._condition:
            # A loop that is closed later needs no thread.
            self._started = True
        self._token.trigger()
        self._coroutines.stop()

    def cut(self) -> None:
        """Ends the streams that coroutines serve: their loop may not run any more, and so not see the end."""
        self._coroutines.cut()

    async def ended(self, timeout: float) -> None:
        """Waits for the coroutines of the running loop that serve."""
        await self._coroutines.ended(timeout)

    def join(self, timeout: float) -> bool:
        """Waits for the threads, except the calling one. False if a provider has not returned in time."""
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
                otherwise = FOREVER
                while True:
                    lent = _library.number_of(_stat, server, _LENT_OUTSTANDING)
                    self._drain(server)
                    pointer = c_void_p()
                    timeout = _DRAIN_NS if lent else otherwise
                    if _next_request(server, timeout, cancel, ctypes.byref(pointer)) == 0:
                        otherwise = _LATER_NS
                        self._accept(Request(pointer))
        except (_errors.CancelledError, _errors.StoppedError, _errors.ClosedError):
            pass

    def _accept(self, request: Request) -> None:
        """Decides about a request, or serves it: on a thread of its own, or on a loop."""
        try:
            if self._authorizer is not None and request.undecided:
                if isinstance(self._authorizer, OnLoop):
                    self._coroutines.decide(request, self._authorizer)
                else:
                    self._begin(functools.partial(self._decide, request, self._authorizer))
                return
            provide = self._find(request)
            if isinstance(provide, OnLoop):
                self._coroutines.start(request, provide)
            else:
                self._begin(functools.partial(self._serve, request, provide))
        except (RuntimeError, _errors.DipcError) as error:
            if not isinstance(error, _errors.DipcError):
                error = _errors.OutOfResourcesError(f"the server cannot start a thread: {error}")
            log_failure(request, error)
            with request.handle as pointer:
                tell(pointer, error)
            request.close()

    @staticmethod
    def _decide(request: Request, authorizer: Authorizer) -> None:
        """Asks the host whether the client may do what it asks for."""
        try:
            # A coroutine here comes from a function that is not declared as one: allow() raises for it.
            request.allow(authorizer(request))
        except BaseException as error:  # noqa: BLE001  refuse_for() logs it
            refuse_for(request, error)
        finally:
            request.close()

    def _find(self, request: Request) -> Provider:
        with self._condition:
            # The library itself describes and lists tickets, except those of the handler.
            own = request.ticket if request.verb == Verb.GET else None
            answers = self._answers.get(own, self._answers.get(None))
        if answers is None:
            raise _errors.NotFoundError("the ticket was withdrawn")
        if request.verb not in answers:
            raise _missing(request)
        return answers[request.verb]

    @staticmethod
    def _drain(server: c_void_p) -> None:
        _drain(server, ctypes.byref(c_size_t()))

    def _serve(self, request: Request, provide: Provider) -> None:
        """One stream, from the provider's call to its end."""
        try:
            with request.handle as pointer:
                try:
                    self._send(request, pointer, provide)
                except ClientGoneError:
                    log.debug("%s: the client is gone (%s)", request.ticket, request.peer)
                except BaseException as error:  # noqa: BLE001  log_failure() logs it
                    log_failure(request, error)
                    tell(pointer, error)
        finally:
            request.close()
            try:
                with self._server as server:
                    self._drain(server)
            except _errors.DipcError:
                # The server was closed meanwhile, which released everything.
                pass

    @staticmethod
    def _send(request: Request, pointer: c_void_p, provide: Provider) -> None:
        given = provide(request)
        if request.verb == Verb.PUT:
            ensure_nothing(given)
            send(_finish, pointer, FOREVER)
            return
        source = answer(request, given)
        try:
            if isinstance(source, _source.StreamSource):
                _send_stream(pointer, source)
            else:
                _send_batches(pointer, source)
        finally:
            source.close()


def _is_closed(function: object) -> bool:
    return isinstance(function, OnLoop) and function.loop.is_closed()


def _missing(request: Request) -> _errors.DipcError:
    """Why a handler does not answer a request."""
    verb = request.verb
    if verb == Verb.GET:
        ticket = request.ticket.decode(errors="replace")
        return _errors.NotFoundError(f"the server gives no table for the ticket {ticket}")
    if verb == Verb.PUT:
        return _errors.UnsupportedError("the server takes no tables")
    if verb == Verb.EXCHANGE:
        return _errors.UnsupportedError("the server exchanges no tables")
    return _errors.UnsupportedError("the server says nothing of this ticket but its table")


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
        send(_raise, _library.raised(error, status.value))


def _raise(error: BaseException) -> int:
    raise error


def _send_batches(request: c_void_p, source: _source.Source) -> None:
    """Sends batches one by one, as Python gives them."""
    send(_start, request, ctypes.addressof(source.schema), source.device_type)
    # Once the client has the rows that it asked for, the source is read no further.
    while not _is_complete(request) and (found := source.next()) is not None:
        batch, metadata = found
        try:
            send(_push, request, ctypes.addressof(batch), metadata or None, len(metadata), FOREVER)
        finally:
            # Nothing, if it was pushed.
            _abi.release(batch)
    send(_finish, request, FOREVER)


_current = threading.local()
