"""Medians and spread of a few rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """The median of some rounds, and the least and the most of them."""

    median: float
    least: float
    most: float
    count: int

    @property
    def spread(self) -> float:
        """How far the rounds lie apart, as a part of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def summary(values: Sequence[float]) -> Summary | None:
    """Of no values there is none. Five rounds have no quartiles worth the name, so the spread is their range."""
    if not values:
        return None
    return Summary(statistics.median(values), min(values), max(values), len(values))
