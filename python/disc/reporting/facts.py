"""All that a report shows of a model."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..testing import cpu_name
from . import limits
from .accuracy import Accuracy, compare
from .calls import Call
from .limits import Limits
from .measurement import Measurement, measure

if TYPE_CHECKING:
    from ..frontend.dynamic_report import DimReport
    from ..frontend.fallback import Fallback
    from ..frontend.symbols import Symbol
    from ..guards import Guard
    from ..memory import MemoryUse
    from ..model import Model
    from ..training import TrainingStep


@dataclass(frozen=True)
class Sizes:
    """What is dynamic in a model, and what each call checks."""

    symbols: tuple[Symbol, ...]
    """The dynamic sizes with their ranges; those of computed tensors are ``data_dependent``."""
    dims: tuple[DimReport, ...]
    """Every dim of every input, and why it is dynamic or static."""
    guards: tuple[Guard, ...]
    shapes: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    """The name and the dims of each input."""

    def places(self, symbol: Symbol) -> str:
        """The dims that a symbol is the size of: ``"ids dim 0, mask dim 0"``."""
        return ", ".join(
            f"{name} dim {i}" for name, dims in self.shapes for i, dim in enumerate(dims) if dim == symbol.name
        )

    def reason(self, symbol: Symbol) -> str:
        """Why a size is dynamic."""
        if symbol.data_dependent:
            return "the model computes it"
        reasons = dict.fromkeys(dim.reason for dim in self.dims if dim.size == symbol.name)
        return ", ".join(reasons) or ("the model says so" if self.places(symbol) else "dims are computed from it")

    @property
    def static(self) -> tuple[DimReport, ...]:
        """The dims with one size."""
        return tuple(dim for dim in self.dims if not dim.dynamic)


def sizes(model: Model) -> Sizes:
    """The dynamic sizes and guards of a model."""
    shapes = tuple((entry.name, entry.dims) for entry in model.inputs)
    return Sizes(model.symbols, model.dynamic_report.dims, tuple(model.guards()), shapes)


@dataclass(frozen=True)
class Report:
    """What :func:`disc.report` found, and wrote to a page."""

    title: str
    created: datetime.datetime
    versions: str
    """``"DISC 0.1.1, PyTorch 2.13.0"``."""
    cpu: str
    threads: int
    target: str
    interface: tuple[list[str], list[str]]
    """Inputs and outputs, ``"x: float32[batch, 64]"``."""
    sizes: Sizes
    measurements: tuple[Measurement, ...]
    """One for each shape; the page shows lines and kernels of the first."""
    memory: tuple[MemoryUse | None, ...]
    """Of each shape; None where it depends on data."""
    fallbacks: tuple[Fallback, ...]
    accuracy: Accuracy
    limits: Limits | None
    """None for a model that does not run on this CPU."""
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    path: Path | None = None
    """The page."""

    def __str__(self) -> str:
        lines = [f"{self.title}: {m.name}: {m.seconds * 1e3:.3f} ms a call" for m in self.measurements]
        if self.accuracy.largest is not None:
            lines.append(f"largest error against {self.accuracy.reference}: {self.accuracy.largest:.1e}")
        if self.path is not None:
            lines.append(f"written to {self.path}")
        return "\n".join(lines)


def gather(
    model: Model,
    calls: Sequence[Call],
    *,
    title: str = "",
    reference: Callable[..., Any] | None = None,
    accuracy: bool = True,
    further: int = 0,
    repeats: int = 10,
) -> Report:
    """Measures a model and compares it with PyTorch; ``further`` results are the model's alone."""
    import torch

    from .. import __version__

    measured_limits = machine_limits(model)
    measurements = tuple(measure(model, call, repeats, measured_limits) for call in calls)
    compared = compare(model, reference, calls, further=further) if accuracy else None
    return Report(
        title=title or model_name(model),
        created=datetime.datetime.now(datetime.timezone.utc),
        versions=f"DISC {__version__}, PyTorch {torch.__version__}",
        cpu=cpu_name(),
        threads=model.threads,
        target=model._pipeline.target,
        interface=interface(model),
        sizes=sizes(model),
        measurements=measurements,
        memory=tuple(memory(model, call.extents) for call in calls),
        fallbacks=model.fallbacks,
        accuracy=compared or Accuracy("", note="it was switched off"),
        limits=measured_limits,
        compile_seconds=dict(model.timings),
    )


def machine_limits(model: Model) -> Limits | None:
    """This machine's limits with the model's threads; None if the model runs on another device."""
    return limits.measure(model.threads) if model._pipeline.target == "cpu" else None


def memory(model: Model, extents: Mapping[str, int]) -> MemoryUse | None:
    """The temporaries of a call; None if their sizes depend on data."""
    try:
        return model.memory(**extents)
    except ValueError:
        return None


def interface(model: Model) -> tuple[list[str], list[str]]:
    """The inputs and outputs as text."""
    rows = model._tensor_rows()
    inputs, outputs = (
        [f"{name}: {dtype}{dims}" for what, name, dtype, dims in rows if what == kind] for kind in ("input", "output")
    )
    return inputs, outputs


def model_name(model: Model | TrainingStep) -> str:
    """The class of the module, if there is one."""
    module = model.module
    return type(module).__name__ if module is not None else "compiled model"
