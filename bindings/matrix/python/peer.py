"""The Python peer of the matrix suite (tests/matrix): serves and fetches tables of Arrow stream files.

peer.py serve URI FILE [--block]     tickets "table", "endless" and "broken"; prints the URI. Ends at
                                     SIGTERM, and at the end of standard input unless --block is given
peer.py get URI TICKET OUT           writes an Arrow stream file
peer.py cancel URI TICKET N          takes N batches, then cancels
"""

from __future__ import annotations

import argparse
import signal
import sys

import pyarrow as pa

import dipc


def serve(uri: str, file: str, block: bool) -> int:
    with pa.ipc.open_stream(pa.memory_map(file)) as reader:
        schema, batches = reader.schema, list(reader)

    def table():
        return pa.RecordBatchReader.from_batches(schema, batches)

    def endless():
        while True:
            yield batches[0]

    def broken():
        yield batches[0]
        raise RuntimeError("the provider failed on purpose")

    def stop(*_signal) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    # Whoever runs the matrix trusts the machine's own network.
    with dipc.Server(trusted_network=True) as server:
        server.serve("table", table)
        server.serve("endless", endless)
        server.serve("broken", broken)
        print(server.listen(uri), flush=True)
        if block:
            signal.pause()
        sys.stdin.read()
    return 0


def get(uri: str, ticket: str, out: str) -> int:
    rows = count = 0
    with dipc.get(uri, ticket) as reader, pa.ipc.new_stream(out, pa.schema(reader.schema)) as writer:
        for batch in reader:
            rows, count = rows + len(batch), count + 1
            writer.write_batch(pa.record_batch(batch))
    print(f"rows={rows} batches={count}")
    return 0


def cancel(uri: str, ticket: str, number: int) -> int:
    with dipc.get(uri, ticket) as reader:
        for _ in range(number):
            next(reader)
        reader.cancel()
        try:
            for _ in reader:
                pass
        except dipc.CancelledError:
            print(f"cancelled after {number}")
            return 0
    print("the stream ended, though it was cancelled")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve")
    serving.add_argument("uri")
    serving.add_argument("file")
    serving.add_argument("--block", action="store_true")
    fetching = commands.add_parser("get")
    cancelling = commands.add_parser("cancel")
    for one in (fetching, cancelling):
        one.add_argument("uri")
        one.add_argument("ticket")
    fetching.add_argument("out")
    cancelling.add_argument("number", type=int)
    arguments = vars(parser.parse_args())
    try:
        return {"serve": serve, "get": get, "cancel": cancel}[arguments.pop("command")](**arguments)
    except dipc.DipcError as error:
        print(f"error {dipc.status_name(error.status)} {error.text}")
        return 3


if __name__ == "__main__":
    sys.exit(main())
