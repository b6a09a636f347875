"""The library's log, as records of Python's ``logging``.

The library calls back on a thread of its own, where a callback in Python would wait for the GIL, and would outlive
the interpreter. So the callback is native: it writes each event into a socket, which a thread of Python reads. At
the end of the interpreter, what was logged until then is still delivered.

An event of the target ``dipc::transport::shm`` is a record of the logger ``dipc.transport.shm``. The library is asked
for the levels that loggers want. If no logger wants any, nothing is logged and there is no thread.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
import traceback
from ctypes import c_void_p

from . import _errors, _library, _native, _process

_set = _library.checked("dipc_log_set")

TRACE = 5
"""The level of events about single messages, below ``logging.DEBUG``."""

# DIPC_LOG_*, by their numbers.
_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG, 5: TRACE}
_NOBODY = logging.CRITICAL + 1
# What native.c sends: a level and the event, or one of these alone.
_ENDED, _STOP = 0, 255
_MOST_BYTES = 16 << 10
_EXIT_SECONDS = 10
"""A limit, so that a handler that waits for ever does not keep the interpreter from ending."""

_logger = logging.getLogger("dipc")
_lock = threading.RLock()
# The level that the library is asked for now, and the one that loggers below `dipc` wanted at the last look.
_level = _below = _NOBODY
_delivery: _Delivery | None = None
_is_unsupported = False


class Lines:
    """Bounds the lines of one kind that clients can cause."""

    _MOST, _SECONDS = 5, 10

    def __init__(self) -> None:
        # Reentrant: a signal handler may log while the main thread holds the lock.
        self._lock = threading.RLock()
        self._until = 0.0
        self._left = 0

    def say(self, level: int, text: str, *arguments: object) -> None:
        """Logs a line, unless there were as many already within ten seconds."""
        if not _logger.isEnabledFor(level):
            return
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._until, self._left = now + self._SECONDS, self._MOST
            if self._left == 0:
                return
            self._left -= 1
            is_last = self._left == 0
        more = f"; more lines of this kind are dropped for up to {self._SECONDS} s" if is_last else ""
        _logger.log(level, text + more, *arguments)


def follow() -> None:
    """Asks the library for the level that is wanted now. Takes almost no time if the level has not changed."""
    if min(_wanted_of(_logger), _below) != _level:
        refresh()


def refresh() -> None:
    """As :func:`follow`, and looks at loggers below ``dipc`` too."""
    global _below
    with _lock:
        manager = logging.Logger.manager
        below = [logger for name, logger in list(manager.loggerDict.items()) if name.startswith("dipc.")]
        _below = min((_wanted_of(logger) for logger in below if isinstance(logger, logging.Logger)), default=_NOBODY)
        _ask_for(min(_wanted_of(_logger), _below))


def flush() -> None:
    """Waits until everything that the library has logged so far is delivered."""
    delivery = _delivery
    if delivery is not None:
        delivery.flush()


def _wanted_of(logger: logging.Logger) -> int:
    """The level of the records that a handler gets from a logger."""
    level, at = 0, logger
    while True:
        level = level or at.level
        for handler in at.handlers:
            if type(handler) is not logging.NullHandler:
                return level or logger.getEffectiveLevel()
        if not at.propagate or at.parent is None:
            return _NOBODY
        at = at.parent


def _ask_for(level: int) -> None:
    global _level, _delivery, _is_unsupported
    if level == _level or _is_unsupported:
        return
    number = max((number for number, wanted in _LEVELS.items() if wanted >= level), default=0)
    try:
        if number:
            if _delivery is None:
                _delivery = _Delivery()
            _delivery.begin(number)
        elif _delivery is not None:
            _delivery.end()
    except _errors.UnsupportedError:
        # A Rust program around this interpreter has the log.
        _is_unsupported = True
    except (_errors.OutOfResourcesError, RuntimeError) as error:
        # There is no further thread, of the library's or of Python's.
        _logger.warning("the library's log is left out: %s", error)
    _level = level


class _Delivery:
    """The socket, and the thread that reads it."""

    def __init__(self) -> None:
        # Of packets: one is one event.
        self._reads, self._writes = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # How often the library was given the socket, and how often it has let go of it; the level that it was asked for
        # last.
        self._begun = self._ended = self._number = 0
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._deliver, name="dipc-log", daemon=True)
        self._thread.start()
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None and multiprocessing.parent_process() is not None:
            # Some of its processes end without running `atexit`.
            multiprocessing.util.Finalize(None, self.flush, exitpriority=-1000)

    def begin(self, number: int) -> None:
        """Makes the library send events up to this level from now on."""
        _set(number, _native.log_event, c_void_p(self._writes.fileno()), _native.log_ended)
        self._number = number
        self._begun += 1

    def end(self) -> None:
        """Makes the library send no further events; those logged so far still come."""
        _set(1, None, None, None)
        self._number = 0

    def flush(self) -> None:
        """Waits until everything that was logged so far is delivered."""
        with _lock:
            begun = self._begun
            if self._number:
                self.begin(self._number)
        with self._changed:
            self._changed.wait_for(lambda: self._ended >= begun, _EXIT_SECONDS)

    def stop(self) -> None:
        """Ends it once everything that was logged so far is delivered."""
        self.end()
        self._writes.send(bytes([_STOP]))
        self._thread.join(_EXIT_SECONDS)

    def forget(self) -> None:
        """In the child of a fork, whose parent has the threads."""
        self._reads.close()
        self._writes.close()

    def _deliver(self) -> None:
        while not (self._is_stopped and self._ended == self._begun):
            packet = self._reads.recv(_MOST_BYTES)
            if packet[0] == _STOP:
                self._is_stopped = True
            elif packet[0] == _ENDED:
                with self._changed:
                    self._ended += 1
                    self._changed.notify_all()
            else:
                _emit(packet)
        self.forget()


def _emit(packet: bytes) -> None:
    target, _, text = packet[1:].partition(b"\0")
    logger = logging.getLogger(target.decode().replace("::", "."))
    level = _LEVELS.get(packet[0], logging.ERROR)
    try:
        if logger.isEnabledFor(level):
            logger.handle(logger.makeRecord(logger.name, level, "libdipc", 0, text.decode(errors="replace"), (), None))
    except Exception:  # noqa: BLE001  of a filter, or of a handler that does not handle its errors
        if logging.raiseExceptions:
            traceback.print_exc()


def _stop() -> None:
    global _delivery, _level, _is_unsupported
    with _lock:
        delivery, _delivery = _delivery, None
        _level, _is_unsupported = _NOBODY, True
    if delivery is not None:
        delivery.stop()


def _forget() -> None:
    # The library logs nothing in the child until it is asked to.
    global _delivery, _level, _lock
    _lock = threading.RLock()
    delivery, _delivery = _delivery, None
    _level = _NOBODY
    if delivery is not None:
        delivery.forget()


_process.after_fork(_forget)
_process.at_exit(_stop)
