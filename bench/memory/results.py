"""Results of one model, as they are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""The budgets, in parts of the peak without one."""


@dataclass
class Plan:
    """A plan that some budget chooses, at one shape."""

    plan: int
    total: int
    """Predicted bytes."""
    overhead: float
    """Predicted."""
    peak: int = 0
    """Measured bytes, with the budget `total`."""
    same: bool = False
    """Whether loss, parameters, buffers and the optimizer's state are bitwise those without a budget."""
    seconds: float = 0.0
    """CPU time of a step."""
    measured: float = 0.0
    """Overhead: the median over rounds of the time over that without a budget in the same round, less 1."""
    error: str = ""


@dataclass
class Budget:
    """A budget as a part of the peak."""

    share: float
    bytes: int
    plan: int | None = None
    """None: no plan fits."""
    peak: int = 0
    same: bool = False
    error: str = ""
    """An error that was not expected, or the message if no plan fits."""


@dataclass
class Peer:
    """A peer at one shape."""

    name: str
    title: str
    peak: int | None = None
    """Bytes that a step allocates at most at one time, gradients included."""
    beside_gradients: int | None = None
    """The same if gradients are allocated before the step."""
    seconds: float | None = None
    compile_seconds: float | None = None
    loss_error: float | None = None
    """Of the first loss, relative to eager's."""
    failed: str = ""


@dataclass
class At:
    """All at one shape."""

    shape: list[int]
    peak: int = 0
    """Predicted bytes of plan 0."""
    plans: list[Plan] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    usual: float | None = None
    """CPU seconds of DISC's step without a budget."""
    rounds: int = 0

    def least(self) -> float | None:
        """The smallest budget as a part of the peak."""
        return min((p.total for p in self.plans), default=0) / self.peak if self.peak else None

    def within(self, size: int) -> Plan | None:
        """The first plan that fits, as the runtime chooses."""
        return next((p for p in self.plans if p.total <= size), None)

    def peer(self, name: str) -> Peer | None:
        """The peer of that name."""
        return next((p for p in self.peers if p.name == name), None)

    def fastest_within(self, size: int) -> Peer | None:
        """The fastest peer that needs no more."""
        fitting = [p for p in self.peers if p.peak is not None and p.seconds and p.peak <= size]
        return min(fitting, key=lambda p: p.seconds or 0.0, default=None)


@dataclass
class Fit:
    """The largest size within a budget: what eager needs at the usual one."""

    budget: int
    name: str
    """The size that grows."""
    usual: int
    without: int
    """The largest with plan 0."""
    plans: int
    """The largest with all plans."""
    overhead: float = 0.0
    """Predicted, of the plan that the largest takes."""
    peak: int = 0
    """Measured in one step at the largest size."""
    error: str = ""


@dataclass
class Result:
    """One model."""

    name: str
    title: str
    dims: list[str]
    paper: str
    machine: str
    revision: str
    date: str
    settings: str
    compile_seconds: float | None = None
    """With plans."""
    shapes: list[At] = field(default_factory=list)
    fit: Fit | None = None
    failed: str = ""
    notes: list[str] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Writes `folder/<name>.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Result:
    """What `save` wrote."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    shapes = [
        At(
            **{
                **at,
                "plans": [Plan(**p) for p in at["plans"]],
                "budgets": [Budget(**b) for b in at["budgets"]],
                "peers": [Peer(**p) for p in at["peers"]],
            }
        )
        for at in data.pop("shapes")
    ]
    fit = data.pop("fit")
    return Result(**data, shapes=shapes, fit=Fit(**fit) if fit else None)


def paired(times: Sequence[float], usual: Sequence[float]) -> float:
    """The median over rounds of a variant's time over the usual one of the same round."""
    return median(a / b for a, b in zip(times, usual, strict=True))


def differs(predicted: float, measured: float, floor: float = 0.03) -> bool:
    """Whether a measured overhead differs from the predicted one by more than a third; less than the floor is noise."""
    gap = abs(measured - predicted)
    return gap > floor and gap > predicted / 3


def same_bits(a: Any, b: Any) -> bool:
    """Whether two lists of tensors have the same bytes."""
    import torch

    return len(a) == len(b) and all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and torch.equal(x.contiguous().view(-1).view(torch.uint8), y.contiguous().view(-1).view(torch.uint8))
        for x, y in zip(a, b, strict=True)
    )
