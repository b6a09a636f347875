"""The command against pyarrow, both ways: what `dipc serve` serves, and what `dipc get` writes."""

import os
import pathlib
import subprocess

import pyarrow as pa
import pytest

import streams

COMMAND = os.environ.get("DIPC_COMMAND", str(streams.ROOT / "target/debug/dipc"))
FILES = streams.files()

pytestmark = pytest.mark.skipif(
    not pathlib.Path(COMMAND).exists(), reason=f"no {COMMAND}: DIPC_COMMAND names another"
)


@pytest.fixture(scope="module", params=[[], ["--arena"]], ids=["copied", "arena"])
def served(request):
    """`dipc serve` of every file; its URI."""
    arguments = [f"{name}={path}" for name, path in FILES.items()]
    listen = f"shm:@dipc-pytest-command-{os.getpid()}-{len(request.param)}"
    process = subprocess.Popen(
        [COMMAND, "serve", "--listen", listen, *request.param, *arguments], stdout=subprocess.PIPE, text=True
    )
    word, uri = process.stdout.readline().split()
    assert word == "ready"
    yield uri
    process.terminate()
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("name", FILES)
def test_serve(served, client, name):
    """Issue 2, "The command": batches may be cut otherwise, the table is the same."""
    schema, batches = streams.read(FILES[name])
    reader = streams.fetch(client, served, name, "full")
    assert reader.schema.equals(schema, check_metadata=True)
    received = list(reader)
    assert sum(batch.num_rows for batch in received) == sum(batch.num_rows for batch in batches)
    one, other = (pa.Table.from_batches(parts, schema) for parts in (received, batches))
    if schema.names:
        assert one.equals(other, check_metadata=True)


@pytest.mark.parametrize("name", FILES)
def test_get(server, tmp_path, name):
    """Issue 2, "The command": what is written is what was served, and --verify says so."""
    schema, batches = streams.read(FILES[name])
    # pyarrow renames the fields of maps, so the result may differ from the vector.
    output, expected = tmp_path / "out.arrows", tmp_path / "expected.arrows"
    with pa.ipc.new_stream(expected, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    done = subprocess.run(
        [COMMAND, "get", server.uris["both"], f"provided/{name}", "--output", str(output), "--verify", str(expected)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    got_schema, got = streams.read(output)
    assert got_schema.equals(schema, check_metadata=True)
    assert got == batches
