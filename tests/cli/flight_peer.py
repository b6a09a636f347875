"""A peer of Arrow Flight by pyarrow, for putting_flight.rs."""

import sys

import pyarrow
import pyarrow.flight as flight


class Server(flight.FlightServerBase):
    """Keeps tables in memory."""

    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.tables = {}

    def do_put(self, context, descriptor, reader, writer):
        name = descriptor.command or descriptor.path[0]
        if name == b"refused":
            raise flight.FlightUnauthorizedError("tables of yours are not wanted")
        if name == b"left":
            return
        table = reader.read_all()
        # For pyarrow's reader a call whose client has gone ends as a whole one does.
        if context.is_cancelled():
            return
        self.tables[name] = table
        writer.write(f"{table.num_rows} rows are safe".encode())

    def get_flight_info(self, context, descriptor):
        name = descriptor.command or descriptor.path[0]
        if name not in self.tables:
            raise KeyError("no such table")
        endpoint = flight.FlightEndpoint(name, [])
        return flight.FlightInfo(self.tables[name].schema, descriptor, [endpoint], -1, -1)

    def do_get(self, context, ticket):
        return flight.RecordBatchStream(self.tables[ticket.ticket])


def serve():
    """Serves until stdin ends."""
    server = Server()
    print(f"grpc://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()
    server.shutdown()


def put(uri, *pairs):
    """Puts streams: a name, then a file, and so on. Prints the result of each."""
    client = flight.connect(uri)
    for name, path in zip(pairs[::2], pairs[1::2]):
        with pyarrow.ipc.open_stream(path) as source:
            descriptor = flight.FlightDescriptor.for_path(name)
            writer, results = client.do_put(descriptor, source.schema)
            for batch in source:
                writer.write_batch(batch)
            writer.done_writing()
            print(bytes(results.read()).decode(), flush=True)
            writer.close()


def exchange(uri, *pairs):
    """Exchanges streams, as `put` puts them: the answer must be what was sent."""
    client = flight.connect(uri)
    for name, path in zip(pairs[::2], pairs[1::2]):
        with pyarrow.ipc.open_stream(path) as source:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
            sent = source.read_all()
            writer.begin(sent.schema)
            writer.write_table(sent)
            writer.done_writing()
            answer = reader.read_all()
            writer.close()
        assert answer.schema.equals(sent.schema), (answer.schema, sent.schema)
        assert answer.equals(sent), name
        print(name, flush=True)


def ask(uri, name):
    """An exchange without a table: prints the rows of the answer, or the error."""
    writer, reader = flight.connect(uri).do_exchange(flight.FlightDescriptor.for_path(name))
    try:
        writer.done_writing()
        print(reader.read_all().num_rows, flush=True)
        writer.close()
    except pyarrow.ArrowException as error:
        print(error, flush=True)


def refused_exchange(uri, name):
    """Exchanges a table, and prints the error."""
    writer, reader = flight.connect(uri).do_exchange(flight.FlightDescriptor.for_path(name))
    table = pyarrow.table({"x": [1, 2, 3]})
    try:
        writer.begin(table.schema)
        writer.write_table(table)
        writer.done_writing()
        reader.read_all()
    except pyarrow.ArrowException as error:
        print(error, flush=True)


def refused(uri, name):
    """Puts a table, and prints the error."""
    client = flight.connect(uri)
    table = pyarrow.table({"x": [1, 2, 3]})
    try:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path(name), table.schema)
        writer.write_table(table)
        writer.close()
    except pyarrow.ArrowException as error:
        print(error, flush=True)


def half(uri, name):
    """Begins to put a table, and waits to be killed."""
    client = flight.connect(uri)
    table = pyarrow.table({"x": list(range(1000))})
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(name), table.schema)
    for _ in range(3):
        writer.write_table(table)
    print("begun", flush=True)
    sys.stdin.read()


def until_late(answer):
    """Waits for answers until the call's deadline, which ends those to a put without an error."""
    try:
        while answer() is not None:
            pass
    except flight.FlightTimedOutError:
        pass


def cut(uri, name):
    """Begins a put and an exchange of a table, and ends each call early: cancelled, and by its deadline."""
    table = pyarrow.table({"x": list(range(1000))})
    soon = flight.FlightCallOptions(timeout=0.5)
    descriptor = flight.FlightDescriptor.for_path
    for number, options in enumerate([flight.FlightCallOptions(), soon]):
        client = flight.connect(uri)
        writer, reader = client.do_exchange(descriptor(f"{name}-exchange-{number}"), options)
        writer.begin(table.schema)
        writer.write_table(table)
        if not number:
            reader.cancel()
            continue
        until_late(reader.read_chunk)
    client = flight.connect(uri)
    writer, answers = client.do_put(descriptor(f"{name}-put"), table.schema, soon)
    writer.write_table(table)
    until_late(answers.read)
    print("cut", flush=True)


def list_flights(uri):
    """Prints the names of the server's tables."""
    for info in flight.connect(uri).list_flights():
        print(info.descriptor.path[0].decode(), flush=True)


def rows(uri, prefix):
    """Prints the names of the tables that begin so, and their rows: by the list and by each one's info."""
    client = flight.connect(uri)
    for info in client.list_flights(criteria=prefix.encode()):
        one = client.get_flight_info(info.descriptor)
        print(info.descriptor.path[0].decode(), info.total_records, one.total_records, flush=True)


if __name__ == "__main__":
    todo = {"serve": serve, "put": put, "refused": refused, "half": half, "list": list_flights}
    todo |= {"exchange": exchange, "ask": ask, "refused_exchange": refused_exchange, "rows": rows, "cut": cut}
    todo[sys.argv[1]](*sys.argv[2:])
