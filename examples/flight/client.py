"""Fetches a table that a Flight server knows: by libdipc where one of its locations allows it, else by DoGet.

    python client.py [--trusted-network] grpc://127.0.0.1:PORT NAME

A peer on ucx can read and write this process's memory, and a Flight server is not believed when it names one,
unless --trusted-network says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs

import dipc
import pyarrow as pa
import pyarrow.flight as flight

DISSOCIATED = ("shm", "tcp", "ucx")


def scheme(uri: str) -> str:
    return uri.partition(":")[0]


def are_pair(first: str, second: str) -> bool:
    """Whether two URIs are the metadata and the data of one stream, in either order."""
    queries = [parse_qs(uri.partition("?")[2]) for uri in (first, second)]
    roles = [query.get("dipc_role", [None])[0] for query in queries]
    if roles == [None, None]:
        # A server that is not libdipc's names no roles: metadata comes first.
        return all(scheme(uri) == "ucx" and "dipc" not in query for uri, query in zip((first, second), queries))
    return sorted(map(str, roles)) == ["data", "metadata"]


def ways(locations: list[str]) -> Iterator[list[str]]:
    """The ways to fetch an endpoint, in the server's order: one URI each, or the two of a pair.

    No location at all means the server that was asked.
    """
    rest = locations or ["arrow-flight-reuse-connection://?"]
    while rest:
        taken = 1
        if len(rest) > 1 and all(scheme(uri) in DISSOCIATED for uri in rest[:2]) and are_pair(*rest[:2]):
            taken = 2
        yield rest[:taken]
        rest = rest[taken:]


def fetch_by(client: flight.FlightClient, uris: list[str], ticket: flight.Ticket, trusted_network: bool) -> pa.Table:
    """Fetches an endpoint in one way."""
    kind = scheme(uris[0])
    if not trusted_network and any(scheme(uri) == "ucx" for uri in uris):
        raise ValueError("a ucx address that a Flight server names is taken with --trusted-network alone")
    if kind in DISSOCIATED:
        return pa.table(dipc.get(uris, ticket.ticket))
    if kind == "arrow-flight-reuse-connection":
        return client.do_get(ticket).read_all()
    if kind == "grpc" or kind.startswith("grpc+"):
        with flight.connect(uris[0]) as other:
            return other.do_get(ticket).read_all()
    raise ValueError(f"nothing here can fetch from {kind}:")


def fetch_endpoint(client: flight.FlightClient, endpoint: flight.FlightEndpoint, trusted_network: bool) -> pa.Table:
    """Takes the first location that works."""
    last: Exception | None = None
    for uris in ways([location.uri.decode() for location in endpoint.locations]):
        try:
            table = fetch_by(client, uris, endpoint.ticket, trusted_network)
        except (dipc.DipcError, flight.FlightError, pa.ArrowException, ValueError) as error:
            print(f"skipped {' '.join(uris)}: {error}", file=sys.stderr)
            last = error
        else:
            print(f"fetched from {' '.join(uris)}", file=sys.stderr)
            return table
    raise RuntimeError("no location of the table works") from last


def fetch(uri: str, name: str, trusted_network: bool = False) -> pa.Table:
    """The whole table: its endpoints, one after the other."""
    with flight.connect(uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        parts = [fetch_endpoint(client, endpoint, trusted_network) for endpoint in info.endpoints]
    return pa.concat_tables(parts) if parts else info.schema.empty_table()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trusted-network", action="store_true", help="take ucx addresses, too")
    parser.add_argument("uri", help="the Flight server, as grpc://127.0.0.1:5005")
    parser.add_argument("name", help="the table")
    arguments = parser.parse_args()
    print(fetch(arguments.uri, arguments.name, arguments.trusted_network))
