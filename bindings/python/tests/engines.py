"""A server in a process of its own, whose tables test_polars.py and test_duckdb.py read."""

from __future__ import annotations

import contextlib

import pyarrow as pa

from conftest import WAIT, new_address, scripts

ROWS = 10_000
MOST = 1000
"""Batches of the ticket `long`, each of ROWS rows."""

SERVER = """
import sys
import dipc
import pyarrow as pa

rows, most = int(sys.argv[2]), int(sys.argv[3])
numbers = range(rows)
made = pa.table({"number": numbers, "text": [f"row {n}" for n in numbers], "half": [n / 2 for n in numbers]})
halves = [made.slice(start, rows // 2).combine_chunks() for start in (0, rows // 2)]

def long():
    given = 0
    try:
        for given in range(1, most + 1):
            yield made
    finally:
        print(given, "batches", flush=True)

def fails():
    yield made.slice(0, 10)
    raise ValueError("out of paper")

def who(request):
    return request.headers.get("user", b"nobody").decode()

def query(request):
    print(who(request), "gets", flush=True)
    return made

def describe(request):
    print(who(request), "describes", flush=True)
    return dipc.Description(made.schema)

with dipc.Server() as server:
    server.publish("table", dipc.Arena().copy(pa.concat_tables(halves)))
    server.serve("undescribed", lambda: iter(halves))
    for ticket, provider in {"long": long, "fails": fails, "misdescribed": lambda: made.select(["half"])}.items():
        server.serve(ticket, provider)
        server.set_description(ticket, dipc.Description(made.schema))
    server.set_handler(query, describe=describe)
    print(server.listen(sys.argv[1]), flush=True)
    sys.stdin.read()
"""


def made():
    """The table of the tickets `table` and `undescribed`, and of unnamed ones."""
    numbers = range(ROWS)
    return pa.table({"number": numbers, "text": [f"row {n}" for n in numbers], "half": [n / 2 for n in numbers]})


class Remote:
    """The server's process."""

    def __init__(self, process):
        self._process = process
        self.uri = process.stdout.readline().strip()

    def lines(self):
        """Ends it, and gives what it has printed."""
        out, errors = self._process.communicate(timeout=WAIT)
        assert (self._process.returncode, errors) == (0, "")
        return out.splitlines()


@contextlib.contextmanager
def serving(folder):
    with scripts(folder) as start:
        yield Remote(start(SERVER, new_address(), str(ROWS), str(MOST)))


def is_lent(address):
    """Whether memory of this process is shared with others."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            bounds, access = line.split()[:2]
            first, end = (int(bound, 16) for bound in bounds.split("-"))
            if first <= address < end:
                return access.endswith("s")
    raise AssertionError(f"nothing is mapped at {address:#x}")
