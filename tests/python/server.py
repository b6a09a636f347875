"""Serves every stream file, in a process of its own, until its standard input ends.

    server.py BODY      prints a line of JSON: the URIs by role

Tickets: published/FILE, provided/FILE, slices/FILE, broken, and those of tables that clients put. An
exchange is answered with the client's batches, as they come.
"""

import json
import os
import sys

import streams


def main(body):
    server = streams.own_server(body)
    server.listen(f"shm:@dipc-pytest-{os.getpid()}")
    for name, path in streams.files().items():
        schema, batches = streams.read(path)
        server.publish(f"published/{name}", streams.reader(schema, batches))
        server.serve(f"provided/{name}", lambda s=schema, b=batches: streams.reader(s, b))
        parts = streams.slices(batches)
        server.serve(f"slices/{name}", lambda s=schema, p=parts: streams.reader(s, p))

    def broken():
        raise ValueError("no such luck")

    server.serve("broken", broken)

    def take(request):
        server.replace(request.ticket, request.source())

    server.set_handler(put=take, exchange=lambda request: request.source())
    print(json.dumps({role: server.location(role) for role in ("both", "metadata", "data")}), flush=True)
    for line in sys.stdin:
        # Any input line requests the figures.
        stats = server.stats
        print(json.dumps({"lent": stats.bytes_lent + stats.bytes_copied, "sent": stats.bytes_sent}), flush=True)
    server.close()


if __name__ == "__main__":
    main(sys.argv[1])
