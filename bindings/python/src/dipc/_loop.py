"""Waiting on the running asyncio loop, whichever it is: by its own methods alone, and without a thread."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref

# A signal that comes just before the main thread sleeps does not wake it (CPython looks for signals, lets go of the
# GIL, which may take 100 us, and only then sleeps): so it wakes by itself to look.
LOOK_SECONDS = 0.1


class _Lookout:
    """Wakes one loop of the main thread from time to time while something waits."""

    def __init__(self) -> None:
        self._waiting = 0
        self._is_set = False

    def __enter__(self) -> None:
        self._waiting += 1
        if not self._is_set and threading.current_thread() is threading.main_thread():
            self._set()

    def __exit__(self, *_raised: object) -> None:
        self._waiting -= 1

    def _set(self) -> None:
        self._is_set = self._waiting > 0
        if self._is_set:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._set)


_lookouts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lookout] = weakref.WeakKeyDictionary()


def lookout(loop: asyncio.AbstractEventLoop) -> _Lookout:
    """``with lookout(loop):`` around an ``await`` lets the running loop handle signals meanwhile."""
    found = _lookouts.get(loop)
    if found is None:
        found = _lookouts[loop] = _Lookout()
    return found


_TURN_SECONDS = 1e-3


class Turn:
    """Lets the loop's other tasks run while one task works without a wait."""

    def __init__(self) -> None:
        self._ends = 0.0

    def begin(self) -> None:
        """The task has just waited."""
        self._ends = time.monotonic() + _TURN_SECONDS

    def is_over(self) -> bool:
        """A method to call before each batch, because awaiting a coroutine each time takes longer."""
        return time.monotonic() >= self._ends

    async def pass_on(self) -> None:
        await asyncio.sleep(0)
        self.begin()


class Readable:
    """Waits until a descriptor is readable. A loop watches the descriptor only while a coroutine waits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # A loop has one callback for a descriptor.
        futures = self._waiting.get(loop)
        if futures is None:
            loop.add_reader(self.fd, self.wake, loop)
            futures = self._waiting[loop] = []
        futures.append(future)
        try:
            with lookout(loop):
                await future
        finally:
            futures.remove(future)
            if not futures and self._waiting.get(loop) is futures:
                self._unwatch(loop)

    def wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the waits on a loop, which is the running one."""
        for future in self._unwatch(loop) if loop in self._waiting else ():
            if not future.done():
                future.set_result(None)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Future[None]]:
        unwatch(loop, self.fd)
        return self._waiting.pop(loop)


def unwatch(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Ends the watch of a descriptor. A coroutine that a closed loop has left ends when it is collected."""
    if not loop.is_closed():
        loop.remove_reader(fd)
