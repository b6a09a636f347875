"""Tables of a server under a name of DuckDB's, for queries that ask for them when they run.

    connection = duckdb.connect()
    dipc.duckdb.register(connection, "demo", "shm:@demo", "table")
    connection.sql("SELECT sum(x) FROM demo")

Needs duckdb: ``pip install libdipc[duckdb]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _optional
from ._arguments import Ticket, Uris
from ._client import Client
from ._options import GetOptions
from ._table import Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from typing_extensions import Unpack

__all__ = ["register"]


def register(
    connection: DuckDBPyConnection,
    name: str,
    uri: Uris,
    ticket: Ticket,
    *,
    client: Client | None = None,
    **options: Unpack[GetOptions],
) -> None:
    """Gives a ticket's table a name on a connection of DuckDB's, until ``connection.unregister(name)``.

    Each mention of the name in a query asks the server for the table anew, so a self join reads two streams. DuckDB
    takes from each batch only the columns that the query needs, and ends a stream when it needs no more rows of it. The
    schema is asked for once, now: from the description of the ticket, or, if the server describes none, from a stream
    that is closed again. A failure of the server ends the query with DuckDB's own exception, with the same text.

    :param client: The client that asks; by default the client of :func:`dipc.get`.
    :param options: Those of :func:`dipc.get`, for each stream; ``deadline`` counts from its beginning.
    :raises DipcError: one of its subclasses, as NotFoundError, if the schema cannot be had.
    """
    # Earlier versions of DuckDB read an object's stream once.
    _optional.load("duckdb", "duckdb", least=(1, 5))
    table = Table(uri, ticket, client, options)
    table.schema()
    connection.register(name, table)
