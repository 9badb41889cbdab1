"""The figures of a run, and what follows from them. Kept as one JSON file per workload."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .engines import NATIVE, OURS, OWN, STATIC
from .intervals import Interval, of_ratio
from .machine import Machine

Shape = tuple[int, ...]

FEW_ROUNDS = 5
"""Of a peer that is far from the fastest: nobody needs its second digit."""


@dataclass
class EngineResult:
    """What is known of an engine on a workload apart from its speed."""

    title: str
    version: str = ""
    failed: str | None = None
    """Why there are no figures."""
    variant: str = ""
    """Which of its variants was the fastest: the figures are this one's."""
    variants: dict[str, str] = field(default_factory=dict)
    """Of each variant that was tried, its time over that of the fastest, or why it is out."""
    compile_seconds: float | None = None
    peak_of_calls: int | None = None
    """Bytes resident at most during calls at the largest shape, over those before: temporaries and outputs."""
    peak_over_weights: int | None = None
    """Bytes resident at most then, over the weights and what the process had before it loaded the model: this also
    counts copies of weights, and what a compiler that runs in the process leaves behind."""
    recompilations: int | None = None
    """Compilations after the first call; None for engines that do not count them."""


@dataclass
class Cell:
    """One engine at one shape."""

    median: float | None = None
    """Seconds: the median of the rounds."""
    best: float | None = None
    calls: int = 0
    error: float | None = None
    """The largest difference from eager."""
    failed: str | None = None
    rounds: list[float] = field(default_factory=list)
    """The median of each round. Those of one number in different cells of a shape were measured one after the other."""


@dataclass(frozen=True)
class Disturbance:
    """What others did while a shape was measured."""

    repeated: int = 0
    """Rounds that were measured again."""
    kept: int = 0
    """Rounds that were disturbed too, but kept, as enough had been repeated."""


@dataclass
class WorkloadResult:
    """One workload at many shapes."""

    name: str
    title: str
    dims: list[str]
    machine: Machine
    date: str
    settings: str
    isa: str = NATIVE
    weights: int = 0
    memory_shape: Shape = ()
    engines: dict[str, EngineResult] = field(default_factory=dict)
    shapes: dict[Shape, dict[str, Cell]] = field(default_factory=dict)
    disturbances: dict[Shape, Disturbance] = field(default_factory=dict)

    @property
    def section(self) -> str:
        """The folder of results that belong into one table."""
        return section(self.isa, self.machine.threads)

    def peers(self) -> list[str]:
        """Engines other than ours, in the order they were asked for."""
        return [name for name in self.engines if name not in OWN]

    def best_peer(self, shape: Shape) -> tuple[str, float] | None:
        """The fastest peer at a shape, and its seconds."""
        medians = [(c.median, name) for name, c in self.shapes[shape].items() if c.median and name in self.peers()]
        return (min(medians)[1], min(medians)[0]) if medians else None

    def ratio(self, shape: Shape) -> float | None:
        """Time of the best peer over ours: more than 1 means that we are faster."""
        ours, best = self.shapes[shape].get(OURS, Cell()).median, self.best_peer(shape)
        return best[1] / ours if ours and best else None

    def interval(self, shape: Shape) -> Interval | None:
        """The interval of that ratio; None for results without rounds."""
        cells = self.shapes[shape]
        ours = cells.get(OURS, Cell()).rounds
        peers = [cells[name].rounds for name in self.peers() if name in cells]
        # Those that are too slow to be the fastest have fewer rounds.
        return of_ratio([rounds for rounds in peers if rounds and len(rounds) == len(ours)], ours)

    def price_of_dynamism(self, shape: Shape) -> float | None:
        """Our time over that of our own compilation for this shape alone."""
        cells = self.shapes[shape]
        ours, static = cells.get(OURS, Cell()).median, cells.get(STATIC, Cell()).median
        return ours / static if ours and static else None

    def save(self, folder: Path) -> None:
        """Writes the JSON file into the folder of its section."""
        folder = folder / self.section
        folder.mkdir(parents=True, exist_ok=True)
        data = asdict(self) | {"geomean": geomean(self.ratio(s) for s in self.shapes)}
        data["shapes"] = [
            {
                "shape": list(shape),
                "best_peer": (self.best_peer(shape) or (None,))[0],
                "ratio": self.ratio(shape),
                "interval": None if (interval := self.interval(shape)) is None else asdict(interval),
                **asdict(self.disturbances.get(shape, Disturbance())),
                "engines": {name: asdict(cell) for name, cell in cells.items()},
            }
            for shape, cells in self.shapes.items()
        ]
        del data["disturbances"]
        (folder / f"{self.name}.json").write_text(_dumps(data), encoding="utf-8")


def section(isa: str, threads: int) -> str:
    """The name of the folder."""
    return f"{isa}-{threads}"


def _dumps(data: dict[str, Any]) -> str:
    """JSON with a list of numbers on one line."""
    text = json.dumps(data, indent=1)
    return re.sub(r"\[[\s\d.,e+-]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def load(path: Path) -> WorkloadResult:
    """Reads what `save` wrote, now or before it wrote rounds."""
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["geomean"]
    data["machine"] = Machine(**data["machine"])
    data["memory_shape"] = tuple(data["memory_shape"])
    data["engines"] = {name: EngineResult(**engine) for name, engine in data["engines"].items()}
    data["disturbances"] = {
        tuple(row["shape"]): Disturbance(row["repeated"], row["kept"]) for row in data["shapes"] if "repeated" in row
    }
    data["shapes"] = {
        tuple(row["shape"]): {name: Cell(**cell) for name, cell in row["engines"].items()} for row in data["shapes"]
    }
    return WorkloadResult(**data)


def cell(rounds: list[list[float]], error: float | None) -> Cell:
    """The figures of one engine at one shape, of the calls of each round."""
    if not rounds:
        return Cell(error=error)
    # Five digits: the clock has no more of a microsecond.
    medians = [float(f"{statistics.median(calls):.5g}") for calls in rounds]
    calls = sum(map(len, rounds))
    return Cell(statistics.median(medians), min(map(min, rounds)), calls, error, rounds=medians)


def geomean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known."""
    known = [math.log(value) for value in values if value]
    return math.exp(sum(known) / len(known)) if known else None
