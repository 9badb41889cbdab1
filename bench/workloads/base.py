"""What a workload is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, its inputs at a shape, and the shapes it is measured at.

    Every engine builds the model by itself, in its own process: the same seed gives the same weights and inputs.
    Inputs and outputs are flat sequences of tensors, which is what every engine has a notion of.
    """

    title: str
    dims: Mapping[str, tuple[int, int]]
    """The dynamic dims in the order of `Shape`, each with its smallest and largest extent."""
    module: Callable[[], nn.Module]
    """Makes the model; `build` seeds it."""
    tensors: Callable[[Shape, torch.Generator], tuple[Tensor, ...]]
    """Makes the inputs at a shape; `inputs` seeds it."""
    axes: tuple[Mapping[int, str], ...]
    """Which axes of each input are which of `dims`."""
    shapes: tuple[Shape, ...]
    """Measured by a full run: ones, primes, edges of tiles and the maximum among them."""
    quick: tuple[Shape, ...]
    """Measured by a quick run."""
    tolerance: float
    """Largest difference from eager, of an output over its largest magnitude (or over 1, if that is more)."""
    variadic: bool = False
    """Whether all inputs after the first come as `*args`."""
    written: Callable[[Any], nn.Module] | None = None
    """Makes what `torch.export` takes of the model, if it does not take it as it is."""
    precision: str = "f32"
    """In what engines may compute: `f32`, `bf16` for products, attention and convolutions with sums in f32,
    or `int8` for products and convolutions."""
    transformer: bool = False
    """Whether quantisers are told that the model is a transformer."""

    def __post_init__(self) -> None:
        for shape in (*self.shapes, *self.quick):
            limits = zip(shape, self.dims.values(), strict=True)
            if not all(low <= extent <= high for extent, (low, high) in limits):
                raise ValueError(f"{self.title}: {shape} is not within {dict(self.dims)}")

    def build(self) -> nn.Module:
        """The model, with the same weights each time."""
        torch.manual_seed(0)
        return self.module().eval().requires_grad_(False)

    def exportable(self) -> nn.Module:
        """The model for exporters."""
        model = self.build()
        return model if self.written is None else self.written(model).eval().requires_grad_(False)

    def inputs(self, shape: Shape) -> tuple[Tensor, ...]:
        """Inputs at a shape, the same each time."""
        seed = 0
        for extent in shape:
            seed = seed * 1_009 + extent
        return self.tensors(shape, torch.Generator().manual_seed(seed))

    def calibration(self) -> list[tuple[Tensor, ...]]:
        """Inputs to observe the ranges of activations with, for engines that quantise."""
        shapes = sorted(set(self.quick or self.shapes), key=lambda shape: -shape[0])[:3]
        return [self.inputs(shape) for shape in shapes]

    def example_shape(self) -> Shape:
        """The shape to export with: extents that differ from each other and mean nothing."""
        return tuple(min(high, max(low, 3 + 2 * i)) for i, (low, high) in enumerate(self.dims.values()))

    def example(self) -> tuple[Tensor, ...]:
        """Inputs of that shape."""
        return self.inputs(self.example_shape())

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """The dynamic dims, as `torch.export` and `disc.compile` take them."""
        dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in self.dims.items()}
        axes = tuple({axis: dims[name] for axis, name in named.items()} for named in self.axes)
        return (axes[0], axes[1:]) if self.variadic else axes

    def largest_difference(self, actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
        """To be compared with `tolerance`; infinite if shapes or dtypes differ, or if something is not a number."""
        if len(actual) != len(expected):
            return float("inf")
        worst = 0.0
        for a, e in zip(actual, expected, strict=True):
            if a.shape != e.shape or a.dtype != e.dtype:
                return float("inf")
            if e.numel() == 0:
                continue
            if not e.is_floating_point():
                worst = worst if torch.equal(a, e) else float("inf")
                continue
            difference = float((a - e).abs().max()) / max(1.0, float(e.abs().max()))
            if not difference <= worst:
                worst = difference if difference == difference else float("inf")
        return worst


def in_bf16(workload: Workload) -> Workload:
    """The workload for engines that may round what products and convolutions multiply to bf16."""
    return replace(workload, title=f"{workload.title}, bf16", precision="bf16", tolerance=0.1)


def in_int8(workload: Workload, *, transformer: bool = False) -> Workload:
    """The workload for engines that quantise it: to 8 bits, with scales observed on a few inputs.

    The tolerance is one of quantisation, which says little more than that the engine runs the model.
    """
    return replace(workload, title=f"{workload.title}, int8", precision="int8", transformer=transformer, tolerance=0.25)


def flat(result: Any) -> tuple[Tensor, ...]:
    """What a module returned, as a flat sequence of tensors; numbers among them are tensors too."""
    return (result,) if isinstance(result, Tensor) else tuple(map(torch.as_tensor, result))


def product(first: tuple[int, ...], second: tuple[int, ...], limit: int = 1 << 62) -> tuple[Shape, ...]:
    """All pairs whose product is at most `limit`."""
    return tuple((a, b) for a in first for b in second if a * b <= limit)
