"""Arrays on a GPU through the package: made there, served, fetched, handed on.

In processes of their own with a driver without a GPU (tests/fake_cuda), and with the real one where this
machine has it: whose memory holds what, the driver's own copies say.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess

import pytest

from conftest import ROOT, WAIT, has_driver, new_address

DRIVER = """
import ctypes, sys
import dipc
from dipc import _abi, _capsule

driver = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, (name, status)
call("cuInit", 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)

# Like a library that has its own CUDA context, and leaves no context current.
def copy(target, source, size):
    call("cuCtxPushCurrent_v2", context)
    call("cuMemcpy", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
    call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

def read(address, count, kind=ctypes.c_int64):
    values = (kind * count)()
    copy(ctypes.addressof(values), address, ctypes.sizeof(values))
    return list(values)
"""

SERVE = """
ROWS = 50_000
arena = dipc.Arena(device="cuda", region_bytes=1 << 22)
live = 0

class Batch:
    # A struct of one column "n" of int64, in blocks of the arena, as another library would hand it on.
    def __init__(self, first):
        self.block = arena.alloc_on_device(8 * ROWS)
        face = self.block.__cuda_array_interface__
        assert face["data"][0] == self.block.address and face["shape"] == (8 * ROWS,)
        values = (ctypes.c_int64 * ROWS)(*range(first, first + ROWS))
        copy(self.block.address, ctypes.addressof(values), ctypes.sizeof(values))

    def __arrow_c_schema__(self):
        import pyarrow as pa
        return pa.schema([("n", pa.int64())]).__arrow_c_schema__()

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        global live
        live += 1
        column = _abi.ArrowArray(length=ROWS, n_buffers=2)
        buffers = (ctypes.c_void_p * 2)(None, self.block.address)
        column.buffers = ctypes.addressof(buffers)
        children = (ctypes.c_void_p * 1)(ctypes.addressof(column))
        none = (ctypes.c_void_p * 1)(None)
        array = _abi.ArrowDeviceArray(device_id=0, device_type=2)
        array.array.length, array.array.n_buffers, array.array.n_children = ROWS, 1, 1
        array.array.buffers = ctypes.addressof(none)
        array.array.children = ctypes.addressof(children)
        key = len(kept)
        def release(address):
            global live
            live -= 1
            _abi.ArrowArray.from_address(address).release = None
            kept[key] = None
        column_release = _abi.RELEASE(lambda address: setattr(_abi.ArrowArray.from_address(address), "release", None))
        own_release = _abi.RELEASE(release)
        column.release = ctypes.cast(column_release, ctypes.c_void_p).value
        array.array.release = ctypes.cast(own_release, ctypes.c_void_p).value
        kept.append((self, column, buffers, children, none))
        callbacks.append((column_release, own_release))
        return self.__arrow_c_schema__(), _capsule.wrap(array)

kept, callbacks = [], []
server = dipc.Server()
server.serve("numbers", lambda: [Batch(first) for first in (0, ROWS, 2 * ROWS)])
def fail(request):
    request.add_headers({"who": "a GPU"})
    yield Batch(0)
    raise dipc.BusyError("the GPU is taken")
server.serve("fails", fail)
print(server.listen(sys.argv[1]), flush=True)
sys.stdin.readline()
import time
end = time.monotonic() + 50
# Arrays that clients gave back are released, and their memory comes back to the arena.
while live and time.monotonic() < end:
    time.sleep(0.01)
stats = server.stats
server.close()
kept.clear()
print(live, arena.stats.used_bytes, stats.bytes_copied, stats.bytes_lent >= 2 * 3 * 8 * ROWS, flush=True)
"""

GET = """
import pyarrow as pa
ROWS = 50_000
uri = sys.argv[1]

def columns(array):
    child = _abi.ArrowArray.from_address(ctypes.c_void_p.from_address(array.array.children).value)
    return (ctypes.c_void_p * 2).from_address(child.buffers)

# Batch by batch, by __arrow_c_device_array__.
for device in ("cuda", "as-sent"):
    reader = dipc.get(uri, "numbers", device=device)
    assert reader.device_type == 2
    for index, batch in enumerate(reader):
        assert (batch.device_type, batch.device_id, len(batch)) == (2, 0, ROWS)
        try:
            batch.__arrow_c_array__()
            raise AssertionError("a batch on a GPU was taken for one on the host")
        except dipc.UnsupportedError as error:
            assert "__arrow_c_device_array__" in str(error)
        _, capsule = batch.__arrow_c_device_array__()
        array = _capsule.take(capsule, _abi.ArrowDeviceArray)
        if array.sync_event:
            event = ctypes.c_void_p.from_address(array.sync_event)
            call("cuCtxPushCurrent_v2", context)
            call("cuEventSynchronize", event)
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        assert read(columns(array)[1], ROWS) == list(range(index * ROWS, (index + 1) * ROWS))
        _abi.release(array)
    stats = reader.stats
    assert index == 2 and stats.bytes_lent >= 3 * 8 * ROWS, stats
    assert (stats.bytes_copied, stats.bytes_staged, stats.bytes_copied_on_device) == (0, 0, 0), stats

# The whole stream, by __arrow_c_device_stream__, which another server of this package takes too.
reader = dipc.get(uri, "numbers", device="cuda")
stream = _capsule.take(reader.__arrow_c_device_stream__(), _abi.ArrowDeviceArrayStream)
assert stream.device_type == 2
rows = 0
while True:
    array = _abi.ArrowDeviceArray()
    assert _abi.GET(stream.get_next)(ctypes.addressof(stream), ctypes.addressof(array)) == 0
    if _abi.is_released(array):
        break
    assert (array.device_type, array.device_id) == (2, 0)
    rows += array.array.length
    _abi.release(array)
_abi.release(stream)
assert rows == 3 * ROWS

# To the host, where pyarrow reads it: the server brings it there, or this process does.
for take in (pa.table, lambda reader: reader.read_all()):
    for device in ("cpu", "cuda"):
        table = take(dipc.get(uri, "numbers", device=device))
        assert table["n"].to_pylist() == list(range(3 * ROWS)), device

# From the host to the GPU and back, here, batch by batch and by coroutines.
import asyncio
async def rows(reader):
    return sum([len(batch) async for batch in reader])
reader = dipc.get(uri, "numbers").to_device(("cuda", 0))
assert reader.device_type == 2
first = next(reader)
assert (first.device_type, first.device_id) == (2, 0)
assert asyncio.run(rows(reader)) == 2 * ROWS
assert reader.stats.rows == 3 * ROWS
reader = dipc.get(uri, "numbers", device="cuda").to_device("cpu")
assert [pa.record_batch(batch)["n"][0].as_py() for batch in reader] == [0, ROWS, 2 * ROWS]

# Single columns, by DLPack: the tensor lies where the batch does, and its values are there.
import numpy
class Managed(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64))]
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
def copied():
    # The driver of the tests can take its time for a copy: the tensor waits for it.
    delay = getattr(driver, "fakeCudaDelay", lambda microseconds: None)
    with dipc.get(uri, "numbers").to_device("cuda") as reader:
        delay(100_000)
        try:
            return next(reader)
        finally:
            delay(0)

for get in (lambda: list(dipc.get(uri, "numbers", device="cuda"))[0], copied):
    batch = get()
    column = batch.column("n")
    assert column.__dlpack_device__() == (2, 0)
    capsule = column.__dlpack__(stream=1)
    tensor = Managed.from_address(pointer(capsule, b"dltensor"))
    assert (tensor.device_type, tensor.device_id, tensor.ndim, tensor.code, tensor.bits) == (2, 0, 1, 0, 64)
    assert tensor.shape[0] == ROWS
    assert read(tensor.data, ROWS) == list(range(ROWS))
    for use in (lambda: numpy.from_dlpack(column), lambda: column.__dlpack__(copy=True)):
        try:
            use()
            raise AssertionError("a tensor on a GPU was taken for one on the host")
        except (BufferError, RuntimeError):
            pass
    try:
        column.__arrow_c_array__()
        raise AssertionError("a column on a GPU was taken for one on the host")
    except dipc.UnsupportedError as error:
        assert "__arrow_c_device_array__" in str(error)
    del capsule, column, batch

# What was copied to the host here keeps status, figures and headers.
reader = dipc.get(uri, "fails", device="cuda")
try:
    reader.read_all()
    raise AssertionError("a stream that fails was read whole")
except dipc.BusyError as error:
    assert "the GPU is taken" in str(error)
assert (reader.device_type, reader.stats.rows, reader.headers) == (1, ROWS, {"who": b"a GPU"})
print("good")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The folder of the driver that the scripts find first; None for that of the machine."""
    if has_driver():
        return None
    if shutil.which("cc") is None:
        pytest.skip("there is neither a CUDA driver nor a compiler for the one of the tests")
    folder = tmp_path_factory.mktemp("fake_cuda")
    subprocess.run([ROOT / "tests/fake_cuda/build.sh", folder], check=True, timeout=WAIT)
    return folder


@pytest.fixture
def environment(driver):
    if driver is None:
        return dict(os.environ)
    paths = [str(driver), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}


def test_arrays_on_a_gpu(script, environment):
    """What another library has on a GPU is served where it lies, and arrives there, or on the host."""
    server = script(DRIVER + SERVE, new_address(), env=environment)
    uri = server.stdout.readline().strip()
    assert uri, server.communicate(timeout=WAIT)
    client = script(DRIVER + GET, uri, env=environment)
    out, errors = client.communicate(timeout=WAIT)
    assert (out, client.returncode) == ("good\n", 0), errors
    out, errors = server.communicate("\n", timeout=WAIT)
    live, used, _, lent = out.split()
    assert (live, used, lent) == ("0", "0", "True"), (out, errors)
    assert server.returncode == 0, errors


ARENA = """
arena = dipc.Arena(device="cuda:0", max_bytes=4 << 20)
block = arena.alloc_on_device(1000)
assert (block.address % 64, len(block), block.device_id) == (0, 1000, 0)
assert arena.stats.used_bytes == 1024
try:
    arena.alloc(10)
    raise AssertionError("memory of a GPU was given as a memoryview")
except dipc.UnsupportedError as error:
    assert "alloc_on_device" in str(error)
try:
    arena.alloc_on_device(5 << 20)
    raise AssertionError("there was more than max_bytes")
except dipc.OutOfMemoryError as error:
    assert "max_bytes" in str(error)
arena.close()
text = ctypes.create_string_buffer(b"still there")
copy(block.address, ctypes.addressof(text), 11)
assert bytes(read(block.address, 11, ctypes.c_uint8)) == b"still there"
for wrong in ("cuda:1000", "cuda:99"):
    try:
        dipc.Arena(device=wrong)
        raise AssertionError("there is no such GPU")
    except dipc.InvalidArgumentError as error:
        assert "there is no GPU" in str(error)
print("good")
"""


def test_arenas_on_a_gpu(script, environment):
    """Blocks are the device's, bounded, and outlive the arena."""
    process = script(DRIVER + ARENA, env=environment)
    out, errors = process.communicate(timeout=WAIT)
    assert (out, process.returncode) == ("good\n", 0), errors


CUPY = """
import cupy
arena = dipc.Arena(device="cuda")
block = arena.alloc_on_device(8 * 1000)
numbers = cupy.asarray(block).view(cupy.int64)
numbers[:] = cupy.arange(1000)
cupy.cuda.get_current_stream().synchronize()
assert numbers.data.ptr == block.address
assert read(block.address, 1000) == list(range(1000))
print("good")
"""


@pytest.mark.skipif(not has_driver(), reason="this machine has no GPU")
@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="cupy is not installed")
def test_cupy_takes_blocks(script, environment):
    """cupy makes an array of a block where it lies."""
    process = script(DRIVER + CUPY, env=environment)
    out, errors = process.communicate(timeout=WAIT)
    assert (out, process.returncode) == ("good\n", 0), errors


CUDF = """
import cudf
frame = cudf.DataFrame({"n": list(range(1000)), "text": [f"row {n}" for n in range(1000)]})
with dipc.Server() as server:
    server.publish("frame", frame)
    uri = server.listen(sys.argv[1])
    back = cudf.DataFrame.from_arrow(dipc.get(uri, "frame").read_all())
    assert back.equals(frame)
print("good")
"""


@pytest.mark.skipif(not has_driver(), reason="this machine has no GPU")
@pytest.mark.skipif(importlib.util.find_spec("cudf") is None, reason="cudf is not installed")
def test_cudf_is_served(script, environment):
    """A frame of cuDF is served, and comes back equal."""
    process = script(DRIVER + CUDF, new_address(), env=environment)
    out, errors = process.communicate(timeout=WAIT)
    assert (out, process.returncode) == ("good\n", 0), errors
