"""A Flight server that says where its tables are and lets libdipc carry them.

    python server.py [--pair] [--listen URI] [--trusted-network]

GetFlightInfo gives endpoints whose locations are URIs of libdipc: one URI for each table, or with --pair two, one
for the metadata and one for the bodies, as the protocol allows. The last location is the Flight server itself, so
that a client that knows nothing of libdipc gets its table by DoGet.
"""

from __future__ import annotations

import argparse
import os
import signal

import dipc
import pyarrow as pa
import pyarrow.flight as flight

REUSE_CONNECTION = "arrow-flight-reuse-connection://?"

TABLES = {
    "squares": pa.table({"n": range(1000), "square": [n * n for n in range(1000)]}),
    "words": pa.table({"word": ["one", None, "three"], "length": [3, None, 5]}),
}


class Server(flight.FlightServerBase):
    """Answers for `tables`, which libdipc serves at `locations`."""

    def __init__(self, tables: dict[str, pa.Table], locations: list[str]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._tables = tables
        self._locations = [*locations, REUSE_CONNECTION]

    def _table(self, name: bytes) -> pa.Table:
        try:
            return self._tables[name.decode()]
        except KeyError:
            raise flight.FlightServerError(f"there is no table {name!r}") from None

    def _info(self, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        [name] = descriptor.path
        table = self._table(name)
        # The ticket of the endpoint is that of libdipc, too.
        endpoint = flight.FlightEndpoint(name, self._locations)
        return flight.FlightInfo(table.schema, descriptor, [endpoint], table.num_rows, -1)

    def list_flights(self, context, criteria):
        for name in self._tables:
            yield self._info(flight.FlightDescriptor.for_path(name))

    def get_flight_info(self, context, descriptor):
        return self._info(descriptor)

    def get_schema(self, context, descriptor):
        return flight.SchemaResult(self._info(descriptor).schema)

    def do_get(self, context, ticket):
        return flight.RecordBatchStream(self._table(ticket.ticket))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pair", action="store_true", help="give a URI for metadata and one for bodies")
    parser.add_argument(
        "--listen",
        metavar="URI",
        default=f"shm:@flight-example-{os.getpid()}",
        help="where libdipc listens, as tcp://127.0.0.1:0 (default: shared memory)",
    )
    parser.add_argument("--trusted-network", action="store_true", help="listen at ucx addresses, too")
    arguments = parser.parse_args()
    with dipc.Server(trusted_network=arguments.trusted_network) as data:
        for name, table in TABLES.items():
            data.publish(name, table)
        data.listen(arguments.listen)
        roles = ["metadata", "data"] if arguments.pair else ["both"]
        with Server(TABLES, [data.location(role) for role in roles]) as control:
            print(f"ready grpc://127.0.0.1:{control.port}", flush=True)
            signal.sigwait([signal.SIGINT, signal.SIGTERM])


if __name__ == "__main__":
    # Before any thread starts, so that the signals wait for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    main()
