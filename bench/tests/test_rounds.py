"""Turns, failures and what is left out, with peers that measure nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.cases import Case, Entry, Group, matrix
from bench.processes import PeerError
from bench.registry import all_peers
from bench.results import Result, Row
from bench.rounds import run_all, run_group

CASE = Case("get", batch_bytes=64)


class Recorded:
    """A peer that writes down when it was asked."""

    def __init__(self, name: str, log: list[str], *, missing: str | None = None, fails_at: int | None = None) -> None:
        self.name = name
        self.log = log
        self.closed = False
        self._missing = missing
        self._fails_at = fails_at
        self._calls = 0

    def missing(self) -> str | None:
        return self._missing

    def version(self) -> str:
        return "1"

    def run(self, _case: Case) -> Result:
        self.log.append(self.name)
        self._calls += 1
        if self._calls == self._fails_at:
            raise PeerError("it broke")
        return Result({"bytes_per_second": float(self._calls)})

    def close(self) -> None:
        self.closed = True


def group(*names: str) -> Group:
    return Group("some", tuple(Entry(name, CASE) for name in names))


def test_peers_take_turns() -> None:
    log: list[str] = []
    rows = run_group(group("a", "b"), {name: Recorded(name, log) for name in "ab"}, rounds=3)
    assert log == ["a", "b", "a", "b", "a", "b"]
    assert [row.values("bytes_per_second") for row in rows] == [[1.0, 2.0, 3.0]] * 2


def test_a_peer_that_fails_is_not_asked_again_and_the_others_go_on() -> None:
    log: list[str] = []
    peers = {"a": Recorded("a", log, fails_at=2), "b": Recorded("b", log)}
    failed, other = run_group(group("a", "b"), peers, rounds=4)
    assert log == ["a", "b", "a", "b", "b", "b"]
    assert (failed.problem, len(failed.rounds)) == ("it broke", 1)
    assert (other.problem, len(other.rounds)) == (None, 4)


def test_a_missing_peer_is_left_out_with_its_reason_and_all_are_closed() -> None:
    log: list[str] = []
    peers = {"a": Recorded("a", log, missing="not installed"), "b": Recorded("b", log)}
    rows: list[Row] = []
    said: list[str] = []
    run_all([group("a", "b")], peers, 2, said.append, rows.extend)
    assert log == ["b", "b"]
    assert {row.peer: row.problem for row in rows} == {"a": "not installed", "b": None}
    assert "a: left out: not installed" in said
    assert all(peer.closed for peer in peers.values())


def test_a_group_is_not_measured_without_the_peers_that_it_is_for() -> None:
    for missing, asked in (("not installed", []), (None, ["a", "b"])):
        log: list[str] = []
        peers = {"a": Recorded("a", log), "b": Recorded("b", log, missing=missing)}
        rows: list[Row] = []
        run_all([replace(group("a", "b"), beside=("b",))], peers, 1, lambda _: None, rows.extend)
        assert log == asked
        assert {row.peer: row.problem for row in rows}["b"] == missing


def test_peers_are_closed_when_the_run_is_interrupted() -> None:
    class Interrupting(Recorded):
        def run(self, _case: Case) -> Result:
            raise KeyboardInterrupt

    peer = Interrupting("a", [])
    with pytest.raises(KeyboardInterrupt):
        run_all([group("a")], {"a": peer}, 1, lambda _: None, lambda _: None)
    assert peer.closed


def test_every_entry_of_the_matrix_has_a_peer_and_every_peer_an_entry() -> None:
    named = {entry.peer for group in matrix(quick=False) for entry in group.entries}
    assert named == set(all_peers(Path("dipc")))


def test_what_is_measured_quickly_is_a_part_of_the_whole() -> None:
    def entries(*, quick: bool) -> set[tuple[str, Entry]]:
        return {
            (group.name, Entry(entry.peer, replace(entry.case, seconds=0)))
            for group in matrix(quick=quick)
            for entry in group.entries
        }

    assert entries(quick=True) < entries(quick=False)


def test_nothing_is_measured_twice_in_a_group() -> None:
    for each in matrix(quick=False):
        assert len(set(each.entries)) == len(each.entries), each.name
