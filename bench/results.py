"""What comes out: the figures of one run of a peer, rows of rounds, and the whole as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cases import Case


@dataclass(frozen=True)
class Result:
    """One run of one case by one peer.

    `figures` has, where the peer tells them: bytes_per_second, batches_per_second, p50_ns, p99_ns, p99_9_ns,
    max_ns, cpu_server_seconds, cpu_client_seconds, seconds, and others under names of their own. `raw` is what
    the peer's program said.
    """

    figures: dict[str, float]
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """All rounds of one case by one peer. With `problem`, the rounds before it."""

    group: str
    peer: str
    case: Case
    rounds: list[Result] = field(default_factory=list)
    problem: str | None = None

    def values(self, figure: str) -> list[float]:
        """A figure of each round that has it."""
        return [result.figures[figure] for result in self.rounds if figure in result.figures]


@dataclass
class Run:
    """One run of the whole: where, when, with what, and its rows."""

    about: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def save(self, path: Path) -> None:
        rows = [
            {
                "group": row.group,
                "peer": row.peer,
                "case": row.case.to_json(),
                "rounds": [{"figures": result.figures, "raw": result.raw} for result in row.rounds],
                "problem": row.problem,
            }
            for row in self.rows
        ]
        # A line for each row: what changed between two runs can be read.
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = f'{{"about": {json.dumps(self.about, indent=1)},\n"rows": [\n{lines}\n]}}\n'
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    @staticmethod
    def load(path: Path) -> Run:
        whole = json.loads(path.read_text())
        rows = [
            Row(
                group=row["group"],
                peer=row["peer"],
                case=Case.from_json(row["case"]),
                rounds=[Result(result["figures"], result["raw"]) for result in row["rounds"]],
                problem=row["problem"],
            )
            for row in whole["rows"]
        ]
        return Run(whole["about"], rows)
