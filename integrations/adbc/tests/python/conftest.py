"""Servers in processes of their own, and the driver that ADBC's driver manager loads.

The environment names what is tested: ``DIPC_ADBC_DRIVER`` the shared library, and ``DIPC_COMMAND``
the command `dipc`. Without them both come from the folders where cargo builds them.
"""

import itertools
import os
import pathlib
import subprocess
import sys

import adbc_driver_manager.dbapi as adbc
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
DRIVER = os.environ.get(
    "DIPC_ADBC_DRIVER", ROOT / "integrations/target/debug/libadbc_driver_dipc.so"
)
COMMAND = os.environ.get("DIPC_COMMAND", ROOT / "target/debug/dipc")
NUMBERS = itertools.count()


def start(command, ready):
    """Runs a server until the test is over. It ends with its input, or by a signal."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    if not line.startswith(ready):
        process.kill()
        raise RuntimeError(f"{command[0]} says {line!r} instead of {ready!r}")
    return process, line.removeprefix(ready).strip()


def stop(process):
    process.terminate()
    process.communicate(timeout=20)


def address():
    return f"shm:@dipc-adbc-python-{os.getpid()}-{next(NUMBERS)}"


@pytest.fixture
def server(tmp_path):
    """`dipc serve` with two tables, which takes tables and replaces them; its URI."""
    command = [str(COMMAND), "serve", "--listen", address(), "--tpch", "nation", "--tpch", "region"]
    process, uri = start([*command, "--accept", str(tmp_path), "--replace"], "ready ")
    yield uri
    stop(process)


@pytest.fixture
def sql_server():
    """A host that takes tickets for SQL, and follows all modes of ingestion; its URI."""
    pytest.importorskip("dipc", reason="the package dipc is not installed (bindings/python)")
    script = pathlib.Path(__file__).with_name("sql_server.py")
    process, uri = start([sys.executable, str(script), address()], "ready ")
    yield uri
    stop(process)


def connect(uri, **options):
    # libdipc has no transactions, which the DB-API would begin.
    return adbc.connect(
        driver=str(DRIVER),
        uri=uri,
        db_kwargs={f"dipc.{name}": value for name, value in options.items()},
        autocommit=True,
    )


@pytest.fixture
def connection(server):
    with connect(server) as connection:
        yield connection
