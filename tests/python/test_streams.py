"""Tables of every type and shape from one process to another, through the C API and Arrow's C
stream interface, compared with what pyarrow reads in the same file."""

import gc
import os

import pyarrow as pa
import pytest

import dipc
import streams
from streams import same

FILES = streams.files()
LEVELS = ["structure", "full"]


@pytest.mark.parametrize("how", ["published", "provided", "slices"])
@pytest.mark.parametrize("uris", [("both",), ("metadata", "data")], ids=["single", "separate"])
@pytest.mark.parametrize("name", FILES)
def test_arrives_equal(server, client, name, uris, how):
    """Rules A2, A5, A7, A8, D3, D4, U3."""
    schema, batches = streams.read(FILES[name])
    if how == "slices":
        batches = streams.slices(batches)
    for level in LEVELS:
        reader = streams.fetch(client, [server.uris[role] for role in uris], f"{how}/{name}", level)
        same(reader, schema, batches)


def test_bodies_went_as_asked(server, client):
    """Rules D3, D4: address lists from the one server, packed bodies from the other."""
    before = server.figures()
    same(streams.fetch(client, server.uris["both"], "provided/integers.arrows"), *streams.read(FILES["integers.arrows"]))
    after = server.figures()
    lent, sent = (after[which] - before[which] for which in ("lent", "sent"))
    assert (lent > 0, sent > 0) == ((True, False) if server.body == "auto" else (False, True))


def test_arrays_outlive_stream_and_client(server):
    """Rule F6: what was received stays valid after everything it came through is gone."""
    schema, batches = streams.read(FILES["binaries.arrows"])
    client = dipc.Client()
    reader = streams.fetch(client, server.uris["both"], "published/binaries.arrows")
    received = list(reader)
    column = received[0].column(2)
    del reader
    client.close()
    gc.collect()
    assert received == batches
    del received
    gc.collect()
    assert column == batches[0].column(2)
    column.validate(full=True)


def test_half_read_stream_is_dropped(server, client):
    """A consumer may leave at any batch, and the next stream is served."""
    for _ in range(20):
        reader = streams.fetch(client, server.uris["both"], "provided/lists.arrows")
        reader.read_next_batch()
        del reader
    same(streams.fetch(client, server.uris["both"], "provided/lists.arrows"), *streams.read(FILES["lists.arrows"]))


def test_errors_reach_the_client(server, client):
    """An unknown ticket and a provider's own failure come with their status and text."""
    with pytest.raises(dipc.NotFoundError, match="nowhere"):
        streams.fetch(client, server.uris["both"], "nowhere")
    with pytest.raises(dipc.ProviderError, match="no such luck"):
        streams.fetch(client, server.uris["both"], "broken")


def test_received_batches_can_be_served_again(server, client):
    """What was received is an Arrow table like any other: memory of one server, served by the next."""
    schema, batches = streams.read(FILES["nested_dictionaries.arrows"])
    received = list(streams.fetch(client, server.uris["both"], "provided/nested_dictionaries.arrows"))
    second = streams.own_server("auto")
    uri = second.listen(f"shm:@dipc-pytest-second-{os.getpid()}")
    second.serve("again", lambda: streams.reader(schema, received))
    for _ in range(2):
        same(streams.fetch(client, uri, "again"), schema, batches)
    second.close()
