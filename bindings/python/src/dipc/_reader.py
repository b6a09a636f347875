"""What ``dipc.get()`` gives: a stream of batches."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from . import _abi, _arguments, _capsule, _errors, _native, _optional, _wait
from ._arguments import Device
from ._column import Column
from ._headers import Headers
from ._schema import Schema, decode_metadata
from ._stream import Stream, StreamStats

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Batch:
    """One record batch. ``pyarrow.record_batch(batch)``, ``polars.DataFrame(batch)`` take it as it is.

    It points into memory that the server lent or that was received, which goes back when the batch, and
    all that other libraries made of it, are gone.
    """

    __slots__ = ("_shared", "device_id", "device_type", "encoded_metadata", "num_rows", "schema")

    schema: Schema
    num_rows: int
    encoded_metadata: bytes
    """Custom metadata of this batch, as the C data interface encodes it."""
    device_type: int
    """Where it lies, as ARROW_DEVICE_* of dipc.h: 1 is host memory."""
    device_id: int

    def __init__(self, struct: _abi.ArrowDeviceArray, schema: Schema, encoded_metadata: bytes) -> None:
        """Moves out of `struct`."""
        self.schema = schema
        self.num_rows = struct.array.length
        self.encoded_metadata = encoded_metadata
        self.device_type = struct.device_type
        self.device_id = struct.device_id
        self._shared = _native.Shared("array", struct)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Custom metadata of this batch; empty if there is none."""
        return decode_metadata(self.encoded_metadata)

    @property
    def num_columns(self) -> int:
        return len(self.schema.children)

    def __len__(self) -> int:
        return self.num_rows

    def column(self, which: int | str) -> Column:
        """A column, by its number or its name.

        :raises KeyError: if no column has the name, or several do.
        :raises IndexError: if there is no such number.
        """
        if isinstance(which, str):
            found = [index for index, name in enumerate(self.schema.names) if name == which]
            if len(found) != 1:
                raise KeyError(f"{len(found)} columns have the name {which!r}")
            return Column(self, found[0])
        return Column(self, range(self.num_columns)[which])

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(self, index) for index in range(self.num_columns))

    def export(self) -> _abi.ArrowDeviceArray:
        """For this package: an array that shares the memory, owned by the caller."""
        exported: _abi.ArrowDeviceArray = self._shared.give()
        return exported

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """PyCapsules of schema and array, which share the batch's memory. Host memory only; no casts."""
        if self.device_type != _abi.CPU:
            raise _errors.UnsupportedError(
                f"the batch lies on a device of type {self.device_type}: use __arrow_c_device_array__"
            )
        return self.schema.__arrow_c_schema__(), _capsule.wrap(self.export().array)

    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **_kwargs: object
    ) -> tuple[object, object]:
        """PyCapsules of schema and device array, which share the batch's memory; no casts."""
        return self.schema.__arrow_c_schema__(), _capsule.wrap(self.export())

    def __repr__(self) -> str:
        return f"<dipc.Batch {self.num_rows} rows, {self.num_columns} columns>"


class _Lent:
    """A stream for pyarrow."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._capsule


class Reader:
    """A table on its way in: schema first, then batches.

    Give it whole to a library that takes Arrow streams (``pyarrow.table(reader)``,
    ``polars.from_arrow(reader)``, ``duckdb.sql("FROM reader")``, ``nanoarrow.ArrayStream(reader)``), or
    iterate over it, by ``for`` or ``async for``, which waits on the running loop. It is read once. Use it in
    a ``with`` or ``async with`` block, or close it, to end the stream early; a reader that is collected ends
    it too.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def schema(self) -> Schema:
        return self._stream.schema()

    @property
    def device_type(self) -> int:
        """Where batches lie, as ARROW_DEVICE_* of dipc.h: 1 is host memory."""
        return self._stream.device_type

    @property
    def stats(self) -> StreamStats:
        """Figures so far; the last ones once it is closed, or was handed over."""
        return self._stream.stats()

    @property
    def headers(self) -> Headers:
        """Headers of the server's answer: those that came with the schema, then those of a failure.

        Once the reader is closed, or was handed over, those that had come by then.
        """
        return self._stream.headers()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hands the stream over, as a PyCapsule of host memory, to which batches on a GPU are copied; no casts."""
        return self._stream.hand_over_to_host()

    def __arrow_c_device_stream__(self, requested_schema: object | None = None, **_kwargs: object) -> object:
        """Hands the stream over, as a PyCapsule of a device stream; no casts."""
        return self._stream.hand_over()

    def to_device(self, device: Device) -> Reader:
        """Has the batches that are still to come copied to a device, or to the host, where they do not lie there.

        Batches on a GPU can be read once the ``sync_event`` of their struct has passed. Returns this reader.

        :raises UnsupportedError: there is no driver, or the library cannot copy between these devices.
        """
        self._stream.move(*_arguments.device(device, as_sent=False))
        return self

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        # Without this `pandas.DataFrame(reader)` is a frame of one cell.
        raise TypeError("a reader is no array: reader.to_pandas() makes a frame of it, reader.read_all() a table")

    def next_struct(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """For this package: the next batch as a struct, and its encoded metadata. Waits, without handling signals."""
        return self._stream.next()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._stream.is_copied:
            # Those copies wait for a GPU.
            found = _wait.call(self._stream.next, self.cancel)
        elif threading.current_thread() is threading.main_thread():
            try:
                found = self._stream.next_heard()
            except _errors.DipcError:
                raise
            except BaseException:
                # A signal's handler raised, maybe after a batch was taken.
                self.cancel()
                raise
        else:
            found = self._stream.next()
        if found is None:
            raise StopIteration
        return Batch(found[0], self.schema, found[1])

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def anext_struct(self) -> tuple[_abi.ArrowDeviceArray, bytes] | None:
        """:meth:`next_struct` for coroutines."""
        if self._stream.is_copied:
            return await _wait.acall(self._stream.next, self.cancel)
        return await self._stream.anext(_abi.ArrowDeviceArray())

    async def __anext__(self) -> Batch:
        found = await self.anext_struct()
        if found is None:
            raise StopAsyncIteration
        return Batch(found[0], self.schema, found[1])

    def read_all(self) -> pa.Table:
        """The rest of the table, by pyarrow, which must be installed.

        As ``pyarrow.table(reader)``, but Ctrl-C ends it at once, and a failure is one of this package's
        exceptions.
        """
        _optional.load("pyarrow", "pyarrow")
        return _wait.call(self._read_all, self.cancel)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The rest of the table, by pyarrow and pandas, which must be installed.

        As ``reader.read_all().to_pandas(**options)``, whose options are those of ``pyarrow.Table.to_pandas``.
        """
        _optional.load("pandas", "pandas")
        frame: pd.DataFrame = self.read_all().to_pandas(**options)
        return frame

    async def aread_all(self) -> pa.Table:
        """:meth:`read_all` for coroutines: cancelling the task cancels the stream."""
        _optional.load("pyarrow", "pyarrow")
        if self.device_type != _abi.CPU or self._stream.is_copied:
            # Those copies wait for a GPU.
            return await _wait.acall(self._read_all, self.cancel)
        import pyarrow as pa

        array = _abi.ArrowDeviceArray()
        batches = []
        try:
            # A batch is read first: pyarrow asks for the schema at once, but the schema may come only with the first
            # batch.
            is_here = await self._stream.anext(array) is not None
            reader = pa.RecordBatchReader.from_stream(_Lent(self._stream.lend(array)))
            while is_here:
                batches.append(reader.read_next_batch())
                # This saves a call of this package for each batch, which `array` would need.
                batches += self._stream.read_here(reader.read_next_batch)
                is_here = await self._stream.anext(array) is not None
        except BaseException:
            # Nobody else has these batches yet.
            self.cancel()
            raise
        finally:
            _abi.release(array)
        return pa.Table.from_batches(batches, reader.schema)

    def _read_all(self) -> pa.Table:
        import pyarrow as pa

        if self.device_type != _abi.CPU:
            self._stream.move(_abi.CPU, -1)
        # pyarrow reads the batches itself, because that is much faster than making a Batch of each. It reads one at a
        # time, so that a thread that asks for figures waits for no more than one batch.
        reader = self._stream.read(lambda: pa.RecordBatchReader.from_stream(_Lent(self._stream.lend())))
        batches = []
        try:
            while True:
                batches.append(self._stream.read(reader.read_next_batch))
        except StopIteration:
            return pa.Table.from_batches(batches, reader.schema)

    def cancel(self) -> None:
        """Ends the stream, from any thread: every call that reads it then, or waits for it, raises CancelledError.

        Reaches the stream even if another library reads it.
        """
        self._stream.token.trigger()

    def close(self) -> None:
        """Ends the stream, if it is not at its end. May be called again."""
        self._stream.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Releasing a stream waits only for a running call on it, and the cancel ends that call.
        self.close()

    def __repr__(self) -> str:
        schema = self._stream.known_schema
        return "<dipc.Reader whose schema has not come>" if schema is None else f"<dipc.Reader of {schema!r}>"
