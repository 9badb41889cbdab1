"""Which of an engine's variants is measured: the fastest of those that are right at most shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .process import Launch, allocators
from .results import Shape, geomean, load

SECONDS = 0.05
"""Measured of each variant at each shape."""


@dataclass
class Trial:
    """What a short measurement of a variant found."""

    launch: Launch
    times: dict[Shape, float] = field(default_factory=dict)
    """The fastest call, in seconds, at the shapes where outputs were right."""
    problem: str = ""
    """Why shapes are missing."""

    @property
    def label(self) -> str:
        """The variant's name, and that of its allocator."""
        return ", ".join(part for part in (self.launch.variant or "default", self.launch.allocator) if part)

    def slower(self, other: Trial) -> float:
        """Its time over the other's, over the shapes of both; infinite if there are none."""
        both = [shape for shape in self.times if shape in other.times]
        mean = geomean(self.times[shape] / other.times[shape] for shape in both)
        return float("inf") if mean is None else mean

    def against(self, best: Trial) -> str:
        """For the results: its time over the best one's, or what was wrong."""
        figure = f"{self.slower(best):.3f}" if self.times else ""
        return "; ".join(part for part in (figure, self.problem) if part)


def choose(trials: Sequence[Trial]) -> Trial:
    """The one that is right at the most shapes; of several, the fastest."""
    most = max(len(trial.times) for trial in trials)
    complete = [trial for trial in trials if len(trial.times) == most]
    # Those that are right at the same number of shapes need not be so at the same ones: the first is the measure then.
    return min(complete, key=lambda trial: trial.slower(complete[0]))


def known(results: Path, launches: Sequence[Launch]) -> Launch | None:
    """The variant that was the fastest by a folder's results: one of the launches, perhaps with another allocator."""
    path = results / f"{launches[0].workload}.json"
    engine = load(path).engines.get(launches[0].engine) if path.exists() else None
    if engine is None or engine.failed:
        return None
    forms = [replace(launch, allocator=other) for launch in launches for other in ("", *allocators())]
    return next((launch for launch in forms if launch.form == engine.variant), None)
