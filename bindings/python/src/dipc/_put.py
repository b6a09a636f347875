"""Tables that a client sends."""

from __future__ import annotations

import asyncio
import ctypes
import select
import threading
import time
from collections.abc import AsyncIterator, Iterator
from ctypes import c_int, c_uint64, c_void_p
from types import TracebackType
from typing import Any, Callable, NamedTuple, TypeVar

from . import _abi, _errors, _headers, _library, _source
from ._cancel import Token
from ._handle import Handle
from ._headers import Headers
from ._loop import LOOK_SECONDS, Readable, Turn
from ._request import text_of
from ._schema import Schema

_checked, _plain = _library.checked, _library.plain
_push, _finish = _checked("dipc_put_push"), _checked("dipc_put_finish")
_next_result, _result = _checked("dipc_put_next_result"), _checked("dipc_put_result")
_fail, _fd = _checked("dipc_put_fail"), _checked("dipc_put_fd")
_answer_headers, _stat = _checked("dipc_put_headers"), _checked("dipc_put_stat")
_is_over, _free = _plain("dipc_put_is_over"), _plain("dipc_put_free")

T = TypeVar("T")


class Result(NamedTuple):
    """Says that the server's host has a part of a table safe, whatever happens to the rest."""

    batches: int
    """The number of safe batches, from the first on."""
    data: bytes
    """The bytes that the host sent with the result."""


class Taken(NamedTuple):
    """What became of a table that was sent whole."""

    batches: int
    """The number of batches, all of which the server's host has taken."""
    results: list[Result]
    """The results that the host gave on the way."""


class PutStats(NamedTuple):
    """What was sent so far."""

    batches: int
    bytes_lent: int
    """Body bytes that the server was lent where they lay."""
    bytes_copied: int
    """Body bytes copied here: into shared memory that is lent, or small ones that are sent."""
    bytes_sent: int
    """Body bytes sent through the connection."""
    lent_outstanding: int
    """Buffers that the server has and has not given back."""


class Writer:
    """A table on its way to a server, batch by batch.

    The end of a ``with`` or ``async with`` block ends the table and waits until the server's host has taken all of it;
    an exception that leaves the block fails the table, with its text. A writer that is closed or collected unfinished
    fails it too. Any thread or coroutine may read results while another one writes.
    """

    def __init__(self, pointer: c_void_p, token: Token, schema: Schema) -> None:
        self.schema = schema
        self._handle = Handle("writer", pointer, _free)
        self._token = token
        # The library's calls on one table exclude each other; no call waits.
        self._one = threading.Lock()
        self._readable: Readable | None = None
        self._turn = Turn()
        self._is_ended = False

    def write(self, obj: Any) -> None:
        """Sends a batch, or all batches of a table, stream or iterable. Waits for a slow server."""
        source = _source.open_source(obj)
        try:
            self._ensure_fits(source.schema)
            self.write_source(source)
        finally:
            source.close()

    def write_source(self, source: _source.Source) -> None:
        """For this package: :meth:`write` of a source, which the caller closes."""
        while (found := source.next()) is not None:
            try:
                self._wait(_pushing(*found))
            finally:
                # Nothing, if it was pushed.
                _abi.release(found[0])

    async def awrite(self, obj: Any) -> None:
        """:meth:`write` for coroutines, on the running loop; also of an async iterable of batches.

        If the task is cancelled while it waits, the batch that waits was not sent.
        """
        source = await _source.open_async(obj)
        try:
            self._ensure_fits(source.schema)
            await self.awrite_source(source)
        finally:
            await source.aclose()

    async def awrite_source(self, source: _source.AsyncSource) -> None:
        """For this package: :meth:`awrite` of a source, which the caller closes."""
        while (found := await source.next()) is not None:
            try:
                await self._await(_pushing(*found))
            finally:
                _abi.release(found[0])

    def next_result(self, timeout: float | None = None) -> Result | None:
        """Waits for the next result. None: the host has taken the table, and no result is left.

        After the end or a failure of the table, its remaining results can still be read. The
        exception of a failure is raised after the last of them.

        :param timeout: Seconds after which to raise TimeoutError. The table goes on all the same.
        """
        return self._wait(_next, timeout)[0]

    async def anext_result(self) -> Result | None:
        """:meth:`next_result` for coroutines, on the running loop."""
        return (await self._await(_next))[0]

    def results(self) -> Iterator[Result]:
        """The results, to the end of the table."""
        while (result := self.next_result()) is not None:
            yield result

    async def aresults(self) -> AsyncIterator[Result]:
        """:meth:`results` for coroutines."""
        while (result := await self.anext_result()) is not None:
            yield result

    def finish(self) -> int:
        """Ends the table, and waits until the server's host has taken it. Gives the number of batches taken.

        In an exchange the host may take the rest only while its answer is read: if the answer may have more than a few
        batches, or may come only at the end, read it in another thread or in another task (:meth:`afinish`).
        """
        try:
            taken = self._wait(_finished)
        except _errors.DipcError:
            self._is_ended = True
            raise
        self._is_ended = True
        return taken

    async def afinish(self) -> int:
        """:meth:`finish` for coroutines, on the running loop."""
        try:
            taken = await self._await(_finished)
        except _errors.DipcError:
            self._is_ended = True
            raise
        self._is_ended = True
        return taken

    def fail(self, error: BaseException | str) -> None:
        """Ends the table with an error, whose text the server's host sees. After the end it does nothing."""
        if isinstance(error, str):
            error = _errors.ProviderError(error)
        status = error.status if isinstance(error, _errors.DipcError) else _errors.Status.PROVIDER
        self._is_ended = True
        with self._handle as pointer, self._one:
            _fail(pointer, status, text_of(error).encode(errors="replace"))

    @property
    def headers(self) -> Headers:
        """Headers of the server's answers so far."""
        with self._handle as pointer, self._one:
            return _headers.read(_answer_headers, pointer)

    @property
    def stats(self) -> PutStats:
        with self._handle as pointer, self._one:
            return PutStats(
                *(_library.number_of(_stat, pointer, which) for which in range(1, len(PutStats._fields) + 1))
            )

    def cancel(self) -> None:
        """Ends the table, from any thread: a call that waits raises CancelledError."""
        self._token.trigger()

    def close(self) -> None:
        """Fails the table, unless it has ended. May be called again.

        Batches that the server still has are held until it gives them back.
        """
        self._is_ended = True
        self._token.trigger()
        self._handle.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_ended:
                return
            if error is None:
                self.finish()
            else:
                self.fail(error)
        finally:
            self._handle.close()

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_ended:
                return
            if error is None:
                await self.afinish()
            else:
                self.fail(error)
        finally:
            self._handle.close()

    def __repr__(self) -> str:
        return f"<dipc.Writer of {self.schema!r}>"

    def _ensure_fits(self, schema: _abi.ArrowSchema) -> None:
        _source.ensure_fits(self.schema, schema)

    def _try(self, pointer: c_void_p, call: Callable[[c_void_p], T]) -> T | None:
        """Makes a call that does not wait; None if it would have to."""
        with self._one:
            try:
                return call(pointer)
            except _errors.TimeoutError:
                if _is_over(pointer):
                    raise
                return None

    def _watched(self, pointer: c_void_p) -> Readable:
        """The descriptor that becomes readable when a call may go on."""
        if self._readable is None:
            fd = c_int()
            with self._one:
                _fd(pointer, ctypes.byref(fd))
            self._readable = Readable(fd.value)
        return self._readable

    def _wait(self, call: Callable[[c_void_p], T], timeout: float | None = None) -> T:
        """Makes a call again and again until it need not wait. Signals are heard meanwhile."""
        until = None if timeout is None else time.monotonic() + timeout
        poller = None
        with self._handle as pointer:
            while (found := self._try(pointer, call)) is None:
                if poller is None:
                    poller = select.poll()
                    poller.register(self._watched(pointer).fd, select.POLLIN)
                seconds = LOOK_SECONDS
                if until is not None:
                    seconds = min(seconds, until - time.monotonic())
                    if seconds <= 0:
                        raise _errors.TimeoutError("nothing came in time")
                # Another thread's call may clear the descriptor, so this one also looks without it.
                poller.poll(1000 * seconds)
            return found

    async def _await(self, call: Callable[[c_void_p], T]) -> T:
        """As :meth:`_wait`, on the running loop."""
        if self._turn.is_over():
            await self._turn.pass_on()
        is_first = True
        with self._handle as pointer:
            while (found := self._try(pointer, call)) is None:
                readable = self._watched(pointer)
                if is_first:
                    # This call may have cleared the descriptor for the others.
                    readable.wake(asyncio.get_running_loop())
                    is_first = False
                await readable.wait()
                self._turn.begin()
            return found


def _pushing(batch: _abi.ArrowDeviceArray, metadata: bytes) -> Callable[[c_void_p], bool]:
    def push(pointer: c_void_p) -> bool:
        _push(pointer, ctypes.addressof(batch), metadata or None, len(metadata), 0)
        return True

    return push


def _next(pointer: c_void_p) -> tuple[Result | None]:
    batches = c_uint64()
    if _next_result(pointer, 0, ctypes.byref(batches)) == _errors.Status.NOTHING:
        return (None,)
    return (Result(batches.value, _library.bytes_of(_result, pointer, size=256)),)


def _finished(pointer: c_void_p) -> int:
    batches = c_uint64()
    _finish(pointer, 0, ctypes.byref(batches))
    return batches.value
