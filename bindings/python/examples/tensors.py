"""A table of tensors, from the GPU memory of one process to another's.

tensors.py serve URI [MODULE [GPU]]     prints the URI for clients; the ticket is "tensors"
tensors.py fetch URI [MODULE [GPU]]     fetches it to the GPU, and compares the values
tensors.py check [MODULE [GPU]]         both, in two processes

MODULE is torch (the default) or cupy. A batch is a dict of tensors of one dimension and one length; a
fetched tensor is a view of the memory that the server lent, which stays until the last view is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_void_p, py_object

import dipc

CUDA = 2  # ARROW_DEVICE_CUDA
FORMATS = {"<i4": b"i", "<i8": b"l", "<f2": b"e", "<f4": b"f", "<f8": b"g"}
"""Arrow's format of each type of the CUDA Array Interface."""
ROWS, BATCHES = 1 << 20, 8
RELEASE = CFUNCTYPE(None, c_void_p)


class ArrowSchema(Structure):
    """Of the Arrow C data interface."""


ArrowSchema._fields_ = [
    ("format", c_char_p), ("name", c_char_p), ("metadata", c_void_p), ("flags", c_int64), ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))), ("dictionary", c_void_p), ("release", c_void_p),
    ("private_data", c_void_p),
]  # fmt: skip


class ArrowArray(Structure):
    """Of the Arrow C data interface."""


ArrowArray._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(ArrowArray))), ("dictionary", c_void_p),
    ("release", c_void_p), ("private_data", c_void_p),
]  # fmt: skip


class ArrowDeviceArray(Structure):
    """Of the Arrow C device data interface."""

    _fields_ = [
        ("array", ArrowArray), ("device_id", c_int64), ("device_type", c_int32), ("sync_event", POINTER(c_void_p)),
        ("reserved", c_int64 * 3),
    ]  # fmt: skip


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]

_exported: dict[int, object] = {}
"""What each exported struct needs, until its consumer releases it."""


def _release(struct: ArrowSchema | ArrowArray) -> None:
    for index in range(struct.n_children):
        child = struct.children[index][0]
        if child.release:
            RELEASE(child.release)(ctypes.addressof(child))
    kept = _exported.pop(struct.private_data)
    struct.release = None
    # Last: the struct itself may be among them.
    del kept


@RELEASE
def _release_schema(address: int) -> None:
    _release(ArrowSchema.from_address(address))


@RELEASE
def _release_array(address: int) -> None:
    _release(ArrowArray.from_address(address))


def _export(struct: ArrowSchema | ArrowArray, release: object, keep: object) -> None:
    key = id(keep)
    _exported[key] = keep
    struct.private_data = key
    struct.release = ctypes.cast(release, c_void_p)


def _pointers(structs: list, kind: type) -> ctypes.Array:
    return (POINTER(kind) * len(structs))(*[ctypes.pointer(struct) for struct in structs])


class Batch:
    """Tensors as one batch of Arrow, for ``Server.publish``. All work on them is done."""

    def __init__(self, tensors: dict) -> None:
        self._tensors = tensors

    def __arrow_c_schema__(self) -> object:
        children = []
        for name, tensor in self._tensors.items():
            column = ArrowSchema(format=FORMATS[tensor.__cuda_array_interface__["typestr"]], name=name.encode())
            _export(column, _release_schema, [column])
            children.append(column)
        schema = ArrowSchema(
            format=b"+s", name=b"", n_children=len(children), children=_pointers(children, ArrowSchema)
        )
        _export(schema, _release_schema, [schema, children])
        return _new_capsule(ctypes.addressof(schema), b"arrow_schema", None)

    def __arrow_c_device_array__(self, requested_schema: object = None, **_kwargs: object) -> tuple[object, object]:
        children = []
        for tensor in self._tensors.values():
            face = tensor.__cuda_array_interface__
            # No bitmap: nothing is null.
            buffers = (c_void_p * 2)(None, face["data"][0])
            column = ArrowArray(length=face["shape"][0], n_buffers=2, buffers=buffers)
            _export(column, _release_array, [column, buffers, tensor])
            children.append(column)
        none = (c_void_p * 1)(None)
        _, gpu = next(iter(self._tensors.values())).__dlpack_device__()
        batch = ArrowDeviceArray(device_id=gpu, device_type=CUDA)
        batch.array.length = children[0].length
        batch.array.n_buffers, batch.array.buffers = 1, none
        batch.array.n_children, batch.array.children = len(children), _pointers(children, ArrowArray)
        _export(batch.array, _release_array, [batch, none, children])
        return self.__arrow_c_schema__(), _new_capsule(ctypes.addressof(batch), b"arrow_device_array", None)


class Column:
    """A column where it lies, for ``torch.as_tensor`` and ``cupy.asarray``; keeps its batch."""

    def __init__(self, batch: object, typestr: str, address: int, rows: int) -> None:
        self._batch = batch
        # PyTorch refuses memory that may only be read; nobody writes here all the same.
        self.__cuda_array_interface__ = {"shape": (rows,), "typestr": typestr, "data": (address, False), "version": 3}


def columns(batch: dipc.Batch) -> dict[str, Column]:
    """The columns of a fetched batch on a GPU, once the server's work on them is done."""
    schema_capsule, array_capsule = batch.__arrow_c_device_array__()
    schema = ArrowSchema.from_address(_pointer(schema_capsule, b"arrow_schema"))
    device = ArrowDeviceArray.from_address(_pointer(array_capsule, b"arrow_device_array"))
    if device.device_type != CUDA:
        raise ValueError("the batch does not lie on a GPU")
    if device.sync_event:
        status = ctypes.CDLL("libcuda.so.1").cuEventSynchronize(c_void_p(device.sync_event[0]))
        if status != 0:
            raise RuntimeError(f"cuEventSynchronize: CUDA error {status}")
    types = {code: typestr for typestr, code in FORMATS.items()}
    found = {}
    for index in range(schema.n_children):
        field, column = schema.children[index][0], device.array.children[index][0]
        if column.offset or column.null_count:
            raise ValueError("a column with an offset or with nulls is no tensor")
        found[field.name.decode()] = Column(array_capsule, types[field.format], column.buffers[1], column.length)
    return found


def tensors(module: object, number: int) -> dict:
    """The tensors of one batch, which both sides make."""
    first = number * ROWS
    if module.__name__ == "torch":
        whole = module.arange(first, first + ROWS, dtype=module.int64, device="cuda")
        return {"n": whole, "half": whole.to(module.float32) / 2}
    whole = module.arange(first, first + ROWS, dtype=module.int64)
    return {"n": whole, "half": whole.astype(module.float32) / 2}


def load(name: str, gpu: int) -> object:
    module = importlib.import_module(name)
    (module.cuda.set_device(gpu) if name == "torch" else module.cuda.Device(gpu).use())
    return module


def serve(uri: str, module: object) -> None:
    batches = [Batch(tensors(module, number)) for number in range(BATCHES)]
    # What was enqueued must be done: a batch without an event says that it is.
    (module.cuda.synchronize() if module.__name__ == "torch" else module.cuda.Device().synchronize())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with dipc.Server() as server:
        server.publish("tensors", batches)
        print(server.listen(uri), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def fetch(uri: str, module: object, gpu: int) -> None:
    view = module.as_tensor if module.__name__ == "torch" else module.asarray
    with dipc.get(uri, "tensors", device=f"cuda:{gpu}") as reader:
        number = 0
        for batch in reader:
            wanted = tensors(module, number)
            for name, column in columns(batch).items():
                if not bool((view(column) == wanted[name]).all()):
                    sys.exit(f"batch {number}: the values of {name!r} differ")
            number += 1
        stats = reader.stats
    if number != BATCHES:
        sys.exit(f"{number} batches came, and {BATCHES} were served")
    print(
        f"{stats.rows} rows in {number} batches are equal; {stats.bytes_lent >> 20} MiB lent, "
        f"{stats.bytes_copied_on_device >> 20} MiB copied on the device, {stats.bytes_staged >> 20} MiB via the host"
    )


def check(name: str, gpu: str) -> None:
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", f"shm:@dipc-tensors-{os.getpid()}", name, gpu],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        uri = server.stdout.readline().strip()
        if not uri:
            sys.exit("the server ended before it was ready")
        done = subprocess.run([sys.executable, __file__, "fetch", uri, name, gpu], check=False, timeout=300)
    finally:
        server.terminate()
        ended = server.wait(60)
    if done.returncode or ended:
        sys.exit(f"the client ended with {done.returncode}, the server with {ended}")


def main(verb: str = "", *arguments: str) -> None:
    if verb not in ("serve", "fetch", "check"):
        sys.exit(__doc__)
    uri, *rest = arguments if verb != "check" else ("", *arguments)
    name, gpu = [*rest, *("torch", "0")[len(rest) :]]
    if verb == "check":
        check(name, gpu)
    elif verb == "serve":
        serve(uri, load(name, int(gpu)))
    else:
        fetch(uri, load(name, int(gpu)), int(gpu))


if __name__ == "__main__":
    main(*sys.argv[1:])
