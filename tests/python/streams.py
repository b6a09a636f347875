"""The stream files that the tests serve and compare."""

import os
import pathlib

import pyarrow as pa

import dipc

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests/vectors"
GOLDEN = pathlib.Path(os.environ.get("DIPC_GOLDEN", ROOT / "../shared/golden")) / "streams"


def files():
    """Every file by its name: the project's vectors, and Arrow's golden streams where they are."""
    found = sorted(VECTORS.glob("*.arrows"))
    if GOLDEN.is_dir():
        found += sorted(GOLDEN.glob("*.stream"))
    return {path.name: path for path in found}


def read(path):
    """What pyarrow itself reads."""
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        return reader.schema, list(reader)


def reader(schema, batches):
    """A table as a stream."""
    return pa.RecordBatchReader.from_batches(schema, batches)


def is_valid(batch):
    """Some golden streams hold dates that are no whole days."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def same(reader, schema, batches):
    """Asserts that a stream has these batches, and with them the metadata of fields."""
    assert reader.schema.equals(schema, check_metadata=True), f"{reader.schema}\n{schema}"
    received = list(reader)
    assert len(received) == len(batches)
    for number, (one, other) in enumerate(zip(received, batches)):
        one.validate()
        assert is_valid(one) == is_valid(other), number
        assert one.num_rows == other.num_rows, number
        assert one.equals(other, check_metadata=True), number


def own_server(body):
    """A server that lends bodies of every size where `body` allows."""
    return dipc.Server(body=body, inline_bytes=0)


def fetch(client, uris, ticket, validation="structure"):
    """A table, which pyarrow reads through Arrow's C stream interface. A test that hangs fails, rather."""
    return pa.RecordBatchReader.from_stream(client.get(uris, ticket, validation=validation, stall_timeout=30))


def slices(batches):
    """Rule A7: parts that begin and end in the middle of a byte of a bitmap."""
    return [
        part
        for batch in batches
        if (rows := batch.num_rows) > 3
        for part in (batch.slice(3, rows - 4), batch.slice(1, 1), batch.slice(9), batch.slice(rows))
    ]
