"""Waiting in the library that Ctrl-C and asyncio can end.

A call of the library waits without the GIL. But a signal's Python handler runs only on the main thread, which would be
inside that call. So on the main thread such calls run on a helper thread, and the main thread waits for it in a way
that lets handlers run: if one raises, as Ctrl-C does, the call is cancelled by its token. Any other thread makes the
call itself. The same helpers serve coroutines that connect, or end a server. Batch by batch a stream is read without
them (see _stream.py).

Helpers are daemon threads and are reused. There are as many as there are calls at once.
"""

from __future__ import annotations

import asyncio
import collections
import threading
from typing import Callable, Generic, TypeVar

from . import _loop, _process

T = TypeVar("T")
Task = Callable[[], None]


class _Helper(threading.Thread):
    """Runs one piece of work after another; idle between them."""

    def __init__(self, number: int) -> None:
        super().__init__(name=f"dipc-{number}", daemon=True)
        self._wake = threading.Lock()
        self._wake.acquire()
        self._given: tuple[Task, Task] | None = None

    def give(self, work: Task, done: Task) -> None:
        self._given = (work, done)
        self._wake.release()

    def run(self) -> None:
        while True:
            self._wake.acquire()
            assert self._given is not None
            (work, done), self._given = self._given, None
            work()
            # First idle, then done: so the thread that waited finds this helper for its next call.
            _idle.append(self)
            done()
            # Drops what they hold before the next wait.
            del work, done


_idle: collections.deque[_Helper] = collections.deque()
_made = 0


def start(work: Task, done: Task) -> None:
    """Runs `work` and then `done`, which is short, on a helper thread; both raise nothing."""
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _started()
    helper.give(work, done)


def _started() -> _Helper:
    global _made
    _made += 1
    helper = _Helper(_made)
    try:
        helper.start()
    except RuntimeError as error:
        # An interrupt while start() takes its lock again makes the release of that lock fail.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    return helper


def _forget() -> None:
    # The child of a fork has none of the threads.
    _idle.clear()


_process.after_fork(_forget)


class _Outcome(Generic[T]):
    """What a function gave or raised."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        function, self._function = self._function, None
        assert function is not None
        try:
            self._value = function()
        except BaseException as error:  # noqa: BLE001  raised again by get()
            self._error = error

    def get(self) -> T:
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback refers to this frame.
                self._error = None
        return self._value  # type: ignore[return-value]


def call(function: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs `function`, which waits in the library, so that signals can end it by `cancel`."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    outcome = _Outcome(function)
    done = threading.Lock()
    done.acquire()
    try:
        start(outcome.run, done.release)
        while not done.acquire(timeout=_loop.LOOK_SECONDS):
            pass
    except BaseException:
        # The helper drops, and so releases, what the call still gives.
        cancel()
        raise
    return outcome.get()


async def acall(function: Callable[[], T], cancel: Callable[[], None]) -> T:
    """As :func:`call`, for coroutines; a cancelled task ends the call by `cancel`."""
    loop = asyncio.get_running_loop()
    outcome = _Outcome(function)
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            # The loop was closed: nobody waits.
            pass

    try:
        start(outcome.run, tell)
        with _loop.lookout(loop):
            await done
    except BaseException:
        cancel()
        raise
    return outcome.get()
