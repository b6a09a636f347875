"""What a report must say about where its figures come from."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers import Peer
from bench.processes import PeerError


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _field(text: str, name: str) -> str:
    """The value of the first line `name : value`."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return "unknown"


def _processor_time() -> tuple[float, float]:
    """Seconds that the processors have worked since the start, and in all."""
    words = _read("/proc/stat").split("\n", 1)[0].split()[1:]
    times = [int(word) / os.sysconf("SC_CLK_TCK") for word in words[:8] if word.isdigit()]
    # user, nice, system, idle, iowait, ...
    return sum(times) - sum(times[3:5]), sum(times)


def busy_processors(seconds: float = 2.0) -> float:
    """How many processors work now. Not the load average, in which the build before still counts."""
    before = _processor_time()
    time.sleep(seconds)
    worked, passed = (after - start for after, start in zip(_processor_time(), before, strict=True))
    # Where nothing works, rounding can leave a little less than nothing.
    share = min(max(worked / passed, 0.0), 1.0) if passed > 0 else 0.0
    return share * (os.cpu_count() or 1)


def _commit() -> str:
    """The commit that is measured, and whether something was changed since."""
    root = Path(__file__).resolve().parent.parent
    try:
        words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def describe(peers: Mapping[str, Peer], *, mode: str, rounds: int) -> dict[str, Any]:
    """Machine, versions and date."""
    versions = {}
    for name, peer in peers.items():
        if peer.missing() is None:
            try:
                versions[name] = peer.version()
            except PeerError as error:
                versions[name] = f"unknown: {error}"
    memory = _field(_read("/proc/meminfo"), "MemTotal").split()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "mode": mode,
        "rounds": rounds,
        "commit": _commit(),
        "processor": _field(_read("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(int(memory[0]) / (1 << 20), 1) if memory[0].isdigit() else None,
        "kernel": platform.release(),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "load": busy_processors(),
        "versions": versions,
    }
