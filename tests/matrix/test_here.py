"""What the matrix joins, and what it leaves out, with the reason."""

from __future__ import annotations

import pytest

from conftest import FILES, GOLDEN
from peers import FOUND, NAMES, SCHEMES, UNAVAILABLE_SCHEMES


def leave_out(request, reason):
    if request.config.getoption("--all-peers"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.parametrize("name", NAMES)
def test_language(request, name):
    if isinstance(FOUND[name], str):
        leave_out(request, FOUND[name])


@pytest.mark.parametrize("transport", SCHEMES)
def test_transport(request, transport):
    if UNAVAILABLE_SCHEMES[transport]:
        leave_out(request, UNAVAILABLE_SCHEMES[transport])


def test_golden_streams(request):
    if not GOLDEN.is_dir():
        leave_out(request, f"no folder {GOLDEN}: DIPC_GOLDEN names another")
    assert len(FILES) > 50
