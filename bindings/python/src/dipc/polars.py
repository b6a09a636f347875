"""Lazy frames of polars over tables of a server, for queries that ask for the table when they run.

    frame = dipc.polars.scan("shm:@demo", "table")
    frame.filter(polars.col("x") > 1).select("y").collect()

Needs polars: ``pip install libdipc[polars]``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from . import _optional, _predicate
from ._arguments import Ticket, Uris
from ._client import Client
from ._options import GetOptions
from ._reader import Batch
from ._table import Table

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import Unpack

__all__ = ["scan"]


def scan(uri: Uris, ticket: Ticket, *, client: Client | None = None, **options: Unpack[GetOptions]) -> pl.LazyFrame:
    """A lazy frame of a ticket's table. Each query that reads it asks the server for the table anew.

    The schema is asked for when polars first needs it, and once: from the description of the ticket, or, if the server
    describes none, from a stream that is closed again. A query asks only for the columns that it needs, and for as many
    rows as ``head`` or ``limit`` take; a server that knows no selections sends all of them.

    The server evaluates the conditions that compare a column with values or with another one of its type, test it for
    null or NaN, or search it for a plain text. Polars evaluates all conditions, batch by batch, on the rows that come.
    Where the options ``filter``, ``rows`` or ``first_row`` choose the rows, the server evaluates none.

    Series share the memory that the server lent if polars can. A failure ends the query with a
    :class:`DipcError`, or with polars' own exception with its text.

    :param client: The client that asks; by default the client of :func:`dipc.get`.
    :param options: Those of :func:`dipc.get`, for each stream; ``deadline`` counts from its beginning.
    """
    # Some older versions of polars give sources predicates by which no frame can be filtered.
    _optional.load("polars", "polars", least=(1, 44))
    from polars.io.plugins import register_io_source

    table = Table(uri, ticket, client, options)
    return register_io_source(
        functools.partial(_read, table),
        schema=functools.partial(_schema, table),
        validate_schema=True,
        # A query that has the frame twice, such as a self join, may read it once.
        is_pure=True,
    )


def _schema(table: Table) -> pl.Schema:
    import polars as pl

    return pl.Schema(table.schema())


def _read(
    table: Table,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """What polars calls for a query. `n_rows` counts before the predicate."""
    if n_rows == 0:
        return
    names = _needed(with_columns, predicate)
    # The server would count the rows that pass.
    filter = None if predicate is None or n_rows is not None else _predicate.filter_of(predicate, _schema(table))
    with table.open(names, n_rows, filter) as reader:
        for batch in reader:
            frame = _frame(batch, names)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:
                frame = frame[with_columns]
            yield from [frame] if batch_size is None else frame.iter_slices(batch_size)
            if n_rows == 0:
                return


def _needed(with_columns: list[str] | None, predicate: pl.Expr | None) -> list[str] | None:
    """The columns that a query needs; None: all. A predicate may read columns that are not asked for."""
    if with_columns is None:
        return None
    return list(dict.fromkeys([*with_columns, *(predicate.meta.root_names() if predicate is not None else ())]))


def _frame(batch: Batch, names: Sequence[str] | None) -> pl.DataFrame:
    """The columns that a query needs, of a server that may send all. Polars writes an index for each text column that
    it takes."""
    import polars as pl

    if names is None:
        return pl.DataFrame(batch)
    return pl.DataFrame({name: pl.Series(batch.column(name)) for name in names})
