"""A stream of the library's, while this package holds it."""

from __future__ import annotations

import asyncio
import ctypes
import select
import threading
import time
from typing import Callable, NamedTuple, TypeVar

from . import _abi, _capsule, _errors, _headers, _library, _native, _process, _wait
from ._cancel import Ends
from ._headers import Headers
from ._loop import LOOK_SECONDS, Readable, Turn
from ._schema import Schema

_status = _library.checked("dipc_stream_status")
_metadata = _library.checked("dipc_stream_metadata")
_stat = _library.checked("dipc_stream_stat")
_answer_headers = _library.checked("dipc_stream_headers")
_to_host = _library.checked("dipc_stream_to_host")
_to_device = _library.checked("dipc_stream_to_device")
_fd, _try_next = _library.checked("dipc_stream_fd"), _library.checked("dipc_stream_try_next")
# What dipc_stream_to_host() reads: the host, and ARROW_DEVICE_CUDA, _CUDA_HOST and _CUDA_MANAGED.
_TO_HOST = (_abi.CPU, 2, 3, 13)

T = TypeVar("T")


class StreamStats(NamedTuple):
    """What a stream has brought so far."""

    rows: int
    batches: int
    bytes_lent: int
    """Body bytes that the server lent and this process mapped."""
    bytes_copied: int
    """Body bytes copied in this process: joined dictionaries, values copied to be checked."""
    bytes_received: int
    """Body bytes that came through the connection."""
    bytes_copied_on_device: int
    """Body bytes copied in this process on a device, or from one device to another."""
    bytes_staged: int
    """Body bytes copied in this process between the host and a device."""
    batches_here: int
    """Batches that have come and were not handed out yet: this many can be read without waiting for the server."""


_STATS = range(1, len(StreamStats._fields) + 1)  # DIPC_STREAM_STAT_*
_BATCHES_HERE = 1 + StreamStats._fields.index("batches_here")

_BUSY_SECONDS = 1e-3
"""While another thread waits in a stream, how often a coroutine looks whether it is free."""


def is_foreign(struct: _abi.ArrowDeviceArrayStream) -> bool:
    """Whether a stream does not come from a client of the library, such as a table that a middleware has changed."""
    try:
        _library.number_of(_stat, ctypes.addressof(struct), _STATS[0])
    except _errors.InvalidArgumentError:
        return True
    return False


class Stream:
    """Owns an ``ArrowDeviceArrayStream`` of ``dipc_client_get()``. One call at a time; others wait."""

    def __init__(
        self,
        struct: _abi.ArrowDeviceArrayStream,
        token: Ends,
        spin: float,
        *,
        has_schema: bool = True,
        is_cancelled_by_close: bool = True,
        is_foreign: bool = False,
    ) -> None:
        """Moves out of `struct`. Looks for batches for `spin` seconds before the main thread sleeps.

        Without `has_schema` the schema may be still to come. A stream that `is_foreign` does not come from a client of
        the library.
        """
        self._is_cancelled_by_close = is_cancelled_by_close
        self.token = token
        self._spin = spin
        self._lock = threading.Lock()
        self._generation = _process.generation()
        # The reason why the struct must not be read any more.
        self._gone = ""
        # The number of coroutines that wait. While there are any, their loop watches the struct's descriptor, so the
        # struct is not released.
        self._waiting = 0
        self._waiting_lock = threading.Lock()
        self._turn = Turn()
        self._stats = StreamStats(*[0] * len(StreamStats._fields))
        self._headers = Headers()
        # Copies of another stream's batches, and foreign streams, have no descriptor: only :meth:`next` gives them.
        self.is_copied: bool = is_foreign
        self._is_foreign = is_foreign
        self._schema: Schema | None = None
        self._keep(_capsule.wrap(struct))
        if has_schema:
            self._schema = self._read_schema()

    def _keep(self, capsule: object) -> None:
        """Reads from the stream of a capsule from now on."""
        # Ends the stream when this object dies.
        self._capsule = capsule
        self._struct = _capsule.struct_in(capsule, _abi.ArrowDeviceArrayStream)
        self._next = _abi.GET(self._struct.get_next)
        self.device_type: int = self._struct.device_type
        self._readable: Readable | None = None
        self._poller = select.poll()

    def _read_schema(self) -> Schema:
        schema = _abi.ArrowSchema()
        if _abi.GET(self._struct.get_schema)(ctypes.addressof(self._struct), ctypes.addressof(schema)):
            raise self._failure()
        return Schema(schema)

    @property
    def known_schema(self) -> Schema | None:
        """The server's schema, if it has come."""
        return self._schema

    def schema(self) -> Schema:
        """Waits for the server's schema, if it has not come."""
        if self._schema is None:
            return _wait.call(self._wait_for_schema, self.token.trigger)
        return self._schema

    def _wait_for_schema(self) -> Schema:
        _process.ensure_same(self._generation)
        with self._lock:
            if self._schema is None:
                self._ensure_here()
                self._schema = self._read_schema()
            return self._schema

    def _failure(self) -> _errors.DipcError:
        """The reason why a callback of the stream failed."""
        address = ctypes.addressof(self._struct)
        if not self._is_foreign:
            try:
                _status(address)
            except _errors.DipcError as error:
                return error
        text = _abi.GET_LAST_ERROR(self._struct.get_last_error)(address)
        return _errors.IoError((text or b"the stream gave no reason").decode(errors="replace"))

    def _ensure_here(self) -> None:
        if self._gone:
            raise _errors.ClosedError(self._gone)

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """The next batch and its encoded custom metadata; None at the end. Waits."""
        _process.ensure_same(self._generation)
        with self._lock:
            self._ensure_here()
            return self._take()

    def next_heard(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """As :meth:`next`, on the main thread: signals are heard while it waits."""
        _process.ensure_same(self._generation)
        array = _abi.ArrowDeviceArray()
        spins_until = 0.0
        # `with` makes sure that a signal's handler cannot leave the lock held.
        with self._lock:
            self._ensure_here()
            while not (found := self._try(array)):
                if self._spin and time.monotonic() < (spins_until := spins_until or time.monotonic() + self._spin):
                    continue
                self._poller.poll(1000 * LOOK_SECONDS)
            return found[0]

    def _try(self, array: _abi.ArrowDeviceArray) -> tuple[tuple[_abi.ArrowDeviceArray, bytes] | None] | None:
        """A tuple of what :meth:`next` gives, in `array`; None where it would wait."""
        if self._readable is None:
            # Before the call: if it finds nothing, the descriptor then becomes readable when something comes.
            fd = ctypes.c_int()
            _fd(ctypes.addressof(self._struct), ctypes.byref(fd))
            self._readable = Readable(fd.value)
            self._poller.register(fd.value, select.POLLIN)
        if _try_next(ctypes.addressof(self._struct), ctypes.addressof(array)) == _errors.Status.NOTHING:
            return None
        return (self._given(array),)

    def _take(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        array = _abi.ArrowDeviceArray()
        if self._next(ctypes.addressof(self._struct), ctypes.addressof(array)):
            raise self._failure()
        return self._given(array)

    def _given(self, array: _abi.ArrowDeviceArray) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        if _abi.is_released(array):
            return None
        if self._schema is None:
            # Here, if nobody waits for it.
            self._schema = self._read_schema()
        return array, self._read_metadata()

    def _read_metadata(self) -> bytes:
        """Encoded custom metadata of the batch that was given last."""
        if self._is_foreign:
            return b""
        address = ctypes.addressof(self._struct)
        # Few batches have metadata, and making a buffer takes longer than asking for the length.
        length = ctypes.c_size_t()
        _metadata(address, None, 0, ctypes.byref(length))
        return _library.bytes_of(_metadata, address, size=length.value) if length.value else b""

    async def anext(self, array: _abi.ArrowDeviceArray) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """As :meth:`next`, on the running loop, and in `array`. A task that is cancelled meanwhile takes nothing."""
        _process.ensure_same(self._generation)
        if self._turn.is_over():
            await self._turn.pass_on()
        while True:
            if self._lock.locked():
                await asyncio.sleep(_BUSY_SECONDS)
                continue
            # A thread that came in between waits for the stream.
            with self._lock:
                self._ensure_here()
                if found := self._try(array):
                    return found[0]
                with self._waiting_lock:
                    self._waiting += 1
            try:
                assert self._readable is not None
                await self._readable.wait()
            finally:
                with self._waiting_lock:
                    self._waiting -= 1
                    self._release_if_gone()
            self._turn.begin()

    def _release_if_gone(self) -> None:
        if self._gone and not self._waiting:
            _abi.release(self._struct)

    def lend(self, array: _abi.ArrowDeviceArray | None = None) -> object:
        """For :meth:`read`: a PyCapsule of a stream of host memory that reads this one, which stays here.

        If there is an `array`, the new stream first gives that array.
        """
        struct = _abi.ArrowArrayStream()
        slot = None if array is None else ctypes.addressof(array)
        if not _native.lend_stream(ctypes.addressof(self._struct), slot, ctypes.addressof(struct)):
            raise MemoryError
        return _capsule.wrap(struct)

    def read(self, reads: Callable[[], T]) -> T:
        """What `reads` gives, which calls another library's reader of this stream once. Waits.

        If it fails because the stream has failed, the exception is one of this package.
        """
        _process.ensure_same(self._generation)
        with self._lock:
            self._ensure_here()
            return self._reading(reads)

    def read_here(self, reads: Callable[[], T]) -> list[T]:
        """Like :meth:`read`, for each batch that is there, until it is time to let other tasks run. Does not wait."""
        if self._lock.locked():
            return []
        with self._lock:
            self._ensure_here()
            here = _library.number_of(_stat, ctypes.addressof(self._struct), _BATCHES_HERE)
            found: list[T] = []
            while len(found) < here and not self._turn.is_over():
                found.append(self._reading(reads))
            return found

    def _reading(self, reads: Callable[[], T]) -> T:
        try:
            return reads()
        except StopIteration:
            raise
        except Exception:
            if self._is_foreign:
                raise
            try:
                _status(ctypes.addressof(self._struct))
            except _errors.DipcError as error:
                raise error from None
            raise

    def stats(self) -> StreamStats:
        """Figures; the last ones if the stream is closed."""
        with self._lock:
            return self._stats if self._gone else self._read_stats()

    def _read_stats(self) -> StreamStats:
        if self._is_foreign:
            return self._stats
        address = ctypes.addressof(self._struct)
        return StreamStats(*(_library.number_of(_stat, address, which) for which in _STATS))

    def headers(self) -> Headers:
        """The headers of the server's answer; the last ones if the stream is closed."""
        with self._lock:
            return self._headers if self._gone else self._read_headers()

    def _read_headers(self) -> Headers:
        if self._is_foreign:
            return self._headers
        return _headers.read(_answer_headers, ctypes.addressof(self._struct))

    def _remember(self) -> None:
        self._stats, self._headers = self._read_stats(), self._read_headers()

    def move(self, device_type: int, device_id: int) -> None:
        """Has the batches that are still to come copied to a device, where they do not lie there."""
        _process.ensure_same(self._generation)
        with self._lock:
            self._ensure_here()
            if device_type == self.device_type == _abi.CPU:
                return
            if self._waiting:
                raise _errors.InvalidArgumentError("a coroutine waits for a batch of the stream")
            capsule, out = _capsule.empty(_abi.ArrowDeviceArrayStream)
            _to_device(ctypes.addressof(self._struct), device_type, device_id, ctypes.addressof(out))
            self._keep(capsule)
            self.is_copied = True

    def hand_over(self) -> object:
        """Moves the stream out, for another library, into a PyCapsule of a device stream."""
        capsule, out = _capsule.empty(_abi.ArrowDeviceArrayStream)
        self._move(_native.move_stream, ctypes.addressof(out))
        return capsule

    def _move(self, move: Callable[[int, int], object], out: int) -> None:
        """Has `move`, which is one call, move the stream to `out`, which frees it there: so nobody loses it."""
        _process.ensure_same(self._generation)
        with self._lock:
            self._ensure_here()
            if self._waiting:
                raise _errors.InvalidArgumentError("a coroutine waits for a batch of the stream")
            self._remember()
            self._gone = "the stream was handed to another library (__arrow_c_stream__ was called), which reads it now"
            try:
                move(ctypes.addressof(self._struct), out)
            finally:
                # Where it was not moved.
                _abi.release(self._struct)

    def hand_over_to_host(self) -> object:
        """As :meth:`hand_over`, a capsule of a stream of host memory, to which batches of CUDA are copied."""
        if self.device_type not in _TO_HOST:
            raise _errors.UnsupportedError(
                f"the batches lie on a device of type {self.device_type}: use __arrow_c_device_stream__"
            )
        capsule, out = _capsule.empty(_abi.ArrowArrayStream)
        self._move(_to_host, ctypes.addressof(out))
        return capsule

    def close(self) -> None:
        """Ends the stream; a call that waits in another thread is cancelled first."""
        if self._generation != _process.generation():
            return
        if not self._gone and self._is_cancelled_by_close:
            self.token.trigger()
        with self._lock:
            if self._gone:
                return
            self._remember()
            with self._waiting_lock:
                self._gone = "the reader is closed"
                self._release_if_gone()
