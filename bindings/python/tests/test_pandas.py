"""Frames of pandas, in and out."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

import dipc
from conftest import WAIT, table


def test_a_frame_goes_out_and_comes_back(server):
    frame = pd.DataFrame({"number": [1, 2, 3], "text": ["a", None, "c"]})
    server.publish("x", frame)
    got = dipc.get(server.uri, "x").to_pandas()
    pd.testing.assert_frame_equal(got, frame)


def test_options_are_pyarrows(server):
    server.publish("x", table(10))
    got = dipc.get(server.uri, "x").to_pandas(types_mapper=pd.ArrowDtype)
    assert got.dtypes["number"] == pd.ArrowDtype(pa.int64())


def test_failures_are_exceptions_of_the_package(server):
    server.serve("fails", lambda: (_ for _ in [table(1), 1 / 0]))
    with pytest.raises(dipc.ProviderError, match="division"):
        dipc.get(server.uri, "fails").to_pandas()


def test_a_reader_is_no_cell(server):
    """pandas takes what it iterates over for rows: the reader says what to do rather than give one cell."""
    server.publish("x", table(10))
    reader = dipc.get(server.uri, "x")
    with pytest.raises(TypeError, match=r"reader\.to_pandas\(\)"):
        pd.DataFrame(reader)
    # Nothing was read.
    assert reader.to_pandas().shape == (10, 2)


WITHOUT = """
import sys
sys.modules["{module}"] = None
import dipc
with dipc.Server() as server:
    server.publish("x", dipc.list_tickets(server.listen(sys.argv[1])))
    try:
        {use}
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("module", "use", "extra"),
    [
        ("pyarrow", "dipc.get(sys.argv[1], 'x').read_all()", "pyarrow"),
        ("pandas", "dipc.get(sys.argv[1], 'x').to_pandas()", "pandas"),
        ("pyarrow.flight", "dipc.flight.get('grpc://127.0.0.1:1', 'x')", "flight"),
        ("polars", "dipc.polars.scan(sys.argv[1], 'x')", "polars"),
        ("duckdb", "dipc.duckdb.register(None, 'x', sys.argv[1], 'x')", "duckdb"),
    ],
)
def test_what_is_missing_is_named(server, module, use, extra):
    """With the words that install it."""
    source = WITHOUT.format(module=module, use=use)
    done = subprocess.run(
        [sys.executable, "-c", source, f"{server.uri.split('?')[0]}-without"],
        capture_output=True, text=True, timeout=WAIT, check=False,
    )  # fmt: skip
    assert done.stdout == f"{module} is not installed: pip install 'libdipc[{extra}]'\n", done.stderr
