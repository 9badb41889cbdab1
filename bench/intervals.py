"""How sure a ratio is: bootstrap intervals over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

LEVEL = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """The ends of a 95 % interval of a ratio of two times; more than 1 means that ours is the smaller one."""

    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What may be said of ours."""
        return "faster" if self.low > 1.0 else "slower" if self.high < 1.0 else "same"


def of_ratio(peers: Sequence[Sequence[float]], ours: Sequence[float]) -> Interval | None:
    """The interval of the fastest peer's median over our median.

    Rounds are drawn with replacement, and all engines' figures of a round are drawn together: what slows down a whole
    round then cancels out. In each resample the fastest peer is chosen anew, as it was in the measurement: with one
    peer chosen for all, its luck would count as its speed.

    None without peers, or with fewer than two rounds.
    """
    if not peers or len(ours) < 2:
        return None
    if any(len(peer) != len(ours) for peer in peers):
        raise ValueError("a round is missing")
    figures = numpy.array([ours, *peers])
    draws = numpy.random.default_rng(0).integers(len(ours), size=(_RESAMPLES, len(ours)))
    medians = numpy.median(figures[:, draws], axis=2)
    ratios = medians[1:].min(axis=0) / medians[0]
    low, high = numpy.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
