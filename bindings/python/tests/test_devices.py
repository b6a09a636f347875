"""Where arrays are: on the host, on a GPU, as the server has them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dipc
from conftest import has_driver


def test_as_sent_is_the_host_where_nothing_is_on_a_gpu(server):
    """What a server has on the host stays there, and no driver is needed to find out."""
    table = pa.table({"x": range(100_000)})
    server.publish("x", table)
    for device in ("cpu", "as-sent"):
        reader = dipc.get(server.uri, "x", device=device)
        assert reader.device_type == 1
        assert pa.table(reader) == table
        assert (reader.stats.bytes_staged, reader.stats.bytes_copied_on_device) == (0, 0)


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
def test_without_a_driver():
    """Without a driver a GPU cannot be asked for: the error comes before the server is looked for."""
    for device in ("cuda", "cuda:1"):
        with pytest.raises(dipc.UnsupportedError, match=r"libcuda\.so\.1"):
            dipc.get("shm:@dipc-nobody-listens-here", "x", device=device)
        with pytest.raises(dipc.UnsupportedError, match=r"libcuda\.so\.1"):
            dipc.Arena(device=device)


def test_arenas_say_where_they_are():
    """Blocks of the host and of devices are told apart, and "as-sent" is no place to allocate."""
    arena = dipc.Arena()
    assert arena.device_type == 1
    with pytest.raises(dipc.UnsupportedError, match="alloc"):
        arena.alloc_on_device(10)
    for wrong in ("as-sent", "floppy", "cuda:x", ("cuda", -1), ("floppy", 1), ("cuda",)):
        with pytest.raises(dipc.InvalidArgumentError):
            dipc.Arena(device=wrong)


def test_a_stream_on_the_host_stays_there(server):
    """If the table lies on the host already, nothing is copied, and waiting for batches works as before."""
    table = pa.table({"x": range(100_000)})
    server.publish("x", table)
    reader = dipc.get(server.uri, "x")
    assert reader.to_device("cpu") is reader
    assert not reader._stream.is_copied
    assert pa.table(reader) == table


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
def test_to_a_gpu_without_a_driver(server):
    """The stream goes on where it was."""
    server.publish("x", pa.table({"x": [1]}))
    reader = dipc.get(server.uri, "x")
    for device in ("cuda", ("cuda", 1)):
        with pytest.raises(dipc.UnsupportedError, match=r"libcuda\.so\.1"):
            reader.to_device(device)
    with pytest.raises(dipc.InvalidArgumentError, match="as-sent"):
        reader.to_device("as-sent")
    assert reader.read_all().num_rows == 1
    with pytest.raises(dipc.ClosedError):
        with reader:
            pass
        reader.to_device("cuda")
