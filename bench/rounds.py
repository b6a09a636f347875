"""Runs groups of cases in turns: A B A B, so that a slow minute of the machine hits all that is compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from bench.cases import Group
from bench.peers import Peer
from bench.processes import PeerError
from bench.results import Row


def run_group(group: Group, peers: Mapping[str, Peer], rounds: int) -> list[Row]:
    """One row for each entry. A peer that fails is not asked again; its row says why."""
    rows = [Row(group.name, entry.peer, entry.case) for entry in group.entries]
    for _ in range(rounds):
        for row in rows:
            if row.problem is None:
                try:
                    row.rounds.append(peers[row.peer].run(row.case))
                except PeerError as error:
                    row.problem = str(error)
    return rows


def run_all(
    groups: Iterable[Group],
    peers: Mapping[str, Peer],
    rounds: int,
    say: Callable[[str], None],
    done: Callable[[list[Row]], None],
) -> None:
    """Runs all groups; `done` gets the rows of each as it ends. Peers that are missing are left out."""
    absent: dict[str, str] = {}
    for name in peers:
        reason = peers[name].missing()
        if reason is not None:
            absent[name] = reason
            say(f"{name}: left out: {reason}")
    begun = time.monotonic()
    try:
        for group in groups:
            pointless = bool(group.beside) and all(name in absent for name in group.beside)
            here = () if pointless else tuple(entry for entry in group.entries if entry.peer not in absent)
            rows = run_group(Group(group.name, here), peers, rounds)
            rows += [
                Row(group.name, entry.peer, entry.case, problem=absent[entry.peer])
                for entry in group.entries
                if entry.peer in absent
            ]
            done(rows)
            say(f"{group.name} ({time.monotonic() - begun:.0f} s)")
    finally:
        for peer in peers.values():
            peer.close()
