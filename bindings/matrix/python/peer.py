"""The Python peer of the matrix suite (tests/matrix): serves and fetches tables of Arrow stream files.

peer.py serve URI FILE [--block]           tickets "table", "endless" and "broken", and what clients put;
                                           prints the URI. Ends at SIGTERM, and at the end of standard
                                           input unless --block is given
peer.py get URI TICKET OUT                 writes an Arrow stream file
peer.py cancel URI TICKET N                takes N batches, then cancels
peer.py put URI TICKET FILE ...            sends files, one after another
peer.py exchange URI TICKET FILE OUT ...   sends files, and writes what comes back
"""

from __future__ import annotations

import argparse
import concurrent.futures
import select
import signal
import socket
import sys
from collections.abc import Callable

import pyarrow as pa

import dipc


def read(file: str) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    with pa.ipc.open_stream(pa.memory_map(file)) as reader:
        return reader.schema, list(reader)


def write(reader: dipc.Reader, out: str) -> tuple[int, int]:
    """Writes a table to a file, and counts its rows and batches."""
    rows = count = 0
    with pa.ipc.new_stream(out, pa.schema(reader.schema)) as writer:
        for batch in reader:
            rows, count = rows + len(batch), count + 1
            writer.write_batch(pa.record_batch(batch))
    return rows, count


def print_counts(rows: int, batches: int) -> None:
    print(f"rows={rows} batches={batches}")


def serve(uri: str, file: str, block: bool) -> int:
    schema, batches = read(file)

    def table():
        return pa.RecordBatchReader.from_batches(schema, batches)

    def endless():
        while True:
            yield batches[0]

    def broken():
        yield batches[0]
        raise RuntimeError("the provider failed on purpose")

    def take(request: dipc.Request) -> None:
        server.replace(request.ticket, request.source())

    # A handler alone does not end a read of stdin that begins just then, or that another thread is
    # interrupted for.
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGTERM, lambda *_signal: None)
    # Whoever runs the matrix trusts the machine's own network.
    with dipc.Server(trusted_network=True) as server:
        server.serve("table", table)
        server.serve("endless", endless)
        server.serve("broken", broken)
        server.set_handler(put=take, exchange=lambda request: request.source())
        print(server.listen(uri), flush=True)
        watched = [woken] if block else [woken, sys.stdin.buffer]
        while woken not in select.select(watched, [], [])[0] and sys.stdin.buffer.read1():
            pass
    return 0


def get(uri: str, ticket: str, out: str) -> int:
    with dipc.get(uri, ticket) as reader:
        print_counts(*write(reader, out))
    return 0


def put(uri: str, ticket: str, file: str) -> None:
    schema, batches = read(file)
    taken = dipc.put(uri, ticket, pa.RecordBatchReader.from_batches(schema, batches))
    print_counts(sum(map(len, batches)), taken.batches)


def exchange(uri: str, ticket: str, file: str, out: str) -> None:
    schema, batches = read(file)
    writer, reader = dipc.exchange(uri, ticket, schema)

    def send() -> None:
        with writer:
            for batch in batches:
                writer.write(batch)

    with concurrent.futures.ThreadPoolExecutor() as pool, reader:
        sent = pool.submit(send)
        counts = write(reader, out)
        sent.result()
    print_counts(*counts)


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


def tell(error: dipc.DipcError) -> int:
    print(f"error {dipc.status_name(error.status)} {error.text}")
    return 3


def send_all(send: Callable[..., None], uri: str, words: list[str], count: int) -> int:
    """Sends one file after another, each by as many words."""
    result = 0
    for first in range(0, len(words), count):
        try:
            send(uri, *words[first : first + count])
        except dipc.DipcError as error:
            result = tell(error)
    return result


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
    for name, send, count in ("put", put, 2), ("exchange", exchange, 3):
        one = commands.add_parser(name)
        one.add_argument("uri")
        one.add_argument("words", nargs="+")
        one.set_defaults(send=send, count=count)
    arguments = vars(parser.parse_args())
    ways = {"serve": serve, "get": get, "cancel": cancel, "put": send_all, "exchange": send_all}
    try:
        return ways[arguments.pop("command")](**arguments)
    except dipc.DipcError as error:
        return tell(error)


if __name__ == "__main__":
    sys.exit(main())
