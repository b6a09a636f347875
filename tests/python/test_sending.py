"""Every stream file from one process to another by put and by exchange, compared with what pyarrow
reads in it. Bodies are lent from an arena, copied to be lent, or sent; the server's, in what comes
back, are lent or sent, as its kind says."""

import concurrent.futures

import pyarrow as pa
import pytest

import dipc
import streams

FILES = streams.files()
BODIES = {"arena": "lent", "copied": "lent", "packed": "packed"}


@pytest.fixture(params=BODIES)
def way(request):
    return request.param


@pytest.fixture(scope="session")
def arena():
    return dipc.Arena()


def tables(name):
    """The table of a file, and rule A7: its parts that begin and end in the middle of a byte of a bitmap."""
    schema, batches = streams.read(FILES[name])
    return [(schema, batches), (schema, streams.slices(batches))]


def placed(batches, way, arena):
    """The batches where a way wants them. Those without rows have nothing to lend."""
    if way != "arena":
        return batches
    return [arena.copy(batch).to_batches()[0] if batch.num_rows else batch for batch in batches]


@pytest.mark.parametrize("name", FILES)
def test_a_put_arrives_equal(server, client, arena, name, way):
    uri, ticket = server.uris["both"], f"put/{way}/{name}"
    for schema, batches in tables(name):
        table = streams.reader(schema, placed(batches, way, arena))
        taken = client.put(uri, ticket, table, body=BODIES[way], stall_timeout=30)
        assert taken.batches == len(batches)
        streams.same(streams.fetch(client, uri, ticket, "full"), schema, batches)


@pytest.mark.parametrize("name", FILES)
def test_an_exchange_brings_back_what_was_sent(server, client, arena, name, way):
    """Rule Q5."""
    for schema, batches in tables(name):
        options = {"body": BODIES[way], "validation": "full", "stall_timeout": 30}
        writer, reader = client.exchange(server.uris["both"], name, schema, **options)

        def send():
            with writer:
                for batch in placed(batches, way, arena):
                    writer.write(batch)

        with concurrent.futures.ThreadPoolExecutor() as pool, reader:
            sent = pool.submit(send)
            streams.same(pa.RecordBatchReader.from_stream(reader), schema, batches)
            sent.result()


def test_bodies_go_as_asked(server, client, arena, way):
    """Rules D3, D4: address lists of an arena or of copies, or packed bodies."""
    schema, batches = streams.read(FILES["integers.arrows"])
    with client.open_put(server.uris["both"], f"figures/{way}", schema, body=BODIES[way]) as writer:
        for batch in placed(batches, way, arena):
            writer.write(batch)
        writer.finish()
        stats = writer.stats
    assert (stats.bytes_lent > 0, stats.bytes_sent > 0) == (way == "arena", way == "packed")
    assert way != "copied" or stats.bytes_copied > 0
