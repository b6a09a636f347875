"""Serves every stream file, in a process of its own, until its standard input ends.

    server.py BODY      prints a line of JSON: the URIs by role

Tickets: published/FILE, provided/FILE, slices/FILE, broken.
"""

import json
import os
import sys

import pyarrow as pa

import dipc
import streams


def main(body):
    server = dipc.Server(body)
    server.listen(f"shm:@dipc-pytest-{os.getpid()}")
    for name, path in streams.files().items():
        schema, batches = streams.read(path)
        server.publish(f"published/{name}", schema, batches)
        server.serve(f"provided/{name}", lambda s=schema, b=batches: pa.RecordBatchReader.from_batches(s, b))
        parts = streams.slices(batches)
        server.serve(f"slices/{name}", lambda s=schema, p=parts: pa.RecordBatchReader.from_batches(s, p))

    def broken():
        raise ValueError("no such luck")

    server.serve("broken", broken)
    print(json.dumps({role: server.location(role) for role in dipc.ROLES}), flush=True)
    for line in sys.stdin:
        # Any line asks for the figures.
        print(json.dumps({"lent": server.stat(dipc.STAT_BYTES_LENT) + server.stat(dipc.STAT_BYTES_COPIED),
                          "sent": server.stat(dipc.STAT_BYTES_SENT)}), flush=True)  # fmt: skip
    server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
