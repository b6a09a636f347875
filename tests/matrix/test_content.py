"""Every language serves, every language fetches, and the content is the same everywhere (issue 4, point 5)."""

from __future__ import annotations

import pytest

from peers import assert_same, read

KNOWN = {"go": "fixed-size binary byte width must be positive"}
"""What a language's Arrow library cannot read, in its own words."""


def test_same_content(served, client, tmp_path):
    """What arrives is what pyarrow reads in the file that was served."""
    out = tmp_path / "out.arrows"
    got = client.get(served.uri, "table", out)
    if client.name in KNOWN and KNOWN[client.name] in got.text:
        pytest.skip(f"{client.name}: {got.text}")
    assert got.code == 0, got.text
    assert_same(got, served.path, *read(out), is_split="dipc" in (served.name, client.name))


def test_an_unknown_ticket(served_made, client, tmp_path):
    """It is said so, with the ticket's name, and the next stream is served."""
    got = client.get(served_made.uri, "nowhere", tmp_path / "out.arrows")
    assert got.code != 0
    assert got.status in ("DIPC_ERR_NOT_FOUND", None)
    assert "nowhere" in got.text
    assert client.get(served_made.uri, "table", tmp_path / "then.arrows").rows == 500_000


def test_a_provider_that_fails(served_made, client, tmp_path):
    """Its words reach the client."""
    if served_made.name == "dipc":
        pytest.skip("the command serves files alone, which do not fail")
    got = client.get(served_made.uri, "broken", tmp_path / "out.arrows")
    assert got.code != 0
    assert got.status in ("DIPC_ERR_PROVIDER", None)
    assert "the provider failed on purpose" in got.text


def test_cancel_in_mid_stream(served_made, client, tmp_path):
    """The client leaves after three batches, in its language's way, and the server serves on."""
    if client.name == "dipc":
        pytest.skip("the command is cancelled by a signal: test_failures.py")
    got = client.cancel(served_made.uri, "table" if served_made.name == "dipc" else "endless", 3)
    assert (got.code, got.text.strip()) == (0, "cancelled after 3")
    assert client.get(served_made.uri, "table", tmp_path / "out.arrows").rows == 500_000
