"""Tickets that coroutines serve, on the running loop and without a thread.

The loop watches the server's descriptor for requests, and the descriptor of a request for a client that takes batches
again. If the client goes, the task that serves it is cancelled. A loop that is closed runs no task again: its clients
get an error at once, and a thread takes the requests that come.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Coroutine, Iterator
from ctypes import c_int, c_size_t, c_void_p
from typing import Any, Callable

from . import _abi, _afterlife, _errors, _library
from ._handle import Handle
from ._loop import Readable, Turn, unwatch
from ._provider import OnLoop, answer_of, ensure_nothing
from ._request import ClientGoneError, Request, Verb, log_failure, refuse_for, send, tell

log = logging.getLogger("dipc")

_checked = _library.checked
_next_request, _drain = _checked("dipc_server_next_request"), _checked("dipc_server_drain_releases")
_request_fd, _fd, _stat = _checked("dipc_server_request_fd"), _checked("dipc_request_fd"), _checked("dipc_server_stat")
_start, _push, _finish = _checked("dipc_request_start"), _checked("dipc_request_push"), _checked("dipc_request_finish")
_is_complete = _library.plain("dipc_request_is_complete")

_LENT_OUTSTANDING = 8  # DIPC_SERVER_STAT_LENT_OUTSTANDING
_DRAIN_SECONDS = 0.02
"""While clients hold memory: how long memory that they have given back waits until it is released."""
_LATER_SECONDS = 1.0
"""The same if nothing is known to be held: memory of a GPU is kept until the process of a client that left has
ended."""
_NEVER_SECONDS = 1e9
_NO_LOOP = "the event loop that serves the ticket is closed"

Loop = asyncio.AbstractEventLoop


class _Served:
    """A request that a loop serves, with its task once that has begun."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None


class Coroutines:
    """The streams of one server that coroutines serve, and the loop that takes its requests."""

    def __init__(self, server: Handle, accept: Callable[[Request], None], take_over: Callable[[], None]) -> None:
        """`take_over` is called if a loop was closed; it lets a thread take requests instead."""
        self._server = server
        self._accept = accept
        self._take_over = take_over
        # Reentrant: a signal handler may call this object while the main thread is in one of its methods.
        self._lock = threading.RLock()
        # The loop that watches, and its own copy of the server's descriptor, which may be closed before.
        self._watching: tuple[Loop, int] | None = None
        # A timer of each loop, which only the loop holds. When it dies with the loop, a finalizer reports the loop's
        # end.
        self._lives: dict[Loop, weakref.ref[asyncio.TimerHandle]] = {}
        self._served: dict[Request, _Served] = {}
        self._drains_later = self._looks_later = False

    def watch(self, loop: Loop) -> None:
        """Lets `loop`, which runs on this thread, take requests, unless another loop does."""
        with self._lock:
            if loop not in self._lives:
                # A loop has no call for its end, but drops its timers then.
                life = _afterlife.when_dead(functools.partial(self._lose, loop))
                self._lives[loop] = weakref.ref(loop.call_later(_NEVER_SECONDS, _nothing, life))
            if self._watching is not None:
                return
            fd = c_int()
            with self._server as server:
                _request_fd(server, ctypes.byref(fd))
                self._watching = loop, os.dup(fd.value)
            loop.add_reader(self._watching[1], self._take)

    def stop(self) -> None:
        """No more requests are taken."""
        with self._lock:
            watching, self._watching = self._watching, None
            lives, self._lives = self._lives, {}
        if watching is not None:
            _call_on(watching[0], lambda: _unwatch(*watching), lambda: os.close(watching[1]))
        for loop, reference in lives.items():
            timer = reference()
            if timer is not None:
                _call_on(loop, timer.cancel, _nothing)

    def cut(self) -> None:
        """Ends the streams; their loop may not run any more and so not see that they are cut."""
        for request, served in list(self._served.items()):
            with contextlib.suppress(_errors.DipcError), request.handle as pointer:
                tell(pointer, _errors.StoppedError("the server was stopped"))
            if served.task is not None:
                _call_on(served.loop, served.task.cancel, _nothing)

    def _lose(self, loop: Loop) -> None:
        """Ends the requests and watches of a loop that was closed."""
        if not loop.is_closed():
            # The server was stopped.
            return
        with self._lock:
            self._lives.pop(loop, None)
            watching = self._watching
            if watching is not None and watching[0] is loop:
                self._watching = None
                os.close(watching[1])
            lost = [request for request, served in self._served.items() if served.loop is loop]
            # The timers went with the loop.
            self._drains_later = self._looks_later = False
        self._take_over()
        for request in lost:
            self._abandon(request)

    def _abandon(self, request: Request) -> None:
        """Ends a request whose loop was closed, and the coroutine of its task, which nothing else would end."""
        with self._lock:
            served = self._served.pop(request, None)
        if served is None:
            return
        with contextlib.suppress(_errors.DipcError), request.handle as pointer:
            tell(pointer, _errors.StoppedError(_NO_LOOP))
        try:
            if served.task is not None:
                served.task.get_coro().close()
        except Exception:
            log.exception("what serves ticket %s cannot be ended on its closed loop", request.ticket)
        request.close()

    async def ended(self, timeout: float) -> None:
        """Waits for the tasks of the running loop, except the calling one."""
        loop, mine = asyncio.get_running_loop(), asyncio.current_task()
        of_loop = [served.task for served in list(self._served.values()) if served.loop is loop]
        tasks = [task for task in of_loop if task is not None and task is not mine]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    def start(self, request: Request, provide: OnLoop) -> None:
        """Serves a request by a task of the provider's loop."""
        self._begin(request, provide.loop, lambda: self._serve(request, provide))

    def decide(self, request: Request, authorizer: OnLoop) -> None:
        """Decides about a request by a task of the authorizer's loop."""
        self._begin(request, authorizer.loop, lambda: self._decide(request, authorizer))

    def _begin(self, request: Request, loop: Loop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        served = _Served(loop)

        def begin() -> None:
            served.task = loop.create_task(work())

        with self._lock:
            self._served[request] = served
        _call_on(loop, begin, lambda: self._abandon(request))
        if loop.is_closed():
            # The loop may have been closed just after it took the call.
            self._abandon(request)

    def _take(self) -> None:
        try:
            with self._server as server:
                pointer = c_void_p()
                while _next_request(server, 0, None, ctypes.byref(pointer)) != _errors.Status.NOTHING:
                    self._accept(Request(pointer))
                    pointer = c_void_p()
        except (_errors.StoppedError, _errors.ClosedError):
            self.stop()

    async def _decide(self, request: Request, authorizer: OnLoop) -> None:
        """Asks the host whether the client may do what it asks for."""
        try:
            with _client_watched(request):
                name = await authorizer(request)
            request.allow(name)
        except asyncio.CancelledError:
            if not request.cancelled:
                # The code that cut the request has told the client already.
                with contextlib.suppress(_errors.DipcError):
                    refuse_for(request, _errors.StoppedError("the task that decides about the request was cancelled"))
                raise
        except GeneratorExit:
            # Its loop was closed, of which the client knows.
            raise
        except BaseException as error:
            refuse_for(request, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._end(request)

    def _end(self, request: Request) -> None:
        with self._lock:
            self._served.pop(request, None)
        request.close()

    async def _serve(self, request: Request, provide: OnLoop) -> None:
        """One stream, from the provider's call to its end."""
        try:
            with request.handle as pointer:
                try:
                    with _client_watched(request):
                        await self._send(request, pointer, provide)
                except ClientGoneError:
                    log.debug("%s: the client is gone (%s)", request.ticket, request.peer)
                except asyncio.CancelledError:
                    if not request.cancelled:
                        tell(pointer, _errors.CancelledError("the task that serves the ticket was cancelled"))
                        raise
                except GeneratorExit:
                    # Its loop was closed, of which the client knows.
                    raise
                except BaseException as error:
                    log_failure(request, error)
                    tell(pointer, error)
                    if not isinstance(error, Exception):
                        raise
        finally:
            self._end(request)
            if not self._drains_later and not provide.loop.is_closed():
                self._drain()

    async def _send(self, request: Request, pointer: c_void_p, provide: OnLoop) -> None:
        given = provide(request)
        if inspect.isawaitable(given):
            given = await given
        flow = _Flow(pointer)
        if request.verb == Verb.PUT:
            ensure_nothing(given)
            return await flow.go(_finish)
        source = await answer_of(request, given)
        try:
            send(_start, pointer, ctypes.addressof(source.schema), source.device_type)
            while not _is_complete(pointer) and (found := await source.next()) is not None:
                batch, metadata = found
                try:
                    await flow.go(_push, ctypes.addressof(batch), metadata or None, len(metadata))
                finally:
                    # Nothing, if it was pushed.
                    _abi.release(batch)
                if not self._drains_later:
                    self._drain()
            await flow.go(_finish)
        finally:
            await source.aclose()

    def _drain(self) -> None:
        """Releases what clients have given back, again and again while they hold anything."""
        self._drains_later = False
        try:
            with self._server as server:
                _drain(server, ctypes.byref(c_size_t()))
                lent = _library.number_of(_stat, server, _LENT_OUTSTANDING)
        except _errors.DipcError:
            # The server was closed meanwhile, which released everything.
            return
        if lent:
            self._drains_later = True
            asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._drain)
        elif not self._looks_later:
            self._looks_later = True
            asyncio.get_running_loop().call_later(_LATER_SECONDS, self._look)

    def _look(self) -> None:
        self._looks_later = False
        if not self._drains_later:
            self._drain()


class _Flow:
    """Sends to one client, at its pace."""

    def __init__(self, request: c_void_p) -> None:
        self._request = request
        self._readable: Readable | None = None
        self._turn = Turn()

    async def go(self, call: Callable[..., int], *arguments: Any) -> None:
        """Makes a call whose last argument is how long it may wait."""
        if self._turn.is_over():
            await self._turn.pass_on()
        while True:
            try:
                return send(call, self._request, *arguments, 0)
            except _errors.TimeoutError:
                pass
            if self._readable is None:
                fd = c_int()
                _fd(self._request, ctypes.byref(fd))
                self._readable = Readable(fd.value)
            await self._readable.wait()
            self._turn.begin()


@contextlib.contextmanager
def _client_watched(request: Request) -> Iterator[None]:
    """Cancels the running task if the client goes."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    # A copy: a loop has one callback for a descriptor, and the provider may wait for the request's own.
    fd = os.dup(request.cancel_fd)

    def leave() -> None:
        loop.remove_reader(fd)
        task.cancel()

    loop.add_reader(fd, leave)
    try:
        yield
    finally:
        unwatch(loop, fd)
        os.close(fd)


def _call_on(loop: Loop, call: Callable[[], object], otherwise: Callable[[], None]) -> None:
    """Calls `call` on the loop's thread, now if that is this one; `otherwise` if the loop is closed."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        call()
        return
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        otherwise()


def _unwatch(loop: Loop, fd: int) -> None:
    loop.remove_reader(fd)
    os.close(fd)


def _nothing(*_held: object) -> None:
    pass
