"""Memory that clients on the same machine read without a copy."""

from __future__ import annotations

import ctypes
import pickle
from ctypes import c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _abi, _arguments, _errors, _library, _native
from ._arguments import Device
from ._handle import make, options

if TYPE_CHECKING:
    import pyarrow as pa

_checked, _plain = _library.checked, _library.plain
_alloc, _stat = _checked("dipc_arena_alloc"), _checked("dipc_arena_stat")


class ArenaStats(NamedTuple):
    """What an arena holds."""

    used_bytes: int
    """Bytes of blocks in use."""
    mapped_bytes: int
    """Bytes taken from the system."""


class DeviceBlock:
    """A block of a GPU's memory, given back when nobody holds this object any more.

    ``cupy.asarray(block)``, ``numba.cuda.as_cuda_array(block)`` and whatever else knows the CUDA Array Interface take
    it as bytes that lie there, and hold it. Code that enqueues work by the address must hold this object until that
    work is done.
    """

    def __init__(self, block: _native.Owner, address: int, size: int, device_id: int) -> None:
        self._block = block
        self.address = address
        """For the device: the processor must not touch it."""
        self.size = size
        self.device_id = device_id

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<dipc.DeviceBlock of {self.size} bytes on GPU {self.device_id}>"


class Arena:
    """Gives out memory whose contents reach a client without a copy: a client maps it.

    A client that was lent one block can read the whole region that it lies in: an arena is as public as
    the most public ticket whose batches lie in it. Any thread may use it, also several at once.

    :param region_bytes: The size of one region; 64 MiB by default. A client maps whole regions.
    :param max_bytes: The bound on all regions together; none by default.
    :param device: Where the memory lies: "cpu", or a GPU: "cuda", "cuda:1".
    """

    def __init__(
        self, *, region_bytes: int | None = None, max_bytes: int | None = None, device: Device = "cpu"
    ) -> None:
        self.device_type: int
        self.device_id: int
        self.device_type, self.device_id = _arguments.device(device, as_sent=False)
        values = _arguments.some({"region_bytes": region_bytes, "max_bytes": max_bytes})
        with options("arena_options", [*values], _checked, _plain("dipc_arena_options_free")) as pointer:
            self._handle = make(
                "arena",
                _checked("dipc_arena_new"),
                _plain("dipc_arena_free"),
                self.device_type,
                self.device_id,
                pointer,
            )

    def alloc(self, size: int) -> memoryview:
        """A block of `size` bytes, aligned to 64, to be written; what it holds is not defined.

        It is given back when the view and all that was made of it (``numpy.frombuffer``,
        ``pyarrow.py_buffer``, slices) are gone. Raises OutOfMemoryError; UnsupportedError for an arena on a
        GPU, whose blocks :meth:`alloc_on_device` gives.
        """
        if self.device_type != _abi.CPU:
            raise _errors.UnsupportedError(
                "the arena lies on a GPU, which Python cannot look into: use alloc_on_device()"
            )
        block, address, size = self._take(size)
        memory = (ctypes.c_ubyte * size).from_address(address)
        memory.block = block  # type: ignore[attr-defined]
        # The raw view has the format of plain bytes. A view of a ctypes array has "<B", which cannot be indexed.
        return pickle.PickleBuffer(memory).raw()

    def alloc_on_device(self, size: int) -> DeviceBlock:
        """A block of `size` bytes of the GPU that the arena is on, aligned to 64; what it holds is not defined.

        Raises OutOfMemoryError; UnsupportedError for an arena of the host.
        """
        if self.device_type == _abi.CPU:
            raise _errors.UnsupportedError("the arena lies on the host: use alloc()")
        block, address, size = self._take(size)
        return DeviceBlock(block, address, size, self.device_id)

    def _take(self, size: int) -> tuple[_native.Owner, int, int]:
        """A new block: what gives it back when the last view of it is gone, its address, and its size, checked."""
        size = _arguments.count(size, "size")
        address = c_void_p()
        with self._handle as arena:
            _alloc(arena, size, ctypes.byref(address))
        assert address.value is not None
        return _native.Owner(address.value, _native.dealloc, waits=False), address.value, size

    def copy(self, obj: Any) -> pa.Table:
        """A copy of a table whose buffers lie in the arena; by pyarrow, which must be installed.

        `obj` is anything that ``pyarrow.table()`` takes. The copy can be served again and again, and
        reaches clients on this machine without a further one.
        """
        import pyarrow as pa

        table = pa.table(obj)
        # pyarrow writes wrong lengths for an empty slice that begins after the first row.
        rows = pa.Table.from_batches([batch for batch in table.to_batches() if batch.num_rows], table.schema)
        size = pa.MockOutputStream()
        with pa.ipc.new_stream(size, table.schema) as writer:
            writer.write_table(rows)
        buffer = pa.py_buffer(self.alloc(size.size()))
        with pa.ipc.new_stream(pa.FixedSizeBufferWriter(buffer), table.schema) as writer:
            writer.write_table(rows)
        return pa.ipc.open_stream(buffer).read_all()

    @property
    def stats(self) -> ArenaStats:
        with self._handle as arena:
            return ArenaStats(*(_library.number_of(_stat, arena, which) for which in (1, 2)))

    def close(self) -> None:
        """Frees the arena; its memory lives until the last block is given back. May be called again."""
        self._handle.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
