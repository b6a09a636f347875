"""One column of a batch, for libraries of arrays: DLPack."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from typing import TYPE_CHECKING

from . import _abi, _capsule, _cuda, _errors, _native
from ._schema import Schema

if TYPE_CHECKING:
    # Batches give columns, and a column names the type of the batch that it keeps.
    from ._reader import Batch

# The key is a format of the C data interface; the value is DLDataTypeCode and bits.
_INT, _UINT, _FLOAT = 0, 1, 2
_TYPES = {
    "c": (_INT, 8), "s": (_INT, 16), "i": (_INT, 32), "l": (_INT, 64),
    "C": (_UINT, 8), "S": (_UINT, 16), "I": (_UINT, 32), "L": (_UINT, 64),
    "e": (_FLOAT, 16), "f": (_FLOAT, 32), "g": (_FLOAT, 64),
}  # fmt: skip

# A capsule keeps the address of its name, and can outlive this module.
_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
for _name in (_NAME, _VERSIONED_NAME):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))


class Column:
    """A column of a :class:`Batch`, whose memory it shares.

    ``pyarrow.array(column)`` takes it, and ``numpy.from_dlpack(column)``, ``torch.from_dlpack(column)``,
    ``cupy.from_dlpack(column)`` if it has whole or floating-point numbers and no nulls. The memory must not be written
    to.
    """

    __slots__ = ("_batch", "_index", "schema")

    schema: Schema
    """Its name and type."""

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index
        self.schema = batch.schema.children[index]

    @property
    def name(self) -> str:
        return self.schema.name

    def __len__(self) -> int:
        return self._batch.num_rows

    def _export(self) -> _abi.ArrowDeviceArray:
        """The column as an array of its own, owned by the caller."""
        whole = self._batch.export()
        try:
            child = _abi.ArrowArray.from_address(
                (c_void_p * whole.array.n_children).from_address(whole.array.children)[self._index]
            )
            # The offset of a struct counts for its children.
            if whole.array.offset or child.length != whole.array.length:
                child.offset += whole.array.offset
                child.length = whole.array.length
                child.null_count = -1 if child.null_count else 0
            return _abi.ArrowDeviceArray(
                array=_abi.move(child),
                device_id=whole.device_id,
                device_type=whole.device_type,
                sync_event=whole.sync_event,
            )
        finally:
            _abi.release(whole)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """PyCapsules of schema and array, which share the batch's memory. Host memory only; no casts."""
        if self._batch.device_type != _abi.CPU:
            raise _errors.UnsupportedError(
                f"the column lies on a device of type {self._batch.device_type}: use __arrow_c_device_array__"
            )
        return self.__arrow_c_schema__(), _capsule.wrap(self._export().array)

    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **_kwargs: object
    ) -> tuple[object, object]:
        """PyCapsules of schema and device array, which share the batch's memory; no casts."""
        return self.__arrow_c_schema__(), _capsule.wrap(self._export())

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the device: the types are those of Arrow."""
        return self._batch.device_type, max(self._batch.device_id, 0)

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A PyCapsule of DLPack's, which shares the batch's memory, or with `copy` owns a copy.

        On a GPU it waits until the values are there, so `stream` does not matter. Consumers that know DLPack 1.0 are
        told that the memory is read-only; older ones are not, and must not write either.

        :raises BufferError: for a type that DLPack does not have, nulls, and another device.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the column lies on {self.__dlpack_device__()}, and cannot be had on {dl_device}")
        if copy and self._batch.device_type != _abi.CPU:
            raise BufferError("a column on a GPU is not copied")
        if self.schema.format not in _TYPES or self.schema.dictionary is not None:
            raise BufferError(f"a column of the type {self.schema.format!r} is no tensor: whole and floating-point "
                              "numbers are")  # fmt: skip
        struct = self._export()
        try:
            return self._tensor(struct, max_version is not None and max_version[0] >= 1, bool(copy))
        finally:
            # Where it was not taken.
            _abi.release(struct)

    def _tensor(self, struct: _abi.ArrowDeviceArray, versioned: bool, copied: bool) -> object:
        validity, values = (c_void_p * 2).from_address(struct.array.buffers)
        if validity and struct.array.null_count:
            raise BufferError("a column with nulls is no tensor")
        if struct.sync_event:
            _cuda.wait(struct.device_id, struct.sync_event)
        code, bits = _TYPES[self.schema.format]
        data = None if values is None else values + struct.array.offset * bits // 8
        tensor = _native.Tensor(data, *self.__dlpack_device__(), code, bits)
        pointer = _native.dlpack(ctypes.byref(tensor), struct.array.length, ctypes.addressof(struct), versioned, copied)
        if pointer is None:
            raise MemoryError
        capsule: object = _native.new_capsule(pointer, _VERSIONED_NAME if versioned else _NAME, _native.destroy_dlpack)
        return capsule

    def __repr__(self) -> str:
        return f"<dipc.Column {self.name!r} of {len(self)} values, {self.schema.format}>"
