"""What a case of the conformance suite is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Failure:
    """A call that must fail."""

    inputs: Callable[[], Tensors]
    error: type[Exception]
    mentions: Sequence[str]
    """What the message says, of which nothing depends on the target."""


@dataclass(frozen=True)
class Case:
    """A model, compiled once for all sizes."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[..., Tensors]
    """From the values of the dynamic extents."""
    dynamic_shapes: Any
    sizes: Sequence[tuple[int, ...]]
    """Growing and shrinking: the least, tile edges and one beyond, primes."""
    example: tuple[int, ...] = (5,)
    """Not 0, 1, or any static extent."""
    tolerance: float = 1e-5
    failures: Sequence[Failure] = field(default=())

    def __str__(self) -> str:
        return self.name

    def examples(self) -> Tensors:
        """Dense: that inputs may be views is nothing that a model is exported with."""
        return tuple(t.contiguous() for t in self.inputs(*self.example))


def random(*shape: int) -> Tensor:
    return torch.randn(shape)
