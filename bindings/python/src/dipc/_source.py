"""Arrow data of other libraries, through their PyCapsules, as a provider's stream."""

from __future__ import annotations

import ctypes
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from . import _abi, _capsule, _errors, _library
from ._reader import Batch, Reader
from ._schema import Schema

_from_host = _library.checked("dipc_stream_from_host")
_check_schema = _library.checked("dipc_batch_check_schema")

KINDS = (
    "an object with __arrow_c_device_stream__, __arrow_c_stream__, __arrow_c_device_array__ or "
    "__arrow_c_array__ (of pyarrow, polars, duckdb, pandas, nanoarrow, dipc, ...), or an iterable of such batches"
)


class Source(Protocol):
    """Batches in order. One thread at a time."""

    schema: _abi.ArrowSchema
    device_type: int

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """The next batch, which the caller then owns, and its encoded custom metadata; None at the end."""
        ...

    def close(self) -> None:
        """Releases what is left."""
        ...


class AsyncSource(Protocol):
    """As :class:`Source`, for coroutines."""

    schema: _abi.ArrowSchema
    device_type: int

    async def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None: ...

    async def aclose(self) -> None: ...


def is_arrow(obj: object) -> bool:
    """Whether an object says that it is Arrow data."""
    return any(
        hasattr(obj, name)
        for name in ("__arrow_c_device_stream__", "__arrow_c_stream__", "__arrow_c_device_array__", "__arrow_c_array__")
    )


def is_read_once(obj: object) -> bool:
    """Whether an object is a stream rather than a table: a second client would find a stream empty."""
    return any(hasattr(obj, name) for name in ("__next__", "read_next_batch", "read_next"))


def open_source(obj: Any) -> Source:
    """The batches of an object. Raises TypeError if it is none of KINDS."""
    if isinstance(obj, Reader):
        return _ReaderSource(obj)
    if hasattr(obj, "__arrow_c_device_stream__"):
        return StreamSource(_capsule.take(obj.__arrow_c_device_stream__(), _abi.ArrowDeviceArrayStream))
    if hasattr(obj, "__arrow_c_device_array__"):
        schema, array = obj.__arrow_c_device_array__()
        return _OneBatch(obj, schema, _capsule.take(array, _abi.ArrowDeviceArray))
    if hasattr(obj, "__arrow_c_stream__"):
        host = _capsule.take(obj.__arrow_c_stream__(), _abi.ArrowArrayStream)
        device = _abi.ArrowDeviceArrayStream()
        _from_host(ctypes.addressof(host), ctypes.addressof(device))
        return StreamSource(device)
    if hasattr(obj, "__arrow_c_array__"):
        schema, array = obj.__arrow_c_array__()
        return _OneBatch(obj, schema, _abi.on_host(_capsule.take(array, _abi.ArrowArray)))
    if hasattr(obj, "__iter__") and not isinstance(obj, (str, bytes, dict)):
        return _Concatenated(iter(obj))
    raise TypeError(f"cannot serve {type(obj).__name__}: give {KINDS}")


async def open_async(obj: Any) -> AsyncSource:
    """As :func:`open_source`; also of an async iterable of batches."""
    if isinstance(obj, Reader):
        return _AsyncReaderSource(obj)
    if hasattr(obj, "__aiter__") and not is_arrow(obj):
        items = obj.__aiter__()
        try:
            return _AsyncConcatenated(items, await items.__anext__())
        except StopAsyncIteration:
            raise ValueError(_NO_SCHEMA) from None
        except BaseException:
            await _aclose(items)
            raise
    return NeverWaits(open_source(obj))


async def _aclose(items: object) -> None:
    """Has an async generator's `finally` run now, not when it is collected."""
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class NeverWaits:
    """A source that coroutines read as it is."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.schema = source.schema
        self.device_type = source.device_type

    async def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        return self._source.next()

    async def aclose(self) -> None:
        self._source.close()


class StreamSource:
    """A C stream: reading it needs the GIL only if its own callbacks do."""

    stream: _abi.ArrowDeviceArrayStream

    def __init__(self, stream: _abi.ArrowDeviceArrayStream) -> None:
        self.stream = stream
        self._next = _abi.GET(stream.get_next)
        self.device_type: int = stream.device_type
        self.schema = _abi.ArrowSchema()
        if _abi.GET(stream.get_schema)(ctypes.addressof(stream), ctypes.addressof(self.schema)):
            error = self.failure()
            self.close()
            raise error

    def failure(self) -> _errors.ProviderError:
        """The reason why a callback of the stream has just failed."""
        text = _abi.GET_LAST_ERROR(self.stream.get_last_error)(ctypes.addressof(self.stream))
        return _errors.ProviderError((text or b"the stream failed and gave no reason").decode(errors="replace"))

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        array = _abi.ArrowDeviceArray()
        if self._next(ctypes.addressof(self.stream), ctypes.addressof(array)):
            raise self.failure()
        return None if _abi.is_released(array) else (array, b"")

    def close(self) -> None:
        _abi.release(self.schema)
        _abi.release(self.stream)


class _ReaderSource:
    """One of this package's readers: metadata of batches, and the status of failures, are passed on."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.schema = reader.schema.export()
        self.device_type: int = reader.device_type

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        return self._reader.next_struct()

    def close(self) -> None:
        _abi.release(self.schema)
        self._reader.close()


class _AsyncReaderSource(_ReaderSource):
    """As :class:`_ReaderSource`, on the running loop."""

    async def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:  # type: ignore[override]
        return await self._reader.anext_struct()

    async def aclose(self) -> None:
        self.close()


class _OneBatch:
    """A single batch."""

    def __init__(self, obj: object, schema: object, array: _abi.ArrowDeviceArray) -> None:
        self._array = array
        self._metadata = obj.encoded_metadata if isinstance(obj, Batch) else b""
        self.device_type: int = array.device_type
        self.schema = _capsule.take(schema, _abi.ArrowSchema)

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        return None if _abi.is_released(self._array) else (_abi.move(self._array), self._metadata)

    def close(self) -> None:
        _abi.release(self.schema)
        _abi.release(self._array)


_NO_SCHEMA = "the iterable gave no batch, and so no schema: for a table without rows give one batch of 0 rows"


class _Joined:
    """Batches of several objects, one after the other. The first object gives the schema."""

    def __init__(self, first: object) -> None:
        self._source = open_source(first)
        # The sender takes `schema` long before the last batch.
        self._declared = Schema(self._source.schema)
        self.schema = self._declared.export()
        self.device_type = self._source.device_type

    def _go_on(self, item: object) -> None:
        self._source.close()
        self._source = open_source(item)
        ensure_fits(self._declared, self._source.schema)

    def _release(self) -> None:
        _abi.release(self.schema)
        self._source.close()


class _Concatenated(_Joined):
    """What an iterable or a generator gives."""

    def __init__(self, items: Iterator[object]) -> None:
        self._items = items
        try:
            first = next(items)
        except StopIteration:
            raise ValueError(_NO_SCHEMA) from None
        super().__init__(first)

    def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        while (found := self._source.next()) is None:
            try:
                item = next(self._items)
            except StopIteration:
                return None
            self._go_on(item)
        return found

    def close(self) -> None:
        self._release()
        # A generator's `finally` runs now, not when it is collected.
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class _AsyncConcatenated(_Joined):
    """What an async iterable or generator gives, after `first`."""

    def __init__(self, items: AsyncIterator[object], first: object) -> None:
        self._items = items
        super().__init__(first)

    async def next(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        while (found := self._source.next()) is None:
            try:
                item = await self._items.__anext__()
            except StopAsyncIteration:
                return None
            self._go_on(item)
        return found

    async def aclose(self) -> None:
        self._release()
        await _aclose(self._items)


def ensure_fits(stream: Schema, batch: _abi.ArrowSchema) -> None:
    """Raises InvalidDataError with the first difference if a batch has other columns than its stream."""
    declared = stream.export()
    try:
        _check_schema(ctypes.addressof(declared), ctypes.addressof(batch))
    finally:
        _abi.release(declared)
