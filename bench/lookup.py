"""Finds figures in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.results import Row, Run
from bench.summary import Summary, summary


@dataclass(frozen=True)
class Ratio:
    """How two rows compare: of their medians, and round by round."""

    value: float
    least: float
    most: float


def find(run: Run, peer: str, op: str, **fields: Any) -> Row | None:
    """The first row of a peer whose case has these fields, and for `group` is in a group of that name."""
    group = fields.pop("group", None)
    for row in run.rows:
        same = all(getattr(row.case, name) == value for name, value in fields.items())
        if row.peer == peer and row.case.op == op and same and (group is None or row.group.startswith(group)):
            return row
    return None


def median(row: Row | None, figure: str) -> float | None:
    """The median of its rounds."""
    found = figures(row, figure)
    return found.median if found else None


def figures(row: Row | None, figure: str) -> Summary | None:
    """Median and spread of its rounds."""
    return summary(row.values(figure)) if row is not None else None


def ratio(ours: Row | None, theirs: Row | None, figure: str) -> Ratio | None:
    """Ours in theirs, where both have the figure. Rounds are compared with the one that came next to them."""
    if ours is None or theirs is None:
        return None
    over, under = summary(ours.values(figure)), summary(theirs.values(figure))
    if over is None or under is None or not under.median:
        return None
    pairs = zip(ours.values(figure), theirs.values(figure), strict=False)
    each = [one / other for one, other in pairs if other]
    return Ratio(over.median / under.median, min(each), max(each))
