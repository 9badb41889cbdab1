"""The figures of a run, and what follows from them. Kept as one JSON file per workload."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .engines import OURS, OWN, STATIC
from .machine import Machine

Shape = tuple[int, ...]


@dataclass
class EngineResult:
    """What is known of an engine on a workload apart from its speed."""

    title: str
    version: str = ""
    failed: str | None = None
    """Why there are no figures."""
    compile_seconds: float | None = None
    peak_of_calls: int | None = None
    """Bytes resident at most during calls at the largest shape, over those before: temporaries and outputs."""
    peak_over_weights: int | None = None
    """Bytes resident at most then, over the weights and what the process had before it loaded the model: this also
    counts copies of weights, and what a compiler that runs in the process leaves behind."""


@dataclass
class Cell:
    """One engine at one shape."""

    median: float | None = None
    """Seconds."""
    best: float | None = None
    calls: int = 0
    error: float | None = None
    """The largest difference from eager."""
    failed: str | None = None


@dataclass
class WorkloadResult:
    """One workload at many shapes."""

    name: str
    title: str
    dims: list[str]
    machine: Machine
    date: str
    settings: str
    weights: int = 0
    memory_shape: Shape = ()
    engines: dict[str, EngineResult] = field(default_factory=dict)
    shapes: dict[Shape, dict[str, Cell]] = field(default_factory=dict)

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

    def price_of_dynamism(self, shape: Shape) -> float | None:
        """Our time over that of our own compilation for this shape alone."""
        cells = self.shapes[shape]
        ours, static = cells.get(OURS, Cell()).median, cells.get(STATIC, Cell()).median
        return ours / static if ours and static else None

    def save(self, folder: Path) -> None:
        """Writes the JSON file."""
        folder.mkdir(parents=True, exist_ok=True)
        data = asdict(self) | {"geomean": geomean(self.ratio(s) for s in self.shapes)}
        data["shapes"] = [
            {
                "shape": list(shape),
                "best_peer": (self.best_peer(shape) or (None,))[0],
                "ratio": self.ratio(shape),
                "engines": {name: asdict(cell) for name, cell in cells.items()},
            }
            for shape, cells in self.shapes.items()
        ]
        (folder / f"{self.name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> WorkloadResult:
    """Reads what `save` wrote."""
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["geomean"]
    data["machine"] = Machine(**data["machine"])
    data["memory_shape"] = tuple(data["memory_shape"])
    data["engines"] = {name: EngineResult(**engine) for name, engine in data["engines"].items()}
    data["shapes"] = {
        tuple(row["shape"]): {name: Cell(**cell) for name, cell in row["engines"].items()} for row in data["shapes"]
    }
    return WorkloadResult(**data)


def cell(samples: list[float], error: float | None) -> Cell:
    """The figures of one engine at one shape."""
    if not samples:
        return Cell(error=error)
    return Cell(statistics.median(samples), min(samples), len(samples), error)


def geomean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known."""
    known = [math.log(value) for value in values if value]
    return math.exp(sum(known) / len(known)) if known else None
