"""One architecture of the zoo: how it is made, its inputs, which of their dims are dynamic, and at which extents."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch.export import Dim

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Tensor:
    """An input: its extents, a number, the name of a size or a multiple of one each, and how it is filled."""

    dims: tuple[int | str | tuple[int, str], ...]
    fill: Callable[[Sequence[int], torch.Generator], torch.Tensor]


@dataclass(frozen=True)
class Range:
    """The extents of a dynamic dim: multiples of ``step`` from ``low`` to ``high``."""

    low: int = 1
    high: int = 64
    step: int = 1

    def dim(self, name: str) -> Any:
        """As torch.export wants it."""
        if self.step == 1:
            return Dim(name, min=self.low, max=self.high)
        return self.step * Dim(f"{name}_{self.step}", min=-(-self.low // self.step), max=self.high // self.step)

    def sample(self, generator: random.Random) -> int:
        """Any of them."""
        return generator.randrange(-(-self.low // self.step), self.high // self.step + 1) * self.step


@dataclass(frozen=True)
class Architecture:
    """A model of the zoo. ``config`` are the arguments of its configuration; ``auto`` names the class that makes it."""

    name: str
    kind: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    sizes: Mapping[str, Range]
    auto: str = "AutoModel"
    example: Mapping[str, int] = field(default_factory=dict)
    """Extents to export with, where the default (small, all different) does not do."""
    part: str = ""
    """The submodule to compile instead of all, by its attribute."""
    tolerance: float = 2e-5
    """Largest error in f32, relative to the largest element of eager's result."""
    fixed: str = ""
    """Why a dim that one would want dynamic is not: said by eager or by transformers' own code."""

    def make(self, dropout: bool = True) -> torch.nn.Module:
        """The model with random weights, the same each time; without ``dropout`` one that draws none when it trains."""
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(self.name.partition("/")[0], **self.config)
        if not dropout:
            drops = [key for key, value in config.to_dict().items() if "drop" in key and isinstance(value, float)]
            config.update({**dict.fromkeys(drops, 0.0), "apply_spec_augment": False})
        auto = getattr(transformers, self.auto)
        model = auto.from_config(config) if hasattr(auto, "from_config") else auto(config)
        for name in self.part.split(".") if self.part else ():
            model = getattr(model, name)
        with torch.no_grad():
            # Fresh models have many zeros and ones, under which mistakes hide.
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        return model.eval()

    def arguments(self, sizes: Sizes, seed: int = 0) -> dict[str, torch.Tensor]:
        """Inputs of these extents."""
        generator = torch.Generator().manual_seed(seed)

        def extent(dim: int | str | tuple[int, str]) -> int:
            return sizes[dim] if isinstance(dim, str) else dim[0] * sizes[dim[1]] if isinstance(dim, tuple) else dim

        return {name: tensor.fill([*map(extent, tensor.dims)], generator) for name, tensor in self.inputs.items()}

    def export_sizes(self) -> dict[str, int]:
        """Extents to export with: no two alike, none 0 or 1."""
        sizes = dict(self.example)
        for i, (name, bounds) in enumerate(self.sizes.items()):
            steps = -(-max(bounds.low, 2) // bounds.step) + 1 + 2 * i
            sizes.setdefault(name, min(steps * bounds.step, bounds.high))
        return sizes

    def dynamic_shapes(self) -> dict[str, Any]:
        """For torch.export."""
        dims = {name: bounds.dim(name) for name, bounds in self.sizes.items()}
        return {
            name: {
                i: dims[d] if isinstance(d, str) else d[0] * dims[d[1]]
                for i, d in enumerate(tensor.dims)
                if not isinstance(d, int)
            }
            for name, tensor in self.inputs.items()
        }

    def distinct(self, count: int) -> list[dict[str, int]]:
        """Extents of which none is 0 or 1 and none is like another, or like a static one: Dynamo would unite them."""
        generator = random.Random(self.name)
        static = {0, 1, *(d for tensor in self.inputs.values() for d in tensor.dims if isinstance(d, int))}
        found: list[dict[str, int]] = []
        while len(found) < count:
            sizes = {n: r.sample(generator) for n, r in self.sizes.items()}
            if not static & set(sizes.values()) and len(set(sizes.values())) == len(sizes) and sizes not in found[-1:]:
                found.append(sizes)
        return found

    def points(self, count: int = 5) -> list[dict[str, int]]:
        """The smallest extents, the largest, the smallest again, and others in between."""
        low = {n: -(-r.low // r.step) * r.step for n, r in self.sizes.items()}
        high = {n: r.high // r.step * r.step for n, r in self.sizes.items()}
        generator = random.Random(self.name)
        others = [{n: r.sample(generator) for n, r in self.sizes.items()} for _ in range(count - 3)]
        return [high, *others[:1], low, *others[1:], {**high, next(iter(low)): low[next(iter(low))]}]


# -- how inputs are filled ----------------------------------------------------------------------------------------


def normal(*dims: int | str | tuple[int, str]) -> Tensor:
    """Pixels, samples, features: normally distributed."""
    return Tensor(dims, lambda shape, g: torch.randn(*shape, generator=g))


def tokens(*dims: int | str, count: int = 99, low: int = 3) -> Tensor:
    """Token ids; those below ``low`` have a special meaning."""
    return Tensor(dims, lambda shape, g: torch.randint(low, count, tuple(shape), generator=g))


def mask(*dims: int | str) -> Tensor:
    """An attention mask [batch, length]: rows of different lengths, padded at the end."""

    def fill(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
        lengths[0] = shape[1]
        return (torch.arange(shape[1]) < lengths).long()

    return Tensor(dims, fill)


def boxes(*dims: int | str) -> Tensor:
    """Bounding boxes (x0, y0, x1, y1) in [0, 1000)."""

    def fill(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        corners = torch.randint(0, 500, (*shape[:-1], 2), generator=generator)
        return torch.cat([corners, corners + torch.randint(0, 500, (*shape[:-1], 2), generator=generator)], -1)

    return Tensor(dims, fill)
