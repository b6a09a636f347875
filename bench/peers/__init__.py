"""The peers, one module each."""

from __future__ import annotations

from typing import Protocol

from bench.cases import Case
from bench.results import Result


class Peer(Protocol):
    """Something that is measured."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot run on this machine; none where it can."""

    def version(self) -> str:
        """What is measured, for the report."""

    def run(self, case: Case) -> Result:
        """Runs a case once. Raises PeerError where that fails, or where it does not come to an end."""

    def close(self) -> None:
        """Ends what it keeps running between cases."""
