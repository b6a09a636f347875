"""The reference peer: the public example of Dissociated IPC, with its own client and server, where it was built."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.cases import Case
from bench.peers.ucx import ENVIRONMENT, missing_tcp
from bench.processes import PeerError, free_port, run, serving, wait_for_listener
from bench.results import Result

# Bytes of one stream. Its client looks for each body among all that are missing, so that longer streams of small
# batches are slower.
STREAM_BYTES = 256 << 20


class Reference:
    """Two programs in a folder, `server` and `client`: see docs/benchmarks/README.md."""

    name = "reference peer tcp"

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def missing(self) -> str | None:
        if self._folder is None:
            return "--reference-peer (DIPC_REFERENCE_PEER) names no folder with its programs"
        for name in ("server", "client"):
            if not os.access(self._folder / name, os.X_OK):
                return f"{self._folder / name} is not there, or not a program"
        return missing_tcp()

    def version(self) -> str:
        return "reference peer, built elsewhere"

    def run(self, case: Case) -> Result:
        if case.op != "get" or self._folder is None:
            raise PeerError(f"the reference peer has nothing like {case.op}")
        port = free_port()
        batches = max(8, STREAM_BYTES // case.batch_bytes)
        table = ["--batch-bytes", str(case.batch_bytes), "--batches", str(batches)]
        with serving([str(self._folder / "server"), "--port", str(port), *table], environment=ENVIRONMENT) as server:
            wait_for_listener(server, port)
            output = run([str(self._folder / "client"), "--port", str(port)], timeout=60, environment=ENVIRONMENT)
        return parse(output, case.batch_bytes * batches)

    def close(self) -> None:
        """Nothing runs between cases."""


def parse(output: str, expected: int) -> Result:
    """The last line of what its client prints: seconds from the request to the last batch, and bytes of values."""
    try:
        line = json.loads(output.splitlines()[-1])
        seconds, size, batches = (float(line[name]) for name in ("seconds", "bytes", "batches"))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PeerError("the reference peer's client does not end with a line of figures") from error
    if size != expected:
        raise PeerError(f"the reference peer's client had {size:,.0f} bytes of {expected:,}")
    return Result(
        {"seconds": seconds, "bytes_per_second": size / seconds, "batches_per_second": batches / seconds}, line
    )
