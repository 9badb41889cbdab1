"""Which dims of a model's inputs are dynamic, which are static, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from .entry_guards import lines_of
from .hints import is_hint, spec_of, user_inputs
from .readable import readable, requirement
from .symbols import Symbol


@dataclass(frozen=True)
class DimReport:
    """One dim of one input of a compiled model."""

    input: str
    """The input's name."""
    dim: int
    size: int | str
    """The static size, or the text of the symbolic one."""
    range: tuple[int, int | None] | None
    """The least and the largest size, None for no limit; None if the size is static or no single symbol."""
    reason: str
    """Why it is static, or dynamic."""

    @property
    def dynamic(self) -> bool:
        """Whether calls may have several sizes there."""
        return isinstance(self.size, str)

    def __str__(self) -> str:
        if not self.dynamic:
            return f"{self.input} dim {self.dim} is {self.size} ({self.reason})"
        limits = ""
        if self.range is not None:
            low, high = self.range
            limits = f", {low} and more" if high is None else f", {low} to {high}"
        return f"{self.input} dim {self.dim} is {self.size}{limits} ({self.reason})"


@dataclass(frozen=True, repr=False)
class DynamicReport(Sequence[DimReport]):
    """All dims of a compiled model's inputs, in order. ``print`` shows one a line, ``repr`` all in one line."""

    dims: tuple[DimReport, ...] = ()

    @property
    def dynamic(self) -> tuple[DimReport, ...]:
        """The dims that calls may have several sizes in."""
        return tuple(dim for dim in self.dims if dim.dynamic)

    @property
    def static(self) -> tuple[DimReport, ...]:
        """The dims that have one size."""
        return tuple(dim for dim in self.dims if not dim.dynamic)

    def __getitem__(self, index: Any) -> Any:
        return self.dims[index]

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[DimReport]:
        return iter(self.dims)

    def __repr__(self) -> str:
        inputs: dict[str, list[str]] = {}
        for dim in self.dims:
            inputs.setdefault(dim.input, []).append(str(dim.size))
        shapes = ", ".join(f"{name}[{', '.join(sizes)}]" for name, sizes in inputs.items())
        static = "; ".join(map(str, self.static))
        return f"DynamicReport({shapes}{f'; static: {static}' if static else ''})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.dims)) or "the model has no tensor inputs"


def report(
    program: ExportedProgram,
    inputs: Sequence[Any],
    symbols: Sequence[Symbol],
    specs: Sequence[Any],
    differing: Mapping[int, Sequence[int]] | None,
) -> DynamicReport:
    """The report on an imported program.

    ``differing``: for each leaf, the dims in which the examples differ, if there are several.
    """
    known = {symbol.name: symbol for symbol in symbols}
    places = _places(program)
    lines = lines_of(program)
    found = []
    for x in inputs:
        spec = specs[x.leaf] if x.leaf < len(specs) else None
        for dim, text in enumerate(x.dims):
            size = int(text) if str(text).isdecimal() else text
            symbol = known.get(str(size))
            limits = None if symbol is None else (symbol.min, symbol.max)
            said = spec_of(spec, dim)
            differ = differing is not None and dim in differing.get(x.leaf, ())
            place = places.get(x.leaf, "")
            if isinstance(size, int):
                why = _why_static(said, differing is not None, f"{place}.shape[{dim}]", lines)
            else:
                why = _why_dynamic(said, differ)
            found.append(DimReport(x.name, dim, size, limits, why))
    return DynamicReport(tuple(found))


def _why_dynamic(said: Any, differ: bool) -> str:
    if differ:
        return "the examples differ"
    if said is None:
        return "the program says so"
    return f"Dim.{said.type.name}" if is_hint(said) else "dynamic_shapes"


def _why_static(said: Any, several: bool, place: str, lines: Mapping[str, str]) -> str:
    if not is_hint(said):
        if said is not None:
            return "dynamic_shapes"
        return "equal in all examples" if several else "not in dynamic_shapes"
    for condition, source in lines.items():
        if place in readable(condition):
            return requirement(source, condition)
    return "the model's code needs this size"


def _places(program: ExportedProgram) -> dict[int, str]:
    """How conditions name each leaf that is a tensor."""
    found = {}
    for leaf, value in enumerate(user_inputs(program)):
        if not isinstance(value, torch.Tensor):
            continue
        env = getattr(getattr(value, "fake_mode", None), "shape_env", None)
        for tracked in (env.tracked_fakes or ()) if env is not None else ():
            if tracked.fake is value:
                name: Any = tracked.source.name
                found[leaf] = readable(name() if callable(name) else name)
    return found
