"""Every language puts tables to every language and exchanges tables with it, and the content is the same everywhere."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import dipc
from peers import assert_same, read

WIDTH_0 = re.compile(r"fixed_size_(binary|list<.*>)\[0\]")


def has_crossed(got, path, *peers):
    """Whether a file was taken. arrow-go knows no types of width 0, and refuses those files alone."""
    is_refused = "go" in peers and got.code != 0 and WIDTH_0.search(str(read(path)[0]))
    assert is_refused or got.code == 0, f"{path.name}: {got.text}"
    return not is_refused


def test_put(taking, sender, files):
    """What a server serves after a put is what pyarrow reads in the file that was sent."""
    tables = [(f"{sender.name}-{path.stem}", path) for path in files]
    for (ticket, path), got in zip(tables, sender.put(taking.uri, tables)):
        if not has_crossed(got, path, taking.name, sender.name):
            continue
        with dipc.get(taking.uri, ticket) as reader:
            schema, batches = pa.schema(reader.schema), [pa.record_batch(batch) for batch in reader]
        is_split = "dipc" in (taking.name, sender.name)
        assert_same(got, path, schema, batches, is_split)


def test_exchange(taking, sender, files, tmp_path):
    """What comes back from a server that answers with what it is sent."""
    if "dipc" in (taking.name, sender.name):
        pytest.skip("the command does not exchange tables")
    tables = [(path.stem, path, tmp_path / path.name) for path in files]
    for (_, path, out), got in zip(tables, sender.exchange(taking.uri, tables)):
        if has_crossed(got, path, taking.name, sender.name):
            assert_same(got, path, *read(out))
