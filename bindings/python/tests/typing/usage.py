"""What type checkers make of programs that use the package; test.sh runs mypy and pyright over it, and nobody runs it.

A line that must be refused says so by an `ignore`, which both checkers report where it is not needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import dipc


def fetches(uri: str) -> None:
    with dipc.get(uri, "x", device="cuda:1", headers={"user": "me"}, deadline=1.5) as reader:
        batch: dipc.Batch = next(reader)
        column: dipc.Column = batch.column("x")
        device: tuple[int, int] = column.__dlpack_device__()
        names: list[str] = reader.schema.names
        print(device, names, reader.stats.rows)
    again: dipc.Reader = dipc.get(uri, b"x", device=("cuda", 17)).to_device("cpu")
    again.cancel()
    dipc.get(uri, "x", filter=pc.field("x") > 1, columns=["y"], rows=3).close()
    dipc.get(uri, "x", filter=(pc.field("x") > 1).to_substrait(pa.schema([]))).close()
    message: dipc.Filter = b"bytes"
    dipc.get(uri, "x", filter=message).close()
    found: dipc.Description = dipc.describe(uri, "x")
    rows: int | None = found.num_rows
    print(rows)


def is_refused(uri: str) -> None:
    dipc.get(uri, "x", device="gpu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    dipc.get(uri, "x", validation="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    dipc.get(uri, "x", filter="x > 1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    dipc.get(uri, "x", dead_line=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    dipc.Arena(device="as-sent")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    dipc.Server(compression="gzip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    number: str = dipc.get(uri, "x").device_type  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number)


async def awaits(uri: str) -> int:
    reader = await dipc.aget(uri, "x")
    async with reader:
        return sum([len(batch) async for batch in reader])


def serves(table: Any) -> None:
    def authorize(request: dipc.Request) -> str | None:
        return "ada" if request.verb == dipc.Verb.GET else None

    def provide(request: dipc.Request) -> Iterator[Any]:
        while not request.cancelled:
            yield table

    async def provide_later() -> AsyncIterator[Any]:
        yield table

    with dipc.Server(authorizer=authorize, body="lent", tls=("certificate.pem", "key.pem")) as server:
        server.publish("x", table)
        server.serve("y", provide)
        server.serve("z", provide_later)
        uri: str = server.listen("shm:@typing")
        print(uri, server.location("metadata"))


def sends(uri: str, table: Any) -> None:
    taken: dipc.Taken = dipc.put(uri, "x", table, compression="zstd")
    writer, reader = dipc.exchange(uri, "x", table.schema)
    with writer, reader:
        writer.write(table)
    print(taken.batches)


def asks_flight(uri: str) -> None:
    with dipc.flight.get(uri, ["path", "of", "it"], trusted_network=True, deadline=1) as reader:
        ways: list[dipc.flight.Way] = reader.ways
        print(ways)
    dipc.flight.get(uri, b"a command", way="libdipc")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def queries(uri: str, connection: duckdb.DuckDBPyConnection) -> None:
    frame: pl.LazyFrame = dipc.polars.scan(uri, "x", headers={"user": "me"}).select("y")
    rows: int = frame.collect().height
    dipc.duckdb.register(connection, "there", uri, b"x", deadline=rows)
    dipc.polars.scan(uri, "x", column="y")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    dipc.duckdb.register(uri, "there", uri, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def fails(uri: str) -> float | None:
    try:
        dipc.get(uri, "x")
    except dipc.BusyError as error:
        return error.retry_after
    except dipc.DipcError as error:
        print(error.status, error.text, error.os_errno)
    return None
