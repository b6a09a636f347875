"""`iperf3`: what one TCP stream carries when nothing is done with the bytes."""

from __future__ import annotations

import json
import re

from bench.cases import MIB, Case
from bench.processes import PeerError, find_program, free_port, run, serving, wait_for_listener
from bench.results import Result

# iperf3 writes no more at once.
MOST = 1 * MIB


def parse(output: str) -> Result:
    """What `iperf3 -J` says that arrived."""
    said = json.loads(output)
    if "error" in said:
        raise PeerError(f"iperf3: {said['error']}")
    received = said["end"]["sum_received"]
    block = said["start"]["test_start"]["blksize"]
    return Result(
        {"seconds": received["seconds"], "bytes_per_second": received["bits_per_second"] / 8, "block_bytes": block},
        {"sum_received": received, "sum_sent": said["end"]["sum_sent"], "blksize": block},
    )


class Iperf3:
    """One stream over the loopback interface, in blocks of a batch's size where iperf3 can.

    With the system's congestion control, or the one that is named.
    """

    def __init__(self, congestion: str | None = None) -> None:
        self.name = f"iperf3 -C {congestion}" if congestion else "iperf3"
        self._options = ["-C", congestion] if congestion else []

    def missing(self) -> str | None:
        return None if find_program("iperf3") else "iperf3 is not installed: tools/setup.sh bench"

    def version(self) -> str:
        found = re.match(r"iperf (\S+)", run(["iperf3", "--version"], timeout=10))
        return f"iperf3 {found[1]}" if found else "iperf3 of unknown version"

    def run(self, case: Case) -> Result:
        port = free_port()
        block = str(min(case.batch_bytes, MOST))
        with serving(["iperf3", "-s", "-1", "-p", str(port)]) as server:
            wait_for_listener(server, port)
            # Whole seconds are all it knows. Where it fails, its JSON says why.
            client = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", "1", "-l", block, "-J", *self._options]
            return parse(run(client, timeout=20, accepted=(0, 1)))

    def close(self) -> None:
        """Nothing runs between cases."""
