"""Runs Python code after an object has died, and before the interpreter ends.

A separate thread runs it: a finalizer runs on whatever thread drops the last reference, must not wait there, and on the
main thread must run no Python at all (see :class:`._native.Owner`).
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from typing import Callable

from . import _native, _process, _wait

log = logging.getLogger("dipc")

_WORD = 8
"""Bytes of a number on its way through the pipe."""

_numbers = itertools.count(1)
_jobs: dict[int, Callable[[], None]] = {}
_lock = threading.RLock()
_pipe: tuple[int, int] | None = None


def when_dead(job: Callable[[], None]) -> _native.Owner:
    """An object to hold: when it is dropped, or at the end of the interpreter, `job` is called."""
    _start()
    number = next(_numbers)
    _jobs[number] = job
    return _native.Owner(number, _native.tell, waits=False)


def _start() -> None:
    """Starts the thread, once in a process."""
    global _pipe
    with _lock:
        if _pipe is None:
            _pipe = os.pipe()
            # Who dies does not wait.
            os.set_blocking(_pipe[1], False)
            _native.tell_to(_pipe[1])
            reader = _pipe[0]
            _wait.start(lambda: _work(reader), lambda: None)


def _work(reader: int) -> None:
    while word := os.read(reader, _WORD):
        _do(int.from_bytes(word, sys.byteorder))


def _do(number: int) -> None:
    job = _jobs.pop(number, None)
    if job is not None:
        try:
            job()
        except Exception:
            log.exception("what was left of an object cannot be closed")


def _exit() -> None:
    for number in list(_jobs):
        _do(number)


def _forget() -> None:
    # The child of a fork has the parent's descriptors, and not its thread.
    global _pipe, _lock
    _jobs.clear()
    _lock = threading.RLock()
    if _pipe is not None:
        _native.tell_to(-1)
        for end in _pipe:
            os.close(end)
        _pipe = None


_process.after_fork(_forget)
_process.at_exit(_exit)
