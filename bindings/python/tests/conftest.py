"""A server and an address for each test."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import pathlib
import subprocess
import sys

import pyarrow as pa
import pytest
import uvloop

import dipc

ROOT = pathlib.Path(__file__).resolve().parents[3]
_numbers = itertools.count()

WAIT = 60
"""Seconds after which a test that hangs fails."""


def new_address():
    """An address that no other test, and no other run, uses."""
    return f"shm:@dipc-python-{os.getpid()}-{next(_numbers)}"


def table(rows=10_000, start=0):
    numbers = range(start, start + rows)
    return pa.table({"number": pa.array(numbers, pa.int64()), "text": [f"row {number}" for number in numbers]})


def has_driver():
    """Whether this machine has a CUDA driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture
def server():
    with dipc.Server() as server:
        server.uri = server.listen(new_address())
        yield server


@contextlib.contextmanager
def scripts(folder):
    """Gives a function that runs Python source in a process of its own; ends them all."""
    running = []

    def start(source, *arguments, **options):
        path = folder / f"script{len(running)}.py"
        path.write_text(source)
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", str(path), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.fixture
def script(tmp_path):
    with scripts(tmp_path) as start:
        yield start


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine by `asyncio.run`, on either loop, for no longer than a test may take."""

    def run(coroutine):
        async def main():
            return await asyncio.wait_for(coroutine, WAIT)

        if request.param == "asyncio":
            return asyncio.run(main())
        loop = uvloop.new_event_loop()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return run


STREAMS = 10
"""How many streams at once a test of threads reads."""


def are_fewer(threads, before):
    """Whether these are too few threads for one more per stream. Some threads only close descriptors."""
    return threads < before + STREAMS // 2


@contextlib.contextmanager
def no_helpers():
    """Makes the package give no work to its own threads."""

    def give(*_work):
        raise AssertionError("a thread of the package is asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dipc._wait, "start", give)
        yield


def threads():
    """The number of threads of this process, including those of the library."""
    return len(os.listdir("/proc/self/task"))
