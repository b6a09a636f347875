"""Single columns, for libraries of arrays: DLPack."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pyarrow as pa
import pytest

import dipc
from conftest import table
from dipc import _abi, _capsule

NUMBERS = {
    "c": pa.int8(), "s": pa.int16(), "i": pa.int32(), "l": pa.int64(), "C": pa.uint8(), "S": pa.uint16(),
    "I": pa.uint32(), "L": pa.uint64(), "e": pa.float16(), "f": pa.float32(), "g": pa.float64(),
}  # fmt: skip
KNOWS_OLD_ALONE = np.lib.NumpyVersion(np.__version__) < "2.1.0"


@pytest.fixture
def batch(server):
    """A function that gives the first batch of a table, as a client gets it."""

    def batch(table):
        server.set_handler(lambda: table)
        return next(dipc.get(server.uri, "x"))

    return batch


def numbers(rows=1000):
    return pa.table({code: pa.array(np.arange(rows) % 100, type) for code, type in NUMBERS.items()})


def test_columns_are_found(batch):
    """By number, also from the end, and by name; pyarrow takes one as it is."""
    got = batch(table(10))
    assert [column.name for column in got.columns] == ["number", "text"]
    assert (got.column(1).name, got.column(-1).name, got.column("text").schema.format) == ("text", "text", "u")
    assert len(got.column("text")) == 10
    assert pa.array(got.column("text")) == table(10)["text"].combine_chunks()
    _, capsule = got.column("number").__arrow_c_device_array__()
    assert "arrow_device_array" in repr(capsule)
    with pytest.raises(KeyError, match="0 columns"):
        got.column("nobody")
    with pytest.raises(IndexError):
        got.column(2)
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(KeyError, match="2 columns"):
        batch(twice).column("x")


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["old", "1.0"])
@pytest.mark.parametrize("code", NUMBERS)
def test_numbers_are_tensors(batch, code, version):
    """Every integer and floating-point type, by both structs of DLPack, in the batch's memory."""
    if version is not None and KNOWS_OLD_ALONE:
        pytest.skip("this numpy does not know DLPack 1.0")
    column = batch(numbers()).column(code)
    assert column.__dlpack_device__() == (1, 0)

    class Old:
        """Asks like a library that knows less, or more, than numpy."""

        def __dlpack__(self, **_options):
            return column.__dlpack__(max_version=version)

        def __dlpack_device__(self):
            return column.__dlpack_device__()

    got = np.from_dlpack(Old())
    assert (got.dtype, got.tolist()) == (numbers()[code].type.to_pandas_dtype(), numbers()[code].to_pylist())
    address = pa.array(column).buffers()[1].address
    assert got.ctypes.data == address
    assert not got.flags.writeable


def test_tensors_outlive_their_batch(batch, server):
    """They hold the memory that the server lent; then it goes back."""
    rows = 100_000
    column = batch(pa.table({"n": np.arange(rows)})).column("n")
    got = np.from_dlpack(column)
    server.set_handler(None)
    del column
    gc.collect()
    assert got.sum() == rows * (rows - 1) // 2
    assert server.stats.lent_outstanding >= 1
    del got
    gc.collect()
    # Without a consumer, the capsule itself gives it back.
    server.set_handler(lambda: pa.table({"n": np.arange(rows)}))
    capsules = [
        next(dipc.get(server.uri, "x")).column("n").__dlpack__(max_version=version) for version in (None, (1, 0))
    ]
    del capsules
    gc.collect()
    for _ in range(1000):
        if server.stats.lent_outstanding == 0:
            break
        dipc.get(server.uri, "x").close()
    assert server.stats.lent_outstanding == 0


@pytest.mark.skipif(KNOWS_OLD_ALONE, reason="this numpy asks for no copy")
def test_a_copy_may_be_written(batch):
    """`copy=True` gives memory of the consumer's own."""
    column = batch(numbers()).column("l")
    got = np.from_dlpack(column, copy=True)
    got[:] = 7
    assert np.from_dlpack(column)[1] == 1
    assert np.from_dlpack(batch(pa.record_batch({"n": pa.array([], pa.int64())})).column("n"), copy=True).tolist() == []


@pytest.mark.parametrize("of_struct", [False, True], ids=["columns", "struct"])
def test_offsets_count(of_struct):
    """A column that begins within its buffer, by its own offset or that of its struct, is a tensor of just its rows."""
    whole = numbers().combine_chunks().to_batches()[0]
    sliced = whole.to_struct_array().slice(123, 50) if of_struct else whole.slice(123, 50)
    schema, array = sliced.__arrow_c_array__()
    # No server sends this: received columns begin at the start of their buffers.
    got = dipc.Batch(
        _abi.on_host(_capsule.take(array, _abi.ArrowArray)),
        dipc.Schema(_capsule.take(schema, _abi.ArrowSchema)),
        b"",
    )
    for column in got.columns:
        expected = whole[column.name].slice(123, 50)
        assert np.from_dlpack(column).tolist() == expected.to_pylist()
        assert pa.array(column) == expected


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (pa.array([1, None, 3]), "nulls"),
        (pa.array([True, False]), "'b'"),
        (pa.array(["x"]), "'u'"),
        (pa.array(["x"]).dictionary_encode(), "no tensor"),
        (pa.array([[1]]), "no tensor"),
        (pa.array([0], pa.timestamp("s")), "'tss:'"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_what_is_no_tensor(batch, array, why):
    """The exception is DLPack's own, and nothing is kept."""
    column = batch(pa.table({"x": array})).column("x")
    with pytest.raises(BufferError, match=why):
        column.__dlpack__()
    assert pa.array(column) == array


def test_other_devices_are_refused(batch):
    column = batch(numbers()).column("l")
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        column.__dlpack__(dl_device=(2, 0))
    assert column.__dlpack__(dl_device=(1, 0)) is not None


def test_flags(batch):
    """Consumers of DLPack 1.0 are told that the memory is read-only, or that it is a copy."""

    class Versioned(ctypes.Structure):
        _fields_ = [
            ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
        ]  # fmt: skip

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    column = batch(numbers()).column("l")
    for copy, flags in ((None, 1), (False, 1), (True, 2)):
        capsule = column.__dlpack__(max_version=(1, 1), copy=copy)
        got = Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        assert (got.major, got.flags) == (1, flags)
